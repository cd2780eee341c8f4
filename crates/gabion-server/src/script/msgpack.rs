//! The library `cmsgpack`: MessagePack.

#![expect(
    clippy::cast_possible_truncation,
    reason = "widths were chosen by the value"
)]

use mlua::{Lua, Table, Value};

use super::host::{Outcome, add, bytes, pairs, sizes, string, whole};

/// Tables within tables; what is deeper is packed as nil.
const DEPTH_MAX: usize = 16;

/// The deepest nesting that is unpacked, since it takes stack.
const UNPACK_DEPTH_MAX: usize = 500;

fn ordered<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    bytes.reverse();
    bytes
}

/// A mark, and a length in the shortest of the widths that it has a mark for.
fn length(out: &mut Vec<u8>, count: usize, marks: [Option<u8>; 3]) {
    let [byte, short, long] = marks;
    match (byte, short) {
        (Some(mark), _) if count <= 0xff => out.extend_from_slice(&[mark, count as u8]),
        (_, Some(mark)) if count <= 0xffff => {
            out.push(mark);
            out.extend_from_slice(&ordered((count as u16).to_le_bytes()));
        }
        _ => {
            out.push(long.unwrap_or_default());
            out.extend_from_slice(&ordered((count as u32).to_le_bytes()));
        }
    }
}

fn pack_whole(out: &mut Vec<u8>, number: i64) {
    let bytes = ordered(number.to_le_bytes());
    let (mark, width) = match number {
        -32..=0x7f => (None, 1),
        0x80..=0xff => (Some(0xcc), 1),
        0x100..=0xffff => (Some(0xcd), 2),
        0x1_0000..=0xffff_ffff => (Some(0xce), 4),
        0x1_0000_0000.. => (Some(0xcf), 8),
        -0x80..-32 => (Some(0xd0), 1),
        -0x8000..-0x80 => (Some(0xd1), 2),
        -0x8000_0000..-0x8000 => (Some(0xd2), 4),
        _ => (Some(0xd3), 8),
    };
    out.extend(mark);
    out.extend_from_slice(&bytes[8 - width..]);
}

fn pack_number(out: &mut Vec<u8>, number: f64) {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    if fits && number.fract() == 0.0 {
        pack_whole(out, number as i64);
    } else if f64::from(number as f32) == number {
        out.push(0xca);
        out.extend_from_slice(&ordered((number as f32).to_le_bytes()));
    } else {
        out.push(0xcb);
        out.extend_from_slice(&ordered(number.to_le_bytes()));
    }
}

fn pack(out: &mut Vec<u8>, value: &Value, depth: usize) {
    match value {
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                0..32 => out.push(0xa0 | text.len() as u8),
                count => length(out, count, [Some(0xd9), Some(0xda), Some(0xdb)]),
            }
            out.extend_from_slice(&text);
        }
        Value::Boolean(yes) => out.push(if *yes { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => pack_whole(out, *number),
        Value::Number(number) => pack_number(out, *number),
        Value::Table(table) if depth < DEPTH_MAX => pack_table(out, table, depth + 1),
        _ => out.push(0xc0),
    }
}

fn pack_table(out: &mut Vec<u8>, table: &Table, depth: usize) {
    let (count, greatest) = sizes(table);
    // Keys 1, 2, ... without a gap.
    if greatest == Some(count) {
        match count {
            0..16 => out.push(0x90 | count as u8),
            _ => length(out, count, [None, Some(0xdc), Some(0xdd)]),
        }
        for index in 1..=count {
            let item: Value = table.raw_get(index).unwrap_or_default();
            pack(out, &item, depth);
        }
        return;
    }
    match count {
        0..16 => out.push(0x80 | count as u8),
        _ => length(out, count, [None, Some(0xde), Some(0xdf)]),
    }
    for (name, value) in pairs(table) {
        pack(out, &name, depth);
        pack(out, &value, depth);
    }
}

/// Bytes that are unpacked.
struct Packed<'p> {
    lua: &'p Lua,
    bytes: &'p [u8],
}

