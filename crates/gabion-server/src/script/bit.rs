//! The library `bit`: operations on numbers of 32 bits, as that of LuaJIT.

#![expect(clippy::cast_possible_truncation, reason = "the low half is meant")]

use mlua::{Lua, Table, Value};

use super::host::{Outcome, add, number, one};

/// The number modulo 2^32, with a sign.
fn wrapped(args: &[Value], index: usize) -> Result<i32, String> {
    let number = number(args, index)?;
    let whole = number.round_ties_even() % 4_294_967_296.0;
    Ok(whole as i64 as i32)
}

fn result(number: i32) -> Outcome {
    one(Value::Number(f64::from(number)))
}

fn folded(args: &[Value], combine: fn(i32, i32) -> i32) -> Outcome {
    let mut all = wrapped(args, 0)?;
    for index in 1..args.len() {
        all = combine(all, wrapped(args, index)?);
    }
    result(all)
}

fn shifted(args: &[Value], shift: fn(i32, u32) -> i32) -> Outcome {
    let by = wrapped(args, 1)?.cast_unsigned() & 31;
    result(shift(wrapped(args, 0)?, by))
}

fn hexadecimal(lua: &Lua, args: &[Value]) -> Outcome {
    let number = wrapped(args, 0)?.cast_unsigned();
    let digits = match args.len() {
        0 | 1 => 8,
        _ => wrapped(args, 1)?,
    };
    let count = usize::try_from(digits.unsigned_abs().min(8)).unwrap_or(8);
    let all = match digits < 0 {
        true => format!("{number:08X}"),
        false => format!("{number:08x}"),
    };
    let text = lua.create_string(&all[8 - count..]);
    one(Value::String(text.map_err(|error| error.to_string())?))
}

/// The functions.
///
/// # Errors
/// When Lua has no memory.
pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "tobit", |_, args| result(wrapped(args, 0)?))?;
    add(lua, &table, "bnot", |_, args| result(!wrapped(args, 0)?))?;
    add(lua, &table, "bswap", |_, args| {
        result(wrapped(args, 0)?.swap_bytes())
    })?;
    add(lua, &table, "tohex", hexadecimal)?;
    add(lua, &table, "band", |_, args| folded(args, |a, b| a & b))?;
    add(lua, &table, "bor", |_, args| folded(args, |a, b| a | b))?;
    add(lua, &table, "bxor", |_, args| folded(args, |a, b| a ^ b))?;
    add(lua, &table, "lshift", |_, args| {
        shifted(args, |number, by| number << by)
    })?;
    add(lua, &table, "rshift", |_, args| {
        shifted(args, |number, by| {
            (number.cast_unsigned() >> by).cast_signed()
        })
    })?;
    add(lua, &table, "arshift", |_, args| {
        shifted(args, |number, by| number >> by)
    })?;
    add(lua, &table, "rol", |_, args| {
        shifted(args, i32::rotate_left)
    })?;
    add(lua, &table, "ror", |_, args| {
        shifted(args, i32::rotate_right)
    })?;
    Ok(table)
}
