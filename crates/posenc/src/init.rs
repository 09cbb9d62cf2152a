//! Initial weights: drawn on the host, by the path of the parameter.
//!
//! Burn draws parameters lazily from a generator that is global to the process, so that their
//! values depend on the order of first use and on the backend. Here the source gets the path of
//! every parameter. With one random stream per path, all encodings of a seed share the weights they
//! have in common, on every device.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;
use std::fmt;

/// How the initial values of a parameter are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All equal.
    Constant(f64),
    /// Normal around 0 with this standard deviation.
    Normal(f64),
    /// Uniform between the first, included, and the second, excluded.
    Uniform(f64, f64),
}

/// Returns the values of a parameter, row-major, from `(path, shape, distribution)`.
type Source<'a> = dyn Fn(&str, &[usize], Distribution) -> Vec<f64> + 'a;

/// Creates parameters on a device from values drawn on the host.
pub struct Init<'a> {
    device: &'a Device,
    path: String,
    source: &'a Source<'a>,
}

impl<'a> Init<'a> {
    /// Takes the values of each parameter from `source`, a function of path, shape and
    /// distribution that returns one number per entry, row-major.
    pub fn new(device: &'a Device, source: &'a Source<'a>) -> Self {
        Self {
            device,
            path: String::new(),
            source,
        }
    }

    /// Constants as they are, zeros for everything random: for code that needs the structure, not
    /// the numbers.
    pub fn zeros(device: &'a Device) -> Self {
        Self::new(device, &|_, shape, distribution| {
            let value = if let Distribution::Constant(value) = distribution {
                value
            } else {
                0.0
            };
            vec![value; shape.iter().product()]
        })
    }

    /// The same source, one level down. Names must be the field names of the module, so that paths
    /// equal those of a [`ModuleVisitor`](burn::module::ModuleVisitor).
    #[must_use]
    pub fn scope(&self, name: impl fmt::Display) -> Self {
        Self {
            device: self.device,
            path: self.join(&name),
            source: self.source,
        }
    }

    /// The device parameters are created on.
    pub fn device(&self) -> &Device {
        self.device
    }

    /// The parameter `name` with the given shape.
    ///
    /// # Panics
    ///
    /// If the source returns another number of values than the shape holds.
    pub fn param<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        distribution: Distribution,
    ) -> Param<Tensor<D>> {
        let values = self.values(name, &shape, distribution);
        Param::from_data(TensorData::new(values, shape), self.device)
    }

    /// Draws declared parameters, in order.
    ///
    /// # Panics
    ///
    /// As [`param`](Self::param).
    pub fn draw(&self, declared: Vec<ParamSpec>) -> Parameters {
        let drawn = declared.into_iter().map(|spec| {
            let values = self.values(&spec.path, &spec.shape, spec.init);
            (spec.path, TensorData::new(values, spec.shape))
        });
        Parameters {
            prefix: String::new(),
            drawn: drawn.collect(),
            device: self.device.clone(),
        }
    }

    fn values(&self, name: &str, shape: &[usize], distribution: Distribution) -> Vec<f64> {
        let path = self.join(&name);
        let values = (self.source)(&path, shape, distribution);
        assert_eq!(
            values.len(),
            shape.iter().product::<usize>(),
            "source returned a wrong number of values for {path}"
        );
        values
    }

    fn join(&self, name: &dyn fmt::Display) -> String {
        if self.path.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.path)
        }
    }
}

/// A parameter as an encoding declares it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ParamSpec {
    /// Path inside the encoding's module: `layers.0.weight`.
    pub path: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Distribution of the initial values.
    pub init: Distribution,
    /// Whether training changes it. What does not is drawn and saved like the others.
    pub trained: bool,
}

impl ParamSpec {
    /// A parameter at `path`.
    pub fn new(path: impl Into<String>, shape: impl Into<Vec<usize>>, init: Distribution) -> Self {
        Self {
            path: path.into(),
            shape: shape.into(),
            init,
            trained: true,
        }
    }

    /// The same parameter, frozen as drawn unless `trained`. The module has to stop its
    /// gradient.
    #[must_use]
    pub fn trained(mut self, trained: bool) -> Self {
        self.trained = trained;
        self
    }

    /// The same parameter of a module that lies at `parent` inside another one.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        self.path = format!("{parent}.{}", self.path);
        self
    }
}

/// The declared parameters of a module, drawn, to be taken by their paths.
pub struct Parameters {
    prefix: String,
    drawn: BTreeMap<String, TensorData>,
    device: Device,
}

impl Parameters {
    /// The parameter at `path`.
    ///
    /// # Panics
    ///
    /// If it was not declared, or with another number of dimensions.
    pub fn take<const D: usize>(&mut self, path: &str) -> Param<Tensor<D>> {
        self.take_optional(path)
            .unwrap_or_else(|| panic!("`{}{path}` is not a declared parameter", self.prefix))
    }

    /// The parameter at `path`, if it was declared.
    pub fn take_optional<const D: usize>(&mut self, path: &str) -> Option<Param<Tensor<D>>> {
        let data = self.drawn.remove(&format!("{}{path}", self.prefix))?;
        Some(Param::from_data(data, &self.device))
    }

    /// The parameters `name.0`, `name.1`, ..., as many as were declared.
    pub fn take_list<const D: usize>(&mut self, name: &str) -> Vec<Param<Tensor<D>>> {
        let take = |i: usize| self.take_optional(&format!("{name}.{i}"));
        (0..).map_while(take).collect()
    }

    /// What `build` makes of the parameters under `name.0`, `name.1`, ..., as many groups as were
    /// declared.
    pub fn take_groups<T>(&mut self, name: &str, mut build: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let mut built = Vec::new();
        loop {
            let group = format!("{name}.{}", built.len());
            // With the dot, so that `layers.1` does not claim what lies under `layers.10`.
            let inside = format!("{}{group}.", self.prefix);
            if !self.drawn.keys().any(|path| path.starts_with(&inside)) {
                return built;
            }
            built.push(self.scoped(&group, &mut build));
        }
    }

    /// What `build` makes of the parameters under `name`.
    pub fn scoped<T>(&mut self, name: &str, build: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.prefix.len();
        self.prefix += &format!("{name}.");
        let built = build(self);
        self.prefix.truncate(outer);
        built
    }
}
