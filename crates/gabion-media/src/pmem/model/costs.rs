//! The costs of a run on the medium.

use std::ops::Sub;

/// Counts since the model was made, or between two moments by subtraction.
///
/// The write pending queue takes lines of 64 bytes; reads and writes of the media are in lines of
/// the media, 256 bytes on Optane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Operations of the structure that returned.
    pub operations: u64,
    /// Stores, through the cache and past it.
    pub stores: u64,
    /// Bytes that they stored.
    pub bytes_stored: u64,
    /// Loads that were reported.
    pub loads: u64,
    /// Flushes, also of lines that were clean.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Lines fetched into the cache.
    pub cache_misses: u64,
    /// Lines that flushes put into the write pending queue.
    pub wpq_flushed: u64,
    /// Lines that evictions put there.
    pub wpq_evicted: u64,
    /// Lines, whole or in part, that stores past the cache put there.
    pub wpq_streamed: u64,
    /// Lines that the media wrote.
    pub media_writes: u64,
    /// Lines that the media read: for loads, and to complete lines written in part.
    pub media_reads: u64,
    /// Bytes of a line of the media.
    pub media_line_bytes: u64,
    /// What the run would have taken on one thread, in nanoseconds.
    pub estimated_ns: u64,
}

impl Costs {
    /// Lines that reached the write pending queue, as processors count them.
    pub const fn wpq_inserts(&self) -> u64 {
        self.wpq_flushed + self.wpq_evicted + self.wpq_streamed
    }

    /// Media writes as the counters of the papers have them: one per 64 bytes.
    pub const fn media_writes_64(&self) -> u64 {
        self.media_writes * (self.media_line_bytes / 64)
    }

    /// Media writes in units of 64 bytes per line that reached the queue: the papers' table 2. 0
    /// if nothing did.
    pub fn media_writes_per_insert(&self) -> f64 {
        ratio(self.media_writes_64(), self.wpq_inserts())
    }

    /// Bytes written to the media per byte stored. 0 if nothing was stored.
    pub fn amplification(&self) -> f64 {
        ratio(self.bytes_media_written(), self.bytes_stored)
    }

    /// Bytes written to the media.
    pub const fn bytes_media_written(&self) -> u64 {
        self.media_writes * self.media_line_bytes
    }

    /// Bytes read from the media.
    pub const fn bytes_media_read(&self) -> u64 {
        self.media_reads * self.media_line_bytes
    }

    /// The counts divided by `operations`, or nothing if there were none.
    pub fn per_operation(&self) -> Option<PerOperation> {
        let per = |count: u64| ratio(count, self.operations);
        (self.operations > 0).then(|| PerOperation {
            bytes_stored: per(self.bytes_stored),
            flushes: per(self.flushes),
            fences: per(self.fences),
            wpq_inserts: per(self.wpq_inserts()),
            media_writes_64: per(self.media_writes_64()),
            bytes_media_written: per(self.bytes_media_written()),
            bytes_media_read: per(self.bytes_media_read()),
            estimated_ns: per(self.estimated_ns),
        })
    }
}

/// Costs of an operation on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerOperation {
    /// Bytes stored.
    pub bytes_stored: f64,
    /// Flushes.
    pub flushes: f64,
    /// Fences.
    pub fences: f64,
    /// Lines that reached the write pending queue.
    pub wpq_inserts: f64,
    /// Media writes in units of 64 bytes, as the papers count them.
    pub media_writes_64: f64,
    /// Bytes written to the media.
    pub bytes_media_written: f64,
    /// Bytes read from the media.
    pub bytes_media_read: f64,
    /// Nanoseconds.
    pub estimated_ns: f64,
}

impl Sub for Costs {
    type Output = Costs;

    /// What came between an earlier moment and this one.
    fn sub(self, earlier: Costs) -> Costs {
        Costs {
            operations: self.operations - earlier.operations,
            stores: self.stores - earlier.stores,
            bytes_stored: self.bytes_stored - earlier.bytes_stored,
            loads: self.loads - earlier.loads,
            flushes: self.flushes - earlier.flushes,
            fences: self.fences - earlier.fences,
            cache_misses: self.cache_misses - earlier.cache_misses,
            wpq_flushed: self.wpq_flushed - earlier.wpq_flushed,
            wpq_evicted: self.wpq_evicted - earlier.wpq_evicted,
            wpq_streamed: self.wpq_streamed - earlier.wpq_streamed,
            media_writes: self.media_writes - earlier.media_writes,
            media_reads: self.media_reads - earlier.media_reads,
            media_line_bytes: self.media_line_bytes,
            estimated_ns: self.estimated_ns - earlier.estimated_ns,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts for people")]
fn ratio(count: u64, of: u64) -> f64 {
    if of == 0 {
        0.0
    } else {
        count as f64 / of as f64
    }
}
