//! Strings that are compressed by LZF (Marc Lehmann's LibLZF): runs of bytes as they are, and
//! copies of what came before.

/// Room that is made before any byte is unpacked.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// The `length` bytes that were packed.
pub(super) fn unpack(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    // A byte of a copy stands for 264 at most, so no length makes room for much more than there is.
    if length / 264 > packed.len() {
        return None;
    }
    let mut out = Vec::with_capacity(length.min(ROOM_BYTES_MAX));
    let mut bytes = packed.iter().copied();
    while let Some(control) = bytes.next() {
        if control < 1 << 5 {
            for _ in 0..=control {
                out.push(bytes.next()?);
            }
            continue;
        }
        let mut count = usize::from(control >> 5);
        if count == 7 {
            count += usize::from(bytes.next()?);
        }
        let back = usize::from(control & 0x1f) << 8 | usize::from(bytes.next()?);
        let from = out.len().checked_sub(back + 1)?;
        for at in from..from + count + 2 {
            out.push(*out.get(at)?);
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_copies_are_unpacked() {
        // "ab", and a copy of six bytes from two before.
        let packed = [1, b'a', b'b', 4 << 5, 1];
        assert_eq!(unpack(&packed, 8).unwrap(), b"abababab");
        assert_eq!(unpack(&packed, 9), None);
        assert_eq!(unpack(&packed[..4], 8), None);
        assert_eq!(unpack(&[4 << 5, 1], 6), None);
        assert_eq!(unpack(&[], usize::MAX), None);
    }
}
