//! The write accounting: every byte written to a medium is counted under the purpose it serves.
//!
//! The counts are what the programs handed over successfully, not what a file system or a drive
//! makes of it; write amplification of a store is computed from them. The system's own count for
//! the process stands beside them.

use std::sync::atomic::{AtomicU64, Ordering};

/// What bytes are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// The write-ahead log.
    Log,
    /// A MemTable written out for the first time.
    Flush,
    /// Tables merged into other tables.
    Compaction,
    /// A part of the key space divided into smaller parts.
    Split,
    /// Parts of the key space joined.
    Merge,
    /// Live data moved so that dead data can go.
    Gc,
    /// A copy of a consistent state.
    Checkpoint,
    /// What says which files make up the store.
    Metadata,
}

impl Purpose {
    /// All purposes, in the order of their counts.
    pub const ALL: [Purpose; 8] = [
        Purpose::Log,
        Purpose::Flush,
        Purpose::Compaction,
        Purpose::Split,
        Purpose::Merge,
        Purpose::Gc,
        Purpose::Checkpoint,
        Purpose::Metadata,
    ];

    /// Name for statistics: lower case, one word.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Log => "log",
            Purpose::Flush => "flush",
            Purpose::Compaction => "compaction",
            Purpose::Split => "split",
            Purpose::Merge => "merge",
            Purpose::Gc => "gc",
            Purpose::Checkpoint => "checkpoint",
            Purpose::Metadata => "metadata",
        }
    }
}

/// What was written to a directory since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    /// Bytes by purpose, in the order of [`Purpose::ALL`].
    pub bytes: [u64; Purpose::ALL.len()],
    /// Syncs of files that succeeded.
    pub file_syncs: u64,
    /// Syncs of the directory that succeeded.
    pub dir_syncs: u64,
}

impl WriteCounts {
    /// Bytes written for one purpose.
    pub fn bytes_of(&self, purpose: Purpose) -> u64 {
        self.bytes[purpose as usize]
    }

    /// Bytes written for all purposes together.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Syncs of files and of the directory.
    pub fn syncs(&self) -> u64 {
        self.file_syncs + self.dir_syncs
    }

    /// What was added since `earlier`, an older reading of the same counts.
    pub fn since(&self, earlier: &WriteCounts) -> WriteCounts {
        let mut bytes = self.bytes;
        for (now, then) in bytes.iter_mut().zip(earlier.bytes) {
            *now = now.saturating_sub(then);
        }
        WriteCounts {
            bytes,
            file_syncs: self.file_syncs.saturating_sub(earlier.file_syncs),
            dir_syncs: self.dir_syncs.saturating_sub(earlier.dir_syncs),
        }
    }
}

/// Bytes that the system counts as written to storage by this process since it began; `None` where
/// it does not say.
pub fn process_written_bytes() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    let mut lines = io.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("write_bytes:"))?;
    bytes.trim().parse().ok()
}

/// The shared counters behind [`WriteCounts`]: one set per opened directory.
///
/// Aligned to a cache line of their own, because the log's writer counts on every put.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    bytes: [AtomicU64; Purpose::ALL.len()],
    file_syncs: AtomicU64,
    dir_syncs: AtomicU64,
}

// ORDER: Relaxed throughout. The counters are statistics: each is exact by itself, and nothing is
// concluded from one about another or about the data.
impl Counters {
    #[inline]
    pub(crate) fn add_bytes(&self, purpose: Purpose, count: usize) {
        self.bytes[purpose as usize].fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_file_sync(&self) {
        self.file_syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_dir_sync(&self) {
        self.dir_syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> WriteCounts {
        WriteCounts {
            bytes: std::array::from_fn(|index| self.bytes[index].load(Ordering::Relaxed)),
            file_syncs: self.file_syncs.load(Ordering::Relaxed),
            dir_syncs: self.dir_syncs.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_each_purpose_at_its_own_index() {
        let mut names = Vec::new();
        for (index, purpose) in Purpose::ALL.into_iter().enumerate() {
            assert_eq!(purpose as usize, index);
            names.push(purpose.name());
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Purpose::ALL.len());
    }

    #[test]
    fn the_system_counts_or_says_nothing() {
        let before = process_written_bytes();
        let after = process_written_bytes();
        assert_eq!(before.is_some(), after.is_some());
        assert!(before <= after);
    }

    #[test]
    fn counts_add_up_by_purpose() {
        let counters = Counters::default();
        counters.add_bytes(Purpose::Log, 10);
        let earlier = counters.read();
        counters.add_bytes(Purpose::Log, 5);
        counters.add_bytes(Purpose::Split, 7);
        counters.add_file_sync();
        counters.add_dir_sync();
        counters.add_dir_sync();
        let now = counters.read();
        assert_eq!(
            (now.bytes_of(Purpose::Log), now.total_bytes(), now.syncs()),
            (15, 22, 3)
        );
        let added = now.since(&earlier);
        assert_eq!(
            (added.bytes_of(Purpose::Log), added.bytes_of(Purpose::Split)),
            (5, 7)
        );
        assert_eq!((added.file_syncs, added.dir_syncs), (1, 2));
    }
}
