//! Log files: preallocated, appended to at the cost of a memory copy, synced from any thread.
//!
//! # Idea
//! A log file gets its space when it is created and reads as zeros behind what was appended, so a
//! reader finds the end of the log as zeros. On the system the file is mapped (`mapping`): an
//! append is a copy and survives the end of the process without a system call. Where the file
//! system cannot reserve space, a full disk would end the process at a store into the mapping; such
//! files are written by system calls instead.
//!
//! A file that is not needed any more can be used again under another name
//! ([`Disk::recycle_log`](super::Disk::recycle_log)). Its space is not only reserved but written,
//! and its pages are in memory, so that appends and syncs cost less than in a new one. Behind what
//! was appended it reads as what it held before.
//!
//! # Pages of the system
//! The first store into a page after a sync is a fault, and a sync visits each page that was
//! written. Both are several times cheaper per byte where the system's page cache keeps the file
//! in larger units; so the file is brought there by reads that are long enough for that (`warm`).
//! But a store into a mapping makes the whole unit dirty, and the next sync writes all of it; so
//! the first [`CALLED_BYTES_MAX`] bytes after a sync are written by calls, which make single pages
//! dirty. Who syncs each record never stores into the mapping.
//!
//! A sync takes the right to store from each page that the process has mapped, and interrupts the
//! other processors for each of them. So pages that are full are unmapped, many with one call: the
//! sync then finds them dirty and mapped nowhere.
//!
//! # Several writers
//! Threads that share a file reserve the space of their records, one compare-and-swap each, and
//! fill it at the same time ([`LogFile::reserve`]). The number of reservations is counted in the
//! same word, so that the order of the numbers is that of the places. It is for the user to count
//! nothing as appended before everything in front of it is filled.
//!
//! # Invariants
//! - I1. `position <= capacity`, and the file keeps its capacity until [`LogFile::finish`].
//! - I2. A failed sync, through whichever handle, stops all later appends and syncs of the file.
//! - I3. A process that was forked since the file was opened changes nothing of it.
//!
//! # Durability
//! [`LogSync::sync`] makes durable all appends that happened before its call. An append that runs
//! at the same time may be in part on the medium, so records need checksums.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::mapping::Mapping;
use super::sim::SimFile;
use super::system;
use crate::counts::Counters;
use crate::owner::Owner;
use crate::{Error, Purpose, Result};

/// The largest capacity: positions have 32 bits.
const CAPACITY_MAX: u64 = u32::MAX as u64;

/// Bits of the position in the word that counts reservations.
const POSITION_BITS: u32 = 32;

/// Bytes after a sync that are written by calls although the file is mapped. At 140 bytes a record
/// these are some hundred microseconds of calls for each sync; and a sync of a mapped unit of 64
/// KiB, which the next one writes again, writes at most five times what was appended.
const CALLED_BYTES_MAX: u64 = 16 << 10;

/// Bytes whose pages are unmapped together when they are full. More would leave the sync more of
/// the last ones; for less, a call would cost more than what it does.
const FORGOTTEN_BYTES: usize = 256 << 10;

/// Length of the reads that bring a new file into memory, and of the stretches in which they come.
/// The system makes units of up to four pages in the first mebibyte of a stretch and of sixteen
/// pages in the rest; stretches come last first, so that none continues the one before it.
const WARM_READ_BYTES: usize = 64 << 10;
const WARM_STRETCH_BYTES: u64 = 4 << 20;

/// Distance of the bytes that are read to see that a file which was used before is in memory.
const WARM_STEP_BYTES: u64 = 16 << 10;

/// A preallocated file that grows by appends from one owner.
#[derive(Debug)]
pub struct LogFile {
    writer: Writer,
    capacity: u64,
    shared: Arc<Shared>,
}

/// A part of a [`LogFile`] that is reserved for one record. Until it is filled it reads as before.
#[derive(Debug)]
#[must_use = "a part that is not filled is a hole in the log"]
pub struct LogSpace<'f> {
    file: &'f LogFile,
    offset: u64,
    bytes: usize,
    number: u64,
}

#[derive(Debug)]
enum Writer {
    /// A mapping of the whole file, and write calls behind a sync.
    Mapped(Mapping),
    /// Write calls only.
    Called,
    /// The simulated disk, which behaves like a mapping.
    Simulated,
}

