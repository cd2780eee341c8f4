//! Pools: persistent memory with a header, a root and an allocator.
//!
//! # Invariants
//! - I1. The magic is written last when a pool is created: a file with it is a whole pool.
//! - I2. The state says `OPEN`, durably, before anything else changes, and `CLOSED` only after
//!   everything else is durable.
//! - I3. The file is locked as long as the pool is open.
//!
//! # Recovery
//! Opening a pool that was not closed resolves the allocator's intents; opening one that was closed
//! finds none. A pool of class Process is refused if the system went down while it was open.

use std::marker::PhantomData;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::alloc::chunk::State;
use super::alloc::{Allocator, Grow, Refusal, Ticket};
use super::cpu::FlushInstruction;
use super::epoch::Guard;
use super::file::{self, PoolFile};
use super::layout::{
    FIXED_BYTES, Geometry, Header, HeaderState, ROOT_OFFSET, STATE_CLOSED, STATE_OFFSET,
    STATE_OPEN, StateLine, VERSION, check_header, seal, unseal,
};
use super::medium::{FlushMode, Medium};
use super::off::POff;
use super::options::{Class, PoolOptions, Reachable};
use super::region::Region;
use super::{PAtomicU64, atomic::Media};
use crate::{Error, PoolFault, Result};

/// The hint of a block that will be the root: see [`Pool::set_root`].
pub const ROOT_HINT: u64 = ROOT_OFFSET;

/// Where the system lists devices of persistent memory.
const DEVICES: &str = "/sys/bus/nd/devices";

/// An open pool. Clones are the same pool; it is closed by [`Pool::close`], and left as after a
/// crash of the process if that is not called.
///
/// A pool dereferences to its [`Medium`].
#[derive(Clone)]
pub struct Pool {
    medium: Medium,
    shared: Arc<Shared>,
}

struct Shared {
    allocator: Allocator,
    class: Class,
    file: Option<Arc<PoolFile>>,
    path: PathBuf,
    uuid: [u8; 16],
    was_closed: bool,
}

impl Deref for Pool {
    type Target = Medium;

    #[inline]
    fn deref(&self) -> &Medium {
        &self.medium
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("path", &self.shared.path)
            .field("class", &self.shared.class)
            .field("size", &self.medium.len())
            .finish_non_exhaustive()
    }
}

/// Where a pool's memory comes from while it is opened.
struct Source {
    region: Arc<Region>,
    class: Class,
    file: Option<Arc<PoolFile>>,
    path: PathBuf,
}

impl Source {
    fn of_file(file: PoolFile, size: u64) -> Result<Source> {
        let path = file.path().to_path_buf();
        let failed = |source| Error::io("map", &path, None, source);
        let len =
            usize::try_from(size).map_err(|_| failed(std::io::ErrorKind::FileTooLarge.into()))?;
        // Only a mapping of the medium itself takes the flag; elsewhere the system refuses it.
        let direct = match FlushInstruction::detect() {
            Some(_) => Region::of_file(file.file(), len, true).ok(),
            None => None,
        };
        let (region, class) = match direct {
            Some(region) => (region, Class::Power),
            None => (
                Region::of_file(file.file(), len, false).map_err(failed)?,
                Class::Process,
            ),
        };
        Ok(Source {
            region: Arc::new(region),
            class,
            file: Some(Arc::new(file)),
            path,
        })
    }

    fn of_region(region: &Arc<Region>) -> Source {
        let path = PathBuf::from("<region>");
        Source {
            region: Arc::clone(region),
            class: Class::Power,
            file: None,
            path,
        }
    }

    fn medium(&self, options: &PoolOptions) -> Medium {
        let instruction = FlushInstruction::detect();
        let is_real_power = self.class == Class::Power && self.file.is_some();
        let must_flush = is_real_power && !file::has_durable_caches(Path::new(DEVICES));
        let mode = match instruction {
            Some(instruction) if must_flush || options.always_flush => FlushMode::Line(instruction),
            _ => FlushMode::Nothing,
        };
        let needs_fence = is_real_power || options.always_flush;
        let region = Arc::clone(&self.region);
        Medium::new(region, mode, needs_fence, options.watcher.clone())
    }

