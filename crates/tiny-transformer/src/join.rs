//! The parameters of several modules of one shape as those of one, along their first dimensions.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

/// One module with the parameters of all.
///
/// # Panics
///
/// If there is none, or they differ in shape.
pub(crate) fn join<M: Module>(modules: &[M]) -> M {
    let parameters = modules.iter().map(|module| {
        let mut all = Flat::default();
        module.visit(&mut all);
        all.0.into_iter()
    });
    let mut join = Join(parameters.collect());
    let joined = modules[0].clone().map(&mut join);
    let rest = join.0.iter_mut().map(Iterator::count);
    assert_eq!(rest.sum::<usize>(), 0, "models of one shape");
    joined
}

/// Module `g` of `groups`, as it was before it was joined.
pub(crate) fn part<M: Module>(joined: &M, g: usize, groups: usize) -> M {
    let own = Slice {
        g,
        groups,
        leaves: true,
    };
    joined.clone().map(&mut { own })
}

/// Module `g` of `groups`, whose gradients are those of the joined one.
pub(crate) fn view<M: Module>(joined: &M, g: usize, groups: usize) -> M {
    let own = Slice {
        g,
        groups,
        leaves: false,
    };
    joined.clone().map(&mut { own })
}

/// The parameters of a module in their order, flat.
#[derive(Default)]
struct Flat(Vec<Tensor<1>>);

impl ModuleVisitor for Flat {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let count = value.dims().iter().product::<usize>();
        self.0.push(value.reshape([count]));
    }
}

/// Replaces every parameter by those of all models.
struct Join(Vec<std::vec::IntoIter<Tensor<1>>>);

impl ModuleMapper for Join {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let mut shape = param.val().dims();
        shape[0] *= self.0.len();
        let next = |model: &mut std::vec::IntoIter<_>| model.next().expect("a parameter");
        let values = Tensor::cat(self.0.iter_mut().map(next).collect(), 0);
        Param::from_tensor(values.reshape(shape).detach())
    }
}

/// Replaces every parameter by that of one model.
struct Slice {
    g: usize,
    groups: usize,
    /// Whether they are parameters of their own, and not a part of those of all.
    leaves: bool,
}

impl ModuleMapper for Slice {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let size = param.val().dims()[0] / self.groups;
        let own = |values: Tensor<D>| values.slice_dim(0, self.g * size..(self.g + 1) * size);
        if self.leaves {
            return Param::from_tensor(own(param.val()).detach());
        }
        param.map(own)
    }
}