/// Makes the appends of a [`LogFile`] durable, from any thread, at the same time as appends and
/// even after the file is finished.
#[derive(Clone, Debug)]
pub struct LogSync(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Handle,
    path: PathBuf,
    counters: Arc<Counters>,
    /// Number of reservations in the upper half, bytes reserved in the lower half.
    reserved: AtomicU64,
    /// The position at the last sync: a hint.
    synced: AtomicU64,
    /// The failed sync after which the file takes no more writes. Set under `syncing`.
    failure: OnceLock<String>,
    /// One sync at a time: the system tells a failure to one caller only, so of two syncs at the
    /// same time one would report success for data that the other knows to be lost.
    syncing: Mutex<()>,
    owner: Owner,
}

#[derive(Debug)]
enum Handle {
    System(File),
    Simulated(SimFile),
}

impl LogFile {
    /// Refuses what no log file can hold.
    pub(super) fn check_capacity(capacity: u64, path: &Path) -> Result<()> {
        let refused = match capacity {
            0 => ErrorKind::InvalidInput,
            1..=CAPACITY_MAX => return Ok(()),
            _ => ErrorKind::FileTooLarge,
        };
        let operation = "reserve the space of";
        Err(Error::io(operation, path, Some(capacity), refused))
    }

    /// Reserves and maps a new, empty file of the system.
    pub(super) fn prepare_system(
        file: File,
        capacity: u64,
        path: PathBuf,
        counters: &Arc<Counters>,
    ) -> Result<LogFile> {
        let writer = if system::reserve(&file, capacity, &path)? {
            let mapped = usize::try_from(capacity)
                .map_err(|_| ErrorKind::FileTooLarge.into())
                .and_then(|len| Mapping::new(&file, len));
            warm_new(&file, capacity);
            Writer::Mapped(mapped.map_err(|source| Error::io("map", &path, None, source))?)
        } else {
            system::set_len(&file, capacity)
                .map_err(|source| Error::io("set the length of", &path, Some(capacity), source))?;
            Writer::Called
        };
        Ok(LogFile::new(
            writer,
            Handle::System(file),
            capacity,
            path,
            counters,
        ))
    }

    pub(super) fn simulated(
        file: SimFile,
        capacity: u64,
        path: PathBuf,
        counters: &Arc<Counters>,
    ) -> LogFile {
        LogFile::new(
            Writer::Simulated,
            Handle::Simulated(file),
            capacity,
            path,
            counters,
        )
    }

    fn new(
        writer: Writer,
        file: Handle,
        capacity: u64,
        path: PathBuf,
        counters: &Arc<Counters>,
    ) -> LogFile {
        LogFile {
            writer,
            capacity,
            shared: Arc::new(Shared::new(file, path, Arc::clone(counters))),
        }
    }

    /// The same file as if it were new, but for what it holds: `None` when somebody may still sync
    /// what was appended to it, or when a sync has failed.
    pub(super) fn reuse(mut self, path: PathBuf) -> Option<LogFile> {
        self.rest();
        let shared = Arc::into_inner(self.shared)?;
        if shared.check().is_err() {
            return None;
        }
        if let (Writer::Mapped(_), Handle::System(file)) = (&self.writer, &shared.file) {
            warm_used(file, self.capacity);
        }
        Some(LogFile {
            writer: self.writer,
            capacity: self.capacity,
            shared: Arc::new(Shared::new(shared.file, path, shared.counters)),
        })
    }

    /// Lets go of the memory that appends have touched, of which the system keeps the content. For
    /// a file that takes no appends for a while; takes milliseconds for a large one.
    pub fn rest(&mut self) {
        if let Writer::Mapped(mapping) = &mut self.writer {
            mapping.rest();
        }
    }

