//! A disk in memory that fails, fills up and loses power wherever a test wants it to.
//!
//! # Idea
//! The simulated disk gives the same results as the system's files for the same operations, and
//! keeps apart what the running system sees and what the medium holds (`state`). It numbers its
//! operations; a test names a number to let an operation fail (`fault`), to end the process or to
//! cut the power right after it (`crash`). Everything is decided by the sequence of operations and
//! by seeds, so every failure can be repeated.
//!
//! A recording disk keeps its operations, so that one run of a workload serves for crashes after
//! each of them: the disk replays its operations up to the crash. A replay goes on from the one
//! before where it can, so crash points in ascending order cost the operations only once.
//!
//! # Model
//! - Content becomes durable by a sync of the file, names by a sync of the directory. Neither
//!   implies the other.
//! - A log file reads as zeros up to its capacity. If it was never synced, a crash leaves it with
//!   any length it had, without bytes that did not reach the medium.
//! - Each operation counts one: create, append or write, append to a log, sync of a file or of the
//!   directory, rename, remove, truncate, reserve, punch; so does one that a fault strikes. An
//!   operation that is refused for its arguments (a name that exists, or does not) counts none.
//!   Reads count by themselves; listing names and reading lengths counts nothing and does not fail.
//!
//! # The lies of a drive
//! | what drives and systems do | how a test asks for it |
//! |---|---|
//! | lose any unsynced sectors of 512 or 4096 bytes | [`Tear::Random512`], [`Tear::Random4096`] |
//! | lose all that is not synced, or nothing | [`Tear::DropAll`], [`Tear::KeepAll`] |
//! | lose any unsynced creations, renames and removals, or the last ones | both random tears |
//! | leave a length without the bytes, or bytes without the length | both random tears |
//! | tear a store into a mapping within a sector, after any word | both random tears |
//! | fail a sync, and keep what it was to write | [`FaultKind::SyncFails`], `keep` |
//! | fail a sync once, and drop what it was to write | [`FaultKind::SyncFails`], not `keep` |
//! | the same, with any part of it written | [`FaultKind::SyncTears`] |
//! | say that a sync succeeded that did nothing | [`FaultKind::SyncLies`] |
//! | lose power while a store recovers from a loss | [`SimDisk::power_cut`] of what a cut left |
//! | write a part of the bytes, and fail | [`FaultKind::ShortWrite`], [`FaultKind::NoSpace`] |
//! | give back wrong bits, or none | [`FaultKind::BitFlip`], [`FaultKind::ReadEio`] |
//!
//! A drive that loses data while the system runs on leaves what a power cut leaves; that the system
//! was not started again is told to pools of persistent memory only, whose files are no simulated
//! ones: `pmem/tests/drive.rs` plays it on theirs.

mod content;
mod crash;
mod fault;
mod hold;
mod journal;
mod state;
mod trace;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

pub use self::crash::Tear;
pub use self::fault::{Fault, FaultKind};
pub use self::hold::CreationHold;
pub use self::trace::ReadStep;

use self::fault::Operation;
use self::hold::HoldGate;
use self::journal::EffectJournal;
use self::state::{DiskState, Effect, FileChange, Inode};
use super::DiskRoom;
use crate::lock_holder::LockHolder;
use crate::{Error, Result};

/// Where the files of simulated disks appear to be.
const SIMULATED_DIR: &str = "/simulated";

/// Free space of a disk without a capacity.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// A disk in memory with one directory. Clones are the same disk; [`super::Disk::simulated`] opens
/// it.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    state: DiskState,
    ops: u64,
    reads: u64,
    faults: Vec<Fault>,
    gates: Vec<Arc<HoldGate>>,
    capacity: Capacity,
    /// Handles that may be open at a time.
    open_max: Option<u64>,
    /// Those that are held, and by how many that share each; 0 for a holder alone.
    locks: BTreeMap<Arc<str>, usize>,
    journal: Option<EffectJournal>,
    /// What readers did since the trace began.
    trace: Option<Vec<ReadStep>>,
    /// Nothing is in the system's memory when it is asked.
    forgets: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Capacity {
    bytes: Option<u64>,
    /// Who asks for the room does not see it.
    is_hidden: bool,
}

