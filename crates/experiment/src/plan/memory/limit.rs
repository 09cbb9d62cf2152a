//! The limit on the memory of a process: as given, or what the machine has.

use crate::plan::memory::cgroup;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use support::units::bytes;

/// Bytes that a driver keeps on a GPU for each process: its context and the compiled kernels. About
/// what NVIDIA's drivers keep.
pub const DRIVER_BYTES: u64 = 512 << 20;

/// Host or device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// That of the machine, where a CPU computes.
    #[default]
    Host,
    /// That of a GPU.
    Device,
}

impl Memory {
    /// What messages call it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Host => "memory",
            Self::Device => "the device's memory",
        }
    }
}

/// The most memory a process may be expected to need. Nothing enforces it: what is expected to need
/// more is left out, and recorded as left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The most, in bytes.
    pub bytes: u64,
    /// Where the tensors are.
    pub memory: Memory,
    /// Bytes of the limit that something else has, which `bytes` does not hold.
    pub taken: u64,
}

impl MemoryLimit {
    /// No limit.
    pub const NONE: Self = Self::host(u64::MAX);

    /// A limit on the memory of the machine, in bytes.
    pub const fn host(bytes: u64) -> Self {
        let memory = Memory::Host;
        Self {
            bytes,
            memory,
            taken: 0,
        }
    }

    /// The same limit on another memory.
    #[must_use]
    pub fn of(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// The share of each of `processes` of a device with `total` bytes, less what its driver keeps
    /// for each process.
    pub fn of_device(total: u64, processes: usize) -> Self {
        let share = total / processes.max(1) as u64;
        // Of a small device, as a driver in software is, a tenth.
        let aside = DRIVER_BYTES.min(share / 10);
        Self::host(share - aside).of(Memory::Device)
    }

    /// Why something that needs this many bytes is skipped, if it is.
    pub fn excess(self, needed: u64) -> Option<String> {
        let beside = match self.taken {
            0 => String::new(),
            taken => format!(" beside {} of the training", bytes(taken as f64)),
        };
        (needed > self.bytes).then(|| {
            format!(
                "needs about {} of {}{beside}, more than the limit of {}",
                bytes(needed as f64),
                self.memory.words(),
                bytes(self.bytes.saturating_add(self.taken) as f64)
            )
        })
    }

    /// What is left of the limit beside a training that needs this many bytes.
    pub fn beside(self, needed: u64) -> Self {
        if self.bytes == u64::MAX {
            return self;
        }
        let taken = needed.min(self.bytes);
        Self {
            bytes: self.bytes - taken,
            taken: self.taken + taken,
            ..self
        }
    }

    /// The memory of this machine, or of the control groups of this process, less `aside`, divided
    /// by the number of processes; no limit on systems that do not report it.
    pub fn of_machine(processes: usize, aside: u64) -> Self {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let total = read(Path::new("/proc/meminfo"));
        let total = total.and_then(|text| super::of_line(&text, "MemTotal:"));
        let least = total.into_iter().chain(cgroup::limit(read)).min();
        least.map_or(Self::NONE, |least| {
            Self::host(least.saturating_sub(aside) / processes.max(1) as u64)
        })
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            u64::MAX => f.write_str("none"),
            bytes => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for MemoryLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let wrong = || {
            format!(
                "`{text}` is not an amount of memory; write 512MiB, 2GiB, 2G, a number of bytes, or \
                 none"
            )
        };
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let prefix = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b'));
        let unit = match prefix.unwrap_or(&unit) {
            "" => 1_u64,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            "t" => 1 << 40,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let total = number * unit as f64;
        // Also refuses what is not finite, and less than one byte.
        if (1.0..1e18).contains(&total) {
            Ok(Self::host(total as u64))
        } else {
            Err(wrong())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        for (text, amount) in [
            ("512MiB", 512 << 20),
            ("2GiB", 2 << 30),
            ("2G", 2 << 30),
            ("1.5g", 3 << 29),
            ("4096", 4096),
            ("1 KB", 1024),
        ] {
            assert_eq!(text.parse(), Ok(MemoryLimit::host(amount)), "{text}");
        }
        assert_eq!("none".parse(), Ok(MemoryLimit::NONE));
        for text in [
            "", "0", "-1", "lots", "1X", "1e99", "nan", "1.2.3G", "GiB", "5bb", "2kibib",
        ] {
            assert!(
                text.parse::<MemoryLimit>()
                    .is_err_and(|error| error.contains("512MiB")),
                "{text}"
            );
        }
        for limit in [MemoryLimit::NONE, MemoryLimit::host(12345)] {
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
        let [one, two, aside] = [(1, 0), (2, 0), (1, 1 << 20)]
            .map(|(processes, aside)| MemoryLimit::of_machine(processes, aside).bytes);
        // Systems that report no memory have no limit.
        if one < u64::MAX {
            assert_eq!((two, aside), (one / 2, one - (1 << 20)));
        }
    }

    #[test]
    fn a_device_is_divided_and_its_driver_gets_a_part() {
        let gib = 1 << 30;
        assert_eq!(
            MemoryLimit::of_device(80 * gib, 1).bytes,
            80 * gib - DRIVER_BYTES
        );
        assert_eq!(
            MemoryLimit::of_device(80 * gib, 4).bytes,
            20 * gib - DRIVER_BYTES
        );
        assert_eq!(MemoryLimit::of_device(1000, 1).bytes, 900);
        let excess = MemoryLimit::of_device(1000, 1).excess(1 << 20);
        assert!(excess.is_some_and(|text| text.contains("of the device's memory")));
        // What is not limited stays so.
        let none = MemoryLimit::NONE.of(Memory::Device);
        assert_eq!(none.beside(1 << 30), none);
        assert_eq!(none.to_string(), "none");
    }
}
