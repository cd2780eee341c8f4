//! Failures to inject into a simulated disk.

use rustix::io::Errno;

/// A failure that strikes an operation of a simulated disk.
///
/// Operations are numbered from 1 as [`super::SimDisk::ops`] counts them, reads by themselves as
/// [`super::SimDisk::reads`] does. The fault strikes the first operation from number `at` on that
/// its kind can strike; so a workload that is repeated with the fault at each number meets it
/// everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Number of the first operation, or of the first read, that may be struck.
    pub at: u64,
    /// What happens.
    pub kind: FaultKind,
    /// Whether it strikes all operations from there on, not only the first.
    pub forever: bool,
}

impl Fault {
    /// A fault that strikes once.
    pub fn once(at: u64, kind: FaultKind) -> Fault {
        Fault {
            at,
            kind,
            forever: false,
        }
    }

    /// A fault that strikes each operation from number `at` on, until
    /// [`super::SimDisk::clear_faults`].
    pub fn forever(at: u64, kind: FaultKind) -> Fault {
        Fault {
            at,
            kind,
            forever: true,
        }
    }
}

/// The kinds of failure. Appends to log files never fail, since on the system they are stores
/// into memory; the faults of log files come when they are created and synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The operation does nothing and reports an I/O error. A sync that is struck behaves like
    /// `SyncFails { keep: false }`.
    Eio,
    /// Creating, reserving, appending, renaming or syncing reports a full disk. Of an append a part
    /// may have been written, of a sync nothing was, and the data stays to be written.
    NoSpace,
    /// Of an append only a first part is written before it reports an I/O error.
    ShortWrite,
    /// A sync of a file or of the directory reports an I/O error.
    SyncFails {
        /// Whether what was to be written stays to be written by the next sync. If not, reads
        /// show it, no later sync writes it, and the loss of power loses it, as on Linux.
        keep: bool,
    },
    /// A sync of a file or of the directory reports an I/O error after any part of what was to be
    /// written has reached the medium; the rest is dropped as by `SyncFails { keep: false }`.
    SyncTears {
        /// Chooses the part.
        seed: u64,
    },
    /// A sync of a file or of the directory says that it has succeeded, and has done nothing. What
    /// was to be written stays to be written by the next sync. No store can survive such a disk: it
    /// shows that a test would notice a sync that is missing.
    SyncLies,
    /// A read reports an I/O error.
    ReadEio,
    /// A read reports that the file does not exist, as on a file system of another machine that
    /// has removed it.
    ReadGone,
    /// A read succeeds with one wrong bit.
    BitFlip {
        /// Which bit of the bytes read, modulo their number.
        bit: u64,
    },
}

/// The operations as faults tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Append,
    AppendLog,
    Sync,
    Rename,
    Remove,
    Truncate,
    Reserve,
    Punch,
    Read,
}

impl FaultKind {
    fn strikes(self, operation: Operation) -> bool {
        use Operation::{Append, AppendLog, Create, Read, Rename, Reserve, Sync};
        match self {
            FaultKind::Eio => !matches!(operation, AppendLog | Read),
            FaultKind::NoSpace => matches!(operation, Create | Reserve | Append | Rename | Sync),
            FaultKind::ShortWrite => operation == Append,
            FaultKind::SyncFails { .. } | FaultKind::SyncTears { .. } | FaultKind::SyncLies => {
                operation == Sync
            }
            FaultKind::ReadEio | FaultKind::ReadGone | FaultKind::BitFlip { .. } => {
                operation == Read
            }
        }
    }

    /// The system's answer to a struck operation.
    pub(super) fn errno(self) -> Errno {
        match self {
            FaultKind::NoSpace => Errno::NOSPC,
            FaultKind::ReadGone => Errno::NOENT,
            _ => Errno::IO,
        }
    }
}

/// The fault that strikes the operation with this number. One that strikes once is used up.
pub(super) fn strike(
    faults: &mut Vec<Fault>,
    number: u64,
    operation: Operation,
) -> Option<FaultKind> {
    let struck = |fault: &Fault| fault.at <= number && fault.kind.strikes(operation);
    let index = faults.iter().position(struck)?;
    let fault = faults[index];
    if !fault.forever {
        faults.remove(index);
    }
    Some(fault.kind)
}