    fn fault(&self, fault: PoolFault) -> Error {
        Error::Pool {
            path: self.path.clone(),
            fault,
        }
    }

    fn grow(&self, geometry: Geometry) -> Grow {
        match &self.file {
            Some(file) => {
                let file = Arc::clone(file);
                Box::new(move |from, to| file.reserve_chunks(&geometry, from, to))
            }
            None => Box::new(|_, _| Ok(())),
        }
    }
}

// ORDER: Relaxed throughout: the header's words are read when the pool is opened, by one thread;
// only the root is read while it is in use, and says so.
impl Pool {
    /// Creates a pool in a new file. It is empty and open, and survives from here on what its
    /// class says.
    ///
    /// An error leaves no file behind.
    pub fn create(path: &Path, options: PoolOptions) -> Result<Pool> {
        let header = new_header(path, &options, options.uuid.unwrap_or_else(file::new_uuid))?;
        let file = PoolFile::create(path)?;
        Pool::create_file(file, header, options).inspect_err(|_| {
            // The first error is the one to tell.
            let _ = std::fs::remove_file(path);
        })
    }

    fn create_file(file: PoolFile, header: Header, options: PoolOptions) -> Result<Pool> {
        let path = file.path().to_path_buf();
        let geometry = geometry_of(&header, &path)?;
        file.set_len(header.size)?;
        file.reserve_front(&geometry)?;
        let reserved = (geometry.chunks / 64).max(16).min(geometry.chunks);
        file.reserve_chunks(&geometry, 0, reserved)?;
        let source = Source::of_file(file, header.size)?;
        Pool::initialize(source, header, geometry, reserved, options)
    }

    /// Creates a pool in memory of the process that nothing survives.
    pub fn anonymous(options: PoolOptions) -> Result<Pool> {
        let path = PathBuf::from("<memory>");
        let header = new_header(&path, &options, options.uuid.unwrap_or_default())?;
        let geometry = geometry_of(&header, &path)?;
        let len = usize::try_from(header.size).unwrap_or(usize::MAX);
        let region = Region::anonymous(len);
        let region = region.map_err(|source| Error::io("map", &path, None, source))?;
        let source = Source {
            region: Arc::new(region),
            class: Class::None,
            file: None,
            path,
        };
        Pool::initialize(source, header, geometry, geometry.chunks, options)
    }

    /// Creates a pool in a region that the caller keeps, as large as the region and of class
    /// Power: as if the region were persistent memory. The region must be zero.
    pub fn create_in(region: &Arc<Region>, mut options: PoolOptions) -> Result<Pool> {
        options.size = region.len() as u64;
        let source = Source::of_region(region);
        let header = new_header(&source.path, &options, options.uuid.unwrap_or_default())?;
        let geometry = geometry_of(&header, &source.path)?;
        Pool::initialize(source, header, geometry, geometry.chunks, options)
    }

    /// Opens the pool in a region, as [`Pool::open`] does with a file. Costs some microseconds
    /// and a look at each chunk's descriptor.
    pub fn open_in(region: &Arc<Region>, options: PoolOptions) -> Result<Pool> {
        let source = Source::of_region(region);
        let medium = source.medium(&options);
        let mut bytes = [0; FIXED_BYTES];
        medium.read(0, &mut bytes);
        let header = checked_header(&source.path, &bytes, options.layout)?;
        if header.size != medium.len() {
            let (len, size) = (medium.len(), header.size);
            return Err(source.fault(PoolFault::Truncated { len, size }));
        }
        Pool::recover(source, medium, header, &options)
    }

    /// Opens the pool in a file.
    ///
    /// Refused, each with its reason: what is no pool, one of another version, byte order or
    /// layout id, a truncated or damaged one, one that another process has open, and one of class
    /// Process during whose use the system went down ([`PoolOptions::salvage`]).
    pub fn open(path: &Path, options: PoolOptions) -> Result<Pool> {
        let file = PoolFile::open(path)?;
        let bytes = file.read_header()?;
        let header = checked_header(path, &bytes, options.layout)?;
        let (len, size) = (file.len()?, header.size);
        if len < size {
            let fault = PoolFault::Truncated { len, size };
            return Err(Error::Pool {
                path: path.into(),
                fault,
            });
        }
        let source = Source::of_file(file, size)?;
        let medium = source.medium(&options);
        Pool::recover(source, medium, header, &options)
    }

