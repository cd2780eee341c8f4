//! Objects: bytes in files that are named by their hash.
//!
//! The hash is BLAKE3 with its 256 bits. Users choose what is in a store; with a hash that is not
//! made to withstand that, one of them could make two pieces of the same name, and one would stand
//! in for the other.
//!
//! An object that is there stands in for bytes that hash to its name only if a description names
//! it: of another one, which an interrupted backup left, nobody knows whether its name is durable.

use std::collections::HashSet;
use std::fmt;

use gabion_media::{Disk, Purpose, RandomFile, TEMPORARY_SUFFIX};

use super::source::PieceReader;
use super::transfer::Transfer;
use crate::{Error, Result};

pub(super) const HASH_BYTES: usize = 32;

/// How much is read at a time.
pub(super) const STEP_BYTES: u64 = 1 << 20;

const OBJECT_SUFFIX: &str = ".object";

/// The hash of an object's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectHash(pub(super) [u8; HASH_BYTES]);

impl ObjectHash {
    /// That of these bytes.
    pub(super) fn of(bytes: &[u8]) -> ObjectHash {
        ObjectHash(blake3::hash(bytes).into())
    }
}

impl fmt::Display for ObjectHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Name of an object.
pub(super) fn object_name(hash: &ObjectHash) -> String {
    format!("{hash}{OBJECT_SUFFIX}")
}

/// Whether a file of that name is an object.
pub(super) fn is_object(name: &str) -> bool {
    let digits = name.strip_suffix(OBJECT_SUFFIX);
    digits.is_some_and(|digits| digits.len() == 2 * HASH_BYTES)
}

/// What is wrong with an object; the caller says whose it is.
pub(super) enum ObjectFault {
    Missing,
    Length {
        found: u64,
    },
    Bytes,
    /// The medium failed, or the transfer was ended.
    Other(Error),
}

impl<E: Into<Error>> From<E> for ObjectFault {
    fn from(error: E) -> ObjectFault {
        ObjectFault::Other(error.into())
    }
}

impl ObjectFault {
    /// As a sentence; an error of the medium stays one.
    pub(super) fn told(self, len: u64) -> Result<String> {
        match self {
            ObjectFault::Missing => Ok("the object is missing from the repository".to_owned()),
            ObjectFault::Length { found } => {
                Ok(format!("the object has {found} bytes instead of {len}"))
            }
            ObjectFault::Bytes => Ok("the checksum of the object does not match".to_owned()),
            ObjectFault::Other(error) => Err(error),
        }
    }
}

/// The objects of a repository that is being added to.
pub(super) struct ObjectStore<'d> {
    disk: &'d Disk,
    /// Those that may stand in for what hashes to their names.
    trusted: HashSet<ObjectHash>,
    /// Those that were added, and that nobody else can need.
    added: Vec<ObjectHash>,
}

