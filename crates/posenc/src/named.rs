//! Parameters under names of the config, so that weights are found again by what they are, not by
//! their number.

use crate::init::Parameters;
use burn::module::{
    Content, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param,
};
use burn::tensor::{Device, Tensor};

/// Vectors by name, in the order of the names.
#[derive(Clone, Debug)]
pub(crate) struct Named(Vec<(String, Param<Tensor<1>>)>);

impl Named {
    /// The parameters declared as `list.name`.
    pub(crate) fn take<'n>(
        list: &str,
        names: impl Iterator<Item = &'n String>,
        parameters: &mut Parameters,
    ) -> Self {
        let take = |name: &String| (name.clone(), parameters.take(&format!("{list}.{name}")));
        Self(names.map(take).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Param<Tensor<1>>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn each(self, of: impl Fn(Param<Tensor<1>>) -> Param<Tensor<1>>) -> Self {
        let pairs = self.0.into_iter();
        Self(pairs.map(|(name, value)| (name, of(value))).collect())
    }
}

impl Module for Named {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        for (name, value) in &self.0 {
            visitor.enter_module(name, "Vec");
            value.visit(visitor);
            visitor.exit_module(name, "Vec");
        }
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        let map = |(name, value): (String, Param<Tensor<1>>)| {
            mapper.enter_module(&name, "Vec");
            let mapped = Module::map(value, mapper);
            mapper.exit_module(&name, "Vec");
            (name, mapped)
        };
        Self(self.0.into_iter().map(map).collect())
    }

    fn collect_devices(&self, devices: Vec<Device>) -> Vec<Device> {
        let values = self.0.iter();
        values.fold(devices, |devices, (_, value)| {
            value.collect_devices(devices)
        })
    }

    fn to_device(self, device: &Device) -> Self {
        self.each(|value| value.to_device(device))
    }

    fn fork(self, device: &Device) -> Self {
        self.each(|value| value.fork(device))
    }

    fn valid(&self) -> Self {
        self.clone().each(|value| value.valid())
    }

    fn train(self) -> Self {
        self.each(Module::train)
    }

    fn materialize(self) -> Self {
        self.each(Module::materialize)
    }
}

impl ModuleDisplayDefault for Named {
    fn content(&self, content: Content) -> Option<Content> {
        let add =
            |content: Content, (name, value): (&str, &Param<Tensor<1>>)| content.add(name, value);
        self.iter().fold(content, add).optional()
    }
}

impl ModuleDisplay for Named {}
