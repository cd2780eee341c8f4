//! Bad input: a sentence that names the cause and the remedy, status 1 or 2, nothing lost.

use std::fs::File;
use std::process::Stdio;

use crate::support::{Place, bare, names, outcome};

#[test]
fn wrong_command_lines_are_usage_errors() {
    let place = Place::new();
    place.file("a.csv", "k,v\na,1\n");
    for arguments in [
        &["get", "k", "--unknown"][..],
        &["get"],
        &["frobnicate"],
        &["put", "k", "v", "--durability", "maybe"],
        &["put", "xyz", "00", "--hex"],
        &["load", "a.csv", "--format", "xml"],
        &["load", "a.csv", "--batch", "0"],
        &["load", "a.csv", "--delimiter", "ab"],
        &["load", "a.csv", "--format", "dump", "--key", "k"],
        &["bench", "fillwrong"],
        &["bench", "fillseq", "--num", "0"],
        &["bench", "fillseq", "--key-size", "4"],
        &["bench", "fillseq", "--engine", "none"],
        &["bench", "fillseq", "--keep", "--fresh"],
        &["bench", "fillseq", "--batch", "0"],
        &["bench", "fillseq", "--write-rate", "0"],
        &["bench", "fillseq", "--key-size", "70000"],
        &["bench", "fillseq", "--value-size", "4294967296"],
        &["bench", "restart"],
        &["bench", "fillseq,scan50", "--engine", "scmkv"],
    ] {
        let outcome = place.run(arguments);
        assert_eq!(outcome.status, Some(2), "{arguments:?}: {outcome:?}");
        assert_ne!(outcome.stderr, "", "{arguments:?}");
        assert_eq!(outcome.stdout, "", "{arguments:?}");
    }
    assert_eq!(bare(&["get", "k"]).status, Some(2), "without --db");
    assert_eq!(bare(&[]).status, Some(2));
    names(
        &place.run(&["get", "k", "--unknown"]).stderr,
        &["--unknown"],
    );
}

#[test]
fn commands_that_read_make_no_store() {
    let place = Place::new();
    for arguments in [
        &["get", "k"][..],
        &["del", "k"],
        &["scan"],
        &["dump"],
        &["stats"],
        &["check"],
        &["bench", "readrandom", "--keep"],
    ] {
        names(&place.fails(1, arguments), &["no store", "gabion load"]);
        assert!(!place.db().exists(), "{arguments:?}");
    }
    std::fs::create_dir(place.db()).unwrap();
    for arguments in [&["get", "k"][..], &["scan"], &["check"]] {
        names(&place.fails(1, arguments), &["not a Gabion store"]);
        assert_eq!(place.db().read_dir().unwrap().count(), 0, "{arguments:?}");
    }
}

#[test]
fn a_directory_of_other_things_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.db()).unwrap();
    let letter = place.file("db/letter.txt", "dear");
    place.file("a.csv", "k,v\na,1\n");
    for arguments in [
        &["put", "k", "v"][..],
        &["load", "a.csv"],
        &["bench", "fillseq", "--num", "10"],
        &["bench", "fillseq", "--num", "10", "--fresh"],
    ] {
        names(&place.fails(1, arguments), &["not a Gabion store"]);
    }
    assert_eq!(std::fs::read(letter).unwrap(), b"dear");
    let file = Place::new();
    file.file("db", "a file");
    names(&file.fails(1, &["get", "k"]), &["is a file"]);
}

#[test]
fn a_store_in_use_is_refused_to_who_writes_and_unharmed() {
    let place = Place::new();
    let db = gabion::Db::open(place.db()).unwrap();
    db.put("k", "v").unwrap();
    assert_eq!(place.ok(&["get", "k"]), "v\n");
    let message = place.fails(1, &["put", "k", "w"]);
    names(&message, &["by process", &std::process::id().to_string()]);
    place.fails(1, &["bench", "fillseq", "--num", "10", "--fresh"]);
    db.close().unwrap();
    assert_eq!(place.ok(&["get", "k"]), "v\n");
}

