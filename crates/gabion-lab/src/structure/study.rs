//! The write-amplification study: what indexes write to the queue of a memory controller, and what
//! reaches the media, on the model.
//!
//! The workloads are those of the RECIPE benchmark: keys of 8 bytes, uniform and distinct. *load*
//! inserts them into an empty index, *A* inserts and gets in halves, *B* inserts one in twenty, *C*
//! only gets; each has as many operations as the load. Writes are counted per insert, those of gets
//! included, as in the study. The model's cache is as much smaller than its 28 cores' as the index
//! is smaller than the study's. One thread works where the study has up to 56, so that streams of
//! several threads do not mix in the buffer that combines writes.
//!
//! Source: Woo, Kim, Jung, Seo: Analysis and Optimization of Persistent Memory Index Structures'
//! Write Amplification, section III.

use std::sync::Arc;

use gabion_index::Result;
use gabion_index::registry::{INDEXES, Kind, Registered};
use gabion_index::{Index, Plan};
use gabion_media::pmem::model::{Costs, Model, Preset};
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::medium::counted;
use super::{Scale, key_of};

/// Pairs of the study's load.
pub(super) const ENTRIES: u64 = 64_000_000;
const CACHE_LINE_BYTES: u64 = 64;

/// A workload after or instead of the load: inserts per twenty operations.
struct Mix {
    name: &'static str,
    inserts_of_twenty: u64,
}

const MIXES: [Mix; 4] = [
    Mix {
        name: "load",
        inserts_of_twenty: 20,
    },
    Mix {
        name: "A",
        inserts_of_twenty: 10,
    },
    Mix {
        name: "B",
        inserts_of_twenty: 1,
    },
    Mix {
        name: "C",
        inserts_of_twenty: 0,
    },
];

/// Table 2 of the study: media writes per line in the queue, for load, A and B.
const TABLE_2: [(&str, [f64; 3]); 8] = [
    ("P-CLHT", [2.49, 2.71, 2.60]),
    ("Level hashing", [2.16, 3.12, 3.60]),
    ("CCEH", [2.39, 2.21, 2.46]),
    ("FAST&FAIR", [1.83, 1.89, 1.87]),
    ("P-Masstree", [2.97, 3.01, 3.06]),
    ("P-BwTree", [2.21, 2.15, 1.85]),
    ("P-ART", [2.25, 2.54, 2.52]),
    ("P-HOT", [1.87, 1.97, 2.17]),
];

/// What the study's text says besides: index, workload, lines in the queue or media writes per
/// insert.
const TEXT: &str = "The study's text: lines in the queue per insert: P-CLHT about 3, Level hashing \
                    1.5 (A), P-ART 5.5 (load), 7.4 (A), 44.4 (B); media writes per insert: Level \
                    hashing 5.0 (A), P-BwTree 18.0 (load), 19.6 (A).";

/// Figure 8: the hash tables.
pub(super) fn hashes(scale: Scale) -> Result<Vec<String>> {
    figure(scale, |index| index.kind == Kind::Hash)
}

/// Figure 9: trees, tries and lists.
pub(super) fn ordered(scale: Scale) -> Result<Vec<String>> {
    figure(scale, Registered::is_ordered)
}

fn figure(scale: Scale, is_meant: fn(&Registered) -> bool) -> Result<Vec<String>> {
    let mut lines = vec![
        format!(
            "{:<30} {:>5} {:>15} {:>15} {:>15} {:>12}",
            "per insert (C: per get)", "", "WPQ inserts", "media writes", "media reads", "modelled"
        ),
        format!(
            "{:<30} {:>5} {:>15} {:>15} {:>15} {:>12}",
            "", "", "of 64 bytes", "of 64 bytes", "of 64 bytes", "M/s"
        ),
    ];
    for index in INDEXES.iter().filter(|index| is_meant(index)) {
        for (mix, run) in MIXES.iter().zip(study(index, scale, MIXES.len())?) {
            let Run {
                costs,
                operations,
                inserts,
            } = run;
            let divisor = if inserts == 0 { operations } else { inserts } as f64;
            let each = |count: u64| count as f64 / divisor;
            let reads = costs.media_reads * (costs.media_line_bytes / CACHE_LINE_BYTES);
            lines.push(format!(
                "{:<30} {:>5} {:>15.2} {:>15.2} {:>15.2} {:>12.2}",
                index.title,
                mix.name,
                each(costs.wpq_inserts()),
                each(costs.media_writes_64()),
                each(reads),
                operations as f64 * 1e3 / costs.estimated_ns.max(1) as f64
            ));
        }
    }
    lines.push(TEXT.to_owned());
    Ok(lines)
}

