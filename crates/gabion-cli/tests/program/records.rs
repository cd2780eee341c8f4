//! get, put, del, scan, drop, stats, check, repair.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use crate::support::{Place, bare, names};

#[test]
fn a_put_is_there_for_the_next_command_until_it_is_deleted() {
    let place = Place::new();
    place.ok(&["put", "apple", "red"]);
    assert_eq!(place.ok(&["get", "apple"]), "red\n");
    place.ok(&["put", "apple", "green", "--durability", "sync"]);
    assert_eq!(place.ok(&["get", "apple"]), "green\n");
    place.ok(&["del", "apple"]);
    names(&place.fails(1, &["get", "apple"]), &["no key apple"]);
    place.ok(&["del", "apple"]);
}

#[test]
fn keyspaces_are_apart() {
    let place = Place::new();
    place.ok(&["put", "k", "in default"]);
    place.ok(&["put", "k", "in other", "--keyspace", "other"]);
    assert_eq!(place.ok(&["get", "k"]), "in default\n");
    assert_eq!(place.ok(&["get", "k", "--keyspace", "other"]), "in other\n");
    names(
        &place.fails(1, &["get", "k", "--keyspace", "absent"]),
        &["absent", "other"],
    );
}

#[test]
fn a_keyspace_has_options_of_its_own() {
    let place = Place::new();
    place.ok(&["put", "k", "v", "--keyspace", "plain"]);
    let created = place.ok(&["keyspace", "create", "packed", "--compression", "lz4"]);
    assert_eq!(created, "packed compression=lz4\n");
    let again = ["keyspace", "create", "packed"];
    names(&place.fails(1, &again), &["packed", "keyspace set"]);
    place.ok(&["keyspace", "set", "packed", "--block-bytes", "16384"]);
    let listed = place.ok(&["keyspace", "list"]);
    assert_eq!(
        listed,
        "default\nplain\npacked compression=lz4 block_bytes=16384\n"
    );
    names(
        &place.ok(&["stats"]),
        &["compression=lz4 block_bytes=16384"],
    );
    let json = place.ok(&[
        "keyspace",
        "set",
        "packed",
        "--reset",
        "--filter-bits-per-key",
        "4",
        "--json",
    ]);
    names(
        &json,
        &["\"filter_bits_per_key\": 4", "\"compression\": null"],
    );
    let bad = ["keyspace", "set", "packed", "--block-bytes", "1"];
    names(&place.fails(1, &bad), &["block_bytes"]);
    names(
        &place.fails(1, &["keyspace", "set", "absent"]),
        &["absent", "packed"],
    );
    names(
        &place.fails(1, &["keyspace", "create", "gabion.x"]),
        &["reserved"],
    );

    let other = Place::new();
    other.ok(&["put", "k", "v", "--engine", "flex"]);
    assert_eq!(other.ok(&["keyspace", "create", "plain"]), "plain\n");
    let packed = ["keyspace", "create", "packed", "--compression", "lz4"];
    names(&other.fails(1, &packed), &["flex", "table options"]);
}

