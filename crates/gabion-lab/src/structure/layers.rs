//! CCEH, FAST&FAIR and P-Skiplist with the layers of Spot-On, one more from row to row: what
//! inserts and lookups read from the media and write to it, and how long they take on the model.
//!
//! The model is that of figure 4.6: behind a cache that is as much smaller than the paper's as the
//! index is smaller, one thread, and nothing that lies in DRAM costs anything.
//!
//! Source: X. Zhao, dissertation, chapter 4, section 4.3.

use gabion_index::registry::{self, Registered};
use gabion_index::{IndexPlan, Result};
use gabion_media::pmem::model::Costs;
use gabion_media::pmem::{Pool, PoolOptions};

use super::medium::counted;
use super::spoton::{ENTRIES, model_for};
use super::{Shown, key_of};
use crate::rows::{Column, Table, column};
use crate::scale::Scale;

/// Bytes of a pool for each pair: the logs, which take no more than an eighth of it, have room for
/// a buffer of each leaf.
const POOL_BYTES: u64 = 1024;

/// What an index costs per insert of a new pair, and per lookup of one that is there.
struct Measured {
    entries: u64,
    inserts: Costs,
    lookups: Costs,
}

/// What is shown of a phase, per operation.
struct Each {
    read: f64,
    written: f64,
    fences: f64,
    ns: f64,
}

impl Measured {
    fn insert(&self) -> Each {
        Each::of(&self.inserts, self.entries)
    }

    fn lookup(&self) -> Each {
        Each::of(&self.lookups, self.entries)
    }
}

impl Each {
    fn of(costs: &Costs, operations: u64) -> Each {
        let each = |count: u64| count as f64 / operations as f64;
        Each {
            read: each(costs.bytes_media_read()),
            written: each(costs.bytes_media_written()),
            fences: each(costs.fences),
            ns: each(costs.estimated_ns),
        }
    }
}

/// Both phases on a form of an index that the registry knows.
fn measure(name: &str, entries: u64) -> Result<Measured> {
    let form = registry::by_name(name);
    let form: &Registered = form.expect("the names here are the registry's");
    let model = model_for(entries);
    let pool = Pool::anonymous(PoolOptions {
        size: (64 << 20) + entries * POOL_BYTES,
        watcher: Some(model.clone()),
        ..(form.words.pool_options)()
    })?;
    let plan = IndexPlan {
        capacity: entries,
        seed: Some(1),
    };
    let index = (form.words.create)(&pool, plan)?;
    let begun = counted(&model);
    for number in 0..entries {
        index.insert(&key_of(number), number)?;
    }
    let inserted = counted(&model);
    for number in 0..entries {
        // Not in the order in which they came.
        let some = key_of(!number) % entries;
        let found = index.get(&key_of(some))?;
        assert_eq!(found, Some(some), "the index has lost a key");
    }
    Ok(Measured {
        entries,
        inserts: inserted - begun,
        lookups: counted(&model) - inserted,
    })
}

/// The paper's names of the bases, and ours.
const BASES: [[&str; 2]; 3] = [
    ["CCEH", "cceh"],
    ["FAST&FAIR", "fastfair"],
    ["P-Skiplist", "p-skiplist"],
];

/// Figure 4.2: what the media write, with buffers and without.
pub(crate) fn written(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 2000);
    let about =
        format!("{entries} inserts of 8 + 8 bytes; modelled bytes that the media write for each");
    let columns = [
        column("plain", "", 0),
        column("with buffers", "", 0),
        column("times less", "", 2),
    ];
    let mut table = Table::new(about, &["index"], columns);
    for [title, name] in BASES {
        let plain = measure(name, entries)?.insert().written;
        let buffered = measure(&format!("{name}-b"), entries)?.insert().written;
        table.row(&[title], [plain, buffered, plain / buffered]);
    }
    Ok(vec![table.note("paper: up to 4 times less")])
}

