//! The library `cjson`: JSON, with the functions and the settings of lua-cjson.

use std::sync::Arc;

use mlua::{Lua, Table, Value};
use parking_lot::Mutex;

use super::host::{add, bytes, float, one, pairs, sizes, string, whole};
use super::values::general;

#[derive(Clone, Copy, Debug)]
struct Settings {
    encode_depth_max: usize,
    decode_depth_max: usize,
    digits: usize,
    encodes_invalid: bool,
    nulls_invalid: bool,
    decodes_invalid: bool,
    sparse_converts: bool,
    sparse_ratio: usize,
    sparse_safe: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            digits: 14,
            encodes_invalid: false,
            nulls_invalid: false,
            decodes_invalid: true,
            sparse_converts: false,
            sparse_ratio: 2,
            sparse_safe: 10,
        }
    }
}

type Failed<T> = Result<T, String>;

/// The deepest nesting, whatever the settings say, since it takes stack.
const DEPTH_MAX: usize = 1000;

fn encode(settings: Settings, value: &Value, depth: usize, out: &mut Vec<u8>) -> Failed<()> {
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
        Value::Integer(number) => encode_number(settings, *number as f64, out)?,
        Value::Number(number) => encode_number(settings, *number, out)?,
        Value::String(text) => encode_string(&text.as_bytes(), out),
        Value::Table(table) => {
            if depth >= settings.encode_depth_max.min(DEPTH_MAX) {
                return Err(format!("Cannot serialise, excessive depth ({})", depth + 1));
            }
            encode_table(settings, table, depth + 1, out)?;
        }
        other => {
            return Err(format!(
                "Cannot serialise {}: type not supported",
                other.type_name()
            ));
        }
    }
    Ok(())
}

