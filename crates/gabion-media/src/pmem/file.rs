//! The file of a pool: creation, locking, reservation of space, and its properties.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};

use super::layout::{FIXED_BYTES, PoolGeometry, STATE_OFFSET, StateLine};
use crate::disk::{set_file_len, sync_file_data};
use crate::lock_holder::LockHolder;
use crate::owner::Owner;
use crate::{Error, PoolFault, Result};

/// Permissions of new files before the process's mask: nobody else needs to read a pool.
const FILE_MODE: u32 = 0o640;

/// How often a lock is tried for, and how long between: a tenth of a second in all.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// An open and locked file of a pool.
#[derive(Debug)]
pub(super) struct PoolFile {
    file: File,
    path: PathBuf,
    owner: Owner,
}

impl Drop for PoolFile {
    /// Gives the lock up, whoever has a copy of the file: a forked child may live long. Such a
    /// child gives nothing up.
    fn drop(&mut self) {
        if self.owner.is_this_process() {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl PoolFile {
    /// Creates an empty file, locks it, and makes its name durable.
    pub(super) fn create(path: &Path) -> Result<PoolFile> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE);
        let file = match options.open(path) {
            Err(source) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(Error::AlreadyExists { path: path.into() });
            }
            opened => opened.map_err(|source| Error::io("create", path, None, source))?,
        };
        let file = PoolFile {
            file,
            path: path.into(),
            owner: Owner::current(),
        };
        // Who cannot lock it leaves it to the one who has.
        file.lock()?;
        file.sync_name().inspect_err(|_| {
            // The first error is the one to tell.
            let _ = std::fs::remove_file(path);
        })?;
        Ok(file)
    }

    /// Opens and locks an existing file.
    pub(super) fn open(path: &Path) -> Result<PoolFile> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|source| Error::io("open", path, None, source))?;
        let file = PoolFile {
            file,
            path: path.into(),
            owner: Owner::current(),
        };
        file.lock()?;
        Ok(file)
    }

    /// Opens an existing file for reading, and shares its lock with others that do so.
    pub(super) fn open_shared(path: &Path) -> Result<PoolFile> {
        let file = File::open(path).map_err(|source| Error::io("open", path, None, source))?;
        let file = PoolFile {
            file,
            path: path.into(),
            owner: Owner::current(),
        };
        file.lock_as(FlockOperation::NonBlockingLockShared)?;
        Ok(file)
    }

    /// Takes the lock of the file. A child that the last holder forked has it until it executes
    /// its program, so the lock of a pool that was just closed may be free only a moment later.
    fn lock(&self) -> Result<()> {
        self.lock_as(FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_as(&self, kind: FlockOperation) -> Result<()> {
        let mut tries = LOCK_TRIES;
        loop {
            match flock(&self.file, kind) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::WOULDBLOCK) if tries > 1 => tries -= 1,
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(Error::Locked {
                        path: self.path.clone(),
                        holder: LockHolder::find(&self.file, self.named_holder()),
                    });
                }
                Err(source) => return Err(Error::io("lock", &self.path, None, source)),
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }

    /// The process that the header names, a hint.
    fn named_holder(&self) -> Option<u32> {
        let mut word = [0; 8];
        let offset = STATE_OFFSET + std::mem::offset_of!(StateLine, holder) as u64;
        self.file.read_exact_at(&mut word, offset).ok()?;
        u32::try_from(u64::from_le_bytes(word))
            .ok()
            .filter(|pid| *pid != 0)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        let metadata =
            metadata.map_err(|source| Error::io("read the length of", &self.path, None, source))?;
        Ok(metadata.len())
    }

    pub(super) fn set_len(&self, len: u64) -> Result<()> {
        set_file_len(&self.file, len)
            .map_err(|source| Error::io("set the length of", &self.path, Some(len), source))
    }

    /// The fixed part of the header.
    pub(super) fn read_header(&self) -> Result<[u8; FIXED_BYTES]> {
        let mut bytes = [0; FIXED_BYTES];
        let len = self.len()?;
        if len < bytes.len() as u64 {
            let size = super::layout::HEADER_BYTES;
            let fault = PoolFault::Truncated { len, size };
            return Err(Error::Pool {
                path: self.path.clone(),
                fault,
            });
        }
        self.file
            .read_exact_at(&mut bytes, 0)
            .map_err(|source| Error::io("read", &self.path, Some(0), source))?;
        Ok(bytes)
    }

    /// The fixed part of the header and the line behind it; zeros where the file is shorter.
    pub(super) fn read_front(&self) -> Result<[u8; FIXED_BYTES + 64]> {
        let mut bytes = [0; FIXED_BYTES + 64];
        if self.len()? >= bytes.len() as u64 {
            let read = self.file.read_exact_at(&mut bytes, 0);
            read.map_err(|source| Error::io("read", &self.path, Some(0), source))?;
        }
        Ok(bytes)
    }

    /// Writes a page, not durably.
    pub(super) fn write_page(&self, page: u64, bytes: &[u8]) -> Result<()> {
        let at = page * bytes.len() as u64;
        let written = self.file.write_all_at(bytes, at);
        written.map_err(|source| Error::io("write to", &self.path, Some(at), source))
    }

    /// Reserves the space of what lies before the states of the chunks.
    pub(super) fn reserve_front(&self, geometry: &PoolGeometry) -> Result<()> {
        reserve_file_range(&self.file, 0, geometry.states_at, &self.path)
    }

    /// Reserves the space of the chunks from one number to another, and of their states.
    pub(super) fn reserve_chunks(&self, geometry: &PoolGeometry, from: u64, to: u64) -> Result<()> {
        let ranges = [
            (geometry.states_of(from), geometry.states_of(to)),
            (geometry.chunk_at(from), geometry.chunk_at(to)),
        ];
        for (start, end) in ranges {
            reserve_file_range(&self.file, start, end - start, &self.path)?;
        }
        Ok(())
    }

    /// Writes everything to the medium, the mapped pages included.
    pub(super) fn sync(&self) -> Result<()> {
        sync_file_data(&self.file).map_err(|source| Error::io("sync", &self.path, None, source))
    }

    /// Makes the file's name durable.
    fn sync_name(&self) -> Result<()> {
        let parent = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let synced = File::open(parent).and_then(|dir| dir.sync_all());
        synced.map_err(|source| Error::io("sync the directory", parent, None, source))
    }
}

