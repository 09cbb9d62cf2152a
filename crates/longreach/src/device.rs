//! `--device`: the hardware that computes. It is never part of a config, and there is no silent
//! fallback.

use crate::exit::{Exit, Failure};
use crate::plan::memory::MemoryLimit;
use burn::tensor::{Device, Tensor};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
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

impl DeviceName {
    /// Whether this device computes on the CPU, in the machine's own memory.
    pub fn is_cpu(&self) -> bool {
        matches!(self.kind, "cpu" | "ndarray")
    }

    /// The limit that was asked for, or the machine's memory divided among `processes`. The memory
    /// of other devices is unknown, so there is no limit on them.
    pub fn memory_limit(&self, asked: Option<MemoryLimit>, processes: usize) -> MemoryLimit {
        asked.unwrap_or_else(|| {
            if self.is_cpu() {
                MemoryLimit::of_machine(processes)
            } else {
                MemoryLimit::NONE
            }
        })
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

/// What computes, as far as it changes the last bits of a result: on a CPU its model and the vector
/// instructions that are used.
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
        if kernels::matrix_unit() {
            "amx-bf16"
        } else {
            ""
        },
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
            "model.matmul = {name} is computed step by step, because this processor has no matrix \
             unit for bfloat16 (AMX): the same numbers, but slower than with \"f32\" by far"
        )),
        _ => Some(format!(
            "model.matmul = {name} only affects `--device cpu` and is ignored on {device}"
        )),
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

/// Opens a device and runs a small computation on it, before any other work.
///
/// # Errors
///
/// [`Exit::Device`] if it is not compiled in, not there, or computes wrongly; the message lists
/// what this binary has.
pub fn open(name: &DeviceName) -> Result<Device, Failure> {
    let compiled: Vec<&str> = KINDS
        .iter()
        .filter(|(.., on)| *on)
        .map(|(kind, ..)| *kind)
        .collect();
    let compiled = if compiled.is_empty() {
        "none".to_owned()
    } else {
        compiled.join(", ")
    };
    let feature = KINDS
        .iter()
        .find(|(kind, ..)| *kind == name.kind)
        .map_or("", |(_, feature, _)| feature);
    let fail = |problem: String, hint: String| {
        Failure::new(
            Exit::Device,
            format!(
                "device {name}: {problem}\n  = allowed: {compiled} (compiled into this binary)\n  \
                 = help: {hint}"
            ),
        )
    };
    let Some(create) = constructor(name) else {
        let hint = format!(
            "build with `cargo build --release --features {feature}`, or choose another device"
        );
        return Err(fail("not compiled into this binary".to_owned(), hint));
    };
    // Drivers that are missing or broken show up as panics inside the backends, and the first one
    // says why: it may be on a thread of the backend, and the one seen here then says only that
    // this thread is gone.
    let first = Arc::new(Mutex::new(None));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new({
        let first = first.clone();
        move |panic| {
            let why = panic
                .payload_as_str()
                .unwrap_or("the driver gave no reason")
                .to_owned();
            first
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(why);
        }
    }));
    let probed = std::panic::catch_unwind(|| {
        let device = create();
        let wrong = computes_wrongly(&device);
        (device, wrong)
    });
    std::panic::set_hook(hook);
    match probed {
        Ok((device, None)) => Ok(device),
        Ok((_, Some(wrong))) => Err(fail(
            wrong,
            "update its driver, or choose another device".to_owned(),
        )),
        Err(_) => {
            if cfg!(target_os = "linux")
                && let Some((missing, brings)) =
                    missing_file(name.kind, &library_directories(), &cuda_directories())
            {
                return Err(fail(
                    format!("cannot be used: {missing} was not found"),
                    brings.to_owned(),
                ));
            }
            let why = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let why = why.unwrap_or_else(|| "the driver gave no reason".to_owned());
            Err(fail(
                format!("cannot be used: {}", why.lines().next().unwrap_or_default()),
                "check that the device and its driver are there (`longreach list devices`), or \
                 choose another device"
                    .to_owned(),
            ))
        }
    }
}

/// A small computation of the kinds that training needs, held against the host. Returns what came
/// out wrong.
fn computes_wrongly(device: &Device) -> Option<String> {
    let sum: f32 = (Tensor::<1>::from_floats([1.0, 2.0, 4.0], device) * 3.0)
        .sum_dim(0)
        .into_scalar();
    if sum != 21.0 {
        return Some(format!("computed 3 (1 + 2 + 4) = {sum}"));
    }
    // Some devices take these functions from a separate library. The values are where f32 is
    // accurate.
    const AT: [f32; 4] = [0.3, 0.7, 1.5, 2.5];
    let x = || Tensor::<1>::from_floats(AT, device);
    let wrong = |name: &str, computed: Tensor<1>, host: fn(f64) -> f64| {
        let computed = computed
            .into_data()
            .convert::<f32>()
            .try_to_vec::<f32>()
            .expect("data was just converted to f32");
        differs(name, &AT, &computed, host)
    };
    wrong("sin", x().sin(), f64::sin)
        .or_else(|| wrong("exp", x().exp(), f64::exp))
        .or_else(|| wrong("log", x().log(), f64::ln))
}

/// The first value that differs from the host's by more than 1e-5 of it.
fn differs(name: &str, at: &[f32], computed: &[f32], host: fn(f64) -> f64) -> Option<String> {
    at.iter().zip(computed).find_map(|(x, computed)| {
        let expected = host(f64::from(*x));
        let near = (f64::from(*computed) - expected).abs() <= 1e-5 * expected.abs();
        (!near).then(|| format!("computed {name}({x}) = {computed} instead of {expected:.6}"))
    })
}

