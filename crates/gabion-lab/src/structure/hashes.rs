//! TurboHash beside the other hash tables: latency, throughput and volumes of each operation, and
//! the mixes of YCSB.
//!
//! The paper's tables are those of their authors, with pairs of 8 + 8 bytes in the slots or of
//! 15 + 15 bytes apart from them. Ours stand for them: all with pairs of 8 + 8 bytes, and those
//! that take strings as keys with 15 + 8. Level hashing, which the paper leaves out, is there too.
//! Latencies and volumes are the model's, behind a cache that is as much smaller than the paper's
//! as the tables are; locks and what else lies in DRAM cost nothing there, and one thread works
//! where the paper has up to 40.
//!
//! Source: X. Zhao, dissertation, sections 3.4.2 to 3.4.4.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Instant;

use gabion_index::index::Makers;
use gabion_index::registry::{self, Registered};
use gabion_index::{Index, IndexPlan, Item, Result};
use gabion_media::pmem::model::Model;
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::medium::{counted, dissertation_model};
use super::{Shown, key_of};
use crate::rows::{Table, column};
use crate::scale::Scale;

/// Pairs that the paper inserts.
const ENTRIES: u64 = 120_000_000;

/// The paper's tables are made for a tenth of what comes, so that growing is part of the inserts.
const PLANNED: u64 = 10;

/// One request of a mix for so many pairs of the load: the paper's 10 million of 120.
const REQUESTS: u64 = 12;

/// Keys of which the newest are that mix D reads: one for so many pairs.
const NEWEST: u64 = 1000;

/// Bytes of a pair's place in a pool, at most.
const PAIR_BYTES: u64 = 1024;

/// Tables and their names in the registry, the paper's first. CCEH is the form that the paper took,
/// whose splits copy and which looks at eight buckets from each of two homes on.
const TABLES: [(&str, &str); 6] = [
    ("TurboHash", "turbohash"),
    ("CCEH", "cceh-cow-8-two"),
    ("Dash", "dash"),
    ("P-CLHT", "p-clht"),
    ("clevel", "clevel"),
    ("Level hashing", "level"),
];

/// Keys of one kind.
struct Keys<K: Item + ?Sized> {
    title: &'static str,
    makers: fn(&'static Registered) -> Option<&'static Makers<K>>,
    key: fn(u64) -> K::Owned,
}

const OF_WORDS: Keys<u64> = Keys {
    title: "8 + 8 bytes",
    makers: |table| Some(&table.words),
    key: key_of,
};

const OF_STRINGS: Keys<[u8]> = Keys {
    title: "15 + 8 bytes",
    makers: |table| table.strings.as_ref(),
    key: |number| [&key_of(number).to_le_bytes()[..], &[b'k'; 7]].concat(),
};

/// What the paper's text has, below the numbers.
const TEXT: &str = "paper: CCEH's I/O is 18 % above TurboHash's for an insert, Dash's 60 %; for an \
                    absent key CCEH's is four times as much; with 30 bytes clevel's is three to \
                    five times as much for an insert, its latency five times; 15 % more for a \
                    read, twice as much for an absent key; P-CLHT inserts 17 % as fast";

impl<K: Item + ?Sized> Keys<K> {
    /// The tables that have such keys, with the makers of each.
    fn made(&self) -> impl Iterator<Item = (&'static str, &'static Makers<K>)> {
        TABLES.iter().filter_map(|(title, name)| {
            let table = registry::by_name(name)?;
            Some((*title, (self.makers)(table)?))
        })
    }

    fn owned(&self, number: u64) -> K::Owned {
        (self.key)(number)
    }

    /// An empty table in a pool of its own.
    fn table(
        makers: &Makers<K>,
        entries: u64,
        model: Option<&Arc<Mutex<Model>>>,
    ) -> Result<Box<dyn Index<K>>> {
        let pool = Pool::anonymous(PoolOptions {
            size: (64 << 20) + entries * PAIR_BYTES,
            watcher: model.map(|model| Arc::clone(model) as _),
            always_flush: model.is_none(),
            ..(makers.pool_options)()
        })?;
        let plan = IndexPlan {
            capacity: entries / PLANNED,
            seed: Some(1),
        };
        (makers.create)(&pool, plan)
    }
}

/// Figures 3.5 and 3.6, and what 3.4 has of other tables: latencies, throughput and volumes.
pub(crate) fn operations(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 2000);
    let about = format!("{entries} pairs; modelled, one thread; bytes of the media per operation");
    let columns = [
        column("mean", "ns", 0),
        column("p99", "ns", 0),
        column("throughput", "M/s", 2),
        column("read", "bytes", 0),
        column("written", "bytes", 0),
        column("together", "bytes", 0),
    ];
    let mut rows = Table::new(about, &["pairs", "table", "operation"], columns).headings(1);
    of_kind(&OF_WORDS, scale, entries, &mut rows)?;
    of_kind(&OF_STRINGS, scale, entries, &mut rows)?;
    Ok(vec![rows.note(TEXT)])
}

