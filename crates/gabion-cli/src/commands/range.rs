//! Ranges of keys on the command line.

use std::ffi::OsString;
use std::ops::Bound;

use super::point::bytes_of;
use crate::args::{NotationArguments, RangeArguments};
use crate::failure::Failure;

/// The ends of a range.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The range that the arguments ask for; `None` if no key is in it.
pub(crate) fn of(
    arguments: &RangeArguments,
    notation: NotationArguments,
) -> Result<Option<Bounds>, Failure> {
    let bytes = |text: &Option<OsString>| match text {
        Some(text) => bytes_of(text, notation).map(Some),
        None => Ok(None),
    };
    let (from, to) = (bytes(&arguments.from)?, bytes(&arguments.to)?);
    let prefix = bytes(&arguments.prefix)?.unwrap_or_default();
    Ok(bounds(from, to, prefix).map(|(from, to)| {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(from), end)
    }))
}

/// The range of keys from `from` and before `to` that begin with `prefix`: its first key, and the
/// first key after it unless it has no end; `None` if it is empty.
fn bounds(
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    prefix: Vec<u8>,
) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let after_prefix = after_all_with(&prefix);
    let first = from.unwrap_or_default().max(prefix);
    let end = match (to, after_prefix) {
        (Some(to), Some(after)) => Some(to.min(after)),
        (to, after) => to.or(after),
    };
    match end {
        Some(end) if end <= first => None,
        end => Some((first, end)),
    }
}

/// The least key that is greater than every key that begins with `prefix`; `None` if there is no
/// such key.
fn after_all_with(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_exactly_the_keys_asked_for() {
        let alphabet = [0u8, 1, 254, 255];
        let mut words: Vec<Vec<u8>> = vec![vec![]];
        for a in alphabet {
            words.push(vec![a]);
            words.extend(alphabet.map(|b| vec![a, b]));
        }
        let limits = || std::iter::once(None).chain(words.iter().cloned().map(Some));
        for from in limits() {
            for to in limits() {
                for prefix in &words {
                    let range = bounds(from.clone(), to.clone(), prefix.clone());
                    for key in &words {
                        let wanted = from.as_ref().is_none_or(|from| key >= from)
                            && to.as_ref().is_none_or(|to| key < to)
                            && key.starts_with(prefix);
                        let inside = range.as_ref().is_some_and(|(first, end)| {
                            key >= first && end.as_ref().is_none_or(|end| key < end)
                        });
                        assert_eq!(inside, wanted, "{from:?} {to:?} {prefix:?} {key:?}");
                    }
                }
            }
        }
    }
}
