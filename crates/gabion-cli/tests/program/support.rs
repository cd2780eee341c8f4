//! Running the program in a directory of its own.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A directory with a place for a store.
pub(crate) struct Place {
    dir: TempDir,
}

/// What a run of the program left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// One that is not in memory, unless all of the build is: below the build's directory.
    pub(crate) fn on_a_drive() -> Place {
        Place {
            dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.path("db")
    }

    /// Makes a file and gives its path.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        File::create(&path)
            .unwrap()
            .write_all(bytes.as_ref())
            .unwrap();
        path
    }

    /// The program with these arguments, in this directory, on the store `db`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
        command
            .current_dir(self.dir.path())
            .args(arguments)
            .arg("--db")
            .arg(self.db());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        outcome(&mut self.command(arguments))
    }

    /// Runs the program, which must succeed, and gives its standard output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.status, Some(0), "{arguments:?}: {outcome:?}");
        outcome.stdout
    }

    /// Runs the program, which must say one sentence and end with `status`; gives the sentence.
    pub(crate) fn fails(&self, status: i32, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.status, Some(status), "{arguments:?}: {outcome:?}");
        let sentence = outcome.stderr.trim_end();
        assert!(
            sentence.starts_with("gabion: "),
            "{arguments:?}: {outcome:?}"
        );
        assert_eq!(sentence.lines().count(), 1, "{arguments:?}: {outcome:?}");
        sentence.to_owned()
    }

    /// Runs the program with this standard input.
    pub(crate) fn feed(&self, arguments: &[&str], input: &[u8]) -> Outcome {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that refuses its arguments does not read its input.
        let _ = stdin.write_all(input);
        drop(stdin);
        Outcome::of(child.wait_with_output().unwrap())
    }
}

impl Outcome {
    fn of(output: Output) -> Outcome {
        Outcome {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub(crate) fn outcome(command: &mut Command) -> Outcome {
    Outcome::of(command.output().unwrap())
}

/// Runs the program with exactly these arguments.
pub(crate) fn bare(arguments: &[&str]) -> Outcome {
    outcome(Command::new(env!("CARGO_BIN_EXE_gabion")).args(arguments))
}

/// Bytes of all files in a directory.
pub(crate) fn size_of_files(dir: &Path) -> u64 {
    let Ok(entries) = dir.read_dir() else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}

/// Asserts that a message names everything that it must.
#[track_caller]
pub(crate) fn names(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "{message:?} lacks {word:?}");
    }
}