fn of_kind<K: Item + ?Sized>(
    keys: &Keys<K>,
    scale: Scale,
    entries: u64,
    rows: &mut Table,
) -> Result<()> {
    for (title, makers) in keys.made() {
        let model = dissertation_model(scale.0);
        let table = Keys::table(makers, entries, Some(&model))?;
        let mut phase = |name: &str, run: &dyn Fn(u64) -> Result<()>| -> Result<()> {
            rows.row(&[keys.title, title, name], measure(&model, entries, run)?);
            Ok(())
        };
        let key = |number: u64| keys.owned(number);
        phase("insert", &|number| {
            table.insert(key(number).borrow(), number).map(drop)
        })?;
        // Not in the order in which they came.
        let some = |number: u64| key_of(!number) % entries;
        phase("positive read", &|number| {
            let found = table.get(key(some(number)).borrow())?;
            assert_eq!(found, Some(some(number)), "{title} has lost a key");
            Ok(())
        })?;
        phase("negative read", &|number| {
            assert_eq!(table.get(key(entries + number).borrow())?, None);
            Ok(())
        })?;
        phase("update", &|number| {
            let of = some(number);
            table.update(key(of).borrow(), of).map(drop)
        })?;
        phase("delete", &|number| {
            table.remove(key(number).borrow()).map(drop)
        })?;
    }
    Ok(())
}

/// What an operation costs on the model.
fn measure(
    model: &Mutex<Model>,
    operations: u64,
    run: &dyn Fn(u64) -> Result<()>,
) -> Result<[f64; 6]> {
    let before = counted(model);
    let mut now = before.estimated_ns;
    let mut each_ns = Vec::new();
    for number in 0..operations {
        run(number)?;
        let then = model.lock().costs().estimated_ns;
        each_ns.push(then - now);
        now = then;
    }
    let costs = counted(model) - before;
    each_ns.sort_unstable();
    let p99 = each_ns[each_ns.len() * 99 / 100] as f64;
    let operations = operations as f64;
    let mean = each_ns.iter().sum::<u64>() as f64 / operations;
    let [read, written] = [costs.bytes_media_read(), costs.bytes_media_written()]
        .map(|bytes| bytes as f64 / operations);
    let throughput = 1e3 / mean.max(f64::MIN_POSITIVE);
    Ok([mean, p99, throughput, read, written, read + written])
}

/// A mix of YCSB, with uniform keys.
#[derive(Clone, Copy)]
struct Mix {
    name: &'static str,
    writes_of_twenty: u64,
    does: Does,
}

/// What a mix does instead of reading any pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Writes over one.
    Overwrite,
    /// Inserts one, and reads only the newest.
    InsertAndReadNewest,
    /// Reads one and writes it.
    ReadModifyWrite,
}

const fn mix(name: &'static str, writes_of_twenty: u64, does: Does) -> Mix {
    Mix {
        name,
        writes_of_twenty,
        does,
    }
}

const MIXES: [Mix; 5] = [
    mix("A", 10, Does::Overwrite),
    mix("B", 1, Does::Overwrite),
    mix("C", 0, Does::Overwrite),
    mix("D", 1, Does::InsertAndReadNewest),
    mix("F", 10, Does::ReadModifyWrite),
];

/// Figure 3.7: throughput of the load and of the mixes, on the model and in DRAM.
pub(crate) fn mixes(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 2000);
    let requests = entries / REQUESTS;
    let about = format!("{entries} pairs, {requests} requests of each mix; one thread");
    let names = ["load"].into_iter().chain(MIXES.iter().map(|mix| mix.name));
    let columns: Vec<_> = names.map(|name| column(name, "M/s", 2)).collect();
    let mut rows = Table::new(about, &["medium", "pairs", "table"], columns).headings(2);
    for medium in [MODEL, "in DRAM"] {
        mixes_of_kind(&OF_WORDS, scale, medium, &mut rows)?;
        mixes_of_kind(&OF_STRINGS, scale, medium, &mut rows)?;
    }
    Ok(vec![rows.note(
        "paper: TurboHash has up to 2.6 times CCEH's throughput, and with 30 bytes 1.5 to 4 times \
         P-CLHT's and clevel's; the figure has no numbers",
    )])
}

/// The modelled medium.
const MODEL: &str = "on the model";

