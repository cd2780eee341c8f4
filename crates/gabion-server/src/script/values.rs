//! Conversions between Lua values and arguments or replies.
//!
//! | reply | value |
//! |---|---|
//! | integer | number |
//! | bulk string | string |
//! | array | table |
//! | status, error | table with `ok`, `err` |
//! | null | false; in RESP3 nil |
//! | map, set, double, big number, verbatim string | table with a field of that name |
//! | boolean | boolean |
//!
//! The way back is the same, but a number loses its fraction, and a table ends at its first nil.

#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers of Lua lose their fractions"
)]

use mlua::{Lua, Table, Value};

use super::host::pairs;
use crate::resp::reply::ReplyBuffer;

/// The deepest table that is answered.
const DEPTH_MAX: usize = 512;

/// The number in the spelling of C's `%.*g`.
pub(crate) fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() {
            "-nan"
        } else {
            "nan"
        }
        .to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let most = i32::try_from(digits).unwrap_or(i32::MAX);
    if (-4..most).contains(&exponent) {
        let decimals = usize::try_from(most - 1 - exponent).unwrap_or_default();
        return trim(&format!("{number:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(mantissa), exponent.unsigned_abs())
}

/// An argument of a command: a string, or a number as it is.
pub(crate) fn argument(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(general(*number as f64, 17).into_bytes()),
        Value::Number(number) => Some(general(*number, 17).into_bytes()),
        _ => None,
    }
}

/// Writes what a script has returned.
pub(crate) fn write(reply: &mut ReplyBuffer, value: &Value, script_resp3: bool) {
    write_at(reply, value, script_resp3, 0);
}

fn write_at(reply: &mut ReplyBuffer, value: &Value, script_resp3: bool, depth: usize) {
    if depth > DEPTH_MAX {
        return reply.error("ERR reached lua stack limit");
    }
    match value {
        Value::String(text) => reply.bulk(text.as_bytes()),
        Value::Integer(number) => reply.integer(*number),
        Value::Number(number) => reply.integer(*number as i64),
        Value::Boolean(yes) if script_resp3 => reply.boolean(*yes),
        Value::Boolean(true) => reply.integer(1),
        Value::Table(table) => write_table(reply, table, script_resp3, depth),
        _ => reply.null(),
    }
}

fn field(table: &Table, name: &str) -> Value {
    table.raw_get(name).unwrap_or_default()
}

/// A line without its newlines.
fn line(text: &mlua::LuaString) -> String {
    String::from_utf8_lossy(&text.as_bytes()).replace(['\r', '\n'], " ")
}

fn write_table(reply: &mut ReplyBuffer, table: &Table, script_resp3: bool, depth: usize) {
    if let Value::String(text) = field(table, "err") {
        return reply.error(&line(&text));
    }
    if let Value::String(text) = field(table, "ok") {
        return reply.simple(&line(&text));
    }
    if let Value::Integer(_) | Value::Number(_) = field(table, "double") {
        let number = table.raw_get("double").unwrap_or_default();
        return reply.fraction(number, &general(number, 17));
    }
    if let Value::Table(map) = field(table, "map") {
        reply.map(pairs(&map).count());
        for (name, value) in pairs(&map) {
            write_at(reply, &name, script_resp3, depth + 1);
            write_at(reply, &value, script_resp3, depth + 1);
        }
        return;
    }
    if let Value::Table(set) = field(table, "set") {
        reply.set(pairs(&set).count());
        for (element, _) in pairs(&set) {
            write_at(reply, &element, script_resp3, depth + 1);
        }
        return;
    }
    if let Value::String(digits) = field(table, "big_number") {
        return reply.big_number(&line(&digits));
    }
    if let Value::Table(verbatim) = field(table, "verbatim_string")
        && let (Value::String(format), Value::String(text)) =
            (field(&verbatim, "format"), field(&verbatim, "string"))
    {
        return reply.verbatim_as(&format.as_bytes(), &text.as_bytes());
    }
    let item = |index: usize| table.raw_get::<Value>(index).unwrap_or_default();
    let count = (1..).take_while(|index| !item(*index).is_nil()).count();
    reply.array(count);
    for index in 1..=count {
        write_at(reply, &item(index), script_resp3, depth + 1);
    }
}

/// Replies to be read, one after the other.
pub(crate) struct ReplyReader<'r> {
    bytes: &'r [u8],
}

