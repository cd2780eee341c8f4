//! The functions of the library `redis` that need no command.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlua::{Lua, Table};

use super::host::{add, bytes, float, number, one, string};

/// The line of an error with a code in front, whether or not the script has given one.
pub(crate) fn error_line(text: &str) -> String {
    let text = text.strip_prefix('-').unwrap_or(text);
    let text = text.trim_matches(['\r', '\n']);
    match text {
        "" => "ERR".to_owned(),
        _ if text.contains(' ') => text.to_owned(),
        _ => format!("ERR {text}"),
    }
}

/// The hash of a script, in hexadecimal digits.
pub(crate) fn hash(program: &[u8]) -> String {
    sha1_smol::Sha1::from(program).digest().to_string()
}

/// The functions.
///
/// # Errors
/// When Lua has no memory.
pub(crate) fn library(lua: &Lua, is_resp3: &Arc<AtomicBool>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "sha1hex", |lua, args| match args.len() {
        1 => one(string(lua, hash(&bytes(args, 0)?))?),
        _ => Err("wrong number of arguments".to_owned()),
    })?;
    let is_resp3 = Arc::clone(is_resp3);
    add(lua, &table, "setresp", move |_, args| {
        if args.len() != 1 {
            return Err("redis.setresp() requires one argument.".to_owned());
        }
        let version = number(args, 0)?;
        if version != 2.0 && version != 3.0 {
            return Err("RESP version must be 2 or 3.".to_owned());
        }
        // ORDER: Relaxed; one thread at a time runs scripts.
        is_resp3.store(version == 3.0, Ordering::Relaxed);
        Ok(Vec::new())
    })?;
    add(lua, &table, "set_repl", |_, args| match args.len() {
        1 if (0.0..4.0).contains(&number(args, 0)?) => Ok(Vec::new()),
        1 => Err(
            "Invalid replication flags. Please use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."
                .to_owned(),
        ),
        _ => Err("redis.set_repl() requires one argument.".to_owned()),
    })?;
    add(lua, &table, "log", |_, args| {
        if args.len() < 2 {
            return Err("redis.log() requires two arguments or more.".to_owned());
        }
        let Some(level) = float(&args[0]) else {
            return Err("First argument must be a number (log level).".to_owned());
        };
        if !(0.0..4.0).contains(&level) {
            return Err("Invalid log level.".to_owned());
        }
        let words: Vec<_> = args
            .iter()
            .skip(1)
            .filter_map(super::values::argument)
            .collect();
        // Notices and warnings; that nobody reads them is no failure of the script.
        if level >= 2.0 {
            let _ = writeln!(
                std::io::stderr(),
                "script: {}",
                String::from_utf8_lossy(&words.join(&b' '))
            );
        }
        Ok(Vec::new())
    })?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_code() {
        for (text, line) in [
            ("MY_ERR custom", "MY_ERR custom"),
            ("-MY_ERR custom\r\n", "MY_ERR custom"),
            ("word", "ERR word"),
            ("", "ERR"),
        ] {
            assert_eq!(error_line(text), line);
        }
    }
}
