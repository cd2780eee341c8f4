//! Root files: the small file by which a store of an engine is known, and with which a recovery
//! begins. It is replaced as a whole, by renaming another one, so that it has one state or the
//! next. Root and descriptions of a repository of backups have the same form.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | magic of the engine |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of bytes 0 to 12 and 16 to the end |
//! | 16 | .. | what the engine says, to the end |
//!
//! Numbers are little-endian.

use gabion_media::crc32c;
use gabion_media::{Disk, Purpose, TEMPORARY_SUFFIX};

use crate::log::MalformedPayload;
use crate::log::codec::PayloadReader;
use crate::names::{INCOMPLETE, LOCK};
use crate::{Error, Result};

const CRC_OFFSET: usize = 12;
/// Where that begins which the engine says.
pub(super) const BODY_OFFSET: usize = 16;

const _: () = assert!(CRC_OFFSET + size_of::<u32>() == BODY_OFFSET);

/// The root file of an engine.
pub(crate) struct RootFile {
    pub(crate) name: &'static str,
    pub(crate) magic: [u8; 8],
    /// The version that this program writes and reads.
    pub(crate) format: u32,
}

/// Why bytes are no root file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RootFileError {
    Malformed(MalformedPayload),
    Newer(u32),
}

impl From<MalformedPayload> for RootFileError {
    fn from(malformed: MalformedPayload) -> RootFileError {
        RootFileError::Malformed(malformed)
    }
}

impl RootFile {
    /// The file's bytes; `body` appends what the engine says.
    pub(crate) fn encode(&self, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.format.to_le_bytes());
        bytes.resize(BODY_OFFSET, 0);
        body(&mut bytes);
        seal(&mut bytes);
        bytes
    }

    /// Checks the file's bytes; `body` reads what the engine says.
    pub(crate) fn decode<T>(
        &self,
        bytes: &[u8],
        body: impl FnOnce(&mut PayloadReader<'_>) -> Result<T, MalformedPayload>,
    ) -> Result<T, RootFileError> {
        let mut reader = PayloadReader::new(bytes, 0);
        if reader.take(self.magic.len())? != self.magic {
            let what = "the magic number of the root file is missing";
            return Err(reader.malformed(what).into());
        }
        let format = reader.u32()?;
        if reader.u32()? != checksum(bytes) {
            let what = "the checksum of the root file does not match";
            return Err(reader.malformed(what).into());
        }
        if format > self.format {
            return Err(RootFileError::Newer(format));
        }
        if format != self.format {
            let what = "the version of the root file is impossible";
            return Err(reader.malformed(what).into());
        }
        let said = body(&mut reader)?;
        match reader.is_empty() {
            true => Ok(said),
            false => Err(reader
                .malformed("the root file is longer than it should be")
                .into()),
        }
    }

    /// Reads the file by what decodes its bytes.
    pub(crate) fn read<T>(
        &self,
        disk: &Disk,
        decode: impl FnOnce(&[u8]) -> Result<T, RootFileError>,
    ) -> Result<T> {
        let file = || disk.path_of(self.name);
        decode(&disk.read_all(self.name)?).map_err(|error| match error {
            RootFileError::Malformed(malformed) => malformed.in_file(file(), 0),
            RootFileError::Newer(found) => Error::NewerFormat {
                file: file(),
                found,
                supported: self.format,
            },
        })
    }

    /// Replaces the file.
    ///
    /// DURABLE: when it returns, this is what a recovery begins with.
    pub(super) fn write(&self, disk: &Disk, bytes: &[u8]) -> Result<()> {
        Ok(disk.replace(self.name, bytes, Purpose::Metadata)?)
    }

    /// Whether the directory holds a store of the engine. An error for one that can hold none.
    pub(super) fn exists(&self, disk: &Disk) -> Result<bool> {
        let own = self.name;
        let names = disk.list()?;
        if names.iter().any(|name| name == own) {
            return Ok(true);
        }
        let temporary = format!("{own}{TEMPORARY_SUFFIX}");
        // A copy is marked until it is whole; who opens one that is not does not come here.
        let ours = |name: &&String| [LOCK, INCOMPLETE, &temporary].contains(&name.as_str());
        match names.iter().find(|name| !ours(name)) {
            None => Ok(false),
            Some(name) => Err(Error::NotAStore {
                path: disk.path().to_owned(),
                why: format!(
                    "the directory has no file {own}, but others, such as {name}; choose an empty \
                     or new directory"
                ),
            }),
        }
    }
}

/// Puts the checksum into the file's bytes.
fn seal(bytes: &mut [u8]) {
    let crc = checksum(bytes);
    bytes[CRC_OFFSET..BODY_OFFSET].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u32 {
    let head = crc32c::crc32c(bytes.get(..CRC_OFFSET).unwrap_or_default());
    crc32c::crc32c_append(head, bytes.get(BODY_OFFSET..).unwrap_or_default())
}

/// There is no store where one should be opened, and none is to be made.
pub(super) fn no_store(disk: &Disk) -> Error {
    Error::NotAStore {
        path: disk.path().to_owned(),
        why: "the directory is empty".to_owned(),
    }
}

/// There is a store where a new one should be made.
pub(super) fn store_exists(disk: &Disk) -> Error {
    Error::InvalidOption {
        option: "error_if_exists",
        why: format!(
            "{} already holds a store; open it without error_if_exists, or choose another \
             directory",
            disk.path().display()
        ),
    }
}

/// Asserts that any bytes but these are refused, and a newer version by its number.
#[cfg(test)]
pub(crate) fn assert_refuses_all_else<T: std::fmt::Debug + PartialEq>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, RootFileError>,
) {
    assert!(decode(bytes).is_ok());
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&damaged).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "cut to {len}");
    }
    let of_format = |format: u8| {
        let mut bytes = bytes.to_vec();
        bytes[8] = format;
        seal(&mut bytes);
        decode(&bytes)
    };
    let newer = bytes[8] + 1;
    assert_eq!(of_format(newer), Err(RootFileError::Newer(newer.into())));
    assert!(matches!(of_format(0), Err(RootFileError::Malformed(_))));
    let mut longer = [bytes, &[0]].concat();
    seal(&mut longer);
    assert!(decode(&longer).is_err(), "a byte more");
}
