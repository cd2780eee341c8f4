//! load: forms of files, what becomes key and value, and going on after a kill.

use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, names, size_of_files};

fn scan_after(form: &str, file: &str, bytes: &[u8], arguments: &[&str]) -> String {
    let place = Place::new();
    place.file(file, bytes);
    let mut all = vec!["load", file];
    all.extend(arguments);
    place.ok(&all);
    let scan = place.ok(&["scan"]);
    assert!(!scan.is_empty(), "{form}");
    scan
}

#[test]
fn csv_with_a_header_becomes_objects_of_the_other_columns() {
    let csv = b"name,population,note\n\
        Bern,134794,\"capital, \"\"Bundesstadt\"\"\"\n\
        Basel,177595,\n";
    assert_eq!(
        scan_after("first column", "a.csv", csv, &[]),
        "Basel\t{\"population\":\"177595\",\"note\":\"\"}\n\
         Bern\t{\"population\":\"134794\",\"note\":\"capital, \\\\\"Bundesstadt\\\\\"\"}\n"
    );
    for key in ["population", "2"] {
        let scan = scan_after("other column", "a.csv", csv, &["--key", key]);
        assert!(
            scan.starts_with("134794\t{\"name\":\"Bern\",\"note\":"),
            "{scan}"
        );
    }
    assert_eq!(
        scan_after("one value", "a.csv", csv, &["--value", "population"]),
        "Basel\t177595\nBern\t134794\n"
    );
}

#[test]
fn csv_without_a_header_keeps_the_rest_of_the_line() {
    let csv = b"a,1,\"x,y\"\nb,2,z\n";
    assert_eq!(
        scan_after("rest", "a.csv", csv, &["--no-header"]),
        "a\t1,\"x,y\"\nb\t2,z\n"
    );
    assert_eq!(
        scan_after("rest", "a.csv", csv, &["--no-header", "--key", "2"]),
        "1\ta,\"x,y\"\n2\tb,z\n"
    );
    let semicolons = b"0041;LATIN CAPITAL LETTER A;Lu\n0042;LATIN CAPITAL LETTER B;Lu\n";
    assert_eq!(
        scan_after(
            "txt",
            "a.txt",
            semicolons,
            &["--delimiter", ";", "--no-header"]
        ),
        "0041\tLATIN CAPITAL LETTER A;Lu\n0042\tLATIN CAPITAL LETTER B;Lu\n"
    );
}

#[test]
fn columns_may_have_windows_line_ends_and_a_byte_order_mark() {
    let csv = b"\xef\xbb\xbfid,x\r\n1,a\r\n2,b";
    assert_eq!(
        scan_after("crlf", "a.csv", csv, &["--key", "id", "--value", "x"]),
        "1\ta\n2\tb\n"
    );
}

#[test]
fn tsv_has_no_quotes() {
    let tsv = b"id\ttext\n1\t\"quoted\n2\tplain\"\n";
    assert_eq!(
        scan_after("tsv", "a.tsv", tsv, &["--value", "text"]),
        "1\t\"quoted\n2\tplain\"\n"
    );
    let guessed = scan_after("no ending", "table", tsv, &["--value", "text"]);
    assert_eq!(guessed, "1\t\"quoted\n2\tplain\"\n");
}

#[test]
fn json_lines_are_kept_as_they_stand() {
    let json = b"{\"key\": \"b\", \"n\": 1.50}\n\n{\"n\": 2, \"key\": \"a\"}";
    assert_eq!(
        scan_after("field key", "a.jsonl", json, &[]),
        "a\t{\"n\": 2, \"key\": \"a\"}\nb\t{\"key\": \"b\", \"n\": 1.50}\n"
    );
    assert_eq!(
        scan_after("fields", "a.jsonl", json, &["--key", "n", "--value", "key"]),
        "1.50\tb\n2\ta\n"
    );
}

#[test]
fn the_summary_has_the_figures_as_text_and_json() {
    let place = Place::new();
    place.file("a.csv", "k,v\na,1\nb,2\n");
    let summary = place.ok(&["load", "a.csv", "--durability", "interval:250"]);
    names(
        &summary,
        &[
            "records ",
            "2\n",
            "records/s",
            "read from the file",
            "12 B",
            "write amplification",
        ],
    );
    names(&summary, &["interval:250"]);
    let json = place.ok(&["load", "a.csv", "--json", "--flush"]);
    let figures: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(figures["records"], 2);
    assert_eq!(figures["bytes_in"], 12);
    assert_eq!(figures["records_loaded_earlier"], 0);
    assert!(figures["wa_with_log"].as_f64().unwrap() > 0.0);
    assert!(figures["bytes_written"]["total"].as_u64().unwrap() > 0);
}

#[test]
fn an_empty_file_is_loaded_as_nothing() {
    let place = Place::new();
    place.file("a.csv", "");
    names(&place.ok(&["load", "a.csv"]), &["records"]);
    assert_eq!(place.ok(&["scan"]), "");
}

