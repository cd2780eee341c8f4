//! bench: every phase runs, says what it did, and does not claim what it did not do.

use serde_json::Value;

use crate::support::{Place, names};

/// The fields that every result has, whatever the target.
const FIELDS: [&str; 30] = [
    "target",
    "workload",
    "phase",
    "records",
    "operations",
    "threads",
    "key_bytes",
    "value_bytes",
    "seed",
    "seconds",
    "ops_per_s",
    "latency_us",
    "cpu_user_s",
    "cpu_sys_s",
    "rss_bytes_max",
    "bytes_user",
    "bytes_written",
    "bytes_written_process",
    "wa_without_log",
    "wa_with_log",
    "space_bytes",
    "stall_s",
    "pm",
    "settings",
    "version",
    "machine",
    "settle_s",
    "wa_process",
    "notes",
    "records_live",
];

const ALL_PHASES: [&str; 23] = [
    "fillseq",
    "fillrandom",
    "overwrite",
    "compact",
    "readrandom",
    "readmissing",
    "readseq",
    "readreverse",
    "seekrandom",
    "scan50",
    "ycsb-load",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-e",
    "ycsb-f",
    "ycsb-f-txn",
    "bank",
    "fillsync",
    "mixed",
    "readwhilewriting",
    "deleterandom",
];

fn bench(place: &Place, phases: &str, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["bench", phases, "--json"];
    all.extend(arguments);
    serde_json::from_str(&place.ok(&all)).unwrap()
}

#[test]
fn every_phase_does_its_operations_and_reports_every_field() {
    let place = Place::new();
    let phases = ALL_PHASES.join(",");
    let arguments = [
        "--num",
        "2000",
        "--reads",
        "500",
        "--threads",
        "2",
        "--writers",
        "2",
    ];
    let results = bench(&place, &phases, &arguments);
    assert_eq!(results.len(), ALL_PHASES.len());
    for (result, phase) in results.iter().zip(ALL_PHASES) {
        for field in FIELDS {
            assert!(
                result.get(field).is_some(),
                "{phase} lacks {field}: {result}"
            );
        }
        assert_eq!(result["phase"], phase);
        assert_eq!(result["target"], "wip");
        let writes = [
            "fillseq",
            "fillrandom",
            "overwrite",
            "ycsb-load",
            "deleterandom",
        ];
        let operations = match phase {
            "fillsync" => 1000,
            "compact" => 1,
            phase if writes.contains(&phase) => 2000,
            _ => 500,
        };
        assert_eq!(result["operations"], operations, "{phase}");
        assert_eq!(result["threads"], 2, "{phase}");
        assert!(result["ops_per_s"].as_f64().unwrap() > 0.0, "{phase}");
        let latency = &result["latency_us"];
        let at = |name: &str| latency[name].as_f64().unwrap();
        assert!(
            at("p50") > 0.0 && at("p50") <= at("p99") && at("p999") <= at("max"),
            "{latency}"
        );
        assert!(result["pm"].is_null());
        if writes.contains(&phase) && phase != "deleterandom" {
            assert_eq!(result["bytes_user"], 2000 * 116, "{phase}");
        }
    }
}

#[test]
fn fills_write_each_record_as_a_key_of_the_size_asked_for() {
    let place = Place::new();
    let arguments = [
        "--num",
        "1000",
        "--key-size",
        "20",
        "--value-size",
        "7",
        "--batch",
        "30",
    ];
    bench(&place, "fillseq", &arguments);
    let scan = place.ok(&["scan", "--hex"]);
    assert_eq!(scan.lines().count(), 1000);
    for line in scan.lines() {
        let (key, value) = line.split_once('\t').unwrap();
        assert_eq!((key.len(), value.len()), (40, 14), "{line}");
    }
    let loaded = Place::new();
    bench(
        &loaded,
        "ycsb-load",
        &["--num", "1000", "--key-size", "20", "--writers", "3"],
    );
    assert_eq!(
        loaded.ok(&["scan", "--keys-only"]),
        place.ok(&["scan", "--keys-only"])
    );
}

#[test]
fn reads_find_what_fills_wrote_and_nothing_else() {
    let place = Place::new();
    let results = bench(
        &place,
        "fillseq,readrandom,readmissing,scan50",
        &["--num", "1000"],
    );
    assert_eq!(results[1]["found"], 1000);
    assert_eq!(results[2]["found"], 0);
    assert!(results[3]["found"].as_u64().unwrap() > 45_000);
}

