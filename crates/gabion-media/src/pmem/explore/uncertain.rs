//! Uncertain stores: those that may or may not survive, and the possible contents of each line.
//!
//! # Rules
//! - R1 Stores through the cache to one line reach the medium in their order: a first part of
//!   them, whenever the cache likes.
//! - R2 Lines are independent of each other.
//! - R3 Aligned words are whole or absent. The words of one store of several words, and stores
//!   past the cache that follow each other in a line, arrive in any order.
//! - R4 After a thread's fence, whatever a line held when the same thread flushed it has survived,
//!   whoever stored it, and so have the thread's stores past the cache.
//!
//! A store past the cache counts as flushed by its thread at once. A store through the cache that
//! follows it in its line keeps behind it, and one before it is written back first, as processors
//! do it.

use std::collections::BTreeMap;

use super::image::{CrashImage, LineWords, WORD_BYTES, WORDS, hash_of};
use crate::pmem::trace::{LINE, TraceEvent, TraceStep, WORD};

/// A part of a store that lies in one word.
#[derive(Clone, Copy, Debug)]
struct Piece {
    word: usize,
    /// The bytes that it changes.
    mask: u64,
    value: u64,
    /// The event that it belongs to.
    event: usize,
    /// Pieces with the same number arrive in any order.
    group: usize,
}

impl Piece {
    fn apply(&self, line: &mut LineWords) {
        line[self.word] = line[self.word] & !self.mask | self.value & self.mask;
    }
}

/// One content that a line may have after the crash.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineContent {
    pub(super) content: LineWords,
    pub(super) hash: u64,
    /// How many pieces have arrived in their order,
    whole: usize,
    /// and which of those behind them.
    torn: u64,
}

/// A line with stores that are not certain.
#[derive(Debug, Default)]
pub(super) struct UncertainLine {
    pieces: Vec<Piece>,
    /// How many pieces of this line have become certain since it is in the list.
    settled: usize,
    past_cache: bool,
    choices: Vec<LineContent>,
    /// The choice in which all stores have arrived.
    all: usize,
}

impl UncertainLine {
    /// All contents that the line may have, each once; the first is without any of the stores.
    pub(super) fn choices(&self) -> &[LineContent] {
        &self.choices
    }

    /// The number of the choice in which all stores have arrived.
    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// The events that stored to the line, in their order.
    pub(super) fn events(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().map(|piece| piece.event)
    }

    /// The events whose stores have arrived in part or whole under a choice.
    pub(super) fn fate(&self, choice: &LineContent) -> impl Iterator<Item = (usize, bool)> {
        let (whole, torn) = (choice.whole, choice.torn);
        let fate = move |(at, piece): (usize, &Piece)| {
            let arrived = at < whole || (at - whole < 64 && torn >> (at - whole) & 1 == 1);
            (piece.event, arrived)
        };
        self.pieces.iter().enumerate().map(fate)
    }

    /// The choice with as much as possible of what happened before an event and nothing else.
    pub(super) fn upto(&self, event: usize) -> usize {
        let count = self
            .pieces
            .iter()
            .take_while(|piece| piece.event < event)
            .count();
        let fits = |choice: &LineContent| choice.torn == 0 && choice.whole <= count;
        self.choices.iter().rposition(fits).unwrap_or(0)
    }

    fn rebuild(&mut self, line: u32, durable: &LineWords) {
        self.choices.clear();
        let mut content = *durable;
        self.offer(line, content, 0, 0);
        let mut at = 0;
        while at < self.pieces.len() {
            let group = self.pieces[at].group;
            let rest = &self.pieces[at..];
            let count = rest.iter().take_while(|piece| piece.group == group).count();
            for torn in tears(count) {
                let mut part = content;
                for (bit, piece) in self.pieces[at..at + count].iter().enumerate() {
                    if torn >> bit & 1 == 1 {
                        piece.apply(&mut part);
                    }
                }
                self.offer(line, part, at, torn);
            }
            for piece in &self.pieces[at..at + count] {
                piece.apply(&mut content);
            }
            at += count;
            self.offer(line, content, at, 0);
        }
        let whole = self
            .choices
            .iter()
            .position(|choice| choice.content == content);
        self.all = whole.unwrap_or(0);
    }

    fn offer(&mut self, line: u32, content: LineWords, whole: usize, torn: u64) {
        let hash = hash_of(line, &content);
        if self.choices.iter().all(|choice| choice.hash != hash) {
            self.choices.push(LineContent {
                content,
                hash,
                whole,
                torn,
            });
        }
    }
}

