//! Batches: several writes that take effect together; and deletes of ranges, each of which is one.
//!
//! # Idea
//! Before anything of a batch is applied, a copy of it is put into the pool, in pieces, the first
//! one last. From then on the batch counts: a recovery that finds the first piece applies it. When
//! it is applied, the first piece is deleted, then the others, the last one first.
//!
//! # Layout
//! The value of the first piece begins with the number of pieces, four bytes. All pieces together
//! are the batch as the log has it (`log::batch`).
//!
//! # Invariants
//! - A1. Nobody else writes between the put of the first piece and its delete (`batch_gate`). So
//!   applying the batch again, as a whole or from any place on, leaves what the batch leaves.
//! - A2. The operations are durable before the first piece is gone: a delete makes its log durable.
//! - A3. Space for the copy and for the operations is set aside before either is written. A batch
//!   that finds none has done nothing. Deletes need no space; where there is none for their copy,
//!   one of one piece has space that is kept back. So they go in a full pool, whether they come in
//!   a batch or of a range. There is one copy at a time (A1), and its space is there again when the
//!   batch is done.
//! - A4. A batch that fails while it is applied is not seen at all: nothing is read until the next
//!   opening has applied it (`batch_gate`, B2).
//! - A5. Pieces without a first one are 1, 2, 3 and so on without gaps; the next opening deletes
//!   them.

use super::batch_gate::ExclusivePass;
use super::layout::piece_key;
use super::writepath::KeyChange;
use super::{Flushed, Mapped, OpenPool, PoolStore};
use crate::log::{BatchEncoder, LogOps, MalformedPayload, batch_head, decode_batch};
use crate::{Error, Result};

/// Bytes of a piece, at most.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes before the first piece.
const COUNT_BYTES: usize = 4;

/// Bytes of the pool's pair of a piece besides the piece, at most: its key, and those above.
const PIECE_HEAD_BYTES: usize = piece_key(0).len() + COUNT_BYTES;

/// Bytes of key and value of the largest copy of one piece.
pub(in crate::engine) const COPY_BYTES_MAX: usize = PIECE_HEAD_BYTES + PIECE_BYTES;

/// The number of an operation in the pool's copy: any will do.
const FIRST_SEQ: u64 = 1;

/// Where a copy has space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It was set aside with that of the operations.
    Common,
    /// It is kept back.
    Kept,
}

impl<S: PoolStore> Mapped<S> {
    /// Performs a batch. One operation needs no copy.
    pub(super) fn write_batch(
        &self,
        opened: &OpenPool<S>,
        operations: &BatchEncoder,
    ) -> Result<()> {
        if operations.count() < 2 {
            return for_each_change(opened, operations.ops(FIRST_SEQ), |change| {
                self.write_one(opened, change, true)
            });
        }
        self.write_copied(opened, operations)
    }

    /// Performs a batch of which a copy is in the pool meanwhile.
    fn write_copied(&self, opened: &OpenPool<S>, operations: &BatchEncoder) -> Result<()> {
        let mut puts = Vec::new();
        for_each_change(opened, operations.ops(FIRST_SEQ), |change| {
            // Deletes need no space.
            puts.extend((!change.kind.is_tombstone()).then(|| change.pool_bytes()));
            change.check::<S>()
        })?;
        let payload = [
            &batch_head(FIRST_SEQ, operations.count())[..],
            operations.bytes(),
        ]
        .concat();
        let alone = self.gate.close();
        self.health.check_writable()?;
        let room = set_aside(opened, puts, &payload)?;
        announce(opened, &payload, room)?;
        self.complete(opened, &payload, &alone)
    }

    /// Applies the batch whose copy is in the pool, and takes the copy out of it. If that fails,
    /// nobody may write before the batch is whole, nor read a part of it: the next opening tries
    /// again.
    fn complete(
        &self,
        opened: &OpenPool<S>,
        payload: &[u8],
        alone: &ExclusivePass<'_>,
    ) -> Result<()> {
        let applying = self.gate.apply(alone);
        let applied = apply(opened, payload).map(|()| applying.end());
        let done = applied.and_then(|()| forget(opened, pieces_of(payload)));
        done.inspect_err(|error| self.health.fail(error))
    }

