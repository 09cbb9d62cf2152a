//! The system's table of file locks: which processes hold one on a file.

use std::path::Path;

/// A process that holds a lock on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its id here; in a container it may have another one.
    pub process: u32,
    /// Whether nobody else can hold one.
    pub exclusive: bool,
}

/// The processes that hold a lock on a file, as far as they can be seen from here.
pub(crate) fn holders(path: &Path) -> Vec<Entry> {
    let table = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    number(path).map_or_else(Vec::new, |file| parse(&table, file))
}

/// Device and number of a file.
#[cfg(target_os = "linux")]
fn number(path: &Path) -> Option<(u64, u64)> {
    use std::os::linux::fs::MetadataExt;
    let found = path.symlink_metadata().ok()?;
    Some((found.st_dev(), found.st_ino()))
}

#[cfg(not(target_os = "linux"))]
fn number(_: &Path) -> Option<(u64, u64)> {
    None
}

/// The entries of a file in lines such as `1: FLOCK  ADVISORY  WRITE 1234 08:01:131 0 EOF`. An
/// arrow in the second place marks a process that waits for a lock.
fn parse(table: &str, (device, number): (u64, u64)) -> Vec<Entry> {
    let major = (device >> 8) & 0xfff | (device >> 32) & !0xfff;
    let minor = device & 0xff | (device >> 12) & !0xff & 0xffff_ffff;
    let file = format!("{major:02x}:{minor:02x}:{number}");
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, kind, process, place, ..] = words.as_slice() else {
            return None;
        };
        Some(Entry {
            process: process.parse().ok()?,
            exclusive: *kind == "WRITE",
        })
        .filter(|_| *place == file)
    };
    table.lines().filter_map(entry).collect()
}

/// The name of a process's program, which may be anything.
pub(crate) fn program(process: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    let name: String = name
        .trim_end()
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    Some(name).filter(|name| !name.is_empty())
}

/// The id of a process in the innermost table of processes that it is in: what it takes for its
/// own.
pub(crate) fn inner_id(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_read_and_waiting_processes_are_not() {
        let table = "1: POSIX  ADVISORY  WRITE 3 08:01:131 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:01:131 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 08:01:131 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 14 08:01:132 0 EOF\n\
                     4: FLOCK  ADVISORY  READ 15 fd:10000:131 0 EOF\n\
                     5: FLOCK\n";
        let entry = |process, exclusive| [Entry { process, exclusive }];
        assert_eq!(parse(table, (0x801, 131)), entry(12, true));
        assert_eq!(parse(table, (0x801, 132)), entry(14, false));
        // A minor number of more than eight bits is spread over the device's bits.
        assert_eq!(parse(table, (0x1000_fd00, 131)), entry(15, false));
        assert_eq!(parse(table, (0x802, 131)), []);
    }
}
