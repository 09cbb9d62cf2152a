//! Where initial weights come from: always the host, always by the parameter's path.
//!
//! Burn draws parameters lazily from a generator that is global to the process, so their values
//! would depend on the order of first use and on the backend. Here every parameter is asked for by
//! its path; a source with one stream per path gives every encoding of a seed the same common
//! weights on every device.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
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

/// Gives the values of the parameter at a path: `(path, shape, distribution)` to as many numbers as
/// the shape holds, row-major.
type Source<'a> = dyn Fn(&str, &[usize], Distribution) -> Vec<f64> + 'a;

/// Creates parameters on a device from values drawn on the host.
pub struct Init<'a> {
    device: &'a Device,
    path: String,
    source: &'a Source<'a>,
}

impl<'a> Init<'a> {
    /// Asks `source` for the values of each parameter.
    pub fn new(device: &'a Device, source: &'a Source<'a>) -> Self {
        Self {
            device,
            path: String::new(),
            source,
        }
    }

    /// Constants as they are and zeros for everything drawn: for code that needs the structure, not
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
    /// are those of a visitor.
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
    /// If the source gives another number of values than the shape holds.
    pub fn param<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        distribution: Distribution,
    ) -> Param<Tensor<D>> {
        let path = self.join(&name);
        let values = (self.source)(&path, &shape, distribution);
        assert_eq!(
            values.len(),
            shape.iter().product::<usize>(),
            "source gave a wrong number of values for {path}"
        );
        Param::from_data(TensorData::new(values, shape), self.device)
    }

    fn join(&self, name: &dyn fmt::Display) -> String {
        if self.path.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.path)
        }
    }
}
