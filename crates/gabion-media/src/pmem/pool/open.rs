//! Creates and opens pools, and refuses files that cannot be opened.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::alloc::{Allocator, GrowPool};
use super::super::atomic::PAtomicU64;
use super::super::checkpoint::Checkpoint;
use super::super::cpu::FlushInstruction;
use super::super::dirty::DirtyPages;
use super::super::file::{self, PoolFile};
use super::super::layout::{
    FIXED_BYTES, HeaderState, NO_CHECKPOINT, PoolGeometry, PoolHeader, STATE_CLOSED, STATE_OFFSET,
    STATE_OPEN, StateLine, VERSION, check_header, seal, unseal,
};
use super::super::medium::{FlushMode, Medium};
use super::super::off::POff;
use super::super::options::{PoolClass, PoolOptions, Reachable};
use super::super::page_witness::{self, OpenRecord, PageWitness};
use super::super::region::Region;
use super::sync::{self, SyncState};
use super::{Pool, Shared};
use crate::owner::Owner;
use crate::{Error, PoolFault, Result};

/// Where the state line tells of the last opening and of the last checkpoint.
const BOOT_AT: usize = std::mem::offset_of!(StateLine, boot_id);
const CHECKPOINT_AT: usize = std::mem::offset_of!(StateLine, checkpoint);
const WITNESS_AT: usize = std::mem::offset_of!(StateLine, witness);

/// Where the system lists devices of persistent memory.
const DEVICES: &str = "/sys/bus/nd/devices";

/// Where a pool's memory comes from while it is opened.
pub(super) struct PoolSource {
    pub(super) region: Arc<Region>,
    pub(super) class: PoolClass,
    pub(super) file: Option<Arc<PoolFile>>,
    /// A file that is only looked at, and stays as it is.
    pub(super) looked_at: Option<Arc<PoolFile>>,
    pub(super) path: PathBuf,
}

impl PoolSource {
    /// `may_be_direct` says whether a mapping of persistent memory itself is wanted.
    fn of_file(file: PoolFile, size: u64, may_be_direct: bool) -> Result<PoolSource> {
        let path = file.path().to_path_buf();
        let failed = |source| Error::io("map", &path, None, source);
        let len =
            usize::try_from(size).map_err(|_| failed(std::io::ErrorKind::FileTooLarge.into()))?;
        // Only a mapping of the medium itself takes the flag; elsewhere the system refuses it.
        let direct = match FlushInstruction::detect() {
            Some(_) if may_be_direct => Region::of_file(file.file(), len, true).ok(),
            _ => None,
        };
        let (region, class) = match direct {
            Some(region) => (region, PoolClass::Power),
            None => (
                Region::of_file(file.file(), len, false).map_err(failed)?,
                PoolClass::Process,
            ),
        };
        Ok(PoolSource {
            region: Arc::new(region),
            class,
            file: Some(Arc::new(file)),
            looked_at: None,
            path,
        })
    }

    fn of_region(region: &Arc<Region>) -> PoolSource {
        let path = PathBuf::from("<region>");
        PoolSource {
            region: Arc::clone(region),
            class: PoolClass::Power,
            file: None,
            looked_at: None,
            path,
        }
    }

    /// The medium; `dirty` takes note of flushed pages if there are checkpoints.
    pub(super) fn medium(&self, options: &PoolOptions, dirty: Option<Arc<DirtyPages>>) -> Medium {
        let instruction = FlushInstruction::detect();
        let is_real_power = self.class == PoolClass::Power && self.file.is_some();
        let must_flush = is_real_power && !file::has_durable_caches(Path::new(DEVICES));
        let mode = match instruction {
            _ if dirty.is_some() => FlushMode::Nothing,
            Some(instruction) if must_flush || options.always_flush => FlushMode::Line(instruction),
            _ => FlushMode::Nothing,
        };
        let needs_fence = is_real_power || options.always_flush;
        let region = Arc::clone(&self.region);
        Medium::new(region, mode, needs_fence, options.watcher.clone()).noting(dirty)
    }

