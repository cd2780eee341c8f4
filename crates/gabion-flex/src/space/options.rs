//! Options of a space: its layout, and when it commits and collects garbage.

use super::geometry::Geometry;
use super::recovery::DurablePoint;
use crate::{Error, Result};

/// Bytes of a segment: the paper's choice. Large enough that a segment is written at the drive's
/// full speed, small enough that collecting one is quick.
pub const DEFAULT_SEGMENT_BYTES: u32 = 4 << 20;

/// Bytes under one checksum: a page, which is what the system reads at least.
pub const DEFAULT_BLOCK_BYTES: u32 = 4096;

/// Bytes of the log before the tree is written: 700,000 operations, which a recovery repeats within
/// a second.
pub const DEFAULT_LOG_BYTES: u64 = 16 << 20;

/// Parts of 32 of the data file that may be garbage: a quarter, so that the segments that are
/// emptied have a quarter of garbage or more.
pub const DEFAULT_GARBAGE_PARTS: u32 = 8;

/// Bytes of log records that wait in memory at most: 43,000 operations.
pub const DEFAULT_COMMIT_BYTES: usize = 1 << 20;

/// Bytes of the log that a small budget of the index leaves: 2,700 operations.
const LOG_BYTES_LEAST: u64 = 64 << 10;

/// Bytes of the log for each extent of the tree that it continues: two operations, so that a tree
/// that grows is saved each time it has grown to about three times its size.
const LOG_BYTES_PER_EXTENT: u64 = 48;

/// Options of a space.
///
/// Behaviour: [`Options::capacity_bytes`], [`Options::garbage_parts`], [`Options::reached`],
/// [`Options::managed`].
/// Performance:
/// [`Options::log_bytes`], [`Options::commit_bytes`], [`Options::index_bytes`],
/// [`Options::measure_waits`].
/// The sizes of segments and blocks are chosen
/// when a space is made and kept from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(crate) segment_bytes: u32,
    pub(crate) block_bytes: u32,
    pub(crate) capacity_bytes: Option<u64>,
    pub(crate) garbage_parts: u32,
    pub(crate) log_bytes: u64,
    pub(crate) commit_bytes: usize,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) managed: bool,
    pub(crate) index_bytes: Option<u64>,
    pub(crate) measure_waits: bool,
    pub(crate) reached: DurablePoint,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            block_bytes: DEFAULT_BLOCK_BYTES,
            capacity_bytes: None,
            garbage_parts: DEFAULT_GARBAGE_PARTS,
            log_bytes: DEFAULT_LOG_BYTES,
            commit_bytes: DEFAULT_COMMIT_BYTES,
            create: true,
            read_only: false,
            managed: false,
            index_bytes: None,
            measure_waits: false,
            reached: DurablePoint::default(),
        }
    }
}

