//! Decides which versions of a key a flush or a compaction keeps.
//!
//! # Idea
//! Versions of a key arrive newest first. A version is dropped when a newer one of the same key, or
//! a range delete, hides it from every reader: both are in the same stripe of the protected numbers
//! (see `snapshots`). A tombstone that is the oldest thing any reader may see of its key is dropped
//! when nothing older lies beneath the output; so is a range delete.
//!
//! A version that has expired for all readers counts as a tombstone (`expiry`).
//!
//! A merge needs what is below it (`operands`), which may be hidden by the merge itself. So from
//! the first merge of a key on, what is kept of the key is *held*; each older version is folded
//! into the merges whose base it is, and then kept or dropped as others are. What is held goes on
//! once all of its merges have come to a value or a delete, or the key ends.
//!
//! Range deletes do not pass through as they arrive: the inputs' are cut at the bucket's ends and
//! into fragments before, and are put between the entries where they belong.

use crate::Result;
use crate::compaction_filter::SharedCompactionFilter;
use crate::engine::range_deletes::RangeTombstones;
use crate::engine::snapshots::ProtectedSeqs;
use crate::expiry::has_expired;
use crate::merge::MergeOperator;
use crate::operands::{MergeContext, Operands, malformed_in_memory};
use crate::types::{Kind, Seq};

/// Decides entry by entry; entries come by key ascending, versions newest first.
pub(crate) struct VersionGc {
    protected: ProtectedSeqs,
    /// Nothing older than the inputs lies beneath the output.
    bottom: bool,
    key: Vec<u8>,
    /// The stripe of the newer version of `key` that was seen last; `None` at its first version
    /// and after versions that are above all stripes.
    stripe: Option<usize>,
    started: bool,
    /// Versions that were kept although newer ones of their keys were.
    superseded: u64,
    /// The range deletes of the inputs.
    deletes: RangeTombstones,
    /// Fragments that have been put out.
    fragments_out: usize,
    /// Numbers of the next fragment that have been put out.
    numbers_out: usize,
    /// What operands mean, if the keyspace has any.
    operator: Option<MergeOperator>,
    /// What the keyspace's program says of values.
    filter: Option<SharedCompactionFilter>,
    /// Versions of the last key, newest first, if some are merges that need what comes.
    held: Vec<Held>,
}

/// A version that is kept.
struct Held {
    seq: Seq,
    version: Version,
}

enum Version {
    Merge(Operands),
    Other(Kind, Vec<u8>),
}

impl Held {
    /// The operands of a merge that needs what is below it, if it is one, and below what.
    fn open(&mut self) -> Option<(&mut Operands, Seq)> {
        match &mut self.version {
            Version::Merge(operands) => {
                let below = operands.below(self.seq)?;
                Some((operands, below))
            }
            Version::Other(..) => None,
        }
    }
}

impl VersionGc {
    /// `bottom` says that nothing older lies beneath the output; `deletes` are the range deletes
    /// among the entries that will be offered.
    pub(crate) fn new(
        protected: ProtectedSeqs,
        bottom: bool,
        deletes: RangeTombstones,
    ) -> VersionGc {
        VersionGc {
            protected,
            bottom,
            key: Vec::new(),
            stripe: None,
            started: false,
            superseded: 0,
            deletes,
            fragments_out: 0,
            numbers_out: 0,
            operator: None,
            filter: None,
            held: Vec::new(),
        }
    }

    /// The same, of a keyspace with this operator.
    pub(crate) fn merging(self, operator: Option<MergeOperator>) -> VersionGc {
        VersionGc { operator, ..self }
    }

    /// The same, which asks a filter about what nobody reads.
    pub(crate) fn filtering(self, filter: Option<SharedCompactionFilter>) -> VersionGc {
        VersionGc { filter, ..self }
    }

