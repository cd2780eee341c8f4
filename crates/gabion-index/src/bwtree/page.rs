//! A page, as the word in its cell describes it: its entries, and the end of its range.

use std::cmp;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, PAtomicU64, POff};

use super::layout::{
    DELETES, DELTA_BYTES, DeltaFace, HEAD_BYTES, LINE_BYTES, OF_STRINGS, PageHead, PageWord,
};
use crate::stored_key::{KeyParts, StoredKey, rest_len};

/// Lines that are asked for of a page before its head tells how many there are: the head and, in
/// most pages, all words of keys.
const PREFETCHED_LINES: u64 = 8;

/// Lines with deltas that are asked for at once, from the topmost one down: as many as pages have
/// deltas, if keys are words.
const PREFETCHED_DELTAS: u64 = 8;

/// A page with its deltas. It does not change; the word of the cell does.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    medium: &'a Medium,
    /// Offset of the cell.
    pub(super) cell: u64,
    pub(super) word: PageWord,
    /// None if the page was never written to: an empty leaf, the first one of all.
    head: Option<&'a PageHead>,
    pub(super) level: u64,
    /// Lines for deltas.
    pub(super) lines: u64,
    /// Words, values and places, one after the other.
    slots: &'a [PAtomicU64],
    count: usize,
    deltas_at: u64,
    /// Cell of the right neighbour, or 0.
    pub(super) right: u64,
}

/// A change of one key.
#[derive(Clone, Copy)]
pub(super) struct Delta<'a> {
    face: &'a DeltaFace,
    at: u64,
}

// ORDER: Relaxed throughout: pages and deltas do not change once the word of a cell leads to them,
// and whoever has the word acquired it.
impl<'a> Delta<'a> {
    fn state(&self) -> u64 {
        self.face.state.peek(Ordering::Relaxed)
    }

    /// The line of the delta below, or 0.
    #[inline]
    fn next(&self) -> u64 {
        self.state() & 0xff
    }

    /// How many deltas there are up to this one.
    #[inline]
    pub(super) fn depth(&self) -> u64 {
        self.state() >> 8 & 0xff
    }

