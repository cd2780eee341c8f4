//! lab: targets are compared under one plan, trials are apart, and what was done is kept.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Outcome, Place, bare, names};

fn run(place: &Place, arguments: &[&str]) -> Outcome {
    let dir = place.path("trials");
    let mut all = vec!["lab", "run", "--dir", dir.to_str().unwrap()];
    all.extend(arguments);
    bare(&all)
}

/// Runs the lab, which must say one sentence and end with `status`.
fn refused(place: &Place, status: i32, arguments: &[&str]) -> String {
    let outcome = run(place, arguments);
    assert_eq!(outcome.status, Some(status), "{arguments:?}: {outcome:?}");
    assert!(outcome.stderr.starts_with("gabion: "), "{outcome:?}");
    assert_eq!(outcome.stderr.trim_end().lines().count(), 1, "{outcome:?}");
    outcome.stderr
}

fn results(place: &Place, name: &str) -> Vec<Value> {
    serde_json::from_reader(std::fs::File::open(place.path(name)).unwrap()).unwrap()
}

#[test]
fn targets_take_turns_and_every_report_is_written() {
    let place = Place::new();
    let path = |name| place.path(name).to_str().unwrap().to_owned();
    let outcome = run(
        &place,
        &[
            "--target",
            "wip,btreemap,empty",
            "--workload",
            "ycsb-load,ycsb-a,scan50",
            "--num",
            "2000",
            "--reads",
            "300",
            "--repeat",
            "2",
            "--json",
            &path("r.json"),
            "--csv",
            &path("r.csv"),
            "--html",
            &path("r.html"),
        ],
    );
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(
        &outcome.stdout,
        &[
            "operations/s",
            "wip",
            "btreemap",
            "ycsb-a zipfian",
            "±",
            "x1.00",
        ],
    );
    let results = results(&place, "r.json");
    let order: Vec<_> = results
        .iter()
        .map(|r| {
            (
                r["repetition"].as_u64().unwrap(),
                r["target"].as_str().unwrap(),
            )
        })
        .collect();
    let mut expected = Vec::new();
    for repetition in 0..2 {
        let mut turn = ["wip", "btreemap", "empty"];
        if repetition == 1 {
            turn.reverse();
        }
        for target in turn {
            expected.extend([(repetition, target); 3]);
        }
    }
    assert_eq!(order, expected);
    let lines = std::fs::read_to_string(place.path("r.partial.jsonl")).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, results);
    assert!(
        std::fs::read_to_string(place.path("r.html"))
            .unwrap()
            .contains("btreemap")
    );
    assert_eq!(
        std::fs::read_to_string(place.path("r.csv"))
            .unwrap()
            .lines()
            .count(),
        19
    );
    assert_eq!(place.path("trials").read_dir().unwrap().count(), 0);
}

/// All phases of all targets are done in turns, and each is in many of them.
#[test]
fn targets_of_a_repetition_may_run_side_by_side() {
    let place = Place::new();
    let json = place.path("r.json");
    let json = json.to_str().unwrap();
    let arguments = [
        "--target",
        "empty,wip,empty",
        "--workload",
        "ycsb-load,readrandom,readseq",
        "--num",
        "20000",
        "--reads",
        "3M",
        "--turns=1",
        "--json",
        json,
    ];
    let outcome = run(&place, &arguments);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(&outcome.stdout, &["empty#2", "x1.00", "readseq"]);
    let results = results(&place, "r.json");
    let order: Vec<_> = results
        .iter()
        .map(|r| (r["target"].as_str().unwrap(), r["phase"].as_str().unwrap()))
        .collect();
    let phases = ["ycsb-load", "readrandom", "readseq"];
    let wanted: Vec<_> = ["empty", "wip", "empty#2"]
        .iter()
        .flat_map(|target| phases.map(|phase| (*target, phase)))
        .collect();
    assert_eq!(order, wanted);
    for result in &results {
        let operations = if result["phase"] == "ycsb-load" {
            20_000
        } else {
            3_000_000
        };
        assert_eq!(result["operations"], operations, "{result}");
        assert!(result["bytes_written_drive"].is_null());
        let turns = result["settings"]["turns"].as_u64().unwrap();
        assert!(turns > 1 || result["phase"] != "readrandom", "{result}");
    }
    let refused = refused(
        &place,
        2,
        &["--target", "wip", "--workload", "fillseq", "--turns"],
    );
    names(&refused, &["second target"]);
}

