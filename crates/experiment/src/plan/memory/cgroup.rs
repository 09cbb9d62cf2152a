//! The memory limits of the control groups that this process is in.
//!
//! A process belongs to one group of each hierarchy, and every group above it limits it as well.
//! `/proc/self/cgroup` names the groups, `/proc/self/mountinfo` the directories where they are
//! shown.

use std::path::{Path, PathBuf};

/// The least memory limit of the groups of this process, of version 1 and 2, in bytes. `read`
/// returns the text of a file.
pub fn limit(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mounts = read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    let limits = mounts
        .lines()
        .filter_map(Mount::parse)
        .flat_map(|mount| mount.files(&groups))
        // `max` is not a number, so it sets no limit.
        .filter_map(|file| read(&file)?.trim().parse::<u64>().ok());
    limits.min()
}

/// A hierarchy of control groups that limits memory, as it is mounted here.
struct Mount {
    /// The group that the directory shows; not `/` where a part is mounted.
    root: PathBuf,
    directory: PathBuf,
    is_unified: bool,
}

impl Mount {
    /// A line of `mountinfo`, see proc(5): `36 35 0:26 /root /directory options - type source
    /// options`, with optional fields before the dash.
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let is_unified = match after.next()? {
            "cgroup2" => true,
            // Each controller of version 1 may be mounted separately.
            "cgroup" if after.next_back()?.split(',').any(|name| name == "memory") => false,
            _ => return None,
        };
        let mut before = before.split(' ').skip(3);
        // Blanks in a name are written as octal numbers.
        let mut path = || Some(PathBuf::from(before.next()?.replace("\\040", " ")));
        Some(Self {
            root: path()?,
            directory: path()?,
            is_unified,
        })
    }

    /// The files with the limits of this process's group and of those above it, as far as they are
    /// shown. `groups` is the text of `/proc/self/cgroup`, with lines `number:controllers:/group`.
    fn files(&self, groups: &str) -> Vec<PathBuf> {
        let group = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, group) = (parts.next()?, parts.next()?);
            let is_of_this = if self.is_unified {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|name| name == "memory")
            };
            is_of_this.then(|| PathBuf::from(group))
        });
        let group = group.unwrap_or_else(|| self.root.clone());
        // In a container the group may be named from a root that is not shown: then what is shown
        // is the container's.
        let inside = group.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let name = if self.is_unified {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        let above = inside.ancestors();
        above
            .map(|group| self.directory.join(group).join(name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw";
    const MEMORY: &str = "33 32 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory";

    fn least(groups: &str, mounts: &str, limits: &[(&str, &str)]) -> Option<u64> {
        limit(|path| match path.to_str()? {
            "/proc/self/cgroup" => Some(groups.to_owned()),
            "/proc/self/mountinfo" => Some(mounts.to_owned()),
            path => limits
                .iter()
                .find_map(|(known, text)| (*known == path).then(|| format!("{text}\n"))),
        })
    }

    #[test]
    fn the_least_limit_on_the_way_to_the_root_holds() {
        let limits = [
            ("/sys/fs/cgroup/job/memory.max", "3000"),
            ("/sys/fs/cgroup/job/step/memory.max", "max"),
            ("/sys/fs/cgroup/job/step/task/memory.max", "9000"),
            ("/sys/fs/cgroup/other/memory.max", "1"),
        ];
        let of = |group: &str| least(&format!("0::{group}\n"), UNIFIED, &limits);
        assert_eq!(of("/job/step/task"), Some(3000));
        assert_eq!(of("/job"), Some(3000));
        assert_eq!(of("/"), None);
        assert_eq!(least("", "", &limits), None);
    }

    #[test]
    fn version_1_names_the_group_of_the_memory_controller() {
        let groups = "9:cpu,cpuacct:/other\n7:memory:/slurm/job_5\n0::/\n";
        let limits = [
            (
                "/sys/fs/cgroup/memory/slurm/job_5/memory.limit_in_bytes",
                "700",
            ),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712",
            ),
            ("/sys/fs/cgroup/memory/other/memory.limit_in_bytes", "5"),
        ];
        let mounts = format!("{UNIFIED}\n{MEMORY}\n");
        assert_eq!(least(groups, &mounts, &limits), Some(700));
    }

    #[test]
    fn in_a_container_the_mounted_part_is_the_root() {
        let part = "30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw";
        let limits = [
            ("/sys/fs/cgroup/memory.max", "800"),
            ("/sys/fs/cgroup/inner/memory.max", "400"),
        ];
        let of = |group: &str| least(&format!("0::{group}\n"), part, &limits);
        assert_eq!(of("/docker/ab"), Some(800));
        assert_eq!(of("/docker/ab/inner"), Some(400));
        // A namespace of control groups shows other names.
        assert_eq!(of("/../cd"), Some(800));
    }
}