impl<'r> ReplyReader<'r> {
    /// Of bytes that this server has written.
    pub(crate) fn new(bytes: &'r [u8]) -> ReplyReader<'r> {
        ReplyReader { bytes }
    }

    fn line(&mut self) -> &'r [u8] {
        let end = memchr::memchr(b'\r', self.bytes).unwrap_or(self.bytes.len());
        let (line, rest) = self.bytes.split_at(end);
        self.bytes = rest.get(2..).unwrap_or_default();
        line
    }

    fn bulk(&mut self, length: usize) -> &'r [u8] {
        let (bulk, rest) = self.bytes.split_at(length.min(self.bytes.len()));
        self.bytes = rest.get(2..).unwrap_or_default();
        bulk
    }

    /// The next as a value.
    ///
    /// # Errors
    /// When Lua has no memory.
    pub(crate) fn next(&mut self, lua: &Lua) -> mlua::Result<Value> {
        let line = self.line();
        let Some((mark, rest)) = line.split_first() else {
            return Ok(Value::Nil);
        };
        let text = || String::from_utf8_lossy(rest);
        let count = || text().parse::<usize>().ok();
        let string = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
        let named = |name: &str, value: Value| {
            let table = lua.create_table()?;
            table.raw_set(name, value)?;
            Ok(Value::Table(table))
        };
        match mark {
            b':' => Ok(Value::Number(text().parse().unwrap_or_default())),
            b'$' => match count() {
                Some(length) => string(self.bulk(length)),
                None => Ok(Value::Boolean(false)),
            },
            b'+' => named("ok", string(rest)?),
            b'-' => named("err", string(rest)?),
            b'_' => Ok(Value::Nil),
            b'#' => Ok(Value::Boolean(rest == b"t")),
            b',' => named("double", Value::Number(text().parse().unwrap_or(f64::NAN))),
            b'(' => named("big_number", string(rest)?),
            b'=' => {
                let all = self.bulk(count().unwrap_or_default());
                let table = lua.create_table()?;
                table.raw_set("format", string(all.get(..3).unwrap_or_default())?)?;
                table.raw_set("string", string(all.get(4..).unwrap_or_default())?)?;
                named("verbatim_string", Value::Table(table))
            }
            b'*' | b'>' => match count() {
                Some(count) => {
                    let table = lua.create_table_with_capacity(count, 0)?;
                    for index in 1..=count {
                        table.raw_set(index, self.next(lua)?)?;
                    }
                    Ok(Value::Table(table))
                }
                None => Ok(Value::Boolean(false)),
            },
            b'%' => {
                let table = lua.create_table()?;
                for _ in 0..count().unwrap_or_default() {
                    let name = self.next(lua)?;
                    table.raw_set(name, self.next(lua)?)?;
                }
                named("map", Value::Table(table))
            }
            b'~' => {
                let table = lua.create_table()?;
                for _ in 0..count().unwrap_or_default() {
                    table.raw_set(self.next(lua)?, true)?;
                }
                named("set", Value::Table(table))
            }
            b'|' => {
                for _ in 0..2 * count().unwrap_or_default() {
                    self.next(lua)?;
                }
                self.next(lua)
            }
            _ => Ok(Value::Nil),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled_as_c_spells_them() {
        for (number, digits, spelled) in [
            (0.0, 17, "0"),
            (9_007_199_254_740_991.0, 17, "9007199254740991"),
            (0.1, 14, "0.1"),
            (0.1, 17, "0.10000000000000001"),
            (-5e3, 14, "-5000"),
            (1e20, 17, "1e+20"),
            (1.5e-7, 14, "1.5e-07"),
            (0.0003, 14, "0.0003"),
            (100.5, 17, "100.5"),
            (f64::INFINITY, 17, "inf"),
        ] {
            assert_eq!(general(number, digits), spelled);
        }
    }

    #[test]
    fn replies_come_back_as_they_were() {
        let lua = Lua::new();
        for text in [
            &b":5\r\n"[..],
            b"$3\r\na\r\n\r\n",
            b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            b"+OK\r\n",
            b"-ERR no\r\n",
            b"%1\r\n$1\r\na\r\n:1\r\n",
            b"~1\r\n$1\r\na\r\n",
            b",1.5\r\n",
            b"#t\r\n",
            b"(12345678901234567890\r\n",
            b"=7\r\ntxt:abc\r\n",
            b"_\r\n",
        ] {
            let value = ReplyReader::new(text).next(&lua).unwrap();
            let mut reply = ReplyBuffer {
                is_resp3: true,
                ..ReplyBuffer::default()
            };
            write(&mut reply, &value, true);
            assert_eq!(reply.out, text, "{}", text.escape_ascii());
        }
    }
}
