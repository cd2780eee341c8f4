//! Which versions of a key a flush or a compaction keeps.
//!
//! # Idea
//! Versions of a key arrive newest first. A version is dropped when a newer one of the same key
//! hides it from every reader: both are in the same stripe of the protected numbers (see
//! `snapshots`). A tombstone that is the oldest thing any reader may see of its key is dropped when
//! nothing older lies beneath the output.

use super::snapshots::Protected;
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
}

impl Retain {
    /// `bottom` says that nothing older lies beneath the output.
    pub(crate) fn new(protected: Protected, bottom: bool) -> Retain {
        Retain {
            protected,
            bottom,
            key: Vec::new(),
            stripe: None,
            started: false,
        }
    }

    /// Whether the entry must be written.
    #[inline]
    pub(crate) fn keeps(&mut self, key: &[u8], seq: Seq, kind: Kind) -> bool {
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
        !hidden && !gone
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshots::Snapshots;
    use super::*;

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
                    snapshots.register(|| first);
                    snapshots.register(|| second);
                    let mut retain = Retain::new(snapshots.protect(|| visible), true);
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
        let protected = Snapshots::default().protect(|| 10);
        let mut retain = Retain::new(protected.clone(), true);
        assert!(!retain.keeps(b"a", 3, Kind::Delete));
        assert!(!retain.keeps(b"a", 2, Kind::Put));
        assert!(retain.keeps(b"b", 9, Kind::Put));
        assert!(!retain.keeps(b"b", 8, Kind::Put));
        let mut retain = Retain::new(protected, false);
        assert!(retain.keeps(b"a", 3, Kind::Delete));
        assert!(!retain.keeps(b"a", 2, Kind::Put));
    }
}