    /// Writes the header of a new pool, the magic last.
    fn initialize(
        source: Source,
        header: Header,
        geometry: Geometry,
        reserved: u64,
        options: PoolOptions,
    ) -> Result<Pool> {
        let medium = source.medium(&options);
        let bytes = header.encode();
        let (magic, rest) = bytes.split_at(8);
        medium.write(8, rest);
        let line: &StateLine = medium.at(POff::new(STATE_OFFSET));
        line.reserved_chunks
            .store(&medium, seal(reserved), Ordering::Relaxed);
        set_boot(&medium, line);
        line.state
            .store(&medium, seal(STATE_OPEN), Ordering::Relaxed);
        medium.persist_range(0, 256);
        medium.write(0, magic);
        // DURABLE: the rest of the header is; with the magic the pool exists.
        medium.persist_range(0, 8);
        if let Some(file) = &source.file {
            file.sync()?;
        }
        let has_intents = source.class != Class::None;
        let grow = source.grow(geometry);
        let allocator = Allocator::open(
            medium.clone(),
            geometry,
            reserved,
            has_intents,
            &Reachable::Word,
            grow,
        );
        let allocator = allocator.map_err(|damage| source.fault(damage.into()))?;
        Ok(Pool::assemble(source, medium, header, allocator, true))
    }

    fn recover(
        source: Source,
        medium: Medium,
        header: Header,
        options: &PoolOptions,
    ) -> Result<Pool> {
        let geometry = geometry_of(&header, &source.path)?;
        let line: &StateLine = medium.at(POff::new(STATE_OFFSET));
        let damage = |what, offset| source.fault(PoolFault::Damaged { what, offset });
        let was_closed = match unseal(line.state.load(&medium, Ordering::Relaxed)) {
            Some(STATE_CLOSED) => true,
            Some(STATE_OPEN) => false,
            _ => return Err(damage("state", STATE_OFFSET)),
        };
        let boot = line
            .boot_id
            .each_ref()
            .map(|half| half.load(&medium, Ordering::Relaxed));
        let is_same_boot = boot == file::boot_id() && boot != [0, 0];
        if source.class == Class::Process && !was_closed && !is_same_boot && !options.salvage {
            return Err(source.fault(PoolFault::Torn));
        }
        let reserved = unseal(line.reserved_chunks.load(&medium, Ordering::Relaxed))
            .filter(|reserved| *reserved <= geometry.chunks)
            .ok_or_else(|| damage("number of reserved chunks", STATE_OFFSET + 24))?;
        if let Some(file) = &source.file {
            // The space may have got lost: the file was copied without its holes, or the system
            // went down before it noted the reservation.
            file.reserve_front(&geometry)?;
            file.reserve_chunks(&geometry, 0, reserved)?;
        }
        set_boot(&medium, line);
        if was_closed {
            line.state
                .store(&medium, seal(STATE_OPEN), Ordering::Relaxed);
        }
        // DURABLE: the pool is open before anything in it changes.
        medium.persist(line);
        let grow = source.grow(geometry);
        let allocator = Allocator::open(
            medium.clone(),
            geometry,
            reserved,
            true,
            &options.reachable,
            grow,
        );
        let allocator = allocator.map_err(|damage| source.fault(damage.into()))?;
        let pool = Pool::assemble(source, medium, header, allocator, was_closed);
        pool.try_root::<PAtomicU64>()?;
        Ok(pool)
    }

    fn assemble(
        source: Source,
        medium: Medium,
        header: Header,
        allocator: Allocator,
        was_closed: bool,
    ) -> Pool {
        let shared = Arc::new(Shared {
            allocator,
            class: source.class,
            file: source.file,
            path: source.path,
            uuid: header.uuid,
            was_closed,
        });
        Pool { medium, shared }
    }

    /// What the pool survives.
    pub fn class(&self) -> Class {
        self.shared.class
    }

