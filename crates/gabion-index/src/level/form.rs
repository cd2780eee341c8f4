//! Forms of the table: what its buckets are, how values are replaced, how it grows.

use crate::bucket::Bucket;
use crate::line::Line;
use crate::quad::Quad;

/// A form of a [`LevelTable`](super::LevelTable).
pub trait Form: Send + Sync + 'static {
    /// The buckets.
    type Bucket: Bucket;

    /// What kind of structure the pool is told that it holds; the magic of the root as well.
    const LAYOUT: u64;

    /// Bytes behind each bucket.
    const PADDING: u64 = 0;

    /// Whether a value of several words is logged even if its bucket has a free slot.
    const LOGS_ALWAYS: bool = false;

    /// Whether an entry may be moved to a place of the other level. The slides move within one.
    const MOVES_BETWEEN_LEVELS: bool = true;

    /// Whether a resize writes buckets as a whole, past the cache. Else it inserts entries one by
    /// one, each with its persists.
    const STREAMS: bool = true;
}

/// Buckets of a cache line.
#[derive(Debug)]
pub struct Lines;

impl Form for Lines {
    type Bucket = Line;
    const LAYOUT: u64 = u64::from_le_bytes(*b"GbLevel1");
}

/// Buckets of a cache line with 8 bytes behind each, as in the published code: so they lie in two
/// cache lines.
#[derive(Debug)]
pub struct Padded;

impl Form for Padded {
    type Bucket = Line;
    const LAYOUT: u64 = u64::from_le_bytes(*b"GbLevelP");
    const PADDING: u64 = 8;
}

/// The slides' buckets of four slots, for values of two words, with movements as they have them,
/// and a growth that inserts.
#[derive(Debug)]
pub struct Quads;

impl Form for Quads {
    type Bucket = Quad;
    const LAYOUT: u64 = u64::from_le_bytes(*b"GbLevelQ");
    const MOVES_BETWEEN_LEVELS: bool = false;
    const STREAMS: bool = false;
}

/// As [`Quads`], with a growth that writes buckets as a whole.
#[derive(Debug)]
pub struct StreamedQuads;

impl Form for StreamedQuads {
    type Bucket = Quad;
    const LAYOUT: u64 = u64::from_le_bytes(*b"GbLevelS");
    const MOVES_BETWEEN_LEVELS: bool = false;
}

/// As [`Quads`], with a log for every update: what the slides compare with.
#[derive(Debug)]
pub struct LoggedQuads;

impl Form for LoggedQuads {
    type Bucket = Quad;
    const LAYOUT: u64 = u64::from_le_bytes(*b"GbLevelL");
    const LOGS_ALWAYS: bool = true;
    const MOVES_BETWEEN_LEVELS: bool = false;
    const STREAMS: bool = false;
}