impl Options {
    /// Bytes that the data file may take, eight segments at least; `None` is no limit. It never has
    /// more, whatever happens to the space. Of them data takes neither the 4 KiB of the header, nor
    /// the reserve for the collection of garbage, nor two of 32 parts of the rest.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: Option<u64>) -> Options {
        self.capacity_bytes = bytes;
        self
    }

    /// How many parts of 32 of the data file of a space without a capacity may be garbage before it
    /// is collected, beside the reserve: 1 to 31. Fewer save space, and cost more writes.
    #[must_use]
    pub fn garbage_parts(mut self, parts: u32) -> Options {
        self.garbage_parts = parts;
        self
    }

    /// Bytes of a segment of a new space: a power of two from 4 KiB to 1 GiB.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u32) -> Options {
        self.segment_bytes = bytes;
        self
    }

    /// Bytes under one checksum in a new space: a power of two from 256 to an eighth of a segment.
    #[must_use]
    pub fn block_bytes(mut self, bytes: u32) -> Options {
        self.block_bytes = bytes;
        self
    }

    /// Bytes of the log before the tree is written, 4 KiB at least. Where the index has a
    /// [budget](Options::index_bytes), a quarter of that is enough; and it is 48 bytes for each
    /// extent of the tree, or 64 KiB, if that is less.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Options {
        self.log_bytes = bytes;
        self
    }

    /// Bytes of log records that wait in memory for a commit at most. What waits is lost with the
    /// process; [`sync`](crate::FlexSpace::sync) commits at once.
    #[must_use]
    pub fn commit_bytes(mut self, bytes: usize) -> Options {
        self.commit_bytes = bytes;
        self
    }

    /// Memory for the index in bytes: some 24 for each extent are needed to hold all of it, which
    /// `None` allows, the default. With less, parts of it are read from the medium when they are
    /// needed, and the index is saved more often, since what changed stays in memory until then. It
    /// takes more than its budget by what one group of edits touches, and is not kept below 8 KiB
    /// of what changed, nor below what is above its leaves, a fortieth of the whole.
    #[must_use]
    pub fn index_bytes(mut self, bytes: Option<u64>) -> Options {
        self.index_bytes = bytes;
        self
    }

    /// Whether a space is made where there is none; yes unless said otherwise.
    #[must_use]
    pub fn create(mut self, create: bool) -> Options {
        self.create = create;
        self
    }

    /// Whether the space is opened for reading only: nothing of it is written, several readers may
    /// have it open at the same time, and a change is an error. No unless said otherwise.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }

    /// Whether the space is one of many that somebody looks after, who keeps a second opener out of
    /// all of them, and removes the files that are [of none of them](crate::FlexSpace::file_names);
    /// no unless said otherwise. It has no lock of its own then, keeps no room aside for a full
    /// disk, and does not list its directory when it is opened, which for many spaces of one
    /// directory takes quadratic time.
    #[must_use]
    pub fn managed(mut self, managed: bool) -> Options {
        self.managed = managed;
        self
    }

    /// Whether the space measures for how long changes keep reads out, see
    /// [`FlexSpace::reader_waits`](crate::FlexSpace::reader_waits). Costs two looks at the clock
    /// for each step of a change; no unless said otherwise.
    #[must_use]
    pub fn measure_waits(mut self, measure: bool) -> Options {
        self.measure_waits = measure;
        self
    }

    /// A moment that the space is known to have reached: a space that ends before it is not opened.
    /// The newest commit of a log, and the newer header of the tree, cannot be told from the torn
    /// end of a crash when they are damaged; by this they can.
    #[must_use]
    pub fn reached(mut self, point: DurablePoint) -> Options {
        self.reached = point;
        self
    }

    /// Bytes of the log of a tree with so many extents, where the index has a budget: with a small
    /// one it is saved long before the log is full; a small tree is saved faster than a large log
    /// is made, which takes its space from the start.
    pub(crate) fn log_bytes_for(&self, index_bytes: Option<u64>, extents: u64) -> u64 {
        let budget = index_bytes.map_or(u64::MAX, |bytes| bytes / 4);
        let worth = budget.min(extents.saturating_mul(LOG_BYTES_PER_EXTENT));
        self.log_bytes.min(worth.max(LOG_BYTES_LEAST))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let segment = self.segment_bytes;
        let block = self.block_bytes;
        let refuse = |what: &str| {
            Err(Error::Options {
                what: what.to_owned(),
            })
        };
        if !segment.is_power_of_two() || !(4 << 10..=1 << 30).contains(&segment) {
            return refuse("segment_bytes must be a power of two from 4 KiB to 1 GiB");
        }
        if !block.is_power_of_two() || block < 256 || block > segment / 8 {
            return refuse("block_bytes must be a power of two from 256 to an eighth of a segment");
        }
        if !(1..32).contains(&self.garbage_parts) {
            return refuse("garbage_parts must be 1 to 31");
        }
        if self.log_bytes < 4 << 10 {
            return refuse("log_bytes must be at least 4 KiB");
        }
        Ok(())
    }

    /// Checks what depends on the space's own sizes.
    pub(crate) fn check_capacity(&self, geometry: &Geometry) -> Result<()> {
        let least = 8 * geometry.segment_bytes();
        match self.capacity_bytes {
            Some(bytes) if bytes < least => Err(Error::Options {
                what: format!("capacity_bytes must be at least eight segments, {least} bytes"),
            }),
            _ => Ok(()),
        }
    }
}