fn encode_number(settings: Settings, number: f64, out: &mut Vec<u8>) -> Failed<()> {
    if !number.is_finite() {
        if settings.nulls_invalid {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        if !settings.encodes_invalid {
            return Err("Cannot serialise number: must not be NaN or Inf".to_owned());
        }
    }
    out.extend_from_slice(general(number, settings.digits).as_bytes());
    Ok(())
}

fn encode_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// The greatest index of a table that is to be an array.
fn array_length(settings: Settings, table: &Table) -> Failed<Option<usize>> {
    let (count, Some(greatest)) = sizes(table) else {
        return Ok(None);
    };
    let is_sparse = settings.sparse_ratio > 0
        && greatest > count.saturating_mul(settings.sparse_ratio)
        && greatest > settings.sparse_safe;
    match (is_sparse, settings.sparse_converts) {
        (false, _) if greatest > 0 => Ok(Some(greatest)),
        (true, false) => Err("Cannot serialise table: excessively sparse array".to_owned()),
        _ => Ok(None),
    }
}

fn encode_table(settings: Settings, table: &Table, depth: usize, out: &mut Vec<u8>) -> Failed<()> {
    if let Some(length) = array_length(settings, table)? {
        out.push(b'[');
        for index in 1..=length {
            if index > 1 {
                out.push(b',');
            }
            let item: Value = table.raw_get(index).unwrap_or_default();
            encode(settings, &item, depth, out)?;
        }
        out.push(b']');
        return Ok(());
    }
    out.push(b'{');
    for (place, (name, value)) in pairs(table).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        match &name {
            Value::String(text) => encode_string(&text.as_bytes(), out),
            Value::Integer(_) | Value::Number(_) => {
                let number = float(&name).unwrap_or_default();
                encode_string(general(number, settings.digits).as_bytes(), out);
            }
            _ => {
                return Err(
                    "Cannot serialise table: table key must be a number or string".to_owned(),
                );
            }
        }
        out.push(b':');
        encode(settings, &value, depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

struct Decoder<'d> {
    lua: &'d Lua,
    settings: Settings,
    text: &'d [u8],
    at: usize,
}

impl Decoder<'_> {
    fn fail<T>(&self, wanted: &str) -> Failed<T> {
        let found = match self.text.get(self.at) {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b':') => "T_COLON",
            Some(b',') => "T_COMMA",
            Some(b'"') => "T_STRING",
            Some(_) => "invalid token",
        };
        Err(format!(
            "Expected {wanted} but found {found} at character {}",
            self.at + 1
        ))
    }

    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().take_while(|byte| space(byte)).count();
        self.text.get(self.at).copied()
    }

    /// Goes over a byte if it is the next.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, depth: usize) -> Failed<Value> {
        let Some(first) = self.peek() else {
            return self.fail("value");
        };
        match first {
            b'{' | b'[' if depth >= self.settings.decode_depth_max.min(DEPTH_MAX) => Err(format!(
                "Found too many nested data structures ({})",
                depth + 1
            )),
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b'"' => {
                let text = self.string()?;
                string(self.lua, text)
            }
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Failed<Value> {
        let table = self.table()?;
        self.at += 1;
        if self.takes(b'}') {
            return Ok(Value::Table(table));
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.fail("object key string");
            }
            let name = self.string()?;
            if !self.takes(b':') {
                return self.fail("colon");
            }
            let value = self.value(depth)?;
            let name = string(self.lua, name)?;
            set(&table, name, value)?;
            if self.takes(b'}') {
                return Ok(Value::Table(table));
            }
            if !self.takes(b',') {
                return self.fail("comma or object end");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Failed<Value> {
        let table = self.table()?;
        self.at += 1;
        if self.takes(b']') {
            return Ok(Value::Table(table));
        }
        for index in 1.. {
            let value = self.value(depth)?;
            set(&table, Value::Integer(index), value)?;
            if self.takes(b']') {
                break;
            }
            if !self.takes(b',') {
                return self.fail("comma or array end");
            }
        }
        Ok(Value::Table(table))
    }

    fn table(&self) -> Failed<Table> {
        self.lua.create_table().map_err(|error| error.to_string())
    }

    fn number(&mut self) -> Failed<Value> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(|byte| of_number(byte)).count();
        let text = std::str::from_utf8(&rest[..length]).unwrap_or_default();
        let digits = text.trim_start_matches('-');
        let is_octal = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
        let is_octal = is_octal && digits.as_bytes()[1].is_ascii_digit();
        match text.parse::<f64>() {
            Ok(number) if !is_octal => {
                self.at += length;
                Ok(Value::Number(number))
            }
            _ => self.fail("value"),
        }
    }

    fn word(&mut self) -> Failed<Value> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        for (word, value) in [
            (&b"true"[..], Value::Boolean(true)),
            (b"false", Value::Boolean(false)),
            (b"null", Value::NULL),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        for (word, number) in [
            (&b"nan"[..], f64::NAN),
            (b"infinity", f64::INFINITY),
            (b"inf", f64::INFINITY),
        ] {
            let is_it = rest
                .get(..word.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(word));
            if self.settings.decodes_invalid && is_it {
                self.at += word.len();
                return Ok(Value::Number(number));
            }
        }
        self.fail("value")
    }

    fn string(&mut self) -> Failed<Vec<u8>> {
        let start = self.at;
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let Some(byte) = self.text.get(self.at).copied() else {
                return Err(format!(
                    "Expected value but found unexpected end of string at character {}",
                    start + 1
                ));
            };
            self.at += 1;
            match byte {
                b'"' => return Ok(out),
                b'\\' => self.escape(&mut out)?,
                0..32 => {
                    self.at -= 1;
                    return self.fail("value");
                }
                _ => out.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Failed<()> {
        let byte = self.text.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        out.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => 10,
            b'r' => 13,
            b't' => 9,
            b'u' => {
                let Some(letter) = self.letter() else {
                    return Err(format!(
                        "Expected value but found invalid unicode escape code at character {}",
                        self.at - 1
                    ));
                };
                let mut bytes = [0; 4];
                out.extend_from_slice(letter.encode_utf8(&mut bytes).as_bytes());
                return Ok(());
            }
            _ => {
                return Err(format!(
                    "Expected value but found invalid escape code at character {}",
                    self.at - 1
                ));
            }
        });
        Ok(())
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }

    /// The letter behind `\u`, of which there may be two that belong together.
    fn letter(&mut self) -> Option<char> {
        let first = self.four_digits()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first);
        }
        if self.text.get(self.at..self.at + 2)? != b"\\u" {
            return None;
        }
        self.at += 2;
        let second = self.four_digits()?;
        if !(0xdc00..0xe000).contains(&second) {
            return None;
        }
        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00))
    }
}

fn set(table: &Table, name: Value, value: Value) -> Failed<()> {
    table
        .raw_set(name, value)
        .map_err(|error| error.to_string())
}

fn decode(lua: &Lua, settings: Settings, text: &[u8]) -> Failed<Value> {
    let mut decoder = Decoder {
        lua,
        settings,
        text,
        at: 0,
    };
    let value = decoder.value(0)?;
    match decoder.peek() {
        None => Ok(value),
        Some(_) => decoder.fail("the end"),
    }
}

/// A yes or no of an argument.
fn yes(args: &[Value], index: usize, other: bool) -> bool {
    match args.get(index) {
        None | Some(Value::Nil) => other,
        Some(Value::Boolean(yes)) => *yes,
        Some(Value::String(word)) => word == "on",
        Some(_) => true,
    }
}

fn size(args: &[Value], index: usize, other: usize) -> Failed<usize> {
    let number = whole(args, index, i64::try_from(other).unwrap_or(i64::MAX))?;
    usize::try_from(number).map_err(|_| format!("bad argument #{}: it is negative", index + 1))
}

