//! A deterministic model of the write path: computes what the steps of a run cost on persistent
//! memory.
//!
//! # Idea
//! Persistent memory amplifies writes twice (Kim et al., the write amplification of indexes on
//! persistent memory, figures 1 and 2): a store of some bytes becomes a cache line of 64 bytes on
//! its way to the memory controller, and that becomes a line of 256 bytes on the media. The model
//! sends every step of a run down this path and counts at each station:
//!
//! ```text
//! stores, loads ──> cache ──flush, eviction──> write pending queue ──> combining buffer ──> media
//!                   lines of 64 bytes          lines of 64 bytes       16 KiB of            lines
//!                                                                      256-byte lines
//! stores past the cache ──combined until a fence──> write pending queue
//! loads that miss <── combining buffer, read buffer <── media
//! ```
//!
//! # Invariants
//! - I1 The same events give the same counts: there is neither chance nor a clock in the model.
//! - I2 Each dirty line reaches the queue once: by its flush, by its eviction, or not yet.
//! - I3 A line of the media is written when it leaves the combining buffer; what is still there is
//!   counted by [`Model::drain`].
//! - I4 A line that was written only in part is read first, unless its rest is in the read buffer
//!   when its first part arrives.
//!
//! # Time
//! The estimate is that of a single thread that waits for each miss and, at a fence, for its
//! flushes to reach the queue. The media works on beside it; when more work waits than its buffers
//! hold, flushes wait for it. So the estimate says what an operation costs, not what a processor
//! that overlaps its misses could make of many.
//!
//! # Deviations
//! One cache stands for all levels. Prefetching is left out. The combining buffer gives up the
//! least recently written line; the hardware's choice is not published.

mod buffers;
mod cache;
mod costs;
mod preset;
#[cfg(test)]
mod tests;

pub use costs::{Costs, PerOperation};
pub use preset::{Preset, Times};

use buffers::{ReadBuffer, WriteCombiningBuffer};
use cache::ModelCache;
use parking_lot::Mutex;

use super::trace::{LINE, TraceEvent, TraceStep, Watcher};

/// Lines that stores past the cache fill at the same time, as many as processors have.
const STREAMS: usize = 10;

/// Counts and costs the events of a run. Memory: about 24 bytes per line of the cache.
pub struct Model {
    preset: Preset,
    cache: ModelCache,
    streams: Vec<Stream>,
    combining: WriteCombiningBuffer,
    read_buffer: ReadBuffer,
    clock: Clock,
    costs: Costs,
}

/// A line that stores past the cache are filling.
struct Stream {
    line: u64,
    /// One bit for each byte.
    filled: u64,
}

/// Time on the model, in picoseconds.
#[derive(Default)]
struct Clock {
    now: u64,
    /// When the media has done all that it was given.
    media_free: u64,
    /// When the queue will have taken all lines that were flushed.
    accepted: u64,
}

/// Why a line goes to the write pending queue.
#[derive(Clone, Copy)]
enum Cause {
    Flush,
    Eviction,
    Stream,
}

impl Model {
    /// A medium that was not used yet, behind an empty cache.
    pub fn new(preset: Preset) -> Model {
        let parts = preset.media_line_bytes / LINE;
        Model {
            preset,
            cache: ModelCache::new(preset.cache_bytes, preset.cache_ways),
            streams: Vec::with_capacity(STREAMS),
            combining: WriteCombiningBuffer::new(preset.combining_lines, parts),
            read_buffer: ReadBuffer::new(preset.read_lines),
            clock: Clock::default(),
            costs: Costs {
                media_line_bytes: preset.media_line_bytes,
                ..Costs::default()
            },
        }
    }

    /// What the medium is.
    pub fn preset(&self) -> &Preset {
        &self.preset
    }

    /// The counts so far. What waits in the cache and in the buffers is not in them.
    pub fn costs(&self) -> Costs {
        Costs {
            estimated_ns: self.clock.now / 1000,
            ..self.costs
        }
    }

    /// Lines of the media that wait in the combining buffer. With [`Costs::media_writes`] they are
    /// all that were begun, so a step that began one is told by the difference that it makes.
    pub fn lines_waiting(&self) -> u64 {
        self.combining.len() as u64
    }

    /// Takes the next step of the run.
    pub fn step(&mut self, step: TraceStep<'_>) {
        match step {
            TraceStep::Store { offset, bytes } => {
                self.count_store(bytes);
                self.touch(offset, bytes.len() as u64, true);
            }
            TraceStep::NtStore { offset, bytes } => {
                self.count_store(bytes);
                self.stream(offset, bytes.len() as u64);
            }
            TraceStep::Load { offset, len } => {
                self.costs.loads += 1;
                self.touch(offset, len, false);
            }
            TraceStep::Flush { offset } => {
                self.costs.flushes += 1;
                let line = offset / LINE;
                if self.cache.flush(line, self.preset.flush_keeps_line) {
                    self.insert(line, Cause::Flush);
                }
            }
            TraceStep::Fence => {
                self.costs.fences += 1;
                self.end_streams();
                self.clock.now = self.clock.now.max(self.clock.accepted);
            }
            TraceStep::Begin { .. } => {}
            TraceStep::End { .. } => self.costs.operations += 1,
        }
    }

