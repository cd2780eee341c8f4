//! A space as a file of the standard library.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::{Edit, FlexSpace};
use crate::Result;

/// Bytes that are read ahead: many extents of a fragmented space, or one read of the medium.
const AHEAD_BYTES: usize = 128 << 10;

/// A space with a position, to read, write and seek, and to insert and remove at the position.
///
/// Reads go ahead and keep what they read as long as nothing changes the space. Writes are written
/// over what is there, as with files; [`SpaceFile::insert`] moves it. Dropping the file or flushing
/// it makes nothing durable: [`FlexSpace::sync`] does.
#[derive(Debug)]
pub struct SpaceFile {
    space: FlexSpace,
    position: u64,
    ahead: Vec<u8>,
    /// Where what was read ahead begins, and the state of the space that it is of.
    ahead_offset: u64,
    ahead_changes: u64,
}

impl SpaceFile {
    pub(super) fn new(space: FlexSpace) -> SpaceFile {
        SpaceFile {
            space,
            position: 0,
            ahead: Vec::new(),
            ahead_offset: 0,
            ahead_changes: 0,
        }
    }

    /// The space.
    pub fn space(&self) -> &FlexSpace {
        &self.space
    }

    /// Inserts bytes at the position, which moves behind them.
    pub fn insert(&mut self, data: &[u8]) -> Result<()> {
        let offset = self.position;
        self.space.apply(&[Edit::Insert { offset, data }])?;
        self.position += data.len() as u64;
        Ok(())
    }

    /// Removes `len` bytes from the position on; what is behind them moves to it.
    pub fn collapse(&mut self, len: u64) -> Result<()> {
        self.space.collapse_range(self.position, len)
    }

    /// What was read ahead from the position on, if it still holds.
    fn known(&self) -> &[u8] {
        if self.ahead_changes != self.space.changes() {
            return &[];
        }
        let skip = self.position.checked_sub(self.ahead_offset);
        let skip = skip.and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.ahead.get(skip..))
            .unwrap_or_default()
    }

    fn read_ahead(&mut self) -> Result<()> {
        self.ahead_changes = self.space.changes();
        self.ahead_offset = self.position;
        self.ahead.resize(AHEAD_BYTES, 0);
        match self.space.read_at(self.position, &mut self.ahead) {
            Ok(len) => self.ahead.truncate(len),
            Err(error) => {
                self.ahead.clear();
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Read for SpaceFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let len = if buffer.len() >= AHEAD_BYTES {
            self.space
                .read_at(self.position, buffer)
                .map_err(io::Error::other)?
        } else {
            if self.known().is_empty() {
                self.read_ahead().map_err(io::Error::other)?;
            }
            // Between reading ahead and here nothing is asked anew: these bytes were the space's
            // at one moment of this call.
            let skip = usize::try_from(self.position - self.ahead_offset).unwrap_or(usize::MAX);
            let known = self.ahead.get(skip..).unwrap_or_default();
            let len = known.len().min(buffer.len());
            buffer[..len].copy_from_slice(&known[..len]);
            len
        };
        self.position += len as u64;
        Ok(len)
    }
}

impl Write for SpaceFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.space.write_at(self.position, data);
        written.map_err(io::Error::other)?;
        self.position += data.len() as u64;
        Ok(data.len())
    }

    /// Does nothing: what was written is seen by all readers already.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for SpaceFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(delta) => self.position.checked_add_signed(delta),
            SeekFrom::End(delta) => self.space.len().checked_add_signed(delta),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