    /// The pool's file, or a name in angle brackets if it has none.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The pool's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.shared.uuid
    }

    /// Whether the pool was closed, or is new, when it was opened: whether nothing in it can be
    /// half done.
    pub fn was_closed(&self) -> bool {
        self.shared.was_closed
    }

    fn fault(&self, fault: PoolFault) -> Error {
        Error::Pool {
            path: self.shared.path.clone(),
            fault,
        }
    }

    fn try_root<T: Media>(&self) -> Result<POff<T>> {
        let word: &PAtomicU64 = self.medium.at(POff::new(ROOT_OFFSET));
        // ORDER: Acquire pairs with the Release of `set_root`: what the root refers to is there.
        let root = unseal(word.load(&self.medium, Ordering::Acquire));
        let root = root
            .filter(|root| *root <= self.medium.len())
            .ok_or_else(|| {
                self.fault(PoolFault::Damaged {
                    what: "root offset",
                    offset: ROOT_OFFSET,
                })
            })?;
        Ok(POff::new(root))
    }

    /// Where the structure in the pool begins; null in a new pool. Its intactness was checked
    /// when the pool was opened.
    pub fn root<T: Media>(&self) -> POff<T> {
        self.try_root().unwrap_or_default()
    }

    /// Sets the root, durably and atomically. A block that becomes the root is reserved with
    /// [`ROOT_HINT`].
    #[track_caller]
    pub fn set_root<T: Media>(&self, root: POff<T>) {
        let word: &PAtomicU64 = self.medium.at(POff::new(ROOT_OFFSET));
        // DURABLE: what the root refers to was persisted by the caller.
        // ORDER: Release pairs with the Acquire of `root`.
        word.store_persist(&self.medium, seal(root.raw()), Ordering::Release);
    }

    /// Size of the block that a request for `size` bytes gets: what may be used of it.
    pub fn rounded_size(&self, size: u64) -> u64 {
        self.shared.allocator.rounded(size, 1)
    }

    /// Reserves a block of at least `size` bytes, aligned to 16; its content is arbitrary.
    ///
    /// The hint says where the reference to the block will be, see [`Reachable`]. Between this
    /// call and [`Reserved::commit`] the same thread fences (after it has filled and flushed the
    /// block), publishes, flushes and fences. A block that is dropped is free again.
    ///
    /// Costs some tens of nanoseconds and the flush of one line.
    ///
    /// # Errors
    /// [`Error::PoolFull`], or [`Error::Io`] if the file system has no space; the pool stays
    /// usable.
    #[track_caller]
    pub fn alloc(&self, size: u64, hint: u64) -> Result<Reserved<'_>> {
        self.alloc_aligned(size, 16, hint)
    }

    /// As [`Pool::alloc`], at a multiple of `align` bytes, a power of two up to the chunk size.
    #[track_caller]
    pub fn alloc_aligned(&self, size: u64, align: u64, hint: u64) -> Result<Reserved<'_>> {
        let ticket = self.shared.allocator.reserve(size, align, hint);
        let ticket = ticket.map_err(|refusal| self.refused(refusal, size, 0))?;
        Ok(Reserved {
            pool: self,
            ticket,
            is_open: true,
            thread: PhantomData,
        })
    }

    /// Announces that a block will be unpublished. The hint says where the reference to it is.
    ///
    /// Between this call and [`Retiring::commit`] the same thread fences, takes the reference
    /// away, flushes and fences. If it is dropped instead, the block stays allocated.
    ///
    /// # Errors
    /// If no allocated block begins there.
    #[track_caller]
    pub fn retire<T: ?Sized>(&self, block: POff<T>, hint: u64) -> Result<Retiring<'_>> {
        let ticket = self.shared.allocator.prepare_retire(block.raw(), hint);
        let ticket = ticket.map_err(|refusal| self.refused(refusal, 0, block.raw()))?;
        Ok(Retiring {
            pool: self,
            ticket,
            is_open: true,
            thread: PhantomData,
        })
    }

    #[cold]
    fn refused(&self, refusal: Refusal, wanted: u64, offset: u64) -> Error {
        match refusal {
            Refusal::Failed(error) => error,
            Refusal::Busy => self.fault(PoolFault::Busy),
            Refusal::NotABlock => self.fault(PoolFault::NotABlock { offset }),
            Refusal::Full => {
                let space = self.shared.allocator.space();
                let free = space.free_bytes + space.slab_free_bytes;
                Error::PoolFull {
                    path: self.shared.path.clone(),
                    wanted,
                    free,
                }
            }
        }
    }

    /// Keeps blocks that are found from here on from being reused until the guard is dropped.
    #[inline]
    pub fn enter(&self) -> Guard<'_> {
        self.shared.allocator.epochs.enter()
    }

    /// Ends all that committed operations left for later: after this, recovery asks about none of
    /// them. Called before a structure moves references that other operations may have just
    /// published, for their hints are then wrong.
    #[track_caller]
    pub fn settle(&self) {
        self.shared.allocator.settle();
    }

    /// Makes retired blocks free whose readers are gone, now rather than in passing.
    #[track_caller]
    pub fn collect(&self) {
        self.shared.allocator.reclaim();
    }

    /// What the pool is and what is in it. Costs a look at each chunk's descriptor and states.
    pub fn stats(&self) -> PoolStats {
        let space = self.shared.allocator.space();
        PoolStats {
            class: self.shared.class,
            size_bytes: self.medium.len(),
            used_bytes: space.used_bytes,
            used_blocks: space.used_blocks,
            retired_bytes: space.retired_bytes,
            free_bytes: space.free_bytes,
            fragmented_bytes: space.slab_free_bytes,
            longest_free_bytes: space.longest_free_bytes.max(space.unreserved_bytes),
        }
    }

    /// Closes the pool: everything in it is then durable, whatever its class, if it has a file.
    /// No other clone may be in use.
    pub fn close(self) -> Result<()> {
        let allocator = &self.shared.allocator;
        allocator.reclaim();
        allocator.settle();
        if let Some(file) = &self.shared.file {
            file.sync()?;
        }
        let line: &StateLine = self.medium.at(POff::new(STATE_OFFSET));
        line.holder.store(&self.medium, 0, Ordering::Relaxed);
        // DURABLE: everything else is; the pool is closed.
        line.state
            .store_persist(&self.medium, seal(STATE_CLOSED), Ordering::Relaxed);
        match &self.shared.file {
            Some(file) => file.sync(),
            None => Ok(()),
        }
    }
}

