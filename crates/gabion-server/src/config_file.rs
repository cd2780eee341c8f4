//! The configuration file: TOML whose keys are the flags of `gabion serve` and the parameters of
//! `CONFIG`.
//!
//! The program reads it, since it knows the flags ([`read`]); the server writes it when `CONFIG
//! REWRITE` wants it ([`rewrite`]). What a person has written stays as it is, comments included:
//! only values change, and new keys come at the end.

use std::path::Path;

use toml_edit::{DocumentMut, Item, Value};

use crate::whole_file;

/// The keys of a file and their values as text, a key once for each value of a list.
///
/// # Errors
/// A sentence, when it cannot be read, is no TOML, or has a value that is none of a flag.
pub fn read(path: &Path) -> Result<Vec<(String, String)>, String> {
    let document = parse(path)?;
    let mut pairs = Vec::new();
    for (key, item) in document.iter() {
        let unfit = || {
            format!(
                "{}: the value of {key} must be text, a number, a boolean, or a list of these",
                path.display()
            )
        };
        match item.as_array() {
            Some(list) => {
                for value in list {
                    pairs.push((key.to_owned(), text(value).ok_or_else(unfit)?));
                }
            }
            None => {
                let value = item.as_value().and_then(text).ok_or_else(unfit)?;
                pairs.push((key.to_owned(), value));
            }
        }
    }
    Ok(pairs)
}

/// Writes values into a file.
///
/// # Errors
/// A sentence, when it cannot be read or written.
pub(crate) fn rewrite<'v>(
    path: &Path,
    values: impl Iterator<Item = (&'v str, &'v str)>,
) -> Result<(), String> {
    let mut document = parse(path)?;
    for (key, value) in values {
        let new = match value.parse::<i64>() {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(value),
        };
        match document.get_mut(key).and_then(Item::as_value_mut) {
            Some(old) if text(old).as_deref() == Some(value) => {}
            Some(old) => {
                // What stands around it, such as a comment, stays.
                let decor = old.decor().clone();
                *old = new;
                *old.decor_mut() = decor;
            }
            None => {
                document.insert(key, Item::Value(new));
            }
        }
    }
    whole_file::replace(path, document.to_string().as_bytes())
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn parse(path: &Path) -> Result<DocumentMut, String> {
    let source = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    source.parse::<DocumentMut>().map_err(|error| {
        let place = error.span().map_or(0, |span| span.start);
        let line = source
            .get(..place)
            .unwrap_or_default()
            .matches('\n')
            .count()
            + 1;
        let message = error.message().trim();
        format!("{}, line {line}: {message}", path.display())
    })
}

/// A value as a flag has it.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(yes) => Some(if *yes.value() { "yes" } else { "no" }.to_owned()),
        Value::Datetime(_) | Value::Array(_) | Value::InlineTable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_change_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gabion.toml");
        let before = "# Ours.\nport = 7000 # a port\nbind = [\"::1\", '127.0.0.1']\n\
                      appendonly = true\ntimeout = 5   # seconds\n";
        whole_file::replace(&path, before.as_bytes()).unwrap();
        let pairs = read(&path).unwrap();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .collect();
        let expected = [
            ("port", "7000"),
            ("bind", "::1"),
            ("bind", "127.0.0.1"),
            ("appendonly", "yes"),
            ("timeout", "5"),
        ];
        assert_eq!(pairs, expected);
        let changes = [("timeout", "9"), ("appendfsync", "no"), ("port", "7000")];
        rewrite(&path, changes.into_iter()).unwrap();
        let after = before.replace("= 5", "= 9") + "appendfsync = \"no\"\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
    }

    #[test]
    fn what_is_no_parameter_is_said_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let said = |text: &str| {
            whole_file::replace(&path, text.as_bytes()).unwrap();
            read(&path).unwrap_err()
        };
        assert!(said("a = 1\nb = = 2\n").contains("x, line 2: "));
        assert!(said("a = 2020-01-01\n").contains("x: the value of a must be text"));
        assert!(said("[a]\nb = 1\n").contains("x: the value of a must be text"));
        assert!(
            read(&dir.path().join("none"))
                .unwrap_err()
                .starts_with("cannot read ")
        );
    }
}
