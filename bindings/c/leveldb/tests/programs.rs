//! Programs in C on the library: LevelDB's own test of its C interface, and one for what differs.
//!
//! `GABION_LEVELDB_C_TEST` is the path of LevelDB's `c_test.c`, which `fetch.sh` fetches; without
//! it that test is left out, and says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command and returns what it said.
fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}",
        output.status
    );
    said
}

/// Where cargo has put the library, which no test of the crate has it build.
fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // The program is target/PROFILE/deps/programs-HASH.
        let program = std::env::current_exe().unwrap();
        let target = program.ancestors().nth(3).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "-p", "gabion-leveldb", "--target-dir"]);
        run(build.arg(target).current_dir(here()));
        target.join("debug")
    })
}

/// The directories of the headers to compile with: ours, and LevelDB's own where it is installed.
fn headers() -> Vec<PathBuf> {
    let theirs = Path::new("/usr/include");
    let mut headers = vec![here().join("include")];
    match theirs.join("leveldb/c.h").exists() {
        true => headers.push(theirs.to_owned()),
        false => println!("left out: LevelDB's own header is not installed"),
    }
    headers
}

/// Compiles a program with a header.
fn compile(source: &Path, header: &Path, flags: &[&str], program: &Path) {
    let libraries = libraries();
    let mut command = Command::new("cc");
    command.args(flags).arg("-I").arg(header).arg(source);
    command.arg("-L").arg(libraries).arg("-lgabion_leveldb");
    command.arg(format!("-Wl,-rpath,{}", libraries.display()));
    run(command.arg("-o").arg(program));
}

#[test]
fn what_differs() {
    let source = here().join("tests/c/differences.c");
    for header in headers() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        let flags = [
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-D_DEFAULT_SOURCE",
        ];
        compile(&source, &header, &flags, &program);
        run(Command::new(&program).arg(dir.path().join("store")));
        if Command::new("valgrind").arg("--version").output().is_ok() {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["-q", "--error-exitcode=9"]);
            run(valgrind.arg(&program).arg(dir.path().join("checked")));
        }
    }
}

#[test]
fn the_test_of_leveldb() {
    let Some(source) = std::env::var_os("GABION_LEVELDB_C_TEST") else {
        println!("left out: GABION_LEVELDB_C_TEST is not set; fetch.sh fetches LevelDB's test");
        return;
    };
    for header in headers() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("c_test");
        compile(Path::new(&source), &header, &["-w"], &program);
        let said = run(Command::new(&program).env("TEST_TMPDIR", dir.path().join("db")));
        assert!(said.ends_with("PASS\n"), "{said}");
        let phases = said
            .lines()
            .filter(|line| line.starts_with("=== Test"))
            .count();
        println!(
            "{phases} phases of LevelDB's c_test passed with {}",
            header.display()
        );
        assert_eq!(phases, 16);
    }
}

#[test]
fn every_function_is_there() {
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(libraries().join("libgabion_leveldb.so"))
        .output()
        .unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let own = symbols.lines().filter(|line| line.contains(" T leveldb_"));
    assert_eq!(own.count(), 68);
}
