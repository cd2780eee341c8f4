//! The dump format: all records of a keyspace as lines of text.
//!
//! ```text
//! #gabion-dump 1
//! <escaped key> TAB <escaped value> [TAB <moment>]
//!                                        one line per record, in key order if there is one
//! #gabion-dump end, records: <count>, checksum: <16 hexadecimal digits>
//! ```
//!
//! The moment is there for a record that expires: milliseconds since 1970.
//!
//! Text is escaped as [`escape`](crate::escape) tells, so that a line end ends a line and a tab
//! ends a key; and a `#` that begins a key is written `\x23`, so that a line which begins with `#`
//! is a mark whatever the records hold. The checksum is XXH3 (64 bits) of all bytes before the last
//! line. A dump ends with that line: one that lacks it is cut off, one that says otherwise than
//! what came before it is damaged, and nothing comes after it.

use xxhash_rust::xxh3::Xxh3Default;

use crate::escape::{escape, unescape};
use crate::failure::Failure;

/// The first line of every dump. The number is the version of the form.
pub(crate) const FIRST_LINE: &str = "#gabion-dump 1";
/// How the first line of a dump of any version begins.
pub(crate) const NAME: &str = "#gabion-dump ";
/// The byte that begins a line which is no record.
pub(crate) const MARK: u8 = b'#';

/// The last line of a dump with that many records, where `checksum` is that of all before it.
pub(crate) fn last_line(records: u64, checksum: u64) -> String {
    format!("{NAME}end, records: {records}, checksum: {checksum:016x}")
}

/// Gives every line of a dump of these records to `write`, with its end.
pub(crate) fn write<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    records: impl Iterator<Item = Result<(K, V, Option<u64>), Failure>>,
    mut write: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut checksum = Xxh3Default::new();
    let mut emit = |line: &str| {
        checksum.update(line.as_bytes());
        write(line.as_bytes())
    };
    emit(&format!("{FIRST_LINE}\n"))?;
    let mut line = String::new();
    let mut count = 0;
    for record in records {
        let (key, value, expires) = record?;
        line.clear();
        push_record(key.as_ref(), value.as_ref(), expires, &mut line);
        emit(&line)?;
        count += 1;
    }
    let last_line = last_line(count, checksum.digest());
    write(format!("{last_line}\n").as_bytes())
}

/// Appends the line of a record, with its end.
fn push_record(key: &[u8], value: &[u8], expires: Option<u64>, line: &mut String) {
    let rest = match key {
        [MARK, rest @ ..] => {
            line.push_str("\\x23");
            rest
        }
        key => key,
    };
    escape(rest, line);
    line.push('\t');
    escape(value, line);
    if let Some(moment) = expires {
        line.push('\t');
        line.push_str(&moment.to_string());
    }
    line.push('\n');
}

/// Appends key and value of a record's line, which is without its end, and returns when it expires,
/// if it does; or says what is wrong.
pub(crate) fn read_record(
    line: &[u8],
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<Option<u64>, String> {
    let tab = memchr::memchr(b'\t', line).ok_or("no tab between key and value")?;
    unescape(&line[..tab], key)?;
    let rest = &line[tab + 1..];
    let Some(tab) = memchr::memchr(b'\t', rest) else {
        unescape(rest, value)?;
        return Ok(None);
    };
    unescape(&rest[..tab], value)?;
    let moment = std::str::from_utf8(&rest[tab + 1..]).ok();
    let moment = moment.and_then(|text| text.parse().ok());
    moment
        .map(Some)
        .ok_or_else(|| "the text after the value is not an expiry".to_owned())
}
