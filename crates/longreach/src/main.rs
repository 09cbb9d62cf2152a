//! The binary `longreach`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Training returns hundreds of megabytes to the allocator every second; the system's gives them
/// back to the kernel and fetches them again, which costs a quarter of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(all(unix, feature = "faults"))]
    rundir::disk::choose(rundir::fault::from_environment());
    longreach::cli::main()
}
