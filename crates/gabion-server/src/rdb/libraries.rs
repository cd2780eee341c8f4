//! Libraries of functions in a payload: each is a byte and its program, as a string.

use super::payload::{VERSION, close, open};
use super::piece::{Refused, Result};
use super::read::Reader;
use super::write::push_string;

/// The mark of a library, in files too.
pub(super) const LIBRARY: u8 = 245;

/// The payload of programs.
pub(crate) fn write<'a>(programs: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for program in programs {
        out.push(LIBRARY);
        push_string(&mut out, program);
    }
    close(out, VERSION)
}

/// The programs of a payload.
///
/// # Errors
/// When it has something else.
pub(crate) fn read(payload: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut reader = Reader::new(open(payload)?);
    let mut programs = Vec::new();
    while !reader.is_empty() {
        match reader.byte()? {
            LIBRARY => programs.push(reader.string()?),
            _ => return Err(Refused::Broken("it is no library of functions")),
        }
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_as_they_were_written() {
        let payload = write([&b"one"[..], b""].into_iter());
        assert_eq!(read(&payload).unwrap(), [b"one".to_vec(), Vec::new()]);
        for index in 0..payload.len() {
            let mut broken = payload.clone();
            broken[index] ^= 1;
            assert!(read(&broken).is_err());
        }
        let value = super::super::write(&super::super::Value::String(b"a".to_vec()));
        assert!(matches!(read(&value), Err(Refused::Broken(_))));
    }
}
