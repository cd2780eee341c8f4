//! The medium: the one way by which persistent memory is stored to, flushed and fenced.
//!
//! # Idea
//! A [`Medium`] is a region of memory and what must be done so that stores to it survive. On a
//! real medium each step is its instruction behind one predictable branch. A *watched* medium does
//! the same steps and reports each one to a [`Watcher`] under one lock, so that the order of the
//! reports is the order in which the stores became visible.
//!
//! # What a store needs to survive the loss of power
//! Only where the pool's class promises that (see [`Class`](super::PoolClass)): store, then
//! [`Medium::flush`], then [`Medium::fence`]. On other media flushes do nothing and fences are
//! free.
//!
//! Where there are checkpoints, every store takes note of its pages, flushed or not: so a
//! checkpoint is all that is in the pool at its moment. A structure that leaves stores unflushed
//! for a while, because a loss of power may take them from persistent memory, loses none of them to
//! a checkpoint that comes later.
//!
//! - A flush without a fence promises nothing. Neither does a fence promise anything about the
//!   flushes of other threads.
//! - A line that was not flushed may still reach the medium at any time.
//! - Aligned words of eight bytes are never torn.
//! - Stores past the cache need no flush, and a fence before anything that refers to them.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use std::thread::{self, ThreadId};

use parking_lot::Mutex;

use super::atomic::Media;
use super::checkpoint_gate;
use super::cpu::{self, FlushInstruction};
use super::dirty::DirtyPages;
use super::off::POff;
use super::region::{Region, words_of};
use super::trace::{LINE, TraceEvent, TraceStep, WORD, Watcher};
use crate::prefetch_line;

/// How stores reach the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushMode {
    /// They need no help: the memory is not durable, or the caches are.
    Nothing,
    /// Lines are written back by an instruction.
    Line(FlushInstruction),
    /// Flushes are reported to the watcher.
    Report,
}

/// A region of persistent memory and the steps on it. See the module's head.
#[derive(Clone)]
pub struct Medium {
    start: *mut u8,
    len: u64,
    mode: FlushMode,
    needs_fence: bool,
    is_watched: bool,
    /// Whether somebody takes note of stores: a watcher, or the next checkpoint.
    is_noted: bool,
    /// Whether stores are all there is to do: flushes and fences do nothing, and nobody takes note.
    is_plain: bool,
    region: Arc<Region>,
    watched: Option<Arc<WatchState>>,
    dirty: Option<Arc<DirtyPages>>,
}

// SAFETY: `start` is the start of the region, which is kept, and the region is Send and Sync.
unsafe impl Send for Medium {}
// SAFETY: as above.
unsafe impl Sync for Medium {}

/// The watcher, and the lock under which steps are done and reported.
pub(super) struct WatchState {
    watcher: Arc<dyn Watcher>,
    /// The threads seen so far; a thread's place is its number.
    threads: Mutex<Vec<ThreadId>>,
}

impl WatchState {
    fn report(
        &self,
        threads: &mut Vec<ThreadId>,
        step: TraceStep<'_>,
        site: &'static Location<'static>,
    ) {
        let thread = number_of_thread(threads);
        self.watcher.event(TraceEvent { step, site, thread });
    }
}

fn number_of_thread(threads: &mut Vec<ThreadId>) -> u32 {
    let current = thread::current().id();
    let known = threads.iter().position(|thread| *thread == current);
    let place = known.unwrap_or_else(|| {
        threads.push(current);
        threads.len() - 1
    });
    u32::try_from(place).unwrap_or(u32::MAX)
}

impl Medium {
    pub(super) fn new(
        region: Arc<Region>,
        mode: FlushMode,
        needs_fence: bool,
        watcher: Option<Arc<dyn Watcher>>,
    ) -> Medium {
        let watched = watcher.map(|watcher| {
            let threads = Mutex::default();
            Arc::new(WatchState { watcher, threads })
        });
        let mode = if watched.is_some() {
            FlushMode::Report
        } else {
            mode
        };
        Medium {
            start: region.start().as_ptr(),
            len: region.len() as u64,
            mode,
            needs_fence,
            is_watched: watched.is_some(),
            is_noted: watched.is_some(),
            is_plain: mode == FlushMode::Nothing && !needs_fence,
            region,
            watched,
            dirty: None,
        }
    }

    /// The same medium, taking note of the pages that are stored to.
    pub(super) fn noting(self, dirty: Option<Arc<DirtyPages>>) -> Medium {
        Medium {
            is_noted: self.is_noted || dirty.is_some(),
            is_plain: self.is_plain && dirty.is_none(),
            dirty,
            ..self
        }
    }

