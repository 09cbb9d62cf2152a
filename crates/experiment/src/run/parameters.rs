//! Parameters by path: drawn on the host, and read back from a module.
//!
//! A path is the chain of field names and indices down to the parameter (`blocks.0.attention.qkv`);
//! the name of an enum's variant is not part of it, so that a path does not change with the
//! encoding's kind.

use crate::host::values;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor};
use posenc::Distribution;
use rundir::{HostTensor, Weights};
use std::collections::BTreeMap;
use tasks::Stream;

/// The path of the parameter that a visitor or mapper has reached.
#[derive(Default)]
pub struct ParamPath(Vec<String>);

impl ParamPath {
    /// Enters a field; enum variants are not part of the path.
    pub fn enter(&mut self, name: &str, container: &str) {
        self.0.push(if container.starts_with("Enum") {
            String::new()
        } else {
            name.to_owned()
        });
    }

    /// Leaves a field.
    pub fn exit(&mut self) {
        self.0.pop();
    }

    /// The dotted path.
    pub fn dotted(&self) -> String {
        self.0
            .iter()
            .filter(|part| !part.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(".")
    }
}

/// The methods of a visitor or mapper that keep its `path` up to date.
macro_rules! follow_path {
    () => {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }

        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.exit();
        }
    };
}
pub(super) use follow_path;

/// Draws the initial values of the parameter at `path` from its own stream of `seed`.
pub fn draw(seed: u64, path: &str, shape: &[usize], distribution: Distribution) -> Vec<f64> {
    let count = shape.iter().product();
    match distribution {
        Distribution::Constant(value) => vec![value; count],
        Distribution::Normal(std) => {
            // One stream for each path: the values do not depend on which other parameters there
            // are.
            let mut stream = Stream::new(seed, &format!("weights {path}"), 0);
            (0..count).map(|_| std * stream.normal()).collect()
        }
        Distribution::Uniform(low, high) => {
            let mut stream = Stream::new(seed, &format!("weights {path}"), 0);
            (0..count)
                .map(|_| low + (high - low) * stream.unit_f64())
                .collect()
        }
    }
}

/// Reads every parameter of a module back to the host.
pub fn of<M: Module>(module: &M) -> Weights {
    struct Collect {
        path: ParamPath,
        found: BTreeMap<String, HostTensor>,
    }
    impl ModuleVisitor for Collect {
        follow_path!();
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = param.val();
            let shape = tensor.dims().to_vec();
            let values = values::<f32>(tensor.into_data_dtype(DType::F32));
            self.found
                .insert(self.path.dotted(), HostTensor { shape, values });
        }
    }
    let mut visitor = Collect {
        path: ParamPath::default(),
        found: BTreeMap::new(),
    };
    module.visit(&mut visitor);
    Weights(visitor.found)
}

/// Where the parameters of a model's encoding lie.
const ENCODING: &str = "encoding.";
/// Where those of one encoding for several models lie.
const JOINED: &str = "encoding.joined.";
/// Where those of an encoding for each of several models lie.
const MEMBERS: &str = "encoding.members.";

/// Whether the parameter of a single model is one of its encoding.
pub fn is_of_encoding(path: &str) -> bool {
    path.starts_with(ENCODING)
}

/// The path that a parameter of several models has in a single one, and the model it belongs to:
/// `None` for the parameters of all, one after the other.
pub fn own_path(path: &str) -> (String, Option<usize>) {
    if let Some(rest) = path.strip_prefix(JOINED) {
        return (format!("{ENCODING}{rest}"), None);
    }
    let member = path.strip_prefix(MEMBERS).and_then(|rest| {
        let (member, rest) = rest.split_once('.')?;
        Some((format!("{ENCODING}{rest}"), member.parse().ok()))
    });
    member.unwrap_or_else(|| (path.to_owned(), None))
}

/// The reverse of [`own_path`]: for model `g`, or for all.
pub fn joined_path(path: &str, g: Option<usize>) -> String {
    match (path.strip_prefix(ENCODING), g) {
        (None, _) => path.to_owned(),
        (Some(rest), None) => format!("{JOINED}{rest}"),
        (Some(rest), Some(g)) => format!("{MEMBERS}{g}.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_model_and_of_several_are_each_other_reversed() {
        for (own, joined, of) in [
            ("embedding", "embedding", None),
            ("blocks.0.mlp.up", "blocks.0.mlp.up", None),
            ("encoding.table", "encoding.joined.table", None),
            ("encoding.table", "encoding.members.12.table", Some(12)),
            (
                "encoding.parts.1.layers.0.w",
                "encoding.members.12.parts.1.layers.0.w",
                Some(12),
            ),
        ] {
            assert_eq!(own_path(joined), (own.to_owned(), of));
            assert_eq!(joined_path(own, of), joined);
        }
    }
}
