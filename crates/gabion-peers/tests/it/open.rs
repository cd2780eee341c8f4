//! Opening, and what a store says of itself.

use super::*;

#[test]
fn a_new_store_is_empty() {
    for_each_target(|target, dir| {
        let store = create(target, dir);
        check(target, &mut *store.session().unwrap(), &Map::new(), &[b"a"]);
    });
}

#[test]
fn what_is_not_there_is_not_opened() {
    for_each_target(|target, dir| {
        let Err(error) = (target.open)(&options(dir, true)) else {
            panic!("{} opened a store that is not there", target.name);
        };
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("{}: ", target.name)),
            "{message}"
        );
        assert!(message.contains("holds no store"), "{message}");
        assert!(message.contains(&dir.display().to_string()), "{message}");
    });
}

#[test]
fn what_is_there_is_not_created_again() {
    for_each_target(|target, dir| {
        create(target, dir).close().unwrap();
        let Err(error) = (target.open)(&options(dir, false)) else {
            panic!("{} created a store in place of another one", target.name);
        };
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("{}: ", target.name)),
            "{message}"
        );
        assert!(message.contains("holds a store already"), "{message}");
    });
}

/// Those that open what they can read of a damaged store, and say nothing.
const SILENT: [&str; 1] = ["tidesdb"];

#[test]
fn a_damaged_store_is_an_error_that_names_the_target() {
    for_each_target(|target, dir| {
        if !target.abilities.persistent {
            return;
        }
        let store = create(target, dir);
        store.session().unwrap().put(b"key", b"value").unwrap();
        store.close().unwrap();
        spoil(dir);
        match (target.open)(&options(dir, true)) {
            Ok(_) => assert!(
                SILENT.contains(&target.name),
                "{} opened garbage",
                target.name
            ),
            Err(error) => {
                let message = error.to_string();
                assert!(
                    message.starts_with(&format!("{}: ", target.name)),
                    "{message}"
                );
                assert!(message.len() > target.name.len() + 4, "{message}");
            }
        }
    });
}

/// Puts garbage in place of what the files begin with, those that the adapters look for among them.
fn spoil(dir: &Path) {
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let garbage = [0x55; 64];
            std::os::unix::fs::FileExt::write_all_at(&file, &garbage, 0).unwrap();
        } else {
            spoil(&path);
        }
    }
}

#[test]
fn settings_say_what_was_set() {
    for_each_target(|target, dir| {
        let store = create(target, dir);
        let settings = store.settings();
        for name in ["guide", "compression", "put", "put_synced"] {
            assert!(settings[name].is_string(), "{}: {name}", target.name);
        }
        assert_eq!(settings["compression"], "none", "{}", target.name);
        // What follows "loses" in a sentence.
        let is_part = |loses: &str| loses.starts_with("by ") || loses.starts_with("all ");
        assert!(is_part(target.loses), "{}: {}", target.name, target.loses);
    });
}

#[test]
fn counters_of_bytes_grow_with_what_is_written() {
    for_each_target(|target, dir| {
        let store = create(target, dir);
        let mut session = store.session().unwrap();
        let before = store.counters().unwrap();
        for i in 0..20_000_u32 {
            session
                .put(format!("{i:08}").as_bytes(), &[7; 100])
                .unwrap();
        }
        store.settle().unwrap();
        let after = store.counters().unwrap();
        let (Some(before), Some(after)) = (before.written, after.written) else {
            assert_ne!(target.name, "rocksdb", "RocksDB counts its bytes");
            return;
        };
        let records = 20_000 * 108;
        assert!(after.log - before.log >= records, "{after:?}");
        assert!(after.flush - before.flush >= records, "{after:?}");
        let tables = after.flush + after.compaction + after.split + after.merge;
        let total = after.log + tables + after.gc + after.checkpoint + after.metadata;
        assert_eq!(after.total(), total);
    });
}