/// Which of `count` pieces that arrive in any order may have arrived, neither none nor all: every
/// subset of up to four, and of more the first ones, the last ones, each alone and all but each.
fn tears(count: usize) -> Vec<u64> {
    let whole = u64::MAX >> (64 - count.clamp(1, 64));
    if count <= 4 {
        return (1..whole).collect();
    }
    let mut tears = Vec::with_capacity(4 * count);
    for at in 0..count.min(64) {
        let first = (1u64 << at) - 1;
        for tear in [first, whole & !first, 1 << at, whole & !(1 << at)] {
            if tear != 0 && tear != whole && !tears.contains(&tear) {
                tears.push(tear);
            }
        }
    }
    tears
}

/// A flush that no fence has ended yet: so many pieces of the line are covered by it.
struct Flushed {
    thread: u32,
    line: u32,
    pieces: usize,
}

/// All lines with stores that are not certain, as a run goes on.
#[derive(Default)]
pub(super) struct UncertainLines {
    lines: BTreeMap<u32, UncertainLine>,
    flushed: Vec<Flushed>,
    stale: Vec<u32>,
    groups: usize,
}

impl UncertainLines {
    /// The lines with more than one choice, in the order of their places.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u32, &UncertainLine)> {
        let open = |(_, line): &(&u32, &UncertainLine)| line.choices.len() > 1;
        self.lines
            .iter()
            .filter(open)
            .map(|(line, unsettled)| (*line, unsettled))
    }

    /// Brings the choices of all lines up to date.
    pub(super) fn refresh(&mut self, image: &CrashImage) {
        for line in std::mem::take(&mut self.stale) {
            if let Some(unsettled) = self.lines.get_mut(&line) {
                unsettled.rebuild(line, image.line(line));
            }
        }
    }

    /// Takes the next event of the run. What becomes certain by it goes to the image; returns
    /// whether anything was stored.
    pub(super) fn take(
        &mut self,
        index: usize,
        event: TraceEvent<'_>,
        image: &mut CrashImage,
    ) -> bool {
        match event.step {
            TraceStep::Store { offset, bytes } => self.store(index, offset, bytes, None),
            TraceStep::NtStore { offset, bytes } => {
                self.store(index, offset, bytes, Some(event.thread));
            }
            TraceStep::Flush { offset } => self.flush(event.thread, line_of(offset)),
            TraceStep::Fence => self.fence(event.thread, image),
            TraceStep::Load { .. } | TraceStep::Begin { .. } | TraceStep::End { .. } => {}
        }
        matches!(
            event.step,
            TraceStep::Store { .. } | TraceStep::NtStore { .. }
        )
    }

    fn store(&mut self, index: usize, offset: u64, bytes: &[u8], past: Option<u32>) {
        self.groups += 1;
        let mut touched: Option<u32> = None;
        for (line, mut piece) in pieces(index, offset, bytes) {
            let unsettled = self.lines.entry(line).or_default();
            let last = unsettled.pieces.last().map(|piece| piece.group);
            let continues = past.is_some() && unsettled.past_cache;
            piece.group = match last {
                Some(group) if continues => group,
                _ => self.groups,
            };
            unsettled.pieces.push(piece);
            if touched != Some(line) {
                self.stale.push(line);
                touched = Some(line);
            }
            if let Some(thread) = past {
                // Only the first store past the cache after others begins a group of its own.
                unsettled.past_cache = true;
                let pieces = unsettled.settled + unsettled.pieces.len();
                self.cover(thread, line, pieces);
            } else {
                unsettled.past_cache = false;
            }
        }
    }

    fn flush(&mut self, thread: u32, line: u32) {
        if let Some(unsettled) = self.lines.get_mut(&line) {
            unsettled.past_cache = false;
            let pieces = unsettled.settled + unsettled.pieces.len();
            self.cover(thread, line, pieces);
        }
    }

    fn cover(&mut self, thread: u32, line: u32, pieces: usize) {
        let mut open = self.flushed.iter_mut().rev();
        if let Some(flushed) = open.find(|open| open.thread == thread && open.line == line) {
            flushed.pieces = pieces;
        } else {
            self.flushed.push(Flushed {
                thread,
                line,
                pieces,
            });
        }
    }

    fn fence(&mut self, thread: u32, image: &mut CrashImage) {
        let mut flushed = std::mem::take(&mut self.flushed);
        flushed.retain(|flushed| {
            if flushed.thread != thread {
                return true;
            }
            self.settle(flushed.line, flushed.pieces, image);
            false
        });
        // A line that has left the list was settled as a whole: other threads' flushes of it have
        // nothing left to do, and must not reach what comes later.
        flushed.retain(|flushed| self.lines.contains_key(&flushed.line));
        self.flushed = flushed;
    }

    fn settle(&mut self, line: u32, upto: usize, image: &mut CrashImage) {
        let Some(unsettled) = self.lines.get_mut(&line) else {
            return;
        };
        let count = upto.saturating_sub(unsettled.settled);
        if count == 0 {
            return;
        }
        let mut content = *image.line(line);
        for piece in unsettled.pieces.drain(..count) {
            piece.apply(&mut content);
        }
        unsettled.settled += count;
        image.set(line, content);
        if unsettled.pieces.is_empty() {
            self.lines.remove(&line);
        } else {
            self.stale.push(line);
        }
    }
}

