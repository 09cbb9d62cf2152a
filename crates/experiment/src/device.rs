//! `--device`: the hardware that computes. It is never part of a config, and there is no silent
//! fallback.

mod drivers;
pub mod failures;
mod probe;

use crate::plan::memory::{self, Memory, MemoryLimit};
use burn::tensor::Device;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use support::exit::{Exit, Failure};
use support::limits;
use tiny_transformer::Matmul;

/// Kinds of device this suite knows, with the cargo feature that compiles each in.
const KINDS: [(&str, &str, bool); 6] = [
    ("cpu", "flex", cfg!(feature = "flex")),
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
    /// Which of several; `None` is the default one.
    pub index: Option<usize>,
}

impl DeviceName {
    /// The CPU.
    pub const CPU: Self = Self {
        kind: "cpu",
        index: None,
    };

    /// Whether this device computes on the CPU, in the machine's own memory.
    pub fn is_cpu(&self) -> bool {
        self.kind == "cpu"
    }

    /// Where the tensors of this device are.
    pub fn memory(&self) -> Memory {
        if self.is_cpu() {
            Memory::Host
        } else {
            Memory::Device
        }
    }

    /// The limit of a process that does the work itself: the one that was asked for, or the memory
    /// of the machine or of the open device. A device whose driver does not say has no limit.
    pub fn memory_limit(&self, asked: Option<MemoryLimit>, device: &Device) -> MemoryLimit {
        self.shared_limit(asked, device, 1, 0)
    }

    /// The limit of each of the workers of a sweep that share the machine or the device; the sweep
    /// itself needs memory of the machine.
    pub fn worker_limit(
        &self,
        asked: Option<MemoryLimit>,
        device: &Device,
        workers: usize,
    ) -> MemoryLimit {
        self.shared_limit(asked, device, workers, memory::of_sweep())
    }