/// A block that is reserved and not yet published. See [`Pool::alloc`].
#[derive(Debug)]
pub struct Reserved<'a> {
    pool: &'a Pool,
    ticket: Ticket,
    is_open: bool,
    /// Fences are those of one thread.
    thread: PhantomData<*const ()>,
}

impl Reserved<'_> {
    /// Where the block begins.
    #[inline]
    pub fn offset<T>(&self) -> POff<T> {
        POff::new(self.ticket.intent.block)
    }

    /// Size in bytes, at least what was asked for.
    #[inline]
    pub fn size(&self) -> u64 {
        self.ticket.size
    }

    /// Changes the hint, before the fence that precedes the publish.
    #[track_caller]
    pub fn set_hint(&mut self, hint: u64) {
        self.pool
            .shared
            .allocator
            .rewrite_hint(&mut self.ticket, hint);
    }

    /// Says that the block was published and that this is durable: it is allocated.
    #[inline]
    #[track_caller]
    pub fn commit<T>(mut self) -> POff<T> {
        self.is_open = false;
        self.pool
            .shared
            .allocator
            .commit(&self.ticket, State::Allocated);
        self.offset()
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.pool.shared.allocator.cancel(&self.ticket);
        }
    }
}

/// A block that is about to be unpublished. See [`Pool::retire`].
#[derive(Debug)]
pub struct Retiring<'a> {
    pool: &'a Pool,
    ticket: Ticket,
    is_open: bool,
    /// Fences are those of one thread.
    thread: PhantomData<*const ()>,
}

