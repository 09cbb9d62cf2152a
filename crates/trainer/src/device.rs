//! `--device`: which machine part computes. Never in a config, never a silent fallback.

use crate::exit::{Exit, Failure};
use burn::tensor::{Device, Tensor};
use std::fmt;
use std::str::FromStr;
use tiny_transformer::Matmul;

/// Kinds of device this suite knows, with the cargo feature that compiles each in.
const KINDS: [(&str, &str, bool); 7] = [
    ("cpu", "flex", cfg!(feature = "flex")),
    ("ndarray", "ndarray", cfg!(feature = "ndarray")),
    ("wgpu", "wgpu", cfg!(feature = "wgpu")),
    ("vulkan", "vulkan", cfg!(feature = "vulkan")),
    ("metal", "metal", cfg!(feature = "metal")),
    ("cuda", "cuda", cfg!(feature = "cuda")),
    ("rocm", "rocm", cfg!(feature = "rocm")),
];

/// A device as named on the command line: a kind, and an index where there may be several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// `cpu`, `wgpu`, `cuda`, ...
    pub kind: &'static str,
    /// Which of several; the best one unless given.
    pub index: Option<usize>,
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, index) = match text.split_once(':') {
            None => (text, None),
            Some((kind, index)) => {
                (kind, Some(index.parse().map_err(|_| format!("`{index}` is not a device number; write {kind} or {kind}:0"))?))
            }
        };
        let names: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
        let known = KINDS.iter().find(|(name, ..)| *name == kind);
        let Some((kind, ..)) = known else { return Err(format!("unknown device `{kind}`; allowed: {}", names.join(", "))) };
        if index.is_some() && matches!(*kind, "cpu" | "ndarray") {
            return Err(format!("there is one {kind}: leave out the number"));
        }
        Ok(Self { kind, index })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            None => f.write_str(self.kind),
            Some(index) => write!(f, "{}:{index}", self.kind),
        }
    }
}

/// What computes, as far as it changes the last bits of a result: on a CPU its model and the vector instructions that are used.
pub fn fingerprint(name: &DeviceName) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':')).map_or("", |(_, model)| model.trim());
    let mut parts = vec![name.kind, std::env::consts::ARCH, model];
    #[cfg(target_arch = "x86_64")]
    parts.extend([
        if std::arch::is_x86_feature_detected!("avx2") { "avx2" } else { "" },
        if std::arch::is_x86_feature_detected!("avx512f") { "avx512f" } else { "" },
        if kernels::matrix_unit() { "amx-bf16" } else { "" },
    ]);
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// What is to be said of `model.matmul` on a device, if it does not do there what it is for.
pub fn matmul_note(device: &DeviceName, matmul: Matmul) -> Option<String> {
    let name = serde_json::to_value(matmul).ok()?;
    match (matmul, device.kind) {
        (Matmul::F32, _) => None,
        (_, "cpu") if kernels::matrix_unit() => None,
        (_, "cpu") => Some(format!(
            "model.matmul = {name} is computed step by step, because this processor has no matrix unit for bfloat16 (AMX): the same numbers, but slower \
             than with \"f32\" by far"
        )),
        _ => Some(format!("model.matmul = {name} speaks of --device cpu; {device} multiplies in its own way")),
    }
}

/// A line of `longreach list devices`.
#[derive(Debug, serde::Serialize)]
pub struct DeviceFacts {
    /// What to give to `--device`.
    pub device: &'static str,
    /// The cargo feature that compiles it in.
    pub feature: &'static str,
    /// Whether this binary has it.
    pub compiled_in: bool,
    /// Whether a small computation ran on it; only tried where compiled in.
    pub works: bool,
    /// Why not.
    pub problem: Option<String>,
}

/// Every kind of device, tried out where this binary can.
pub fn list() -> Vec<DeviceFacts> {
    let facts = KINDS.map(|(device, feature, compiled_in)| {
        let tried = open(&DeviceName { kind: device, index: None });
        let problem = tried.as_ref().err().map(|failure| failure.message.lines().next().unwrap_or_default().to_owned());
        DeviceFacts { device, feature, compiled_in, works: tried.is_ok(), problem }
    });
    facts.into()
}