impl<'p> Packed<'p> {
    fn take(&mut self, count: usize) -> Result<&'p [u8], String> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(count)
            .ok_or("Missing bytes in input.")?;
        self.bytes = rest;
        Ok(taken)
    }

    /// A number of so many bytes.
    fn number(&mut self, width: usize) -> Result<u64, String> {
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn count(&mut self, width: usize) -> Result<usize, String> {
        let count = self.number(width)?;
        usize::try_from(count).map_err(|_| "Missing bytes in input.".to_owned())
    }

    fn signed(&mut self, width: u32) -> Result<Value, String> {
        let number = self.number(width as usize)?.cast_signed();
        let unused = 64 - 8 * width;
        Ok(Value::Number((number << unused >> unused) as f64))
    }

    fn unsigned(&mut self, width: usize) -> Result<Value, String> {
        Ok(Value::Number(self.number(width)? as f64))
    }

    fn text(&mut self, count: usize) -> Result<Value, String> {
        let bytes = self.take(count)?;
        string(self.lua, bytes)
    }

    fn table(&self) -> Result<Table, String> {
        self.lua.create_table().map_err(|error| error.to_string())
    }

    fn list(&mut self, count: usize, depth: usize) -> Result<Value, String> {
        let table = self.table()?;
        for index in 1..=count {
            let item = self.value(depth + 1)?;
            table
                .raw_set(index, item)
                .map_err(|error| error.to_string())?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: usize, depth: usize) -> Result<Value, String> {
        let table = self.table()?;
        for _ in 0..count {
            let name = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            table
                .raw_set(name, value)
                .map_err(|_| "Bad data format in input.")?;
        }
        Ok(Value::Table(table))
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > UNPACK_DEPTH_MAX {
            return Err("Bad data format in input.".to_owned());
        }
        let mark = self.take(1)?[0];
        match mark {
            0..=0x7f => Ok(Value::Number(f64::from(mark))),
            0xe0.. => Ok(Value::Number(f64::from(mark.cast_signed()))),
            0x80..=0x8f => self.map(usize::from(mark & 0xf), depth),
            0x90..=0x9f => self.list(usize::from(mark & 0xf), depth),
            0xa0..=0xbf => self.text(usize::from(mark & 0x1f)),
            0xc0 => Ok(Value::Nil),
            0xc2 => Ok(Value::Boolean(false)),
            0xc3 => Ok(Value::Boolean(true)),
            0xc4 | 0xd9 => self.counted(1, Packed::text),
            0xc5 | 0xda => self.counted(2, Packed::text),
            0xc6 | 0xdb => self.counted(4, Packed::text),
            0xca => Ok(Value::Number(f64::from(f32::from_bits(
                self.number(4)? as u32
            )))),
            0xcb => Ok(Value::Number(f64::from_bits(self.number(8)?))),
            0xcc => self.unsigned(1),
            0xcd => self.unsigned(2),
            0xce => self.unsigned(4),
            0xcf => self.unsigned(8),
            0xd0 => self.signed(1),
            0xd1 => self.signed(2),
            0xd2 => self.signed(4),
            0xd3 => self.signed(8),
            0xdc => self.counted(2, |this, count| this.list(count, depth)),
            0xdd => self.counted(4, |this, count| this.list(count, depth)),
            0xde => self.counted(2, |this, count| this.map(count, depth)),
            0xdf => self.counted(4, |this, count| this.map(count, depth)),
            _ => Err("Bad data format in input.".to_owned()),
        }
    }

    fn counted(
        &mut self,
        width: usize,
        read: impl FnOnce(&mut Packed<'p>, usize) -> Result<Value, String>,
    ) -> Result<Value, String> {
        let count = self.count(width)?;
        read(self, count)
    }
}

/// Up to `limit` values from `offset` on, and in front of them, if `limit` is none of all, where
/// the next begins: -1 at the end.
fn unpack(lua: &Lua, args: &[Value], limit: Option<i64>, offset: i64) -> Outcome {
    let bytes = bytes(args, 0)?;
    let start = usize::try_from(offset)
        .ok()
        .filter(|start| *start <= bytes.len() && limit.unwrap_or_default() >= 0)
        .ok_or("Invalid request to unpack with offset or limit that is out of range.")?;
    let mut packed = Packed {
        lua,
        bytes: &bytes[start..],
    };
    let mut found = Vec::new();
    let most = limit.filter(|limit| *limit > 0).unwrap_or(i64::MAX);
    while !packed.bytes.is_empty() && (found.len() as i64) < most {
        found.push(packed.value(0)?);
    }
    if limit.is_some() {
        let next = match packed.bytes.len() {
            0 => -1,
            left => i64::try_from(bytes.len() - left).unwrap_or_default(),
        };
        found.insert(0, Value::Integer(next));
    }
    Ok(found)
}

/// The functions.
///
/// # Errors
/// When Lua has no memory.
pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", |lua, args| {
        if args.is_empty() {
            return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".to_owned());
        }
        let mut out = Vec::new();
        for value in args {
            pack(&mut out, value, 0);
        }
        Ok(vec![string(lua, out)?])
    })?;
    add(lua, &table, "unpack", |lua, args| {
        unpack(lua, args, None, 0)
    })?;
    add(lua, &table, "unpack_one", |lua, args| {
        unpack(lua, args, Some(1), whole(args, 1, 0)?)
    })?;
    add(lua, &table, "unpack_limit", |lua, args| {
        unpack(lua, args, Some(whole(args, 1, 0)?), whole(args, 2, 0)?)
    })?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::host::float;

    #[test]
    fn numbers_take_the_shortest_form_and_come_back() {
        let lua = Lua::new();
        for (number, packed) in [
            (0.0, &[0][..]),
            (127.0, &[0x7f]),
            (128.0, &[0xcc, 128]),
            (-32.0, &[0xe0]),
            (-33.0, &[0xd0, 0xdf]),
            (65_536.0, &[0xce, 0, 1, 0, 0]),
            (
                -1_099_511_627_776.0,
                &[0xd3, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0],
            ),
            (0.5, &[0xca, 0x3f, 0, 0, 0]),
            (0.1, &[0xcb, 0x3f, 0xb9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a]),
        ] {
            let mut out = Vec::new();
            pack(&mut out, &Value::Number(number), 0);
            assert_eq!(out, packed);
            let mut packed = Packed {
                lua: &lua,
                bytes: &out,
            };
            assert_eq!(float(&packed.value(0).unwrap()), Some(number));
        }
    }

    #[test]
    fn broken_bytes_are_refused() {
        let lua = Lua::new();
        for bytes in [
            &b"\xa3a"[..],
            b"\xc1",
            b"\xdd\xff\xff\xff\xff",
            b"\x81\xc0\x01",
            b"",
        ] {
            let mut packed = Packed { lua: &lua, bytes };
            assert!(packed.value(0).is_err(), "{bytes:?}");
        }
    }
}
