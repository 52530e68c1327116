//! How much memory the system lets this process use: limits on its address space and data, limits of its
//! control groups (version 2 and 1), and the machine's available memory.
//!
//! Exceeding them ends the process: an allocation fails, or the system kills it. Independent of the callers.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The system's files with this information.
struct Places<'a> {
    /// `/proc/self`.
    process: &'a Path,
    /// `/proc/meminfo`.
    memory: &'a Path,
    /// `/sys/fs/cgroup`.
    groups: &'a Path,
}

/// Bytes that this process may still use; `u64::MAX` if unknown.
pub fn left() -> u64 {
    let places = Places {
        process: Path::new("/proc/self"),
        memory: Path::new("/proc/meminfo"),
        groups: Path::new("/sys/fs/cgroup"),
    };
    places.left()
}

impl Places<'_> {
    fn left(&self) -> u64 {
        [self.by_limits(), self.by_groups(), self.by_machine()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(u64::MAX)
    }

    /// According to `ulimit -v` and `ulimit -d`.
    fn by_limits(&self) -> Option<u64> {
        let limits = read_to_string(self.process.join("limits")).ok()?;
        // A name, the soft limit, the hard limit, a unit.
        let limit = |name: &str| -> Option<u64> {
            let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let (space, data) = (limit("Max address space"), limit("Max data size"));
        if space.is_none() && data.is_none() {
            return None;
        }
        let status = read_to_string(self.process.join("status")).ok()?;
        let used = |name: &str| kilobytes(&status, name).unwrap_or(0);
        let left = |limit: Option<u64>, name: &str| limit.map(|limit| limit.saturating_sub(used(name)));
        [left(space, "VmSize:"), left(data, "VmData:")].into_iter().flatten().min()
    }

    /// According to `MemAvailable`.
    fn by_machine(&self) -> Option<u64> {
        kilobytes(&read_to_string(self.memory).ok()?, "MemAvailable:")
    }

    /// According to the process's control group and its ancestors.
    fn by_groups(&self) -> Option<u64> {
        let list = read_to_string(self.process.join("cgroup")).ok()?;
        let of_line = |line: &str| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let path = path.trim().trim_start_matches('/');
            match controllers {
                "" => self.in_group(self.groups.to_path_buf(), path, &VERSION_2),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    self.in_group(self.groups.join("memory"), path, &VERSION_1)
                }
                _ => None,
            }
        };
        list.lines().filter_map(of_line).min()
    }

    /// The bytes left in the tightest group from `path` up to the root. In a container the path may lie
    /// outside of it: then the root is the container's own group.
    fn in_group(&self, root: PathBuf, path: &str, names: &Names) -> Option<u64> {
        let mut group = root.join(path);
        let mut least: Option<u64> = None;
        loop {
            if let Some(left) = names.left(&group) {
                least = Some(least.map_or(left, |least| least.min(left)));
            }
            if group == root || !group.starts_with(&root) || !group.pop() {
                return least;
            }
        }
    }
}

/// The files of a control group.
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: pages of files that can be reclaimed.
    reclaimable: &'static str,
}

static VERSION_2: Names =
    Names { limit: "memory.max", usage: "memory.current", reclaimable: "inactive_file " };
static VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file ",
};

impl Names {
    fn left(&self, group: &Path) -> Option<u64> {
        let number = |name: &str| read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        // Without a limit it is `max`, or in version 1 a number larger than any memory.
        let limit = number(self.limit).filter(|&limit| limit < 1 << 60)?;
        let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
        let line = stat.lines().find_map(|line| line.strip_prefix(self.reclaimable));
        let reclaimable = line.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0);
        Some(limit.saturating_sub(number(self.usage)?.saturating_sub(reclaimable)))
    }
}

/// The bytes of a line `name: number kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    /// A simulated file system in a temporary folder.
    fn system(name: &str, files: &[(&str, &str)]) -> u64 {
        let root = std::env::temp_dir().join(format!("runnel-room-{}-{name}", std::process::id()));
        for (file, text) in files {
            let path = root.join(file);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        }
        let (process, memory, groups) = (root.join("self"), root.join("meminfo"), root.join("cgroup"));
        let left = Places { process: &process, memory: &memory, groups: &groups }.left();
        std::fs::remove_dir_all(&root).unwrap();
        left
    }

    #[test]
    fn the_tightest_limit_counts() {
        const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                              Max data size             unlimited            unlimited            bytes\n\
                              Max address space         1048576              unlimited            bytes\n";
        const STATUS: &str = "Name:\trunnel\nVmSize:\t     512 kB\nVmData:\t  100 kB\n";
        let of_process = [("self/limits", LIMITS), ("self/status", STATUS)];
        assert_eq!(system("space", &of_process), 512 << 10);
        assert_eq!(system("machine", &[("meminfo", "MemTotal: 9 kB\nMemAvailable:       3 kB\n")]), 3 << 10);
        let version_2 = [
            ("self/cgroup", "0::/a/b\n"),
            ("cgroup/a/memory.max", "5000\n"),
            ("cgroup/a/memory.current", "3000\n"),
            ("cgroup/a/memory.stat", "anon 5\ninactive_file 500\n"),
            ("cgroup/a/b/memory.max", "max\n"),
            ("cgroup/a/b/memory.current", "3000\n"),
        ];
        assert_eq!(system("two", &version_2), 2500);
        let inside =
            [("self/cgroup", "0::/\n"), ("cgroup/memory.max", "100\n"), ("cgroup/memory.current", "40\n")];
        assert_eq!(system("container", &inside), 60);
        let outside = [
            ("self/cgroup", "0::/../../x\n"),
            ("cgroup/memory.max", "100\n"),
            ("cgroup/memory.current", "30\n"),
        ];
        assert_eq!(system("outside", &outside), 70);
        let version_1 = [
            ("self/cgroup", "5:cpu:/x\n4:memory:/c\n"),
            ("cgroup/memory/c/memory.limit_in_bytes", "4096\n"),
            ("cgroup/memory/c/memory.usage_in_bytes", "96\n"),
            ("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cgroup/memory/memory.usage_in_bytes", "1\n"),
        ];
        assert_eq!(system("one", &version_1), 4000);
        assert_eq!(system("none", &[("meminfo", "")]), u64::MAX);
        assert!(left() > 0);
    }
}
