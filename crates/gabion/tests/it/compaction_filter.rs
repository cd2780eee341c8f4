//! Compaction filters: what they remove and replace, and who goes on seeing it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gabion::{
    CompactionFilter, Db, Engine, Error, FilterDecision, Keyspace, KeyspaceOptions, Snapshot,
};
use gabion_media::{Disk, SimDisk};

use crate::support::{
    PanicContext, SeededRng, base_seed, bytes_of, mapped, setting, small_mapped, small_options,
};

/// Removes values that begin with a byte below the threshold, and cuts those whose second one is
/// odd to a byte.
#[derive(Clone)]
struct Threshold(Arc<AtomicU64>);

impl CompactionFilter for Threshold {
    fn filter(&self, _key: &[u8], value: &[u8]) -> FilterDecision {
        // ORDER: Relaxed; nothing else depends on it.
        match filtered(value, self.0.load(Ordering::Relaxed)) {
            None => FilterDecision::Remove,
            Some(kept) if kept == value => FilterDecision::Keep,
            Some(kept) => FilterDecision::Replace(kept),
        }
    }
}

fn filtered(value: &[u8], threshold: u64) -> Option<Vec<u8>> {
    match value {
        [first, ..] if u64::from(*first) < threshold => None,
        [first, second, ..] if second % 2 == 1 => Some(vec![*first]),
        _ => Some(value.to_vec()),
    }
}

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

fn pairs(iter: gabion::Iter) -> Twin {
    let pairs = iter.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())));
    pairs.collect::<Result<_, _>>().unwrap()
}

/// What a keyspace may have: each pair as it was written or as the filter leaves it, for any
/// threshold that there was, and no other.
fn assert_may_be(found: &Twin, twin: &Twin, threshold: u64) {
    for (key, value) in twin {
        let own = found.get(key);
        let as_it_was = own == Some(value);
        let may_be = as_it_was || (0..=threshold).any(|past| own == filtered(value, past).as_ref());
        assert!(may_be, "{key:?}: {own:?} of {value:?} at {threshold}");
    }
    let other = found.keys().find(|key| !twin.contains_key(*key));
    assert!(other.is_none(), "{other:?} is back");
}

/// Snapshots see what they saw, at any time; after a full compaction without any, all is filtered.
#[test]
fn snapshots_see_what_they_saw_and_the_rest_is_filtered() {
    for number in 0..setting("GABION_FILTER_CASES", 60) {
        let seed = base_seed() ^ (0xf1_0000 + number);
        let engine = [Engine::Wip, Engine::Flex][(number % 2) as usize];
        let _context = PanicContext(|| format!("{engine}, seed {seed}"));
        let mut random = SeededRng::new(seed);
        let filter = Threshold(Arc::default());
        let options = small_options().engine(engine);
        let db = Db::open_on(Disk::simulated(&SimDisk::new()), options).unwrap();
        let options = KeyspaceOptions::default().compaction_filter(filter.clone());
        let keyspace = db.keyspace_with("filtered", &options).unwrap();
        let mut twin = Twin::new();
        let mut threshold = 0;
        let mut past: Vec<(Snapshot, Twin)> = Vec::new();
        for step in 0..500 {
            let key = format!("key {:03}", random.below(80)).into_bytes();
            match random.below(60) {
                0..40 => {
                    let len = random.index(120);
                    let value = bytes_of(random.word(), len).to_vec();
                    let expires = random.below(4) == 0;
                    match expires {
                        true => {
                            let far = Duration::from_secs(1 << 40);
                            keyspace.put_expiring(&key, &value, far).unwrap();
                        }
                        false => keyspace.put(&key, &value).unwrap(),
                    }
                    twin.insert(key, value);
                }
                40..46 => {
                    keyspace.delete(&key).unwrap();
                    twin.remove(&key);
                }
                46..48 => {
                    let upper = [&key[..], b"~"].concat();
                    keyspace.delete_range(key.clone()..upper.clone()).unwrap();
                    twin.retain(|own, _| *own < key || *own >= upper);
                }
                48 => {
                    threshold += random.below(40);
                    // ORDER: Relaxed; as above.
                    filter.0.store(threshold, Ordering::Relaxed);
                }
                49..51 if past.len() < 3 => {
                    let snapshot = db.snapshot();
                    let seen = pairs(snapshot.iter(&keyspace));
                    assert_may_be(&seen, &twin, threshold);
                    past.push((snapshot, seen));
                }
                51 => {
                    let at = random.index(past.len() + 1);
                    (at < past.len()).then(|| past.swap_remove(at));
                }
                52 => keyspace.compact::<&[u8]>(..).unwrap(),
                53..56 => db.flush().unwrap(),
                56 => db.wait_idle().unwrap(),
                _ => {}
            }
            if step % 25 == 0 {
                assert_may_be(&pairs(keyspace.iter()), &twin, threshold);
                for (snapshot, seen) in &past {
                    assert!(pairs(snapshot.iter(&keyspace)) == *seen);
                }
            }
        }
        past.clear();
        db.flush().unwrap();
        let before = pairs(keyspace.iter());
        keyspace.compact::<&[u8]>(..).unwrap();
        let left = before.into_iter().filter_map(|(key, value)| {
            let value = filtered(&value, threshold)?;
            Some((key, value))
        });
        assert_eq!(pairs(keyspace.iter()), left.collect::<Twin>());
        db.close().unwrap();
    }
}

