//! Writes the parts of a value.

/// Appends a length.
pub(super) fn push_length(out: &mut Vec<u8>, length: u64) {
    let big_endian = |out: &mut Vec<u8>, bytes: &[u8]| out.extend(bytes.iter().rev());
    if let Ok(byte) = u8::try_from(length)
        && byte < 1 << 6
    {
        out.push(byte);
    } else if length < 1 << 14 {
        let number = u16::try_from(length).unwrap_or_default() | 1 << 14;
        big_endian(out, &number.to_le_bytes());
    } else if let Ok(number) = u32::try_from(length) {
        out.push(0x80);
        big_endian(out, &number.to_le_bytes());
    } else {
        out.push(0x81);
        big_endian(out, &length.to_le_bytes());
    }
}

/// Appends a string.
pub(super) fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    push_length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