#[test]
fn inserts_are_new_records() {
    let place = Place::new();
    let results = bench(
        &place,
        "ycsb-load,ycsb-d",
        &["--num", "1000", "--reads", "3000"],
    );
    let inserts = results[1]["latency_us_by_operation"]["insert"]["calls"]
        .as_u64()
        .unwrap();
    assert!(inserts > 0);
    let records = place.ok(&["scan", "--keys-only"]).lines().count() as u64;
    assert_eq!(records, 1000 + inserts);
}

#[test]
fn every_distribution_can_be_asked_for() {
    for distribution in [
        "uniform",
        "zipfian",
        "latest",
        "sequential",
        "zipfian-composite",
    ] {
        let place = Place::new();
        let arguments = ["--num", "1000", "--distribution", distribution];
        let results = bench(&place, "fillrandom,readrandom", &arguments);
        assert_eq!(results[0]["workload"], format!("fillrandom {distribution}"));
        let records = place.ok(&["scan", "--keys-only"]).lines().count();
        match distribution {
            "sequential" => assert_eq!(records, 1000),
            _ => assert!((100..900).contains(&records), "{distribution}: {records}"),
        }
    }
}

#[test]
fn reading_an_empty_store_is_no_result() {
    let place = Place::new();
    for phase in ["readrandom", "readseq", "scan50"] {
        let words = ["no record at all", "run a fill"];
        names(
            &place.fails(1, &["bench", phase, "--num", "100", "--fresh", "--json"]),
            &words,
        );
    }
}

#[test]
fn a_store_is_measured_only_if_that_is_meant() {
    let place = Place::new();
    let table = place.ok(&["bench", "fillseq", "--num", "500"]);
    names(&table, &["phase", "ops/s", "fillseq", "500"]);
    let refused = place.fails(1, &["bench", "fillseq", "--num", "500"]);
    names(&refused, &["--keep", "--fresh"]);
    place.ok(&["bench", "readrandom", "--num", "500", "--keep"]);
    place.ok(&["put", "mine", "x"]);
    place.ok(&["bench", "fillseq", "--num", "500", "--fresh"]);
    place.fails(1, &["get", "mine"]);
}

#[test]
fn the_same_seed_writes_the_same_store() {
    let fill = |seed: &str| {
        let place = Place::new();
        bench(&place, "fillrandom", &["--num", "500", "--seed", seed]);
        place.ok(&["dump"])
    };
    assert_eq!(fill("7"), fill("7"));
    assert_ne!(fill("7"), fill("8"));
}

/// Of a store of FlexDB its root was deleted and its keyspaces were not: it was lost, and no other
/// store could be made in its place.
#[test]
fn a_fresh_store_takes_the_place_of_one_of_any_engine() {
    let place = Place::new();
    let bench = ["bench", "fillseq", "--num", "300", "--fresh", "--engine"];
    let engines = ["wip", "flex", "scmkv", "sptree"];
    for engine in engines.into_iter().chain(["flex", "wip"]) {
        let mut arguments = bench.to_vec();
        arguments.push(engine);
        place.ok(&arguments);
        place.ok(&["check"]);
    }
}

/// The fill ran for as long as it takes, and with `--fresh` after a store had been deleted for it.
#[test]
fn what_a_store_cannot_do_is_refused_before_anything_is_done() {
    let place = Place::new();
    place.ok(&["put", "mine", "x"]);
    let unordered = [
        "bench",
        "fillseq,scan50",
        "--num",
        "100",
        "--engine",
        "scmkv",
    ];
    names(
        &place.fails(2, &[&unordered[..], &["--fresh"]].concat()),
        &["scmkv cannot run scan50", "no order of keys"],
    );
    assert_eq!(place.ok(&["get", "mine"]), "x\n");
}

/// A store keeps its engine, and the figures are that engine's.
#[test]
fn a_store_that_is_kept_is_named_by_its_own_engine() {
    let place = Place::new();
    bench(&place, "fillseq", &["--num", "100", "--engine", "scmkv"]);
    let results = bench(&place, "readrandom", &["--num", "100", "--keep"]);
    assert_eq!(results[0]["target"], "scmkv");
    names(
        &place.fails(2, &["bench", "scan50", "--num", "100", "--keep"]),
        &["scmkv cannot run scan50"],
    );
}