    /// Performs a delete of a range, as a batch of it alone.
    pub(super) fn write_range_delete(
        &self,
        opened: &OpenPool<S>,
        change: KeyChange<'_>,
    ) -> Result<()> {
        let mut operations = BatchEncoder::default();
        operations.op(change.kind, change.keyspace, change.key, change.value);
        self.write_copied(opened, &operations)
    }

    /// Applies the batch that was being written when the store was left.
    pub(super) fn recover_batch(&self, opened: &OpenPool<S>) -> Result<()> {
        let Some(payload) = announced(opened)? else {
            let mut pieces = 1;
            while opened.get(&piece_key(pieces))?.is_some() {
                pieces += 1;
            }
            return delete_pieces(opened, pieces);
        };
        match self.complete(opened, &payload, &self.gate.close()) {
            // The store opens, and tells whoever reads or writes of it.
            Err(error) if error.is_no_space() => Ok(()),
            done => done,
        }
    }
}

/// Number of pieces of a batch.
fn pieces_of(payload: &[u8]) -> u32 {
    u32::try_from(payload.len().div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX)
}

/// Sets space aside for puts of so many bytes each, and for the copy. Deletes alone do without.
fn set_aside<S: PoolStore>(opened: &OpenPool<S>, puts: Vec<u64>, payload: &[u8]) -> Result<Room> {
    let may_be_kept = puts.is_empty() && payload.len() <= PIECE_BYTES;
    let mut sizes = puts;
    let piece_bytes = |piece: &[u8]| (PIECE_HEAD_BYTES + piece.len()) as u64;
    sizes.extend(payload.chunks(PIECE_BYTES).map(piece_bytes));
    match opened.told(opened.store.reserve(&sizes)) {
        Err(error) if error.is_no_space() && may_be_kept => Ok(Room::Kept),
        reserved => reserved.map(|()| Room::Common),
    }
}

/// Puts the copy into the pool.
fn announce<S: PoolStore>(opened: &OpenPool<S>, payload: &[u8], room: Room) -> Result<()> {
    let mut pieces = (0..).zip(payload.chunks(PIECE_BYTES));
    let Some((_, first)) = pieces.next() else {
        return Ok(());
    };
    let count = pieces_of(payload);
    let put = |(number, piece): (u32, &[u8])| {
        let key = piece_key(number);
        let put = match room {
            Room::Common => opened.put(&key, piece, Flushed::Strict),
            Room::Kept => opened.told(opened.store.put_copy(&key, piece)),
        };
        put.map_err(|error| (number, error))
    };
    let first = [&count.to_le_bytes()[..], first].concat();
    // DURABLE: all pieces, the first one last: with it, the batch counts.
    let put = pieces.try_for_each(put).and_then(|()| put((0, &first)));
    put.map_err(|(failed, error)| {
        // The first error is the one to tell; the next opening deletes what is left.
        let written = if failed == 0 { count } else { failed };
        let _ = delete_pieces(opened, written);
        error
    })
}

/// The batch whose copy is in the pool.
fn announced<S: PoolStore>(opened: &OpenPool<S>) -> Result<Option<Vec<u8>>> {
    let Some(first) = opened.get(&piece_key(0))? else {
        return Ok(None);
    };
    let Some((count, first)) = first.split_first_chunk::<COUNT_BYTES>() else {
        return Err(bad_copy(opened));
    };
    let mut payload = first.to_vec();
    for number in 1..u32::from_le_bytes(*count) {
        let piece = opened.get(&piece_key(number))?;
        payload.extend(piece.ok_or_else(|| bad_copy(opened))?);
    }
    Ok(Some(payload))
}

