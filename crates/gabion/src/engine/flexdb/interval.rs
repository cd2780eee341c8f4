//! Intervals: a few neighbouring pairs, as they lie in the space and as they are cached.
//!
//! # Layout of a pair in the space
//! | field | |
//! |---|---|
//! | key length | varint |
//! | value length | varint |
//! | key, value | |
//!
//! To the key length of a pair that expires 65,536 is added, and its value is what is stored of
//! such a record (`expiry`). Nothing stands between pairs, and the space has no other content. Its
//! checksums are those of the space.
//!
//! # In memory
//! A read of a cached interval waits for memory, so what finds a pair lies in the interval itself
//! and not behind pointers: one wait for that, one for the pair. A merge changes the form in place:
//! behind the pairs there is room for more, so most changes move some bytes and allocate nothing.
//! Where the cache has none to spare, forms have no room either: its hand takes that back before it
//! takes a form out, and what grows then gets memory for what it is.

use std::ops::Range;
use std::sync::Arc;

use gabion_media::{prefetch_bytes, prefetch_range};

use crate::Slice;
use crate::expiry::{StoredRecord, UnixMillis, has_expired};
use crate::limits::KEY_BYTES_MAX;
use crate::log::codec::{MalformedPayload, PayloadReader, put_varint};
use crate::slabs::{Buffer, Slabs, full_len};
use crate::types::{Kind, hash_key};

/// Most pairs of an interval (the paper's split threshold, section 5.1).
pub(super) const PAIRS_MAX: usize = 16;

/// Most bytes of an interval that has more than one pair (the paper's split threshold).
pub(super) const BYTES_MAX: usize = 16 << 10;

/// Most pairs of an interval that is read as one: joins and recoveries leave some that have more
/// than [`PAIRS_MAX`], and those that have more than this are cut. Each form has places for them.
const PAIRS_READ_MAX: usize = PAIRS_MAX + PAIRS_MAX / 2;

/// The same for the bytes of an interval of several pairs.
const BYTES_READ_MAX: usize = 2 * BYTES_MAX;

/// Added to the key length of a pair that expires.
const EXPIRES: u64 = KEY_BYTES_MAX + 1;

/// The third byte of the key length of a pair that expires is at least this, that of others, if
/// there is one, less.
const EXPIRES_BYTE: u8 = 4;

/// Most bytes in front of the key of a pair.
pub(super) const PAIR_HEAD_BYTES_MAX: usize = 2 * 5;

/// Longest value that is copied when it is read. A longer one shares the memory of its interval,
/// which costs two accesses to the count of those that do.
const COPIED_MAX: usize = 512;

/// The room that is made for pairs to come is one part in so many of those that are there.
const ROOM_ONE_IN: usize = 4;

/// Memory of a form without its pairs: with the counts of who shares it, and what the system needs.
const FORM_BYTES: usize = 224;

/// Bytes of pairs that are asked for ahead at most.
const PREFETCHED_MAX: usize = 2 << 10;

// Places within an interval of several pairs fit 16 bits.
const _: () = assert!(BYTES_READ_MAX < u16::MAX as usize && KEY_BYTES_MAX <= u16::MAX as u64);

const _: () =
    assert!(KEY_BYTES_MAX >> 14 < EXPIRES >> 14 && (EXPIRES + KEY_BYTES_MAX) >> 14 < 0x80);

/// Where a pair lies in some bytes, and the fingerprint of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairRef {
    pub(super) start: usize,
    pub(super) head: u8,
    pub(super) key_len: u16,
    pub(super) tag: u16,
}

impl PairRef {
    /// The key of the pair, which lies in `bytes`.
    pub(super) fn key_in<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let from = self.start + usize::from(self.head);
        &bytes[from..from + usize::from(self.key_len)]
    }
}

