//! What most users never set: sizes that follow from others, the papers' parameters, switches of
//! single mechanisms, and what tests need.

use super::rules::{check_rules, setters};
use super::values::MemTableForm;
use crate::types::INITIAL_LEVELS;
use crate::{Clock, Result};

/// Up to this number of processors single writes run one behind the other. With two, and one of
/// them busy with the background's work, a writer that the system interrupts holds up the other so
/// often that two side by side reach half of what they reach one behind the other.
const PROCESSORS_OF_ONE_LANE: usize = 2;

/// Options whose defaults suit nearly every store. Change one at a time, and measure.
///
/// ```
/// use gabion::{MemTableForm, Options, Tuning};
///
/// let tuning = Tuning::default().block_bytes(16 << 10).memtable_form(MemTableForm::Ordered);
/// let options = Options::default().tuning(tuning);
/// # options.check().unwrap();
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Tuning {
    // Memory.
    /// Memory of all MemTables together, in bytes. At least 1 KiB. Default: `None`: it follows from
    /// [`Options::memory_bytes_max`](crate::Options::memory_bytes_max).
    pub memtable_budget_bytes: Option<u64>,
    /// Size of the block cache in bytes, for tables that are not mapped. Compressed ones never are.
    /// All keyspaces share it. 0: no cache. Default: `None`: it follows from
    /// [`Options::memory_bytes_max`](crate::Options::memory_bytes_max).
    pub cache_bytes: Option<u64>,
    /// How MemTables keep their records. Default: [`MemTableForm::Adaptive`].
    pub memtable_form: MemTableForm,
    /// Number of range scans that meet new writes in a MemTable before it keeps its keys in order,
    /// if the form is adaptive. Sorting new keys costs such a scan some microseconds, and all
    /// others a walk over several sorted parts. Ordering a MemTable of 2 MiB costs some
    /// milliseconds once, and from then on a put costs about half as much again. Default: 16.
    pub scans_until_ordered: u32,

    // Tables.
    /// Size of a table's blocks in bytes before compression, 64 to 32,768. Default: 4,096, one page
    /// of the system's page cache and of most drives.
    pub block_bytes: usize,
    /// Bits per key of the filters, at most 32; 0 means no filters. Default: 10, for about 1 % of
    /// false positives.
    pub filter_bits_per_key: u32,
    /// Reads mapped blocks by a system call and checks them at each access, not only at the first,
    /// and checks the order of what flushes and compactions write. This finds damage to data in
    /// memory, at the price of a call and a checksum. Default: false.
    pub paranoid_checks: bool,

    // Buckets of WipDB.
    /// Size in bytes at which a bucket splits. At least 1 KiB. Default: 64 MiB: a MemTable is a
    /// fraction of it, and rewriting a whole bucket takes less than a second.
    pub bucket_bytes: u64,
    /// Number of buckets into which a full one splits, at most: the paper's N. 2 to 64.
    /// Default: 8.
    pub split_ways: usize,
    /// Sublevels at which a level may be compacted when nothing else is due, at least: the paper's
    /// min_count. Where a bucket holds more than 32 flushes, its levels take more. From 2 to
    /// `sublevels_max`. Default: 4.
    pub sublevels_min: usize,
    /// Sublevels at which a level must be compacted, at least, as for `sublevels_min`: the paper's
    /// T. 2 to 21. Default: 8.
    pub sublevels_max: usize,
    /// How much the reads of a bucket weigh, relative to the number of its sublevels, when one of
    /// several compactions must come first: the paper's read_weight. 0 means that reads do not
    /// count. Default: 10: a level that is read as much as the average counts as much as one with
    /// ten times the average of sublevels.
    pub read_weight: u32,

    // Threads.
    /// Bytes that flushes, compactions and splits, or merges and collections of garbage, may write
    /// per second; 0: no limit. Flushes come first, then compactions of full levels. The limit
    /// yields before writers would stop: a store that takes writes faster than this flushes as fast
    /// as it must. Default: 0.
    pub background_bytes_per_second_max: u64,
    /// Whether single writes of several threads run in parallel or one after the other. Default: in
    /// parallel with more than two processors.
    pub concurrent_writers: bool,

    // For tests.
    /// Where the store gets the time from. Default: the system's clock.
    pub clock: Clock,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            memtable_budget_bytes: None,
            cache_bytes: None,
            memtable_form: MemTableForm::default(),
            scans_until_ordered: 16,
            block_bytes: 4096,
            filter_bits_per_key: 10,
            paranoid_checks: false,
            bucket_bytes: 64 << 20,
            split_ways: 8,
            sublevels_min: 4,
            sublevels_max: 8,
            read_weight: 10,
            background_bytes_per_second_max: 0,
            concurrent_writers: std::thread::available_parallelism()
                .is_ok_and(|processors| processors.get() > PROCESSORS_OF_ONE_LANE),
            clock: Clock::system(),
        }
    }
}

setters!(Tuning {
    memtable_budget_bytes: u64,
    cache_bytes: u64,
    memtable_form: MemTableForm,
    scans_until_ordered: u32,
    block_bytes: usize,
    filter_bits_per_key: u32,
    paranoid_checks: bool,
    bucket_bytes: u64,
    split_ways: usize,
    sublevels_min: usize,
    sublevels_max: usize,
    read_weight: u32,
    background_bytes_per_second_max: u64,
    concurrent_writers: bool,
    clock: Clock,
});

impl Tuning {
    /// Checks every value that could not work.
    pub(super) fn check(&self) -> Result<()> {
        check_rules(&[
            (
                "memtable_budget_bytes",
                self.memtable_budget_bytes
                    .is_none_or(|bytes| bytes >= 1 << 10),
                "it must be at least 1024 bytes",
            ),
            (
                "block_bytes",
                (64..=32 << 10).contains(&self.block_bytes),
                "it must be 64 to 32768 bytes",
            ),
            (
                "filter_bits_per_key",
                self.filter_bits_per_key <= 32,
                "it must be at most 32 bits",
            ),
            (
                "bucket_bytes",
                self.bucket_bytes >= 1 << 10,
                "it must be at least 1024 bytes",
            ),
            (
                "split_ways",
                (2..=64).contains(&self.split_ways),
                "it must be between 2 and 64",
            ),
            (
                "sublevels_min",
                (2..=self.sublevels_max).contains(&self.sublevels_min),
                "it must be between 2 and sublevels_max",
            ),
            (
                "sublevels_max",
                (2..=64 / INITIAL_LEVELS).contains(&self.sublevels_max),
                "it must be between 2 and 21",
            ),
        ])
    }
}
