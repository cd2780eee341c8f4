//! The whole pairs of a damaged space.
//!
//! # What is whole
//! A space is read piece by piece; its checksums are of blocks. A pair is saved if all of its bytes
//! lie in blocks that pass, and if it is known where it begins: nothing else is passed off as what
//! was written. Marks of the space say where pairs begin, and a pair says by its lengths where the
//! next one does. So in front of a damaged block, and behind the next mark, all is as it was.
//!
//! # Between a damaged block and the next mark
//! Where the first pair begins there is what the block said. There are three ways to know it:
//! - S1. The pair that reaches into the block begins in front of it and ends behind it.
//! - S2. With one other byte the block would pass: then it likely was so. Its lengths are believed
//!   if they lead, pair by pair and in the order of the keys, exactly to the next mark. What lies
//!   in the block is lost all the same; its pairs are only counted.
//! - S3. Else each byte may be the first of a pair. Of all readings that lead exactly to the next
//!   mark in the order of the keys, the one with the most pairs is taken, without its first
//!   [`RUN_IN`] pairs: a reading that begins at a wrong place soon comes upon the right one. That
//!   so many wrong pairs ascend by chance is once in 40,000 times, if each of them leads to another
//!   wrong one at all.
//!
//! # What is told
//! Lost bytes are whole pairs, those between two pairs that were saved. So how many these are has a
//! bound, where they are not counted.

use gabion_flex::{CheckedPiece, PieceContent};

use super::interval::{PAIR_HEAD_BYTES_MAX, kind_of, pair_head};
use crate::Result;
use crate::engine::LostEntries;
use crate::limits::{KEY_BYTES_MAX, STORED_BYTES_MAX};
use crate::types::Kind;

/// Pairs of a reading that are not believed, where nothing else says where it begins.
const RUN_IN: usize = 8;

/// Longest stretch whose bytes are tried one by one: that takes eight bytes of memory for each.
const TRIED_MAX: usize = 16 << 20;

/// Bytes that a pair takes at least, but for one without key and value: two lengths, and a byte.
const PAIR_BYTES_MIN: u64 = 3;

/// Takes the kind and the key of a pair, and what is stored behind it.
type Take<'t> = dyn FnMut(Kind, &[u8], &[u8]) -> Result<()> + 't;

/// Reads the pieces of a space in order, and hands its whole pairs out.
pub(super) struct Salvage<'k> {
    keyspace: &'k str,
    /// What was read since the last mark or the last damage.
    stretch: Stretch,
    /// The newest pair that was handed out.
    last: Option<Vec<u8>>,
    /// What is lost since.
    gap: Option<Gap>,
    losses: Vec<LostEntries>,
    saved: u64,
}

/// Bytes that are read together, which all are believed at first.
#[derive(Default)]
struct Stretch {
    bytes: Vec<u8>,
    /// Where parts end, and whether they pass their checks; others would with one other byte (S2).
    parts: Vec<(usize, bool)>,
    begin: Begin,
}

/// Where the first pair of a stretch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// Behind so many bytes of a pair that is lost.
    Behind(u64),
    Unknown,
}

impl Default for Begin {
    fn default() -> Begin {
        Begin::Behind(0)
    }
}

/// Where a stretch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Where a pair does.
    Mark,
    Anywhere,
}

/// What is lost between two pairs.
#[derive(Default)]
struct Gap {
    bytes: u64,
    /// The pairs, as far as they are counted.
    pairs: u64,
    /// Whether there are pairs that are not.
    has_more: bool,
}

/// A pair in a stretch, by its place.
#[derive(Clone, Copy)]
struct Found {
    kind: Kind,
    start: usize,
    key: usize,
    value: usize,
    end: usize,
}

/// The pairs of a stretch, and bytes of a last one that lie behind it; `None` for these where that
/// one does not say its lengths.
struct Reading {
    pairs: Vec<Found>,
    rest: Option<u64>,
}

