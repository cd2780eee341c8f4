//! SCMKV: a log-structured store of keys and values in persistent memory.
//!
//! # Idea
//! Keys and values are appended to logs, of which every thread has its own, and a hash table of one
//! word per bucket leads to them. A write touches the medium in two places: the end of a log, which
//! is written in sequence, and a word of the table. A value is never changed in place, so readers
//! need no lock, and what was overwritten is garbage that a cleaner gathers page by page.
//!
//! A log is made durable page by page, not record by record. What has to be durable at once is
//! small: the head of a record, with the address of the one that it replaces, and the word in the
//! table. If the power fails, recovery finds the records that were lost by their checks, and takes
//! the table back to what they had replaced.
//!
//! # Layout
//! See `layout.rs`. Pages are blocks of the pool. In DRAM there are the stripes (the locks of
//! writers, `stripes.rs`), and the usage of each page (`pages.rs`).
//!
//! # Invariants
//! Those of the table are in `table.rs` (T1 to T3), of pages in `pages.rs` (P1 to P3), of garbage
//! collection in `gc.rs` (G1 to G3). Besides:
//! - S1. The records of a log follow each other without gaps, and all their heads are durable but
//!   for that of the last one. So recovery walks through a log beyond a record that was lost.
//! - S2. A page that is full is durable. So only the open pages of logs can have lost anything.
//! - S3. If a record is lost, all records behind it in its log count as lost.
//!
//! # What a failure leaves: durability
//! - [`Durability::Strict`]: whatever has returned is there, and nothing is there by halves.
//! - [`Durability::Relaxed`], the paper's: when the power fails, a log may lose the puts at its
//!   end, at most those in its open page, and none from before the last [`Scmkv::persist`], the
//!   last delete or the last strict put of its thread. It loses a tail: never a put without all
//!   later puts of that log. Every key then has its newest value that was not lost. Deletes are
//!   never lost. What fails is only the power: the end of the process loses nothing.
//!
//! Both say what a pool survives on persistent memory. On other media it is less, as
//! [`Class`](gabion_media::pmem::PoolClass) tells.
//!
//! # Linearization point
//! Writes: the store of one word, in a bucket or in a chain. Reads: a moment at which what the
//! reader found was there.
//!
//! # Durability point
//! The persist of that word, before the stripe is free again. A reader that sees the stripe taken
//! after it has read first makes durable what it read, if the store is strict.
//!
//! | operation | flushed lines | persists |
//! |---|---|---|
//! | put, relaxed | the line of the record's head; the word | 2 |
//! | put, strict | the record; the word | 2 |
//! | delete | what its log has not persisted; the word | 1 or 2 |
//!
//! # Recovery
//! After a clean close: the page table. After a crash: the open pages of logs besides, each on a
//! thread of its own (`recovery.rs`). What is live in full pages is counted later, in the
//! background.
//!
//! # Deviations from the paper
//! - The flag for a writer is not in the bucket on the medium but in DRAM (`stripes.rs`): a flag
//!   would cost a write of the medium, and is found set after a crash.
//! - A bucket with a chain says how many lines the chain has, not how many entries: so each change
//!   is one store of a word, and there are no two that a crash can part. A single entry has a tag
//!   too, so that most lookups of absent keys end in the bucket.
//! - A delete writes no record but clears the word, after it made its log durable. A record of a
//!   delete could be lost like any other, and would have to stay in the table as long as it could.
//!   So deletes need no space, and a full store can be emptied.
//! - The cleaner's copies are durable before they are published, and it makes all logs durable
//!   before it gives a page back (G1, G2). The paper does not say what happens to a record that
//!   must be rolled back to one that is gone.
//! - The table can double while the store is in use (`enlarge.rs`), the paper's has one size.
//! - Chains begin with a word that leads to their bucket, so that pages of chains can be cleaned.
//!
//! # The paper's terms
//! | paper, section | here |
//! |---|---|
//! | superblock, checkpoint (3.2) | [`layout::Header`] |
//! | page information table (3.2) | [`layout::PageDescriptor`], `pages.rs` |
//! | bucket, chain, has_writer, nr_items, scm_addr, tag (3.3) | [`layout::Entry`], `stripes.rs` |
//! | kvobj, obj_size, kvobj_chsum, addr_of_oldobj (3.3) | [`layout::RecordHead`], `record.rs` |
//! | page management, log and object allocators (3.4) | `pages.rs`, `log.rs` |
//! | garbage collection (3.5) | `gc.rs` |
//! | shutdown and recovery (3.6) | `recovery.rs` |
//!
//! Source: Z. Wang, L. Huang, Y. Zhu, "SCMKV: a lightweight log-structured key-value store on SCM",
//! NPC 2017.

mod check;
mod cleaner;
mod enlarge;
mod gc;
mod layout;
mod log;
mod pages;
mod readpath;
mod record;
mod recovery;
mod stats;
mod steps;
mod stripes;
mod table;
mod writepath;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gabion_media::pmem::{Medium, POff, Pool};
use parking_lot::Mutex;