fn positive(args: &[Value], other: usize) -> Failed<usize> {
    match size(args, 0, other)? {
        0 => Err("bad argument #1: expected a number above 0".to_owned()),
        size => Ok(size),
    }
}

/// The functions.
///
/// # Errors
/// When Lua has no memory.
pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let shared = Arc::new(Mutex::new(Settings::default()));
    let settings = Arc::clone(&shared);
    add(lua, &table, "encode", move |lua, args| {
        let Some(value) = args.first() else {
            return Err("bad argument #1 to 'encode' (expected 1 argument)".to_owned());
        };
        let mut out = Vec::new();
        encode(*settings.lock(), value, 0, &mut out)?;
        one(string(lua, out)?)
    })?;
    let settings = Arc::clone(&shared);
    add(lua, &table, "decode", move |lua, args| {
        one(decode(lua, *settings.lock(), &bytes(args, 0)?)?)
    })?;
    let count = |count: usize| Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    type Change = fn(&mut Settings, &[Value]) -> Failed<()>;
    type Show = fn(&Settings) -> Vec<Option<usize>>;
    let changes: [(&'static str, Change, Show); 4] = [
        (
            "encode_max_depth",
            |settings, args| {
                settings.encode_depth_max = positive(args, settings.encode_depth_max)?;
                Ok(())
            },
            |settings| vec![Some(settings.encode_depth_max)],
        ),
        (
            "decode_max_depth",
            |settings, args| {
                settings.decode_depth_max = positive(args, settings.decode_depth_max)?;
                Ok(())
            },
            |settings| vec![Some(settings.decode_depth_max)],
        ),
        (
            "encode_number_precision",
            |settings, args| {
                settings.digits = positive(args, settings.digits)?.min(17);
                Ok(())
            },
            |settings| vec![Some(settings.digits)],
        ),
        (
            "encode_sparse_array",
            |settings, args| {
                settings.sparse_converts = yes(args, 0, settings.sparse_converts);
                settings.sparse_ratio = size(args, 1, settings.sparse_ratio)?;
                settings.sparse_safe = size(args, 2, settings.sparse_safe)?;
                Ok(())
            },
            |settings| {
                let (ratio, safe) = (settings.sparse_ratio, settings.sparse_safe);
                vec![None, Some(ratio), Some(safe)]
            },
        ),
    ];
    for (name, change, show) in changes {
        let settings = Arc::clone(&shared);
        add(lua, &table, name, move |_, args| {
            let mut settings = settings.lock();
            change(&mut settings, args)?;
            let converts = Value::Boolean(settings.sparse_converts);
            let shown = show(&settings).into_iter();
            Ok(shown
                .map(|number| number.map_or_else(|| converts.clone(), count))
                .collect())
        })?;
    }
    let settings = Arc::clone(&shared);
    add(lua, &table, "encode_invalid_numbers", move |_, args| {
        let mut settings = settings.lock();
        if let Some(word) = args.first() {
            settings.nulls_invalid = matches!(word, Value::String(word) if *word == "null");
            settings.encodes_invalid = yes(args, 0, false);
        }
        one(Value::Boolean(settings.encodes_invalid))
    })?;
    let settings = Arc::clone(&shared);
    add(lua, &table, "decode_invalid_numbers", move |_, args| {
        let mut settings = settings.lock();
        settings.decodes_invalid = yes(args, 0, settings.decodes_invalid);
        one(Value::Boolean(settings.decodes_invalid))
    })?;
    // No buffer is kept, so there is nothing to set.
    add(lua, &table, "encode_keep_buffer", |_, _| {
        one(Value::Boolean(false))
    })?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        let lua = Lua::new();
        let settings = Settings::default();
        for text in [
            "[1,2.5,true,false,null,\"a\"]",
            "{\"a\":[{\"b\":-5000}]}",
            "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\"",
            "\"\u{e9}\u{1d11e}\"",
            "{}",
        ] {
            let value = decode(&lua, settings, text.as_bytes()).unwrap();
            let mut out = Vec::new();
            encode(settings, &value, 0, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        let value = decode(&lua, settings, br#""\u00e9\ud834\udd1e""#).unwrap();
        assert_eq!(
            value.as_string().unwrap().to_string_lossy(),
            "\u{e9}\u{1d11e}"
        );
    }

    #[test]
    fn broken_text_is_refused() {
        let lua = Lua::new();
        for text in [
            "",
            "[",
            "[1,]",
            "{\"a\"}",
            "{1:2}",
            "\"a",
            "\"\\x\"",
            "\"\\ud834\"",
            "tru",
            "1 2",
            "012",
            "-",
            "\"\n\"",
            "[1}",
        ] {
            let decoded = decode(&lua, Settings::default(), text.as_bytes());
            assert!(decoded.is_err(), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(decode(&lua, Settings::default(), deep.as_bytes()).is_err());
    }
}