/// Table 2: media writes per line in the queue.
pub(super) fn table_2(scale: Scale) -> Result<Vec<String>> {
    let mut lines = vec![format!(
        "{:<30} {:>24} {:>24} {:>24}",
        "media writes per WPQ insert",
        "load: paper ours diff",
        "A: paper ours diff",
        "B: paper ours diff"
    )];
    for index in INDEXES {
        let runs = study(index, scale, 3)?;
        let paper = TABLE_2.iter().find(|(title, _)| *title == index.title);
        let mut line = format!("{:<30}", index.title);
        for (at, run) in runs.iter().enumerate() {
            let ours = run.costs.media_writes_per_insert();
            line += &match paper {
                Some((_, cells)) => {
                    let apart = (ours / cells[at] - 1.0) * 100.0;
                    format!(" {:>10.2} {ours:>6.2} {apart:>+5.0} %", cells[at])
                }
                None => format!(" {:>10} {ours:>6.2} {:>7}", "-", ""),
            };
        }
        lines.push(line);
    }
    Ok(lines)
}

/// What a workload did and cost.
pub(super) struct Run {
    pub(super) costs: Costs,
    pub(super) operations: u64,
    pub(super) inserts: u64,
}

/// The first so many workloads on one index, one after the other: load, A, B, C.
pub(super) fn study(index: &Registered, scale: Scale, mixes: usize) -> Result<Vec<Run>> {
    let entries = scale.of(ENTRIES, 2000);
    let cache_bytes = scale.of(Preset::OPTANE.cache_bytes, 1);
    let way_bytes = Preset::OPTANE.cache_ways as u64 * CACHE_LINE_BYTES;
    let model = Arc::new(Mutex::new(Model::new(Preset {
        cache_bytes: (cache_bytes / way_bytes).next_power_of_two() * way_bytes,
        ..Preset::OPTANE
    })));
    let pool = Pool::anonymous(PoolOptions {
        size: (64 << 20) + entries * 1024,
        watcher: Some(model.clone()),
        ..(index.words.pool_options)()
    })?;
    // Not told how many entries will come: growing is part of the load.
    let plan = Plan {
        capacity: entries / 64,
        seed: Some(1),
    };
    let table = (index.words.create)(&pool, plan)?;
    let mut next = 0;
    let mut runs = Vec::new();
    for mix in &MIXES[..mixes] {
        let before = counted(&model);
        let loaded = next;
        for operation in 0..entries {
            run_one(&*table, mix, operation, loaded, &mut next)?;
        }
        runs.push(Run {
            costs: counted(&model) - before,
            operations: entries,
            inserts: next - loaded,
        });
    }
    Ok(runs)
}

/// One operation of a mix: an insert of the next key, or a get of one of those `loaded` before.
fn run_one(
    table: &dyn Index<u64>,
    mix: &Mix,
    operation: u64,
    loaded: u64,
    next: &mut u64,
) -> Result<()> {
    let random = key_of(operation ^ 0x5DEE_CE66_D1CE_5EED);
    if random % 20 < mix.inserts_of_twenty {
        table.insert(&key_of(*next), *next)?;
        *next += 1;
    } else {
        let number = (random >> 8) % loaded;
        let found = table.get(&key_of(number))?;
        assert_eq!(found, Some(number), "the index has lost a key");
    }
    Ok(())
}
