//! Parameters by path: drawn on the host, counted, hashed, saved and loaded.
//!
//! A path is the chain of field names and indices down to the parameter (`blocks.0.attention.qkv`); the name of an enum's
//! variant is not part of it, so that a path does not change with the encoding's kind. Files are safetensors with the tensors
//! sorted by path, so equal weights are equal bytes; Burn's own records carry random ids and no checksum.

use anyhow::{Context, Result, bail, ensure};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor};
use posenc::Distribution;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::BTreeMap;
use std::io::Write;
use tasks::Stream;

/// The path of the parameter a visitor or mapper stands at.
#[derive(Default)]
pub struct ParamPath(Vec<String>);

impl ParamPath {
    /// Goes down into a field; enum variants leave no trace.
    pub fn enter(&mut self, name: &str, container: &str) {
        self.0.push(if container.starts_with("Enum") { String::new() } else { name.to_owned() });
    }

    /// Comes back up.
    pub fn exit(&mut self) {
        self.0.pop();
    }

    /// The dotted path.
    pub fn dotted(&self) -> String {
        self.0.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(".")
    }
}

/// Draws the initial values of the parameter at `path` from its own stream of `seed`.
pub fn draw(seed: u64, path: &str, shape: &[usize], distribution: Distribution) -> Vec<f64> {
    let count = shape.iter().product();
    match distribution {
        Distribution::Constant(value) => vec![value; count],
        Distribution::Normal(std) => {
            let mut stream = Stream::new(seed, &format!("weights {path}"), 0);
            (0..count).map(|_| std * stream.normal()).collect()
        }
        Distribution::Uniform(low, high) => {
            let mut stream = Stream::new(seed, &format!("weights {path}"), 0);
            (0..count).map(|_| low + (high - low) * stream.unit_f64()).collect()
        }
    }
}

/// One parameter on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Sizes of its dimensions.
    pub shape: Vec<usize>,
    /// Row-major values.
    pub values: Vec<f32>,
}

/// All parameters of a model, by path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights(pub BTreeMap<String, HostTensor>);

impl Weights {
    /// Reads every parameter of a module back to the host.
    pub fn of<M: Module>(module: &M) -> Self {
        struct Collect {
            path: ParamPath,
            found: BTreeMap<String, HostTensor>,
        }
        impl ModuleVisitor for Collect {
            fn enter_module(&mut self, name: &str, container: &str) {
                self.path.enter(name, container);
            }
            fn exit_module(&mut self, _name: &str, _container: &str) {
                self.path.exit();
            }
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let tensor = param.val();
                let shape = tensor.dims().to_vec();
                let values = tensor.into_data_dtype(DType::F32).try_to_vec::<f32>().expect("data was just converted to f32");
                self.found.insert(self.path.dotted(), HostTensor { shape, values });
            }
        }
        let mut visitor = Collect { path: ParamPath::default(), found: BTreeMap::new() };
        module.visit(&mut visitor);
        Self(visitor.found)
    }

    /// Number of trainable numbers under a path prefix.
    pub fn count(&self, prefix: &str) -> u64 {
        self.0.iter().filter(|(path, _)| path.starts_with(prefix)).map(|(_, tensor)| tensor.values.len() as u64).sum()
    }

    /// The values of one parameter, for building a module from saved weights.
    ///
    /// # Errors
    ///
    /// If there is no such parameter, or it has another shape.
    pub fn values(&self, path: &str, shape: &[usize]) -> Result<Vec<f64>> {
        let tensor = self.0.get(path).with_context(|| format!("no weights for parameter {path}"))?;
        ensure!(tensor.shape == shape, "parameter {path} has shape {:?} in the weights, {shape:?} in the model", tensor.shape);
        Ok(tensor.values.iter().map(|v| f64::from(*v)).collect())
    }

    /// BLAKE3 over path, shape and little-endian f32 values of every parameter, sorted by path.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (path, tensor) in &self.0 {
            hasher.update(path.as_bytes()).update(&[0]);
            hasher.update(&(tensor.shape.len() as u64).to_le_bytes());
            tensor.shape.iter().for_each(|size| {
                hasher.update(&(*size as u64).to_le_bytes());
            });
            hasher.update(&little_endian(&tensor.values));
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The parameters with their paths under a prefix.
    pub fn prefixed<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (String, HostTensor)> + 'a {
        self.0.iter().map(move |(path, tensor)| (format!("{prefix}{path}"), tensor.clone()))
    }

    /// A safetensors file of these.
    ///
    /// # Errors
    ///
    /// Never for tensors whose values fill their shapes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let bytes: BTreeMap<&String, Vec<u8>> = self.0.iter().map(|(name, tensor)| (name, little_endian(&tensor.values))).collect();
        let views = self.0.iter().map(|(name, tensor)| {
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), &bytes[name])?;
            Ok((name.clone(), view))
        });
        Ok(safetensors::serialize(views.collect::<Result<Vec<_>>>()?, None)?)
    }

    /// Reads a safetensors file.
    ///
    /// # Errors
    ///
    /// If it is none, or not of f32, or holds a number that is not finite.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let file = SafeTensors::deserialize(bytes).context("not a safetensors file")?;
        let mut weights = Self::default();
        for (name, view) in file.iter() {
            ensure!(view.dtype() == Dtype::F32, "{name} is {:?}, not F32", view.dtype());
            let values: Vec<f32> = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            ensure!(values.iter().all(|v| v.is_finite()), "{name} has a value that is not finite");
            weights.0.insert(name.to_owned(), HostTensor { shape: view.shape().to_vec(), values });
        }
        Ok(weights)
    }

    /// Writes a safetensors file, whole or not at all.
    ///
    /// # Errors
    ///
    /// If the directory cannot be written.
    pub fn save(&self, path: &std::path::Path) -> Result<()> {
        let file = self.to_bytes()?;
        let directory = path.parent().context("a weights file lies in a directory")?;
        let mut scratch = tempfile::NamedTempFile::new_in(directory).with_context(|| format!("cannot write in {}", directory.display()))?;
        scratch.write_all(&file).with_context(|| format!("cannot write {}", path.display()))?;
        scratch.as_file().sync_all()?;
        scratch.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }

    /// Reads a safetensors file and checks it against the digest of its record.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no safetensors file of f32, holds a number that is not finite, or has another digest.
    pub fn load(path: &std::path::Path, digest: &str) -> Result<Self> {
        let weights = Self::from_bytes(&fs_err::read(path)?).with_context(|| path.display().to_string())?;
        if weights.digest() != digest {
            bail!("{} does not hold the weights of its record: digest {} instead of {digest}", path.display(), weights.digest());
        }
        Ok(weights)
    }
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
