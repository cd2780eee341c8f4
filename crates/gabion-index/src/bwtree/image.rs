//! The bytes of new pages and of new deltas.

use gabion_media::pmem::Medium;

use super::layout::{DELETES, DELTA_BYTES, HEAD_BYTES, LINE_BYTES, OF_STRINGS};
use crate::stored_key::{KeyParts, StoredKey, rest_len};

/// What a new page is to be, but for its entries.
#[derive(Clone, Copy)]
pub(super) struct PagePlan {
    pub(super) level: u64,
    pub(super) low: StoredKey,
    /// The low of the right neighbour and its cell, if there is one.
    pub(super) right: Option<(StoredKey, u64)>,
    /// Where the lines for deltas begin, unless the entries reach further.
    pub(super) deltas_at: u64,
    /// Lines for deltas.
    pub(super) lines: u64,
    /// Whether keys are strings.
    pub(super) of_strings: bool,
}

/// The bytes of a new page before its lines for deltas, and how many it has with these.
pub(super) fn page(
    medium: &Medium,
    plan: &PagePlan,
    entries: &[(StoredKey, u64)],
) -> (Vec<u8>, u64) {
    let count = entries.len() as u64;
    let parts = if plan.of_strings { 3 } else { 2 };
    let mut rests = Vec::new();
    let mut place = |key: &StoredKey| {
        if !plan.of_strings {
            return 0;
        }
        let at = HEAD_BYTES + parts * 8 * count + rests.len() as u64;
        rests.extend_from_slice(&key.rest_bytes(medium));
        key.len << 32 | at
    };
    let low_place = place(&plan.low);
    let (bound, bound_place, right) = match &plan.right {
        Some((bound, right)) => (bound.word, place(bound), *right),
        None => (0, 0, 0),
    };
    let places: Vec<u64> = entries.iter().map(|(key, _)| place(key)).collect();
    let places = if plan.of_strings { places } else { Vec::new() };
    let deltas_at = HEAD_BYTES + parts * 8 * count + rests.len() as u64;
    let deltas_at = deltas_at.next_multiple_of(LINE_BYTES).max(plan.deltas_at);
    let page_bytes = deltas_at + plan.lines * LINE_BYTES;
    let kind = if plan.of_strings { OF_STRINGS } else { 0 };
    let head = [
        plan.level | plan.lines << 8 | kind | count << 32,
        right,
        plan.low.word,
        low_place,
        bound,
        bound_place,
        deltas_at,
        page_bytes,
    ];
    let words = head.into_iter();
    let words = words.chain(entries.iter().map(|(key, _)| key.word));
    let words = words.chain(entries.iter().map(|(_, value)| *value));
    let mut bytes: Vec<u8> = words.chain(places).flat_map(u64::to_le_bytes).collect();
    bytes.extend_from_slice(&rests);
    (bytes, page_bytes)
}

/// Lines that the delta of a key with so many bytes needs.
#[inline]
pub(super) fn delta_lines(len: u64) -> u64 {
    (DELTA_BYTES + rest_len(len)).div_ceil(LINE_BYTES)
}

/// The bytes of a new delta: the key's value, or none if it is deleted, above the delta in the line
/// `next`, as number `depth`.
pub(super) fn delta(key: &KeyParts<'_>, value: Option<u64>, next: u64, depth: u64) -> Vec<u8> {
    let kind = if value.is_none() { DELETES } else { 0 };
    let state = next | depth << 8 | kind | key.len << 32;
    let words = [state, key.word, value.unwrap_or(0)];
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend_from_slice(key.rest);
    bytes
}