struct Panics;

impl CompactionFilter for Panics {
    fn filter(&self, _key: &[u8], _value: &[u8]) -> FilterDecision {
        panic!("on purpose")
    }
}

/// Makes each value a byte longer whenever it sees it.
struct Longer;

impl CompactionFilter for Longer {
    fn filter(&self, _key: &[u8], value: &[u8]) -> FilterDecision {
        FilterDecision::Replace([value, b"+"].concat())
    }
}

fn open(engine: Engine) -> Db {
    let options = small_options().engine(engine);
    Db::open_on(Disk::simulated(&SimDisk::new()), options).unwrap()
}

#[test]
fn a_filter_that_panics_keeps_the_value() {
    for engine in [Engine::Wip, Engine::Flex] {
        let db = open(engine);
        let options = KeyspaceOptions::default().compaction_filter(Panics);
        let own: Keyspace = db.keyspace_with("own", &options).unwrap();
        own.put("key", "value").unwrap();
        db.flush().unwrap();
        own.compact::<&[u8]>(..).unwrap();
        assert_eq!(own.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        db.close().unwrap();
    }
}

/// What it makes of them cuts intervals and fills tables, and comes before nobody's eyes again.
#[test]
fn a_full_compaction_asks_about_each_value_once() {
    for engine in [Engine::Wip, Engine::Flex] {
        let db = open(engine);
        let options = KeyspaceOptions::default().compaction_filter(Longer);
        let own: Keyspace = db.keyspace_with("own", &options).unwrap();
        let count = 2_000;
        for number in 0..count {
            own.put(format!("key {number:05}"), "x".repeat(number % 70))
                .unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let mut before = pairs(own.iter());
        for _ in 0..3 {
            own.compact::<&[u8]>(..).unwrap();
            let after = pairs(own.iter());
            assert_eq!(after.len(), count);
            for (key, value) in &after {
                assert_eq!(
                    *value,
                    [&before[key][..], b"+"].concat(),
                    "{engine}: {key:?}"
                );
            }
            before = after;
        }
        db.close().unwrap();
    }
}

/// Notes values that it sees though they have been overwritten.
#[derive(Clone, Default)]
struct SeesOld(Arc<AtomicU64>);

impl CompactionFilter for SeesOld {
    fn filter(&self, _key: &[u8], value: &[u8]) -> FilterDecision {
        // ORDER: Relaxed; nothing else depends on it.
        self.0
            .fetch_add(u64::from(value == b"old"), Ordering::Relaxed);
        FilterDecision::Keep
    }
}

#[test]
fn a_filter_does_not_see_what_a_newer_version_among_the_same_hides() {
    for engine in [Engine::Wip, Engine::Flex] {
        let filter = SeesOld::default();
        let db = open(engine);
        let options = KeyspaceOptions::default().compaction_filter(filter.clone());
        let own = db.keyspace_with("own", &options).unwrap();
        // Each flush makes a run, and two of them are no reason to compact.
        for value in ["old", "new"] {
            for number in 0..20 {
                own.put(format!("key {number}"), value).unwrap();
            }
            db.flush().unwrap();
        }
        own.compact::<&[u8]>(..).unwrap();
        // ORDER: Relaxed; as above.
        assert_eq!(filter.0.load(Ordering::Relaxed), 0, "{engine}");
        assert_eq!(own.iter().count(), 20);
        db.close().unwrap();
    }
}

#[test]
fn engines_without_filters_say_so() {
    let options = KeyspaceOptions::default().compaction_filter(Panics);
    for engine in [Engine::Scmkv, Engine::Sptree] {
        let dir = tempfile::tempdir().unwrap();
        let options_of_store = mapped(small_options(), |_| small_mapped()).engine(engine);
        let db = options_of_store.open(dir.path()).unwrap();
        let refused = db.keyspace_with("own", &options);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
}
