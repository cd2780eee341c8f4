//! Forms of the table: with the write-amplification study's optimisations, and without them.
//!
//! The published table has its locks in the buckets and flushes twice for an insert; the study took
//! that apart step by step (figure 10c). The forms here are its steps, and what this crate makes of
//! them:
//!
//! | form | pair, token | locks | bucket | lines that an insert flushes |
//! |---|---|---|---|---|
//! | [`Published`] | one by one | in buckets | 64 bytes | 2; one more is left to the cache |
//! | [`Coalesced`] | at once | in buckets | 64 bytes | 1; one more is left to the cache |
//! | [`Evicting`] | at once | in buckets, flushed | 64 bytes | 2, the second without a fence |
//! | [`EvictingWide`] | at once | in buckets, flushed | 256 bytes | 2, the second without a fence |
//! | [`Best`] | at once | in DRAM | 64 bytes | 1 |
//! | [`Wide`] | at once | in DRAM | 256 bytes | 1 |

use std::fmt::Debug;

/// What a form of the table has.
pub trait Form: Copy + Eq + Debug + Send + Sync + 'static {
    /// Magic of the root.
    const LAYOUT: u64;
    /// Whether a new pair and its token are flushed at once: "cache flush coalescing".
    const IS_COALESCED: bool;
    /// Where the locks are.
    const LOCKS: LockPlace;
    /// Lines of a bucket: 1, or 4, which fill a line of the media: "XPLine-aware unit sizing".
    const LINES: u64;
}

/// Where the locks of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockPlace {
    /// In DRAM, by the first bits of hashes.
    Dram,
    /// In each bucket, on the medium.
    Bucket,
    /// In each bucket, and flushed when it is let go, into the line of the media that the flush
    /// before has just opened: "early eviction of volatile data".
    BucketFlushed,
}

macro_rules! forms {
    ($(
        $(#[$about:meta])*
        $name:ident $layout:literal $coalesced:literal $locks:ident $lines:literal
    )+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {}

        impl Form for $name {
            const LAYOUT: u64 = u64::from_le_bytes(*$layout);
            const IS_COALESCED: bool = $coalesced;
            const LOCKS: LockPlace = LockPlace::$locks;
            const LINES: u64 = $lines;
        }
    )+};
}

forms! {
    /// The form of [`PClht`](super::PClht).
    Best b"GbPClht1" true Dram 1
    /// With buckets of 256 bytes.
    Wide b"GbPClhtW" true Dram 4
    /// None of the optimisations.
    Published b"GbPClht0" false Bucket 1
    /// Cache flush coalescing.
    Coalesced b"GbPClhtC" true Bucket 1
    /// That, and early eviction of volatile data.
    Evicting b"GbPClhtE" true BucketFlushed 1
    /// That, and buckets of 256 bytes.
    EvictingWide b"GbPClhtX" true BucketFlushed 4
}
