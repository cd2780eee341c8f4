//! Limits and bad input: sentences that name the cause and the remedy, and nothing is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gabion::{Db, Durability, Engine, Error, Options, Tuning, WriteBatch};
use gabion_media::crc32c;
use gabion_media::{Disk, SimDisk};

use crate::damage::{Outcome, Specimen};
use crate::support::{Place, small_options, small_tuning};

#[test]
fn keys_have_up_to_65535_bytes() {
    for engine in Engine::ALL {
        keep_long_keys(&small_options().engine(*engine));
    }
}

fn keep_long_keys(options: &Options) {
    let place = Place::of(options.engine);
    let db = Db::open_on(place.disk(), options.clone()).unwrap();
    let longest = vec![7; 65_535];
    let too_long = vec![7; 65_536];
    db.put(&longest, "longest").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(db.default_keyspace(), "other", "kept").unwrap();
    let refusals = [
        db.put(&too_long, "value"),
        db.delete(&too_long),
        batch.put(db.default_keyspace(), &too_long, "value"),
        batch.delete(db.default_keyspace(), &too_long),
    ];
    for refusal in refusals {
        let text = refusal.expect_err("the key is too long").to_string();
        assert!(
            text.contains("key") && text.contains("65536") && text.contains("65535"),
            "{text}"
        );
    }
    assert_eq!(
        batch.len(),
        1,
        "a refused operation leaves the batch as it was"
    );
    db.write(batch).unwrap();
    assert_eq!(
        db.get(&too_long).unwrap(),
        None,
        "no key of that length is there"
    );
    db.flush().unwrap();
    db.close().unwrap();
    let db = Db::open_on(place.disk(), small_options()).unwrap();
    assert_eq!(db.get(&longest).unwrap().as_deref(), Some(&b"longest"[..]));
    assert_eq!(db.get("other").unwrap().as_deref(), Some(&b"kept"[..]));
    assert_eq!(db.default_keyspace().pairs().count(), 2);
}

#[test]
fn names_of_keyspaces_have_1_to_255_bytes() {
    for engine in Engine::ALL {
        let options = small_options().engine(*engine);
        let place = Place::of(*engine);
        let db = Db::open_on(place.disk(), options).unwrap();
        db.keyspace(&"n".repeat(255)).unwrap();
        for name in [String::new(), "n".repeat(256)] {
            let text = db.keyspace(&name).expect_err("refused").to_string();
            assert!(text.contains("keyspace") && text.contains("255"), "{text}");
        }
        assert_eq!(db.keyspace_names().len(), 2);
    }
}

#[test]
fn empty_keys_values_and_batches_are_legal() {
    for engine in Engine::ALL {
        keep_empty_keys(&small_options().engine(*engine));
    }
}

fn keep_empty_keys(options: &Options) {
    let place = Place::of(options.engine);
    let db = Db::open_on(place.disk(), options.clone()).unwrap();
    db.put("", "").unwrap();
    db.put("key", "").unwrap();
    let before = db.stats().visible_seq;
    db.write(WriteBatch::new()).unwrap();
    assert_eq!(
        db.stats().visible_seq,
        before,
        "an empty batch writes nothing"
    );
    for _ in 0..2 {
        assert_eq!(db.get("").unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b""[..]));
        if options.engine.capabilities().ordered {
            assert_eq!(db.range::<&str>(..).count(), 2);
            assert_eq!(db.range(..="").count(), 1);
            assert_eq!(db.range(.."").count(), 0);
            assert_eq!(db.prefix("").rev().count(), 2);
        }
        assert_eq!(db.default_keyspace().pairs().count(), 2);
        db.flush().unwrap();
    }
    db.delete("").unwrap();
    assert_eq!(db.default_keyspace().pairs().count(), 1);
}

/// A get by a snapshot read the other store, at a number that means nothing there, where that was
/// of the same engine; a scan read the keyspace of the same number in the snapshot's own.
#[test]
fn what_belongs_to_another_store_is_refused() {
    for engine in Engine::ALL {
        let places = [Place::of(*engine), Place::of(*engine)];
        let open =
            |place: &Place| Db::open_on(place.disk(), small_options().engine(*engine)).unwrap();
        let [own, other] = places.each_ref().map(open);
        own.put("key", "of this one").unwrap();
        other.put("key", "of the other").unwrap();
        let foreign = other.default_keyspace();
        let snapshot = own.snapshot();
        let mut batch = WriteBatch::new();
        batch.put(foreign, "key", "value").unwrap();
        let attempts: [(&str, &dyn Fn()); 6] = [
            ("get", &|| drop(snapshot.get(foreign, "key"))),
            ("contains", &|| drop(snapshot.contains(foreign, "key"))),
            ("multi_get", &|| drop(snapshot.multi_get(foreign, &["key"]))),
            ("iter", &|| drop(snapshot.iter(foreign).next())),
            ("cursor", &|| {
                drop(snapshot.cursor::<&str>(foreign, ..).advance())
            }),
            ("write", &|| drop(own.write(&batch))),
        ];
        for (what, attempt) in attempts {
            let told = catch_unwind(AssertUnwindSafe(attempt));
            let told = told
                .err()
                .unwrap_or_else(|| panic!("{engine}: {what} is answered"));
            let told = told.downcast_ref::<&str>().expect("a sentence");
            assert!(told.contains("another store"), "{engine}: {what}: {told}");
        }
        assert_eq!(
            own.get("key").unwrap().as_deref(),
            Some(&b"of this one"[..])
        );
    }
}

