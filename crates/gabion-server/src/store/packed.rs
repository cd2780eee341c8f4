//! Packed items: the encoding of a small collection in the body of its record.
//!
//! # Layout
//! Each item is its length, seven bits to a byte with the lowest first and the eighth bit on all
//! but the last, and then its bytes. A list is its elements; a set, a sorted set and a hash are
//! pairs of a member and what belongs to it.
//!
//! Items are found by a walk, and changed in place: a body has a few hundred bytes at most.

use std::ops::Range;

/// The longest length, in bytes.
const LENGTH_BYTES_MAX: usize = 5;

/// Appends a length.
pub(crate) fn push_length(bytes: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        bytes.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap_or_default());
}

/// Appends an item.
pub(crate) fn push(bytes: &mut Vec<u8>, item: &[u8]) {
    push_length(bytes, item.len());
    bytes.extend_from_slice(item);
}

/// The first item and what follows it.
pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_usize;
    for (index, byte) in bytes.iter().take(LENGTH_BYTES_MAX).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let rest = bytes.get(index + 1..)?;
            return rest.split_at_checked(length);
        }
    }
    None
}

/// An item and its place, which includes its length.
#[derive(Clone, Debug)]
pub(crate) struct PackedItem<'a> {
    /// Its bytes.
    pub(crate) bytes: &'a [u8],
    /// Its place in the row.
    pub(crate) span: Range<usize>,
}

/// The items of a row. A row that ends in an item ends before it.
pub(crate) fn items(row: &[u8]) -> impl Iterator<Item = PackedItem<'_>> + Clone {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = row.get(at..)?;
        let (bytes, behind) = split(rest)?;
        let span = at..row.len() - behind.len();
        at = span.end;
        Some(PackedItem { bytes, span })
    })
}

/// A member, its payload, and the places of both.
#[derive(Clone, Debug)]
pub(crate) struct PackedPair<'a> {
    /// The member.
    pub(crate) member: &'a [u8],
    /// What belongs to it.
    pub(crate) payload: &'a [u8],
    /// The place of both.
    pub(crate) span: Range<usize>,
    /// The place of what belongs to it.
    pub(crate) payload_span: Range<usize>,
}

/// The pairs of a row.
pub(crate) fn pairs(row: &[u8]) -> impl Iterator<Item = PackedPair<'_>> + Clone {
    let mut items = items(row);
    std::iter::from_fn(move || {
        let (member, payload) = (items.next()?, items.next()?);
        Some(PackedPair {
            member: member.bytes,
            payload: payload.bytes,
            span: member.span.start..payload.span.end,
            payload_span: payload.span,
        })
    })
}

/// Puts an item in the place of a part of a row.
pub(crate) fn replace(row: &mut Vec<u8>, span: Range<usize>, item: &[u8]) {
    let mut new = Vec::with_capacity(LENGTH_BYTES_MAX + item.len());
    push(&mut new, item);
    row.splice(span, new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_as_they_were_pushed_and_replaced() {
        let long = vec![b'x'; 20_000];
        let mut row = Vec::new();
        for item in [&b"a"[..], b"", &long, &long[..127], &long[..128]] {
            push(&mut row, item);
        }
        let found: Vec<_> = items(&row).map(|item| item.bytes.len()).collect();
        assert_eq!(found, [1, 0, 20_000, 127, 128]);
        let span = items(&row).nth(2).unwrap().span;
        replace(&mut row, span, b"bc");
        let found: Vec<_> = items(&row).map(|item| item.bytes.len()).collect();
        assert_eq!(found, [1, 0, 2, 127, 128]);
        let pair = pairs(&row).nth(1).unwrap();
        assert_eq!((pair.member, pair.payload.len()), (&b"bc"[..], 127));
    }

    #[test]
    fn a_row_that_is_cut_ends_before_the_cut() {
        let mut row = Vec::new();
        push(&mut row, b"abc");
        push(&mut row, b"def");
        for cut in 0..row.len() {
            let whole = cut / 4;
            assert_eq!(items(&row[..cut]).count(), whole, "{cut}");
        }
        assert_eq!(items(&[0xff; 9]).count(), 0);
    }
}
