//! The write-amplification study: what indexes write to the queue of a memory controller, and what
//! reaches the media, on the model.
//!
//! The workloads are those of the RECIPE benchmark: keys of 8 bytes, uniform and distinct. *load*
//! inserts them into an empty index; *A* inserts and gets in halves, *B* inserts one in twenty,
//! each on what a load has left; *C* only gets. Each has as many operations as the load. Writes are
//! counted per insert, those of gets included, as in the study. The model's cache is as much
//! smaller than its 28 cores' as the index is smaller than the study's. One thread works where the
//! study has up to 56, so that streams of several threads do not mix in the buffer that combines
//! writes. Pools are memory of the process, for whose allocator no crash counts, as none does for
//! the study's; what the notes for crashes cost is in `places.rs`.
//!
//! The figures have a second part, [`studied`]: indexes in the form in which the benchmark's
//! programs have them, where that is another one than ours.
//!
//! Source: Woo, Kim, Jung, Seo: Analysis and Optimization of Persistent Memory Index Structures'
//! Write Amplification, section III.

use std::sync::Arc;

use gabion_index::index::Makers;
use gabion_index::registry::{self, INDEXES, IndexKind, Registered};
use gabion_index::{BwTree, Index, IndexPlan, Result};
use gabion_media::pmem::model::{Costs, Model, Preset};
use gabion_media::pmem::trace::{LINE, TraceStep, Watcher};
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::medium::{behind, counted};
use super::{Shown, key_of};
use crate::rows::{Column, Table, column};
use crate::scale::Scale;

/// Pairs of the study's load.
pub(super) const ENTRIES: u64 = 64_000_000;
const PAGE_BYTES: usize = 4096;

/// Bytes of a leaf of the benchmark's P-ART: value, length and key.
const LEAF_BYTES: usize = 24;

/// A workload: inserts per twenty operations.
pub(super) struct Mix {
    pub(super) name: &'static str,
    inserts_of_twenty: u64,
}

pub(super) const MIXES: [Mix; 4] = [
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

/// An index, or a form of one, in the figures.
#[derive(Clone, Copy)]
pub(super) struct Subject {
    pub(super) title: &'static str,
    kind: IndexKind,
    pub(super) makers: &'static Makers<u64>,
    /// What the study calls it, if it has it.
    paper: &'static str,
    leaves: Leaves,
}

/// What the benchmark does for each get of P-ART: it makes a leaf of the key, in new memory, and
/// neither flushes it nor gives it back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// It does not.
    None,
    /// Memory costs nothing before it is used.
    Made,
    /// The system has filled each page with zeros first, past the cache, as a file system on
    /// persistent memory does with blocks of a file that were never written to.
    MadeInNewPages,
}

impl Subject {
    pub(super) fn of(index: &'static Registered) -> Subject {
        Subject {
            title: index.title,
            kind: index.kind,
            makers: &index.words,
            paper: index.title,
            leaves: Leaves::None,
        }
    }
}

/// P-BwTree with pages as large as the study's, which are split when they have 128 entries.
type WideTree = BwTree<u64, 128>;

static WIDE_PAGES: Makers<u64> = Makers {
    pool_options: WideTree::pool_options,
    create: |pool, _| Ok(Box::new(WideTree::create(pool)?)),
    open: |pool| Ok(Box::new(WideTree::open(pool)?)),
    create_ordered: None,
};

/// The forms of the benchmark's programs: P-CLHT and Level hashing without the study's
/// optimisations, CCEH whose splits write both halves anew, P-BwTree with larger pages, P-ART with
/// a leaf for each get.
fn studied() -> Vec<Subject> {
    let form = |name, title, paper| {
        let form = registry::by_name(name).map(Subject::of);
        form.map(|form| Subject {
            title,
            paper,
            ..form
        })
    };
    let forms = [
        form("p-clht-published", "P-CLHT (published)", "P-CLHT"),
        form("level-padded", "Level hashing (padded)", "Level hashing"),
        form("cceh-cow", "CCEH (copy-on-write)", "CCEH"),
        form("p-bwtree", "P-BwTree (pages of 128)", "P-BwTree").map(|form| Subject {
            makers: &WIDE_PAGES,
            ..form
        }),
        form("p-art", "P-ART (leaf per get)", "P-ART").map(|form| Subject {
            leaves: Leaves::Made,
            ..form
        }),
        form("p-art", "P-ART (leaf, new pages)", "P-ART").map(|form| Subject {
            leaves: Leaves::MadeInNewPages,
            ..form
        }),
    ];
    forms.into_iter().flatten().collect()
}

/// Figure 8: the hash tables.
pub(crate) fn hashes(scale: Scale) -> Shown {
    figure(scale, |kind| kind == IndexKind::Hash)
}

/// Figure 9: trees, tries and lists.
pub(crate) fn ordered(scale: Scale) -> Shown {
    figure(scale, |kind| kind != IndexKind::Hash)
}