    /// The value that the key gets; none if it is deleted.
    #[inline]
    pub(super) fn value(&self) -> Option<u64> {
        let is_delete = self.state() & DELETES != 0;
        (!is_delete).then(|| self.face.value.peek(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn key(&self) -> StoredKey {
        StoredKey {
            word: self.face.word.peek(Ordering::Relaxed),
            len: self.state() >> 32,
            rest: self.at + DELTA_BYTES,
        }
    }
}

// ORDER: Relaxed throughout: as above.
impl<'a> Page<'a> {
    /// The page that a word of a cell leads to, if there can be one. Asks at once for the lines
    /// that a search reads: else it would wait for each of them, and for each delta, in its turn.
    /// Where the lines for deltas begin is told by the head, and before that by a guess.
    #[inline]
    pub(super) fn new(
        medium: &'a Medium,
        cell: u64,
        word: PageWord,
        guessed_place: u64,
    ) -> Option<Page<'a>> {
        let base = word.base();
        if base == 0 {
            return Some(Page {
                medium,
                cell,
                word,
                head: None,
                level: 0,
                lines: 0,
                slots: &[],
                count: 0,
                deltas_at: 0,
                right: 0,
            });
        }
        let ask_for_deltas = |place: u64| {
            for line in 0..word.top().min(PREFETCHED_DELTAS) {
                medium.prefetch(place.wrapping_add((word.top() - 1 - line) * LINE_BYTES));
            }
        };
        medium.prefetch(base);
        ask_for_deltas(base + guessed_place);
        for line in 1..PREFETCHED_LINES {
            medium.prefetch(base + line * LINE_BYTES);
        }
        let head: &PageHead = medium.try_at(POff::new(base))?;
        medium.touch(head);
        let state = head.state.peek(Ordering::Relaxed);
        let count = usize::try_from(state >> 32).ok()?;
        let parts = if state & OF_STRINGS != 0 { 3 } else { 2 };
        let slots = medium.try_slice(POff::new(base + HEAD_BYTES), count.checked_mul(parts)?)?;
        medium.touch(slots);
        let (lines, place) = (state >> 8 & 0xff, head.deltas_at.peek(Ordering::Relaxed));
        let deltas_at = base.checked_add(place)?;
        let end = deltas_at.checked_add(lines * LINE_BYTES)?;
        if place != guessed_place {
            ask_for_deltas(deltas_at);
        }
        let is_within = place >= HEAD_BYTES + 8 * slots.len() as u64 && end <= medium.len();
        is_within.then_some(Page {
            medium,
            cell,
            word,
            head: Some(head),
            level: state & 0xff,
            lines,
            slots,
            count,
            deltas_at,
            right: head.right.peek(Ordering::Relaxed),
        })
    }

    /// Bytes of the page.
    pub(super) fn bytes(&self) -> u64 {
        self.head
            .map_or(0, |head| head.bytes.peek(Ordering::Relaxed))
    }

    #[inline]
    fn border(&self, word: &PAtomicU64, place: &PAtomicU64) -> StoredKey {
        let word = word.peek(Ordering::Relaxed);
        self.stored(word, place.peek(Ordering::Relaxed))
    }

    #[inline]
    fn stored(&self, word: u64, place: u64) -> StoredKey {
        let len = place >> 32;
        let rest = self.word.base() + (place & u64::from(u32::MAX));
        // What lies behind the medium is damage, and not read.
        let is_within = rest + rest_len(len) <= self.medium.len();
        let (len, rest) = if is_within { (len, rest) } else { (0, 0) };
        StoredKey { word, len, rest }
    }

    /// The least key that may be here.
    pub(super) fn low(&self) -> StoredKey {
        let none = StoredKey {
            word: 0,
            len: 0,
            rest: 0,
        };
        self.head
            .map_or(none, |head| self.border(&head.low, &head.low_place))
    }

    /// The low of the right neighbour, if there is one.
    #[inline]
    pub(super) fn bound(&self) -> Option<StoredKey> {
        let head = self.head.filter(|_| self.right != 0)?;
        Some(self.border(&head.bound, &head.bound_place))
    }

    /// Whether a key that is not below the low belongs here.
    #[inline]
    pub(super) fn has(&self, key: &KeyParts<'_>) -> bool {
        let bound = self.bound();
        bound.is_none_or(|bound| bound.compare(self.medium, key) == cmp::Ordering::Greater)
    }

    /// The key of an entry of the base.
    #[inline]
    fn key(&self, rank: usize) -> StoredKey {
        let place = self.slots.get(2 * self.count + rank);
        let place = place.map_or(0, |place| place.peek(Ordering::Relaxed));
        self.stored(self.slots[rank].peek(Ordering::Relaxed), place)
    }

    #[inline]
    fn value(&self, rank: usize) -> u64 {
        self.slots[self.count + rank].peek(Ordering::Relaxed)
    }

    /// The number of entries of the base up to a key.
    #[inline]
    fn rank(&self, key: &KeyParts<'_>) -> usize {
        if self.slots.len() == 2 * self.count {
            // Keys are words.
            let words = &self.slots[..self.count];
            return words.partition_point(|word| word.peek(Ordering::Relaxed) <= key.word);
        }
        let (mut first, mut count) = (0, self.count);
        while count > 0 {
            let half = count / 2;
            let is_upto =
                self.key(first + half).compare(self.medium, key) != cmp::Ordering::Greater;
            first = if is_upto { first + half + 1 } else { first };
            count = if is_upto { count - half - 1 } else { half };
        }
        first
    }

    /// The delta in a line.
    fn delta(&self, line: u64) -> Option<Delta<'a>> {
        if line == 0 || line > self.lines {
            return None;
        }
        let at = self.line_at(line);
        let face: &DeltaFace = self.medium.try_at(POff::new(at))?;
        self.medium.touch(face);
        let delta = Delta { face, at };
        let end = delta.key().rest.checked_add(rest_len(delta.key().len))?;
        (end <= self.medium.len()).then_some(delta)
    }

    /// Where a line for deltas is.
    pub(super) fn line_at(&self, line: u64) -> u64 {
        self.deltas_at + (line - 1) * LINE_BYTES
    }

    /// All deltas, the newest first.
    #[inline]
    pub(super) fn deltas(&self) -> impl Iterator<Item = Delta<'a>> + use<'a> {
        let page = *self;
        let top = page.delta(page.word.top());
        std::iter::successors(top, move |delta| {
            let below = page.delta(delta.next());
            // Else the page is damaged.
            below.filter(|below| below.depth() < delta.depth())
        })
    }

    /// How many deltas there are.
    #[inline]
    pub(super) fn depth(&self) -> u64 {
        self.delta(self.word.top()).map_or(0, |delta| delta.depth())
    }

    /// The value of a key that belongs here.
    #[inline]
    pub(super) fn find(&self, key: &KeyParts<'_>) -> Option<u64> {
        let is_it = |stored: StoredKey| stored.compare(self.medium, key) == cmp::Ordering::Equal;
        if let Some(delta) = self.deltas().find(|delta| is_it(delta.key())) {
            return delta.value();
        }
        let rank = self.rank(key).checked_sub(1)?;
        is_it(self.key(rank)).then(|| self.value(rank))
    }

    /// The value of the last key up to one that belongs here: in an inner page, the cell of the
    /// page below.
    #[inline]
    pub(super) fn floor(&self, key: &KeyParts<'_>) -> Option<u64> {
        // The delta with the last key, of those with one key the newest.
        let mut best: Option<(StoredKey, Delta<'a>)> = None;
        for delta in self.deltas() {
            let stored = delta.key();
            let is_better =
                |best: &StoredKey| best.order(self.medium, &stored) == cmp::Ordering::Less;
            if stored.compare(self.medium, key) != cmp::Ordering::Greater
                && best.as_ref().is_none_or(|(best, _)| is_better(best))
            {
                best = Some((stored, delta));
            }
        }
        let rank = self.rank(key);
        let is_base = |delta: &StoredKey| {
            rank > 0 && self.key(rank - 1).order(self.medium, delta) == cmp::Ordering::Greater
        };
        match best {
            Some((stored, delta)) if !is_base(&stored) => match delta.value() {
                None => self.floor_beside_deletes(key, rank),
                value => value,
            },
            _ => Some(self.value(rank.checked_sub(1)?)),
        }
    }

    /// As [`Page::floor`], where the last key up to that one is deleted.
    #[cold]
    fn floor_beside_deletes(&self, key: &KeyParts<'_>, rank: usize) -> Option<u64> {
        let same =
            |one: &StoredKey, two: &StoredKey| one.order(self.medium, two) == cmp::Ordering::Equal;
        let is_known = |key: &StoredKey| self.deltas().any(|delta| same(&delta.key(), key));
        // The last entry of the base that no delta changes.
        let base = (0..rank).rev().find(|&rank| !is_known(&self.key(rank)));
        let mut best = base.map(|rank| (self.key(rank), self.value(rank)));
        for (number, delta) in self.deltas().enumerate() {
            let stored = delta.key();
            let Some(value) = delta.value() else {
                continue;
            };
            let is_upto = stored.compare(self.medium, key) != cmp::Ordering::Greater;
            let is_better = best
                .as_ref()
                .is_none_or(|(best, _)| best.order(self.medium, &stored) == cmp::Ordering::Less);
            let mut newer = self.deltas().take(number);
            if is_upto && is_better && !newer.any(|newer| same(&newer.key(), &stored)) {
                best = Some((stored, value));
            }
        }
        best.map(|(_, value)| value)
    }

    /// Up to `limit` entries from a key on, in the order of keys.
    pub(super) fn entries_from(&self, from: &KeyParts<'_>, limit: usize) -> Vec<(StoredKey, u64)> {
        let is_before = |key: &StoredKey| key.compare(self.medium, from) == cmp::Ordering::Less;
        if self.word.top() == 0 {
            let rank = self.rank(from);
            let first = rank - usize::from(rank > 0 && !is_before(&self.key(rank - 1)));
            let ranks = (first..self.count).take(limit);
            return ranks
                .map(|rank| (self.key(rank), self.value(rank)))
                .collect();
        }
        let all = self.entries().into_iter();
        all.skip_while(|(key, _)| is_before(key))
            .take(limit)
            .collect()
    }

    /// Whether there is room for a delta of so many lines, when a page is to have so many deltas.
    #[inline]
    pub(super) fn has_room(&self, lines: u64, deltas: u64) -> bool {
        self.word.taken() + lines <= self.lines && self.depth() < deltas
    }

    /// Entries of the base.
    #[inline]
    pub(super) fn base_count(&self) -> usize {
        self.count
    }

    /// All entries, in the order of their keys.
    pub(super) fn entries(&self) -> Vec<(StoredKey, u64)> {
        let base = (0..self.count).map(|rank| (self.key(rank), self.value(rank)));
        if self.word.top() == 0 {
            return base.collect();
        }
        let mut changes: Vec<(StoredKey, Option<u64>)> = Vec::new();
        for delta in self.deltas() {
            let key = delta.key();
            let is_newer = |(other, _): &(StoredKey, _)| {
                other.order(self.medium, &key) == cmp::Ordering::Equal
            };
            if !changes.iter().any(is_newer) {
                changes.push((key, delta.value()));
            }
        }
        changes.sort_by(|one, two| one.0.order(self.medium, &two.0));
        let mut entries = Vec::with_capacity(self.count + changes.len());
        let mut changes = changes.into_iter().peekable();
        for (key, value) in base {
            let mut is_changed = false;
            while let Some((changed, new)) = changes
                .next_if(|(change, _)| change.order(self.medium, &key) != cmp::Ordering::Greater)
            {
                is_changed = changed.order(self.medium, &key) == cmp::Ordering::Equal;
                entries.extend(new.map(|new| (changed, new)));
            }
            if !is_changed {
                entries.push((key, value));
            }
        }
        entries.extend(changes.filter_map(|(key, new)| Some((key, new?))));
        entries
    }
}
