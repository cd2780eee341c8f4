//! Consumers: those who follow the store under a name, and for whom the log is kept.
//!
//! # Idea
//! A consumer has a name and a position, up to which it has taken note of what was written. Both
//! stand in a file of the store, which is there if there is any consumer. The log is kept from the
//! smallest position on (`log::retention`).
//!
//! # Layout
//! A small file as a root file is ([`RootFile`]), with the magic `GABIONCS` and the name
//! `CONSUMERS`. It says, of each consumer in the order of the names: the length of the name as a
//! varint, the name, where the log is read on (8), the number of the last write before (8).
//!
//! # Invariants
//! - N1. The file names no position behind what is durable of the log: no power loss takes writes
//!   back that a consumer has acknowledged.
//! - N2. The log is kept for a position before the file names it, and as long as it does.
//!
//! # Durability
//! An acknowledgment is durable when it returns: the log is synced up to the position, if it is
//! not, and the file is replaced.

use std::collections::BTreeMap;

use gabion_media::Disk;
use parking_lot::Mutex;

use super::SsdEngine;
use super::feed::FeedSource;
use crate::engine::root_file::{RootFile, RootFileError};
use crate::limits::NAME_BYTES_MAX;
use crate::log::codec::put_bytes;
use crate::log::{LogSyncer, Lsn};
use crate::names::CONSUMERS;
use crate::position::Position;
use crate::{Error, Result};

const FILE: RootFile = RootFile {
    name: CONSUMERS,
    magic: *b"GABIONCS",
    format: 1,
};

/// Consumers by their names.
type Positions = BTreeMap<String, Position>;

/// The consumers of a store.
#[derive(Debug, Default)]
pub(crate) struct ConsumerTable(Mutex<Positions>);

/// A consumer as it is now.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerState {
    pub(crate) name: String,
    pub(crate) position: Position,
    /// Bytes of the log behind the position.
    pub(crate) bytes: u64,
    pub(crate) is_invalidated: bool,
}

impl ConsumerTable {
    /// Those of the store on a disk.
    pub(crate) fn open(disk: &Disk) -> Result<ConsumerTable> {
        let positions = match disk.exists(CONSUMERS)? {
            true => FILE.read(disk, decode)?,
            false => Positions::new(),
        };
        Ok(ConsumerTable(Mutex::new(positions)))
    }

    /// Reads the file again, which somebody else writes.
    pub(crate) fn renew(&self, disk: &Disk) -> Result<()> {
        let renewed = ConsumerTable::open(disk)?;
        *self.0.lock() = renewed.0.into_inner();
        Ok(())
    }

    /// Where they stand.
    pub(crate) fn positions(&self) -> Vec<Lsn> {
        lsns(&self.0.lock())
    }

    fn get(&self, name: &str) -> Result<Position> {
        let positions = self.0.lock();
        let position = positions.get(name).copied();
        position.ok_or_else(|| no_such_consumer(name))
    }

    /// What each is, as far as the log has it.
    fn list(&self, log: &LogSyncer) -> Vec<ConsumerState> {
        let positions = self.0.lock();
        let states = positions.iter().map(|(name, &position)| {
            let at = Lsn(position.log);
            ConsumerState {
                name: name.clone(),
                position,
                bytes: log.bytes_behind(at),
                is_invalidated: log.is_invalidated(at),
            }
        });
        states.collect()
    }
}

/// Replaces the file, and the positions by it.
fn replace(disk: &Disk, positions: &mut Positions, next: Positions) -> Result<()> {
    match next.is_empty() {
        true => {
            disk.remove(CONSUMERS)?;
            disk.sync_dir()?;
        }
        // DURABLE: where they stand.
        false => FILE.write(disk, &encode(&next))?,
    }
    *positions = next;
    Ok(())
}

fn lsns(positions: &Positions) -> Vec<Lsn> {
    let positions = positions.values();
    positions.map(|position| Lsn(position.log)).collect()
}

fn no_such_consumer(name: &str) -> Error {
    Error::NoSuchConsumer {
        name: name.to_owned(),
    }
}

/// The bytes of the file.
fn encode(positions: &Positions) -> Vec<u8> {
    FILE.encode(|bytes| {
        for (name, position) in positions {
            put_bytes(bytes, name.as_bytes());
            bytes.extend(position.log.to_le_bytes());
            bytes.extend(position.number.to_le_bytes());
        }
    })
}