fn figure(scale: Scale, is_meant: fn(IndexKind) -> bool) -> Shown {
    let columns = [
        column("WPQ inserts", "of 64 bytes", 2),
        column("media writes", "of 64 bytes", 2),
        column("media reads", "of 64 bytes", 2),
        column("modelled", "M/s", 2),
    ];
    let about = "counts for an insert, in C for a get";
    let mut rows = Table::new(about, &["index", "workload"], columns);
    let mut show = |subject: Subject| -> Result<()> {
        for (mix, run) in MIXES.iter().zip(study(&subject, scale, MIXES.len())?) {
            let Run {
                costs,
                operations,
                inserts,
            } = run;
            let divisor = if inserts == 0 { operations } else { inserts } as f64;
            let each = |count: u64| count as f64 / divisor;
            let reads = costs.media_reads * (costs.media_line_bytes / LINE);
            let modelled = operations as f64 * 1e3 / costs.estimated_ns.max(1) as f64;
            let [queued, written] = [costs.wpq_inserts(), costs.media_writes_64()].map(each);
            let values = [queued, written, each(reads), modelled];
            rows.row(&[subject.title, mix.name], values);
        }
        Ok(())
    };
    let is_shown = |subject: &Subject| is_meant(subject.kind);
    let ours = INDEXES.iter().map(|index| Subject::of(index));
    ours.filter(is_shown).try_for_each(&mut show)?;
    studied().into_iter().filter(is_shown).try_for_each(show)?;
    Ok(vec![rows.note(TEXT)])
}

/// Table 2: media writes per line in the queue.
pub(crate) fn table_2(scale: Scale) -> Shown {
    let each = [
        column("paper", "", 2),
        column("ours", "", 2),
        column("apart", "%", 0).signed(),
    ];
    let columns = Column::grouped(&["load", "A", "B"], &each);
    let about = "media writes per WPQ insert";
    let mut rows = Table::new(about, &["form", "index"], columns).headings(1);
    let here = INDEXES
        .iter()
        .map(|index| ("as it is here", Subject::of(index)));
    let there = studied()
        .into_iter()
        .map(|form| ("as the benchmark has it", form));
    for (form, subject) in here.chain(there) {
        let paper = TABLE_2.iter().find(|(title, _)| *title == subject.paper);
        let mut values = Vec::new();
        for (at, run) in study(&subject, scale, 3)?.iter().enumerate() {
            let ours = run.costs.media_writes_per_insert();
            let paper = paper.map(|(_, numbers)| numbers[at]);
            let apart = paper.map(|paper| (ours / paper - 1.0) * 100.0);
            values.extend([paper, Some(ours), apart]);
        }
        rows.row(&[form, subject.title], values);
    }
    Ok(vec![rows])
}

/// What a workload did and cost.
pub(super) struct Run {
    pub(super) costs: Costs,
    pub(super) operations: u64,
    pub(super) inserts: u64,
}

/// The first so many workloads: load, A, B, C. A and B each find what a load has left, for where an
/// index is in its growth decides what it writes; C changes nothing.
pub(super) fn study(subject: &Subject, scale: Scale, mixes: usize) -> Result<Vec<Run>> {
    let mut bed = Measured::new(subject, scale)?;
    let mut runs = Vec::new();
    for (at, mix) in MIXES[..mixes].iter().enumerate() {
        if at == 2 {
            bed = Measured::new(subject, scale)?;
            bed.run(&MIXES[0])?;
        }
        runs.push(bed.run(mix)?);
    }
    Ok(runs)
}

/// An index on the model.
struct Measured {
    bed: PoolBench,
    model: Arc<Mutex<Model>>,
    leaves: Leaves,
    /// Where the next leaf of a get goes: behind the pool.
    leaf_at: u64,
}

impl Measured {
    fn new(subject: &Subject, scale: Scale) -> Result<Measured> {
        let model = Arc::new(Mutex::new(model(scale)));
        let bed = PoolBench::new(subject.makers, scale, model.clone(), Pool::anonymous)?;
        let leaf_at = bed.pool.len().next_multiple_of(PAGE_BYTES as u64);
        Ok(Measured {
            bed,
            model,
            leaves: subject.leaves,
            leaf_at,
        })
    }

    fn run(&mut self, mix: &Mix) -> Result<Run> {
        let before = counted(&self.model);
        let loaded = self.bed.next;
        for operation in 0..self.bed.entries {
            let is_get = !self.bed.step(mix, operation, loaded)?;
            if is_get && self.leaves != Leaves::None {
                self.make_leaf();
            }
        }
        Ok(Run {
            costs: counted(&self.model) - before,
            operations: self.bed.entries,
            inserts: self.bed.next - loaded,
        })
    }

