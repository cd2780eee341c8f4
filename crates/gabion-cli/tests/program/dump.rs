//! dump, and load of what it wrote: any bytes, cuts and kills.

use std::io::Write;

use gabion_lab::workload::Rng;

use crate::support::{Place, names};

#[test]
fn a_dump_is_loaded_back_byte_by_byte() {
    let place = Place::new();
    place.ok(&["put", "00ff0a", "5c09", "--hex"]);
    place.ok(&["put", "", "empty"]);
    place.ok(&["put", "Grüße", "世界"]);
    place.ok(&["dump", "all.dump"]);
    let dump = place.ok(&["dump"]);
    names(
        &dump,
        &[
            "#gabion-dump 1\n",
            "\\x00\\xff\\n\t\\\\\\t\n",
            "\n#gabion-dump end, records: 3, checksum: ",
        ],
    );

    let copy = Place::new();
    let dump_path = place.path("all.dump");
    copy.ok(&["load", dump_path.to_str().unwrap()]);
    assert_eq!(copy.ok(&["dump"]), dump);
    assert_eq!(std::fs::read_to_string(dump_path).unwrap(), dump);
    let piped = Place::new();
    let outcome = piped.feed(&["load", "-", "--format", "dump"], dump.as_bytes());
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert_eq!(piped.ok(&["dump"]), dump);
}

#[test]
fn a_dump_overwrites_no_file() {
    let place = Place::new();
    place.ok(&["put", "k", "v"]);
    let kept = place.file("kept", "precious");
    names(&place.fails(1, &["dump", "kept"]), &["kept", "exists"]);
    assert_eq!(std::fs::read(kept).unwrap(), b"precious");
    let kept = place.file("new.incomplete", "precious");
    let sentence = place.fails(1, &["dump", "new"]);
    names(&sentence, &["new.incomplete is in the way"]);
    assert_eq!(std::fs::read(kept).unwrap(), b"precious");
}

/// The part that a killed dump had written stood under the final name, and the same command was
/// refused because of it.
#[test]
fn a_killed_dump_leaves_nothing_under_the_name_and_is_made_again() {
    let place = Place::new();
    let db = gabion::Db::open(place.db()).unwrap();
    for n in 0..20_000 {
        db.put(format!("{n:05}"), "x".repeat(1000)).unwrap();
    }
    db.close().unwrap();
    let mut child = place.command(&["dump", "all"]).spawn().unwrap();
    let part = place.path("all.incomplete");
    while std::fs::metadata(&part).map_or(0, |part| part.len()) == 0 {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before the kill"
        );
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(part.exists() && !place.path("all").exists());
    // Under another name it would be known for a part.
    std::fs::copy(&part, place.path("part.dump")).unwrap();
    let copy = Place::new();
    let as_whole = copy.fails(1, &["load", place.path("part.dump").to_str().unwrap()]);
    names(&as_whole, &["cut off", "nothing of the dump was loaded"]);
    place.ok(&["dump", "all"]);
    assert!(!part.exists());
    let all = place.path("all");
    copy.ok(&["load", all.to_str().unwrap()]);
    assert_eq!(copy.ok(&["scan"]), place.ok(&["scan"]));
}

/// Keys that began like the last line of a dump made one that could not be loaded, or of which a
/// part was left out with exit status 0.
#[test]
fn keys_that_look_like_marks_are_dumped_and_loaded() {
    for key in [
        "#gabion-dump end, records: 0",
        "#gabion-dump end, records: 7",
        "#gabion-dump 1",
        "#",
        "\\x23",
    ] {
        let place = Place::new();
        place.ok(&["put", key, ""]);
        place.ok(&["put", "zebra", key]);
        place.ok(&["dump", "a.dump"]);
        let copy = Place::new();
        copy.ok(&["load", place.path("a.dump").to_str().unwrap()]);
        assert_eq!(copy.ok(&["scan"]), place.ok(&["scan"]));
        let dump = std::fs::read(place.path("a.dump")).unwrap();
        let piped = Place::new();
        let outcome = piped.feed(&["load", "-", "--format", "dump"], &dump);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert_eq!(piped.ok(&["scan"]), place.ok(&["scan"]));
    }
}

/// Any bytes as keys and values, in keyspaces of any names.
#[test]
fn keyspaces_with_any_bytes_are_dumped_and_loaded() {
    let mut rng = Rng::new(1, 0);
    let mut bytes = |most: u64| -> Vec<u8> {
        let len = rng.below(most);
        let of = |rng: &mut Rng| match rng.below(3) {
            0 => b"#\\\t\n\r\0\x1b"[usize::try_from(rng.below(7)).unwrap()],
            _ => u8::try_from(rng.below(256)).unwrap(),
        };
        (0..len).map(|_| of(&mut rng)).collect()
    };
    let place = Place::new();
    let keyspaces = ["default", "#gabion-dump 1", "a\nb\t\u{1b}[31m", "gabion"];
    let db = gabion::Db::open(place.db()).unwrap();
    for name in keyspaces {
        let keyspace = db.keyspace(name).unwrap();
        for _ in 0..200 {
            keyspace.put(bytes(12), bytes(100)).unwrap();
        }
    }
    db.close().unwrap();
    let (copy, packed, piped) = (Place::new(), Place::new(), Place::new());
    for (at, name) in keyspaces.into_iter().enumerate() {
        let file = format!("{at}.dump");
        place.ok(&["dump", &file, "--keyspace", name]);
        let file = place.path(&file);
        copy.ok(&["load", file.to_str().unwrap(), "--keyspace", name]);
        let dump = std::fs::read(&file).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&dump).unwrap();
        let gzip = gzip.finish().unwrap();
        packed.file("a.dump.gz", &gzip);
        packed.ok(&["load", "a.dump.gz", "--keyspace", name]);
        for bytes in [&dump, &gzip] {
            let load = ["load", "-", "--format", "dump", "--keyspace", name];
            let outcome = piped.feed(&load, bytes);
            assert_eq!(outcome.status, Some(0), "{outcome:?}");
        }
    }
    let one = gabion::Db::open(place.db()).unwrap();
    let others = [copy, packed, piped].map(|other| gabion::Db::open(other.db()).unwrap());
    for name in keyspaces {
        let pairs = |db: &gabion::Db| {
            let pairs = db.existing_keyspace(name).unwrap().iter();
            pairs.collect::<Result<Vec<_>, _>>().unwrap()
        };
        assert!(pairs(&one).len() > 100);
        for other in &others {
            assert_eq!(pairs(&one), pairs(other), "{name:?}");
        }
    }
}