    /// Appends the parts one behind the other, as one record. They survive the end of the
    /// process; the loss of power only after [`LogSync::sync`].
    ///
    /// A record longer than [`LogFile::remaining`] is [`Error::LogFull`], and nothing of it is
    /// written. Costs a memory copy on file systems that can reserve space.
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.shared.check()?;
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let Some(space) = self.reserve(size) else {
            return Err(self.full(size));
        };
        let before = space.before();
        let filled = space.fill(parts);
        if filled.is_err() {
            // ORDER: Relaxed; the file is borrowed mutably, so nobody else reserves.
            self.shared.reserved.store(before, Ordering::Relaxed);
        }
        filled
    }

    /// Reserves space for a record of so many bytes behind all others; `None` when they do not
    /// fit.
    #[inline]
    pub fn reserve(&self, bytes: usize) -> Option<LogSpace<'_>> {
        // ORDER: Relaxed (both); the word orders nothing but itself.
        let mut word = self.shared.reserved.load(Ordering::Relaxed);
        loop {
            let (number, offset) = split(word);
            if bytes as u64 > self.capacity - offset {
                return None;
            }
            let next = word + (1 << POSITION_BITS) + bytes as u64;
            // ORDER: Relaxed (both), as above.
            let changed = self.shared.reserved.compare_exchange_weak(
                word,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match changed {
                Ok(_) => {
                    return Some(LogSpace {
                        file: self,
                        offset,
                        bytes,
                        number,
                    });
                }
                Err(other) => word = other,
            }
        }
    }

    #[cold]
    fn full(&self, size: usize) -> Error {
        Error::LogFull {
            path: self.shared.path.clone(),
            wanted: size as u64,
            remaining: self.remaining(),
        }
    }

    /// Bytes that still fit.
    pub fn remaining(&self) -> u64 {
        self.capacity - self.position()
    }

    /// Bytes appended or reserved so far, and the offset of the next append.
    pub fn position(&self) -> u64 {
        self.shared.position()
    }

    /// Number of appends and reservations so far.
    pub fn reservations(&self) -> u64 {
        // ORDER: Relaxed; the word orders nothing but itself.
        split(self.shared.reserved.load(Ordering::Relaxed)).0
    }

    /// Size of the file in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// A handle to sync the file with.
    pub fn sync_handle(&self) -> LogSync {
        LogSync(Arc::clone(&self.shared))
    }

    /// Ends the file at its position and gives the rest of its space back. This makes nothing
    /// durable; a [`LogSync`] taken before still does, the new length included.
    pub fn finish(self) -> Result<()> {
        let LogFile { writer, shared, .. } = self;
        shared.owner.check(|| shared.path.clone())?;
        let position = shared.position();
        // The mapping must not outlive the pages that it maps.
        drop(writer);
        let cut = match &shared.file {
            Handle::System(file) => system::set_len(file, position),
            Handle::Simulated(file) => file.set_len(position),
        };
        cut.map_err(|source| Error::io("set the length of", &shared.path, Some(position), source))
    }
}

/// The number of reservations and the position.
#[inline]
fn split(word: u64) -> (u64, u64) {
    (word >> POSITION_BITS, word & CAPACITY_MAX)
}

impl LogSpace<'_> {
    /// Where the space begins in the file.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many reservations of the file came before.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The word that counts reservations as it was before this one.
    fn before(&self) -> u64 {
        self.number << POSITION_BITS | self.offset
    }

    /// Writes the parts one behind the other, which fill the space. They survive the end of the
    /// process, as far as what is in front of them does; the loss of power only after
    /// [`LogSync::sync`]. A failure leaves a hole or a part of the record.
    ///
    /// # Panics
    /// When the parts do not have exactly the length of the space.
    #[inline]
    pub fn fill(self, parts: &[&[u8]]) -> Result<()> {
        let LogSpace {
            file,
            offset,
            bytes,
            ..
        } = self;
        let size: usize = parts.iter().map(|part| part.len()).sum();
        assert_eq!(size, bytes, "a record fills its space");
        match &file.writer {
            Writer::Mapped(mapping) if !file.shared.is_young(offset) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the position lies within a mapping, so it is a usize"
                )]
                let mut at = offset as usize;
                for part in parts {
                    // SAFETY: every byte of the file is reserved once, for a space that is used up
                    // here; so only this thread writes these.
                    unsafe { mapping.write(at, part) };
                    at += part.len();
                }
                let full = at - at % FORGOTTEN_BYTES;
                if full > at - bytes {
                    let begun = (at - bytes) / FORGOTTEN_BYTES * FORGOTTEN_BYTES;
                    mapping.forget(begun..full);
                }
            }
            Writer::Mapped(_) | Writer::Called => match parts {
                [part] => file.shared.write(&[part], offset)?,
                parts => file.shared.write(&[&parts.concat()], offset)?,
            },
            Writer::Simulated => file.shared.write(parts, offset)?,
        }
        file.shared.counters.add_bytes(Purpose::Log, size);
        Ok(())
    }
}

impl LogSync {
    /// Makes all appends that happened before the call durable. May run at the same time as
    /// appends; of several syncs one runs at a time. If this fails, the file takes no more appends
    /// or syncs.
    pub fn sync(&self) -> Result<()> {
        // In a forked child nobody may be left who gives the lock back.
        self.0.owner.check(|| self.0.path.clone())?;
        let _one_at_a_time = self.0.syncing.lock();
        self.0.check()?;
        let position = self.0.position();
        let synced = match &self.0.file {
            Handle::System(file) => system::sync_data(file),
            Handle::Simulated(file) => file.sync(),
        };
        if let Err(source) = synced {
            let error = Error::io("sync", &self.0.path, None, source);
            let first = self.0.failure.set(error.to_string());
            debug_assert!(first.is_ok(), "no sync runs after a failure");
            return Err(error);
        }
        // ORDER: Relaxed, a hint.
        self.0.synced.store(position, Ordering::Relaxed);
        self.0.counters.add_file_sync();
        Ok(())
    }
}