#[test]
fn a_line_that_is_cut_off_names_file_and_line_and_loses_nothing() {
    let place = Place::new();
    for (file, bytes, line, words) in [
        ("cut.csv", "k,a,b\n1,x,y\n2,x", "line 3", "cut off"),
        ("cut2.csv", "k,a,b\r\n1,x,y\r\n2,x", "line 3", "cut off"),
        (
            "wide.csv",
            "k,a,b\n1,x,y\n2,x,y,z\n3,x,y\n",
            "line 3",
            "4 columns where the first",
        ),
        (
            "wide2.csv",
            "k,a,b\r\n1,x,y\r\n2,x,y,z\r\n3,x,y\r\n",
            "line 3",
            "4 columns",
        ),
        (
            "blank.csv",
            "k,a,b\n1,x,y\n\n\n2,x\n3,x,y\n",
            "line 5",
            "2 columns",
        ),
        (
            "quote.csv",
            "k,a,b\n1,x,y\n2,\"x,y\n3,x,y\n",
            "line 3",
            "not closed",
        ),
        (
            "quote2.csv",
            "k,a,b\r\n1,x,y\r\n2,\"x,y\r\n3,x,y\r\n",
            "line 3",
            "not closed",
        ),
        ("cut.tsv", "k\ta\tb\n1\tx\ty\n2\tx\n", "line 3", "cut off"),
        (
            "cut.jsonl",
            "{\"k\": 1}\n{\"k\": 2, \"a\n",
            "line 2",
            "cut off",
        ),
        (
            "no.jsonl",
            "{\"k\": 1}\n\n[2]\n",
            "line 3",
            "not a JSON object",
        ),
    ] {
        place.file(file, bytes);
        let keyspace = ["--keyspace", file];
        let load = ["load", file, keyspace[0], keyspace[1]];
        names(
            &place.fails(1, &load),
            &[file, line, words, "1 record before it is in the store"],
        );
        let scan = place.ok(&["scan", "--keys-only", keyspace[0], keyspace[1]]);
        assert_eq!(scan, "1\n", "{file}");
    }
    place.file("latin1.csv", b"k,a\n1,x\n2,\xe9\n");
    names(
        &place.fails(1, &["load", "latin1.csv"]),
        &["latin1.csv, line 3", "UTF-8", "iconv"],
    );
}

/// What stands before the wrong place of a dump would be loaded, and what is wrong there as well if
/// only the end tells of it.
#[test]
fn a_dump_that_is_not_whole_is_refused_before_anything_of_it_is_loaded() {
    let place = Place::new();
    place.ok(&["put", "1", "x"]);
    place.ok(&["put", "2", "y"]);
    let dump = place.ok(&["dump"]);
    let end = dump.lines().last().unwrap();
    for (bytes, line, words, loaded) in [
        ("", "line 1", "it is empty", 0),
        ("1\tx\n", "line 1", "not a dump", 0),
        ("#gabion-dump 2\n1\tx\n", "line 1", "does not read", 0),
        (&dump.replace("\tx", "\tz"), "line 4", "damaged", 2),
        (&dump.replace("2\ty\n", ""), "line 3", "damaged", 1),
        (&dump.replace("2\ty", "2"), "line 3", "no tab", 1),
        (&dump.replace("2\ty", "2\t\\q"), "line 3", "\\q", 1),
        (&dump.replace(end, ""), "line 4", "no tab", 2),
        (
            &dump.replace(&format!("{end}\n"), ""),
            "line 4",
            "cut off",
            2,
        ),
        ("#gabion-dump 1\n1\tx\n2\ty", "line 3", "cut off", 1),
        (&dump[..dump.len() - 2], "line 4", "cut off", 2),
        (&format!("{dump}3\tz\n"), "line 5", "more lines", 2),
    ] {
        place.file("a.dump", bytes);
        let load = ["load", "a.dump", "--keyspace", "new"];
        names(&place.fails(1, &load), &["a.dump", line, words]);
        names(
            &place.fails(1, &["scan", "--keyspace", "new"]),
            &["no keyspace"],
        );
        let piped = Place::new();
        let load = ["load", "-", "--format", "dump"];
        let outcome = piped.feed(&load, bytes.as_bytes());
        assert_eq!(outcome.status, Some(1), "{outcome:?}");
        names(&outcome.stderr, &[line, words]);
        if piped.db().exists() {
            names(&outcome.stderr, &["in the store, and may be wrong"]);
            assert_eq!(piped.ok(&["scan"]).lines().count(), loaded, "{bytes:?}");
        }
    }
}

#[test]
fn a_packed_file_that_is_cut_off_loses_nothing_before_the_cut() {
    let place = Place::new();
    let lines: String = (0..100_000)
        .map(|n| format!("{n:06},text of {n}\n"))
        .collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, lines.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    place.file("a.csv.gz", &packed[..packed.len() / 2]);
    let load = ["load", "a.csv.gz", "--no-header"];
    let told = place.fails(1, &load);
    names(
        &told,
        &["a.csv.gz, line ", "cut off", "before it are in the store"],
    );
    let found = place.ok(&["scan", "--keys-only"]).lines().count();
    assert!((1000..100_000).contains(&found), "{found}");
    place.file("a.csv.gz", &packed);
    let outcome = place.run(&load);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(&outcome.stderr, &["continuing where an earlier load"]);
    assert_eq!(place.ok(&["scan", "--keys-only"]).lines().count(), 100_000);
    // Zeros that the name promises more of.
    place.file("b.csv.gz", "k,v\n1,2\n");
    names(
        &place.fails(1, &["load", "b.csv.gz"]),
        &["named like gzip", "--raw"],
    );
    place.file("c.csv", b"PK\x03\x04....");
    names(&place.fails(1, &["load", "c.csv"]), &["zip", "unzip -p"]);
}

#[test]
fn a_value_over_the_limit_of_the_engine_names_its_line() {
    let place = Place::new();
    let long = "x".repeat((16 << 20) + 1);
    place.file("a.csv", format!("k,v\na,1\n\nb,{long}\nc,3\n"));
    let load = ["load", "a.csv", "--value", "v", "--engine", "sptree"];
    let told = place.fails(1, &load);
    let words = ["a.csv, line 4", "limit", "1 record before it is"];
    names(&told, &words);
    assert_eq!(place.ok(&["scan", "--keys-only"]), "a\n");
}