#[test]
fn a_restart_finds_what_the_killed_process_wrote() {
    let place = Place::new();
    let json = place.path("r.json");
    let json = json.to_str().unwrap();
    for (num, more) in [
        // The log has several segments, which a store that rests would give up.
        ("1200000", &["--target", "wip", "--hold-flushes"][..]),
        ("20000", &["--target", "wip,wip", "--turns"]),
    ] {
        let phases = "fillrandom,restart,readrandom,restart";
        let work = ["--workload", phases, "--num", num, "--json", json];
        let arguments = [&work[..], more].concat();
        let outcome = run(&place, &arguments);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let results = results(&place, "r.json");
        let (filled, restarted) = (&results[0], &results[1]);
        assert_eq!(restarted["phase"], "restart");
        assert_eq!(restarted["found"], filled["records_live"]);
        assert_eq!(
            restarted["restart_log_bytes"],
            filled["bytes_written"]["log"]
        );
        assert!(restarted["restart_log_bytes"].as_u64().unwrap() > 10_000 * 116);
        assert_eq!(results[2]["phase"], "readrandom");
        assert_eq!(results[3]["found"], filled["records_live"]);
        if more.contains(&"--hold-flushes") {
            assert_eq!(filled["bytes_written"]["flush"], 0, "nothing was flushed");
        }
    }
}

#[test]
fn a_target_is_compared_to_itself_under_a_label() {
    let place = Place::new();
    let arguments = ["--target", "empty,empty", "--workload", "fillseq"];
    let outcome = run(
        &place,
        &[&arguments[..], &["--num", "1000", "--repeat", "2"]].concat(),
    );
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(&outcome.stdout, &["empty  ", "empty#2", "x1.00"]);
}

#[test]
fn sizes_have_names() {
    let place = Place::new();
    let json = place.path("r.json");
    let json = json.to_str().unwrap();
    let arguments = [
        "--target",
        "btreemap",
        "--workload",
        "fillseq",
        "--num",
        "100",
    ];
    let outcome = run(
        &place,
        &[&arguments[..], &["--size", "zippydb", "--json", json]].concat(),
    );
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let results = results(&place, "r.json");
    assert_eq!(
        (&results[0]["key_bytes"], &results[0]["value_bytes"]),
        (&48.into(), &43.into())
    );
    assert_eq!(results[0]["bytes_user"], 100 * 91);
    assert!(results[0]["bytes_written"].is_null());
}

/// Both fills are stopped, at different numbers of records.
#[test]
fn stores_that_hold_unequal_records_are_told_apart() {
    let place = Place::new();
    let arguments = [
        "--target",
        "empty,btreemap",
        "--workload",
        "fillrandom",
        "--num",
        "200M",
        "--fill-seconds-max",
        "1",
    ];
    let outcome = run(&place, &arguments);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(
        &outcome.stdout,
        &["records held, where not equally many", "fillrandom uniform"],
    );
    names(&outcome.stderr, &["ended by its time limit of 1 s"]);
}

#[test]
fn requests_that_cannot_be_meant_are_refused() {
    let place = Place::new();
    let refuse = |status, target, workload, more: &[&str], words: &[&str]| {
        let arguments = [&["--target", target, "--workload", workload], more].concat();
        names(&refused(&place, status, &arguments), words);
    };
    refuse(
        2,
        "wipp",
        "fillseq",
        &[],
        &["there is no target wipp", "wip, flex, wip-counters"],
    );
    refuse(
        2,
        "wip",
        "fill",
        &[],
        &["there is no workload fill;", "lab list"],
    );
    let twice = "wip#a,wip#a";
    refuse(2, twice, "fillseq", &[], &["wip#a is named twice"]);
    refuse(2, "wip#", "fillseq", &[], &["an empty label"]);
    refuse(
        2,
        "wip",
        "fillseq",
        &["--key-size", "5"],
        &["5 bytes", "at least 8"],
    );
    refuse(
        2,
        "wip,btreemap",
        "fillsync",
        &[],
        &["btreemap cannot run fillsync"],
    );
    refuse(2, "wip", "fillseq", &["--repeat", "0"], &["one repetition"]);
    refuse(
        1,
        "wip",
        "fillseq",
        &["--num", "1000000G", "--value-size", "1000"],
        &["the run needs about", "free", "--dir"],
    );
    let gone = place.path("gone/r.json");
    let gone = gone.to_str().unwrap();
    refuse(
        1,
        "wip",
        "fillseq",
        &["--json", gone],
        &["cannot make", "r.json"],
    );
}