/// The contents that the lines of a store take one after the other, word by word in the order of
/// their places. Nothing for other steps.
pub(super) fn word_by_word(step: TraceStep<'_>, image: &CrashImage) -> Vec<(u32, LineWords)> {
    let (TraceStep::Store { offset, bytes } | TraceStep::NtStore { offset, bytes }) = step else {
        return Vec::new();
    };
    let mut contents: Vec<(u32, LineWords)> = Vec::new();
    for (line, piece) in pieces(0, offset, bytes) {
        let last = contents.last().filter(|(last, _)| *last == line);
        let mut content = last.map_or_else(|| *image.line(line), |(_, content)| *content);
        piece.apply(&mut content);
        contents.push((line, content));
    }
    contents
}

/// The parts of a store by line and word, in the order of their places.
fn pieces(event: usize, offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u32, Piece)> {
    let end = offset + bytes.len() as u64;
    let first = offset / WORD * WORD;
    (first..end).step_by(WORD_BYTES).map(move |word| {
        let (mut mask, mut value) = ([0; WORD_BYTES], [0; WORD_BYTES]);
        for at in word.max(offset)..(word + WORD).min(end) {
            let (within, from) = (small(at - word), small(at - offset));
            mask[within] = 0xff;
            value[within] = bytes[from];
        }
        let piece = Piece {
            word: small(word / WORD % WORDS as u64),
            mask: u64::from_le_bytes(mask),
            value: u64::from_le_bytes(value),
            event,
            group: 0,
        };
        (line_of(word), piece)
    })
}