#[test]
fn the_file_may_come_through_a_pipe() {
    let place = Place::new();
    let outcome = place.feed(&["load", "-", "--format", "csv"], b"k,v\na,1\n");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert_eq!(place.ok(&["get", "a"]), "{\"v\":\"1\"}\n");
    let outcome = place.feed(&["load", "-"], b"k,v\na,1\n");
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    names(&outcome.stderr, &["--format"]);
}

/// A pipe has no length, and what marks its end for the parser was counted with it.
#[test]
fn the_bytes_of_a_pipe_are_its_own() {
    for (bytes, records) in [(&b""[..], 0), (b"k,v\na,1\n", 1), (b"k,v\na,1", 1)] {
        let place = Place::new();
        let outcome = place.feed(&["load", "-", "--format", "csv", "--json"], bytes);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let figures: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(figures["bytes_in"], bytes.len());
        assert_eq!(figures["records"], records);
    }
}

#[test]
fn packed_files_and_utf_16_are_read_as_they_are() {
    let csv = "k,v\nä,1\nb,2\n";
    let expected = "b\t{\"v\":\"2\"}\nä\t{\"v\":\"1\"}\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, csv.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::bulk::compress(csv.as_bytes(), 3).unwrap();
    let units = std::iter::once(0xfeff).chain(csv.encode_utf16());
    let utf16: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
    for (file, bytes) in [
        ("a.csv", csv.as_bytes()),
        ("a.csv.gz", &gzip),
        ("b.csv", &gzip),
        ("a.csv.zst", &zstd),
        ("c.csv", &utf16),
    ] {
        assert_eq!(scan_after(file, file, bytes, &[]), expected, "{file}");
        let place = Place::new();
        let outcome = place.feed(&["load", "-", "--format", "csv"], bytes);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert_eq!(place.ok(&["scan"]), expected, "{file}");
    }
    // Who has keys that begin so says that they are keys.
    let raw = b"\xff\xfea,1\nb,2\n";
    let loaded = scan_after("raw", "a.csv", raw, &["--raw", "--no-header"]);
    assert_eq!(loaded, "b\t2\n\\xff\\xfea\t1\n");
}

/// The load "went on" in a keyspace that a program had dropped since, so that the first part of the
/// file was missing, with exit status 0.
#[test]
fn a_load_begins_anew_in_a_keyspace_that_a_program_dropped() {
    for engine in ["wip", "flex"] {
        let place = Place::new();
        let good: String = (0..100).map(|n| format!("{{\"key\":{n}}}\n")).collect();
        place.file("a.jsonl", format!("{good}no record\n"));
        let load = ["load", "a.jsonl", "--keyspace", "K", "--engine", engine];
        let count = || place.ok(&["scan", "--keyspace", "K"]).lines().count();
        for is_made_again in [false, true] {
            names(&place.fails(1, &load), &["100 records before it are"]);
            assert_eq!(count(), 100);
            let db = gabion::Db::open(place.db()).unwrap();
            db.drop_keyspace("K").unwrap();
            if is_made_again {
                db.keyspace("K").unwrap();
            }
            db.close().unwrap();
        }
        names(&place.fails(1, &load), &["100 records before it are"]);
        place.file("a.jsonl", format!("{good}{{\"key\":\"last\"}}\n"));
        let outcome = place.run(&load);
        names(&outcome.stderr, &["continuing", "after 100 records"]);
        assert_eq!(count(), 101);
    }
}

/// The load is killed by signal 9 in the middle; the same command then loads exactly the rest.
#[test]
fn a_killed_load_goes_on_where_it_stopped() {
    const RECORDS: u64 = 200_000;
    for (file, line_end) in [("a.csv", "\n"), ("b.csv", "\r\n")] {
        let place = Place::new();
        let mut csv = format!("id,text{line_end}");
        for record in 0..RECORDS {
            // Every tenth record has a line end inside quotes.
            let text = if record % 10 == 0 {
                "\"two\nlines\""
            } else {
                "one line of some length"
            };
            csv.push_str(&format!("{record:09},{text} {record}{line_end}"));
        }
        place.file(file, csv);
        let arguments = ["load", file, "--json", "--batch", "20"];
        let mut child = place.command(&arguments).spawn().unwrap();
        while size_of_files(&place.db()) < 8 << 20 {
            assert!(
                child.try_wait().unwrap().is_none(),
                "the load ended before it was killed"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let outcome = place.run(&arguments);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        names(&outcome.stderr, &["continuing where an earlier load", file]);
        let figures: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let earlier = figures["records_loaded_earlier"].as_u64().unwrap();
        assert!(earlier > 0 && earlier < RECORDS, "{earlier}");
        assert_eq!(figures["records"].as_u64().unwrap() + earlier, RECORDS);
        for record in [0, earlier - 1, earlier, RECORDS - 1] {
            let value = place.ok(&["get", &format!("{record:09}")]);
            assert!(value.contains(&format!(" {record}\"")), "{value}");
        }

        // Once done, nothing is left to go on with: the same command loads all again.
        let outcome = place.run(&arguments);
        let figures: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(figures["records"].as_u64().unwrap(), RECORDS);
        assert_eq!(outcome.stderr, "");
    }
}