    pub(super) fn fault(&self, fault: PoolFault) -> Error {
        Error::Pool {
            path: self.path.clone(),
            fault,
        }
    }

    /// Whether the system has all that was stored to the open pool.
    pub(super) fn is_held(&self, medium: &Medium, size: u64, sequence: Option<u64>) -> bool {
        let file = self.file.as_ref().or(self.looked_at.as_ref());
        let Some(file) = file else {
            return false;
        };
        let line: &StateLine = medium.at(POff::new(STATE_OFFSET));
        // ORDER: Relaxed: one thread has the pool while it is opened.
        let load = |word: &PAtomicU64| word.load(medium, Ordering::Relaxed);
        let opened = OpenRecord {
            boot: line.boot_id.each_ref().map(load),
            file: load(&line.witness),
        };
        page_witness::is_held(file, opened, size, sequence)
    }

    fn grow(&self, geometry: PoolGeometry) -> GrowPool {
        match &self.file {
            Some(file) => {
                let file = Arc::clone(file);
                Box::new(move |from, to| file.reserve_chunks(&geometry, from, to))
            }
            None => Box::new(|_, _| Ok(())),
        }
    }
}

// ORDER: Relaxed throughout: the header's words are read when the pool is opened, by one thread.
impl Pool {
    /// Creates a pool in a new file. It is empty and open, and survives from here on what its
    /// class says.
    ///
    /// An error leaves no file behind.
    pub fn create(path: &Path, options: PoolOptions) -> Result<Pool> {
        let uuid = options.uuid.unwrap_or_else(file::new_uuid);
        let header = new_header(path, &options, uuid)?;
        if let Some(checkpoint) = &options.checkpoint
            && checkpoint.exists()
        {
            return Err(Error::AlreadyExists {
                path: checkpoint.clone(),
            });
        }
        let file = PoolFile::create(path)?;
        Pool::create_file(file, header, &options).inspect_err(|_| {
            // The first error is the one to tell.
            let _ = std::fs::remove_file(path);
            if let Some(checkpoint) = &options.checkpoint {
                let _ = std::fs::remove_file(checkpoint);
            }
        })
    }