/// An open file of a simulated disk.
#[derive(Debug)]
pub(super) struct SimFile {
    sim: SimDisk,
    inode: Inode,
}

/// A held lock of a simulated disk.
#[derive(Debug)]
pub(super) struct SimLock {
    sim: SimDisk,
    name: Arc<str>,
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty disk that keeps no history: it can crash in its present state only.
    pub fn new() -> SimDisk {
        SimDisk::with_state(DiskState::default(), Capacity::default(), false)
    }

    /// An empty disk that keeps its operations, so that it can crash after any of them. So can
    /// the disks that its crashes leave.
    pub fn recording() -> SimDisk {
        SimDisk::with_state(DiskState::default(), Capacity::default(), true)
    }

    fn with_state(state: DiskState, capacity: Capacity, recording: bool) -> SimDisk {
        let journal = recording.then(|| EffectJournal::new(state.clone()));
        let locks = BTreeMap::new();
        let faults = Vec::new();
        SimDisk(Arc::new(Mutex::new(Inner {
            state,
            ops: 0,
            reads: 0,
            faults,
            gates: Vec::new(),
            capacity,
            open_max: None,
            locks,
            journal,
            trace: None,
            forgets: false,
        })))
    }

    /// Operations so far.
    pub fn ops(&self) -> u64 {
        self.0.lock().ops
    }

    /// Reads so far.
    pub fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    /// Keeps what readers do from now on, for [`SimDisk::end_trace`].
    pub fn begin_trace(&self) {
        self.0.lock().trace = Some(Vec::new());
    }

    /// What readers did since [`SimDisk::begin_trace`].
    pub fn end_trace(&self) -> Vec<ReadStep> {
        self.0.lock().trace.take().unwrap_or_default()
    }

    /// Whether the disk says of all bytes that they are not in the system's memory any more, as
    /// those of a store that is larger than it. Reads and mappings go on as before.
    pub fn set_forgets(&self, forgets: bool) {
        self.0.lock().forgets = forgets;
    }

    /// Adds a fault to those that wait for their operation. Of several that may strike an
    /// operation, the one added first does.
    pub fn inject(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Takes all faults back, as when a cable is put in again.
    pub fn clear_faults(&self) {
        self.0.lock().faults.clear();
    }

    /// Faults that have not struck yet, or strike forever.
    pub fn waiting_faults(&self) -> usize {
        self.0.lock().faults.len()
    }

    /// Lets `skipped` files be created whose names end with `suffix`, and holds up whoever creates
    /// the next one, before it is created, until the hold is dropped.
    pub fn hold_create(&self, suffix: &str, skipped: u64) -> CreationHold {
        let (hold, gate) = CreationHold::new(suffix, skipped);
        self.0.lock().gates.push(gate);
        hold
    }

    /// Limits the bytes that all files may take together; `None` lifts the limit. Space is freed
    /// when a file has neither a name nor an open handle.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity.bytes = bytes;
    }

    /// Whether [`Disk::room`](super::Disk::room) hides the capacity, as where another program may
    /// fill the medium at any time.
    pub fn hide_capacity(&self, hides: bool) {
        self.0.lock().capacity.is_hidden = hides;
    }

    /// Limits how many files may be open at a time, as a process has a limit of its descriptors;
    /// `None` lifts the limit. Opening, creating and listing fail where there are as many.
    pub fn set_open_max(&self, files: Option<u64>) {
        self.0.lock().open_max = files;
    }

    /// Files that are open now, each as often as it was opened.
    pub fn open_files(&self) -> u64 {
        self.0.lock().state.open_files()
    }

    /// The disk after the loss of power right after operation `at_op`; 0 is before the first one.
    /// All that is on the new disk is durable; its operations count from 0, and it has no faults
    /// and no locks. This disk goes on unchanged.
    ///
    /// # Panics
    /// If the disk is not a recording one and `at_op` is not its last operation, or if the
    /// operation has not happened yet.
    pub fn power_cut(&self, at_op: u64, seed: u64, style: Tear) -> SimDisk {
        let mut inner = self.0.lock();
        let state = crash::after_power_cut(inner.state_after(at_op), seed, style);
        SimDisk::with_state(state, inner.capacity, inner.journal.is_some())
    }