impl<'k> Salvage<'k> {
    pub(super) fn new(keyspace: &'k str) -> Salvage<'k> {
        Salvage {
            keyspace,
            stretch: Stretch::default(),
            last: None,
            gap: None,
            losses: Vec::new(),
            saved: 0,
        }
    }

    /// Takes the next piece, and calls `found` with pairs that are whole.
    pub(super) fn read(&mut self, piece: &CheckedPiece<'_>, found: &mut Take<'_>) -> Result<()> {
        if piece.is_marked {
            self.end_stretch(End::Mark, found)?;
            self.stretch.begin = Begin::default();
        }
        match piece.content {
            PieceContent::Data(bytes) => self.stretch.push(bytes, true),
            PieceContent::Damaged {
                bytes,
                is_put_right: true,
            } if bytes.len() as u64 == piece.len => self.stretch.push(bytes, false),
            _ => {
                self.end_stretch(End::Anywhere, found)?;
                self.pass(piece.len);
            }
        }
        // What is sound up to here need not wait for the mark.
        match self.stretch.is_sound() && self.stretch.begin != Begin::Unknown {
            true => self.take_sound(found),
            false => Ok(()),
        }
    }

    /// The space ends here. Returns how many pairs are saved, and what is lost.
    pub(super) fn end(mut self, found: &mut Take<'_>) -> Result<(u64, Vec<LostEntries>)> {
        self.end_stretch(End::Mark, found)?;
        self.tell(None);
        Ok((self.saved, self.losses))
    }

    /// Hands out what is whole of a stretch that is sound up to where it is read.
    fn take_sound(&mut self, found: &mut Take<'_>) -> Result<()> {
        self.skip();
        let Some(reading) = self.stretch.chain(0) else {
            // No pair: all up to the next mark is lost, and told when that comes.
            return Ok(());
        };
        let mut taken = 0;
        for pair in &reading.pairs {
            if pair.end > self.stretch.bytes.len() {
                break;
            }
            self.hand_out(*pair, found)?;
            taken = pair.end;
        }
        self.stretch.forget(taken);
        Ok(())
    }

    /// Leaves the bytes behind that are of a lost pair.
    fn skip(&mut self) {
        let Begin::Behind(lost) = self.stretch.begin else {
            return;
        };
        let there = self.stretch.bytes.len();
        let skipped = usize::try_from(lost).map_or(there, |lost| lost.min(there));
        self.stretch.begin = Begin::Behind(lost - skipped as u64);
        self.lose(skipped as u64, 0);
        self.stretch.forget(skipped);
    }

    /// Reads all of the stretch, which ends here.
    fn end_stretch(&mut self, end: End, found: &mut Take<'_>) -> Result<()> {
        if self.stretch.bytes.is_empty() {
            return Ok(());
        }
        if self.stretch.begin != Begin::Unknown {
            self.skip();
            if self.stretch.bytes.is_empty() {
                return Ok(());
            }
            let reading = self.stretch.chain(0);
            let last = self.last.as_deref();
            let fits = |reading: &Reading| {
                self.stretch.is_sound() || self.stretch.fits(reading, last, end)
            };
            if let Some(reading) = reading.filter(fits) {
                return self.take(&reading, 0, found);
            }
        }
        if !self.stretch.is_sound() {
            return self.end_parts(end, found);
        }
        // S3.
        let reading = match self.stretch.begin {
            Begin::Unknown => self.stretch.longest(self.last.as_deref(), end),
            Begin::Behind(_) => None,
        };
        match reading {
            Some((from, reading)) => {
                self.lose_uncounted(from as u64);
                self.take(&reading, from, found)
            }
            None => {
                self.lose_uncounted(self.stretch.bytes.len() as u64);
                self.stretch = Stretch::behind(Begin::Unknown);
                Ok(())
            }
        }
    }

    /// As [`Salvage::end_stretch`], without the blocks that do not pass.
    fn end_parts(&mut self, end: End, found: &mut Take<'_>) -> Result<()> {
        let Stretch {
            bytes,
            parts,
            begin,
        } = std::mem::take(&mut self.stretch);
        self.stretch.begin = begin;
        let mut from = 0;
        for (to, is_sound) in parts {
            let part = bytes.get(from..to).unwrap_or_default();
            match is_sound {
                true => self.stretch.push(part, true),
                false => {
                    self.end_stretch(End::Anywhere, found)?;
                    self.pass(part.len() as u64);
                }
            }
            from = to;
        }
        self.end_stretch(end, found)
    }

    /// Hands out the sound pairs of a reading from `from` on; the stretch ends where they do.
    fn take(&mut self, reading: &Reading, from: usize, found: &mut Take<'_>) -> Result<()> {
        let mut at = from;
        for pair in &reading.pairs {
            at = pair.end.min(self.stretch.bytes.len());
            match self.stretch.has_sound(pair.start..pair.end) {
                true => self.hand_out(*pair, found)?,
                false => self.lose((at - pair.start) as u64, 1),
            }
        }
        self.lose_uncounted((self.stretch.bytes.len() - at) as u64);
        let begin = reading.rest.map_or(Begin::Unknown, Begin::Behind);
        self.stretch = Stretch::behind(begin);
        Ok(())
    }

    /// Leaves bytes behind of which nothing can be told.
    fn pass(&mut self, len: u64) {
        self.stretch.begin = match self.stretch.begin {
            // The pair ends where they do or behind them.
            Begin::Behind(lost) if lost >= len && lost > 0 => Begin::Behind(lost - len),
            _ => Begin::Unknown,
        };
        match self.stretch.begin {
            Begin::Behind(_) => self.lose(len, 0),
            Begin::Unknown => self.lose_uncounted(len),
        }
    }

    fn lose(&mut self, bytes: u64, pairs: u64) {
        if bytes + pairs > 0 {
            let gap = self.gap.get_or_insert_default();
            gap.bytes += bytes;
            gap.pairs += pairs;
        }
    }

    fn lose_uncounted(&mut self, bytes: u64) {
        if bytes > 0 {
            self.lose(bytes, 0);
            self.gap.get_or_insert_default().has_more = true;
        }
    }

    fn hand_out(&mut self, pair: Found, found: &mut Take<'_>) -> Result<()> {
        let bytes = &self.stretch.bytes;
        let key = bytes.get(pair.key..pair.value).unwrap_or_default();
        let value = bytes.get(pair.value..pair.end).unwrap_or_default();
        found(pair.kind, key, value)?;
        self.saved += 1;
        let key = key.to_vec();
        self.tell(Some(&key));
        self.last = Some(key);
        Ok(())
    }

    /// Notes what is lost below a key.
    fn tell(&mut self, below: Option<&[u8]>) {
        if let Some(gap) = self.gap.take() {
            self.losses.push(LostEntries {
                keyspace: Some(self.keyspace.to_owned()),
                above: self.last.clone(),
                below: below.map(<[u8]>::to_vec),
                entries: (!gap.has_more).then_some(gap.pairs),
                entries_max: Some(match gap.has_more {
                    true => gap.bytes / PAIR_BYTES_MIN + 1,
                    false => gap.pairs,
                }),
            });
        }
    }
}

impl Stretch {
    /// One of which nothing was read yet.
    fn behind(begin: Begin) -> Stretch {
        Stretch {
            begin,
            ..Stretch::default()
        }
    }

