//! A control group with a limit of memory, in which the processes of a trial run.
//!
//! The limit counts the page cache as well, so that a store of more data than that has to read them
//! from the drive. The group is made below the nearest group in which this process may make one,
//! of either version. A process joins it before it is told its trial, so that all that it reads
//! and writes is counted there. Nothing is swapped.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use gabion_media::{MemoryGroup, memory_groups};

use crate::Error;
use crate::text::bytes_text;

/// How often, and how far apart, the removal of a group is tried: it goes when its last process is
/// gone, which the system may notice a little later.
const REMOVALS: (u32, Duration) = (100, Duration::from_millis(20));

/// Numbers the groups of this process.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A group of processes, which is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Group {
    group: MemoryGroup,
    bytes: u64,
}

impl Group {
    /// Makes a group whose processes may use so much memory.
    ///
    /// # Errors
    /// [`Error::Request`] where this process may not, or the system has no such groups.
    pub(super) fn with_limit(bytes: u64) -> Result<Group, Error> {
        Group::below(memory_groups(), bytes)
    }

    /// The same below the first of `groups` where that is possible.
    fn below(groups: Vec<MemoryGroup>, bytes: u64) -> Result<Group, Error> {
        // ORDER: Relaxed; the counter hands out numbers and publishes nothing.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("gabion-lab-{}-{number}", std::process::id());
        let mut refused = "the system has no control group for memory".to_owned();
        for above in groups {
            let dir = above.dir.join(&name);
            if let Err(error) = fs::create_dir(&dir) {
                refused = format!("cannot create {}: {error}", dir.display());
                continue;
            }
            let is_unified = above.is_unified;
            let group = Group {
                group: MemoryGroup { dir, is_unified },
                bytes,
            };
            match group.limit() {
                Ok(()) => return Ok(group),
                Err(error) => {
                    let dir = group.group.dir.display();
                    refused = format!("cannot limit the memory of {dir}: {error}");
                }
            }
        }
        Err(Error::Request(format!(
            "the memory of a trial cannot be limited here: {refused}; run the lab as root, or in a \
             control group that you may change"
        )))
    }

    fn limit(&self) -> io::Result<()> {
        // The limit of memory and swap together is none below that of memory.
        let (limit, swap, swapped) = match self.group.is_unified {
            true => ("memory.max", "memory.swap.max", 0),
            false => (
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                self.bytes,
            ),
        };
        write_to(&self.group.dir.join(limit), self.bytes)?;
        // Not everywhere is there swap, or a limit of it.
        let _ = write_to(&self.group.dir.join(swap), swapped);
        Ok(())
    }

    /// Takes a process into the group.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn take(&self, process: u32) -> Result<(), Error> {
        let file = self.group.dir.join("cgroup.procs");
        write_to(&file, process.into()).map_err(|source| Error::file("write to", &file, source))
    }

    /// Why a process of the group is gone, if the system has ended one for want of memory.
    pub(super) fn why_gone(&self) -> Option<String> {
        let file = match self.group.is_unified {
            true => "memory.events",
            false => "memory.oom_control",
        };
        let events = fs::read_to_string(self.group.dir.join(file)).unwrap_or_default();
        (kills(&events) > 0).then(|| {
            format!(
                "the system ended the trial, because it needed more than {} of memory",
                bytes_text(self.bytes)
            )
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let (times, pause) = REMOVALS;
        for _ in 0..times {
            match fs::remove_dir(&self.group.dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => sleep(pause),
                _ => return,
            }
        }
        // An empty group that is left behind does no harm, and there is nobody to tell.
    }
}

/// How many processes were ended, by a file of a group.
fn kills(events: &str) -> u64 {
    let line = events
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

fn write_to(file: &Path, number: u64) -> io::Result<()> {
    // Never makes the file: only the system's own has an effect.
    let mut file = fs::OpenOptions::new().write(true).open(file)?;
    io::Write::write_all(&mut file, number.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn group(dir: PathBuf, is_unified: bool) -> MemoryGroup {
        MemoryGroup { dir, is_unified }
    }

    #[test]
    fn without_a_group_the_sentence_says_what_was_tried() {
        let sentence = |groups| Group::below(groups, MIB).unwrap_err().to_string();
        assert!(sentence(Vec::new()).contains("has no control group"));
        // A directory has no files of a group, and is not taken for one.
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let groups = vec![group(dir.path().to_owned(), true), group(missing, false)];
        let sentence = sentence(groups);
        assert!(sentence.contains("cannot create"), "{sentence}");
        assert!(sentence.contains("as root"), "{sentence}");
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
        let groups = vec![group(dir.path().to_owned(), false)];
        let sentence = Group::below(groups, MIB).unwrap_err().to_string();
        assert!(sentence.contains("cannot limit the memory"), "{sentence}");
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn kills_are_counted_in_both_versions() {
        assert_eq!(kills("low 0\nhigh 4\noom 1\noom_kill 2\n"), 2);
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
        assert_eq!(kills("oom_kill_disable 1\nunder_oom 0\n"), 0);
        assert_eq!(kills(""), 0);
    }

    /// A process that takes too much is ended, and the group says so; then the group is gone.
    #[test]
    fn a_process_is_held_to_the_limit() {
        let group = match Group::with_limit(16 * MIB) {
            Ok(group) => group,
            Err(error) => {
                println!("NOT TESTED: {error}");
                return;
            }
        };
        let dir = group.group.dir.clone();
        let take = |mib: u64| {
            // Waits until it is in the group, and then keeps so much in a variable.
            let script = format!(
                "read go && x=$(head -c {} /dev/zero | tr '\\0' x)",
                mib * MIB
            );
            let mut child = Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            group.take(child.id()).unwrap();
            io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
            child.wait().unwrap().success()
        };
        assert!(take(1));
        assert_eq!(group.why_gone(), None);
        assert!(!take(64));
        let why = group.why_gone().unwrap();
        assert!(why.contains("16.0 MiB of memory"), "{why}");
        drop(group);
        assert!(!dir.exists());
    }
}