    /// Removes the file of a pool, which is not open. It may be gone, and has any name that the
    /// system allows. It stays away after a loss of power once its directory is synced.
    pub fn remove(path: &Path) -> Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", path, None, error))
            }
            _ => Ok(()),
        }
    }

    fn create_file(file: PoolFile, mut header: PoolHeader, options: &PoolOptions) -> Result<Pool> {
        let path = file.path().to_path_buf();
        let geometry = geometry_of(&header, &path)?;
        file.set_len(header.size)?;
        file.reserve_front(&geometry)?;
        let reserved = (geometry.chunks / 64).max(16).min(geometry.chunks);
        file.reserve_chunks(&geometry, 0, reserved)?;
        let mut source = PoolSource::of_file(file, header.size, true)?;
        let mut syncing = None;
        if let Some((disk, name)) = sync::disk_of(options)?
            && source.class == PoolClass::Process
        {
            header.is_checkpointed = true;
            source.class = PoolClass::PowerBySync;
            let checkpoint = Checkpoint::new(disk, &name, header.uuid, header.size);
            syncing = Some(new_syncing(checkpoint, header.size));
        }
        let pool = Pool::initialize(source, header, geometry, reserved, options, syncing)?;
        if pool.shared.syncing.is_some() {
            pool.sync()?;
        }
        Ok(pool)
    }

    /// Creates a pool in memory of the process that nothing survives.
    pub fn anonymous(options: PoolOptions) -> Result<Pool> {
        let path = PathBuf::from("<memory>");
        let header = new_header(&path, &options, options.uuid.unwrap_or_default())?;
        let geometry = geometry_of(&header, &path)?;
        let len = usize::try_from(header.size).unwrap_or(usize::MAX);
        let region = Region::anonymous(len);
        let region = region.map_err(|source| Error::io("map", &path, None, source))?;
        let source = PoolSource {
            region: Arc::new(region),
            class: PoolClass::None,
            file: None,
            looked_at: None,
            path,
        };
        Pool::initialize(source, header, geometry, geometry.chunks, &options, None)
    }

    /// Creates a pool in a region that the caller keeps, as large as the region and of class
    /// Power: as if the region were persistent memory. The region must be zero.
    pub fn create_in(region: &Arc<Region>, mut options: PoolOptions) -> Result<Pool> {
        options.size = region.len() as u64;
        let source = PoolSource::of_region(region);
        let header = new_header(&source.path, &options, options.uuid.unwrap_or_default())?;
        let geometry = geometry_of(&header, &source.path)?;
        Pool::initialize(source, header, geometry, geometry.chunks, &options, None)
    }

    /// Opens the pool in a region, as [`Pool::open`] does with a file. Costs some microseconds
    /// and a look at each chunk's descriptor.
    pub fn open_in(region: &Arc<Region>, options: PoolOptions) -> Result<Pool> {
        let source = PoolSource::of_region(region);
        let medium = source.medium(&options, None);
        let mut bytes = [0; FIXED_BYTES];
        medium.read(0, &mut bytes);
        let header = checked_header(&source.path, &bytes, options.layout)?;
        if header.size != medium.len() {
            let (len, size) = (medium.len(), header.size);
            return Err(source.fault(PoolFault::Truncated { len, size }));
        }
        Pool::recover(source, medium, header, &options, None)
    }

    /// Vouches for the file of a pool that was copied, or moved to another file system, after the
    /// end of its process: it holds all that the process had stored. Such a file is not trusted
    /// else, since a copy of a pool in use, and what a drive has of it, look the same.
    ///
    /// # Errors
    /// If the pool is open, or its file cannot be written.
    pub fn adopt(path: &Path) -> Result<()> {
        let file = PoolFile::open(path)?;
        let at = STATE_OFFSET + WITNESS_AT as u64;
        let name = page_witness::name_of(file.file()).to_le_bytes();
        let written = file.file().write_all_at(&name, at);
        written.map_err(|source| Error::io("write to", path, Some(at), source))
    }

    /// Opens the pool in a file.
    ///
    /// Refused, each with its reason: what is no pool, one of another version, byte order or
    /// layout id, a truncated or damaged one, one that another process has open, and one of class
    /// Process during whose use the system or the drive went down ([`PoolOptions::salvage`]). One
    /// with a checkpoint is brought back to it then.
    ///
    /// A pool that was closed without space for a checkpoint needs space for one now: an error for
    /// want of it leaves the pool as it was closed, and [`Pool::inspect`] reads it.
    pub fn open(path: &Path, options: PoolOptions) -> Result<Pool> {
        // The pool's lock comes first: the checkpoint may be in use, and be that of another pool.
        let file = match PoolFile::open(path) {
            Err(error) if !error.is_not_found() => return Err(error),
            opened => opened,
        };
        let checkpoint = match sync::disk_of(&options)? {
            Some((disk, name)) => {
                let opened = Checkpoint::look(disk.clone(), &name)?;
                Some((disk, name, opened))
            }
            None => None,
        };
        let restorable = checkpoint
            .as_ref()
            .and_then(|(_, _, opened)| opened.as_ref());
        let file = match file {
            Err(_) if restorable.is_some() => PoolFile::create(path)?,
            opened => opened?,
        };
        let was_restored = match restorable {
            Some(checkpoint) => restore(&file, checkpoint)?,
            None => false,
        };
        let bytes = file.read_header()?;
        let header = checked_header(path, &bytes, options.layout)?;
        let refused = |fault| Error::Pool {
            path: path.into(),
            fault,
        };
        let (len, size) = (file.len()?, header.size);
        if len < size {
            return Err(refused(PoolFault::Truncated { len, size }));
        }
        let mut source = PoolSource::of_file(file, size, !header.is_checkpointed)?;
        let syncing = match (header.is_checkpointed, checkpoint) {
            (false, None) => None,
            (false, Some(_)) if source.class == PoolClass::Power => None,
            (false, Some(_)) => return Err(refused(PoolFault::CheckpointUnknown)),
            (true, None) => return Err(refused(PoolFault::CheckpointNeeded)),
            (true, Some((disk, name, opened))) => {
                source.class = PoolClass::PowerBySync;
                let opened = match opened {
                    Some(known) if known.uuid() != header.uuid => {
                        return Err(refused(PoolFault::CheckpointOfAnother));
                    }
                    Some(mut known) => {
                        known.take()?;
                        known
                    }
                    None => Checkpoint::new(disk, &name, header.uuid, size),
                };
                let (syncing, dirty) = new_syncing(opened, size);
                if was_restored {
                    syncing.continue_from_checkpoint();
                }
                Some((syncing, dirty))
            }
        };
        let dirty = syncing.as_ref().map(|(_, dirty)| Arc::clone(dirty));
        let medium = source.medium(&options, dirty);
        Pool::recover(
            source,
            medium,
            header,
            &options,
            syncing.map(|(sync, _)| (sync, was_restored)),
        )
    }

    /// Writes the header of a new pool, the magic last.
    fn initialize(
        source: PoolSource,
        header: PoolHeader,
        geometry: PoolGeometry,
        reserved: u64,
        options: &PoolOptions,
        syncing: Option<(SyncState, Arc<DirtyPages>)>,
    ) -> Result<Pool> {
        let (syncing, dirty) = syncing.unzip();
        let within = syncing.as_ref().map(SyncState::pass);
        let medium = source.medium(options, dirty);
        let bytes = header.encode();
        let (magic, rest) = bytes.split_at(8);
        medium.write(8, rest);
        let line: &StateLine = medium.at(POff::new(STATE_OFFSET));
        line.reserved_chunks
            .store(&medium, seal(reserved), Ordering::Relaxed);
        let name = begin_witness(&source, &header, syncing.as_ref())?;
        set_boot(&medium, line, name);
        line.state
            .store(&medium, seal(STATE_OPEN), Ordering::Relaxed);
        medium.persist_range(0, 256);
        medium.write(0, magic);
        // DURABLE: the rest of the header is; with the magic the pool exists.
        medium.persist_range(0, 8);
        if let Some(file) = &source.file {
            file.sync()?;
        }
        let has_intents = source.class != PoolClass::None;
        let grow = source.grow(geometry);
        let allocator = Allocator::open(
            medium.clone(),
            geometry,
            reserved,
            has_intents,
            &Reachable::Word,
            options.keeps(),
            grow,
        );
        let allocator = allocator.map_err(|damage| source.fault(damage.into()))?;
        drop(within);
        Ok(Pool::assemble(
            source, medium, header, allocator, true, syncing,
        ))
    }

    pub(super) fn recover(
        source: PoolSource,
        medium: Medium,
        header: PoolHeader,
        options: &PoolOptions,
        syncing: Option<(SyncState, bool)>,
    ) -> Result<Pool> {
        let (syncing, was_restored) = syncing.unzip();
        let was_restored = was_restored.unwrap_or(false);
        let geometry = geometry_of(&header, &source.path)?;
        let line: &StateLine = medium.at(POff::new(STATE_OFFSET));
        let damage = |what, offset| source.fault(PoolFault::Damaged { what, offset });
        let was_closed = match unseal(line.state.load(&medium, Ordering::Relaxed)) {
            Some(STATE_CLOSED) => true,
            Some(STATE_OPEN) => false,
            _ => return Err(damage("state", STATE_OFFSET)),
        };
        let is_fragile = matches!(source.class, PoolClass::Process | PoolClass::PowerBySync);
        let last = syncing.as_ref().map(SyncState::sequence);
        let may_be_torn = is_fragile && !was_closed && !was_restored;
        if may_be_torn && !options.salvage && !source.is_held(&medium, header.size, last) {
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
        let sequence = unseal(line.checkpoint.load(&medium, Ordering::Relaxed));
        match &syncing {
            Some(syncing) if was_closed && sequence == Some(syncing.sequence()) => {
                syncing.continue_from_checkpoint();
            }
            Some(syncing) if was_closed && sequence == Some(NO_CHECKPOINT) && !was_restored => {
                // DURABLE: what the pool was closed with, of which the file is the only copy,
                // before anything in that changes.
                syncing.sync(&medium, &geometry, || reserved)?;
            }
            _ => {}
        }
        let within = syncing.as_ref().map(SyncState::pass);
        if let Some(file) = &source.file
            && source.class == PoolClass::Power
            && !was_closed
        {
            // A process that was killed between a store and its flush left what everybody sees and
            // a loss of power would take back. What recovery relies on must be durable.
            file.sync()?;
        }
        let name = begin_witness(&source, &header, syncing.as_ref())?;
        set_boot(&medium, line, name);
        if was_closed {
            line.state
                .store(&medium, seal(STATE_OPEN), Ordering::Relaxed);
        }
        medium.persist(line);
        if let Some(file) = source.file.as_ref().filter(|_| is_fragile && was_closed) {
            file.sync()?;
        }
        // DURABLE: the pool is open before anything in it changes. Else a loss of power could leave
        // a pool that seems to be closed, with some of the changes.
        let grow = source.grow(geometry);
        let allocator = Allocator::open(
            medium.clone(),
            geometry,
            reserved,
            true,
            &options.reachable,
            options.keeps(),
            grow,
        );
        let allocator = allocator.map_err(|damage| source.fault(damage.into()))?;
        drop(within);
        let pool = Pool::assemble(source, medium, header, allocator, was_closed, syncing);
        pool.try_root::<PAtomicU64>()?;
        Ok(pool)
    }

    fn assemble(
        source: PoolSource,
        medium: Medium,
        header: PoolHeader,
        allocator: Allocator,
        was_closed: bool,
        syncing: Option<SyncState>,
    ) -> Pool {
        let shared = Arc::new(Shared {
            allocator,
            class: source.class,
            file: source.file,
            looked_at: source.looked_at,
            path: source.path,
            uuid: header.uuid,
            was_closed,
            syncing,
            owner: Owner::current(),
        });
        Pool { medium, shared }
    }
}

