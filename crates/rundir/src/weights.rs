//! Parameters by path, on the host: counted, hashed, saved and loaded.
//!
//! Files are safetensors with the tensors sorted by path, so equal weights are equal bytes; Burn's
//! own records carry random ids and no checksum.

use crate::disk::Disk;
use crate::read;
use anyhow::{Context, Result, anyhow, bail, ensure};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use schema::text::excerpt;
use std::collections::BTreeMap;
use std::path::Path;

/// Largest number of tensors in a file.
const MAX_TENSORS: usize = 100_000;
/// Largest header (names and shapes) of a file.
pub const MAX_HEADER_BYTES: u64 = 1 << 20;

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
    /// Number of trainable numbers under a path prefix.
    pub fn count(&self, prefix: &str) -> u64 {
        self.0
            .iter()
            .filter(|(path, _)| path.starts_with(prefix))
            .map(|(_, tensor)| tensor.values.len() as u64)
            .sum()
    }

    /// The values of one parameter, for building a module from saved weights.
    ///
    /// # Errors
    ///
    /// If there is no such parameter, or it has another shape.
    pub fn values(&self, path: &str, shape: &[usize]) -> Result<Vec<f64>> {
        let tensor = self
            .0
            .get(path)
            .with_context(|| format!("no weights for parameter {path}"))?;
        ensure!(
            tensor.shape == shape,
            "parameter {path} has shape {:?} in the weights, {shape:?} in the model",
            tensor.shape
        );
        Ok(tensor.values.iter().map(|v| f64::from(*v)).collect())
    }

    /// BLAKE3 over path, shape and little-endian f32 values of every parameter, sorted by path.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (path, tensor) in &self.0 {
            // The zero byte ends the path and the count the shape: fields cannot run together.
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
    pub fn prefixed<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (String, HostTensor)> + 'a {
        self.0
            .iter()
            .map(move |(path, tensor)| (format!("{prefix}{path}"), tensor.clone()))
    }

    /// The parameters as the bytes of a safetensors file.
    ///
    /// # Errors
    ///
    /// If the values of a tensor do not fill its shape.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        // The views borrow these bytes until the file is built.
        let bytes: BTreeMap<&String, Vec<u8>> = self
            .0
            .iter()
            .map(|(name, tensor)| (name, little_endian(&tensor.values)))
            .collect();
        let views = self.0.iter().map(|(name, tensor)| {
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), &bytes[name])?;
            Ok((name.clone(), view))
        });
        Ok(safetensors::serialize(
            views.collect::<Result<Vec<_>>>()?,
            None,
        )?)
    }

    /// Reads a safetensors file.
    ///
    /// # Errors
    ///
    /// If it is not a safetensors file of f32, holds a number that is not finite, or has a header
    /// larger than [`MAX_HEADER_BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        ensure!(
            !bytes.starts_with(b"PK\x03\x04"),
            "not a safetensors file but a zip archive, as torch.save writes: \
             safetensors.torch.save_file(TENSORS, FILE) writes one"
        );
        // A file begins with the length of its header, a little-endian u64.
        let header = bytes
            .first_chunk()
            .map(|length| u64::from_le_bytes(*length))
            .context("not a safetensors file: too short")?;
        ensure!(
            header <= MAX_HEADER_BYTES,
            "its header claims to have {header} bytes, more than {MAX_HEADER_BYTES}"
        );
        // What the parser says may quote the name of a tensor.
        let file = SafeTensors::deserialize(bytes)
            .map_err(|error| anyhow!("not a safetensors file: {}", excerpt(&error.to_string())))?;
        ensure!(
            file.len() <= MAX_TENSORS,
            "it holds {} tensors, more than {MAX_TENSORS}",
            file.len()
        );
        let mut weights = Self::default();
        for (name, view) in file.iter() {
            ensure!(
                view.dtype() == Dtype::F32,
                "{:?} is {:?}, not F32",
                excerpt(name),
                view.dtype()
            );
            // Byte by byte, because the data of a tensor need not be aligned to 4 bytes.
            let values: Vec<f32> = view
                .data()
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            let bad = values.iter().filter(|value| !value.is_finite()).count();
            ensure!(
                bad == 0,
                "{:?} has {bad} values that are not finite",
                excerpt(name)
            );
            weights.0.insert(
                name.to_owned(),
                HostTensor {
                    shape: view.shape().to_vec(),
                    values,
                },
            );
        }
        Ok(weights)
    }

    /// Writes a safetensors file atomically.
    ///
    /// # Errors
    ///
    /// If the directory cannot be written.
    pub fn save(&self, disk: &dyn Disk, path: &Path) -> Result<()> {
        Ok(disk.write_whole(path, &self.to_bytes()?)?)
    }

    /// Reads a safetensors file of `numbers` values and checks it against the digest of its record.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is larger than `numbers` values take, is not a safetensors file
    /// of f32, holds a number that is not finite, or has another digest.
    pub fn load(path: &Path, numbers: u64, digest: &str) -> Result<Self> {
        // Four bytes a value, the header, and the 8 bytes of the header's length.
        let bytes = read::bounded(
            path,
            numbers
                .saturating_mul(4)
                .saturating_add(MAX_HEADER_BYTES + 8),
        )?;
        let weights = Self::from_bytes(&bytes).with_context(|| path.display().to_string())?;
        if weights.digest() != digest {
            bail!(
                "{} does not hold the weights of its record: digest {} instead of {digest}",
                path.display(),
                weights.digest()
            );
        }
        Ok(weights)
    }
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