#[test]
fn a_keyspace_is_dropped_with_all_its_records() {
    for engine in ["wip", "flex"] {
        let place = Place::new();
        place.ok(&["put", "k", "in default", "--engine", engine]);
        place.ok(&["put", "k", "in scratch", "--keyspace", "scratch"]);
        place.ok(&["put", "k", "in other", "--keyspace", "other"]);
        let told = place.ok(&["drop", "scratch"]);
        names(&told, &["dropped", "default, other"]);
        for again in [
            &["drop", "scratch"][..],
            &["get", "k", "--keyspace", "scratch"],
        ] {
            names(&place.fails(1, again), &["scratch", "default, other"]);
        }
        names(&place.fails(1, &["drop", "default"]), &["default keyspace"]);
        let lines: String = (0..20_000)
            .map(|n| format!("{n},a value of {n}\n"))
            .collect();
        let file = place.file("lines.csv", lines);
        let file = file.to_str().unwrap();
        place.ok(&[
            "load",
            file,
            "--no-header",
            "--keyspace",
            "other",
            "--flush",
        ]);
        let told = place.ok(&["drop", "other", "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        // Where a load keeps how far it has come is no keyspace of users.
        let left = serde_json::json!(["default"]);
        assert_eq!(told["keyspaces"], left);
        let bytes = |when: &str| told[format!("table_bytes_{when}")].as_u64().unwrap();
        assert!(bytes("before") > bytes("after") + 300_000, "{told}");
        place.ok(&["put", "other", "key", "--keyspace", "scratch"]);
        assert_eq!(place.ok(&["scan", "--keyspace", "scratch"]), "other\tkey\n");
        assert_eq!(place.ok(&["get", "k"]), "in default\n");
        place.ok(&["check"]);
    }
    for engine in ["scmkv", "sptree"] {
        let place = Place::new();
        let put = ["put", "k", "v", "--keyspace", "scratch"];
        place.ok(&[&put[..], &["--engine", engine]].concat());
        names(
            &place.fails(1, &["drop", "scratch"]),
            &[engine, "does not support"],
        );
    }
}

/// The file of a mapped store is as large as was said when it was made, and no larger later.
#[test]
fn a_mapped_store_is_made_as_large_as_is_said() {
    for engine in ["scmkv", "sptree"] {
        let place = Place::new();
        let size = || {
            std::fs::metadata(place.db().join("store.pool"))
                .unwrap()
                .len()
        };
        let make = ["--engine", engine, "--pool-bytes"];
        let put = |bytes| [&["put", "k", "v"][..], &make, &[bytes]].concat();
        names(&place.fails(1, &put("1M")), &["pool_bytes", "64 MiB"]);
        place.ok(&put("128M"));
        let made = size();
        assert!((120_000_000..=136_000_000).contains(&made), "{made}");
        place.ok(&put("256M"));
        assert_eq!(size(), made);

        let place = Place::new();
        let size = || {
            std::fs::metadata(place.db().join("store.pool"))
                .unwrap()
                .len()
        };
        let file = place.file("lines.jsonl", "{\"key\":\"a\"}\n");
        let load = ["load", file.to_str().unwrap()];
        place.ok(&[&load[..], &make, &["128M"]].concat());
        assert_eq!(size(), made);
        assert_eq!(place.ok(&["get", "a"]), "{\"key\":\"a\"}\n");
    }
}

/// The commands that a store of an ordered engine takes, on one in a mapped file.
#[test]
fn a_store_of_sptree_is_loaded_looked_at_and_dumped() {
    let place = Place::new();
    let lines: String = (0..300)
        .map(|n| format!("{{\"key\":\"{n:03}\"}}\n"))
        .collect();
    let file = place.file("lines.jsonl", lines);
    place.ok(&["load", file.to_str().unwrap(), "--engine", "sptree"]);
    place.ok(&["put", "300", "last"]);
    assert_eq!(place.ok(&["get", "300"]), "last\n");
    place.ok(&["del", "007"]);
    let scanned = place.ok(&["scan", "--from", "005", "--to", "010"]);
    let keys: Vec<_> = scanned.lines().map(|line| &line[..3]).collect();
    assert_eq!(keys, ["005", "006", "008", "009"]);
    let back = place.ok(&["scan", "--reverse", "--limit", "1"]);
    assert!(back.starts_with("300\tlast"), "{back}");
    let stats = place.ok(&["stats"]);
    names(&stats, &["store.pool", "leaves", "memory"]);
    let stats: serde_json::Value = serde_json::from_str(&place.ok(&["stats", "--json"])).unwrap();
    assert!(stats["mapped"]["leaves"].as_u64().unwrap() > 4, "{stats}");
    place.ok(&["check"]);
    place.ok(&["compact"]);
    let dump = place.path("all.dump");
    place.ok(&["dump", dump.to_str().unwrap()]);
    let other = Place::new();
    other.ok(&["load", dump.to_str().unwrap()]);
    assert_eq!(other.ok(&["scan"]), place.ok(&["scan"]));
}

/// The load would have gone on where it had stopped, in a keyspace without what came before.
#[test]
fn a_load_that_stopped_begins_anew_in_a_keyspace_that_was_dropped() {
    let place = Place::new();
    let good: String = (0..9).map(|n| format!("{{\"key\":\"{n}\"}}\n")).collect();
    let file = place.file("lines.jsonl", good + "no record\n");
    let file = file.to_str().unwrap();
    for scratch in ["scratch", "other"] {
        let load = ["load", file, "--keyspace", scratch, "--batch", "2"];
        place.fails(1, &load);
        let loaded = place.ok(&["scan", "--keyspace", scratch]);
        assert!(loaded.lines().count() >= 8, "{loaded}");
        place.ok(&["drop", scratch]);
        place.fails(1, &load);
        assert_eq!(place.ok(&["scan", "--keyspace", scratch]), loaded);
    }
}

#[test]
fn bytes_that_are_no_text_are_escaped_or_hexadecimal() {
    let place = Place::new();
    place.ok(&["put", "00ff", "0a5c41", "--hex"]);
    assert_eq!(place.ok(&["scan"]), "\\x00\\xff\t\\n\\\\A\n");
    assert_eq!(place.ok(&["scan", "--hex"]), "00ff\t0a5c41\n");
    assert_eq!(place.ok(&["get", "00FF", "--hex"]), "0a5c41\n");
    let raw = place.command(&["put", "wort", "a\nb"]).output().unwrap();
    assert!(raw.status.success());
    assert_eq!(place.ok(&["get", "wort"]), "a\\nb\n");
    assert_eq!(place.ok(&["get", "wort", "--raw"]), "a\nb");
}

#[test]
fn empty_keys_and_values_are_legal() {
    let place = Place::new();
    place.ok(&["put", "", ""]);
    assert_eq!(place.ok(&["get", ""]), "\n");
    assert_eq!(place.ok(&["scan"]), "\t\n");
}

#[test]
fn scan_takes_ranges_prefixes_directions_and_limits() {
    let place = Place::new();
    for key in ["a", "ab", "b", "ba", "c"] {
        place.ok(&["put", key, &key.to_uppercase()]);
    }
    let keys = |arguments: &[&str]| {
        let mut all = vec!["scan", "--keys-only"];
        all.extend(arguments);
        place.ok(&all).lines().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&[]), "a ab b ba c");
    assert_eq!(keys(&["--from", "ab", "--to", "c"]), "ab b ba");
    assert_eq!(keys(&["--prefix", "b"]), "b ba");
    assert_eq!(keys(&["--prefix", "b", "--from", "b0"]), "ba");
    assert_eq!(keys(&["--reverse", "--limit", "2"]), "c ba");
    assert_eq!(keys(&["--from", "c", "--to", "a"]), "");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(place.ok(&["scan", "--prefix", "c"]), "c\tC\n");
}

/// A terminal took what stood in a name of a keyspace for commands.
#[test]
fn names_are_shown_and_not_obeyed() {
    let place = Place::new();
    let name = "a\u{1b}[31m\u{9b}2Jb";
    place.ok(&["put", "k", "v", "--keyspace", name]);
    place.file("f\u{1b}[31m.csv", "k,v\n1\n");
    let told = [
        place.ok(&["stats"]),
        place.ok(&["stats", "--json"]),
        place.fails(1, &["get", "k", "--keyspace", "absent"]),
        place.fails(1, &["get", "k", "--keyspace", "absent\u{1b}[31m"]),
        place.fails(1, &["get", "k\u{1b}[31m"]),
        place.fails(1, &["load", "f\u{1b}[31m.csv"]),
        place.fails(1, &["load", "none\u{1b}[31m"]),
        place.fails(1, &["dump", "none\u{1b}/x"]),
        place.ok(&["drop", name]),
    ];
    for text in told {
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{text:?}");
    }
    place.ok(&["put", "k", "v", "--keyspace", name]);
    let stats: serde_json::Value = serde_json::from_str(&place.ok(&["stats", "--json"])).unwrap();
    assert!(stats.to_string().contains("\u{9b}2Jb"), "{stats}");
}

/// Keys of users stood in the keyspace in which loads note down how far they came.
#[test]
fn the_notes_of_loads_are_in_no_keyspace_of_users() {
    let place = Place::new();
    place.file("a.csv", "k,v\n1,x\n2\n");
    for arguments in [
        &["put", "k", "v", "--keyspace", "gabion.load"][..],
        &["load", "a.csv", "--keyspace", "gabion.load"],
        &["scan", "--keyspace", "gabion.x"],
    ] {
        place.ok(&["put", "k", "v"]);
        names(&place.fails(1, arguments), &["gabion.", "reserved"]);
    }
    place.fails(1, &["load", "a.csv"]);
    let absent = place.fails(1, &["get", "k", "--keyspace", "absent"]);
    names(&absent, &["choose from: default"]);
    assert!(!absent.contains("gabion.load"), "{absent}");
}

#[test]
fn stats_and_check_print_figures_as_text_and_json() {
    let place = Place::new();
    place.ok(&["put", "k", "v"]);
    let text = place.ok(&["stats"]);
    names(
        &text,
        &["files on disk", "durability", "nothing is in tables yet"],
    );
    let stats: serde_json::Value = serde_json::from_str(&place.ok(&["stats", "--json"])).unwrap();
    assert!(stats["space_bytes"].as_u64().unwrap() > 0, "{stats}");
    names(&place.ok(&["check"]), &["checked"]);
    let check: serde_json::Value = serde_json::from_str(&place.ok(&["check", "--json"])).unwrap();
    assert_eq!(check["problems"].as_array().unwrap().len(), 0);
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let place = Place::new();
    let lines: String = (0..50_000)
        .map(|i| format!("{i:08},value of {i}\n"))
        .collect();
    place.file("many.csv", lines);
    place.ok(&["load", "many.csv", "--no-header"]);
    let mut child = place
        .command(&["scan"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::with_capacity(64, child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "00000000\tvalue of 0\n");
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(stderr, "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_version_is_printed() {
    let version = format!("gabion {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(bare(&["version"]).stdout, version);
    assert_eq!(bare(&["--version"]).stdout, version);
}

#[test]
fn a_checkpoint_is_a_store_and_takes_no_place_that_is_taken() {
    let place = Place::new();
    place.ok(&["put", "a", "before"]);
    let said = place.ok(&["checkpoint", "copy"]);
    names(&said, &["checkpoint of", " in copy: ", " files with "]);
    place.ok(&["put", "a", "after"]);
    let copy = place.path("copy");
    let copied = bare(&["get", "a", "--db", copy.to_str().unwrap()]);
    assert_eq!(copied.stdout, "before\n");
    assert_eq!(place.ok(&["get", "a"]), "after\n");
    let sentence = place.fails(1, &["checkpoint", "copy"]);
    names(&sentence, &["copy", "already exists"]);
    names(
        &place.ok(&["checkpoint", "other", "--json"]),
        &["\"files\":"],
    );
}

#[test]
fn a_repair_saves_what_a_damaged_table_does_not_hold() {
    let place = Place::new();
    place.ok(&["put", "a", "one"]);
    place.ok(&["compact"]);
    place.ok(&["put", "b", "two"]);
    let table = std::fs::read_dir(place.db())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|suffix| suffix == "tbl"))
        .unwrap();
    let mut file = OpenOptions::new().write(true).open(&table).unwrap();
    file.write_all(b"damage").unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();
    let said = place.run(&["repair", "new", "--json"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    names(&said.stdout, &[name, "\"entries\": 0"]);
    let lost = &serde_json::from_str::<serde_json::Value>(&said.stdout).unwrap()["lost"][0];
    assert_eq!(
        (&lost["keyspace"], &lost["entries"]),
        (&"default".into(), &1.into())
    );
    let new = place.path("new");
    let found = bare(&["scan", "--db", new.to_str().unwrap()]);
    assert_eq!(found.stdout, "b\ttwo\n");
    names(&place.fails(1, &["repair", "new"]), &["already exists"]);
    let said = place.run(&["repair", "other"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    names(
        &said.stdout,
        &[
            name,
            "offset 0",
            "lost: 1 entry of the keyspace default\n",
            "0 entries and 1 operation of the log; 1 part is lost",
        ],
    );
    names(&said.stderr, &["not all of the store", "other"]);
}

/// One wrong byte of a FlexDB store took all of its records; the program ended with 0, told neither
/// keys nor counts, and left lock files in the damaged store.
#[test]
fn a_repair_of_flexdb_tells_which_keys_are_lost_and_fails() {
    let place = Place::new();
    let lines: String = (0..3000)
        .map(|n| format!("{n:05},a value of {n}\n"))
        .collect();
    let file = place.file("lines.csv", lines);
    let load = ["load", file.to_str().unwrap(), "--no-header", "--flush"];
    place.ok(&[&load[..], &["--engine", "flex"]].concat());
    place.ok(&["put", "last", "in the log"]);
    std::fs::remove_file(place.db().join("LOCK")).unwrap();
    names(
        &place.ok(&["repair", "same"]),
        &["3,001 entries", "nothing is lost"],
    );

    let data = place.db().join("00000000-DATA");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[20_000] ^= 0x55;
    File::create(&data).unwrap().write_all(&bytes).unwrap();
    let names_before = names_in(&place.db());
    let said = place.run(&["repair", "new", "--json"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    let said: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let [lost] = &said["lost"].as_array().unwrap()[..] else {
        panic!("{said}")
    };
    let number = |key: &str| lost[key].as_str().unwrap().parse::<u64>().unwrap();
    let count = number("below") - number("above") - 1;
    assert_eq!(lost["entries"], count);
    assert!(count > 10 && count < 300, "{said}");

    let said = place.run(&["repair", "other"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    let keys = format!("between the keys {} and {}", lost["above"], lost["below"]);
    names(
        &said.stdout,
        &["of the keyspace default", &keys, "1 part is lost"],
    );
    let new = place.path("new");
    let found = bare(&["scan", "--db", new.to_str().unwrap()]);
    assert_eq!(found.stdout.lines().count() as u64, 3001 - count);
    names(&place.fails(1, &["check"]), &["damaged"]);
    assert_eq!(names_in(&place.db()), names_before);
}

fn names_in(dir: &std::path::Path) -> Vec<std::ffi::OsString> {
    let files = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    names.sort();
    names
}

/// A repair may lose records that were loaded. What the store noted down about the load would keep
/// the same command from loading them again.
#[test]
fn a_load_into_a_repaired_store_begins_anew() {
    let place = Place::new();
    let good: String = (0..50)
        .map(|n| format!("{{\"key\":\"{n:02}\"}}\n"))
        .collect();
    place.file("a.jsonl", format!("{good}no record\n"));
    place.fails(1, &["load", "a.jsonl"]);
    place.ok(&["compact"]);
    for entry in std::fs::read_dir(place.db()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|suffix| suffix == "tbl") {
            let mut file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all(b"damage").unwrap();
        }
    }
    place.run(&["repair", "new"]);
    let new = place.path("new");
    let on_new = |arguments: &[&str]| {
        let path = place.path("a.jsonl");
        let all = [arguments, &["--db", new.to_str().unwrap()]].concat();
        let all: Vec<_> = all
            .iter()
            .map(|word| word.replace("FILE", path.to_str().unwrap()))
            .collect();
        bare(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(on_new(&["scan"]).stdout, "");
    place.file("a.jsonl", &good);
    let outcome = on_new(&["load", "FILE"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert_eq!(on_new(&["scan"]).stdout.lines().count(), 50);
}

#[test]
fn compact_takes_what_was_deleted_and_leaves_the_rest() {
    let place = Place::new();
    for key in ["a", "b", "c"] {
        place.ok(&["put", key, "value"]);
    }
    place.ok(&["del", "b"]);
    let said = place.ok(&["compact"]);
    names(&said, &["compacted: 0 tables", "became 1 table with"]);
    assert_eq!(place.ok(&["scan"]), "a\tvalue\nc\tvalue\n");
    names(&place.ok(&["check"]), &["checked: 1 table with 2 entries"]);
    place.ok(&["del", "a"]);
    place.ok(&["del", "c"]);
    let said = place.ok(&["compact", "--from", "a", "--json"]);
    names(&said, &["\"tables_after\": 0"]);
    assert_eq!(place.ok(&["scan"]), "");
}
