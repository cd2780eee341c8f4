//! Programs in C and C++: compiled against what `install.sh` installs, without a warning, and run,
//! under valgrind where it is there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Whether a program is there.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

/// The interface, installed with libraries that cargo builds for it: no test of a crate without a
/// library for Rust has cargo build it.
fn prefix() -> &'static Path {
    static INSTALLED: OnceLock<TempDir> = OnceLock::new();
    let dir = INSTALLED.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        // The program is target/PROFILE/deps/programs-HASH.
        let target = program.ancestors().nth(3).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "-p", "gabion-c", "--target-dir"]);
        run(build.arg(target).current_dir(here()));
        run(Command::new("sh")
            .arg(here().join("install.sh"))
            .arg(dir.path())
            .arg(target.join("debug")));
        dir
    });
    dir.path()
}

/// Compiles a program by the flags that pkg-config has of the installed package.
fn compile(source: &str, dir: &Path) -> PathBuf {
    let source = here().join(source);
    let program = dir.join("program");
    let is_cpp = source.extension().is_some_and(|ending| ending == "cpp");
    let (compiler, standard) = match is_cpp {
        true => ("c++", "-std=c++17"),
        false => ("cc", "-std=c11"),
    };
    let mut command = Command::new(compiler);
    command.args([
        standard,
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-g",
        "-pthread",
    ]);
    command.arg(source).arg("-o").arg(&program);
    match has("pkg-config") {
        true => {
            let mut flags = Command::new("pkg-config");
            flags.args(["--cflags", "--libs", "gabion"]);
            let flags = run(flags.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
            command.args(flags.split_whitespace());
        }
        false => {
            command.arg("-I").arg(prefix().join("include"));
            command.arg("-L").arg(prefix().join("lib")).arg("-lgabion");
        }
    }
    run(command.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display())));
    program
}

/// Compiles a program, runs it with a directory for a store, and once more under valgrind.
fn compile_and_run(source: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(source, dir.path());
    let printed = run(Command::new(&program).arg(dir.path().join("store")));
    if has("valgrind") {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full"]);
        valgrind.args([
            "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite",
        ]);
        let checked = run(valgrind.arg(&program).arg(dir.path().join("checked")));
        assert_eq!(checked, printed);
    }
    printed
}

#[test]
fn the_example_in_c() {
    let printed = compile_and_run("examples/accounts.c");
    assert_eq!(printed, "alice 70\nbank -100\nbob 30\nclosed\n");
}

#[test]
fn the_example_in_cpp() {
    let printed = compile_and_run("examples/words.cpp");
    let expected = "basket 1\nby 1\nof 1\nstone 3\nbefore: none\nstone: 3\nnone 1\n\
                    the store has no keyspace named \"sentences\"; choose from: default, words\n";
    assert_eq!(printed, expected);
}

#[test]
fn the_example_of_changes() {
    let printed = compile_and_run("examples/mirror.c");
    assert_eq!(printed, "2 copied\n2 copied\nbasalt\nslate\n");
}

#[test]
fn the_example_of_backups() {
    let printed = compile_and_run("examples/backups.cpp");
    let expected = "4 loaded\nbacked up\nchalk was there, and is gone\n\
                    the repository has no backup 1; choose from: 2\n";
    assert_eq!(printed, expected);
}

#[test]
fn every_function() {
    let program = std::fs::read_to_string(here().join("tests/c/all.c")).unwrap();
    let header = std::fs::read_to_string(here().join("include/gabion.h")).unwrap();
    let mut count = 0;
    for (at, _) in header.match_indices("gabion_") {
        let name: String = header[at..]
            .chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
            .collect();
        if header[at + name.len()..].starts_with('(') {
            count += 1;
            assert!(
                program.contains(&format!("{name}(")),
                "{name} is not called"
            );
        }
    }
    assert!(count > 140, "{count} functions");
    assert_eq!(compile_and_run("tests/c/all.c"), "");
}

#[test]
fn every_method() {
    assert_eq!(compile_and_run("tests/c/all.cpp"), "");
}

#[test]
fn the_name_for_the_linker_has_the_version_of_the_interface() {
    let header = std::fs::read_to_string(here().join("include/gabion.h")).unwrap();
    let version = header.split_once("#define GABION_ABI_VERSION ").unwrap().1;
    let version = version.lines().next().unwrap();
    let build = std::fs::read_to_string(here().join("build.rs")).unwrap();
    assert!(build.contains(&format!("libgabion.so.{version}\"")));
}

#[test]
fn the_package_for_cmake() {
    if !has("cmake") {
        println!("left out: there is no cmake");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let define = |name: &str, path: &Path| format!("-D{name}={}", path.display());
    run(Command::new("cmake")
        .arg("-S")
        .arg(here().join("tests/c/cmake"))
        .arg("-B")
        .arg(dir.path())
        .arg(define("CMAKE_PREFIX_PATH", prefix()))
        .arg(define("EXAMPLES", &here().join("examples"))));
    run(Command::new("cmake").arg("--build").arg(dir.path()));
    for program in ["words", "accounts_static"] {
        let store = dir.path().join("store").join(program);
        let printed = run(Command::new(dir.path().join(program)).arg(store));
        assert!(
            printed.contains("basket 1\n") || printed.contains("alice 70\n"),
            "{printed}"
        );
    }
}
