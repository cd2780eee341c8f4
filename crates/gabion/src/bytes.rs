//! Copying short byte strings without calls.

/// Copies `from` to the front of `to`, which is at least as long; the usual lengths of keys without
/// a call.
#[inline]
pub(crate) fn copy_to(to: &mut [u8], from: &[u8]) {
    let Some(to) = to.get_mut(..from.len()) else {
        debug_assert!(false, "the target is shorter than the source");
        return;
    };
    if (8..=16).contains(&from.len())
        && let (Some(first), Some(last)) = (from.first_chunk::<8>(), from.last_chunk::<8>())
    {
        if let Some(place) = to.first_chunk_mut() {
            *place = *first;
        }
        if let Some(place) = to.last_chunk_mut() {
            *place = *last;
        }
        return;
    }
    if (4..8).contains(&from.len())
        && let (Some(first), Some(last)) = (from.first_chunk::<4>(), from.last_chunk::<4>())
    {
        if let Some(place) = to.first_chunk_mut() {
            *place = *first;
        }
        if let Some(place) = to.last_chunk_mut() {
            *place = *last;
        }
        return;
    }
    if let ([first, ..], [.., last]) = (from, from)
        && from.len() < 4
    {
        // One to three bytes.
        let middle = from.len() / 2;
        (to[0], to[middle]) = (*first, from[middle]);
        to[from.len() - 1] = *last;
        return;
    }
    to.copy_from_slice(from);
}

/// Makes `to` a copy of `from`.
#[inline]
pub(crate) fn assign(to: &mut Vec<u8>, from: &[u8]) {
    if to.len() != from.len() {
        to.resize(from.len(), 0);
    }
    copy_to(to, from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_length() {
        let from: Vec<u8> = (1..=40).collect();
        let mut assigned = Vec::new();
        for len in 0..=from.len() {
            let mut to = [0; 48];
            copy_to(&mut to, &from[..len]);
            assert_eq!(to[..len], from[..len]);
            assert!(to[len..].iter().all(|byte| *byte == 0));
            assign(&mut assigned, &from[..len]);
            assert_eq!(assigned, from[..len]);
        }
        assign(&mut assigned, &from[..3]);
        assert_eq!(assigned, from[..3]);
    }
}