/// The rows of figure 4.3: the paper's names and ours. The nodes of a list are new ones in any
/// case, so it has no layer O.
const LAYERED: [[&str; 2]; 11] = [
    ["CCEH", "cceh"],
    ["CCEH-B", "cceh-b"],
    ["CCEH-BO", "cceh-bo"],
    ["CCEH-BOC", "cceh-boc"],
    ["FAST&FAIR", "fastfair"],
    ["FAST&FAIR-B", "fastfair-b"],
    ["FAST&FAIR-BO", "fastfair-bo"],
    ["FAST&FAIR-BOC", "fastfair-boc"],
    ["P-Skiplist", "p-skiplist"],
    ["P-Skiplist-B", "p-skiplist-b"],
    ["P-Skiplist-BC", "p-skiplist-bc"],
];

/// Figure 4.3: what inserts read and write, and how long they take, layer by layer.
pub(crate) fn layered(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 2000);
    let about = format!("{entries} inserts of 8 + 8 bytes; modelled, for each");
    let columns = [
        column("read", "bytes", 0),
        column("written", "bytes", 0),
        column("fences", "", 2),
        column("time", "ns", 0),
    ];
    let mut table = Table::new(about, &["index"], columns);
    for [title, name] in LAYERED {
        let insert = measure(name, entries)?.insert();
        let values = [insert.read, insert.written, insert.fences, insert.ns];
        table.row(&[title], values);
    }
    Ok(vec![table.note(
        "paper: each layer makes inserts faster; its bars have no numbers",
    )])
}

/// Figure 4.4: latencies with the ways to the parts of an index in DRAM, and without.
pub(crate) fn cached(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 2000);
    let about = format!("{entries} pairs; modelled, for each operation");
    let each = [column("time", "ns", 0), column("read", "bytes", 0)];
    let columns = Column::grouped(&["insert", "lookup"], &each);
    let mut table = Table::new(about, &["index", "way to the leaves"], columns);
    for [title, name] in BASES {
        for (layer, way) in [("", "plain"), ("-c", "cached")] {
            let measured = measure(&format!("{name}{layer}"), entries)?;
            let (insert, lookup) = (measured.insert(), measured.lookup());
            let values = [insert.ns, insert.read, lookup.ns, lookup.read];
            table.row(&[title, way], values);
        }
    }
    Ok(vec![table.note(
        "paper: both trees faster with cached inner nodes, CCEH hardly; no numbers",
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the test below, of the table, whose directory is small enough for caches anyway.
    #[test]
    fn each_layer_of_a_table_saves_something() {
        let forms = ["cceh", "cceh-b", "cceh-bo", "cceh-boc"];
        let inserts = forms.map(|name| measure(name, 20_000).unwrap().insert());
        let [plain, buffered, renewed, cached] = inserts;
        assert!(buffered.written * 3.0 < plain.written);
        assert!(renewed.written * 2.0 < plain.written);
        assert!(renewed.fences < buffered.fences * 0.8);
        assert!(cached.read <= renewed.read * 1.01 && cached.written <= renewed.written * 1.05);
        let [plain, cached] = ["cceh", "cceh-c"].map(|name| measure(name, 20_000).unwrap());
        assert!(cached.lookup().ns <= plain.lookup().ns);
    }

    /// What does not depend on the size, in the direction that the paper tells.
    #[test]
    fn each_layer_saves_something() {
        let forms = ["fastfair", "fastfair-b", "fastfair-bo", "fastfair-boc"];
        let inserts = forms.map(|name| measure(name, 20_000).unwrap().insert());
        let [plain, buffered, renewed, cached] = inserts;
        assert!(buffered.written * 3.0 < plain.written);
        assert!(buffered.read < plain.read);
        assert!(renewed.fences * 1.5 < buffered.fences);
        assert!(cached.read * 1.2 < renewed.read);
        for base in ["fastfair", "p-skiplist"] {
            let forms = [base.to_owned(), format!("{base}-c")];
            let [plain, cached] = forms.map(|name| measure(&name, 20_000).unwrap());
            assert!(cached.lookup().ns * 1.2 < plain.lookup().ns);
            assert!(cached.insert().ns < plain.insert().ns);
        }
    }
}