    /// The disk after the end of the process right after operation `at_op`: everything written is
    /// there, and what was not synced is still not durable. Otherwise as
    /// [`SimDisk::power_cut`], panics included.
    pub fn process_kill(&self, at_op: u64) -> SimDisk {
        let mut inner = self.0.lock();
        let state = inner.state_after(at_op).clone().without_handles();
        SimDisk::with_state(state, inner.capacity, inner.journal.is_some())
    }

    /// What operation `at_op` did, in words for the report of a failed test; `None` if the disk
    /// does not record or the operation did nothing.
    pub fn describe(&self, at_op: u64) -> Option<String> {
        self.0.lock().journal.as_ref()?.describe(at_op)
    }

    /// Content of a file as the running system sees it.
    pub fn raw(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.0.lock();
        let inode = inner.state.inode_of(name)?;
        inner.state.content(inode).map(|content| content.to_vec())
    }

    /// Puts content under a name as if it had always been there: durable, and seen by open files
    /// of that name. Counts no operation.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the content moves to the disk"
    )]
    pub fn set_raw(&self, name: &str, bytes: Vec<u8>) {
        let mut inner = self.0.lock();
        let inode = inner
            .state
            .inode_of(name)
            .unwrap_or_else(|| inner.state.new_inode());
        let bytes = Arc::from(bytes.as_slice());
        inner.record(Effect::Put {
            name: name.into(),
            inode,
            bytes,
        });
    }

    /// Names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        let inner = self.0.lock();
        inner
            .state
            .names()
            .keys()
            .map(|name| name.to_string())
            .collect()
    }

    /// As [`SimDisk::names`], as a process does it, which opens the directory for that.
    pub(super) fn list(&self) -> Result<Vec<String>> {
        let room = self.0.lock().room_for_handle();
        room.map_err(|errno| Error::io("list the directory", self.dir(), None, errno))?;
        Ok(self.names())
    }

    pub(super) fn dir(&self) -> &'static Path {
        Path::new(SIMULATED_DIR)
    }

    pub(super) fn len_of(&self, name: &str) -> Result<u64> {
        let inner = self.0.lock();
        let inode = inner.inode_of("read the length of", name)?;
        Ok(inner
            .state
            .content(inode)
            .map_or(0, |content| content.len()))
    }

    pub(super) fn stamp_of(&self, name: &str) -> Result<[u64; 4]> {
        let inner = self.0.lock();
        let inode = inner.inode_of("look at", name)?;
        let file = inner.state.file(inode);
        Ok([
            inode,
            file.map_or(0, |file| file.live.len()),
            file.map_or(0, |file| file.revision),
            0,
        ])
    }

    /// Creates a file of `capacity` zero bytes, whose space is reserved, and opens it.
    pub(super) fn create(&self, name: &str, capacity: u64) -> Result<SimFile> {
        let gates = self.0.lock().gates.clone();
        for gate in gates {
            gate.pass(name);
        }
        let mut inner = self.0.lock();
        if inner.state.inode_of(name).is_some() {
            return Err(Error::AlreadyExists {
                path: path_of(name),
            });
        }
        let room = inner.room_for_handle();
        room.map_err(|errno| failed("create", name, errno))?;
        inner
            .begin(Operation::Create)
            .map_err(|kind| failed("create", name, kind.errno()))?;
        if inner.free_bytes() < capacity {
            return Err(failed("reserve the space of", name, Errno::NOSPC));
        }
        let inode = inner.state.new_inode();
        inner.record(Effect::Create {
            name: name.into(),
            inode,
        });
        if capacity > 0 {
            inner.record(Effect::Change {
                inode,
                change: FileChange::SetLen(capacity),
            });
        }
        inner.state.open(inode);
        drop(inner);
        Ok(SimFile {
            sim: self.clone(),
            inode,
        })
    }

    pub(super) fn open(&self, operation: &'static str, name: &str) -> Result<SimFile> {
        let mut inner = self.0.lock();
        let inode = inner.inode_of(operation, name)?;
        let room = inner.room_for_handle();
        room.map_err(|errno| failed(operation, name, errno))?;
        inner.state.open(inode);
        drop(inner);
        Ok(SimFile {
            sim: self.clone(),
            inode,
        })
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut inner = self.0.lock();
        inner.inode_of("rename", from)?;
        inner
            .begin(Operation::Rename)
            .map_err(|kind| failed("rename", from, kind.errno()))?;
        if from != to {
            inner.record(Effect::Rename {
                from: from.into(),
                to: to.into(),
            });
        }
        Ok(())
    }

    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let mut inner = self.0.lock();
        inner.inode_of("remove", name)?;
        inner
            .begin(Operation::Remove)
            .map_err(|kind| failed("remove", name, kind.errno()))?;
        inner.record(Effect::Remove { name: name.into() });
        Ok(())
    }

    pub(super) fn sync_dir(&self) -> Result<()> {
        let synced = self
            .0
            .lock()
            .sync(Effect::SyncDir, |part| Effect::ForgetDir { part });
        synced.map_err(|errno| Error::io("sync the directory", self.dir(), None, errno))
    }

    pub(super) fn lock(&self, name: &str) -> Result<SimLock> {
        let mut inner = self.0.lock();
        if inner.locks.contains_key(name) {
            return Err(locked(name));
        }
        let name: Arc<str> = name.into();
        if inner.state.inode_of(&name).is_none() {
            let begun = inner.begin(Operation::Create);
            begun.map_err(|kind| failed("open the lock file", &name, kind.errno()))?;
            let inode = inner.state.new_inode();
            inner.record(Effect::Create {
                name: Arc::clone(&name),
                inode,
            });
        }
        inner.locks.insert(Arc::clone(&name), 0);
        drop(inner);
        Ok(SimLock {
            sim: self.clone(),
            name,
        })
    }

    pub(super) fn lock_shared(&self, name: &str) -> Result<SimLock> {
        let mut inner = self.0.lock();
        if inner.locks.get(name) == Some(&0) {
            return Err(locked(name));
        }
        let name: Arc<str> = name.into();
        *inner.locks.entry(Arc::clone(&name)).or_default() += 1;
        drop(inner);
        Ok(SimLock {
            sim: self.clone(),
            name,
        })
    }

    /// As [`SimDisk::lock`], of a file that is new.
    pub(super) fn lock_new(&self, name: &str) -> Result<SimLock> {
        if self.0.lock().state.inode_of(name).is_some() {
            let path = path_of(name);
            return Err(Error::AlreadyExists { path });
        }
        self.lock(name)
    }

    /// As [`SimDisk::lock`], of a file that is there.
    pub(super) fn lock_old(&self, name: &str) -> Result<Option<SimLock>> {
        let exists = self.0.lock().state.inode_of(name).is_some();
        exists.then(|| self.lock(name)).transpose()
    }

    pub(super) fn room(&self) -> DiskRoom {
        let inner = self.0.lock();
        match inner.capacity {
            Capacity {
                bytes: Some(total_bytes),
                is_hidden: false,
            } => DiskRoom {
                free_bytes: inner.free_bytes(),
                total_bytes,
            },
            _ => DiskRoom {
                free_bytes: UNLIMITED_BYTES,
                total_bytes: UNLIMITED_BYTES,
            },
        }
    }
}