fn new_header(path: &Path, options: &PoolOptions, uuid: [u8; 16]) -> Result<PoolHeader> {
    let shape = || Error::Pool {
        path: path.into(),
        fault: PoolFault::Shape {
            size: options.size,
            heaps: options.heaps,
            chunk_bytes: options.chunk_bytes,
        },
    };
    let header = PoolHeader {
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

fn geometry_of(header: &PoolHeader, path: &Path) -> Result<PoolGeometry> {
    header.geometry().ok_or_else(|| Error::Pool {
        path: path.into(),
        fault: PoolFault::Damaged {
            what: "header",
            offset: 0,
        },
    })
}

pub(super) fn checked_header(
    path: &Path,
    bytes: &[u8; FIXED_BYTES],
    layout: u64,
) -> Result<PoolHeader> {
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

fn new_syncing(checkpoint: Checkpoint, size: u64) -> (SyncState, Arc<DirtyPages>) {
    let dirty = Arc::new(DirtyPages::new(size));
    (SyncState::new(checkpoint, Arc::clone(&dirty)), dirty)
}

/// Brings a pool's file back to its last checkpoint if it is not to be trusted as it is: the system
/// or the drive went down while the pool was open, or while the file was restored. True if it was.
fn restore(file: &PoolFile, checkpoint: &Checkpoint) -> Result<bool> {
    if !needs_checkpoint(file, checkpoint)? {
        return Ok(false);
    }
    // What cannot be read does not cost the file as it is.
    checkpoint.restore(|_, _| Ok(()))?;
    // The header comes last: until then the file is no pool, and is restored again.
    file.set_len(0)?;
    file.set_len(checkpoint.size())?;
    checkpoint.restore(|page, bytes| {
        if page == 0 {
            // DURABLE: all others, before a header that may say that the pool was closed.
            file.sync()?;
        }
        file.write_page(page, bytes)
    })?;
    Ok(true)
}

/// Whether a pool's file is not to be trusted as it is.
pub(super) fn needs_checkpoint(file: &PoolFile, checkpoint: &Checkpoint) -> Result<bool> {
    let front = file.read_front()?;
    let (header, line) = front.split_at(FIXED_BYTES);
    let header = header
        .first_chunk()
        .map_or(HeaderState::Incomplete, check_header);
    match header {
        HeaderState::Valid(header) if header.uuid != checkpoint.uuid() => return Ok(false),
        HeaderState::Valid(header) => {
            let word = |at: usize| {
                let word = line.get(at..).and_then(|rest| rest.first_chunk());
                u64::from_le_bytes(word.copied().unwrap_or_default())
            };
            // A later checkpoint was made after the pool was opened again, which was lost.
            let is_outdated = unseal(word(CHECKPOINT_AT))
                .is_some_and(|sequence| sequence < checkpoint.sequence());
            let is_closed = unseal(word(0)) == Some(STATE_CLOSED) && !is_outdated;
            let opened = OpenRecord {
                boot: [word(BOOT_AT), word(BOOT_AT + 8)],
                file: word(WITNESS_AT),
            };
            let sequence = Some(checkpoint.sequence());
            if is_closed || page_witness::is_held(file, opened, header.size, sequence) {
                return Ok(false);
            }
        }
        HeaderState::Incomplete | HeaderState::Damaged => {}
        // Something else has the name, which opening will say.
        _ => return Ok(false),
    }
    Ok(true)
}

/// Lets the pages behind a pool go with its checkpoints, and names its file for the header. Without
/// space for them no file is named, and only the boot tells how the pool was left.
fn begin_witness(
    source: &PoolSource,
    header: &PoolHeader,
    syncing: Option<&SyncState>,
) -> Result<u64> {
    let Some(file) = &source.file else {
        return Ok(page_witness::NONE);
    };
    if let Some(syncing) = syncing {
        let witness = PageWitness::begin(file, header.size, syncing.sequence())?;
        let is_there = witness.is_some();
        syncing.set_witness(witness);
        if !is_there {
            return Ok(page_witness::NONE);
        }
    }
    Ok(page_witness::name_of(file.file()))
}

// ORDER: Relaxed throughout: one thread has the pool while it is opened.
fn set_boot(medium: &Medium, line: &StateLine, name: u64) {
    // A watched pool must be the same in every run.
    let (boot, process, name) = if medium.is_watched() {
        ([0, 0], 0, page_witness::NONE)
    } else {
        (file::boot_id(), u64::from(std::process::id()), name)
    };
    for (half, value) in line.boot_id.iter().zip(boot) {
        half.store(medium, value, Ordering::Relaxed);
    }
    line.holder.store(medium, process, Ordering::Relaxed);
    line.witness.store(medium, name, Ordering::Relaxed);
}

impl From<super::super::alloc::recovery::PoolDamage> for PoolFault {
    fn from(damage: super::super::alloc::recovery::PoolDamage) -> PoolFault {
        PoolFault::Damaged {
            what: damage.what,
            offset: damage.offset,
        }
    }
}