    fn shared_limit(
        &self,
        asked: Option<MemoryLimit>,
        device: &Device,
        among: usize,
        aside: u64,
    ) -> MemoryLimit {
        let limit = asked.unwrap_or_else(|| match self.memory() {
            Memory::Host => MemoryLimit::of_machine(among, aside),
            Memory::Device => kernels::device_memory(device).map_or(MemoryLimit::NONE, |total| {
                MemoryLimit::of_device(total, among)
            }),
        });
        limit.of(self.memory())
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, index) = match text.split_once(':') {
            None => (text, None),
            Some((kind, index)) => (
                kind,
                Some(index.parse().map_err(|_| {
                    format!("`{index}` is not a device number; write {kind} or {kind}:0")
                })?),
            ),
        };
        let names: Vec<&str> = KINDS.iter().map(|(name, ..)| *name).collect();
        let known = KINDS.iter().find(|(name, ..)| *name == kind);
        let Some((kind, ..)) = known else {
            return Err(format!(
                "unknown device `{kind}`; allowed: {}",
                names.join(", ")
            ));
        };
        // All CPU cores are one device.
        if index.is_some() && *kind == "cpu" {
            return Err("there is one cpu: leave out the number".to_owned());
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

/// The hardware as far as it changes the last bits of a result: on a CPU, its model and the vector
/// instructions in use.
pub fn fingerprint(name: &DeviceName) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("", |(_, model)| model.trim());
    let mut parts = vec![name.kind, std::env::consts::ARCH, model];
    #[cfg(target_arch = "x86_64")]
    parts.extend([
        if std::arch::is_x86_feature_detected!("avx2") {
            "avx2"
        } else {
            ""
        },
        if std::arch::is_x86_feature_detected!("avx512f") {
            "avx512f"
        } else {
            ""
        },
    ]);
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// A note if `model.matmul` has no effect on a device.
pub fn matmul_note(device: &DeviceName, matmul: Matmul) -> Option<String> {
    let name = serde_json::to_value(matmul).ok()?;
    match (matmul, device.kind) {
        (Matmul::Tf32 | Matmul::Bf16, "cpu") => Some(format!(
            "model.matmul = {name} has no effect on {device}: products are \"f32\""
        )),
        _ => None,
    }
}

/// A line of `longreach list devices`.
#[derive(Debug, serde::Serialize)]
pub struct DeviceFacts {
    /// Value of `--device`.
    pub device: &'static str,
    /// The cargo feature that compiles it in.
    pub feature: &'static str,
    /// Whether this binary has it.
    pub compiled_in: bool,
    /// Whether a small computation ran on it; only tried where compiled in.
    pub works: bool,
    /// Why it does not work.
    pub problem: Option<String>,
}

/// The names of all devices, whether they are compiled in or not.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(|(name, ..)| name)
}

/// Every kind of device; those compiled in are tried.
pub fn list() -> Vec<DeviceFacts> {
    let facts = KINDS.map(|(device, feature, compiled_in)| {
        // Tried, not looked up: a driver that is there may still not work.
        let tried = open(&DeviceName {
            kind: device,
            index: None,
        });
        let problem = tried.as_ref().err().map(|failure| {
            failure
                .message
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned()
        });
        DeviceFacts {
            device,
            feature,
            compiled_in,
            works: tried.is_ok(),
            problem,
        }
    });
    facts.into()
}

/// Checks that a device is compiled in, where it cannot be opened: a login node may have none.
///
/// # Errors
///
/// [`Exit::Device`] if it is not.
pub fn check_compiled(name: &DeviceName) -> Result<(), Failure> {
    let known = KINDS.iter().find(|(kind, ..)| *kind == name.kind);
    match known {
        Some((_, feature, false)) => Err(not_compiled(name, feature)),
        _ => Ok(()),
    }
}

fn not_compiled(name: &DeviceName, feature: &str) -> Failure {
    let help = format!(
        "build with `cargo build --release --features {feature}`, or choose another device"
    );
    refuse(name, "not compiled into this binary", &help)
}

/// Opens a device and runs a small computation on it, before any other work.
///
/// # Errors
///
/// [`Exit::Device`] if it is not compiled in, missing, or computes wrongly; the message lists the
/// devices of this binary. [`Exit::Config`] if the environment asks for vectors that the CPU does
/// not have.
pub fn open(name: &DeviceName) -> Result<Device, Failure> {
    let Some(create) = constructor(name) else {
        let feature = KINDS.iter().find(|(kind, ..)| *kind == name.kind);
        return Err(not_compiled(
            name,
            feature.map_or("", |(_, feature, _)| feature),
        ));
    };
    if !name.is_cpu() {
        limits::aborts_are_bugs();
    } else if let Some(problem) = kernels::vector_problem() {
        let help = "  = help: unset it; it is for tests and measurements";
        return Err(Failure::config(format!("{problem}\n{help}")));
    }
    let probed = with_first_panic(|| {
        let device = create();
        let wrong = probe::computes_wrongly(&device);
        (device, wrong)
    });
    match probed {
        Ok((device, None)) => {
            failures::use_device(name);
            Ok(device)
        }
        Ok((_, Some(wrong))) => {
            let help = "update its driver, or choose another device";
            Err(refuse(name, &wrong, help))
        }
        // A missing file explains more than the panic that it led to.
        Err(reason) => Err(match drivers::missing(name.kind) {
            Some((missing, help)) => refuse(
                name,
                &format!("cannot be used: {missing} was not found"),
                help,
            ),
            None if failures::is_lack_of_memory(&reason) => {
                let help = "other processes hold it (`nvidia-smi` shows those of NVIDIA's GPUs)";
                refuse(name, "cannot be used: it has no memory left", help)
            }
            None => match drivers::meaning(name.kind, &reason) {
                Some((meaning, help)) => refuse(name, &format!("cannot be used: {meaning}"), help),
                None => {
                    let reason = reason.lines().next().unwrap_or_default();
                    let help = "check the device and its driver (`longreach list devices`), or \
                                choose another device";
                    refuse(name, &format!("cannot be used: {reason}"), help)
                }
            },
        }),
    }
}

fn refuse(name: &DeviceName, problem: &str, help: &str) -> Failure {
    let compiled = KINDS.iter().filter(|(.., on)| *on);
    let compiled: Vec<&str> = compiled.map(|(kind, ..)| *kind).collect();
    let compiled = if compiled.is_empty() {
        "none".to_owned()
    } else {
        compiled.join(", ")
    };
    Failure::new(Exit::Device, format!("device {name}: {problem}"))
        .with_allowed(format!("{compiled} (compiled into this binary)"))
        .with_help(help)
}

/// Calls `f`; if it panics, returns the message of the first panic on any thread. Backends panic if
/// a driver is missing or broken, and the panic that reaches this thread may only say that a thread
/// of the backend has ended.
fn with_first_panic<T>(f: impl FnOnce() -> T + std::panic::UnwindSafe) -> Result<T, String> {
    const NO_REASON: &str = "the driver gave no reason";
    let first = Arc::new(Mutex::new(None));
    // The hook is the process's. This one prints nothing: the reason goes into the error.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new({
        let first = first.clone();
        move |panic| {
            let reason = panic.payload_as_str().unwrap_or(NO_REASON).to_owned();
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            // Later panics may only follow from the first one.
            first.get_or_insert(reason);
        }
    }));
    let done = std::panic::catch_unwind(f);
    std::panic::set_hook(hook);
    done.map_err(|_| {
        let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.unwrap_or_else(|| NO_REASON.to_owned())
    })
}

type Create = Box<dyn FnOnce() -> Device + std::panic::UnwindSafe>;

fn constructor(name: &DeviceName) -> Option<Create> {
    let index = name.index;
    // Unused in a build without a GPU backend.
    let _ = index;
    match name.kind {
        #[cfg(feature = "flex")]
        "cpu" => Some(Box::new(Device::flex)),
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
    devices
        .into_iter()
        .nth(index)
        .unwrap_or_else(|| panic!("devices of this kind: {count}, numbered from 0"))
}
