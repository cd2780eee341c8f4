//! Validates a transaction: nobody has written what it read since it began.
//!
//! Its commit is one step of the leader: checked, logged, inserted and published before anybody
//! else writes. Earlier writes of the same group are logged but in no MemTable yet, so the leader
//! checks them one by one.

use super::SsdEngine;
use crate::engine::keyspaces::KeyspaceId;
use crate::engine::read_set::ReadSet;
use crate::engine::write::Write;
use crate::log::{BatchEncoder, LogOp};
use crate::{Error, Result};

/// An error if something that a write depends on was written since it was read; `earlier` are the
/// writes in front of it that no MemTable has yet. The caller has the write half.
pub(super) fn validate<'w, E: SsdEngine>(
    engine: &E,
    write: Write<'_, E::Keyspace>,
    earlier: impl Iterator<Item = Write<'w, E::Keyspace>>,
) -> Result<()> {
    let Some(reads) = write.reads() else {
        return Ok(());
    };
    let keyspaces = engine.keyspaces.load();
    let find = |id| keyspaces.live(id).ok_or(Error::KeyspaceDropped);
    for read in reads.keys() {
        let keyspace = find(read.keyspace)?;
        if engine.is_newer(keyspace, &read.key, read.hash, reads.since())? {
            return Err(conflict(&**keyspace, &read.key));
        }
    }
    for read in reads.ranges() {
        let keyspace = find(read.keyspace)?;
        let range = (&read.lower[..], read.upper.as_deref());
        if let Some(key) = engine.newer_in(keyspace, range, reads.since())? {
            return Err(conflict(&**keyspace, &key));
        }
    }
    for write in earlier {
        if let Some((keyspace, key)) = first_change(reads, write) {
            return Err(conflict(&**find(keyspace)?, &key));
        }
    }
    Ok(())
}

/// The first key that was read and that a write changes, with its keyspace.
fn first_change<K: KeyspaceId>(reads: &ReadSet, write: Write<'_, K>) -> Option<(u32, Vec<u8>)> {
    let changed = |op: LogOp<'_>| Some((op.keyspace, reads.changed_by(&op)?));
    let any = |operations: &BatchEncoder| {
        // Numbers begin at 1; these tell nothing.
        operations.ops(1).map_while(|op| op.ok()).find_map(changed)
    };
    match write {
        Write::Single {
            keyspace,
            kind,
            key,
            value,
        } => changed(LogOp {
            seq: 1,
            kind,
            keyspace: keyspace.id(),
            key,
            value,
        }),
        Write::Batch(operations) | Write::Transaction(operations, _) => any(operations),
    }
}

fn conflict(keyspace: &impl KeyspaceId, key: &[u8]) -> Error {
    Error::Conflict {
        keyspace: keyspace.name().to_owned(),
        key: key.to_vec(),
    }
}