/// What the file says.
fn decode(bytes: &[u8]) -> Result<Positions, RootFileError> {
    FILE.decode(bytes, |reader| {
        let mut positions = Positions::new();
        while !reader.is_empty() {
            let name = reader.bytes()?;
            let name = str::from_utf8(name)
                .map_err(|_| reader.malformed("the name of a consumer is not UTF-8"))?;
            if positions
                .last_key_value()
                .is_some_and(|(last, _)| last.as_str() >= name)
            {
                return Err(reader.malformed("the names of consumers do not ascend"));
            }
            let (log, number) = (reader.u64()?, reader.u64()?);
            positions.insert(name.to_owned(), Position { log, number });
        }
        Ok(positions)
    })
}

/// What consumers of an engine do.
pub(crate) trait ConsumerStore: SsdEngine {
    /// The position of the consumer of that name, which is made where the store is now if there is
    /// none, durably.
    fn consumer(&self, name: &str) -> Result<Position> {
        let size = name.len() as u64;
        if !(1..=NAME_BYTES_MAX).contains(&size) {
            return Err(Error::Limit {
                what: "name of a consumer (1 to 255 bytes)",
                size,
                limit: NAME_BYTES_MAX,
            });
        }
        self.health.check_open()?;
        if let Ok(position) = self.consumers.get(name) {
            return Ok(position);
        }
        self.check_writable()?;
        let mut made = Err(Error::Closed);
        self.change_consumers(|positions| {
            if let Some(position) = positions.get(name) {
                made = Ok(*position);
                return Ok(());
            }
            // With the write half held the log neither goes on nor loses the segment.
            let alone = self.lock_write_half();
            let position = self.position_alone()?;
            positions.insert(name.to_owned(), position);
            self.syncer.keep_for(&lsns(positions))?;
            drop(alone);
            made = Ok(position);
            // N1.
            self.sync_log()
        })?;
        made
    }

    /// A consumer has taken note of all that was written before a position. One that it has passed
    /// changes nothing.
    fn acknowledge(&self, name: &str, position: Position) -> Result<()> {
        self.check_writable()?;
        let at = Lsn(position.log);
        if !self.syncer.has_reached(at) {
            let oldest = self.oldest_position()?;
            return Err(Error::ChangesGone { oldest });
        }
        if at > self.syncer.durable_lsn() {
            self.sync_log()?;
        }
        self.change_consumers(|positions| {
            let own = positions
                .get_mut(name)
                .ok_or_else(|| no_such_consumer(name))?;
            *own = position.max(*own);
            Ok(())
        })
    }

    /// Forgets a consumer, durably.
    fn drop_consumer(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        self.change_consumers(|positions| {
            let dropped = positions.remove(name);
            dropped.map(drop).ok_or_else(|| no_such_consumer(name))
        })
    }

    /// The position of a consumer.
    fn consumer_position(&self, name: &str) -> Result<Position> {
        self.health.check_open()?;
        self.consumers.get(name)
    }

    /// All consumers, in the order of their names.
    fn consumer_states(&self) -> Vec<ConsumerState> {
        self.consumers.list(&self.syncer)
    }

    /// Changes consumers, durably.
    fn change_consumers(&self, change: impl FnOnce(&mut Positions) -> Result<()>) -> Result<()> {
        // Whoever comes too late finds the directory given back.
        let Some(_held) = self.lock.hold() else {
            return Err(Error::Closed);
        };
        let mut positions = self.consumers.0.lock();
        let mut next = positions.clone();
        let changed = change(&mut next).and_then(|()| match next == *positions {
            true => Ok(()),
            false => replace(&self.disk, &mut positions, next),
        });
        // N2.
        if let Err(error) = self.syncer.keep_for(&lsns(&positions)) {
            tracing::warn!(%error, "a log segment that no consumer needs could not be removed yet");
        }
        changed
    }
}

impl<E: SsdEngine> ConsumerStore for E {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::root_file::assert_refuses_all_else;

    #[test]
    fn the_file_has_these_bytes() {
        let position = |log, number| Position { log, number };
        let positions = Positions::from([
            ("index".to_owned(), position(0x0102, 3)),
            ("mirror".to_owned(), position(4, 5)),
        ]);
        let bytes = encode(&positions);
        let body = b"\x05index\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
            \x06mirror\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0";
        assert_eq!(bytes[..12], *b"GABIONCS\x01\0\0\0");
        assert_eq!(bytes[16..], body[..]);
        assert_eq!(decode(&bytes), Ok(positions));
        assert_refuses_all_else(&bytes, decode);
    }
}
