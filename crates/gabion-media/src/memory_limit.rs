//! The memory that this process may use: that of the machine, or less if a control group limits it.
//!
//! Linux puts each process into a group of one hierarchy, or of several in the older version, and
//! the limits of a group hold for all groups below it. So the least counts, from the process's own
//! group up to the topmost that it can see: `memory.max`, and `memory.high`, above which a process
//! is slowed down, or `memory.limit_in_bytes`. All of these count the page cache as well.
//!
//! `/proc/self/cgroup` names the group in each hierarchy, and `/proc/self/mountinfo` tells where a
//! hierarchy is mounted, and which of its groups is at the mount's root: in a container that is
//! often the container's own, or the name is that of another namespace. Then the root of the mount
//! is the nearest group that can be seen. Limits that cannot be read are none.

use std::path::{Path, PathBuf};

/// The files of a group that hold a limit in bytes, or a word for none.
const LIMITS: [&str; 3] = ["memory.max", "memory.high", "memory.limit_in_bytes"];

/// Bytes of memory that this process may use, the page cache included; `None` where the system does
/// not tell. It is read anew each time, since limits change.
pub fn usable_memory_bytes() -> Option<u64> {
    usable_below(Path::new("/"))
}

/// A control group that may have a limit of memory, by the directory of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryGroup {
    /// The directory.
    pub dir: PathBuf,
    /// Whether it is of the second version, in which one hierarchy has all limits.
    pub is_unified: bool,
}

/// The groups of this process and those above them, as far as they can be seen: of each hierarchy
/// that can limit memory, the nearest first.
pub fn memory_groups() -> Vec<MemoryGroup> {
    groups_on(Path::new("/"))
}

/// The same on a system whose files are below `root`.
fn groups_on(root: &Path) -> Vec<MemoryGroup> {
    let names = text_of(&root.join("proc/self/cgroup"));
    let mounts = text_of(&root.join("proc/self/mountinfo"));
    let groups = mounts.lines().filter_map(Mount::parse).flat_map(|mount| {
        let top = root.join(mount.point.trim_start_matches('/'));
        let is_unified = mount.is_unified;
        let dirs = groups_below(&top, &mount, &names).into_iter();
        dirs.map(move |dir| MemoryGroup { dir, is_unified })
    });
    groups.collect()
}

/// What this process may use on a system whose files are below `root`.
fn usable_below(root: &Path) -> Option<u64> {
    let machine = machine_bytes(&text_of(&root.join("proc/meminfo")));
    let groups = groups_on(root).into_iter();
    let limits = groups.flat_map(|group| LIMITS.map(|file| limit(&group.dir.join(file))));
    limits.flatten().chain(machine).min()
}

fn text_of(file: &Path) -> String {
    let bytes = std::fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The limit in a file; `None` for "max".
fn limit(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// What the machine has.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// A hierarchy of groups that limits memory.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    /// The group that is seen at the mount point.
    root: &'a str,
    point: &'a str,
    /// Of the second version, in which one hierarchy has all limits.
    is_unified: bool,
}

impl<'a> Mount<'a> {
    /// A line of `mountinfo`, if it is of such a hierarchy.
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut kind = kind.split(' ');
        let is_unified = match (kind.next()?, kind.nth(1)?) {
            ("cgroup2", _) => true,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => false,
            _ => return None,
        };
        Some(Mount {
            root: place.next()?,
            point: place.next()?,
            is_unified,
        })
    }

    /// The name of the process's group in this hierarchy, in the list of all.
    fn group_in<'b>(&self, names: &'b str) -> Option<&'b str> {
        names.lines().find_map(|line| {
            let (_, group) = line.split_once(':')?;
            let (controllers, name) = group.split_once(':')?;
            let is_this = match self.is_unified {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|one| one == "memory"),
            };
            is_this.then_some(name)
        })
    }
}