#[test]
fn a_peer_is_a_target_or_named_with_the_remedy() {
    let place = Place::new();
    let list: Value = serde_json::from_str(&bare(&["lab", "list", "--json"]).stdout).unwrap();
    let names = |list: &Value| -> Vec<String> {
        let name = |entry: &Value| {
            entry
                .get("name")
                .unwrap_or(entry)
                .as_str()
                .unwrap()
                .to_owned()
        };
        list.as_array().unwrap().iter().map(name).collect()
    };
    let (targets, absent) = (names(&list["targets"]), names(&list["peers_not_built"]));
    for peer in [
        "rocksdb", "leveldb", "lmdb", "redb", "fjall", "sled", "sqlite",
    ] {
        let is_absent = absent.iter().any(|name| name == peer);
        assert_ne!(is_absent, targets.iter().any(|name| name == peer), "{peer}");
        if !is_absent {
            continue;
        }
        let sentence = refused(&place, 1, &["--target", peer, "--workload", "fillseq"]);
        assert_eq!(
            sentence.trim_end(),
            format!(
                "gabion: this program was built without the peer {peer}; build it with `cargo \
                 build --profile measure --features {}`",
                gabion_lab::targets::peer_feature(peer)
            )
        );
    }
}

#[test]
fn a_trial_that_fails_ends_neither_the_run_nor_what_was_done() {
    let place = Place::new();
    let json = place.path("r.json");
    let json = json.to_str().unwrap();
    // Nothing was filled, so no read can find anything; `empty` says that it has every key.
    let arguments = [
        "--target",
        "btreemap,empty",
        "--workload",
        "readrandom",
        "--num",
        "100",
    ];
    let outcome = run(&place, &[&arguments[..], &["--json", json]].concat());
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    names(
        &outcome.stderr,
        &[
            "btreemap, repetition 1, ended early in readrandom",
            "no record at all",
            "r.partial.jsonl",
        ],
    );
    let results = results(&place, "r.json");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["target"], "empty");
}

