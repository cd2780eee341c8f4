//! Commands from a terminal: history, completion of names, and hints.

use std::borrow::Cow;
use std::path::PathBuf;

use gabion_server::{command_help, command_names};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use super::{Session, say, words};
use crate::failure::Failure;
use crate::output::{Output, tell};

/// Lines of history that are kept.
const HISTORY_MAX: usize = 1000;

/// Reads and runs commands until the end of what is typed.
pub(super) fn run(session: &mut Session<'_>, output: &mut Output) -> Result<(), Failure> {
    let failed = |error: ReadlineError| Failure::new(format!("cannot read the terminal: {error}"));
    let builder = Config::builder()
        .max_history_size(HISTORY_MAX)
        .map_err(failed)?;
    let mut editor: Editor<Hints, DefaultHistory> =
        Editor::with_config(builder.build()).map_err(failed)?;
    editor.set_helper(Some(Hints));
    let file = history_file();
    if let Some(file) = &file {
        // There is none at the first time.
        let _ = editor.load_history(file);
    }
    loop {
        let database = match session.database {
            0 => String::new(),
            database => format!("[{database}]"),
        };
        let line = match editor.readline(&format!("{}{database}> ", session.place())) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        let words = match words::split(line.as_bytes()) {
            Ok(words) => words,
            Err(why) => {
                tell(why);
                continue;
            }
        };
        let Some(first) = words.first() else {
            continue;
        };
        if !has_secrets(&line) {
            // What cannot be remembered is no reason to stop.
            let _ = editor.add_history_entry(line.as_str());
        }
        if first.eq_ignore_ascii_case(b"exit") || first.eq_ignore_ascii_case(b"quit") {
            break;
        }
        if first.eq_ignore_ascii_case(b"help") {
            output.line(&help(words.get(1..).unwrap_or_default()))?;
        } else if let Err(failure) = session.run(&words, output) {
            say(&failure);
        }
        output.flush()?;
    }
    if let Some(file) = &file {
        let _ = editor.save_history(file);
    }
    Ok(())
}

/// Where history is kept: nowhere without a home.
fn history_file() -> Option<PathBuf> {
    match std::env::var_os("GABION_HISTORY") {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(PathBuf::from(path)),
        None => Some(PathBuf::from(std::env::var_os("HOME")?).join(".gabion_history")),
    }
}

/// Whether a line may have a password, which no history is to keep.
fn has_secrets(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    ["auth", "requirepass", "acl setuser", "hello"]
        .iter()
        .any(|word| lower.contains(word))
}

/// What is known of a command.
fn help(words: &[Vec<u8>]) -> String {
    if words.is_empty() {
        return "help COMMAND shows what a command does; exit ends the client".to_owned();
    }
    match command_help(words) {
        None => "This client does not know the command; the server may know it.".to_owned(),
        Some(help) => {
            let name = help.name.replace('|', " ").to_ascii_uppercase();
            let (least, takes_more) = help.arguments;
            let count = match (least, takes_more) {
                (0, false) => "It takes no arguments.".to_owned(),
                (1, false) => "It takes one argument.".to_owned(),
                (least, false) => format!("It takes {least} arguments."),
                (0, true) => "It may take arguments.".to_owned(),
                (1, true) => "It takes one argument or more.".to_owned(),
                (least, true) => format!("It takes {least} arguments or more."),
            };
            format!("{name}: {} {count}", help.summary)
        }
    }
}

/// Names and what commands do.
struct Hints;

impl Helper for Hints {}

impl Validator for Hints {}

impl Highlighter for Hints {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        // Dim, so that it is not taken for what was typed.
        Cow::Owned(format!("\x1b[2m{hint}\x1b[0m"))
    }
}

impl Completer for Hints {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, completions(line.get(..position).unwrap_or_default())))
    }
}

impl Hinter for Hints {
    type Hint = String;

    fn hint(&self, line: &str, position: usize, _: &Context<'_>) -> Option<String> {
        if position < line.len() {
            return None;
        }
        hint(line)
    }
}

/// Commands and subcommands that begin like a line.
fn completions(line: &str) -> Vec<String> {
    let is_upper = line.chars().any(|letter| letter.is_ascii_uppercase());
    let lower = line.to_ascii_lowercase();
    let fits = |name: &String| name.starts_with(&lower);
    let names = command_names().map(|name| name.replace('|', " "));
    let mut found: Vec<String> = names.filter(fits).collect();
    found.sort_unstable();
    if is_upper {
        found
            .iter_mut()
            .for_each(|name| name.make_ascii_uppercase());
    }
    found
}

/// What the command does that was typed, once a space says that its name has ended.
fn hint(line: &str) -> Option<String> {
    let words = words::split(line.as_bytes()).ok()?;
    let help = command_help(&words)?;
    let names = help.name.split('|').count();
    let is_ended = words.len() == names && line.ends_with(' ');
    is_ended.then(|| format!("  {}", help.summary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_and_explained() {
        assert_eq!(completions("GETR"), ["GETRANGE"]);
        assert!(completions("client ").contains(&"client id".to_owned()));
        assert!(completions("set a").is_empty());
        assert!(hint("get ").is_some_and(|hint| hint.ends_with('.')));
        assert!(hint("client id ").is_some_and(|hint| hint != hint_of_client()));
        assert_eq!(
            (hint("get"), hint("get a "), hint("nothing ")),
            (None, None, None)
        );
        assert!(help(&[b"set".to_vec()]).starts_with("SET: "));
    }

    fn hint_of_client() -> String {
        hint("client ").unwrap_or_default()
    }

    #[test]
    fn lines_with_passwords_are_not_kept() {
        for line in [
            "AUTH x",
            "hello 3 auth a b",
            "config set requirepass x",
            "ACL SETUSER a >b",
        ] {
            assert!(has_secrets(line), "{line}");
        }
        assert!(!has_secrets("get stone"));
    }
}
