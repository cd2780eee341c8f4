//! The history of a recording disk, replayed to any operation.

use super::state::{DiskState, Effect, FileChange};

/// The effects of a disk's operations, in order.
#[derive(Debug)]
pub(super) struct EffectJournal {
    /// The disk before its first operation.
    base: DiskState,
    /// Effects with the number of the operation that had them; a struck operation may have none.
    entries: Vec<(u64, Effect)>,
    /// The latest replay: how many entries were applied, and the disk after them.
    replayed: (usize, DiskState),
}

impl EffectJournal {
    pub(super) fn new(base: DiskState) -> EffectJournal {
        let replayed = (0, base.clone().without_handles());
        EffectJournal {
            base,
            entries: Vec::new(),
            replayed,
        }
    }

    pub(super) fn push(&mut self, op: u64, effect: Effect) {
        self.entries.push((op, effect));
    }

    /// The disk right after an operation. Takes time for the operations since the latest replay,
    /// or for all up to this one if that replay went further.
    pub(super) fn state_after(&mut self, at_op: u64) -> &DiskState {
        let end = self.entries.partition_point(|(op, _)| *op <= at_op);
        if end < self.replayed.0 {
            self.replayed = (0, self.base.clone());
        }
        let (start, state) = &mut self.replayed;
        self.entries[*start..end]
            .iter()
            .for_each(|(_, effect)| state.apply(effect));
        *start = end;
        state
    }

    pub(super) fn describe(&self, at_op: u64) -> Option<String> {
        let start = self.entries.partition_point(|(op, _)| *op < at_op);
        let effects = self.entries[start..]
            .iter()
            .take_while(|(op, _)| *op == at_op);
        let words: Vec<String> = effects.map(|(_, effect)| in_words(effect)).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

fn in_words(effect: &Effect) -> String {
    match effect {
        Effect::Create { name, inode } => format!("create {name} as file {inode}"),
        Effect::Change {
            inode,
            change:
                FileChange::Write {
                    offset,
                    bytes,
                    mapped,
                },
        } => {
            let how = if *mapped { "store" } else { "write" };
            format!("{how} {} bytes at {offset} of file {inode}", bytes.len())
        }
        Effect::Change {
            inode,
            change: FileChange::SetLen(len),
        } => {
            format!("set the length of file {inode} to {len}")
        }
        Effect::Change {
            inode,
            change: FileChange::Reserve { offset, len },
        } => {
            format!("reserve {len} bytes at {offset} of file {inode}")
        }
        Effect::Change {
            inode,
            change: FileChange::GiveBack { offset, len },
        } => {
            format!("give back {len} bytes at {offset} of file {inode}")
        }
        Effect::Sync { inode } => format!("sync file {inode}"),
        Effect::Forget { inode, .. } => format!("fail to sync file {inode} and forget its changes"),
        Effect::Rename { from, to } => format!("rename {from} to {to}"),
        Effect::Remove { name } => format!("remove {name}"),
        Effect::SyncDir => "sync the directory".to_owned(),
        Effect::ForgetDir { .. } => "fail to sync the directory and forget its changes".to_owned(),
        Effect::Put { name, inode, bytes } => {
            format!("put {} bytes under {name} as file {inode}", bytes.len())
        }
    }
}