/// Pairs in the order of their keys, decoded.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    /// The fingerprint of each key.
    tags: [u16; PAIRS_READ_MAX],
    /// Where each key begins.
    keys: [u16; PAIRS_READ_MAX],
    key_lens: [u16; PAIRS_READ_MAX],
    /// Bytes in front of each key.
    heads: [u8; PAIRS_READ_MAX],
    count: u32,
    /// Bytes behind the pairs.
    room: u32,
    /// Whether any pair may expire: else nobody looks at them for it.
    expires: bool,
    /// The pairs, and room behind them.
    bytes: Buffer,
}

const _: () = assert!(size_of::<Interval>() + 2 * size_of::<usize>() <= FORM_BYTES - 8);

/// A step that changes an interval, by the place that a pair had before all of them.
#[derive(Clone, Debug)]
pub(super) struct PairEdit<'b> {
    pub(super) at: usize,
    /// Whether the pair at that place goes.
    pub(super) removes: bool,
    /// The encoded pair that comes there, in front of the one that stays.
    pub(super) put: Option<(&'b [u8], PairRef)>,
}

/// Appends a pair as it lies in the space; returns how many bytes stand in front of its key.
pub(super) fn put_pair(bytes: &mut Vec<u8>, kind: Kind, key: &[u8], stored: &[u8]) -> u8 {
    bytes.reserve(PAIR_HEAD_BYTES_MAX + key.len() + stored.len());
    let start = bytes.len();
    let expires = if kind == Kind::PutExpiring {
        EXPIRES
    } else {
        0
    };
    put_varint(bytes, expires + key.len() as u64);
    put_varint(bytes, stored.len() as u64);
    let head = bytes.len() - start;
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(stored);
    u8::try_from(head).unwrap_or_default()
}

/// The kind of the pair that `front` begins with.
#[inline]
pub(super) fn kind_of(front: &[u8]) -> Kind {
    match front {
        [first, second, third, ..]
            if *first >= 0x80 && *second >= 0x80 && *third >= EXPIRES_BYTE =>
        {
            Kind::PutExpiring
        }
        _ => Kind::Put,
    }
}

/// The lengths of the head, of the key and of all of the pair that `front` begins with.
pub(super) fn pair_head(front: &[u8]) -> Result<(usize, usize, usize), MalformedPayload> {
    let mut reader = PayloadReader::new(front, 0);
    let too_long = reader.malformed("the length of a pair is impossible");
    let key = match reader.varint()? {
        expires @ EXPIRES.. => expires - EXPIRES,
        key => key,
    };
    let key = usize::try_from(key).map_err(|_| too_long)?;
    let value = usize::try_from(reader.varint()?).map_err(|_| too_long)?;
    let head = reader.at();
    let all = head
        .checked_add(key)
        .and_then(|sum| sum.checked_add(value))
        .ok_or(too_long)?;
    Ok((head, key, all))
}

/// The fingerprint of a key with that hash.
pub(super) fn tag_of(hash: u64) -> u16 {
    u16::try_from(hash >> 48).unwrap_or_default()
}

/// Finds the pairs of the bytes of an interval.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<PairRef>, MalformedPayload> {
    let mut pairs = Vec::with_capacity(PAIRS_READ_MAX);
    let mut at = 0;
    let mut last: Option<&[u8]> = None;
    while at < bytes.len() {
        let malformed = |what| MalformedPayload { at, what };
        let (head, key_len, len) = pair_head(&bytes[at..])?;
        let end = at.checked_add(len).filter(|end| *end <= bytes.len());
        let end = end.ok_or_else(|| malformed("a pair reaches beyond its interval"))?;
        let key = &bytes[at + head..at + head + key_len];
        if last.is_some_and(|last| last >= key) {
            return Err(malformed("a key is not above the one before it"));
        }
        last = Some(key);
        pairs.push(PairRef {
            start: at,
            head: u8::try_from(head).map_err(|_| malformed("a length takes too many bytes"))?,
            key_len: u16::try_from(key_len)
                .map_err(|_| malformed("a key is longer than the limit"))?,
            tag: tag_of(hash_key(key)),
        });
        at = end;
    }
    Ok(pairs)
}