    /// Gives to `add` what must be written up to this entry.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        value: &[u8],
        add: &mut impl FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if !self.held.is_empty() {
            if self.key == key {
                return self.fold(seq, kind, value, add);
            }
            self.release(true, add)?;
        }
        if !self.deletes.is_empty() {
            self.put_deletes_out(Some((key, seq)), add)?;
            if kind == Kind::DeleteRange || self.is_deleted(key, seq) {
                return Ok(());
            }
        }
        let (kind, value) = match has_expired(kind, value, || self.protected.horizon()) {
            true => (Kind::Delete, &[][..]),
            false => (kind, value),
        };
        let filtered;
        let (mut kind, mut value) = (kind, value);
        if self.filter.is_some() && self.protected.is_free(seq) && !self.is_same_key(key) {
            filtered = self.filtered(key, kind, value);
            if let Some(filtered) = &filtered {
                (kind, value) = (filtered.0, &filtered.1);
            }
        }
        if self.keeps(key, seq, kind) {
            match kind {
                Kind::Merge => self.hold(seq, kind, value, add)?,
                _ => add(key, seq, kind, value)?,
            }
        }
        Ok(())
    }

    /// What a filter makes of a version; nothing if that stays as it is.
    #[cold]
    fn filtered(&self, key: &[u8], kind: Kind, stored: &[u8]) -> Option<(Kind, Vec<u8>)> {
        self.filter.as_ref()?.filter(key, kind, stored)
    }

    /// Holds a version of the last key, as long as a merge needs what comes.
    #[cold]
    fn hold(
        &mut self,
        seq: Seq,
        kind: Kind,
        stored: &[u8],
        add: &mut impl FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let version = match kind {
            Kind::Merge => Version::Merge(Operands::decode(stored).map_err(malformed_in_memory)?),
            _ => Version::Other(kind, stored.to_vec()),
        };
        self.held.push(Held { seq, version });
        match self.held.iter_mut().any(|held| held.open().is_some()) {
            true => Ok(()),
            false => self.release(false, add),
        }
    }

    /// Folds an older version of the last key into the merges that need it, and holds it if it is
    /// kept.
    #[cold]
    fn fold(
        &mut self,
        seq: Seq,
        kind: Kind,
        stored: &[u8],
        add: &mut impl FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if kind == Kind::DeleteRange {
            return Ok(());
        }
        let has_expired = has_expired(kind, stored, || self.protected.horizon());
        let fragment = self.deletes.find(&self.key);
        for held in &mut self.held {
            let own = held.seq;
            let Some((operands, _)) = held.open().filter(|(_, below)| *below > seq) else {
                continue;
            };
            let is_deleted = fragment.is_some_and(|fragment| fragment.newest(own) > seq);
            match has_expired || is_deleted {
                true => operands.set_no_base(),
                false => {
                    let put = operands.set_base(seq, kind, stored);
                    put.map_err(malformed_in_memory)?;
                }
            }
        }
        let key = std::mem::take(&mut self.key);
        let is_deleted = !self.deletes.is_empty() && self.is_deleted(&key, seq);
        self.key = key;
        let (kind, stored) = match has_expired {
            true => (Kind::Delete, &[][..]),
            false => (kind, stored),
        };
        match !is_deleted && self.keeps_version(seq, kind, true) {
            true => self.hold(seq, kind, stored, add),
            false if self.held.iter_mut().any(|held| held.open().is_some()) => Ok(()),
            false => self.release(false, add),
        }
    }

    /// Gives what is held to `add`; `is_all` says that no older version of its key comes.
    fn release(
        &mut self,
        is_all: bool,
        add: &mut impl FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let key = std::mem::take(&mut self.key);
        for (position, mut held) in std::mem::take(&mut self.held).into_iter().enumerate() {
            self.put_deletes_out(Some((&key, held.seq)), add)?;
            if is_all
                && self.bottom
                && let Some((operands, _)) = held.open()
            {
                operands.set_no_base();
            }
            let (kind, stored) = match held.version {
                Version::Other(kind, stored) => (kind, stored),
                Version::Merge(operands) => operands.settled(MergeContext {
                    key: &key,
                    operator: self.operator.as_ref(),
                    moment: self.protected.horizon(),
                    expires: None,
                }),
            };
            let is_newest = self.protected.is_free(held.seq) && position == 0;
            let filtered = is_newest.then(|| self.filtered(&key, kind, &stored));
            let (kind, stored) = filtered.flatten().unwrap_or((kind, stored));
            let is_oldest = self.protected.stripe(held.seq) == Some(0);
            if kind != Kind::Delete || !self.bottom || !is_oldest {
                add(&key, held.seq, kind, &stored)?;
            }
        }
        self.key = key;
        Ok(())
    }

    /// Gives to `add` what must be written behind the last entry.
    pub(crate) fn finish(
        &mut self,
        add: &mut impl FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.release(true, add)?;
        self.put_deletes_out(None, add)
    }

    /// How many versions were kept although newer ones of their keys were.
    pub(crate) fn superseded(&self) -> u64 {
        self.superseded
    }

    /// Puts out the range deletes that come before an entry; all that are left for `None`.
    fn put_deletes_out(
        &mut self,
        before: Option<(&[u8], Seq)>,
        add: &mut impl FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()>,
    ) -> Result<()> {
        while let Some(fragment) = self.deletes.get(self.fragments_out) {
            while let Some(seq) = fragment.seqs.get(self.numbers_out).copied() {
                let lower = &*fragment.lower;
                let comes =
                    before.is_none_or(|(key, other)| lower < key || (lower == key && seq > other));
                if !comes {
                    return Ok(());
                }
                self.numbers_out += 1;
                let gone = self.bottom && self.protected.stripe(seq) == Some(0);
                if !gone {
                    let upper = fragment.upper.as_deref().unwrap_or(&[]);
                    add(lower, seq, Kind::DeleteRange, upper)?;
                }
            }
            self.fragments_out += 1;
            self.numbers_out = 0;
        }
        Ok(())
    }

    /// Whether a range delete hides a version from every reader.
    fn is_deleted(&self, key: &[u8], seq: Seq) -> bool {
        let stripe = self.protected.stripe(seq);
        stripe.is_some_and(|stripe| {
            let found = self.deletes.find(key);
            let last = self.protected.last_of(stripe);
            found.is_some_and(|fragment| fragment.newest(last) > seq)
        })
    }

    /// Whether the entry must be written, as far as versions of its key say.
    #[inline]
    fn keeps(&mut self, key: &[u8], seq: Seq, kind: Kind) -> bool {
        let same_key = self.is_same_key(key);
        if !same_key {
            self.started = true;
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.keeps_version(seq, kind, same_key)
    }

    /// Whether a version of the key came before.
    #[inline]
    fn is_same_key(&self, key: &[u8]) -> bool {
        self.started && self.key == key
    }

    /// As [`VersionGc::keeps`], of the last key.
    #[inline]
    fn keeps_version(&mut self, seq: Seq, kind: Kind, same_key: bool) -> bool {
        let stripe = self.protected.stripe(seq);
        let hidden = same_key && stripe.is_some() && stripe == self.stripe;
        self.stripe = stripe;
        let gone = kind == Kind::Delete && self.bottom && stripe == Some(0);
        let keeps = !hidden && !gone;
        self.superseded += u64::from(keeps && same_key);
        keeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::snapshots::SnapshotList;
    use crate::expiry::ReadPoint;

    /// What a reader at `seq` sees among versions given newest first.
    fn seen(versions: &[(Seq, Kind)], seq: Seq) -> Option<Seq> {
        versions
            .iter()
            .find(|(version, _)| *version <= seq)
            .and_then(|(version, kind)| (*kind == Kind::Put).then_some(*version))
    }

    #[test]
    fn every_protected_reader_sees_the_same_before_and_after() {
        // All histories of up to four versions of one key, all choices of two snapshots.
        for bits in 0..16u32 {
            for (first, second) in [(1, 2), (0, 3), (2, 3), (1, 4), (3, 3)] {
                let versions: Vec<(Seq, Kind)> = (1..=4)
                    .rev()
                    .map(|seq| {
                        let kind = if bits >> (seq - 1) & 1 == 1 {
                            Kind::Put
                        } else {
                            Kind::Delete
                        };
                        (seq, kind)
                    })
                    .collect();
                for visible in [3, 4] {
                    let snapshots = SnapshotList::default();
                    snapshots.register(|| ReadPoint::early(first));
                    snapshots.register(|| ReadPoint::early(second));
                    let mut retain = VersionGc::new(
                        snapshots.protect(|| ReadPoint::early(visible)),
                        true,
                        RangeTombstones::default(),
                    );
                    let kept: Vec<_> = versions
                        .iter()
                        .copied()
                        .filter(|(seq, kind)| retain.keeps(b"key", *seq, *kind))
                        .collect();
                    for reader in [first, second, visible, 4] {
                        assert_eq!(seen(&kept, reader), seen(&versions, reader));
                    }
                }
            }
        }
    }

    #[test]
    fn hidden_versions_and_bottom_tombstones_go() {
        let protected = SnapshotList::default().protect(|| ReadPoint::early(10));
        let mut retain = VersionGc::new(protected.clone(), true, RangeTombstones::default());
        assert!(!retain.keeps(b"a", 3, Kind::Delete));
        assert!(!retain.keeps(b"a", 2, Kind::Put));
        assert!(retain.keeps(b"b", 9, Kind::Put));
        assert!(!retain.keeps(b"b", 8, Kind::Put));
        let mut retain = VersionGc::new(protected, false, RangeTombstones::default());
        assert!(retain.keeps(b"a", 3, Kind::Delete));
        assert!(!retain.keeps(b"a", 2, Kind::Put));
    }

    /// One version of one of three keys: a put, a delete, or a delete of that key and the next.
    fn reader_sees(entries: &[(u8, Seq, Kind)], key: u8, seq: Seq) -> Option<Seq> {
        let concerns = |(own, version, kind): &&(u8, Seq, Kind)| {
            let range = *kind == Kind::DeleteRange && (*own..own + 2).contains(&key);
            *version <= seq && (*own == key || range)
        };
        let newest = entries.iter().filter(concerns).max_by_key(|entry| entry.1);
        newest.and_then(|(_, seq, kind)| (*kind == Kind::Put).then_some(*seq))
    }

    #[test]
    fn range_deletes_hide_what_they_hide_from_every_protected_reader() {
        let choices: Vec<(u8, Kind)> = (0..3)
            .flat_map(|key| [Kind::Put, Kind::DeleteRange].map(|kind| (key, kind)))
            .collect();
        let count = choices.len();
        for number in 0..count.pow(4) {
            let entries: Vec<(u8, Seq, Kind)> = (0..4u32)
                .map(|at| {
                    let (key, kind) = choices[number / count.pow(at) % count];
                    (key, Seq::from(at) + 1, kind)
                })
                .collect();
            for (snapshot, bottom) in [(1, true), (2, true), (3, true), (2, false), (4, true)] {
                let snapshots = SnapshotList::default();
                snapshots.register(|| ReadPoint::early(snapshot));
                let protected = snapshots.protect(|| ReadPoint::early(4));
                let ranges: Vec<_> = entries
                    .iter()
                    .filter(|(_, _, kind)| *kind == Kind::DeleteRange)
                    .map(|(key, seq, _)| RangeTombstones::of_range(&[*key], Some(&[key + 2]), *seq))
                    .collect();
                let deletes = RangeTombstones::union(&ranges, &protected);
                let mut retain = VersionGc::new(protected, bottom, deletes);
                let mut ordered = entries.clone();
                ordered.sort_by_key(|(key, seq, _)| (*key, 5 - seq));
                let mut kept: Vec<(Vec<u8>, Seq, Kind, Vec<u8>)> = Vec::new();
                let mut add = |key: &[u8], seq, kind, value: &[u8]| {
                    kept.push((key.to_vec(), seq, kind, value.to_vec()));
                    Ok(())
                };
                for (key, seq, kind) in ordered {
                    retain.offer(&[key], seq, kind, &[], &mut add).unwrap();
                }
                retain.finish(&mut add).unwrap();
                let order = |entry: &(Vec<u8>, Seq, Kind, Vec<u8>)| (entry.0.clone(), 5 - entry.1);
                assert!(kept.is_sorted_by_key(order), "{kept:?}");
                for reader in [snapshot, 4, 9] {
                    for key in 0..5u8 {
                        let left = kept.iter().filter(|(own, seq, kind, upper)| {
                            let range = *kind == Kind::DeleteRange
                                && own[0] <= key
                                && upper.first().is_none_or(|upper| key < *upper);
                            *seq <= reader && (own[0] == key || range)
                        });
                        let newest = left.max_by_key(|(_, seq, ..)| *seq);
                        let found = newest.filter(|(_, _, kind, _)| *kind == Kind::Put);
                        assert_eq!(
                            found.map(|(_, seq, ..)| *seq),
                            reader_sees(&entries, key, reader),
                            "{entries:?} {snapshot} {bottom} {key} at {reader}: {kept:?}"
                        );
                    }
                }
            }
        }
    }

    /// A version of the key of the next test.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Said {
        Put,
        Delete,
        Merge,
        /// A delete of the key with a range.
        Range,
    }

    /// What a reader at `seq` finds: the numbers that were put and merged, in their order.
    fn text_at(versions: &[(Seq, Said)], seq: Seq) -> Option<Vec<u8>> {
        let mut text: Option<Vec<u8>> = None;
        for (own, said) in versions.iter().filter(|(own, _)| *own <= seq) {
            let byte = b'0' + own.to_le_bytes()[0];
            text = match said {
                Said::Put => Some(vec![byte]),
                Said::Delete | Said::Range => None,
                Said::Merge => Some([text.as_deref().unwrap_or_default(), &[byte]].concat()),
            };
        }
        text
    }

    /// What is stored of the versions, newest first; merges cover others with `covers`, as those of
    /// a MemTable do, back to `from`.
    fn stored_of(versions: &[(Seq, Said)], from: Seq, covers: bool) -> Vec<(Seq, Kind, Vec<u8>)> {
        let mut stored: Vec<(Seq, Kind, Vec<u8>)> = Vec::new();
        let mut deleted = 0;
        for (seq, said) in versions {
            let byte = [b'0' + seq.to_le_bytes()[0]];
            let next = match said {
                Said::Put => (Kind::Put, byte.to_vec()),
                Said::Delete => (Kind::Delete, Vec::new()),
                Said::Range => {
                    deleted = *seq;
                    continue;
                }
                Said::Merge => {
                    let mut operands = Operands::one(&byte).from(*seq);
                    if let Some((older, kind, value)) = stored.last()
                        && covers
                        && *seq >= from
                        && *older >= from
                    {
                        match *older > deleted {
                            true => operands.set_base(*older, *kind, value).unwrap(),
                            false => operands.set_no_base(),
                        }
                    }
                    operands.settled(asked(&append()))
                }
            };
            stored.push((*seq, next.0, next.1));
        }
        stored.reverse();
        stored
    }

    fn append() -> MergeOperator {
        MergeOperator::new(crate::Append::new(""))
    }

    fn asked(operator: &MergeOperator) -> MergeContext<'_> {
        MergeContext {
            key: b"a",
            operator: Some(operator),
            moment: 0,
            expires: None,
        }
    }

    /// What a reader at `seq` finds in what was kept.
    fn read(kept: &[(Seq, Kind, Vec<u8>)], seq: Seq) -> Option<Vec<u8>> {
        let ranges = kept
            .iter()
            .filter(|(own, kind, _)| *kind == Kind::DeleteRange && *own <= seq);
        let deleted = ranges.map(|(own, ..)| *own).max().unwrap_or(0);
        let below = |seq: Seq| {
            let mut versions = kept
                .iter()
                .filter(|(_, kind, _)| *kind != Kind::DeleteRange);
            versions.find(|(own, ..)| *own <= seq)
        };
        let is_there = |kind: Kind, own: Seq| kind != Kind::Delete && own > deleted;
        let (own, kind, stored) = below(seq).filter(|(own, kind, _)| is_there(*kind, *own))?;
        if *kind == Kind::Put {
            return Some(stored.clone());
        }
        let mut operands = Operands::decode(stored).unwrap();
        let mut own = *own;
        while let Some(next) = operands.below(own) {
            match below(next - 1).filter(|(own, kind, _)| is_there(*kind, *own)) {
                Some((older, kind, stored)) => {
                    operands.set_base(*older, *kind, stored).unwrap();
                    own = *older;
                }
                None => operands.set_no_base(),
            }
        }
        let record = operands.read(asked(&append())).unwrap();
        record.map(|record| record.into_value().to_vec())
    }

    #[test]
    fn merges_say_the_same_to_every_protected_reader() {
        const VERSIONS: u32 = 5;
        let said = [Said::Put, Said::Delete, Said::Merge, Said::Range];
        for number in 0..4usize.pow(VERSIONS) {
            let versions: Vec<(Seq, Said)> = (0..VERSIONS)
                .map(|at| (Seq::from(at) + 1, said[number / 4usize.pow(at) % 4]))
                .collect();
            for (snapshot, bottom, known, covers) in [
                (1, true, true, false),
                (2, false, true, true),
                (3, true, false, true),
                (4, false, false, false),
                (3, false, true, true),
                (5, true, true, true),
            ] {
                // Two sources, the newer of which has what is above 2; the job merges both, or has
                // what is above 1 while that lies below.
                let lowest = if bottom { 1 } else { 2 };
                let split = |versions: &[(Seq, Said)]| {
                    let mut stored = stored_of(versions, 3, covers);
                    let outside =
                        stored.split_off(stored.partition_point(|(own, ..)| *own >= lowest));
                    (stored, outside)
                };
                let (stored, outside) = split(&versions);
                let snapshots = SnapshotList::default();
                snapshots.register(|| ReadPoint::early(snapshot));
                let protected = snapshots.protect(|| ReadPoint::early(5));
                let ranges = versions.iter().filter(|(_, said)| *said == Said::Range);
                let (inside, below): (Vec<_>, Vec<_>) = ranges.partition(|(own, _)| *own >= lowest);
                let fragments: Vec<_> = inside
                    .iter()
                    .map(|(own, _)| RangeTombstones::of_range(b"a", None, *own))
                    .collect();
                let deletes = RangeTombstones::union(&fragments, &protected);
                let operator = known.then(append);
                let mut retain = VersionGc::new(protected, bottom, deletes).merging(operator);
                let mut kept: Vec<(Seq, Kind, Vec<u8>)> = Vec::new();
                let mut add = |_: &[u8], seq, kind, value: &[u8]| {
                    kept.push((seq, kind, value.to_vec()));
                    Ok(())
                };
                for (seq, kind, stored) in &stored {
                    retain.offer(b"a", *seq, *kind, stored, &mut add).unwrap();
                }
                retain.finish(&mut add).unwrap();
                assert!(kept.is_sorted_by_key(|(seq, ..)| 9 - seq), "{kept:?}");
                kept.extend(outside);
                let below = below
                    .iter()
                    .map(|(own, _)| (*own, Kind::DeleteRange, Vec::new()));
                kept.extend(below);
                for reader in [snapshot, 5, 9] {
                    let expected = text_at(&versions, reader);
                    let found = read(&kept, reader);
                    assert_eq!(found, expected, "{versions:?} at {reader}: {kept:?}");
                }
            }
        }
    }
}