/// The id of this boot of the system; zeros, which equal no boot's, where it is not known.
pub(super) fn boot_id() -> [u64; 2] {
    static BOOT_ID: OnceLock<[u64; 2]> = OnceLock::new();
    *BOOT_ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        halves_of_hex(&text)
    })
}

/// A fresh UUID of the system; zeros where it gives none.
pub(super) fn new_uuid() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let [high, low] = halves_of_hex(&text);
    let mut uuid = [0; 16];
    // The first digits of the text are the first bytes.
    uuid[..8].copy_from_slice(&high.swap_bytes().to_le_bytes());
    uuid[8..].copy_from_slice(&low.swap_bytes().to_le_bytes());
    uuid
}

fn halves_of_hex(text: &str) -> [u64; 2] {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |range: std::ops::Range<usize>| {
        digits
            .get(range)
            .and_then(|half| u64::from_str_radix(half, 16).ok())
            .unwrap_or(0)
    };
    [half(0..16), half(16..32)]
}

/// Whether the processor's caches are durable too, so that no flush is needed: each region of
/// persistent memory below `devices` must say so.
pub(super) fn has_durable_caches(devices: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(devices) else {
        return false;
    };
    let mut regions = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("region"))
        .peekable();
    let says_so = |entry: std::fs::DirEntry| {
        std::fs::read_to_string(entry.path().join("persistence_domain"))
            .is_ok_and(|domain| domain.trim() == "cpu_cache")
    };
    regions.peek().is_some() && regions.all(says_so)
}

/// Reserves the space of a range within a file's length, so that touching it in a mapping cannot
/// fail for want of space. Where the file system cannot reserve, zeros are written over the holes.
fn reserve_file_range(file: &File, start: u64, len: u64, path: &Path) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), start, len)) {
        Ok(()) => return Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(source) => return Err(Error::io("reserve the space of", path, Some(start), source)),
    }
    let failed = |at, source| Error::io("reserve the space of", path, Some(at), source);
    let mut at = start;
    while at < start + len {
        let size = (start + len - at).min(4096);
        let mut page = [0; 4096];
        let page = &mut page[..size as usize];
        // Writing back what is there fills a hole with zeros and changes nothing else.
        file.read_exact_at(page, at)
            .map_err(|source| failed(at, source))?;
        file.write_all_at(page, at)
            .map_err(|source| failed(at, source))?;
        at += size;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_boot_has_an_id_and_each_uuid_is_another() {
        assert_eq!(boot_id(), boot_id());
        assert_ne!(boot_id(), [0, 0]);
        assert_ne!(new_uuid(), new_uuid());
        assert_eq!(
            halves_of_hex("00000000-0000-0001-0000-00000000000f\n"),
            [1, 15]
        );
        assert_eq!(halves_of_hex("no"), [0, 0]);
    }

    #[test]
    fn caches_are_durable_only_if_every_region_says_so() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_durable_caches(&dir.path().join("none")));
        assert!(!has_durable_caches(dir.path()));
        let region = |name: &str, domain: &str| {
            let region = dir.path().join(name);
            std::fs::create_dir_all(&region).unwrap();
            let mut file = File::create(region.join("persistence_domain")).unwrap();
            file.write_all(domain.as_bytes()).unwrap();
        };
        region("region0", "cpu_cache\n");
        assert!(has_durable_caches(dir.path()));
        region("region1", "memory_controller\n");
        assert!(!has_durable_caches(dir.path()));
    }
}