impl<'d> ObjectStore<'d> {
    /// The objects of a repository, of which a description names these.
    pub(super) fn new(disk: &'d Disk, named: HashSet<ObjectHash>) -> ObjectStore<'d> {
        ObjectStore {
            disk,
            trusted: named,
            added: Vec::new(),
        }
    }

    /// Whether an object may stand in for bytes of that hash and length.
    pub(super) fn holds(&self, hash: &ObjectHash, len: u64) -> Result<bool> {
        if !self.trusted.contains(hash) {
            return Ok(false);
        }
        match self.disk.len_of(&object_name(hash)) {
            Ok(found) => Ok(found == len),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes an object of `len` bytes of a file from `offset` on; says whether it is new. Its bytes
    /// are durable then, its name after the next sync of the directory.
    pub(super) fn put(
        &mut self,
        from: &PieceReader,
        (offset, len): (u64, u64),
        transfer: &mut Transfer<'_>,
    ) -> Result<(ObjectHash, bool)> {
        let temporary = format!("object{TEMPORARY_SUFFIX}");
        let mut to = self.disk.create_append(&temporary, Purpose::Checkpoint)?;
        let mut append = |_: u64, bytes: &[u8]| Ok(to.append(bytes)?);
        let hash = read(from, offset, len, transfer, &mut append)?;
        if self.holds(&hash, len)? {
            drop(to);
            self.disk.remove(&temporary)?;
            return Ok((hash, false));
        }
        to.sync()?;
        drop(to);
        self.adopt(&temporary, hash)?;
        Ok((hash, true))
    }

    /// As [`ObjectStore::put`], of so few bytes that they are read before anything is written.
    pub(super) fn put_small(
        &mut self,
        from: &PieceReader,
        (offset, len): (u64, u64),
        transfer: &mut Transfer<'_>,
    ) -> Result<(ObjectHash, bool)> {
        let mut bytes = Vec::new();
        let mut take = |_: u64, part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        let hash = read(from, offset, len, transfer, &mut take)?;
        if self.holds(&hash, len)? {
            return Ok((hash, false));
        }
        let temporary = format!("object{TEMPORARY_SUFFIX}");
        let mut to = self.disk.create_append(&temporary, Purpose::Checkpoint)?;
        to.append(&bytes)?;
        to.sync()?;
        drop(to);
        self.adopt(&temporary, hash)?;
        Ok((hash, true))
    }

    /// Makes an object of a whole file of the repository, whose bytes are durable, and which loses
    /// its name.
    pub(super) fn put_staged(
        &mut self,
        name: &str,
        transfer: &mut Transfer<'_>,
    ) -> Result<(ObjectHash, u64, bool)> {
        let file = self.disk.open_read(name)?;
        let len = file.len();
        let from: PieceReader = Box::new(move |buffer, at| Ok(file.read_exact_at(buffer, at)?));
        let hash = read(&from, 0, len, transfer, &mut |_, _| Ok(()))?;
        if self.holds(&hash, len)? {
            self.disk.remove(name)?;
            return Ok((hash, len, false));
        }
        self.adopt(name, hash)?;
        Ok((hash, len, true))
    }

    /// Gives a file of the repository the name of an object.
    fn adopt(&mut self, name: &str, hash: ObjectHash) -> Result<()> {
        // DURABLE: the file's bytes are, so a crash leaves this name with all of them or without.
        let object = object_name(&hash);
        let is_new = !self.disk.exists(&object)?;
        self.disk.rename(name, &object)?;
        self.trusted.insert(hash);
        self.added.extend(is_new.then_some(hash));
        Ok(())
    }

    /// Removes what was added, as far as that is possible: it has come to nothing.
    pub(super) fn give_up(self) {
        for hash in &self.added {
            if let Err(error) = self.disk.remove(&object_name(hash)) {
                tracing::warn!(%error, "an object that no backup needs could not be removed; the \
                                        next backup tries again");
            }
        }
    }
}

/// Copies an object to a place of a file.
pub(super) fn copy_to(
    disk: &Disk,
    (hash, len): (&ObjectHash, u64),
    (to, offset): (&mut RandomFile, u64),
    transfer: &mut Transfer<'_>,
) -> Result<(), ObjectFault> {
    check_with(disk, hash, len, transfer, &mut |at, bytes| {
        Ok(to.write_at(offset + at, bytes, Purpose::Checkpoint)?)
    })
}

/// Reads an object and compares it with its name.
pub(super) fn check(
    disk: &Disk,
    (hash, len): (&ObjectHash, u64),
    transfer: &mut Transfer<'_>,
) -> Result<(), ObjectFault> {
    check_with(disk, hash, len, transfer, &mut |_, _| Ok(()))
}

/// Takes bytes at an offset of what is read.
type Taker<'t> = dyn FnMut(u64, &[u8]) -> Result<()> + 't;

fn check_with(
    disk: &Disk,
    hash: &ObjectHash,
    len: u64,
    transfer: &mut Transfer<'_>,
    take: &mut Taker<'_>,
) -> Result<(), ObjectFault> {
    let file = match disk.open_read(&object_name(hash)) {
        Err(error) if error.is_not_found() => return Err(ObjectFault::Missing),
        opened => opened?,
    };
    if file.len() != len {
        return Err(ObjectFault::Length { found: file.len() });
    }
    let from: PieceReader = Box::new(move |buffer, at| Ok(file.read_exact_at(buffer, at)?));
    match read(&from, 0, len, transfer, take)? == *hash {
        true => Ok(()),
        false => Err(ObjectFault::Bytes),
    }
}

/// Reads a part of a file, hands it on step by step, and returns its hash.
fn read(
    from: &PieceReader,
    offset: u64,
    len: u64,
    transfer: &mut Transfer<'_>,
    take: &mut Taker<'_>,
) -> Result<ObjectHash> {
    let size = |left: u64| usize::try_from(left.min(STEP_BYTES)).unwrap_or(0);
    let mut buffer = vec![0; size(len)];
    let mut hasher = blake3::Hasher::new();
    let mut at = 0;
    while at < len {
        let part = &mut buffer[..size(len - at)];
        from(part, offset + at)?;
        hasher.update(part);
        take(at, part)?;
        at += part.len() as u64;
        transfer.moved(part.len() as u64)?;
    }
    Ok(ObjectHash(hasher.finalize().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_known_by_their_names() {
        let hash = ObjectHash(std::array::from_fn(|at| u8::try_from(at).unwrap()));
        let name = object_name(&hash);
        assert!(name.starts_with("000102030405"), "{name}");
        assert!(is_object(&name));
        for other in ["BACKUPS", "0001.object", "0000000000000001.backup", "LOCK"] {
            assert!(!is_object(other), "{other}");
        }
    }
}
