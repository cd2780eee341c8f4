//! Ranges of keys as users give them, in the form in which engines take them.

use std::ops::{Bound, RangeBounds};

use crate::Result;
use crate::limits::{KEY_BYTES_MAX, check_limits};

/// The operands of a range delete: the first key, and the first key above, empty for the end of all
/// keys; `None` when the range holds no key.
pub(crate) fn deleted_range(
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    for bound in [lower, upper] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound {
            check_limits(key, &[])?;
        }
    }
    let Some((mut lower, mut upper)) = key_range((lower, upper)) else {
        return Ok(None);
    };
    // What follows a key of the greatest length has one byte too many; no key lies between it and
    // the next one of the greatest length.
    if lower.len() as u64 > KEY_BYTES_MAX {
        let Bound::Excluded(next) = prefix_bounds(&lower[..lower.len() - 1]).1 else {
            return Ok(None);
        };
        lower = next;
    }
    if let Some(key) = upper.take_if(|upper| upper.len() as u64 > KEY_BYTES_MAX)
        && let Bound::Excluded(next) = prefix_bounds(&key[..key.len() - 1]).1
    {
        upper = Some(next);
    }
    let holds_keys = upper.as_ref().is_none_or(|upper| lower < *upper);
    Ok(holds_keys.then(|| (lower, upper.unwrap_or_default())))
}

/// Whether a range delete with these operands ([`deleted_range`]) is of a key, too.
pub(crate) fn is_deleted_by(lower: &[u8], upper: &[u8], key: &[u8]) -> bool {
    lower <= key && (upper.is_empty() || key < upper)
}

/// The keys of a range from the first one on and below the second one, where there is one; `None`
/// when the range holds no key.
pub(crate) fn key_range(
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let lower = match lower {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => successor(key),
        Bound::Unbounded => Vec::new(),
    };
    let upper = match upper {
        Bound::Included(key) => Some(successor(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    };
    let holds_keys = upper.as_ref().is_none_or(|upper| lower < *upper);
    holds_keys.then_some((lower, upper))
}

/// The smallest key above `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The bounds of a range as bytes.
pub(crate) fn range_bounds<'r, K: AsRef<[u8]> + 'r>(
    range: &'r impl RangeBounds<K>,
) -> (Bound<&'r [u8]>, Bound<&'r [u8]>) {
    (
        range.start_bound().map(AsRef::as_ref),
        range.end_bound().map(AsRef::as_ref),
    )
}

/// The range of the keys that begin with `prefix`: up to the prefix with its last byte raised,
/// after bytes that cannot be raised are cut off.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut upper = prefix.to_vec();
    while upper.last() == Some(&u8::MAX) {
        upper.pop();
    }
    let upper = match upper.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(upper)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_bounds_hold_exactly_the_keys_with_the_prefix() {
        let keys: [&[u8]; 8] = [
            b"",
            b"a",
            b"a\xff",
            b"a\xff\xff",
            b"a\xff\xffz",
            b"b",
            b"\xff",
            b"\xff\xff",
        ];
        for prefix in keys {
            let bounds = prefix_bounds(prefix);
            for key in keys {
                assert_eq!(bounds.contains(&key.to_vec()), key.starts_with(prefix));
            }
        }
    }

    #[test]
    fn the_ends_of_a_deleted_range_are_keys() {
        let limit = usize::try_from(KEY_BYTES_MAX).unwrap();
        let (long, last) = ([vec![b'x'; limit - 1], vec![7]].concat(), vec![0xff; limit]);
        let next = [vec![b'x'; limit - 1], vec![8]].concat();
        let range = |lower, upper| deleted_range((lower, upper)).unwrap();
        let free = Bound::Unbounded;
        assert_eq!(range(free, free), Some((vec![], vec![])));
        assert_eq!(range(free, Bound::Excluded(b"")), None);
        assert_eq!(range(Bound::Included(b"b"), Bound::Excluded(b"b")), None);
        let one = Some((b"b".to_vec(), b"b\0".to_vec()));
        assert_eq!(range(Bound::Included(b"b"), Bound::Included(b"b")), one);
        let above = Some((next.clone(), vec![]));
        assert_eq!(range(Bound::Excluded(&long), free), above);
        assert_eq!(range(free, Bound::Included(&long)), Some((vec![], next)));
        assert_eq!(range(free, Bound::Included(&last)), Some((vec![], vec![])));
        assert_eq!(range(Bound::Excluded(&last), free), None);
        let too_long = vec![1; limit + 1];
        assert!(deleted_range((free, Bound::Excluded(&too_long))).is_err());
    }
}