    /// Size in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a medium is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The memory itself, for tests and tools that look at all of it. What is written to it
    /// directly is neither flushed nor seen by a watcher.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Whether each step is reported to a watcher.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Whether somebody takes note of stores: a watcher, or the next checkpoint.
    #[inline]
    pub(super) fn is_noted(&self) -> bool {
        self.is_noted
    }

    /// Whether flushes and fences have nothing to do, and nobody takes note of stores.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The number of this thread among those that a watcher sees.
    #[inline]
    pub(super) fn watched_thread(&self) -> Option<u32> {
        let watched = self.watched.as_ref()?;
        Some(number_of_thread(&mut watched.threads.lock()))
    }

    /// The value at an offset.
    ///
    /// # Panics
    /// If it does not lie within the medium, or is not aligned for its type. For offsets read from
    /// a medium that may be damaged use [`Medium::try_at`].
    #[inline]
    #[track_caller]
    pub fn at<T: Media>(&self, offset: POff<T>) -> &T {
        let (offset, size) = (offset.raw(), size_of::<T>());
        if !self.holds(offset, size, align_of::<T>()) {
            out_of_bounds(offset, size as u64, self.len);
        }
        let address = self.address(offset).cast::<T>();
        // SAFETY: within the region and aligned, as was just checked; any bytes are a valid `T`
        // and all its fields are atomics (`Media`). The region lives as long as this medium.
        unsafe { &*address }
    }

    /// The value at an offset, if it lies within the medium and is aligned for its type.
    #[inline]
    pub fn try_at<T: Media>(&self, offset: POff<T>) -> Option<&T> {
        let offset = offset.raw();
        if !self.holds(offset, size_of::<T>(), align_of::<T>()) {
            return None;
        }
        let address = self.address(offset).cast::<T>();
        // SAFETY: as for `at`.
        Some(unsafe { &*address })
    }

    /// `count` values that lie one behind the other.
    ///
    /// # Panics
    /// As [`Medium::at`].
    #[inline]
    #[track_caller]
    pub fn slice<T: Media>(&self, offset: POff<T>, count: usize) -> &[T] {
        match self.try_slice(offset, count) {
            Some(values) => values,
            None => out_of_bounds(offset.raw(), count as u64 * size_of::<T>() as u64, self.len),
        }
    }

    /// `count` values that lie one behind the other, if they do within the medium and are aligned.
    #[inline]
    pub fn try_slice<T: Media>(&self, offset: POff<T>, count: usize) -> Option<&[T]> {
        let size = size_of::<T>().checked_mul(count)?;
        let offset = offset.raw();
        if !self.holds(offset, size, align_of::<T>()) {
            return None;
        }
        let address = self.address(offset).cast::<T>();
        // SAFETY: as for `at`.
        Some(unsafe { std::slice::from_raw_parts(address, count) })
    }

    /// Whether so many bytes from an offset on lie within the medium and are aligned.
    #[inline]
    fn holds(&self, offset: u64, size: usize, align: usize) -> bool {
        // Where the compiler sees that the sum cannot overflow, this is one comparison.
        let end = offset.checked_add(size as u64);
        end.is_some_and(|end| end <= self.len) && offset.is_multiple_of(align as u64)
    }

