//! The commands that keep the workspace in order, run as `cargo xtask <command>`.
//!
//! They need nothing but the standard library, so that they are built within a second and can be
//! run before anything else is.

mod picture;
mod readme;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
The house's own commands.

Usage: cargo xtask <command>

Commands:
  tidy                   check the house rules that the compiler and clippy cannot express
  tidy --list            print those rules
  size [dir]             print how much code there is, here or in another checkout
  picture                print docs/bytes-written.svg, drawn from the table in docs/results.md
  readme-command <mark>  print the command that README.md marks with <!-- ci:<mark> -->
  help                   print this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        ["tidy"] => tidy::run(&workspace_root()),
        ["tidy", "--list"] => {
            tidy::list();
            ExitCode::SUCCESS
        }
        ["size"] => tidy::size(&workspace_root()),
        ["size", dir] => tidy::size(Path::new(dir)),
        ["picture"] => picture::print(&workspace_root()),
        ["readme-command", mark] => readme_command(&workspace_root(), mark),
        _ => {
            eprintln!("xtask: unknown command: {}\n", arguments.join(" "));
            eprint!("{HELP}");
            ExitCode::from(2)
        }
    }
}

/// The directory of the workspace: the parent of this crate's.
fn workspace_root() -> PathBuf {
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    crate_dir
        .parent()
        .map_or_else(|| crate_dir.clone(), Path::to_path_buf)
}

fn readme_command(root: &Path, mark: &str) -> ExitCode {
    let path = root.join("README.md");
    let command = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot be read: {error}"))
        .and_then(|text| readme::command(&text, mark));
    match command {
        Ok(command) => {
            println!("{command}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xtask: README.md: {why}");
            ExitCode::FAILURE
        }
    }
}