/// The first file that a kind of device needs and that is in none of the directories, and what
/// brings it. Looked for after a failure only: the search knows fewer places than the system's
/// loader.
fn missing_file(
    kind: &str,
    libraries: &[PathBuf],
    cuda: &[PathBuf],
) -> Option<(&'static str, &'static str)> {
    const VULKAN: &str =
        "install the Vulkan loader (libvulkan1 or vulkan-loader) and the Vulkan driver of the GPU";
    let needed: Vec<(&[&str], &[PathBuf], &'static str, &'static str)> = match kind {
        "cuda" => vec![
            (
                &["libcuda.so.1"],
                libraries,
                "libcuda.so.1, the library of the NVIDIA driver,",
                "install the NVIDIA driver, or start the container with access to the GPU, or \
                 choose another device",
            ),
            (
                &["libdevice.10.bc"],
                cuda,
                "nvvm/libdevice/libdevice.10.bc, a file of the CUDA toolkit,",
                "install the CUDA toolkit (cuda-nvvm), or set CUDA_PATH to the directory that has \
                 nvvm/libdevice in it",
            ),
        ],
        "rocm" => vec![(
            &["libamdhip64.so"],
            libraries,
            "libamdhip64.so, the HIP runtime of ROCm,",
            "install ROCm's HIP runtime (hip-runtime-amd), or choose another device",
        )],
        "vulkan" => vec![(
            &["libvulkan.so.1"],
            libraries,
            "libvulkan.so.1, the Vulkan loader,",
            VULKAN,
        )],
        "wgpu" => vec![(
            &["libvulkan.so.1", "libEGL.so.1"],
            libraries,
            "libvulkan.so.1, the Vulkan loader,",
            VULKAN,
        )],
        _ => Vec::new(),
    };
    let missing = needed
        .iter()
        .find(|(names, directories, ..)| !names.iter().any(|name| is_in(name, directories)));
    missing.map(|(_, _, what, brings)| (*what, *brings))
}

/// Whether one of the directories has a file of this name, or of this name and a version.
fn is_in(name: &str, directories: &[PathBuf]) -> bool {
    let files = directories
        .iter()
        .flat_map(|directory| std::fs::read_dir(directory).into_iter().flatten().flatten());
    files.into_iter().any(|file| {
        let file = file.file_name();
        let file = file.to_string_lossy();
        file.strip_prefix(name)
            .is_some_and(|version| version.is_empty() || version.starts_with('.'))
    })
}

/// Directories of system libraries: from `LD_LIBRARY_PATH`, the loader's configuration, and the
/// usual places.
fn library_directories() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .collect();
    let configured = std::fs::read_dir("/etc/ld.so.conf.d")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    for file in configured.chain([PathBuf::from("/etc/ld.so.conf")]) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        found.extend(
            text.lines()
                .map(str::trim)
                .filter(|line| line.starts_with('/'))
                .map(PathBuf::from),
        );
    }
    let usual = [
        "/lib",
        "/usr/lib",
        "/lib64",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/lib/wsl/lib",
        "/opt/rocm/lib",
    ];
    found.extend(usual.map(PathBuf::from));
    for root in ["/lib", "/usr/lib"] {
        found.push(Path::new(root).join(format!("{}-linux-gnu", std::env::consts::ARCH)));
    }
    found
}

/// Where the CUDA backend looks for the library of device functions.
fn cuda_directories() -> Vec<PathBuf> {
    let given = std::env::var_os("CUDA_PATH").map(PathBuf::from);
    let roots = given
        .into_iter()
        .chain(["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"].map(PathBuf::from));
    roots.map(|root| root.join("nvvm/libdevice")).collect()
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
    devices
        .into_iter()
        .nth(index)
        .unwrap_or_else(|| panic!("there are {count} devices of this kind, numbered from 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_library_is_named() {
        let (empty, full) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in [
            "libcuda.so.1",
            "libdevice.10.bc",
            "libamdhip64.so.6",
            "libEGL.so.1",
            "libvulkan.so.1.3",
        ] {
            std::fs::write(full.path().join(name), "").unwrap();
        }
        let [empty, full] = [empty.path(), full.path()].map(|directory| vec![directory.to_owned()]);
        let missing = |kind, libraries: &[PathBuf], cuda: &[PathBuf]| {
            missing_file(kind, libraries, cuda).map(|(what, _)| what)
        };
        for (kind, library) in [
            ("cuda", "libcuda.so.1"),
            ("rocm", "libamdhip64.so"),
            ("vulkan", "libvulkan.so.1"),
            ("wgpu", "libvulkan.so.1"),
        ] {
            assert!(
                missing(kind, &empty, &full).is_some_and(|what| what.contains(library)),
                "{kind}"
            );
            assert_eq!(missing(kind, &full, &full), None, "{kind}");
        }
        assert!(
            missing("cuda", &full, &empty).is_some_and(|what| what.contains("libdevice.10.bc"))
        );
        assert_eq!(missing("cpu", &empty, &empty), None);
        assert_eq!(
            missing("cuda", &[PathBuf::from("/nowhere")], &[]).map(|what| what.contains("libcuda")),
            Some(true)
        );
    }

    #[test]
    fn a_wrong_function_is_named_with_its_value() {
        let at = [0.3_f32, 2.5];
        let right: Vec<f32> = at.iter().map(|x| x.sin()).collect();
        assert_eq!(differs("sin", &at, &right, f64::sin), None);
        assert_eq!(
            differs("sin", &at, &[right[0], 0.5], f64::sin).as_deref(),
            Some("computed sin(2.5) = 0.5 instead of 0.598472")
        );
        assert!(differs("sin", &at, &[f32::NAN, right[1]], f64::sin).is_some());
        assert!(differs("exp", &at, &at.map(|x| x.exp() * 1.001), f64::exp).is_some());
    }
}
