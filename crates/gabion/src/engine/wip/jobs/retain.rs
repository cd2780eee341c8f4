//! Which versions of a key a flush or a compaction keeps.
//!
//! # Idea
//! Versions of a key arrive newest first. A version is dropped when a newer one of the same key, or
//! a range delete, hides it from every reader: both are in the same stripe of the protected numbers
//! (see `snapshots`). A tombstone that is the oldest thing any reader may see of its key is dropped
//! when nothing older lies beneath the output; so is a range delete.
//!
//! A version that has expired for all readers passes as a tombstone (`expiry`).
//!
//! Range deletes do not pass through as they arrive: the inputs' are cut at the bucket's ends and
//! into fragments before, and are put between the entries where they belong.

use crate::Result;
use crate::engine::range_deletes::Fragments;
use crate::engine::snapshots::Protected;
use crate::expiry::has_expired;
use crate::types::{Kind, Seq};

/// Decides entry by entry; entries come by key ascending, versions newest first.
pub(crate) struct Retain {
    protected: Protected,
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
    deletes: Fragments,
    /// Fragments that have been put out.
    fragments_out: usize,
    /// Numbers of the next fragment that have been put out.
    numbers_out: usize,
}

impl Retain {
    /// `bottom` says that nothing older lies beneath the output; `deletes` are the range deletes
    /// among the entries that will be offered.
    pub(crate) fn new(protected: Protected, bottom: bool, deletes: Fragments) -> Retain {
        Retain {
            protected,
            bottom,
            key: Vec::new(),
            stripe: None,
            started: false,
            superseded: 0,
            deletes,
            fragments_out: 0,
            numbers_out: 0,
        }
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
        if self.keeps(key, seq, kind) {
            add(key, seq, kind, value)?;
        }
        Ok(())
    }

    /// Gives to `add` what must be written behind the last entry.
    pub(crate) fn finish(
        &mut self,
        add: &mut impl FnMut(&[u8], Seq, Kind, &[u8]) -> Result<()>,
    ) -> Result<()> {
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
        let stripe = self.protected.stripe(seq);
        let same_key = self.started && self.key == key;
        if !same_key {
            self.started = true;
            self.key.clear();
            self.key.extend_from_slice(key);
        }
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
    use crate::engine::snapshots::Snapshots;
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
                    let snapshots = Snapshots::default();
                    snapshots.register(|| ReadPoint::early(first));
                    snapshots.register(|| ReadPoint::early(second));
                    let mut retain = Retain::new(
                        snapshots.protect(|| ReadPoint::early(visible)),
                        true,
                        Fragments::default(),
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
        let protected = Snapshots::default().protect(|| ReadPoint::early(10));
        let mut retain = Retain::new(protected.clone(), true, Fragments::default());
        assert!(!retain.keeps(b"a", 3, Kind::Delete));
        assert!(!retain.keeps(b"a", 2, Kind::Put));
        assert!(retain.keeps(b"b", 9, Kind::Put));
        assert!(!retain.keeps(b"b", 8, Kind::Put));
        let mut retain = Retain::new(protected, false, Fragments::default());
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
                let snapshots = Snapshots::default();
                snapshots.register(|| ReadPoint::early(snapshot));
                let protected = snapshots.protect(|| ReadPoint::early(4));
                let ranges: Vec<_> = entries
                    .iter()
                    .filter(|(_, _, kind)| *kind == Kind::DeleteRange)
                    .map(|(key, seq, _)| Fragments::of_range(&[*key], Some(&[key + 2]), *seq))
                    .collect();
                let deletes = Fragments::union(&ranges, &protected);
                let mut retain = Retain::new(protected, bottom, deletes);
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
}
