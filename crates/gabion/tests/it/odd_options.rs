//! Numbers of options at their ends: each value is refused with a sentence, or the store works.
//! A number that overflows, asks for all memory or starts threads without end is neither.

use std::time::Duration;

use gabion::{Durability, Engine, Error, Options, Result};

use crate::support::{PanicContext, Place, mapped, small_mapped, small_options, tuned};

/// An option of which a number is the value.
type Setter = fn(Options, u64) -> Options;

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// As a fraction; the largest is infinite.
fn fraction(number: u64) -> f64 {
    match number {
        u64::MAX => f64::MAX,
        number => f64::from(narrow(number)),
    }
}

/// All options that are numbers, or have one in them.
const NUMBERS: [(&str, Setter); 20] = [
    ("garbage_age_max", |own, n| {
        own.garbage_age_max(Duration::from_secs(n))
    }),
    ("garbage_age_max", |own, n| {
        own.garbage_age_max(Duration::from_nanos(n))
    }),
    ("space_amplification_max", |own, n| {
        own.space_amplification_max(fraction(n))
    }),
    ("pool_bytes", |own, n| mapped(own, |own| own.pool_bytes(n))),
    ("expected_records", |own, n| {
        mapped(own, |own| own.expected_records(n))
    }),
    ("memtable_budget_bytes", |own, n| {
        tuned(own, |own| own.memtable_budget_bytes(n))
    }),
    ("scans_until_ordered", |own, n| {
        tuned(own, |own| own.scans_until_ordered(narrow(n)))
    }),
    ("cache_bytes", |own, n| tuned(own, |own| own.cache_bytes(n))),
    ("memory_bytes_max", Options::memory_bytes_max),
    ("log_bytes_max", Options::log_bytes_max),
    ("bucket_bytes", |own, n| {
        tuned(own, |own| own.bucket_bytes(n))
    }),
    ("block_bytes", |own, n| {
        tuned(own, |own| own.block_bytes(size(n)))
    }),
    ("filter_bits_per_key", |own, n| {
        tuned(own, |own| own.filter_bits_per_key(narrow(n)))
    }),
    ("background_threads", |own, n| {
        own.background_threads(size(n))
    }),
    ("background_bytes_per_second_max", |own, n| {
        tuned(own, |own| own.background_bytes_per_second_max(n))
    }),
    ("split_ways", |own, n| {
        tuned(own, |own| own.split_ways(size(n)))
    }),
    ("sublevels_min", |own, n| {
        tuned(own, |own| own.sublevels_min(size(n)))
    }),
    ("sublevels_max", |own, n| {
        tuned(own, |own| own.sublevels_max(size(n)))
    }),
    ("read_weight", |own, n| {
        tuned(own, |own| own.read_weight(narrow(n)))
    }),
    ("durability", |own, n| {
        own.durability(Durability::Interval(Duration::from_nanos(n)))
    }),
];

fn key(number: u32) -> String {
    format!("{number:08}")
}

/// Writes, reads, flushes, compacts and opens again.
fn use_store(options: &Options) -> Result<()> {
    let place = Place::of(options.engine);
    for round in 0..2_u8 {
        let db = gabion::Db::open_on(place.disk(), options.clone())?;
        for number in 0..300_u32 {
            db.put(key(number), [round; 50])?;
        }
        if db.engine().capabilities().ingest {
            let pairs = (0..300_u32).map(|number| (key(number), [round; 60]));
            db.default_keyspace().ingest(pairs)?;
        }
        db.flush()?;
        db.compact::<&[u8]>(..)?;
        assert!(db.get(key(7))?.is_some_and(|value| value[0] == round));
        assert_eq!(db.default_keyspace().pairs().count(), 300);
        assert!(db.stats().writes >= 300);
        db.close()?;
    }
    Ok(())
}

#[test]
fn each_number_is_refused_with_a_sentence_or_works() {
    for engine in Engine::ALL {
        let mut refused = 0;
        for (name, set) in NUMBERS {
            for number in [0, 1, 2, 1 << 32, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
                let _context = PanicContext(|| format!("{engine}, {name} {number}"));
                // A limit of a byte per second is kept, and whoever waits for a flush waits.
                let is_a_crawl = name == "background_bytes_per_second_max" && number < 1 << 20;
                let threads = if is_a_crawl { 0 } else { 2 };
                let options = small_options()
                    .engine(*engine)
                    .background_threads(threads)
                    .mapped(small_mapped().checkpoints(true));
                let result = use_store(&set(options, number));
                match result {
                    Ok(()) => {}
                    Err(Error::InvalidOption { option, why }) => {
                        // Two that must fit each other name one of them.
                        let is_named = option == name || name.starts_with("sublevels");
                        let other = name == "memtable_budget_bytes" && option == "memory_bytes_max";
                        assert!(is_named || other, "{option}: {why}");
                        assert!(why.len() > 20 && !why.ends_with('.'), "{why}");
                        refused += 1;
                    }
                    // A pool that is larger than any disk, or smaller than what is planned.
                    Err(error) if error.is_no_space() || is_too_large(&error) => {
                        assert!(
                            ["pool_bytes", "expected_records"].contains(&name),
                            "{error}"
                        );
                    }
                    Err(error) => panic!("{engine}, {name} {number}: {error}"),
                }
            }
        }
        assert!(refused > 30, "{engine}: {refused}");
    }
}

/// What the system says of a file that is larger than it can be.
fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::Media(_))
}
