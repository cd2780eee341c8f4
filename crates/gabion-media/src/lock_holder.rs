//! The holder of a lock: a process, if the system confirms it.
//!
//! A lock file may name its holder, but what it says may be that of one who died, or whose number
//! another process has by now, or has in another namespace. So a name is a hint only, and so is the
//! system's list of locks, which keeps the number of a holder whose forked child holds the lock
//! now. What counts is that a process has the file open by a handle that is locked, which the
//! system tells of each handle below `/proc`.

use std::fmt;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process id.
    pub process: u32,
    /// The name of its program, as the system has it; empty where it tells none.
    pub program: String,
}

impl LockHolder {
    fn of(process: u32) -> LockHolder {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        LockHolder {
            process,
            // A process chooses its name, and terminals obey what is in it.
            program: name.trim_end().escape_debug().to_string(),
        }
    }

    /// This process.
    pub(crate) fn this_process() -> LockHolder {
        LockHolder::of(std::process::id())
    }

    /// The process that holds the lock of a file or directory, which `named` may be; `None` where
    /// no process is seen to hold it.
    pub(crate) fn find(locked: &File, named: Option<u32>) -> Option<LockHolder> {
        let locked = locked.metadata().ok()?;
        let listed = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let mut candidates = named
            .into_iter()
            .chain(listed_holders(&listed, locked.ino()));
        let holder = candidates.find(|process| holds(*process, &locked))?;
        Some(LockHolder::of(holder))
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.program.as_str() {
            "" => write!(f, "process {}", self.process),
            program => write!(f, "process {} ({program})", self.process),
        }
    }
}

/// The processes that took a lock of an inode of that number, by the system's list.
fn listed_holders(locks: &str, inode: u64) -> impl Iterator<Item = u32> {
    locks.lines().filter_map(move |line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK");
        let process = words.nth(3)?.parse().ok()?;
        let (_, number) = words.next()?.rsplit_once(':')?;
        (number.parse() == Ok(inode)).then_some(process)
    })
}

/// Whether a process has the file open by a handle that is locked.
fn holds(process: u32, locked: &Metadata) -> bool {
    let Ok(handles) = std::fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    handles.filter_map(Result::ok).any(|handle| {
        let is_of_file = std::fs::metadata(handle.path())
            .is_ok_and(|file| (file.dev(), file.ino()) == (locked.dev(), locked.ino()));
        is_of_file && {
            let info = Path::new("/proc").join(process.to_string()).join("fdinfo");
            let info = std::fs::read_to_string(info.join(handle.file_name()));
            info.is_ok_and(|info| info.lines().any(is_lock))
        }
    })
}

/// Whether a line about a handle tells of a lock of the kind that is used here.
fn is_lock(line: &str) -> bool {
    line.starts_with("lock:") && line.contains("FLOCK")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_locks_is_read() {
        let list = "1: FLOCK  ADVISORY  WRITE 21376 fe:00:10010708 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 9 fe:00:10010708 0 EOF\n\
                    2: POSIX  ADVISORY  READ 7 fe:00:10010708 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE -1 fe:00:10010708 0 EOF\n\
                    4: FLOCK  ADVISORY  READ 4 00:2a:10010708 0 EOF\n\
                    5: FLOCK ADVISORY\n\nFLOCK 1 2 3 4";
        let holders: Vec<_> = listed_holders(list, 10_010_708).collect();
        assert_eq!(holders, [21376, 9, 4]);
        assert_eq!(listed_holders(list, 10).count(), 0);
    }

    #[test]
    fn a_program_cannot_write_to_terminals_by_its_name() {
        let holder = |program: &str| LockHolder {
            process: 17,
            program: program.to_owned(),
        };
        assert_eq!(holder("").to_string(), "process 17");
        assert_eq!(holder("gabion").to_string(), "process 17 (gabion)");
        let own = LockHolder::this_process();
        assert_eq!(own.process, std::process::id());
        assert!(!own.program.chars().any(char::is_control), "{own}");
    }
}