    fn push(&mut self, bytes: &[u8], is_sound: bool) {
        self.bytes.extend_from_slice(bytes);
        match self.parts.last_mut() {
            Some((end, as_before)) if *as_before == is_sound => *end = self.bytes.len(),
            _ => self.parts.push((self.bytes.len(), is_sound)),
        }
    }

    /// Removes the first bytes.
    fn forget(&mut self, len: usize) {
        self.bytes.drain(..len);
        self.parts.retain_mut(|(end, _)| {
            *end = end.saturating_sub(len);
            *end > 0
        });
    }

    fn is_sound(&self) -> bool {
        self.parts.iter().all(|(_, is_sound)| *is_sound)
    }

    /// Whether bytes are all there, and pass their checks.
    fn has_sound(&self, range: std::ops::Range<usize>) -> bool {
        let mut from = 0;
        let touched = self.parts.iter().filter(|(end, _)| {
            let begin = std::mem::replace(&mut from, *end);
            begin < range.end && range.start < *end
        });
        let all_sound = touched.fold(true, |all, (_, is_sound)| all && *is_sound);
        all_sound && range.end <= self.bytes.len()
    }

    /// The pair that would begin at a place; `Err(true)` where the bytes end too early to tell,
    /// `Err(false)` where it is none.
    fn pair_at(&self, start: usize) -> Result<Found, bool> {
        let rest = self.bytes.get(start..).unwrap_or_default();
        let (head, key, all) = pair_head(rest).map_err(|_| rest.len() < PAIR_HEAD_BYTES_MAX)?;
        if key as u64 > KEY_BYTES_MAX || (all - head - key) as u64 > STORED_BYTES_MAX {
            return Err(false);
        }
        Ok(Found {
            start,
            kind: kind_of(rest),
            key: start + head,
            value: start + head + key,
            end: start + all,
        })
    }