    fn make_leaf(&mut self) {
        let offset = self.leaf_at;
        let mut model = self.model.lock();
        let is_new_page = offset.is_multiple_of(PAGE_BYTES as u64);
        if self.leaves == Leaves::MadeInNewPages && is_new_page {
            let bytes = &[0; PAGE_BYTES];
            model.step(TraceStep::NtStore { offset, bytes });
        }
        let bytes = &[0; LEAF_BYTES];
        model.step(TraceStep::Store { offset, bytes });
        self.leaf_at += LINE;
    }
}

/// A medium behind a cache that is to the index as the study's to its indexes.
pub(super) fn model(scale: Scale) -> Model {
    let cache_bytes = Preset::OPTANE.cache_bytes as f64 * scale.0;
    Model::new(behind(Preset::OPTANE, cache_bytes))
}

/// An index in a pool of its own.
pub(super) struct PoolBench {
    index: Box<dyn Index<u64>>,
    pub(super) pool: Pool,
    pub(super) entries: u64,
    /// The number of the next key to be inserted.
    pub(super) next: u64,
}

impl PoolBench {
    /// An empty index in a pool that is made by `make`.
    pub(super) fn new<E>(
        makers: &Makers<u64>,
        scale: Scale,
        watcher: Arc<dyn Watcher>,
        make: impl FnOnce(PoolOptions) -> std::result::Result<Pool, E>,
    ) -> Result<PoolBench>
    where
        gabion_index::Error: From<E>,
    {
        let entries = scale.of(ENTRIES, 2000);
        let pool = make(PoolOptions {
            size: (64 << 20) + entries * 1024,
            watcher: Some(watcher),
            ..(makers.pool_options)()
        })?;
        // Not told how many entries will come: growing is part of the load.
        let plan = IndexPlan {
            capacity: entries / 64,
            seed: Some(1),
        };
        Ok(PoolBench {
            index: (makers.create)(&pool, plan)?,
            pool,
            entries,
            next: 0,
        })
    }

    /// One operation of a mix: an insert of the next key, or a get of one of those `loaded` before.
    /// Whether it is an insert.
    pub(super) fn step(&mut self, mix: &Mix, operation: u64, loaded: u64) -> Result<bool> {
        let random = key_of(operation ^ 0x5DEE_CE66_D1CE_5EED);
        let is_insert = random % 20 < mix.inserts_of_twenty;
        if is_insert {
            self.index.insert(&key_of(self.next), self.next)?;
            self.next += 1;
        } else {
            let number = (random >> 8) % loaded;
            let found = self.index.get(&key_of(number))?;
            assert_eq!(found, Some(number), "the index has lost a key");
        }
        Ok(is_insert)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A and B begin with what the load has left, and only that.
    #[test]
    fn workloads_run_on_what_the_load_has_left() {
        let subject = Subject::of(registry::by_name("cceh").unwrap());
        let scale = Scale(0.000_1);
        let runs = study(&subject, scale, 4).unwrap();
        let entries = scale.of(ENTRIES, 2000);
        assert_eq!(runs[0].inserts, entries);
        let parts = runs.iter().map(|run| run.inserts as f64 / entries as f64);
        for (part, expected) in parts.zip([1.0, 0.5, 0.05, 0.0]) {
            assert!((part - expected).abs() < 0.02, "{part} {expected}");
        }
        let mut alone = Measured::new(&subject, scale).unwrap();
        alone.run(&MIXES[0]).unwrap();
        assert_eq!(alone.run(&MIXES[2]).unwrap().costs, runs[2].costs);
        assert_eq!(runs[3].costs.wpq_inserts(), 0, "gets write nothing");
    }

    /// The lines of a get's leaf: one, and one more of its page.
    #[test]
    fn a_leaf_of_a_get_is_a_line_that_is_written_back() {
        let scale = Scale(0.000_1);
        let art = Subject::of(registry::by_name("p-art").unwrap());
        let lines = |leaves| {
            let runs = study(&Subject { leaves, ..art }, scale, 4).unwrap();
            let run = &runs[3];
            (run.costs.wpq_inserts(), run.operations)
        };
        assert_eq!(lines(Leaves::None).0, 0);
        let (made, gets) = lines(Leaves::Made);
        assert_eq!(made, gets);
        let (with_pages, gets) = lines(Leaves::MadeInNewPages);
        let lines_of_page = PAGE_BYTES as u64 / LINE;
        assert!(
            with_pages.abs_diff(2 * gets) <= lines_of_page,
            "{with_pages}"
        );
    }

    #[test]
    fn every_form_that_was_studied_is_there_and_in_the_study() {
        let forms = studied();
        assert_eq!(forms.len(), 6);
        for form in forms {
            let is_it = |(title, _): &(&str, [f64; 3])| *title == form.paper;
            assert!(TABLE_2.iter().any(is_it), "{}", form.title);
        }
    }
}
