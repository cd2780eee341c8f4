//! One suite for all adapters: each store must do what a `BTreeMap` does, keep it when it is closed
//! and opened again, and say clearly why it does not open.

use std::collections::BTreeMap;
use std::path::Path;

use gabion_lab::target::{Batch, Session, Steps, Store, StoreOptions, Target};

mod against_map;
mod open;
mod versions;

/// Runs `test` on each adapter; a failure names it.
fn for_each_target(test: impl Fn(&Target, &Path)) {
    for target in gabion_peers::targets() {
        println!("target {}", target.name);
        let dir = tempfile::tempdir().unwrap();
        test(target, dir.path());
    }
}

/// Options for a store of few records, small enough that the stores write tables on the way.
fn options(dir: &Path, existing: bool) -> StoreOptions {
    StoreOptions {
        dir: dir.to_owned(),
        existing,
        cache_bytes: 8 << 20,
        write_buffer_bytes: Some(1 << 20),
        hold_flushes: false,
        background_threads: 2,
        sessions: 2,
        records: 10_000,
        record_bytes: 116,
    }
}

fn create(target: &Target, dir: &Path) -> Box<dyn Store> {
    (target.open)(&options(dir, false)).unwrap()
}

fn reopen(target: &Target, dir: &Path) -> Box<dyn Store> {
    (target.open)(&options(dir, true)).unwrap()
}

/// Closes the store and opens it again, if it has a life after its process.
fn closed_and_reopened(store: Box<dyn Store>, target: &Target, dir: &Path) -> Box<dyn Store> {
    if !target.abilities.persistent {
        return store;
    }
    store.close().unwrap();
    reopen(target, dir)
}

/// What the store must hold.
type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes `batch` to the store and to the map.
fn write(session: &mut dyn Session, map: &mut Map, batch: &Batch) {
    session.write(batch).unwrap();
    for (key, value) in batch.iter() {
        match value {
            Some(value) => drop(map.insert(key.to_vec(), value.to_vec())),
            None => drop(map.remove(key)),
        }
    }
}

/// Checks the store against the map: every key of it and each of `missing`, scans from keys that
/// are there and from keys that are not, and steps over all of it, backwards too if it can.
fn check(target: &Target, session: &mut dyn Session, map: &Map, missing: &[&[u8]]) {
    let can_step_back = target.abilities.backward;
    for key in map.keys() {
        assert!(session.get(key).unwrap(), "{key:?} is lost");
    }
    for key in missing {
        assert!(!map.contains_key(*key));
        assert!(!session.get(key).unwrap(), "{key:?} should be missing");
    }

    let starts = map.keys().step_by(97).map(Vec::as_slice);
    for from in starts.chain(missing.iter().copied()) {
        for entries in [0, 1, 50] {
            let expected = map.range(from.to_vec()..).take(entries).count();
            assert_eq!(session.scan(from, entries).unwrap(), expected, "{from:?}");
        }
    }

    let from: &[u8] = b"\0";
    let left = map.range(from.to_vec()..).count();
    check_steps(session.steps(from).unwrap(), left);
    let starts = map.keys().step_by(397).map(Vec::as_slice);
    for from in starts.chain(missing.iter().copied()).chain([&b"\xff"[..]]) {
        let left = map.range(..=from.to_vec()).count();
        match session.steps_back(from) {
            Ok(steps) => check_steps(steps, left),
            Err(error) => assert!(!can_step_back, "{error}"),
        }
    }
}

/// Steps to the end, before which there are `left` records.
fn check_steps(mut steps: Steps<'_>, mut left: usize) {
    for entries in [1, 0, 7, 100].into_iter().cycle() {
        let expected = left.min(entries);
        assert_eq!(steps(entries).unwrap(), expected);
        left -= expected;
        if expected < entries {
            break;
        }
    }
    assert_eq!(steps(1).unwrap(), 0, "there is nothing after the end");
}
