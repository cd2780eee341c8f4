//! A pool that is full to its last bytes: deletes go, one by one, in batches and of ranges, and
//! what they free is there again.

use std::ops::Bound;

use gabion::{Db, Engine, WriteBatch};

use crate::mapped::{directory, on_each_engine, options_of};
use crate::support::{PanicContext, Place, SeededRng, base_seed, bytes_of, mapped};

/// Puts values of ever smaller sizes until not even the smallest one finds space, and returns the
/// bytes that were put.
fn fill(db: &Db, random: &mut SeededRng) -> u64 {
    let mut bytes = 0;
    for (round, size) in [60_000, 5_000, 300, 10].into_iter().enumerate() {
        for number in 0.. {
            let len = size - random.index(size / 4);
            match db.put(format!("{round} {number}"), bytes_of(number, len)) {
                Ok(()) => bytes += len as u64,
                Err(error) => {
                    assert!(error.is_no_space(), "{error}");
                    break;
                }
            }
        }
    }
    bytes
}

/// A store whose pool is full to the last bytes is emptied key by key, and has its room back: also
/// what operations had begun to write that found no space.
#[test]
fn a_full_store_is_emptied_and_filled_again() {
    on_each_engine(empty_and_fill);
}

fn empty_and_fill(engine: Engine) {
    for threads in [0, 1] {
        let _context = PanicContext(|| format!("{threads} threads, seed {}", base_seed()));
        let mut random = SeededRng::new(base_seed() ^ 0x0f11);
        let place = Place::of(engine);
        let options = || {
            mapped(options_of(engine), |own| own.pool_bytes(64 << 20)).background_threads(threads)
        };
        let db = options().open(directory(&place)).unwrap();
        let keyspace = db.default_keyspace();
        let content = || -> Vec<_> {
            let pairs = keyspace.pairs().map(|pair| pair.unwrap());
            let mut pairs: Vec<_> = pairs
                .map(|(key, value)| (key.to_vec(), value.len()))
                .collect();
            pairs.sort_unstable();
            pairs
        };
        let first = fill(&db, &mut random);
        let before = content();
        for _ in 0..20 {
            let mut batch = WriteBatch::new();
            for number in 0..40 {
                let value = bytes_of(number, 30_000);
                batch
                    .put(keyspace, format!("batch {number}"), value)
                    .unwrap();
            }
            assert!(db.write(batch).is_err_and(|error| error.is_no_space()));
            let put = db.put("new", bytes_of(1, 100_000));
            assert!(put.is_err_and(|error| error.is_no_space()));
        }
        assert!(
            content() == before,
            "what found no space has changed nothing"
        );
        let mut keys = before;
        while !keys.is_empty() {
            let (key, _) = keys.swap_remove(random.index(keys.len()));
            db.delete(key).expect("a delete needs no space");
        }
        assert_eq!(content().len(), 0);
        let again = fill(&db, &mut random);
        assert!(again * 10 > first * 9, "{again} bytes, and {first} before");
        let before = content();
        db.close().unwrap();
        let report = gabion::check(directory(&place)).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        let db = options().open(directory(&place)).unwrap();
        assert_eq!(db.default_keyspace().pairs().count(), before.len());
    }
}

/// A delete of a range and a batch of deletes were refused by a full store, for want of space for
/// the copy that keeps them whole.
#[test]
fn a_full_store_takes_batches_of_deletes_and_deletes_of_ranges() {
    on_each_engine(delete_together);
}

fn delete_together(engine: Engine) {
    for threads in [0, 1] {
        let _context = PanicContext(|| format!("{threads} threads, seed {}", base_seed()));
        let mut random = SeededRng::new(base_seed() ^ 0xde1e);
        let place = Place::of(engine);
        let options = mapped(options_of(engine), |own| own.pool_bytes(64 << 20));
        let options = options.background_threads(threads);
        let db = options.open(directory(&place)).unwrap();
        let keyspace = db.default_keyspace();
        let is_ordered = engine.capabilities().ordered;
        let keys = || -> Vec<Vec<u8>> {
            let pairs = keyspace.pairs().map(|pair| pair.unwrap());
            let mut keys: Vec<_> = pairs.map(|(key, _)| key.to_vec()).collect();
            keys.sort_unstable();
            keys
        };
        let delete_all = |keys: &[Vec<u8>]| {
            let mut batch = WriteBatch::new();
            for key in keys {
                batch.delete(keyspace, key).unwrap();
            }
            db.write(batch)
        };
        let first = fill(&db, &mut random);
        let before = keys();
        // Nothing becomes free by these, so that each finds what the one before has left.
        for round in 0..60 {
            let long = random.index(20_000);
            let absent = |number: usize| vec![u8::try_from(number).unwrap(); 100 + long];
            delete_all(&(0..40).map(absent).collect::<Vec<_>>()).expect("deletes find space");
            if is_ordered {
                let range = keyspace.delete_range(absent(41)..absent(42));
                range.expect("a range finds space");
            }
            if round % 20 == 0 {
                // More than is kept back for a copy, and no part of it.
                let told = delete_all(&[&before[..], &vec![vec![7; 60_000]; 20]].concat()[..]);
                assert!(told.is_err_and(|error| error.is_no_space()));
                let mut batch = WriteBatch::new();
                batch.delete(keyspace, &before[0]).unwrap();
                batch.put(keyspace, "new", vec![1; 200_000]).unwrap();
                assert!(db.write(batch).is_err_and(|error| error.is_no_space()));
                assert!(keys() == before, "what found no space has changed nothing");
            }
        }
        assert!(keys() == before, "what was not there");
        let mut left = before;
        while let Some(last) = left.last().cloned() {
            let from = left.len().saturating_sub(1 + random.index(400));
            let gone = left.split_off(from);
            if is_ordered && random.one_in(2) {
                let range = (Bound::Included(gone[0].clone()), Bound::Included(last));
                keyspace.delete_range(range).expect("a range finds space");
            } else {
                delete_all(&gone).expect("deletes find space");
            }
        }
        assert_eq!(keys().len(), 0);
        let again = fill(&db, &mut random);
        assert!(again * 10 > first * 9, "{again} bytes, and {first} before");
        db.close().unwrap();
        let report = gabion::check(directory(&place)).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
    }
}
