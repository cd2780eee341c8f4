//! What tells keyspaces apart besides the names that users give them: their numbers, and the names
//! of hidden ones.

use std::collections::BTreeSet;

use gabion::{Db, Engine, Error, WriteBatch};

use crate::support::small_options;

/// What a tool noted down about a keyspace was taken for true of another one that had been made
/// under its name: there was nothing to tell them apart by.
#[test]
fn the_number_of_a_keyspace_never_comes_again() {
    for engine in Engine::ALL.iter().copied() {
        let dir = tempfile::tempdir().unwrap();
        let open = || small_options().engine(engine).open(dir.path()).unwrap();
        let mut seen = BTreeSet::new();
        for round in 0..4 {
            let db = open();
            let id = db.keyspace("again").unwrap().id();
            let is_new = seen.insert(id);
            assert_eq!(db.existing_keyspace("again").unwrap().id(), id);
            assert_ne!(db.default_keyspace().id(), id);
            if engine.capabilities().drop_keyspace {
                assert!(is_new, "{engine}, round {round}: {id} of {seen:?}");
                db.drop_keyspace("again").unwrap();
            } else {
                assert_eq!(is_new, round == 0, "{engine}");
            }
            db.close().unwrap();
        }
    }
}

/// Tools noted things down in a keyspace that users could open, and put keys of theirs into.
#[test]
fn hidden_keyspaces_are_apart_from_those_of_users() {
    for engine in Engine::ALL.iter().copied() {
        let dir = tempfile::tempdir().unwrap();
        let open = || small_options().engine(engine).open(dir.path()).unwrap();
        let db = open();
        let notes = db.reserved_keyspace("notes").unwrap();
        let users = db.keyspace("notes").unwrap();
        assert_ne!(notes.id(), users.id());
        let mut batch = WriteBatch::new();
        batch.put(&notes, "key", "of a tool").unwrap();
        batch.put(&users, "key", "of a user").unwrap();
        db.write(batch).unwrap();
        db.close().unwrap();

        let db = open();
        assert_eq!(db.keyspace_names(), ["default", "notes"], "{engine}");
        let of = |keyspace: &gabion::Keyspace| keyspace.get("key").unwrap().unwrap().to_vec();
        assert_eq!(of(&db.reserved_keyspace("notes").unwrap()), b"of a tool");
        assert_eq!(of(&db.keyspace("notes").unwrap()), b"of a user");
        for name in ["gabion.notes", "gabion.", "gabion.other"] {
            let refused = [db.keyspace(name).err(), db.existing_keyspace(name).err()];
            for error in refused {
                assert!(
                    matches!(error, Some(Error::ReservedName { .. })),
                    "{error:?}"
                );
            }
        }
        assert!(db.keyspace("gabion").is_ok());
        if engine.capabilities().drop_keyspace {
            db.drop_keyspace("gabion.notes").unwrap();
            assert_eq!(of(&db.keyspace("notes").unwrap()), b"of a user");
            assert!(
                db.reserved_keyspace("notes")
                    .unwrap()
                    .get("key")
                    .unwrap()
                    .is_none()
            );
        }
    }
}

#[test]
fn a_sentence_with_names_holds_no_commands_for_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    db.keyspace("a\u{1b}[2J\n").unwrap();
    let told = db.existing_keyspace("b\u{9b}2J").unwrap_err().to_string();
    assert!(!told.contains(char::is_control), "{told:?}");
    assert!(told.contains("2J"), "{told:?}");
}
