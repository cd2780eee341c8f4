//! Finds writes since a sequence number, for the commit of a transaction.
//!
//! # Idea
//! The caller has the write half of the log, so that nothing is written meanwhile, and a reader is
//! registered at the number. What is newer than the number is in the generations that take writes
//! or wait, or in those of the past, which a merge keeps for that reader: a past generation whose
//! writes were given up has an image of each key that it changed.
//!
//! A generation of the past has no image of a key that was deleted and was not there: then nothing
//! has changed for who reads by value.

use std::ops::ControlFlow;

use super::generation::GenerationPart;
use super::{Flex, FlexKeyspace};
use crate::types::{SEQ_MAX, Seq};

impl Flex {
    /// Whether a write to a key has a number above `since`. `hash` is that of the key.
    pub(super) fn is_newer(
        &self,
        keyspace: &FlexKeyspace,
        key: &[u8],
        hash: u64,
        since: Seq,
    ) -> bool {
        let is_newer = |layer: &GenerationPart, is_past: bool| {
            let entry = layer.table.get(key, hash, SEQ_MAX);
            entry.is_some_and(|entry| entry.seq > since)
                || layer.deleted(key, SEQ_MAX) > since
                || is_past && layer.image(key).is_some()
        };
        self.find_newer(keyspace, since, is_newer)
    }

    /// The key of a write to a range with a number above `since`. O(what generations with such
    /// numbers have in the range).
    pub(super) fn newer_in(
        &self,
        keyspace: &FlexKeyspace,
        range: (&[u8], Option<&[u8]>),
        since: Seq,
    ) -> Option<Vec<u8>> {
        let mut found = None;
        self.find_newer(keyspace, since, |layer, is_past| {
            found = layer.newer_in(range, since);
            if found.is_none() && is_past {
                let images = layer.images(range.0, range.1);
                found = images.first().map(|(key, _)| key.to_vec());
            }
            found.is_some()
        });
        found
    }

    /// Calls `is_newer` with the layers of a keyspace that have numbers above `since`, and with
    /// whether all that their generation has changed is above it and of the past, until one has
    /// something newer; whether one had.
    fn find_newer(
        &self,
        keyspace: &FlexKeyspace,
        since: Seq,
        mut is_newer: impl FnMut(&GenerationPart, bool) -> bool,
    ) -> bool {
        let view = self.view.load();
        let all = view.waiting.iter().map(|waiting| (waiting, false));
        let all = all.chain(view.past_for_reader(since).map(|past| (past, true)));
        let mut newer = all.filter(|(generation, _)| generation.max_seq() > since);
        let walked = newer.try_for_each(|(generation, is_past)| {
            let is_past = is_past && generation.min_seq() > since;
            let found = generation.with_layer(keyspace.id, |layer| is_newer(layer, is_past));
            match found.unwrap_or(false) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        walked.is_break()
    }
}
