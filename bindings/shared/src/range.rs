//! Ranges of keys as other languages give them: a first key, and a key below which it ends, either
//! of which may be missing; or a prefix.

use std::ops::Bound;

/// The bounds of a range.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys from `lower` on and below `upper`; what is `None` has no end on that side.
pub fn between(lower: Option<&[u8]>, upper: Option<&[u8]>) -> Bounds {
    (
        lower.map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec())),
        upper.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec())),
    )
}

/// The keys that begin with `prefix`.
pub fn prefix(prefix: &[u8]) -> Bounds {
    let mut upper = prefix.to_vec();
    while upper.pop_if(|last| *last == u8::MAX).is_some() {}
    let upper = match upper.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(upper)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), upper)
}

/// Whether no key can be in a range.
pub fn is_empty((lower, upper): &Bounds) -> bool {
    match (lower, upper) {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
        (Bound::Unbounded, Bound::Excluded(upper)) => upper.is_empty(),
        _ => false,
    }
}

/// A bound as a slice.
pub(crate) fn by_ref(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use super::*;

    #[test]
    fn a_prefix_has_exactly_the_keys_that_begin_with_it() {
        let keys: [&[u8]; 7] = [
            b"",
            b"a",
            b"a\xff",
            b"a\xff\xff",
            b"b",
            b"\xff",
            b"\xff\xff",
        ];
        for start in keys {
            let bounds = prefix(start);
            for key in keys {
                assert_eq!(bounds.contains(&key.to_vec()), key.starts_with(start));
            }
        }
    }

    #[test]
    fn ranges_that_are_turned_around_are_empty() {
        let keys: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"a"), Some(b"b")];
        for lower in keys {
            for upper in keys {
                let first = lower.unwrap_or_default();
                let holds = upper.is_none_or(|upper| first < upper);
                assert_eq!(is_empty(&between(lower, upper)), !holds);
            }
        }
        assert!(!is_empty(&(
            Bound::Included(vec![1]),
            Bound::Included(vec![1])
        )));
    }
}