#[test]
fn a_mended_file_is_loaded_by_the_same_command() {
    let place = Place::new();
    place.file("a.csv", "k,v\n1,x\n2\n");
    place.fails(1, &["load", "a.csv"]);
    place.file("a.csv", "k,v\n1,x\n2,y\n");
    let outcome = place.run(&["load", "a.csv"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(&outcome.stderr, &["after 1 record and"]);
    assert_eq!(place.ok(&["scan", "--keys-only"]), "1\n2\n");
    // What comes before the place is another text, of the same length: all of it is loaded.
    place.file("b.csv", "k,v\n1,x\n2\n");
    place.fails(1, &["load", "b.csv"]);
    place.file("b.csv", "k,v\n7,x\n2,y\n");
    let outcome = place.run(&["load", "b.csv"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(
        &outcome.stderr,
        &["b.csv has changed", "all of it is loaded"],
    );
    assert_eq!(place.ok(&["scan", "--keys-only"]), "1\n2\n7\n");
}

#[test]
fn a_header_that_is_none_is_noticed() {
    let place = Place::new();
    place.file("a.txt", "0041;A;Lu;;;\n0042;B;Lu;;;\n");
    names(
        &place.fails(1, &["load", "a.txt", "--delimiter", ";"]),
        &["line 1", "--no-header"],
    );
    place.file("b.csv", "x,x\n1,2\n");
    names(
        &place.fails(1, &["load", "b.csv"]),
        &["named \"x\"", "--no-header"],
    );
    assert!(
        !place.db().exists(),
        "a load that cannot begin makes no store"
    );
}

#[test]
fn columns_that_do_not_exist_are_refused_before_a_store_is_made() {
    let place = Place::new();
    place.file("a.csv", "id,name\n1,x\n");
    for key in ["nam", "3", "0"] {
        names(
            &place.fails(1, &["load", "a.csv", "--key", key]),
            &["--key", "id, name"],
        );
    }
    names(&place.fails(1, &["load", "absent.csv"]), &["absent.csv"]);
    names(&place.fails(1, &["load", "."]), &["is a directory"]);
    assert!(!place.db().exists());
}

#[test]
fn a_key_over_the_limit_names_its_line() {
    let place = Place::new();
    let long = "x".repeat(65_536);
    names(
        &place.fails(1, &["put", &long, "v"]),
        &["key has 65536 bytes", "limit is 65535"],
    );
    place.file("a.csv", format!("k,v\na,1\n{long},2\nb,3\n"));
    let message = place.fails(1, &["load", "a.csv"]);
    names(
        &message,
        &[
            "a.csv, line 3",
            "65536 bytes",
            "limit is 65535",
            "1 record before it is",
        ],
    );
    assert_eq!(place.ok(&["scan", "--keys-only"]), "a\n");
    let longest = &long[1..];
    place.ok(&["put", longest, "v"]);
    assert_eq!(place.ok(&["get", longest]), "v\n");
}

#[test]
fn a_full_disk_behind_the_output_is_an_error() {
    let place = Place::new();
    place.ok(&["put", "k", "v"]);
    for arguments in [&["get", "k"][..], &["scan"], &["dump"], &["stats"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let outcome = outcome(
            place
                .command(arguments)
                .stdout(Stdio::from(full))
                .stderr(Stdio::piped()),
        );
        assert_eq!(outcome.status, Some(1), "{arguments:?}: {outcome:?}");
        names(
            &outcome.stderr,
            &["gabion: cannot write to standard output", "space"],
        );
    }
}

/// Nobody hears the sentence; the program ends as it does else.
#[test]
fn a_reader_of_errors_that_went_away_is_not_missed() {
    let place = Place::new();
    for (arguments, status) in [(&["get", "k"][..], 1), (&["put", "x", "0", "--hex"], 2)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = place.command(arguments).stderr(writer).status().unwrap();
        assert_eq!(ended.code(), Some(status), "{arguments:?}");
    }
}

/// It was told how many records are in the store, with those of the batch that was refused, and to
/// mend the file.
#[test]
fn a_store_without_room_is_not_the_file_s_fault() {
    let place = Place::new();
    let long = "x".repeat(900_000);
    let lines: String = (0..80)
        .map(|n| format!("{{\"key\":\"{n:02}\",\"v\":\"{long}\"}}\n"))
        .collect();
    place.file("a.jsonl", lines);
    // Each record is more than the rest of a batch has room for.
    let load = [
        "load",
        "a.jsonl",
        "--engine",
        "scmkv",
        "--pool-bytes",
        "68M",
    ];
    let message = place.fails(1, &load);
    assert!(!message.contains("in the store"), "{message}");
    assert!(!message.contains("fix the file"), "{message}");
    let records = place.ok(&["dump"]).lines().count() - 2;
    assert!((10..80).contains(&records), "{records}");
}
