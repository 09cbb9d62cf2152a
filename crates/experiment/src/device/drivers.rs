//! Why a device's driver failed: the file that it needs and that no directory has, or what its own
//! error means.

use std::path::{Path, PathBuf};

/// The first missing file of the drivers of a kind of device, and what installs it. `None` if all
/// were found or the system is not Linux.
pub fn missing(kind: &str) -> Option<(&'static str, &'static str)> {
    if cfg!(target_os = "linux") {
        missing_file(kind, &library_directories(), &cuda_directories())
    } else {
        None
    }
}

/// What an error of a kind's driver means, and what helps; `None` for one that is not known.
pub fn meaning(kind: &str, error: &str) -> Option<(String, &'static str)> {
    if kind != "cuda" {
        return None;
    }
    const UPDATE: &str = "update the NVIDIA driver, or choose another device";
    let installed = std::fs::read_to_string("/proc/driver/nvidia/version")
        .ok()
        .and_then(|text| version_in(&text).map(|version| format!(" {version}")))
        .unwrap_or_default();
    if let Some(symbol) = missing_function(error) {
        let what = format!("the NVIDIA driver{installed} is too old: libcuda.so.1 has no {symbol}");
        return Some((what, UPDATE));
    }
    let known = [
        (
            "CUDA_ERROR_NO_DEVICE",
            "the NVIDIA driver finds no GPU",
            "start the job or the container with access to a GPU, and see that \
             CUDA_VISIBLE_DEVICES names one (`nvidia-smi -L` lists them)",
        ),
        (
            "CUDA_ERROR_INVALID_DEVICE",
            "there is no GPU of this number",
            "`nvidia-smi -L` lists them, counted from 0; CUDA_VISIBLE_DEVICES hides some",
        ),
        (
            "CUDA_ERROR_INSUFFICIENT_DRIVER",
            "the NVIDIA driver is too old",
            UPDATE,
        ),
        (
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "the NVIDIA driver is too old",
            UPDATE,
        ),
        (
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            "libcuda.so.1 and the driver of the kernel are of two versions",
            "restart the machine after the driver's update, or mount the host's libcuda.so.1",
        ),
        (
            "CUDA_ERROR_SYSTEM_NOT_READY",
            "the GPU is not ready",
            "its fabric manager (nvidia-fabricmanager) may not be running",
        ),
    ];
    let (name, what, help) = known.iter().find(|(name, ..)| error.contains(name))?;
    Some((
        format!("{what} ({name}, driver{installed})").replace(", driver)", ")"),
        help,
    ))
}

/// The function that a driver's library lacks, in the words of the loader or of the bindings, which
/// look a function up when it is called.
fn missing_function(error: &str) -> Option<&str> {
    let after = |before: &&str| error.split_once(*before).map(|(_, rest)| rest);
    let rest = ["undefined symbol: ", "Missing symbol "]
        .iter()
        .find_map(after)?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// The version in a text such as `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06 ...`.
fn version_in(text: &str) -> Option<&str> {
    let mut words = text.lines().next()?.split_whitespace();
    words.find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The first file that a kind of device needs and no directory holds, and what installs it. Only
/// used after a failure: the system's loader searches more places than these.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_driver_are_explained() {
        let unwrapped = |name: &str| {
            format!("called `Result::unwrap()` on an `Err` value: DriverError({name}, \"fake\")")
        };
        for (name, part) in [
            ("CUDA_ERROR_NO_DEVICE", "finds no GPU"),
            ("CUDA_ERROR_INVALID_DEVICE", "no GPU of this number"),
            ("CUDA_ERROR_INSUFFICIENT_DRIVER", "too old"),
        ] {
            let (what, _) = meaning("cuda", &unwrapped(name)).unwrap();
            assert!(what.contains(part) && what.contains(name), "{what}");
            assert_eq!(meaning("rocm", &unwrapped(name)), None);
        }
        for symbol in [
            "Expected function, got error.: DlSym { source: \"/lib/libcuda.so.1: undefined symbol: \
             cuLaunchKernelEx\" }",
            "Missing symbol cuLaunchKernelEx: dlsym failed",
        ] {
            let (what, _) = meaning("cuda", symbol).unwrap();
            assert!(
                what.ends_with("libcuda.so.1 has no cuLaunchKernelEx"),
                "{what}"
            );
        }
        assert_eq!(meaning("cuda", "index out of bounds"), None);
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\nGCC";
        assert_eq!(version_in(text), Some("535.104.05"));
        assert_eq!(version_in(""), None);
    }

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
}