#[test]
fn an_interrupted_run_reports_what_it_has() {
    let place = Place::new();
    let json = place.path("r.json");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_gabion"))
        .args([
            "lab",
            "run",
            "--target",
            "empty",
            "--workload",
            "fillseq,readrandom",
        ])
        .args([
            "--num", "10", "--reads", "1000", "--rate", "100", "--repeat", "1000",
        ])
        .arg("--dir")
        .arg(place.path("trials"))
        .arg("--json")
        .arg(&json)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One phase takes no time, the other ten seconds: the first result comes long before the end.
    let lines = place.path("r.partial.jsonl");
    while std::fs::metadata(&lines).map_or(0, |metadata| metadata.len()) == 0 {
        assert_eq!(child.try_wait().unwrap(), None, "the run ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupted.success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    names(
        &stderr,
        &[
            "gabion: the run was interrupted; the results of",
            "r.partial.jsonl",
        ],
    );
    assert!(!results(&place, "r.json").is_empty());
    assert_eq!(place.path("trials").read_dir().unwrap().count(), 0);
}

#[test]
fn a_figure_shows_the_paper_s_numbers_beside_ours() {
    let place = Place::new();
    let dir = place.path("trials");
    let dir = dir.to_str().unwrap();
    let figure = |name, scale| bare(&["lab", "figure", name, "--scale", scale, "--dir", dir]);
    let outcome = figure("2.6", "0.000001");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let words = [
        "ours/paper",
        "800000",
        "write amplification without log",
        "RocksDB",
    ];
    names(&outcome.stdout, &words);
    let outcome = figure("2.9", "0.001");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let words = [
        "restart, s",
        "log at the restart",
        "restart uniform, 12000 records",
    ];
    names(&outcome.stdout, &words);
    let outcome = figure("2.3", "0.0001");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(
        &outcome.stdout,
        &["wip-ordered", "overwrite uniform, 10000 records"],
    );
    let outcome = figure("2.7", "0.00001");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(
        &outcome.stdout,
        &["parts that begin in", "wip after 100 % of regions"],
    );
    let outcome = figure("3.9", "0.0001");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    names(&outcome.stdout, &["paper, at 0.8", "(c) garbage collected"]);
    let outcome = bare(&["lab", "figure", "3.9", "--target", "wip"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    names(&outcome.stderr, &["figure 3.9 measures one structure"]);
    let outcome = bare(&["lab", "figure", "2.6"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    names(&outcome.stderr, &["name one with --dir"]);
    for (name, scale, words) in [
        ("7", "0.1", "there is no figure 7"),
        ("2.6", "2", "the scale 2"),
    ] {
        let outcome = figure(name, scale);
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        names(&outcome.stderr, &[words]);
    }
}

#[test]
fn the_list_names_targets_workloads_and_sizes() {
    let text = bare(&["lab", "list"]).stdout;
    names(
        &text,
        &[
            "wip", "empty", "btreemap", "ycsb-f", "recipe-a", "regions", "zippydb", "48+43",
        ],
    );
    let json: Value = serde_json::from_str(&bare(&["lab", "list", "--json"]).stdout).unwrap();
    assert_eq!(json["targets"][0]["name"], "wip");
    assert_eq!(json["targets"][0]["abilities"]["ordered"], true);
}

/// Runs a comparison of equals, small enough for a test.
fn equals(place: &Place, arguments: &[&str]) -> Outcome {
    let dir = place.path("trials");
    let mut all = vec!["lab", "equals", "--dir", dir.to_str().unwrap()];
    all.extend(["--num", "3000", "--reads", "500", "--rest-seconds", "0"]);
    all.extend(arguments);
    bare(&all)
}

#[test]
fn equals_hold_the_same_records_and_are_read_twice() {
    let place = Place::new();
    let (page, json) = (place.path("equals.md"), place.path("r.json"));
    let outcome = equals(
        &place,
        &[
            "--target",
            "wip,btreemap",
            "--page",
            page.to_str().unwrap(),
            "--json",
            json.to_str().unwrap(),
        ],
    );
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(outcome.stdout, page);
    names(
        &page,
        &[
            "the same 3,000 puts",
            "gabion lab equals --target wip,btreemap --num 3000",
            "| wip | Gabion's WipDB engine",
            "| all in memory | 100 % | – |",
            "| scan50, at once | ",
            "| scan50, after the rest | ",
            "| records counted at the end | ",
        ],
    );
    let results = results(&place, "r.json");
    assert_eq!(results.len(), 2 * 18);
    let of = |phase: &str, field: &str| -> Vec<u64> {
        let of_phase = results.iter().filter(|result| result["phase"] == phase);
        of_phase
            .map(|result| result[field].as_u64().unwrap())
            .collect()
    };
    assert_eq!(of("fillrandom", "operations"), [3000, 3000]);
    let held = of("fillrandom", "records_live");
    assert_eq!(held[0], held[1]);
    assert!(page.contains(&format!(
        "All stores then hold the same {},",
        held[0] / 1000
    )));
    assert_eq!(of("count", "found"), of("count", "records_live"));
    assert_eq!(of("readrandom", "operations").len(), 4);
}

#[test]
fn a_comparison_of_equals_rests_and_has_no_turns() {
    let place = Place::new();
    for flag in ["--turns", "--hold-flushes"] {
        let outcome = equals(&place, &["--target", "wip,flex", flag]);
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        names(&outcome.stderr, &["no --turns", "rest"]);
    }
    let outcome = equals(&place, &["--target", "wip,scmkv"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    names(&outcome.stderr, &["scmkv cannot run scan50", "order"]);
}

/// A trial is held to its limit, or the reason why it cannot be is told in a sentence.
#[test]
fn the_memory_of_a_trial_can_be_limited() {
    let place = Place::on_a_drive();
    let json = place.path("r.json");
    let arguments = [
        "--target",
        "wip",
        "--workload",
        "fillrandom,readrandom",
        "--num",
        "20000",
        "--cache-mb",
        "16",
        "--memory-limit",
        "64MiB",
        "--json",
        json.to_str().unwrap(),
    ];
    let outcome = run(&place, &arguments);
    if outcome.status != Some(0) {
        names(&outcome.stderr, &["cannot be limited here", "as root"]);
        println!("NOT TESTED: {}", outcome.stderr);
        return;
    }
    for result in results(&place, "r.json") {
        assert_eq!(result["memory_bytes"], 64 << 20, "{result}");
    }
    // All of it is in memory, in a process that may not have so much.
    let mut too_much = arguments;
    too_much[1] = "btreemap";
    too_much[5] = "1M";
    let outcome = run(&place, &too_much);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    names(
        &outcome.stderr,
        &["btreemap", "in fillrandom", "more than 64.0 MiB of memory"],
    );
    let mut small = arguments;
    small[9] = "1MiB";
    names(
        &refused(&place, 2, &small),
        &["at least 32.0 MiB of memory"],
    );
    let mut cached = arguments;
    cached[7] = "64";
    names(&refused(&place, 2, &cached), &["a cache of 64.0 MiB"]);
    let mut word = arguments;
    word[9] = "much";
    let outcome = run(&place, &word);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    names(&outcome.stderr, &["such as 512MiB"]);
}
