//! Cursors of `SCAN`: numbers that stand for places in the order of keys.
//!
//! # Idea
//! A scan goes through the keys in their order, so a key that stays is met exactly once; what a
//! cursor must tell is the last key that was returned. A number cannot hold a key. So the server
//! keeps the places of the last [`SLOTS`] steps in a table of fixed size, and a cursor says which
//! slot, in which use of it, and the first bytes of the key.
//!
//! If the slot has had another use since, the scan goes on at the first key with those bytes: it
//! may return keys again, as `SCAN` may, but it misses none.
//!
//! # Layout of a cursor, from the highest bit
//! | bits | what |
//! |---|---|
//! | 1 | 0, for clients whose numbers have a sign |
//! | 24 | the first bytes of the key |
//! | 27 | which use of the slot |
//! | 12 | slot |
//!
//! # Invariants
//! - I1. No cursor is 0, which stands for the beginning and the end: uses are counted from 1.
//! - I2. Uses begin at a number of the time of the start, so that a cursor of before a restart is
//!   not taken for one of after.

use parking_lot::Mutex;

use crate::clients::now_ms;

const SLOT_BITS: u32 = 12;
const USE_BITS: u32 = 27;

/// Places that are known.
const SLOTS: usize = 1 << SLOT_BITS;

const USES: u64 = 1 << USE_BITS;

/// Bytes of the key in a cursor.
const PREFIX_BYTES: usize = 3;

#[derive(Debug)]
struct Slot {
    uses: u64,
    last: Vec<u8>,
}

#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    next: usize,
    first_use: u64,
}

/// The position at which a scan continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanPosition {
    /// At the first key.
    Start,
    /// Behind this key.
    Behind(Vec<u8>),
    /// At the first key from this one on.
    From(Vec<u8>),
}

/// The positions of scans.
#[derive(Debug)]
pub(crate) struct ScanCursors {
    table: Mutex<Table>,
}

impl Default for ScanCursors {
    fn default() -> ScanCursors {
        ScanCursors {
            table: Mutex::new(Table {
                slots: Vec::new(),
                next: 0,
                first_use: now_ms(),
            }),
        }
    }
}

impl ScanCursors {
    /// A cursor for the place behind a key.
    pub(crate) fn behind(&self, last: &[u8]) -> u64 {
        let mut table = self.table.lock();
        let index = table.next;
        table.next = (index + 1) % SLOTS;
        if table.slots.len() <= index {
            let uses = table.first_use;
            table.slots.push(Slot {
                uses,
                last: Vec::new(),
            });
        }
        let slot = &mut table.slots[index];
        slot.uses = (slot.uses + 1) % USES;
        if slot.uses == 0 {
            slot.uses = 1;
        }
        slot.last.clear();
        slot.last.extend_from_slice(last);
        let mut prefix = [0; 8];
        for (byte, of) in prefix.iter_mut().rev().skip(8 - PREFIX_BYTES).zip(last) {
            *byte = *of;
        }
        let prefix = u64::from_le_bytes(prefix);
        prefix << (SLOT_BITS + USE_BITS) | slot.uses << SLOT_BITS | index as u64
    }

    /// The place that a cursor stands for.
    pub(crate) fn place(&self, cursor: u64) -> ScanPosition {
        if cursor == 0 {
            return ScanPosition::Start;
        }
        let index = usize::try_from(cursor & (SLOTS as u64 - 1)).unwrap_or_default();
        let uses = cursor >> SLOT_BITS & (USES - 1);
        let table = self.table.lock();
        match table.slots.get(index).filter(|slot| slot.uses == uses) {
            Some(slot) => ScanPosition::Behind(slot.last.clone()),
            None => {
                let prefix = (cursor >> (SLOT_BITS + USE_BITS)).to_le_bytes();
                let mut from: Vec<u8> = prefix[..PREFIX_BYTES].to_vec();
                from.reverse();
                while from.last() == Some(&0) {
                    from.pop();
                }
                ScanPosition::From(from)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_stands_for_the_place_behind_its_key() {
        let cursors = ScanCursors::default();
        assert_eq!(cursors.place(0), ScanPosition::Start);
        for key in [&b""[..], b"a", b"user:1", b"\xff\xff\xff\xff"] {
            let cursor = cursors.behind(key);
            assert!(cursor != 0 && cursor <= i64::MAX as u64);
            assert_eq!(cursors.place(cursor), ScanPosition::Behind(key.to_vec()));
        }
    }

    #[test]
    fn a_cursor_whose_slot_is_used_again_misses_nothing() {
        let cursors = ScanCursors::default();
        let old = cursors.behind(b"user:1");
        let short = cursors.behind(b"u");
        for step in 0..SLOTS {
            cursors.behind(step.to_string().as_bytes());
        }
        assert_eq!(cursors.place(old), ScanPosition::From(b"use".to_vec()));
        assert_eq!(cursors.place(short), ScanPosition::From(b"u".to_vec()));
    }
}
