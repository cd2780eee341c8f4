//! The library `struct`: numbers and strings as bytes, by a format.
//!
//! | letter | what |
//! |---|---|
//! | `<` `>` `=` | little-endian, big-endian, that of most machines |
//! | `!n` | aligned to n bytes at most, by default 8 |
//! | `b` `h` `i` `l` | whole numbers of 1, 2, 4 and 8 bytes with a sign; in capitals without |
//! | `T` | a length: 8 bytes |
//! | `in` `In` | n bytes |
//! | `f` `d` | numbers with a fraction |
//! | `s` | a string with a zero behind it |
//! | `cn` | n bytes of a string; with 0 all of it, or as many as the number before says |
//! | `x` | a zero |

#![expect(clippy::cast_possible_truncation, reason = "the low bytes are meant")]

use mlua::{Lua, Table, Value};

use super::host::{Outcome, add, bytes, float, number, string, whole};

type Failed<T> = Result<T, String>;

/// The widest number.
const WIDTH_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Whole { width: usize, is_signed: bool },
    Single,
    Double,
    Zeroed,
    Chars(usize),
    Pad,
}

/// The items of a format, one by one.
struct Format<'f> {
    text: &'f [u8],
    is_little: bool,
    align_max: usize,
}

impl<'f> Format<'f> {
    fn new(text: &'f [u8]) -> Format<'f> {
        Format {
            text,
            is_little: true,
            align_max: 1,
        }
    }

    fn digits(&mut self) -> Failed<Option<usize>> {
        let count = self.text.iter().take_while(|byte| byte.is_ascii_digit());
        let (digits, rest) = self.text.split_at(count.count());
        self.text = rest;
        if digits.is_empty() {
            return Ok(None);
        }
        let number = crate::args::integer(digits).and_then(|number| usize::try_from(number).ok());
        let number = number.filter(|number| *number <= 1 << 30);
        number
            .map(Some)
            .ok_or_else(|| "integral size overflow".to_owned())
    }

    fn width(&mut self, other: usize) -> Failed<usize> {
        let width = self.digits()?.unwrap_or(other);
        match (1..=WIDTH_MAX).contains(&width) {
            true => Ok(width),
            false => Err(format!(
                "integral size {width} is larger than limit of {WIDTH_MAX}"
            )),
        }
    }

    fn next(&mut self) -> Failed<Option<Item>> {
        while let Some((letter, rest)) = self.text.split_first() {
            self.text = rest;
            let is_signed = letter.is_ascii_lowercase();
            let fixed = |width| Item::Whole { width, is_signed };
            return Ok(Some(match letter {
                b'b' | b'B' => fixed(1),
                b'h' | b'H' => fixed(2),
                b'l' | b'L' | b'T' => fixed(8),
                b'i' | b'I' => {
                    let width = self.width(4)?;
                    fixed(width)
                }
                b'f' => Item::Single,
                b'd' | b'n' => Item::Double,
                b's' => Item::Zeroed,
                b'c' => Item::Chars(self.digits()?.unwrap_or(1)),
                b'x' => Item::Pad,
                b' ' => continue,
                b'<' | b'=' => {
                    self.is_little = true;
                    continue;
                }
                b'>' => {
                    self.is_little = false;
                    continue;
                }
                b'!' => {
                    let align = self.width(8)?;
                    if !align.is_power_of_two() {
                        return Err("alignment is not a power of 2".to_owned());
                    }
                    self.align_max = align;
                    continue;
                }
                other => {
                    return Err(format!("invalid format option '{}'", char::from(*other)));
                }
            }));
        }
        Ok(None)
    }

    /// Bytes of an item, where the format alone says it.
    fn size(item: Item) -> Option<usize> {
        Some(match item {
            Item::Whole { width, .. } => width,
            Item::Single => 4,
            Item::Double => 8,
            Item::Pad => 1,
            Item::Chars(0) | Item::Zeroed => return None,
            Item::Chars(count) => count,
        })
    }

    /// Bytes before an item at `at`.
    fn gap(&self, item: Item, at: usize) -> usize {
        let width = match item {
            Item::Whole { width, .. } => width,
            Item::Single => 4,
            Item::Double => 8,
            _ => return 0,
        };
        let align = width.min(self.align_max);
        match align.is_power_of_two() {
            true => at.next_multiple_of(align) - at,
            false => 0,
        }
    }

    fn directed(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if !self.is_little {
            bytes.reverse();
        }
        bytes
    }
}

fn pack(lua: &Lua, args: &[Value]) -> Outcome {
    let text = bytes(args, 0)?;
    let mut format = Format::new(&text);
    let (mut out, mut at) = (Vec::new(), 1);
    while let Some(item) = format.next()? {
        out.resize(out.len() + format.gap(item, out.len()), 0);
        match item {
            Item::Pad => {
                out.push(0);
                continue;
            }
            Item::Whole { width, .. } => {
                let number = number(args, at)?;
                // A number without a sign may be beyond the greatest with one.
                let number = match number < 0.0 {
                    true => number as i64,
                    false => (number as u64).cast_signed(),
                };
                let fill = if number < 0 { u8::MAX } else { 0 };
                let mut bytes = number.to_le_bytes().to_vec();
                bytes.resize(width, fill);
                out.extend(format.directed(bytes));
            }
            Item::Single => {
                let number = number(args, at)? as f32;
                out.extend(format.directed(number.to_le_bytes().to_vec()));
            }
            Item::Double => {
                out.extend(format.directed(number(args, at)?.to_le_bytes().to_vec()));
            }
            Item::Zeroed => {
                out.extend(bytes(args, at)?);
                out.push(0);
            }
            Item::Chars(count) => {
                let all = bytes(args, at)?;
                let count = if count == 0 { all.len() } else { count };
                match all.get(..count) {
                    Some(part) => out.extend_from_slice(part),
                    None => return Err(format!("bad argument #{} (string too short)", at + 1)),
                }
            }
        }
        at += 1;
    }
    Ok(vec![string(lua, out)?])
}

fn read_whole(bytes: &[u8], is_little: bool, is_signed: bool) -> f64 {
    let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    let number = match is_little {
        true => bytes.iter().rev().fold(0, fold),
        false => bytes.iter().fold(0, fold),
    };
    let unused = 64 - 8 * bytes.len().min(8) as u32;
    match is_signed {
        true => (number.cast_signed() << unused >> unused) as f64,
        false => number as f64,
    }
}

fn unpack(lua: &Lua, args: &[Value]) -> Outcome {
    let text = bytes(args, 0)?;
    let all = bytes(args, 1)?;
    let mut at = usize::try_from(whole(args, 2, 1)? - 1)
        .map_err(|_| "bad argument #3 (offset must be 1 or greater)".to_owned())?;
    let mut format = Format::new(&text);
    let mut found: Vec<Value> = Vec::new();
    while let Some(item) = format.next()? {
        at = at.saturating_add(format.gap(item, at));
        let rest = all.get(at..).unwrap_or_default();
        let size = match item {
            Item::Zeroed => {
                let end = memchr::memchr(0, rest);
                end.ok_or("unfinished string in data")?
            }
            Item::Chars(0) => {
                let before = found.pop().as_ref().and_then(float);
                let before = before.filter(|before| *before >= 0.0);
                before.ok_or("format 'c0' needs a previous size")? as usize
            }
            item => Format::size(item).unwrap_or_default(),
        };
        let part = rest.get(..size).ok_or("data string too short")?;
        at += size;
        match item {
            Item::Pad => {}
            Item::Whole { is_signed, .. } => {
                found.push(Value::Number(read_whole(part, format.is_little, is_signed)));
            }
            Item::Single => {
                let bits = read_whole(part, format.is_little, false) as u32;
                found.push(Value::Number(f64::from(f32::from_bits(bits))));
            }
            Item::Double => {
                let bytes = format.directed(part.to_vec());
                let bytes = bytes.first_chunk().copied().unwrap_or_default();
                found.push(Value::Number(f64::from_le_bytes(bytes)));
            }
            Item::Zeroed => {
                at += 1;
                found.push(string(lua, part)?);
            }
            Item::Chars(_) => found.push(string(lua, part)?),
        }
    }
    found.push(Value::Integer(i64::try_from(at + 1).unwrap_or(i64::MAX)));
    Ok(found)
}

fn size(args: &[Value]) -> Outcome {
    let text = bytes(args, 0)?;
    let mut format = Format::new(&text);
    let mut total = 0_usize;
    while let Some(item) = format.next()? {
        total += format.gap(item, total);
        total += Format::size(item).ok_or("variable-size format for 'size'")?;
    }
    Ok(vec![Value::Integer(
        i64::try_from(total).unwrap_or(i64::MAX),
    )])
}

/// The functions.
///
/// # Errors
/// When Lua has no memory.
pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", pack)?;
    add(lua, &table, "unpack", unpack)?;
    add(lua, &table, "size", |_, args| size(args))?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lua: &Lua, code: &str) -> String {
        let globals = lua.globals();
        for (name, call) in [
            ("pack", pack as fn(&Lua, &[Value]) -> Outcome),
            ("unpack", unpack),
            ("size", |_, args| size(args)),
        ] {
            add(lua, &globals, name, call).unwrap();
        }
        lua.load(code).eval::<String>().unwrap()
    }

    #[test]
    fn what_is_packed_comes_back() {
        let lua = Lua::new();
        let code = r#"
            local format = ">i2<I4bdsc3x!4 h i4"
            local _, packed = pack(format, -2, 4000000000, -1, 0.1, "ab", "xyz", 7, 8)
            local _, a, b, c, d, e, f, g, h, next = unpack(format, packed)
            return table.concat({a, b, c, d, e, f, g, h, next, #packed}, " ")
        "#;
        assert_eq!(run(&lua, code), "-2 4000000000 -1 0.1 ab xyz 7 8 29 28");
        let code = r#"
            local _, packed = pack(">Hc0", 3, "abc")
            local _, text = unpack(">Hc0", packed)
            local _, bytes = size("!8bd")
            local why = unpack("i4", "abc")
            return text .. bytes .. why
        "#;
        assert_eq!(run(&lua, code), "abc16data string too short");
    }
}