/// Opens a device and runs a small computation on it, before any other work.
///
/// # Errors
///
/// [`Exit::Device`] if it is not compiled in, not there, or computes wrongly; the message lists what this binary has.
pub fn open(name: &DeviceName) -> Result<Device, Failure> {
    let compiled: Vec<&str> = KINDS.iter().filter(|(.., on)| *on).map(|(kind, ..)| *kind).collect();
    let compiled = if compiled.is_empty() { "none".to_owned() } else { compiled.join(", ") };
    let feature = KINDS.iter().find(|(kind, ..)| *kind == name.kind).map_or("", |(_, feature, _)| feature);
    let fail = |problem: String, hint: String| {
        Failure::new(
            Exit::Device,
            format!("device {name}: {problem}\n  = allowed: {compiled} (compiled into this binary)\n  = help: {hint}"),
        )
    };
    let Some(create) = constructor(name) else {
        let hint = format!("build with `cargo build --release --features {feature}`, or choose another device");
        return Err(fail("not compiled into this binary".to_owned(), hint));
    };
    // Drivers that are missing or broken show up as panics inside the backends.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let probed = std::panic::catch_unwind(|| {
        let device = create();
        let sum: f32 = (Tensor::<1>::from_floats([1.0, 2.0, 4.0], &device) * 3.0).sum_dim(0).into_scalar();
        (device, sum)
    });
    std::panic::set_hook(hook);
    match probed {
        Ok((device, 21.0)) => Ok(device),
        Ok((_, sum)) => Err(fail(format!("computed 3 (1 + 2 + 4) = {sum}"), "update its driver, or choose another device".to_owned())),
        Err(panic) => {
            let why = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let why = why.unwrap_or("the driver gave no reason").lines().next().unwrap_or_default().to_owned();
            Err(fail(
                format!("cannot be used: {why}"),
                "check that the device and its driver are there (`longreach list devices`), or choose another device".to_owned(),
            ))
        }
    }
}

type Create = Box<dyn FnOnce() -> Device + std::panic::UnwindSafe>;

fn constructor(name: &DeviceName) -> Option<Create> {
    let index = name.index;
    let _ = index;
    match name.kind {
        #[cfg(feature = "flex")]
        "cpu" => Some(Box::new(Device::flex)),
        #[cfg(feature = "ndarray")]
        #[allow(deprecated)]
        "ndarray" => Some(Box::new(Device::ndarray)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Some(Box::new(move || match index {
            None => Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
            Some(index) => nth(burn::tensor::DeviceType::Wgpu, index),
        })),
        #[cfg(feature = "vulkan")]
        "vulkan" => Some(Box::new(move || match index {
            None => Device::vulkan(burn::tensor::DeviceKind::DefaultDevice),
            Some(index) => nth(burn::tensor::DeviceType::Vulkan, index),
        })),
        #[cfg(feature = "metal")]
        "metal" => Some(Box::new(move || match index {
            None => Device::metal(burn::tensor::DeviceKind::DefaultDevice),
            Some(index) => nth(burn::tensor::DeviceType::Metal, index),
        })),
        #[cfg(feature = "cuda")]
        "cuda" => Some(Box::new(move || Device::cuda(index.unwrap_or(0)))),
        #[cfg(feature = "rocm")]
        "rocm" => Some(Box::new(move || Device::rocm(index.unwrap_or(0)))),
        _ => None,
    }
}

#[cfg(any(feature = "wgpu", feature = "vulkan", feature = "metal"))]
fn nth(kind: burn::tensor::DeviceType, index: usize) -> Device {
    let devices = Device::enumerate(kind).into_vec();
    let count = devices.len();
    devices.into_iter().nth(index).unwrap_or_else(|| panic!("there are {count} devices of this kind, numbered from 0"))
}