impl Interval {
    /// The interval of these bytes and pairs, whose places count from `base`; `None` if it has more
    /// than an interval should and is to be cut.
    pub(super) fn new(bytes: Buffer, pairs: &[PairRef], base: usize) -> Option<Interval> {
        let count = pairs.len();
        if count > PAIRS_READ_MAX || (count > 1 && bytes.len() > BYTES_READ_MAX) {
            return None;
        }
        let mut interval = Interval {
            tags: [0; PAIRS_READ_MAX],
            keys: [0; PAIRS_READ_MAX],
            key_lens: [0; PAIRS_READ_MAX],
            heads: [0; PAIRS_READ_MAX],
            count: u32::try_from(count).ok()?,
            room: 0,
            expires: false,
            bytes,
        };
        for (at, pair) in pairs.iter().enumerate() {
            let key = pair.start - base + usize::from(pair.head);
            interval.tags[at] = pair.tag;
            interval.keys[at] = u16::try_from(key).ok()?;
            interval.key_lens[at] = pair.key_len;
            interval.heads[at] = pair.head;
            let front = &interval.bytes[pair.start - base..];
            interval.expires |= kind_of(front) == Kind::PutExpiring;
        }
        Some(interval)
    }

    /// Number of pairs.
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    /// Bytes of the pairs.
    fn used(&self) -> usize {
        self.bytes.len() - self.room as usize
    }

    /// Whether [splices](Interval::splice) of so many new pairs and bytes find room in any order.
    pub(super) fn takes(&self, pairs: usize, bytes: usize) -> bool {
        self.len() + pairs <= PAIRS_READ_MAX && self.used() + bytes <= BYTES_READ_MAX
    }

