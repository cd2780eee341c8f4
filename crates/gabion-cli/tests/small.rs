//! The program without its feature `lab`, and without engines that are left out with `pm`: what is
//! missing is told in a sentence with its remedy.
#![cfg(not(feature = "lab"))]

use std::path::Path;
use std::process::Command;

use gabion::{Engine, Error};

/// The program ends with 1 and says one sentence, which is returned.
fn refused(arguments: &[&str], db: Option<&Path>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
    command.args(arguments);
    if let Some(db) = db {
        command.arg("--db").arg(db);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn the_lab_is_missed_with_a_sentence() {
    for arguments in [
        &["bench", "fillrandom", "--db", "x"][..],
        &["lab", "run", "--target", "wip"],
        &["lab"],
    ] {
        let said = refused(arguments, None);
        assert!(said.contains("--features full"), "{said}");
    }
}

#[cfg(not(feature = "server"))]
#[test]
fn the_server_is_missed_with_a_sentence() {
    for arguments in [&["serve", "--db", "x"][..], &["serve"]] {
        let said = refused(arguments, None);
        assert!(said.contains("--features server"), "{said}");
    }
}

#[test]
fn an_engine_that_is_left_out_is_missed_with_a_sentence() {
    for engine in [Engine::Scmkv, Engine::Sptree] {
        // Cargo unites the features of all crates that it builds.
        if engine.is_built() {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("new");
        let put = ["put", "stone", "granite", "--engine", engine.name()];
        let said = refused(&put, Some(&new));
        assert!(said.contains(engine.name()), "{said}");
        assert!(said.contains("the feature \"pm\""), "{said}");
        assert!(!new.exists(), "a store was begun");

        // A store that is there is known by its root, and stays as it is.
        let old = dir.path().join("old");
        let root = old.join(engine.name().to_uppercase());
        std::fs::create_dir(&old).unwrap();
        std::fs::File::create(&root).unwrap();
        for arguments in [
            &["put", "stone", "granite"][..],
            &["get", "stone"],
            &["check"],
        ] {
            let said = refused(arguments, Some(&old));
            assert!(said.contains(root.to_str().unwrap()), "{said}");
            assert!(said.contains("the feature \"pm\""), "{said}");
        }
        let said = gabion::repair(&old, dir.path().join("saved")).unwrap_err();
        assert!(matches!(said, Error::Unsupported { .. }), "{said}");
        let said = gabion::destroy(&old).unwrap_err();
        assert!(matches!(said, Error::MissingFeature { .. }), "{said}");
        assert!(root.exists(), "it was destroyed");
    }
}
