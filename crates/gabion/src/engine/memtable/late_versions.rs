//! Versions that come behind newer ones and are needed all the same.

use std::ptr::NonNull;

use super::arena::{ArenaRecord, NewRecord};
use super::directory::{DirectoryWriter, HashDirectory};
use crate::operands::Operands;
use crate::types::Kind;

impl HashDirectory {
    /// Inserts a version below newer ones, if the newest one is a merge that needs it: as replay,
    /// which goes in any order, may do. The merges on the way to it are written once more, on top
    /// of it; what they cover is left out, for nobody reads an earlier moment then. Returns where
    /// the newest is now; nothing if nothing was done.
    #[cold]
    pub(super) fn insert_below(
        &self,
        writer: &mut DirectoryWriter,
        newest: ArenaRecord<'_>,
        new: NewRecord<'_>,
    ) -> Option<NonNull<u8>> {
        let mut above = vec![newest];
        let mut nearest = newest;
        let older = loop {
            if nearest.kind() != Kind::Merge {
                return None;
            }
            let below = Operands::below_of(nearest.value(), nearest.seq())?;
            let mut next = nearest.older();
            while let Some(record) = next.filter(|record| record.seq() >= below) {
                next = record.older();
            }
            match next {
                _ if below <= new.seq => return None,
                Some(record) if record.seq() == new.seq => return None,
                Some(record) if record.seq() > new.seq => {
                    above.push(record);
                    nearest = record;
                }
                older => break older,
            }
        };
        newest.supersede();
        let mut at = writer.arena.push(&NewRecord { older, ..new });
        for record in above.iter().rev() {
            let older = self.record(at.as_ptr())?;
            older.supersede();
            at = writer.arena.push(&NewRecord {
                key: record.key(),
                value: record.value(),
                seq: record.seq(),
                kind: record.kind(),
                hash_bits: record.hash_bits(),
                older: Some(older),
            });
        }
        Some(at)
    }
}