    /// Changes a pair; a form that must grow gets room for more if it is to be `roomy`. Of several
    /// changes the last one comes first, so that the places of the others stay what they are.
    pub(super) fn splice(&mut self, splice: &PairEdit<'_>, slabs: &Arc<Slabs>, roomy: bool) {
        let PairEdit { at, removes, put } = *splice;
        let (from, old) = (self.start(at), self.used());
        let gone = if removes { self.start(at + 1) } else { from } - from;
        let new: &[u8] = put.map_or(&[], |(bytes, _)| bytes);
        let bytes = self.make_room(slabs, old, old - gone + new.len(), roomy);
        bytes.copy_within(from + gone..old, from + new.len());
        bytes[from..from + new.len()].copy_from_slice(new);
        let count = self.len();
        let (stay, go) = (at + usize::from(removes), at + usize::from(put.is_some()));
        self.tags.copy_within(stay..count, go);
        self.keys.copy_within(stay..count, go);
        self.key_lens.copy_within(stay..count, go);
        self.heads.copy_within(stay..count, go);
        let count = count - stay + go;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "places fit 16 bits, and wrap around; there are few pairs"
        )]
        {
            let delta = new.len().wrapping_sub(gone) as u16;
            for key in &mut self.keys[go..count] {
                *key = key.wrapping_add(delta);
            }
            self.count = count as u32;
        }
        if let Some((bytes, pair)) = put {
            self.expires |= kind_of(bytes) == Kind::PutExpiring;
            self.tags[at] = pair.tag;
            self.keys[at] = u16::try_from(from).unwrap_or_default() + u16::from(pair.head);
            self.key_lens[at] = pair.key_len;
            self.heads[at] = pair.head;
        }
    }

    /// Lets the bytes, of which `old` are in use, be those of this interval alone and have `used`
    /// in use.
    fn make_room(&mut self, slabs: &Arc<Slabs>, old: usize, used: usize, roomy: bool) -> &mut [u8] {
        let most = old.max(used);
        if self.bytes.get_mut().is_none_or(|bytes| bytes.len() < most) {
            let more = if roomy { used / ROOM_ONE_IN } else { 0 };
            self.move_to(slabs, old, full_len(most + more));
        }
        self.room = u32::try_from(self.bytes.len() - used).unwrap_or(u32::MAX);
        self.bytes.own()
    }

    /// Lets the bytes be others, so many, of which the first `old` are those in use.
    fn move_to(&mut self, slabs: &Arc<Slabs>, old: usize, len: usize) {
        let mut moved = slabs.take(len);
        moved.own()[..old].copy_from_slice(&self.bytes[..old]);
        self.bytes = moved;
    }

    /// Whether there is room that can be given up.
    pub(super) fn has_room(&self) -> bool {
        full_len(self.used()) < self.bytes.len()
    }

    /// Gives up the room behind the pairs, if nobody shares them.
    pub(super) fn give_up_room(&mut self, slabs: &Arc<Slabs>) {
        let used = self.used();
        if self.has_room() && self.bytes.get_mut().is_some() {
            let len = full_len(used);
            self.move_to(slabs, used, len);
            self.room = u32::try_from(len - used).unwrap_or(u32::MAX);
        }
    }

    /// Whether the pairs lie in a page that is to be emptied.
    pub(super) fn is_drained(&self) -> bool {
        self.bytes.is_drained()
    }

    /// Lets the pairs lie in another page.
    pub(super) fn leave_page(&mut self, slabs: &Arc<Slabs>) {
        let (used, len) = (self.used(), self.bytes.len());
        self.move_to(slabs, used, len);
    }

    /// Asks for the memory of what stands here, but for the pairs.
    pub(super) fn prefetch(&self) {
        prefetch_range(std::ptr::from_ref(self).cast(), size_of::<Interval>());
    }

    /// Asks for the memory of the pairs, or of the first of them.
    pub(super) fn prefetch_pairs(&self) {
        prefetch_bytes(&self.bytes[..self.used().min(PREFETCHED_MAX)]);
    }

    /// Memory in bytes, with what the allocator of most systems needs beside.
    pub(super) fn memory_bytes(&self) -> u64 {
        (FORM_BYTES + self.bytes.memory_bytes()) as u64
    }

    /// The encoded bytes of the pairs from `from` up to `to`.
    pub(super) fn encoded(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[self.start(range.start)..self.start(range.end)]
    }

    /// Where pair `at` begins in the bytes; the end of all for the number of pairs.
    #[inline]
    pub(super) fn start(&self, at: usize) -> usize {
        match at < self.len() {
            true => usize::from(self.keys[at]) - usize::from(self.heads[at]),
            false => self.used(),
        }
    }

    /// Where pair `at` lies.
    pub(super) fn pair(&self, at: usize) -> PairRef {
        PairRef {
            start: self.start(at),
            head: self.heads[at],
            key_len: self.key_lens[at],
            tag: self.tags[at],
        }
    }

    #[inline]
    fn key_range(&self, at: usize) -> Range<usize> {
        let from = usize::from(self.keys[at]);
        from..from + usize::from(self.key_lens[at])
    }

    #[inline]
    pub(super) fn key(&self, at: usize) -> &[u8] {
        &self.bytes[self.key_range(at)]
    }

    /// The kind of pair `at`.
    #[inline]
    pub(super) fn kind(&self, at: usize) -> Kind {
        match self.expires {
            true => kind_of(&self.bytes[self.start(at)..]),
            false => Kind::Put,
        }
    }

    /// Whether pair `at` has expired by a moment.
    #[inline]
    pub(super) fn has_expired(&self, at: usize, moment: UnixMillis) -> bool {
        self.expires && has_expired(self.kind(at), self.stored(at), || moment)
    }

    /// Whether any pair may expire.
    pub(super) fn may_expire(&self) -> bool {
        self.expires
    }

    /// What is stored of pair `at` behind its key.
    #[inline]
    pub(super) fn stored(&self, at: usize) -> &[u8] {
        &self.bytes[self.key_range(at).end..self.start(at + 1)]
    }

    /// Pair `at` behind its key, to keep.
    #[inline]
    pub(super) fn record(&self, at: usize) -> StoredRecord {
        let (from, to) = (self.key_range(at).end, self.start(at + 1));
        let stored = match to - from <= COPIED_MAX {
            true => Slice::new(&self.bytes[from..to]),
            false => Slice::cached(&self.bytes, from, to - from),
        };
        StoredRecord::new(self.kind(at), stored)
    }

    /// The pair with that key, which has that hash.
    #[inline]
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        let tag = tag_of(hash);
        let tags = self.tags[..self.len()].iter().enumerate();
        let mut candidates = tags.filter(|(_, own)| **own == tag);
        candidates.find_map(|(at, _)| (self.key(at) == key).then_some(at))
    }

    /// How many keys are below `key`.
    pub(super) fn count_below(&self, key: &[u8]) -> usize {
        let mut low = 0;
        let mut high = self.len();
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Cuts pairs of these lengths into intervals, of about the same size each: where each but the
/// first begins.
pub(super) fn cuts(lens: impl ExactSizeIterator<Item = usize>) -> Vec<usize> {
    let parts = lens.len().div_ceil(PAIRS_MAX).max(1);
    let per_part = lens.len().div_ceil(parts);
    let mut cuts = Vec::new();
    let (mut pairs, mut bytes) = (0, 0);
    for (at, len) in lens.enumerate() {
        if pairs > 0 && (pairs == per_part || bytes + len > BYTES_MAX) {
            cuts.push(at);
            (pairs, bytes) = (0, 0);
        }
        pairs += 1;
        bytes += len;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gabion_media::seeded::SeededRng;

    use super::*;

    type Twin = BTreeMap<Vec<u8>, Vec<u8>>;
    type Encoded = (Vec<u8>, PairRef);

    fn interval(pairs: &[(&[u8], &[u8])]) -> Interval {
        let mut bytes = Vec::new();
        for (key, value) in pairs {
            put_pair(&mut bytes, Kind::Put, key, value);
        }
        decode(bytes).unwrap().unwrap()
    }

    fn slabs() -> Arc<Slabs> {
        Slabs::new(64 << 20)
    }

    fn buffer(bytes: &[u8]) -> Buffer {
        slabs().copy(bytes)
    }

    fn decode(bytes: Vec<u8>) -> Result<Option<Interval>, MalformedPayload> {
        let pairs = parse(&bytes)?;
        Ok(Interval::new(buffer(&bytes), &pairs, 0))
    }

    #[test]
    fn pairs_come_back() {
        let long = vec![7; 300];
        let longer = vec![8; COPIED_MAX + 1];
        let pairs: [(&[u8], &[u8]); 5] = [
            (b"", b"x"),
            (b"a", b""),
            (b"ab", &long),
            (b"b", b"y"),
            (b"ba", &longer),
        ];
        let interval = interval(&pairs);
        assert_eq!(interval.len(), 5);
        for (at, (key, value)) in pairs.iter().enumerate() {
            assert_eq!(interval.key(at), *key);
            assert_eq!(interval.stored(at), *value);
            assert_eq!(interval.record(at).into_value(), *value);
            assert_eq!(interval.find(key, hash_key(key)), Some(at));
            assert_eq!(interval.count_below(key), at);
        }
        assert_eq!(interval.find(b"c", hash_key(b"c")), None);
        assert_eq!(interval.count_below(b"c"), 5);
        assert_eq!(interval.encoded(0..2).len(), 3 + 3);
        // The same pairs as a part of something longer.
        let shifted = interval.pair(2);
        let part = buffer(interval.encoded(2..3));
        let part = Interval::new(part, &[shifted], shifted.start).unwrap();
        assert_eq!((part.key(0), part.stored(0)), (&b"ab"[..], &long[..]));
    }

    #[test]
    fn an_interval_that_is_changed_in_place_equals_one_that_is_made_anew() {
        let mut random = SeededRng::new(3);
        let slabs = slabs();
        let value = |random: &mut SeededRng| vec![7; random.index(300)];
        let encoded = |key: &[u8], value: &[u8]| {
            let mut bytes = Vec::new();
            put_pair(&mut bytes, Kind::Put, key, value);
            let pair = parse(&bytes).unwrap()[0];
            (bytes, pair)
        };
        let (mut twin, mut own) = (Twin::new(), interval(&[]));
        let mut kept: Option<(Interval, Twin)> = None;
        let (mut most, mut kept_room) = (0, 0);
        for round in 0..3_000 {
            // At first more comes, then more goes.
            let puts = if round / 500 % 2 == 0 { 7 } else { 3 };
            let mut steps: Vec<(usize, bool, Option<Encoded>)> = Vec::new();
            let mut after = twin.clone();
            for number in 0..100_u8 {
                let key = vec![b'k', number];
                if !random.one_in(25) {
                    continue;
                }
                let (at, is_there) = (own.count_below(&key), twin.contains_key(&key));
                if random.below(10) < puts {
                    let value = value(&mut random);
                    steps.push((at, is_there, Some(encoded(&key, &value))));
                    after.insert(key, value);
                } else if is_there {
                    steps.push((at, true, None));
                    after.remove(&key);
                }
            }
            let puts = steps.iter().filter_map(|(_, _, put)| put.as_ref());
            let bytes = puts.clone().map(|(bytes, _)| bytes.len()).sum();
            if !own.takes(puts.count(), bytes) {
                continue;
            }
            let roomy = random.one_in(2);
            for (at, removes, put) in steps.iter().rev() {
                let put = put.as_ref().map(|(bytes, pair)| (&**bytes, *pair));
                let (at, removes) = (*at, *removes);
                own.splice(&PairEdit { at, removes, put }, &slabs, roomy);
            }
            twin = after;
            most = most.max(twin.len());
            let pairs: Vec<_> = twin.iter().map(|(key, value)| (&**key, &**value)).collect();
            let anew = interval(&pairs);
            let range = 0..anew.len();
            assert_eq!(own.encoded(0..own.len()), anew.encoded(range.clone()));
            assert!(range.clone().all(|at| own.pair(at) == anew.pair(at)));
            if random.one_in(4) {
                own.give_up_room(&slabs);
                // Room stays where somebody shares it.
                kept_room += usize::from(own.has_room());
                assert_eq!(own.encoded(0..own.len()), anew.encoded(range));
            }
            // Who shares the bytes keeps what was there.
            if let Some((own, twin)) = &kept {
                assert!(twin.iter().zip(0..).all(|((key, value), at)| {
                    (own.key(at), own.stored(at)) == (&**key, &**value)
                }));
            }
            if random.one_in(10) {
                kept = Some((own.clone(), twin.clone()));
            }
        }
        assert!(most > PAIRS_MAX && kept_room > 0, "{most}, {kept_room}");
    }

    /// What a form takes beside its pairs: 240 bytes, and no more than a step of sizes.
    #[test]
    fn forms_are_dense_without_room_and_when_they_give_it_up() {
        let (mut roomy, mut dense) = (interval(&[]), interval(&[]));
        let slabs = slabs();
        let (mut sum, mut with_room) = (0, 0);
        for number in 0..PAIRS_MAX {
            let mut bytes = Vec::new();
            put_pair(
                &mut bytes,
                Kind::Put,
                &[u8::try_from(number).unwrap()],
                &[7; 115],
            );
            let pair = parse(&bytes).unwrap()[0];
            let splice = PairEdit {
                at: number,
                removes: false,
                put: Some((&bytes, pair)),
            };
            roomy.splice(&splice, &slabs, true);
            dense.splice(&splice, &slabs, false);
            sum += bytes.len();
            assert!(!dense.has_room());
            assert!(dense.memory_bytes() <= (240 + sum + sum / 8 + 128) as u64);
            with_room += usize::from(roomy.has_room());
        }
        assert!((5..PAIRS_MAX).contains(&with_room), "{with_room}");
        roomy.give_up_room(&slabs);
        assert!(!roomy.has_room());
        assert_eq!(roomy.memory_bytes(), dense.memory_bytes());
        let all = 0..PAIRS_MAX;
        assert_eq!(roomy.encoded(all.clone()), dense.encoded(all));
    }

    /// The memory of its own that it got had no room for what it removes.
    #[test]
    fn a_long_pair_is_removed_from_bytes_that_others_share() {
        let long = vec![7; 600];
        let mut own = interval(&[(b"a", &long), (b"b", b"x")]);
        let kept = own.clone();
        let removal = PairEdit {
            at: 0,
            removes: true,
            put: None,
        };
        own.splice(&removal, &slabs(), true);
        assert_eq!(
            (own.len(), own.key(0), own.stored(0)),
            (1, &b"b"[..], &b"x"[..])
        );
        assert_eq!((kept.len(), kept.stored(0)), (2, &long[..]));
    }

    #[test]
    fn an_interval_that_has_too_much_is_not_one() {
        let bytes_of = |pairs: usize, value: usize| {
            let mut bytes = Vec::new();
            for number in 0..pairs {
                put_pair(
                    &mut bytes,
                    Kind::Put,
                    format!("{number:04}").as_bytes(),
                    &vec![1; value],
                );
            }
            bytes
        };
        let is_one = |pairs, value| decode(bytes_of(pairs, value)).unwrap().is_some();
        assert!(is_one(PAIRS_READ_MAX, 10) && !is_one(PAIRS_READ_MAX + 1, 10));
        assert!(is_one(1, 200_000) && is_one(2, 16_000) && !is_one(2, 16_500));
    }

    #[test]
    fn bytes_that_are_no_pairs_are_refused() {
        let mut bytes = Vec::new();
        put_pair(&mut bytes, Kind::Put, b"b", b"1");
        put_pair(&mut bytes, Kind::Put, b"a", b"2");
        assert!(parse(&bytes).is_err(), "the order");
        bytes.truncate(4);
        put_pair(&mut bytes, Kind::Put, b"c", b"12345");
        for len in 0..bytes.len() {
            let whole = len == 0 || len == 4;
            assert_eq!(parse(&bytes[..len]).is_ok(), whole, "{len}");
        }
        assert!(parse(&[0xff; 12]).is_err());
        let mut bytes = Vec::new();
        put_pair(&mut bytes, Kind::Put, &vec![1; 64 << 10], b"");
        assert!(parse(&bytes).is_err(), "the length of the key");
    }

    /// The end of the second pair wrapped around to a place in front of it.
    #[test]
    fn a_length_that_leads_beyond_all_memory_is_refused() {
        let mut bytes = Vec::new();
        put_pair(&mut bytes, Kind::Put, b"a", b"1");
        put_varint(&mut bytes, 1);
        put_varint(&mut bytes, u64::MAX - 12);
        bytes.push(b'b');
        let malformed = parse(&bytes).unwrap_err();
        assert_eq!(malformed.at, 4);
    }

    #[test]
    fn intervals_keep_their_limits() {
        for count in 0..200 {
            let lens: Vec<usize> = (0..count).map(|at| 10 + at * 97 % 5000).collect();
            let cuts = cuts(lens.iter().copied());
            let ends = cuts.iter().copied().chain([count]);
            let mut from = 0;
            for end in ends {
                let part = &lens[from..end];
                assert!(part.len() <= PAIRS_MAX);
                assert!(part.len() == 1 || part.iter().sum::<usize>() <= BYTES_MAX);
                assert!(!part.is_empty() || count == 0);
                from = end;
            }
        }
        assert_eq!(cuts([100_000, 1, 1].into_iter()), [1]);
        assert_eq!(cuts([10; 17].into_iter()), [9]);
    }
}