impl SimFile {
    pub(super) fn len(&self) -> u64 {
        let inner = self.sim.0.lock();
        inner
            .state
            .content(self.inode)
            .map_or(0, |content| content.len())
    }

    /// An error if there is no space for so many bytes.
    pub(super) fn check_space(&self, len: u64) -> io::Result<()> {
        match self.sim.0.lock().free_bytes() < len {
            true => Err(Errno::NOSPC.into()),
            false => Ok(()),
        }
    }

    pub(super) fn append(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.sim.0.lock();
        let struck = inner.begin(Operation::Append).err();
        let content = inner.state.content(self.inode);
        let growth = content.map_or(0, |content| content.growth(offset, bytes.len() as u64));
        let missing = growth.saturating_sub(inner.free_bytes());
        let whole = bytes.len();
        let (written, failure) = match struck {
            Some(kind @ (FaultKind::NoSpace | FaultKind::ShortWrite)) => {
                (whole / 2, Some(kind.errno()))
            }
            Some(kind) => (0, Some(kind.errno())),
            None if missing > 0 => (
                // What is missing may be a gap in front of the bytes, too.
                whole.saturating_sub(usize::try_from(missing).unwrap_or(whole)),
                Some(Errno::NOSPC),
            ),
            None => (whole, None),
        };
        if written > 0 {
            let bytes = Arc::from(&bytes[..written]);
            let change = FileChange::Write {
                offset,
                bytes,
                mapped: false,
            };
            inner.record(Effect::Change {
                inode: self.inode,
                change,
            });
        }
        failure.map_or(Ok(()), |errno| Err(errno.into()))
    }