    /// The address of an offset.
    #[inline]
    fn address(&self, offset: u64) -> *mut u8 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "what is accessed lies within the region"
        )]
        self.start.wrapping_add(offset as usize)
    }

    /// The offset of a value that lies in this medium.
    ///
    /// # Panics
    /// If it does not.
    #[inline]
    #[track_caller]
    pub fn offset_of<T: ?Sized>(&self, value: &T) -> POff<T> {
        let address = std::ptr::from_ref(value).cast::<u8>().addr();
        let offset = (address as u64).wrapping_sub(self.start.addr() as u64);
        if offset >= self.len {
            out_of_bounds(offset, size_of_val(value) as u64, self.len);
        }
        POff::new(offset)
    }

    /// Starts to write back the lines of a value. It survives after the next [`Medium::fence`].
    #[inline]
    #[track_caller]
    pub fn flush<T: ?Sized>(&self, value: &T) {
        if self.mode != FlushMode::Nothing {
            self.flush_lines(self.offset_of(value).raw(), size_of_val(value) as u64);
        }
    }

    /// Starts to write back the lines of a range of bytes.
    #[inline]
    #[track_caller]
    pub fn flush_range(&self, offset: u64, len: u64) {
        if self.mode != FlushMode::Nothing {
            self.flush_lines(offset, len);
        }
    }

    #[track_caller]
    fn flush_lines(&self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        if offset > self.len || len > self.len - offset {
            out_of_bounds(offset, len, self.len);
        }
        let first = offset / LINE * LINE;
        match self.mode {
            FlushMode::Nothing => {}
            FlushMode::Line(instruction) => {
                for line in (first..offset + len).step_by(64) {
                    #[expect(clippy::cast_possible_truncation, reason = "within a region")]
                    // SAFETY: the line begins within the region, as was checked above.
                    let address = unsafe { self.start.add(line as usize) };
                    // SAFETY: mapped, and the instruction was detected.
                    unsafe { cpu::flush_line(instruction, address) };
                }
            }
            FlushMode::Report => {
                for offset in (first..offset + len).step_by(64) {
                    self.report(TraceStep::Flush { offset });
                }
            }
        }
    }

    /// Notes the pages of a store for the next checkpoint, if there will be one.
    pub(super) fn note_dirty(&self, offset: u64, len: u64) {
        if let Some(dirty) = &self.dirty {
            debug_assert!(
                checkpoint_gate::is_within(),
                "changes of a pool with checkpoints need write_guard"
            );
            dirty.note(offset, len);
        }
    }

    /// Waits until what this thread flushed, and stored past the cache, survives.
    #[inline]
    #[track_caller]
    pub fn fence(&self) {
        if self.is_plain {
            return plain_fence();
        }
        if self.needs_fence {
            cpu::store_fence();
        } else {
            plain_fence();
        }
        if self.is_watched() {
            self.report(TraceStep::Fence);
        }
    }

    /// Flushes a value and waits until it survives.
    #[inline]
    #[track_caller]
    pub fn persist<T: ?Sized>(&self, value: &T) {
        if self.is_plain {
            return plain_fence();
        }
        self.flush(value);
        self.fence();
    }

    /// Flushes a range of bytes and waits until it survives.
    #[inline]
    #[track_caller]
    pub fn persist_range(&self, offset: u64, len: u64) {
        self.flush_range(offset, len);
        self.fence();
    }

    /// Copies bytes into the medium through the cache, each aligned word within them at once.
    ///
    /// # Panics
    /// If they do not lie within the medium.
    #[inline]
    #[track_caller]
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let at = self.place(offset, bytes.len());
        if self.is_watched() {
            self.watched_step(TraceStep::Store { offset, bytes }, || {
                self.region.write(at, bytes)
            });
        } else {
            self.region.write(at, bytes);
        }
        if self.is_noted() {
            self.note_dirty(offset, bytes.len() as u64);
        }
    }

    /// Copies bytes into the medium past the cache: for bulk that is not read soon. They survive
    /// after the next [`Medium::fence`], without a flush, and a fence must come before anything
    /// that refers to them. Where the medium's class needs no flush this is [`Medium::write`].
    ///
    /// # Panics
    /// If they do not lie within the medium.
    #[track_caller]
    pub fn write_past_cache(&self, offset: u64, bytes: &[u8]) {
        let word = size_of::<u64>();
        let at = self.place(offset, bytes.len());
        let head = (at.next_multiple_of(word) - at).min(bytes.len());
        let words = (bytes.len() - head) / word * word;
        let (first, rest) = bytes.split_at(head);
        let (middle, last) = rest.split_at(words);
        // The ragged ends go through the cache.
        for (part, at) in [(first, offset), (last, offset + (head + words) as u64)] {
            if !part.is_empty() {
                self.write(at, part);
                self.flush_range(at, part.len() as u64);
            }
        }
        let step = TraceStep::NtStore {
            offset: offset + head as u64,
            bytes: middle,
        };
        self.words_past_cache(at + head, words, step, words_of(middle));
    }

    /// Fills a range with zeros past the cache, as [`Medium::write_past_cache`] does.
    ///
    /// # Panics
    /// If the range does not lie within the medium or its ends are not aligned to words.
    #[track_caller]
    pub fn zero(&self, offset: u64, len: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        assert!(
            offset.is_multiple_of(WORD) && len.is_multiple_of(WORD),
            "zeroing whole words"
        );
        let mut rest = offset..offset + len;
        while !rest.is_empty() {
            let size = (rest.end - rest.start).min(ZEROS.len() as u64);
            #[expect(clippy::cast_possible_truncation, reason = "at most the size of ZEROS")]
            let bytes = &ZEROS[..size as usize];
            let at = self.place(rest.start, bytes.len());
            let step = TraceStep::NtStore {
                offset: rest.start,
                bytes,
            };
            self.words_past_cache(at, bytes.len(), step, words_of(bytes));
            rest.start += size;
        }
    }

    #[track_caller]
    fn words_past_cache(
        &self,
        at: usize,
        len: usize,
        step: TraceStep<'_>,
        words: impl Iterator<Item = u64>,
    ) {
        if len == 0 {
            return;
        }
        let store = || {
            if matches!(self.mode, FlushMode::Line(_)) {
                // SAFETY: `place` found the range within the region; `at` is aligned to words.
                let target = unsafe { self.start.add(at) };
                #[expect(clippy::cast_ptr_alignment, reason = "`at` is aligned to words")]
                // SAFETY: as above, and the region is accessed atomically only.
                unsafe {
                    cpu::store_past_cache(target.cast::<u64>(), words);
                }
            } else {
                let (_, cells, _) = self.region.split(at, len);
                for (word, cell) in words.zip(cells) {
                    // ORDER: Relaxed: ordered by the fence that follows, as past the cache.
                    cell.store(word, Ordering::Relaxed);
                }
            }
        };
        if self.is_watched() {
            self.watched_step(step, store);
        } else {
            store();
        }
        self.note_dirty(at as u64, len as u64);
    }

    /// Copies bytes out of the medium, each aligned word within them at once.
    ///
    /// # Panics
    /// If they do not lie within the medium.
    #[inline]
    #[track_caller]
    pub fn read(&self, offset: u64, target: &mut [u8]) {
        let at = self.place(offset, target.len());
        self.touch_range(offset, target.len() as u64);
        self.region.read(at, target);
    }

    /// Whether the bytes at an offset are these.
    ///
    /// # Panics
    /// If so many bytes do not lie within the medium.
    #[inline]
    #[track_caller]
    pub fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        let at = self.place(offset, bytes.len());
        self.touch_range(offset, bytes.len() as u64);
        self.region.equals(at, bytes)
    }

    /// Tells a watcher that a value is read by `peek`, which it does not see.
    #[inline]
    #[track_caller]
    pub fn touch<T: ?Sized>(&self, value: &T) {
        if self.is_watched() {
            self.touch_range(self.offset_of(value).raw(), size_of_val(value) as u64);
        }
    }

    /// Tells a watcher that a range of bytes is read in a way that it does not see.
    #[inline]
    #[track_caller]
    pub fn touch_range(&self, offset: u64, len: u64) {
        if self.is_watched() {
            self.report(TraceStep::Load { offset, len });
        }
    }

    /// Asks for the line of an offset to be brought into the cache. Any offset will do.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        #[expect(clippy::cast_possible_truncation, reason = "a hint may miss")]
        prefetch_line(self.start.wrapping_add(offset as usize));
    }

    /// Tells the watcher that operation `op` of a history begins on this thread.
    #[track_caller]
    pub fn begin_operation(&self, op: u32) {
        if self.is_watched() {
            self.report(TraceStep::Begin { op });
        }
    }

    /// The place in the region of a range that is checked to lie within it.
    #[inline]
    #[track_caller]
    fn place(&self, offset: u64, len: usize) -> usize {
        if offset > self.len || len as u64 > self.len - offset {
            out_of_bounds(offset, len as u64, self.len);
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most the length of a region"
        )]
        let at = offset as usize;
        at
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn report(&self, step: TraceStep<'_>) {
        self.watched_step(step, || ());
    }

    /// Reports a step and does it, both under the lock.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn watched_step<R>(&self, step: TraceStep<'_>, act: impl FnOnce() -> R) -> R {
        let site = Location::caller();
        let Some(watched) = &self.watched else {
            return act();
        };
        let mut threads = watched.threads.lock();
        watched.report(&mut threads, step, site);
        let result = act();
        drop(threads);
        watched.watcher.pause();
        result
    }

    /// Reports a load, and then a store of what `change` makes of the loaded value if it makes
    /// anything, all under the lock. Returns the value before.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn watched_change<const N: usize>(
        &self,
        offset: u64,
        load: impl FnOnce() -> [u8; N],
        change: impl FnOnce([u8; N]) -> Option<[u8; N]>,
        store: impl FnOnce([u8; N]),
    ) -> [u8; N] {
        let site = Location::caller();
        let mut threads = self.watched.as_ref().map(|watched| watched.threads.lock());
        let mut report = |step: TraceStep<'_>| {
            if let (Some(watched), Some(threads)) = (&self.watched, &mut threads) {
                watched.report(threads, step, site);
            }
        };
        report(TraceStep::Load {
            offset,
            len: N as u64,
        });
        let before = load();
        if let Some(after) = change(before) {
            report(TraceStep::Store {
                offset,
                bytes: &after,
            });
            store(after);
        }
        drop(threads);
        if let Some(watched) = &self.watched {
            watched.watcher.pause();
        }
        before
    }
}

/// The fence of media whose class makes fences free.
#[inline]
fn plain_fence() {
    // ORDER: Release, so that the compiler moves no store across it; processors of this kind keep
    // the order of stores.
    compiler_fence(Ordering::Release);
}

#[cold]
#[inline(never)]
#[track_caller]
fn out_of_bounds(offset: u64, size: u64, len: u64) -> ! {
    panic!("{size} bytes at offset {offset:#x} are not aligned or leave the medium of {len} bytes")
}