    /// Writes the medium's buffers to the media, as it does when it is idle. Dirty lines stay in
    /// the cache.
    pub fn drain(&mut self) {
        self.end_streams();
        for written in self.combining.drain() {
            self.write_media(written);
        }
    }

    /// Writes the dirty lines of the cache back, and then the buffers to the media: all that was
    /// stored has been counted.
    pub fn drain_all(&mut self) {
        for line in self.cache.write_back() {
            self.insert(line, Cause::Eviction);
        }
        self.drain();
    }

    fn count_store(&mut self, bytes: &[u8]) {
        self.costs.stores += 1;
        self.costs.bytes_stored += bytes.len() as u64;
    }

    /// Loads or stores bytes through the cache.
    fn touch(&mut self, offset: u64, len: u64, is_store: bool) {
        if len == 0 {
            return;
        }
        for line in offset / LINE..=(offset + len - 1) / LINE {
            self.end_stream_of(line);
            let used = self.cache.touch(line, is_store);
            if let Some(evicted) = used.evicted {
                self.insert(evicted, Cause::Eviction);
            }
            if used.hit {
                self.clock.now += self.preset.times.cache_hit_ps;
            } else {
                self.costs.cache_misses += 1;
                self.fetch(line);
            }
        }
    }

    /// Brings a line into the cache from where it lies.
    fn fetch(&mut self, line: u64) {
        let times = self.preset.times;
        let (media_line, part) = self.on_media(line);
        if self.combining.holds(media_line, part) || self.read_buffer.holds(media_line) {
            self.clock.now += times.buffer_read_ps;
            return;
        }
        self.read_media(media_line);
        self.clock.now += times.media_read_ps;
    }

    /// Stores bytes past the cache: full lines go to the queue at once.
    fn stream(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let line = at / LINE;
            let upto = end.min((line + 1) * LINE);
            if self.cache.flush(line, false) {
                self.insert(line, Cause::Eviction);
            }
            let filled = (u64::MAX >> (64 - (upto - at))) << (at % LINE);
            self.fill(line, filled);
            self.clock.now += self.preset.times.cache_hit_ps;
            at = upto;
        }
    }

    fn fill(&mut self, line: u64, filled: u64) {
        let found = self.streams.iter().position(|stream| stream.line == line);
        let index = found.unwrap_or_else(|| {
            if self.streams.len() == STREAMS {
                let oldest = self.streams.remove(0);
                self.insert(oldest.line, Cause::Stream);
            }
            self.streams.push(Stream { line, filled: 0 });
            self.streams.len() - 1
        });
        self.streams[index].filled |= filled;
        if self.streams[index].filled == u64::MAX {
            self.streams.remove(index);
            self.insert(line, Cause::Stream);
        }
    }

    fn end_stream_of(&mut self, line: u64) {
        if let Some(at) = self.streams.iter().position(|stream| stream.line == line) {
            self.streams.remove(at);
            self.insert(line, Cause::Stream);
        }
    }

    fn end_streams(&mut self) {
        for stream in std::mem::take(&mut self.streams) {
            self.insert(stream.line, Cause::Stream);
        }
    }

    /// A line enters the write pending queue and moves on into the combining buffer.
    fn insert(&mut self, line: u64, cause: Cause) {
        match cause {
            Cause::Flush => self.costs.wpq_flushed += 1,
            Cause::Eviction => self.costs.wpq_evicted += 1,
            Cause::Stream => self.costs.wpq_streamed += 1,
        }
        let (media_line, part) = self.on_media(line);
        let is_read = self.read_buffer.holds(media_line);
        if let Some(written) = self.combining.take(media_line, part, is_read) {
            self.write_media(written);
        }
        // The queue takes the line once the media's backlog leaves room for it.
        let times = &self.preset.times;
        let room = self.clock.media_free.saturating_sub(times.backlog_ps);
        let accepted = self.clock.now.max(room) + times.accept_ps;
        self.clock.accepted = self.clock.accepted.max(accepted);
    }

    fn write_media(&mut self, written: buffers::LineWrite) {
        if written.needs_read {
            self.read_media(written.line);
        }
        self.costs.media_writes += 1;
        self.work(self.preset.times.media_write_busy_ps);
    }

    fn read_media(&mut self, line: u64) {
        self.costs.media_reads += 1;
        self.read_buffer.take(line);
        self.work(self.preset.times.media_read_busy_ps);
    }

    fn work(&mut self, busy_ps: u64) {
        self.clock.media_free = self.clock.media_free.max(self.clock.now) + busy_ps;
    }

    /// The line of the media that holds a cache line, and which part of it that is.
    fn on_media(&self, line: u64) -> (u64, u64) {
        let parts = self.preset.media_line_bytes / LINE;
        (line / parts, line % parts)
    }
}

impl Watcher for Mutex<Model> {
    fn event(&self, event: TraceEvent<'_>) {
        self.lock().step(event.step);
    }
}