#[test]
fn options_that_cannot_work_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (options, tuning) = (Options::default, Tuning::default);
    let tunings = [
        (tuning().memtable_budget_bytes(10), "memtable_budget_bytes"),
        (tuning().bucket_bytes(1), "bucket_bytes"),
        (tuning().block_bytes(1), "block_bytes"),
        (tuning().filter_bits_per_key(1_000), "filter_bits_per_key"),
        (tuning().split_ways(1), "split_ways"),
        (tuning().sublevels_min(1), "sublevels_min"),
        (tuning().sublevels_max(1_000), "sublevels_max"),
    ];
    let zero = Durability::Interval(std::time::Duration::ZERO);
    let bad = [
        (options().log_bytes_max(0), "log_bytes_max"),
        (options().durability(zero), "durability"),
    ];
    let tuned = tunings.map(|(tuning, name)| (options().tuning(tuning), name));
    let bad = bad.into_iter().chain(tuned);
    for (options, name) in bad {
        let error = options.open(dir.path().join("store")).expect_err("refused");
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    assert!(
        !dir.path().join("store").exists(),
        "nothing is made before the options are checked"
    );
    assert!("btree".parse::<Engine>().unwrap_err().contains("wip"));
}

#[test]
fn a_directory_that_is_no_store_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let refused = Options::default().create_if_missing(false).open(&missing);
    let text = refused.expect_err("there is no store").to_string();
    assert!(
        text.contains("missing") && text.contains("not a Gabion store"),
        "{text}"
    );
    assert!(!missing.exists());

    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let refused = Options::default().create_if_missing(false).open(&empty);
    assert!(matches!(refused.err(), Some(Error::NotAStore { .. })));
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);

    let foreign = dir.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::File::create(foreign.join("letter.txt")).unwrap();
    for refused in [Db::open(&foreign).err(), gabion::check(&foreign).err()] {
        let text = refused.expect("no store").to_string();
        assert!(text.contains("not a Gabion store"), "{text}");
    }
    let text = Db::open(&foreign).expect_err("no store").to_string();
    assert!(text.contains("letter.txt"), "{text}");
    assert!(foreign.join("letter.txt").exists());
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 1);

    let file = dir.path().join("file");
    std::fs::File::create(&file).unwrap();
    let text = Db::open(&file)
        .expect_err("a file is no directory")
        .to_string();
    assert!(text.contains("file"), "{text}");
}

#[test]
fn a_store_that_exists_is_refused_where_it_must_not() {
    let dir = tempfile::tempdir().unwrap();
    Db::open(dir.path()).unwrap().close().unwrap();
    let refused = Options::default().error_if_exists(true).open(dir.path());
    let text = refused.expect_err("the store exists").to_string();
    assert!(text.contains("error_if_exists"), "{text}");
    Options::default()
        .create_if_missing(false)
        .open(dir.path())
        .unwrap();
}

#[test]
fn a_store_without_current_is_not_taken_for_an_empty_directory() {
    let specimen = Specimen::new(Engine::Wip, true);
    let sim = specimen.with(&[("CURRENT", None)]);
    let before = sim.names();
    let Outcome::Refused(error) = specimen.open(&sim) else {
        panic!("CURRENT is missing")
    };
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    assert!(error.to_string().contains("CURRENT is missing"), "{error}");
    assert_eq!(sim.names(), before, "nothing was made or removed");
}

/// The fields of the headers of `CURRENT`, the manifest and the log: see docs/format.md.
const VERSION: std::ops::Range<usize> = 8..12;
const CHECKSUM: std::ops::Range<usize> = 12..16;

#[test]
fn a_newer_format_is_refused_by_name() {
    let specimen = Specimen::new(Engine::Wip, true);
    let mut kinds = 0;
    for (name, bytes) in &specimen.files {
        let header_bytes = match &name[..] {
            "CURRENT" => 32,
            name if name.starts_with("manifest-") => 32,
            name if name.ends_with(".log") => 64,
            _ => continue,
        };
        let mut newer = bytes.clone();
        newer[VERSION].copy_from_slice(&77_u32.to_le_bytes());
        let covered = crc32c::crc32c(&newer[..CHECKSUM.start]);
        let checksum = crc32c::crc32c_append(covered, &newer[CHECKSUM.end..header_bytes]);
        newer[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        let sim = specimen.with(&[(name, Some(&newer))]);
        let Outcome::Refused(error) = specimen.open(&sim) else {
            panic!("{name} is too new")
        };
        assert!(
            matches!(error, Error::NewerFormat { found: 77, .. }),
            "{name}: {error}"
        );
        assert!(error.to_string().contains(name), "{error}");
        kinds += 1;
    }
    assert!(kinds >= 3, "{kinds} files were tried");
}

#[test]
fn there_are_no_more_buckets_than_the_budget_has_memory_for() {
    // Six tenths of the budget, a 32nd of a bucket for each.
    let (budget, bucket) = (128 << 10, 256 << 10);
    let most = budget / 10 * 6 / (bucket / 32);
    for threads in [0, 2] {
        let options = small_options()
            .background_threads(threads)
            .tuning(
                small_tuning()
                    .memtable_budget_bytes(budget)
                    .bucket_bytes(bucket),
            )
            .log_bytes_max(1 << 20);
        let db = Db::open_on(Disk::simulated(&SimDisk::new()), options).unwrap();
        // Ascending keys leave small buckets behind.
        for number in 0..1_500 {
            db.put(format!("{number:06}"), [7; 1000]).unwrap();
            if number % 100 == 0 {
                let buckets = db.stats().buckets;
                assert!(buckets <= most, "{buckets} buckets after {number} writes");
            }
        }
        db.wait_idle().unwrap();
        let buckets = db.stats().buckets;
        println!("{buckets} buckets of {most}");
        assert!(
            (most / 2..=most).contains(&buckets),
            "{buckets} buckets of {most}"
        );
        assert_eq!(db.iter().count(), 1_500);
    }
}