fn bad_copy<S>(opened: &OpenPool<S>) -> Error {
    Error::Corruption {
        file: opened.pool.path().to_owned(),
        offset: 0,
        what: "a part of an unfinished batch is missing".to_owned(),
    }
}

fn apply<S: PoolStore>(opened: &OpenPool<S>, payload: &[u8]) -> Result<()> {
    let operations = decode_batch(payload).map_err(|what| malformed(opened, what))?;
    for_each_change(opened, operations, |change| {
        change.apply(opened, Flushed::Relaxed)
    })
}

/// Takes the copy out of the pool.
fn forget<S: PoolStore>(opened: &OpenPool<S>, pieces: u32) -> Result<()> {
    // DURABLE: the operations (A2); then the batch does not count any more.
    opened.delete(&piece_key(0))?;
    delete_pieces(opened, pieces)
}

/// Deletes all pieces below a number but the first one, the last one first.
fn delete_pieces<S: PoolStore>(opened: &OpenPool<S>, end: u32) -> Result<()> {
    let mut pieces = (1..end).rev();
    pieces.try_for_each(|number| opened.delete(&piece_key(number)))
}

fn malformed<S>(opened: &OpenPool<S>, what: MalformedPayload) -> Error {
    what.in_file(opened.pool.path().to_owned(), 0)
}