fn mixes_of_kind<K: Item + ?Sized>(
    keys: &Keys<K>,
    scale: Scale,
    medium: &str,
    rows: &mut Table,
) -> Result<()> {
    let entries = scale.of(ENTRIES, 2000);
    for (title, makers) in keys.made() {
        let model = (medium == MODEL).then(|| dissertation_model(scale.0));
        let table = Keys::table(makers, entries, model.as_ref())?;
        let rate = |operations: u64, run: &mut dyn FnMut(u64) -> Result<()>| -> Result<f64> {
            let modelled_ns = || model.as_ref().map(|model| counted(model).estimated_ns);
            let (start, before) = (Instant::now(), modelled_ns());
            (0..operations).try_for_each(run)?;
            let spent_ns = match modelled_ns().zip(before) {
                Some((after, before)) => (after - before) as f64,
                None => start.elapsed().as_nanos() as f64,
            };
            Ok(operations as f64 * 1e3 / spent_ns.max(1.0))
        };
        let load = rate(entries, &mut |number| {
            table.insert(keys.owned(number).borrow(), number).map(drop)
        })?;
        let mut rates = vec![load];
        let mut next = entries;
        for mix in MIXES {
            rates.push(rate((entries / REQUESTS).max(1), &mut |operation| {
                request(&*table, keys, mix, operation, &mut next)
            })?);
        }
        rows.row(&[medium, keys.title, title], rates);
    }
    Ok(())
}

/// One request of a mix to a table that has the keys below `next`.
fn request<K: Item + ?Sized>(
    table: &dyn Index<K>,
    keys: &Keys<K>,
    mix: Mix,
    operation: u64,
    next: &mut u64,
) -> Result<()> {
    let random = key_of(operation ^ 0x5DEE_CE66_D1CE_5EED);
    let (draw, place) = (random % 20, random >> 8);
    let is_write = draw < mix.writes_of_twenty;
    let number = match mix.does {
        Does::InsertAndReadNewest if is_write => *next,
        Does::InsertAndReadNewest => *next - 1 - place % (*next / NEWEST).max(1),
        Does::Overwrite | Does::ReadModifyWrite => place % *next,
    };
    let key = keys.owned(number);
    if !is_write || mix.does == Does::ReadModifyWrite {
        let found = table.get(key.borrow())?;
        assert_eq!(found, Some(number), "the table has lost a key");
    }
    if is_write {
        table.insert(key.borrow(), number)?;
        *next += u64::from(number == *next);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the rows whose last coordinates are these.
    fn numbers(tables: &[Table], at: &[&str]) -> Vec<Vec<f64>> {
        let rows = tables[0].rows.iter().filter(|row| {
            let places: Vec<&str> = row.at.iter().map(String::as_str).collect();
            places.ends_with(at)
        });
        rows.map(|row| row.values.iter().copied().flatten().collect())
            .collect()
    }

    /// Every table is there with each of its kinds of keys, reads write nothing, and a mean is the
    /// reciprocal of the throughput.
    #[test]
    fn every_table_has_its_operations() {
        let tables = operations(Scale(0.000_01)).unwrap();
        for (title, name) in TABLES {
            let has_strings = registry::by_name(name).unwrap().strings.is_some();
            let kinds = 1 + usize::from(has_strings);
            for operation in [
                "insert",
                "positive read",
                "negative read",
                "update",
                "delete",
            ] {
                let rows = numbers(&tables, &[title, operation]);
                assert_eq!(rows.len(), kinds, "{title} {operation} {tables:#?}");
                for row in rows {
                    let [mean, p99, rate, read, written, together] = row[..] else {
                        panic!("{title} {operation} {row:?}");
                    };
                    assert!(
                        mean > 0.0 && p99 >= mean / 2.0,
                        "{title} {operation} {row:?}"
                    );
                    assert!((rate * mean / 1e3 - 1.0).abs() < 1e-6, "{row:?}");
                    assert!((read + written - together).abs() < 1e-6, "{row:?}");
                    assert!(read > 0.0, "{row:?}");
                    assert_eq!(
                        written > 0.0,
                        !operation.contains("read"),
                        "{title} {row:?}"
                    );
                }
            }
        }
    }

    /// Each mix does what it says: as many writes as it has, and reads of keys that are there.
    #[test]
    fn mixes_do_what_their_names_say() {
        let makers = &registry::by_name("p-clht").unwrap().words;
        for mix in MIXES {
            let table = Keys::table(makers, 2000, None).unwrap();
            for number in 0..2000 {
                table.insert(&OF_WORDS.owned(number), number).unwrap();
            }
            let mut next = 2000;
            for operation in 0..20_000 {
                request(&*table, &OF_WORDS, mix, operation, &mut next).unwrap();
            }
            let inserted = next - 2000;
            let inserts = mix.does == Does::InsertAndReadNewest;
            assert_eq!(table.len().unwrap(), next);
            assert_eq!((900..1100).contains(&inserted), inserts, "{inserted}");
        }
        let tables = mixes(Scale(0.000_01)).unwrap();
        for (title, name) in TABLES {
            let has_strings = registry::by_name(name).unwrap().strings.is_some();
            // On the model and in DRAM.
            let kinds = 2 * (1 + usize::from(has_strings));
            let rows = numbers(&tables, &[title]);
            assert_eq!(rows.len(), kinds, "{title} {tables:#?}");
            let counts = rows.iter().map(Vec::len);
            assert!(counts.eq([1 + MIXES.len()].repeat(kinds)), "{rows:?}");
        }
    }
}