/// The directories of the process's group and of all above it, as far as they can be seen.
fn groups_below(top: &Path, mount: &Mount<'_>, names: &str) -> Vec<PathBuf> {
    let name = mount.group_in(names).unwrap_or("/");
    let below = Path::new(name).strip_prefix(mount.root);
    let below = below.unwrap_or(Path::new(""));
    below.ancestors().map(|group| top.join(group)).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const MIB: u64 = 1 << 20;
    const MEMINFO: &str = "MemTotal:        2097152 kB\nMemFree:           10240 kB\n";
    const UNIFIED: &str = "25 30 0:23 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
    const V1: &str = "33 32 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    /// What the first version says for no limit.
    const NONE_V1: &str = "9223372036854771712\n";

    /// What a process may use on a system with these files.
    fn usable(files: &[(&str, &str)]) -> Option<u64> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let mut file = std::fs::File::create(file).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }
        usable_below(dir.path())
    }

    /// The same on a machine of 2 GiB.
    fn usable_of_2_gib(group: &str, mounts: &str, limits: &[(&str, &str)]) -> u64 {
        let system = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", group),
            ("proc/self/mountinfo", mounts),
        ];
        usable(&[&system, limits].concat()).unwrap() / MIB
    }

    #[test]
    fn without_groups_the_machine_counts() {
        assert_eq!(usable(&[]), None);
        assert_eq!(usable(&[("proc/meminfo", MEMINFO)]), Some(2048 * MIB));
        for bad in ["", "MemTotal:", "MemTotal: x kB", "MemTotal: 5 MB"] {
            assert_eq!(machine_bytes(bad), None, "{bad}");
        }
        assert_eq!(usable_of_2_gib("0::/a\n", UNIFIED, &[]), 2048);
        assert_eq!(usable_of_2_gib("\n:\n0:x\n", "1 2 - cgroup2\n", &[]), 2048);
    }

    #[test]
    fn the_least_of_all_groups_above_counts() {
        let of = |limits: &[(&str, &str)]| usable_of_2_gib("0::/a/b c\n", UNIFIED, limits);
        let own = ("sys/fs/cgroup/a/b c/memory.max", "536870912\n");
        assert_eq!(of(&[own]), 512);
        assert_eq!(of(&[own, ("sys/fs/cgroup/a/memory.max", "max\n")]), 512);
        let above = ("sys/fs/cgroup/a/memory.max", "268435456\n");
        assert_eq!(of(&[own, above]), 256);
        let slowed = ("sys/fs/cgroup/a/b c/memory.high", "134217728\n");
        assert_eq!(of(&[own, above, slowed]), 128);
        // More than the machine has, other groups' limits, and what is no number.
        assert_eq!(of(&[("sys/fs/cgroup/a/memory.max", "9000000000\n")]), 2048);
        assert_eq!(of(&[("sys/fs/cgroup/c/memory.max", "5\n")]), 2048);
        assert_eq!(of(&[("sys/fs/cgroup/a/memory.max", "\n")]), 2048);
    }

    #[test]
    fn the_first_version_has_a_hierarchy_for_memory() {
        let names = "9:name=systemd:/s\n4:cpu,memory:/a/b\n0::/u\n";
        let of = |limits: &[(&str, &str)]| usable_of_2_gib(names, V1, limits);
        let own = (
            "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
            "536870912\n",
        );
        let top = ("sys/fs/cgroup/memory/memory.limit_in_bytes", NONE_V1);
        assert_eq!(of(&[own, top]), 512);
        assert_eq!(of(&[top]), 2048);
        let above = (
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "268435456\n",
        );
        assert_eq!(of(&[own, above, top]), 256);
        // Both versions side by side.
        let unified = ("sys/fs/cgroup/unified/u/memory.max", "134217728\n");
        assert_eq!(of(&[own, above, unified]), 128);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_root_of_the_mount() {
        let at_root = [("sys/fs/cgroup/memory.max", "536870912\n")];
        // A namespace of groups: all names begin at the container's.
        assert_eq!(usable_of_2_gib("0::/\n", UNIFIED, &at_root), 512);
        // No namespace: the mount shows a part of the hierarchy, and names are those of the whole.
        let part = "9 8 0:23 /docker/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(usable_of_2_gib("0::/docker/c1\n", part, &at_root), 512);
        let below = [at_root[0], ("sys/fs/cgroup/job/memory.max", "268435456\n")];
        assert_eq!(usable_of_2_gib("0::/docker/c1/job\n", part, &below), 256);
        // The name is of another namespace, or the group is not below the mount's root.
        for name in ["0::/docker/c10\n", "0::/../../other\n", "0::/docker\n", ""] {
            assert_eq!(usable_of_2_gib(name, part, &at_root), 512, "{name}");
        }
        assert_eq!(usable_of_2_gib("0::/gone/job\n", UNIFIED, &at_root), 512);
    }

    #[test]
    fn this_system_is_read() {
        let usable = usable_memory_bytes();
        assert!(usable.is_none_or(|bytes| bytes > MIB), "{usable:?}");
        assert_eq!(usable.is_some(), cfg!(target_os = "linux"));
    }
}