use crate::Seed;
use cleaner::Cleaner;
use gc::Cleaning;
use layout::Header;
use log::ThreadLogs;
use pages::PageTable;
use stats::Counts;
use stripes::StripeLocks;

pub use gc::Collected;
pub use readpath::{Entry, Iter};
pub use stats::{PageStats, PageUse, ScmkvStats};

/// The longest key, in bytes: one of 65,535, and eight bytes for whoever puts something before it.
pub const KEY_BYTES_MAX: u64 = 65_535 + 8;

/// What a failure of the power may take. See the module's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing that has returned.
    #[default]
    Strict,
    /// The newest puts of a log: the paper's way.
    Relaxed,
}

/// How a store is made and used. The first group counts when it is created.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries that the hash table is planned for; by default one for each 256 bytes of the pool.
    /// It has at least two buckets for each. With more entries, chains become longer, until the
    /// table doubles.
    pub capacity: Option<u64>,
    /// Bytes of a page, a power of two from 4 KiB to 1 GiB; the paper's 2 MiB by default. A record
    /// lies in one page, so that this limits values too: see [`Scmkv::value_bytes_max`].
    pub page_bytes: u64,
    /// Seed of the hash function, by default drawn at random.
    pub seed: Option<u64>,

    /// What a failure of the power may take of a put.
    pub durability: Durability,
    /// Logs. As many threads write without waiting for each other; more share. Each one that is
    /// used keeps two pages open. By default the number of processors.
    pub logs: Option<usize>,
    /// Whether a thread of the store cleans pages and doubles the table in the background. Without
    /// it, writers that find no space clean, and the table doubles when it is asked to.
    pub cleans: bool,
    /// Pages take at most so many times the bytes of what is live in them, and a little more,
    /// before the store's thread cleans some: at least 1. By default there is no such limit, and it
    /// cleans when an eighth of all pages is left. It is no hard limit: writers do not wait for it.
    pub space_amplification_max: f64,
    /// Whether two pages are kept for [`Scmkv::put_copy`].
    pub keeps_for_copies: bool,
    /// Whether values are checked whenever they are read. They are checked anyway by recovery, by
    /// the cleaner, by iteration and by [`Scmkv::check`].
    pub checks_reads: bool,
}

/// The paper's size of a page.
const PAGE_BYTES: u64 = 2 << 20;

impl Default for Options {
    fn default() -> Options {
        Options {
            capacity: None,
            page_bytes: PAGE_BYTES,
            seed: None,
            durability: Durability::Strict,
            logs: None,
            cleans: true,
            space_amplification_max: f64::INFINITY,
            keeps_for_copies: false,
            checks_reads: true,
        }
    }
}

/// A store of keys and values in a pool of persistent memory.
///
/// All operations take `&self` and may be called from any thread. When the last use of it ends
/// without [`Scmkv::close`], it is left as by a crash of the process: nothing is lost, and the next
/// open takes a little longer.
///
/// ```
/// use gabion_index::scmkv::{Options, Scmkv};
/// use gabion_media::pmem::{Pool, PoolOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::anonymous(PoolOptions { size: 64 << 20, ..Scmkv::pool_options() })?;
/// let store = Scmkv::create(&pool, &Options::default())?;
/// assert!(store.put(b"basket", b"stones")?);
/// assert_eq!(store.get(b"basket")?.as_deref(), Some(&b"stones"[..]));
/// assert!(store.delete(b"basket")?);
/// store.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Scmkv {
    /// Ends before the volume does.
    cleaner: Mutex<Option<Cleaner>>,
    volume: Arc<Volume>,
}

/// The store without its thread.
struct Volume {
    pool: Pool,
    medium: Medium,
    seed: Seed,
    header: POff<Header>,
    is_strict: bool,
    checks_reads: bool,
    space_amplification_max: f64,
    key_bytes_max: u64,
    value_bytes_max: u64,
    /// The tables of the header.
    table: AtomicU64,
    next: AtomicU64,
    stripes: StripeLocks,
    pages: PageTable,
    logs: ThreadLogs,
    cleaning: Mutex<Cleaning>,
    enlarging: Mutex<()>,
    counts: Counts,
    /// Pages that there can be.
    pages_max: AtomicU64,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("pool", &self.pool)
            .field("table", &self.table())
            .finish_non_exhaustive()
    }
}

impl Volume {
    fn durability(&self) -> Durability {
        if self.is_strict {
            Durability::Strict
        } else {
            Durability::Relaxed
        }
    }
}

impl Scmkv {
    /// The pool that the store lies in.
    pub fn pool(&self) -> &Pool {
        &self.volume.pool
    }

    /// Bytes of the longest value: with the longest key and a head it fills a page.
    pub fn value_bytes_max(&self) -> u64 {
        self.volume.value_bytes_max
    }
}