impl Retiring<'_> {
    /// Size of the block in bytes.
    pub fn size(&self) -> u64 {
        self.ticket.size
    }

    /// Says that nothing refers to the block any more and that this is durable: it is free once
    /// all guards of now are gone.
    #[track_caller]
    pub fn commit(mut self, guard: &Guard<'_>) {
        self.is_open = false;
        let allocator = &self.pool.shared.allocator;
        allocator.commit(&self.ticket, State::Retired);
        allocator
            .epochs
            .defer(guard, self.ticket.intent.block, self.ticket.intent.count);
    }

    /// As [`Retiring::commit`] for a block that no other thread can be reading: it is free now.
    #[track_caller]
    pub fn commit_now(mut self) {
        self.is_open = false;
        let allocator = &self.pool.shared.allocator;
        allocator.commit(&self.ticket, State::Retired);
        allocator.free(&[(self.ticket.intent.block, self.ticket.intent.count)]);
    }
}

impl Drop for Retiring<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.pool.shared.allocator.cancel(&self.ticket);
        }
    }
}

/// What a pool is and what is in it. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// What it survives.
    pub class: Class,
    /// Size of the pool, with what describes its space.
    pub size_bytes: u64,
    /// In allocated blocks, as large as they were rounded up.
    pub used_bytes: u64,
    /// Number of allocated blocks.
    pub used_blocks: u64,
    /// In blocks that wait for their last readers.
    pub retired_bytes: u64,
    /// In chunks that are free for blocks of any size.
    pub free_bytes: u64,
    /// Lost to fragmentation: free in chunks whose other blocks are in use, so that only blocks of
    /// the same size fit in.
    pub fragmented_bytes: u64,
    /// The largest block that can be had.
    pub longest_free_bytes: u64,
}

fn new_header(path: &Path, options: &PoolOptions, uuid: [u8; 16]) -> Result<Header> {
    let shape = || Error::Pool {
        path: path.into(),
        fault: PoolFault::Shape {
            size: options.size,
            heaps: options.heaps,
            chunk_bytes: options.chunk_bytes,
        },
    };
    let header = Header {
        layout: options.layout,
        uuid,
        size: options.size / 4096 * 4096,
        heaps: options.heaps,
        chunk_bytes: u32::try_from(options.chunk_bytes).map_err(|_| shape())?,
        is_checkpointed: false,
    };
    header.geometry().ok_or_else(shape)?;
    Ok(header)
}

fn geometry_of(header: &Header, path: &Path) -> Result<Geometry> {
    header.geometry().ok_or_else(|| Error::Pool {
        path: path.into(),
        fault: PoolFault::Damaged {
            what: "header",
            offset: 0,
        },
    })
}

fn checked_header(path: &Path, bytes: &[u8; FIXED_BYTES], layout: u64) -> Result<Header> {
    let fault = match check_header(bytes) {
        HeaderState::Valid(header) if header.layout == layout => return Ok(header),
        HeaderState::Valid(header) => PoolFault::Layout {
            found: header.layout,
            wanted: layout,
        },
        HeaderState::Incomplete => PoolFault::Incomplete,
        HeaderState::Foreign => PoolFault::Foreign,
        HeaderState::OtherVersion(found) => PoolFault::Version {
            found,
            known: VERSION,
        },
        HeaderState::OtherByteOrder => PoolFault::ByteOrder,
        HeaderState::Damaged => PoolFault::Damaged {
            what: "header",
            offset: 0,
        },
    };
    Err(Error::Pool {
        path: path.into(),
        fault,
    })
}

// ORDER: Relaxed throughout: one thread has the pool while it is opened.
fn set_boot(medium: &Medium, line: &StateLine) {
    // A watched pool must be the same in every run.
    let (boot, process) = if medium.is_watched() {
        ([0, 0], 0)
    } else {
        (file::boot_id(), u64::from(std::process::id()))
    };
    for (half, value) in line.boot_id.iter().zip(boot) {
        half.store(medium, value, Ordering::Relaxed);
    }
    line.holder.store(medium, process, Ordering::Relaxed);
}

impl From<super::alloc::recovery::Damage> for PoolFault {
    fn from(damage: super::alloc::recovery::Damage) -> PoolFault {
        PoolFault::Damaged {
            what: damage.what,
            offset: damage.offset,
        }
    }
}