    /// Lets a range read as zeros, as far as it lies in the file, and gives the space of its whole
    /// pages back.
    pub(super) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut inner = self.sim.0.lock();
        inner.begin(Operation::Punch).map_err(FaultKind::errno)?;
        let file_len = inner
            .state
            .content(self.inode)
            .map_or(0, |content| content.len());
        let end = offset.saturating_add(len).min(file_len);
        if offset < end {
            let size = usize::try_from(end - offset).expect("a simulated file fits into memory");
            let change = FileChange::Write {
                offset,
                bytes: Arc::from(vec![0; size]),
                mapped: false,
            };
            let given_back = FileChange::GiveBack {
                offset,
                len: end - offset,
            };
            for change in [change, given_back] {
                inner.record(Effect::Change {
                    inode: self.inode,
                    change,
                });
            }
        }
        Ok(())
    }

    /// Reserves the space of a range, and lengthens the file to it.
    pub(super) fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut inner = self.sim.0.lock();
        inner.begin(Operation::Reserve).map_err(FaultKind::errno)?;
        let content = inner.state.content(self.inode);
        if content.map_or(0, |content| content.growth(offset, len)) > inner.free_bytes() {
            return Err(Errno::NOSPC.into());
        }
        inner.record(Effect::Change {
            inode: self.inode,
            change: FileChange::Reserve { offset, len },
        });
        Ok(())
    }

    /// Appends to a log file whose space is reserved: this cannot fail.
    pub(super) fn append_log(&self, offset: u64, parts: &[&[u8]]) {
        let bytes = Arc::from(parts.concat());
        let change = FileChange::Write {
            offset,
            bytes,
            mapped: true,
        };
        let mut inner = self.sim.0.lock();
        let begun = inner.begin(Operation::AppendLog);
        debug_assert!(begun.is_ok(), "no fault strikes an append to a log");
        inner.record(Effect::Change {
            inode: self.inode,
            change,
        });
    }

    pub(super) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut inner = self.sim.0.lock();
        inner.reads += 1;
        let number = inner.reads;
        if let Some(trace) = &mut inner.trace {
            let place = offset..offset + buffer.len() as u64;
            let file = self.inode;
            trace.push(ReadStep::Read { file, place });
        }
        let struck = fault::strike(&mut inner.faults, number, Operation::Read);
        if let Some(kind @ (FaultKind::ReadEio | FaultKind::ReadGone)) = struck {
            return Err(kind.errno().into());
        }
        let content = inner.state.content(self.inode);
        if !content.is_some_and(|content| content.read(offset, buffer)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(FaultKind::BitFlip { bit }) = struck
            && !buffer.is_empty()
        {
            let bit = bit % (buffer.len() as u64 * 8);
            buffer[usize::try_from(bit / 8).unwrap_or(0)] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    /// Notes what a reader announced.
    pub(super) fn will_need(&self, place: Range<u64>) {
        if let Some(trace) = &mut self.sim.0.lock().trace {
            let file = self.inode;
            trace.push(ReadStep::Announced { file, place });
        }
    }

    pub(super) fn is_in_memory(&self) -> bool {
        !self.sim.0.lock().forgets
    }

    /// The content as the running system sees it now: what a mapping shows. Mapping reads nothing
    /// from the medium, so no fault strikes.
    pub(super) fn content(&self) -> Vec<u8> {
        let inner = self.sim.0.lock();
        let content = inner.state.content(self.inode);
        content.map_or_else(Vec::new, |content| content.to_vec())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        let inode = self.inode;
        let synced = self
            .sim
            .0
            .lock()
            .sync(Effect::Sync { inode }, |part| Effect::Forget {
                inode,
                part,
            });
        synced.map_err(io::Error::from)
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        let mut inner = self.sim.0.lock();
        inner.begin(Operation::Truncate).map_err(FaultKind::errno)?;
        let old_len = inner
            .state
            .content(self.inode)
            .map_or(0, |content| content.len());
        if len.saturating_sub(old_len) > inner.free_bytes() {
            return Err(Errno::NOSPC.into());
        }
        inner.record(Effect::Change {
            inode: self.inode,
            change: FileChange::SetLen(len),
        });
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.sim.0.lock().state.close(self.inode);
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut inner = self.sim.0.lock();
        match inner.locks.get_mut(&self.name) {
            Some(sharing) if *sharing > 1 => *sharing -= 1,
            _ => drop(inner.locks.remove(&self.name)),
        }
    }
}

fn locked(name: &str) -> Error {
    Error::Locked {
        path: path_of(name),
        holder: Some(LockHolder::this_process()),
    }
}

impl Inner {
    /// Counts an operation, and lets it fail if a fault strikes it.
    fn begin(&mut self, operation: Operation) -> Result<(), FaultKind> {
        self.ops += 1;
        fault::strike(&mut self.faults, self.ops, operation).map_or(Ok(()), Err)
    }

    /// Makes changes durable with the effect `done`. A failure that drops them has the other one,
    /// which leaves a part of them if it is given a seed.
    fn sync(
        &mut self,
        done: Effect,
        forgotten: impl FnOnce(Option<u64>) -> Effect,
    ) -> Result<(), Errno> {
        let kind = match self.begin(Operation::Sync) {
            Ok(()) => {
                self.record(done);
                return Ok(());
            }
            Err(FaultKind::SyncLies) => return Ok(()),
            Err(kind) => kind,
        };
        match kind {
            FaultKind::Eio | FaultKind::SyncFails { keep: false } => self.record(forgotten(None)),
            FaultKind::SyncTears { seed } => self.record(forgotten(Some(seed))),
            _ => {}
        }
        Err(kind.errno())
    }

    fn record(&mut self, effect: Effect) {
        self.state.apply(&effect);
        if let Some(journal) = &mut self.journal {
            journal.push(self.ops, effect);
        }
    }

    fn state_after(&mut self, at_op: u64) -> &DiskState {
        assert!(
            at_op <= self.ops,
            "operation {at_op} has not happened, {} have",
            self.ops
        );
        match &mut self.journal {
            _ if at_op == self.ops => &self.state,
            Some(journal) => journal.state_after(at_op),
            None => panic!(
                "a crash at operation {at_op} of {} needs a recording disk",
                self.ops
            ),
        }
    }

    fn inode_of(&self, operation: &'static str, name: &str) -> Result<Inode> {
        let inode = self.state.inode_of(name);
        inode.ok_or_else(|| failed(operation, name, Errno::NOENT))
    }

    /// An error where no more files may be open.
    fn room_for_handle(&self) -> Result<(), Errno> {
        match self.open_max {
            Some(most) if self.state.open_files() >= most => Err(Errno::MFILE),
            _ => Ok(()),
        }
    }

    fn free_bytes(&self) -> u64 {
        match self.capacity.bytes {
            Some(capacity) => capacity.saturating_sub(self.state.used_bytes()),
            None => UNLIMITED_BYTES,
        }
    }
}

fn path_of(name: &str) -> std::path::PathBuf {
    Path::new(SIMULATED_DIR).join(name)
}

fn failed(operation: &'static str, name: &str, errno: Errno) -> Error {
    Error::io(operation, &path_of(name), None, errno)
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod fault_tests;
