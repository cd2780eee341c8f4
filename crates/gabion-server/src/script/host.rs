//! Rust functions that scripts can call.
//!
//! A function that fails returns why in front of its results, and the prelude raises it with the
//! place in the script: an error of Rust would have none.

#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers of Lua lose their fractions"
)]

use mlua::{Lua, MultiValue, Table, Value};

/// Results, or an error.
pub(crate) type Outcome = Result<Vec<Value>, String>;

/// One result.
///
/// # Errors
/// None.
pub(crate) fn one(value: Value) -> Outcome {
    Ok(vec![value])
}

/// A string as a result.
///
/// # Errors
/// When Lua has no memory.
pub(crate) fn string(lua: &Lua, bytes: impl AsRef<[u8]>) -> Result<Value, String> {
    let string = lua.create_string(bytes.as_ref());
    string.map(Value::String).map_err(|error| error.to_string())
}

/// Adds a function to a table.
///
/// # Errors
/// When Lua has no memory.
pub(crate) fn add(
    lua: &Lua,
    table: &Table,
    name: &'static str,
    call: impl Fn(&Lua, &[Value]) -> Outcome + Send + 'static,
) -> mlua::Result<()> {
    let function = lua.create_function(move |lua, args: MultiValue| {
        let args = args.into_vec();
        Ok(MultiValue::from_vec(match call(lua, &args) {
            Ok(mut results) => {
                results.insert(0, Value::Nil);
                results
            }
            Err(failure) => vec![Value::String(lua.create_string(failure)?)],
        }))
    })?;
    table.raw_set(name, function)
}

fn wrong(index: usize, wanted: &str, args: &[Value]) -> String {
    let found = args.get(index).map_or("no value", Value::type_name);
    format!(
        "bad argument #{} ({wanted} expected, got {found})",
        index + 1
    )
}

/// A number, if the value is one.
pub(crate) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// An argument as a number.
///
/// # Errors
/// When it is none.
pub(crate) fn number(args: &[Value], index: usize) -> Result<f64, String> {
    let number = match args.get(index) {
        Some(Value::String(text)) => text.to_str().ok().and_then(|text| text.trim().parse().ok()),
        Some(value) => float(value),
        None => None,
    };
    number.ok_or_else(|| wrong(index, "number", args))
}

/// An argument as a whole number, or another one if it is not there.
///
/// # Errors
/// When it is no number.
pub(crate) fn whole(args: &[Value], index: usize, other: i64) -> Result<i64, String> {
    match args.get(index) {
        None | Some(Value::Nil) => Ok(other),
        Some(_) => Ok(number(args, index)? as i64),
    }
}

/// An argument as bytes.
///
/// # Errors
/// When it is neither string nor number.
pub(crate) fn bytes(args: &[Value], index: usize) -> Result<Vec<u8>, String> {
    args.get(index)
        .and_then(super::values::argument)
        .ok_or_else(|| wrong(index, "string", args))
}

/// The pairs of a table, one after the other.
///
/// Whoever goes through a table keeps none of its values: each that this program holds has one of
/// the 8,000 places that Lua gives it, and where they end the rest of the table is not found.
pub(crate) fn pairs(table: &Table) -> impl Iterator<Item = (Value, Value)> {
    table.pairs().flatten()
}

/// The number of pairs of a table, and the greatest of its keys if all of them are indices of a
/// list; 0 if there are none.
pub(crate) fn sizes(table: &Table) -> (usize, Option<usize>) {
    let (mut count, mut greatest) = (0, Some(0));
    for (name, _) in pairs(table) {
        count += 1;
        greatest = greatest.and_then(|greatest| Some(index(&name)?.max(greatest)));
    }
    (count, greatest)
}

/// The key of a table as an index of a list.
pub(crate) fn index(name: &Value) -> Option<usize> {
    match name {
        Value::Integer(index) => usize::try_from(*index).ok().filter(|index| *index > 0),
        Value::Number(index) if index.fract() == 0.0 && *index >= 1.0 => Some(*index as usize),
        _ => None,
    }
}