    fn key_of(&self, pair: &Found) -> Option<&[u8]> {
        self.bytes.get(pair.key..pair.value)
    }

    /// The pairs from a place on; `None` if there is anything else.
    fn chain(&self, from: usize) -> Option<Reading> {
        let (mut pairs, mut at) = (Vec::new(), from);
        while at < self.bytes.len() {
            match self.pair_at(at) {
                Ok(pair) => {
                    pairs.push(pair);
                    at = pair.end;
                }
                Err(true) => return Some(Reading { pairs, rest: None }),
                Err(false) => return None,
            }
        }
        let rest = Some((at - self.bytes.len()) as u64);
        Some(Reading { pairs, rest })
    }

    /// Whether the keys of a reading ascend, all above `last`, and it ends where the stretch does.
    fn fits(&self, reading: &Reading, last: Option<&[u8]>, end: End) -> bool {
        let keys = reading.pairs.iter().filter_map(|pair| self.key_of(pair));
        let mut before = last;
        let ascend = keys.fold(true, |all, key| {
            let is_above = before.is_none_or(|before| before < key);
            before = Some(key);
            all && is_above
        });
        ascend && (end == End::Anywhere || reading.rest == Some(0))
    }

    /// The reading with the most pairs from any place on (S3), and where it is believed from.
    fn longest(&self, last: Option<&[u8]>, end: End) -> Option<(usize, Reading)> {
        let len = self.bytes.len();
        if len > TRIED_MAX {
            return None;
        }
        // From each place on, the pairs up to the end; none where they do not lead there.
        let mut counts: Vec<Option<u32>> = vec![None; len];
        let mut best = (0, 0);
        for start in (0..len).rev() {
            let count = match self.pair_at(start) {
                Ok(pair) if pair.end > len => (end == End::Anywhere).then_some(0),
                Ok(pair) if pair.end == len => Some(1),
                Ok(pair) => counts[pair.end]
                    .filter(|_| self.ascends(&pair))
                    .map(|next| next + 1),
                Err(is_cut) => (is_cut && end == End::Anywhere).then_some(0),
            };
            counts[start] = count;
            let is_above = || {
                let key = self.pair_at(start).ok();
                let key = key.and_then(|pair| self.key_of(&pair).map(<[u8]>::to_vec));
                last.is_none_or(|last| key.is_some_and(|key| *last < *key))
            };
            if count.is_some_and(|count| count > best.0) && is_above() {
                best = (count.unwrap_or(0), start);
            }
        }
        let mut reading = self.chain(best.1)?;
        if reading.pairs.len() <= RUN_IN {
            return None;
        }
        reading.pairs.drain(..RUN_IN);
        let from = reading.pairs.first()?.start;
        Some((from, reading))
    }

    /// Whether the key behind a pair, if all of it is there, is above the pair's.
    fn ascends(&self, pair: &Found) -> bool {
        let next = self.pair_at(pair.end).ok();
        let next = next.and_then(|next| self.key_of(&next));
        next.is_none_or(|next| self.key_of(pair).is_some_and(|key| key < next))
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::put_pair;
    use super::*;

    /// What a piece of a space is.
    #[derive(Clone, Copy)]
    enum Is {
        Sound,
        PutRight,
        Damaged,
    }

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn pairs(count: u32, value: usize) -> Pairs {
        let pair = |number: u32| {
            let key = format!("key {number:04}").into_bytes();
            // Most values look like pairs: the letters are lengths, too.
            let letters = (b'!'..b'!' + 60).cycle().skip(number as usize % 60);
            (key, letters.step_by(7).take(value).collect())
        };
        (0..count).map(pair).collect()
    }

    fn space_of(pairs: &Pairs) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, value) in pairs {
            put_pair(&mut bytes, Kind::Put, key, value);
        }
        bytes
    }

