//! Options of single keyspaces: what is written by them, and that they stay.

use gabion::{Compression, Db, Engine, Error, Keyspace, KeyspaceOptions, MappedOptions, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::small_options;

fn open(sim: &SimDisk) -> Db {
    Db::open_on(Disk::simulated(sim), small_options()).unwrap()
}

/// Fills a keyspace with what a compression halves at least, and brings it into tables.
fn fill(db: &Db, keyspace: &Keyspace) {
    for number in 0..2000_u32 {
        let value = format!("stone {number} of the wall, stone {number} of the wall, the wall");
        keyspace.put(number.to_le_bytes(), value).unwrap();
    }
    db.flush().unwrap();
    keyspace.compact::<&str>(..).unwrap();
}

fn table_bytes(db: &Db, name: &str) -> u64 {
    let stats = db.stats();
    let keyspace = stats
        .keyspaces
        .iter()
        .find(|keyspace| keyspace.name == name)
        .unwrap();
    let levels = keyspace.buckets.iter().flat_map(|bucket| &bucket.levels);
    levels.flatten().sum()
}

#[test]
fn each_keyspace_is_written_by_its_options_and_keeps_them() {
    let sim = SimDisk::new();
    let lz4 = KeyspaceOptions::default()
        .compression(Compression::Lz4)
        .block_bytes(4096);
    let bare = KeyspaceOptions::default().filter_bits_per_key(0);
    {
        let db = open(&sim);
        let plain = db.keyspace("plain").unwrap();
        let packed = db.keyspace_with("packed", &lz4).unwrap();
        let unfiltered = db.keyspace_with("unfiltered", &bare).unwrap();
        for keyspace in [&plain, &packed, &unfiltered] {
            fill(&db, keyspace);
        }
        let bytes = ["plain", "packed", "unfiltered"].map(|name| table_bytes(&db, name));
        assert!(bytes[1] < bytes[0] / 2, "{bytes:?}");
        assert!(bytes[2] < bytes[0], "{bytes:?}");
        assert!(plain.options().is_empty());
        db.close().unwrap();
    }
    // They are there again, after a crash as well, and what is written later follows them.
    for crash in [false, true] {
        let db = open(&sim);
        let packed = db.existing_keyspace("packed").unwrap();
        assert_eq!(packed.options(), lz4);
        assert_eq!(
            db.keyspace("packed").unwrap().options(),
            lz4,
            "it was not asked for others"
        );
        assert_eq!(packed.iter().count(), 2000);
        fill(&db, &packed);
        assert!(table_bytes(&db, "packed") < table_bytes(&db, "plain") / 2);
        match crash {
            true => std::mem::forget(db),
            false => db.close().unwrap(),
        }
        if crash {
            break;
        }
    }
}

#[test]
fn options_are_changed_and_old_tables_stay_until_a_compaction() {
    let sim = SimDisk::new();
    let db = open(&sim);
    let keyspace = db.keyspace("texts").unwrap();
    fill(&db, &keyspace);
    let before = table_bytes(&db, "texts");
    let lz4 = KeyspaceOptions::default().compression(Compression::Lz4);
    let same = db.keyspace_with("texts", &lz4).unwrap();
    assert_eq!((same.id(), keyspace.options()), (keyspace.id(), lz4));
    assert_eq!(table_bytes(&db, "texts"), before);
    fill(&db, &keyspace);
    assert!(table_bytes(&db, "texts") < before * 3 / 4);
    assert_eq!(keyspace.iter().count(), 2000);
    db.keyspace_with("texts", &KeyspaceOptions::default())
        .unwrap();
    fill(&db, &keyspace);
    assert!(table_bytes(&db, "texts") > before * 3 / 4);
    // A keyspace of the same name begins anew.
    db.keyspace_with("texts", &KeyspaceOptions::default().block_bytes(128))
        .unwrap();
    db.drop_keyspace("texts").unwrap();
    assert!(db.keyspace("texts").unwrap().options().is_empty());
    db.close().unwrap();
}

#[test]
fn options_that_cannot_be_are_refused() {
    let db = open(&SimDisk::new());
    let bad = KeyspaceOptions::default().block_bytes(7);
    let refused = db.keyspace_with("texts", &bad).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::InvalidOption {
                option: "block_bytes",
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(db.keyspace_names(), ["default"]);
    let lz4 = KeyspaceOptions::default().compression(Compression::Lz4);
    assert!(matches!(
        db.keyspace_with("gabion.x", &lz4),
        Err(Error::ReservedName { .. })
    ));
    for engine in Engine::ALL.iter().copied() {
        if engine.capabilities().keyspace_options {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let db = Options::default()
            .engine(engine)
            .mapped(MappedOptions::default().pool_bytes(64 << 20))
            .open(dir.path())
            .unwrap();
        let refused = db.keyspace_with("texts", &lz4).map(drop);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{engine}: {refused:?}"
        );
        db.keyspace_with("texts", &KeyspaceOptions::default())
            .unwrap();
    }
}