/// Calls `act` with each operation of a batch.
fn for_each_change<S>(
    opened: &OpenPool<S>,
    operations: LogOps<'_>,
    mut act: impl FnMut(KeyChange<'_>) -> Result<()>,
) -> Result<()> {
    for operation in operations {
        let operation = operation.map_err(|what| malformed(opened, what))?;
        act(KeyChange {
            keyspace: operation.keyspace,
            kind: operation.kind,
            key: operation.key,
            value: operation.value,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gabion_media::Disk;

    use super::super::MappedKeyspace;
    use super::*;
    use crate::MappedOptions;
    use crate::engine::scmkv::Scmkv;
    use crate::engine::sptree::TreeStore;
    use crate::types::Kind;
    use crate::{Durability, Options};

    fn open<S: PoolStore>(path: &std::path::Path) -> (Arc<Mapped<S>>, Arc<MappedKeyspace>) {
        let options = Options::default()
            .engine(S::ENGINE)
            .durability(Durability::Buffered)
            .mapped(
                MappedOptions::default()
                    .pool_bytes(64 << 20)
                    .checkpoints(false)
                    .expected_records(64),
            )
            .background_threads(0);
        let disk = Disk::create_system(path).expect("a directory");
        let store = Mapped::open(disk, options).expect("it opens");
        let keyspace = store.create_keyspace("some").expect("space");
        (store, keyspace)
    }

    fn key(number: u64) -> Vec<u8> {
        format!("key {number:03}").into_bytes()
    }

    /// A batch that deletes one key, puts others, and puts one of them twice; large ones are of
    /// several pieces.
    fn operations(keyspace: u32, value_bytes: usize) -> BatchEncoder {
        let mut operations = BatchEncoder::default();
        operations.op(Kind::Delete, keyspace, &key(0), &[]);
        for number in [3, 1, 2, 3] {
            let value = vec![u8::try_from(number).expect("small"); value_bytes];
            operations.op(Kind::Put, keyspace, &key(number), &value);
        }
        operations
    }

    /// The process ends at any step of a batch: before its first piece is there, nothing of it is;
    /// afterwards all of it, though only some of it was applied; and no piece stays behind.
    #[test]
    fn a_batch_of_scmkv_that_was_interrupted_is_whole_or_absent() {
        interrupt::<Scmkv>();
    }

    #[test]
    fn a_batch_of_sptree_that_was_interrupted_is_whole_or_absent() {
        interrupt::<TreeStore>();
    }

    fn change_of<'c>(keyspace: u32, kind: Kind, key: &'c [u8], value: &'c [u8]) -> KeyChange<'c> {
        KeyChange {
            keyspace,
            kind,
            key,
            value,
        }
    }

    /// As above, where what is deleted is a range, of which any part may be gone.
    #[test]
    fn a_delete_of_a_range_that_was_interrupted_is_whole_or_absent() {
        const KEYS: u64 = 700;
        for gone in [0, 1, 300, KEYS] {
            let dir = tempfile::tempdir().expect("a directory");
            let (store, keyspace) = open::<TreeStore>(dir.path());
            let id = keyspace.id;
            let mut operations = BatchEncoder::default();
            operations.op(Kind::DeleteRange, keyspace.id, &key(0), &key(KEYS - 1));
            let payload = [&batch_head(FIRST_SEQ, 1)[..], operations.bytes()].concat();
            store
                .with(|opened| {
                    for number in 0..KEYS {
                        let key = key(number);
                        change_of(id, Kind::Put, &key, b"value").apply(opened, Flushed::Strict)?;
                    }
                    announce(opened, &payload, Room::Common)?;
                    for number in (0..KEYS - 1)
                        .rev()
                        .take(usize::try_from(gone).expect("small"))
                    {
                        change_of(id, Kind::Delete, &key(number), &[])
                            .apply(opened, Flushed::Strict)?;
                    }
                    Ok(())
                })
                .expect("space");
            // As the end of the process leaves it: nothing is closed.
            drop(store.opened.swap(None));
            store.lock.lock().take();
            let (store, keyspace) = open::<TreeStore>(dir.path());
            let left = (0..KEYS).filter(|number| {
                let found = store.get(&keyspace, &key(*number), None);
                found.expect("sound").is_some()
            });
            assert_eq!(left.collect::<Vec<_>>(), [KEYS - 1], "{gone} were gone");
            let copy = store.with(|opened| opened.get(&piece_key(0)));
            assert_eq!(copy.expect("sound"), None);
            store.close().expect("it closes");
        }
    }

    fn interrupt<S: PoolStore>() {
        for value_bytes in [10, 1_500_000] {
            let wanted = operations(0, value_bytes).count();
            for steps in 0..wanted + 3 {
                let dir = tempfile::tempdir().expect("a directory");
                let (store, keyspace) = open::<S>(dir.path());
                let operations = operations(keyspace.id, value_bytes);
                let payload = [&batch_head(FIRST_SEQ, wanted)[..], operations.bytes()].concat();
                let put_before = |opened: &OpenPool<S>| {
                    let change = KeyChange {
                        keyspace: keyspace.id,
                        kind: Kind::Put,
                        key: &key(0),
                        value: b"before",
                    };
                    change.apply(opened, Flushed::Relaxed)
                };
                store
                    .with(|opened| {
                        put_before(opened)?;
                        if steps == 0 {
                            // All pieces but the first one.
                            for (number, piece) in (0..).zip(payload.chunks(PIECE_BYTES)).skip(1) {
                                opened.put(&piece_key(number), piece, Flushed::Strict)?;
                            }
                            return Ok(());
                        }
                        announce(opened, &payload, Room::Common)?;
                        let mut left = steps - 1;
                        for_each_change(opened, operations.ops(FIRST_SEQ), |change| {
                            let is_due = left > 0;
                            left = left.saturating_sub(1);
                            if is_due {
                                change.apply(opened, Flushed::Relaxed)
                            } else {
                                Ok(())
                            }
                        })?;
                        if steps > wanted + 1 {
                            opened.delete(&piece_key(0))?;
                        }
                        Ok(())
                    })
                    .expect("space");
                // As the end of the process leaves it: nothing is closed.
                let pool = store.opened.swap(None);
                drop(pool);
                store.lock.lock().take();
                let (store, keyspace) = open::<S>(dir.path());
                let get = |number| store.get(&keyspace, &key(number), None).expect("sound");
                assert_eq!(get(0).is_some(), steps == 0, "{steps} steps");
                for number in [1, 2, 3] {
                    let value = get(number);
                    assert_eq!(value.is_some(), steps > 0, "{steps} steps");
                    let is_right = value.is_none_or(|value| {
                        value.len() == value_bytes
                            && value.iter().all(|byte| u64::from(*byte) == number)
                    });
                    assert!(is_right, "key {number} after {steps} steps");
                }
                let pieces = store.with(|opened| {
                    (0..8).try_fold(0, |count, number| {
                        Ok(count + u32::from(opened.get(&piece_key(number))?.is_some()))
                    })
                });
                assert_eq!(pieces.expect("sound"), 0, "{steps} steps");
                store.close().expect("it closes");
            }
        }
    }

    /// In a full pool a batch of deletes, or a delete of a range, found no space for its copy. It
    /// is there in what is kept back, and if the process ends anywhere then, all of it was done;
    /// and once more, and once more, though hardly anything becomes free.
    #[test]
    fn deletes_in_a_full_pool_are_whole_and_go_on() {
        delete_in_a_full_pool::<Scmkv>();
        delete_in_a_full_pool::<TreeStore>();
    }

    fn delete_in_a_full_pool<S: PoolStore>() {
        const ROUNDS: u64 = 30;
        const KEYS: u64 = 8;
        let dir = tempfile::tempdir().expect("a directory");
        let (mut store, mut keyspace) = open::<S>(dir.path());
        let id = keyspace.id;
        let put = |opened: &OpenPool<S>, key: &[u8], len: usize| {
            change_of(id, Kind::Put, key, &vec![5; len]).apply(opened, Flushed::Relaxed)
        };
        let fill = |opened: &OpenPool<S>| {
            (0..ROUNDS * KEYS).try_for_each(|number| put(opened, &key(number), 90))?;
            for len in [900_000, 50_000, 3000, 90] {
                let told = (0..).find_map(|number: u64| {
                    let key = format!("more {len} {number}");
                    put(opened, key.as_bytes(), len).err()
                });
                assert!(told.is_some_and(|error| error.is_no_space()));
            }
            Ok(())
        };
        store.with(fill).expect("space for the first keys");
        let mut kept = 0;
        for round in 0..ROUNDS {
            let keys: Vec<_> = (0..KEYS).map(|number| key(round * KEYS + number)).collect();
            let mut operations = BatchEncoder::default();
            keys.iter()
                .for_each(|key| operations.op(Kind::Delete, id, key, &[]));
            // Keys that are not there, so that a copy fills its space, or some of it.
            for number in 0..15 {
                let absent = vec![number; 65_000 - usize::try_from(round * 2000).expect("small")];
                operations.op(Kind::Delete, id, &absent, &[]);
            }
            let payload = [
                &batch_head(FIRST_SEQ, operations.count())[..],
                operations.bytes(),
            ]
            .concat();
            let announced = store.with(|opened| {
                let room = set_aside(opened, Vec::new(), &payload)?;
                kept += u64::from(room == Room::Kept);
                announce(opened, &payload, room)?;
                for key in keys.iter().take(usize::try_from(round % 9).expect("small")) {
                    change_of(id, Kind::Delete, key, &[]).apply(opened, Flushed::Relaxed)?;
                }
                Ok(())
            });
            announced.expect("what is kept back");
            // As the end of the process leaves it: nothing is closed.
            drop(store.opened.swap(None));
            store.lock.lock().take();
            (store, keyspace) = open::<S>(dir.path());
            let get = |key: &[u8]| store.get(&keyspace, key, None).expect("sound");
            assert!(keys.iter().all(|key| get(key).is_none()), "round {round}");
            assert!((round + 1..ROUNDS).all(|round| get(&key(round * KEYS)).is_some()));
            // One that is not interrupted.
            let written = store.with(|opened| store.write_batch(opened, &operations));
            written.expect("what is kept back");
            let copy = store.with(|opened| opened.get(&piece_key(0)));
            assert_eq!(copy.expect("sound"), None);
        }
        assert!(kept > ROUNDS / 2, "{kept} copies in what is kept back");
        store.close().expect("it closes");
    }
}
