//! Formats replies for people and for programs.

use gabion_server::Reply;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::output::Output;

/// How replies are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// By kind, lists with numbers.
    Shown,
    /// Bytes as they are, an item a line.
    Raw,
    /// JSON.
    Json,
}

/// Prints a reply, with a newline behind it.
pub(super) fn print(output: &mut Output, reply: &Reply, form: Form) -> Result<(), Failure> {
    match form {
        Form::Shown => output.line(&shown(reply, 0)),
        Form::Json => output.line(&json(reply).to_string()),
        Form::Raw => {
            output.bytes(&raw(reply))?;
            output.bytes(b"\n")
        }
    }
}

/// A reply by its kind; the lines behind the first are indented by so many columns.
fn shown(reply: &Reply, indent: usize) -> String {
    match reply {
        Reply::Null => "(nil)".to_owned(),
        Reply::Simple(line) => line.clone(),
        Reply::Error(line) => format!("(error) {line}"),
        Reply::Integer(number) => format!("(integer) {number}"),
        Reply::Boolean(yes) => format!("({yes})"),
        Reply::Double(text) => format!("(double) {text}"),
        Reply::BigNumber(text) => format!("(big number) {text}"),
        Reply::Bulk(bytes) => quoted(bytes),
        Reply::Verbatim(bytes) => String::from_utf8_lossy(bytes).trim_end().to_owned(),
        Reply::Array(items) | Reply::Push(items) => numbered(items, indent, ')', "(empty array)"),
        Reply::Set(items) => numbered(items, indent, '~', "(empty set)"),
        Reply::Map(pairs) => {
            let lines = pairs.iter().map(|(key, value)| {
                let key = shown(key, indent);
                let below = indent + key.chars().count() + "#  => ".len();
                move |number: &str| {
                    format!("{number}# {key} => {}", shown(value, below + number.len()))
                }
            });
            let lines: Vec<_> = lines.collect();
            listed(lines.len(), indent, "(empty hash)", |place, number| {
                lines[place](number)
            })
        }
    }
}

fn numbered(items: &[Reply], indent: usize, mark: char, empty: &str) -> String {
    listed(items.len(), indent, empty, |place, number| {
        format!(
            "{number}{mark} {}",
            shown(&items[place], indent + number.len() + 2)
        )
    })
}

/// Lines with numbers, all but the first of them indented.
fn listed(
    count: usize,
    indent: usize,
    empty: &str,
    line: impl Fn(usize, &str) -> String,
) -> String {
    if count == 0 {
        return empty.to_owned();
    }
    let width = count.to_string().len();
    let line = |place: usize| line(place, &format!("{:>width$}", place + 1));
    let lines: Vec<String> = (0..count).map(line).collect();
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// Bytes between quotation marks, as a line of commands may have them.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text.push('"');
    text
}

fn raw(reply: &Reply) -> Vec<u8> {
    let lines = |items: Vec<Vec<u8>>| items.join(&b'\n');
    match reply {
        Reply::Null => Vec::new(),
        Reply::Simple(text) | Reply::Error(text) | Reply::Double(text) | Reply::BigNumber(text) => {
            text.clone().into_bytes()
        }
        Reply::Integer(number) => number.to_string().into_bytes(),
        Reply::Boolean(yes) => yes.to_string().into_bytes(),
        Reply::Bulk(bytes) | Reply::Verbatim(bytes) => bytes.clone(),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            lines(items.iter().map(raw).collect())
        }
        Reply::Map(pairs) => {
            let flat = pairs.iter().flat_map(|(key, value)| [raw(key), raw(value)]);
            lines(flat.collect())
        }
    }
}

/// A reply as JSON. Bytes that are no UTF-8 are escaped as in a line of commands.
fn json(reply: &Reply) -> Value {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => quoted(bytes).trim_matches('"').to_owned(),
    };
    let list = |items: &[Reply]| Value::Array(items.iter().map(json).collect());
    match reply {
        Reply::Null => Value::Null,
        Reply::Simple(line) => line.as_str().into(),
        Reply::Error(line) => {
            Value::Object(Map::from_iter([("error".to_owned(), line.as_str().into())]))
        }
        Reply::Integer(number) => (*number).into(),
        Reply::Boolean(yes) => (*yes).into(),
        // JSON has no infinite numbers.
        Reply::Double(digits) => match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => number.into(),
            _ => digits.as_str().into(),
        },
        Reply::BigNumber(digits) => digits.as_str().into(),
        Reply::Bulk(bytes) | Reply::Verbatim(bytes) => text(bytes).into(),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => list(items),
        Reply::Map(pairs) => {
            let key = |key: &Reply| text(&raw(key));
            let pairs = pairs.iter().map(|(name, value)| (key(name), json(value)));
            Value::Object(pairs.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Reply {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let inner = Reply::Array(vec![Reply::Null, Reply::Integer(-1), bulk("a\"\n")]);
        Reply::Map(vec![
            (bulk("list"), inner),
            (bulk("half"), Reply::Double("0.5".to_owned())),
            (bulk("none"), Reply::Set(Vec::new())),
        ])
    }

    #[test]
    fn replies_are_shown_by_kind() {
        let lines = [
            r#"1# "list" => 1) (nil)"#,
            r#"             2) (integer) -1"#,
            r#"             3) "a\"\n""#,
            r#"2# "half" => (double) 0.5"#,
            r#"3# "none" => (empty set)"#,
        ];
        assert_eq!(shown(&sample(), 0), lines.join("\n"));
        let many = Reply::Array((0..10).map(Reply::Integer).collect());
        let lines = shown(&many, 0);
        assert!(lines.starts_with(" 1) (integer) 0\n"));
        assert!(lines.ends_with("\n10) (integer) 9"));
    }

    #[test]
    fn programs_read_bytes_or_json() {
        assert_eq!(raw(&sample()), b"list\n\n-1\na\"\n\nhalf\n0.5\nnone\n");
        let expected = r#"{"half":0.5,"list":[null,-1,"a\"\n"],"none":[]}"#;
        assert_eq!(json(&sample()).to_string(), expected);
        assert_eq!(
            json(&Reply::Bulk(vec![255, b'a'])).to_string(),
            r#""\\xffa""#
        );
        assert_eq!(
            json(&Reply::Double("inf".to_owned())).to_string(),
            r#""inf""#
        );
    }
}
