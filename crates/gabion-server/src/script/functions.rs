//! Declarations of a library and of its functions.

use mlua::Value;

type Failed<T> = Result<T, String>;

const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and \
                        must be at least one character long";

/// Flags of functions and of scripts.
pub(crate) const FLAGS: &[&str] = &[
    "allow-cross-slot-keys",
    "allow-oom",
    "allow-stale",
    "no-cluster",
    "no-writes",
];

/// An error unless a library or a function can have the name.
///
/// # Errors
/// What Redis says of it.
pub(crate) fn check_name(name: &[u8]) -> Failed<()> {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    match !name.is_empty() && name.iter().all(fits) {
        true => Ok(()),
        false => Err(BAD_NAME.to_owned()),
    }
}

/// Checks the arguments of `redis.register_function`.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn check(args: &[Value]) -> Failed<()> {
    let said = |text: &str| Err(text.to_owned());
    match args {
        [Value::Table(named)] => check_named(named),
        [_] => said(
            "calling redis.register_function with a single argument is only applicable to Lua \
             table (representing named arguments).",
        ),
        [Value::String(name), Value::Function(_)] => check_name(&name.as_bytes()),
        [Value::String(_), _] => {
            said("second argument to redis.register_function must be a function")
        }
        [_, _] => said("first argument to redis.register_function must be a string"),
        _ => said("wrong number of arguments to redis.register_function"),
    }
}

fn check_named(named: &mlua::Table) -> Failed<()> {
    let (mut has_name, mut has_call) = (false, false);
    for pair in named.pairs::<Value, Value>() {
        let (name, value) = pair.map_err(|error| error.to_string())?;
        let Value::String(name) = name else {
            return Err(
                "named argument key given to redis.register_function is not a string".to_owned(),
            );
        };
        let name = name.to_string_lossy();
        let wrong = |what: &str| {
            Err(format!(
                "{name} argument given to redis.register_function must be a {what}"
            ))
        };
        match (name.as_str(), value) {
            ("function_name", Value::String(text)) => {
                has_name = true;
                check_name(&text.as_bytes())?;
            }
            ("callback", Value::Function(_)) => has_call = true,
            ("description", Value::String(_)) => {}
            ("function_name" | "description", _) => return wrong("string"),
            ("callback", _) => return wrong("function"),
            ("flags", Value::Table(flags)) => check_flags(&flags)?,
            ("flags", _) => {
                return Err(
                    "flags argument to redis.register_function must be a table representing \
                     function flags"
                        .to_owned(),
                );
            }
            _ => {
                return Err("unknown argument given to redis.register_function".to_owned());
            }
        }
    }
    match (has_name, has_call) {
        (false, _) => Err("redis.register_function must get a function name argument".to_owned()),
        (_, false) => Err("redis.register_function must get a callback argument".to_owned()),
        _ => Ok(()),
    }
}

fn check_flags(flags: &mlua::Table) -> Failed<()> {
    for flag in flags.sequence_values::<Value>() {
        match flag {
            Ok(Value::String(flag)) if FLAGS.iter().any(|known| flag == *known) => {}
            _ => return Err("unknown flag given".to_owned()),
        }
    }
    Ok(())
}

/// The name in a library's first line, and where its program begins.
///
/// # Errors
/// What Redis says of a line that does not fit.
pub(crate) fn metadata(code: &[u8]) -> Failed<(Vec<u8>, &[u8])> {
    let Some(rest) = code.strip_prefix(b"#!") else {
        return Err("Missing library metadata".to_owned());
    };
    let end = memchr::memchr(b'\n', rest).ok_or("Invalid library metadata")?;
    let (line, program) = rest.split_at(end);
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let mut words = line.split(is_space);
    let engine = words.next().unwrap_or_default();
    let mut name = None;
    for word in words.filter(|word| !word.is_empty()) {
        let text = word.strip_prefix(b"name=").ok_or_else(|| {
            let word = String::from_utf8_lossy(word);
            format!("Invalid metadata value given: {word}")
        })?;
        let text = text.strip_prefix(b"\"").unwrap_or(text);
        let text = text.strip_suffix(b"\"").unwrap_or(text);
        if name.replace(text.to_vec()).is_some() {
            return Err(
                "Invalid metadata value, name argument was given multiple times".to_owned(),
            );
        }
    }
    let name = name.ok_or("Library name was not given")?;
    check_name(&name)?;
    if !engine.eq_ignore_ascii_case(b"lua") {
        let engine = String::from_utf8_lossy(engine);
        return Err(format!("Engine '{engine}' not found"));
    }
    Ok((name, program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_engine_and_library() {
        for (code, found) in [
            ("#!lua name=a_1\nx", Ok("a_1")),
            ("#!LUA name=\"a\"\nx", Ok("a")),
            ("x", Err("Missing library metadata")),
            ("#!lua name=a", Err("Invalid library metadata")),
            ("#!lua\nx", Err("Library name was not given")),
            ("#!py name=a\nx", Err("Engine 'py' not found")),
            (
                "#!lua name=a b=c\nx",
                Err("Invalid metadata value given: b=c"),
            ),
            ("#!lua name=a-b\nx", Err(BAD_NAME)),
        ] {
            let name = metadata(code.as_bytes()).map(|(name, _)| name);
            let expected = found
                .map(|name| name.as_bytes().to_vec())
                .map_err(str::to_owned);
            assert_eq!(name, expected);
        }
    }
}