    /// Reads a space that is one marked extent, in pieces that end at these places.
    fn salvage(bytes: &[u8], pieces: &[(usize, Is)]) -> (Pairs, Vec<LostEntries>) {
        let mut salvage = Salvage::new("name");
        let mut found = Vec::new();
        let mut take = |_, key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            Ok(())
        };
        let mut from = 0;
        for (to, is) in pieces {
            let part = &bytes[from..*to];
            let damaged = |is_put_right| PieceContent::Damaged {
                bytes: part,
                is_put_right,
            };
            let content = match is {
                Is::Sound => PieceContent::Data(part),
                Is::PutRight => damaged(true),
                Is::Damaged => damaged(false),
            };
            let piece = CheckedPiece::new(from as u64, (part.len() as u64, from == 0), content);
            salvage.read(&piece, &mut take).unwrap();
            from = *to;
        }
        let (saved, lost) = salvage.end(&mut take).unwrap();
        assert_eq!(saved, found.len() as u64);
        (found, lost)
    }

    /// Pairs are in one range that was told exactly where they are missing, and as many.
    fn check_told(all: &Pairs, found: &Pairs, lost: &[LostEntries]) {
        for pair in found {
            assert!(all.contains(pair), "{pair:?} was never there");
        }
        let missing: Vec<_> = all.iter().filter(|pair| !found.contains(pair)).collect();
        for (key, _) in &missing {
            let told = lost.iter().filter(|lost| {
                lost.above.as_ref().is_none_or(|above| above < key)
                    && lost.below.as_ref().is_none_or(|below| key < below)
            });
            assert_eq!(told.count(), 1, "{}", key.escape_ascii());
        }
        for lost in lost {
            let within = |pair: &&&(Vec<u8>, Vec<u8>)| {
                lost.above.as_ref().is_none_or(|above| *above < pair.0)
                    && lost.below.as_ref().is_none_or(|below| pair.0 < *below)
            };
            let count = missing.iter().filter(within).count() as u64;
            assert!(count > 0 && lost.entries.is_none_or(|told| told == count));
            assert!(lost.entries_max.is_some_and(|most| most >= count));
        }
    }

    /// All behind a damaged block was lost up to the next mark.
    #[test]
    fn what_lies_in_sound_blocks_is_found_wherever_another_block_is_damaged() {
        for value in [0, 3, 40, 300] {
            let all = pairs(120, value);
            let bytes = space_of(&all);
            let block = bytes.len() / 6;
            for at in (0..bytes.len() - block).step_by(1 + bytes.len() / 400) {
                let end = at + block;
                // Those that do not lie outside.
                let mut begin = 0;
                let touched = all.iter().filter(|(key, value)| {
                    let from = begin;
                    begin += 2 + key.len() + value.len() + usize::from(value.len() > 127);
                    from < end && at < begin
                });
                let touched = touched.count();
                let pieces = |is| [(at, Is::Sound), (end, is), (bytes.len(), Is::Sound)];
                let (found, lost) = salvage(&bytes, &pieces(Is::PutRight));
                check_told(&all, &found, &lost);
                assert_eq!(all.len() - found.len(), touched, "put right at {at}");
                assert_eq!(lost[0].entries, Some(touched as u64));

                let (found, lost) = salvage(&bytes, &pieces(Is::Damaged));
                check_told(&all, &found, &lost);
                let kept = all.len() - touched - found.len();
                assert!(kept <= RUN_IN + 1, "damaged at {at}: {kept} lost besides");
            }
        }
    }

    /// A block of which one byte was put right that was not the wrong one.
    #[test]
    fn lengths_that_do_not_lead_to_the_mark_are_not_believed() {
        let all = pairs(200, 30);
        let bytes = space_of(&all);
        let (from, to) = (1000, 2000);
        let mut wrong = bytes.clone();
        wrong[from..to].fill(b'v');
        let pieces = [
            (from, Is::Sound),
            (to, Is::PutRight),
            (bytes.len(), Is::Sound),
        ];
        let (found, lost) = salvage(&wrong, &pieces);
        check_told(&all, &found, &lost);
        assert!(found.len() > 150 && lost[0].entries.is_none(), "{lost:?}");
    }

    #[test]
    fn a_pair_that_reaches_over_damage_says_where_the_next_one_begins() {
        let all = pairs(9, 1000);
        let bytes = space_of(&all);
        let pieces = [
            (2100, Is::Sound),
            (2900, Is::Damaged),
            (bytes.len(), Is::Sound),
        ];
        let (found, lost) = salvage(&bytes, &pieces);
        check_told(&all, &found, &lost);
        assert_eq!((found.len(), lost[0].entries), (8, Some(1)));
    }
}