/// Brings a new file into the system's memory, in units that suit appends. Only a matter of speed,
/// so a failure is passed over.
fn warm_new(file: &File, capacity: u64) {
    let mut buffer = vec![0; WARM_READ_BYTES];
    let stretches = capacity.div_ceil(WARM_STRETCH_BYTES);
    for stretch in (0..stretches).rev() {
        let mut at = stretch * WARM_STRETCH_BYTES;
        let end = capacity.min(at + WARM_STRETCH_BYTES);
        while at < end {
            match file.read_at(&mut buffer, at) {
                Ok(read) if read > 0 => at += read as u64,
                _ => return,
            }
        }
    }
}

/// Brings back into memory what the system let go of. Only a matter of speed.
fn warm_used(file: &File, capacity: u64) {
    let mut at = 0;
    while at < capacity && file.read_at(&mut [0], at).is_ok() {
        at += WARM_STEP_BYTES;
    }
}

impl Shared {
    fn new(file: Handle, path: PathBuf, counters: Arc<Counters>) -> Shared {
        Shared {
            file,
            path,
            counters,
            reserved: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            failure: OnceLock::new(),
            syncing: Mutex::new(()),
            owner: Owner::current(),
        }
    }

    #[inline]
    fn position(&self) -> u64 {
        // ORDER: Relaxed; the word orders nothing but itself.
        split(self.reserved.load(Ordering::Relaxed)).1
    }

    /// Whether an append at `position` is one of the first after a sync.
    #[inline]
    fn is_young(&self, position: u64) -> bool {
        // ORDER: Relaxed, a hint.
        position < self.synced.load(Ordering::Relaxed) + CALLED_BYTES_MAX
    }

    #[inline]
    fn check(&self) -> Result<()> {
        self.owner.check(|| self.path.clone())?;
        match self.failure.get() {
            None => Ok(()),
            Some(cause) => Err(self.poisoned(cause)),
        }
    }

    #[cold]
    fn poisoned(&self, cause: &str) -> Error {
        Error::Poisoned {
            path: self.path.clone(),
            cause: cause.to_owned(),
        }
    }

    fn write(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        match &self.file {
            Handle::System(file) => {
                let mut at = offset;
                for part in parts {
                    file.write_all_at(part, at)
                        .map_err(|source| Error::io("append to", &self.path, Some(at), source))?;
                    at += part.len() as u64;
                }
            }
            Handle::Simulated(file) => file.append_log(offset, parts),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_file_written_by_calls_does_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.log");
        let file = File::create_new(&path).unwrap();
        system::set_len(&file, 100).unwrap();
        let writer = Writer::Called;
        let counters = Arc::default();
        let mut log = LogFile::new(writer, Handle::System(file), 100, path.clone(), &counters);
        log.append(&[b"ab", b"cde"]).unwrap();
        log.append(&[b"f"]).unwrap();
        let full = log.append(&[&[1; 95]]).unwrap_err();
        assert!(
            matches!(
                full,
                Error::LogFull {
                    wanted: 95,
                    remaining: 94,
                    ..
                }
            ),
            "{full}"
        );
        log.sync_handle().sync().unwrap();
        let mut expected = b"abcdef".to_vec();
        expected.resize(100, 0);
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        log.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abcdef");
        assert_eq!(counters.read().bytes_of(Purpose::Log), 6);
    }

    #[test]
    fn a_failed_sync_stops_the_file_and_all_its_handles() {
        let path = PathBuf::from("/dev/full");
        let device = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let writer = Writer::Called;
        let mut log = LogFile::new(writer, Handle::System(device), 100, path, &Arc::default());
        let (first, second) = (log.sync_handle(), log.sync_handle());
        assert!(log.append(&[b"abc"]).unwrap_err().is_no_space());
        assert_eq!(log.position(), 0);
        assert!(matches!(
            first.sync(),
            Err(Error::Io {
                operation: "sync",
                ..
            })
        ));
        for result in [first.sync(), second.sync(), log.append(&[b"abc"])] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        }
    }
}