/// A number that counts bytes in memory.
fn small(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The number of the line that holds an offset. Media that are explored have less than 2^38 bytes.
pub(super) fn line_of(offset: u64) -> u32 {
    u32::try_from(offset / LINE).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;

    struct Run {
        pending: UncertainLines,
        image: CrashImage,
        index: usize,
    }

    impl Run {
        fn new() -> Run {
            Run {
                pending: UncertainLines::default(),
                image: CrashImage::new(&[0; 256]),
                index: 0,
            }
        }

        fn step(&mut self, thread: u32, step: TraceStep<'_>) {
            let site = Location::caller();
            let event = TraceEvent { step, site, thread };
            self.pending.take(self.index, event, &mut self.image);
            self.index += 1;
        }

        fn store(&mut self, offset: u64, words: &[u64]) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.step(
                0,
                TraceStep::Store {
                    offset,
                    bytes: &bytes,
                },
            );
        }

        fn past(&mut self, thread: u32, offset: u64, word: u64) {
            let bytes = &word.to_le_bytes();
            self.step(thread, TraceStep::NtStore { offset, bytes });
        }

        /// The first two words of every choice of a line.
        fn choices(&mut self, line: u32) -> Vec<[u64; 2]> {
            self.pending.refresh(&self.image);
            let choices = self.pending.lines.get(&line).map(UncertainLine::choices);
            let words = |choice: &LineContent| [choice.content[0], choice.content[1]];
            choices.unwrap_or_default().iter().map(words).collect()
        }
    }

    #[test]
    fn stores_to_a_line_arrive_in_their_order() {
        let mut run = Run::new();
        run.store(0, &[1]);
        run.store(8, &[2]);
        run.store(0, &[3]);
        assert_eq!(run.choices(0), [[0, 0], [1, 0], [1, 2], [3, 2]]);
        // A store that changes nothing gives no further choice.
        run.store(8, &[2]);
        assert_eq!(run.choices(0).len(), 4);
        // One that takes another back leaves two choices: the line is as it was, or half done.
        run.store(64, &[1]);
        run.store(64, &[0]);
        assert_eq!(run.choices(1), [[0, 0], [1, 0]]);
        assert_eq!(run.pending.lines.get(&1).unwrap().all(), 0);
        run.step(0, TraceStep::Flush { offset: 64 });
        run.step(0, TraceStep::Fence);
        assert!(run.choices(1).is_empty());
        assert_eq!(run.pending.lines().count(), 1);
    }

    #[test]
    fn the_words_of_one_store_arrive_in_any_order() {
        let mut run = Run::new();
        run.store(0, &[1, 2]);
        assert_eq!(run.choices(0), [[0, 0], [1, 0], [0, 2], [1, 2]]);
        // Across the border of two lines they are two stores.
        run.store(120, &[8, 9]);
        assert_eq!(run.choices(2), [[0, 0], [9, 0]]);
        // Bytes of a word stay together, and leave the others alone.
        let bytes = &[1, 2, 3];
        run.step(0, TraceStep::Store { offset: 198, bytes });
        assert_eq!(
            run.choices(3),
            [[0, 0], [0x0201 << 48, 0], [0, 3], [0x0201 << 48, 3]]
        );
    }

    #[test]
    fn a_fence_makes_certain_what_the_line_held_at_its_flush() {
        let mut run = Run::new();
        run.store(0, &[1]);
        run.step(0, TraceStep::Flush { offset: 60 });
        run.store(0, &[2]);
        run.step(0, TraceStep::Fence);
        assert_eq!(run.choices(0), [[1, 0], [2, 0]]);
        run.step(0, TraceStep::Fence);
        assert_eq!(
            run.choices(0).len(),
            2,
            "a fence without a flush does nothing"
        );
        run.step(0, TraceStep::Flush { offset: 0 });
        run.step(0, TraceStep::Fence);
        assert!(run.choices(0).is_empty());
        assert_eq!(run.image.line(0)[0], 2);
    }

    #[test]
    fn a_fence_is_that_of_its_thread() {
        let mut run = Run::new();
        run.store(0, &[1]);
        run.step(1, TraceStep::Flush { offset: 0 });
        run.step(0, TraceStep::Fence);
        assert_eq!(run.choices(0).len(), 2, "thread 0 flushed nothing");
        run.step(0, TraceStep::Flush { offset: 0 });
        run.step(0, TraceStep::Fence);
        assert!(run.choices(0).is_empty());
        run.store(0, &[2]);
        run.step(1, TraceStep::Fence);
        assert_eq!(
            run.choices(0),
            [[1, 0], [2, 0]],
            "its flush was before this store"
        );
        run.step(1, TraceStep::Flush { offset: 0 });
        run.step(1, TraceStep::Fence);
        assert_eq!(run.image.line(0)[0], 2, "whoever stored it");
    }

    #[test]
    fn stores_past_the_cache_arrive_in_any_order_before_their_fence() {
        let mut run = Run::new();
        run.past(0, 0, 1);
        run.past(0, 8, 2);
        assert_eq!(run.choices(0), [[0, 0], [1, 0], [0, 2], [1, 2]]);
        run.step(1, TraceStep::Fence);
        assert_eq!(run.choices(0).len(), 4);
        run.step(0, TraceStep::Fence);
        assert_eq!(run.image.line(0)[..2], [1, 2]);
        assert!(run.choices(0).is_empty());
        // What stood in the cache goes ahead.
        run.store(0, &[5]);
        run.past(0, 8, 6);
        assert_eq!(run.choices(0), [[1, 2], [5, 2], [5, 6]]);
        run.step(0, TraceStep::Fence);
        assert_eq!(run.image.line(0)[..2], [5, 6]);
    }

    #[test]
    fn many_words_are_torn_at_every_place_and_around_every_word() {
        let tears = tears(8);
        for tear in [0x01, 0x0f, 0xfe, 0x80, 0xef] {
            assert!(tears.contains(&tear), "{tear:#x}");
        }
        assert!(!tears.contains(&0) && !tears.contains(&0xff));
        let mut run = Run::new();
        run.store(0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        run.pending.refresh(&run.image);
        let (_, line) = run.pending.lines().next().unwrap();
        let last = &line.choices()[line.all()];
        assert_eq!(last.content, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(
            line.fate(last)
                .all(|(event, arrived)| event == 0 && arrived)
        );
        assert_eq!(line.upto(0), 0);
        assert_eq!(line.upto(1), line.all());
        let is_alone = |choice: &&LineContent| choice.content == [0, 0, 3, 0, 0, 0, 0, 0];
        let alone = line.choices().iter().find(is_alone).unwrap();
        let arrived: Vec<bool> = line.fate(alone).map(|(_, arrived)| arrived).collect();
        assert_eq!(
            arrived,
            [false, false, true, false, false, false, false, false]
        );
    }
}
