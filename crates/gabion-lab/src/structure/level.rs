//! Level hashing beside the tables that its slides compare it with: bucketized cuckoo hashing, PFHT
//! and path hashing.
//!
//! All have the slides' buckets, of four slots in 128 bytes, and values of two words. Each table
//! has a fixed number of slots and is filled to stated loads; there its inserts, updates and
//! lookups are measured. Then it is filled until it has to grow, which all do alike: they insert
//! every entry that has to move, with its persists. The times are modelled: of DRAM, and of a
//! medium that is read in 200 ns and written in 600, behind a cache of a thirtieth of the table. So
//! they do not depend on the machine. What several threads do at once is measured on the machine.
//!
//! Source: Zuo, Hua, Wu, "Write-optimized and high-performance hashing index scheme for persistent
//! memory", OSDI 2018, slides 31 to 38.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use gabion_index::bch::BchQuad;
use gabion_index::level::LevelTable;
use gabion_index::level::form::{LoggedQuads, Quads, StreamedQuads};
use gabion_index::pathhash::PathHashQuad;
use gabion_index::pfht::PfhtQuad;
use gabion_index::{Index, IndexPlan, Result};
use gabion_media::pmem::model::{Costs, Model, Preset, Times};
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::medium::{behind, counted};
use super::{Shown, key_of};
use crate::rows::{Table as Rows, column};
use crate::scale::Scale;

/// Entries that tables are planned for, at full scale.
const ENTRIES: u64 = 64_000_000;

/// Bytes of cache for each slot, of 32 bytes: a thirtieth of the table.
const CACHE_BYTES_OF_SLOT: f64 = 1.0;

/// Per cent of the slots that are filled when operations are measured.
const LOADS: [u64; 3] = [40, 60, 80];

/// Inserts are measured from so many per cent of the slots before a load on.
const LOAD_WINDOW: u64 = 5;

/// Updates and lookups of a phase.
const OPERATIONS_MAX: u64 = 100_000;

/// Threads whose throughput is measured, and how often: the median counts.
const THREADS: [u64; 3] = [1, 2, 4];
const TURNS: usize = 3;

/// The slides' medium: reads take 200 ns, writes 600.
const NVM: Preset = Preset {
    name: "200/600",
    times: Times {
        cache_hit_ps: 2_000,
        buffer_read_ps: 200_000,
        media_read_ps: 200_000,
        accept_ps: 600_000,
        media_write_busy_ps: 640,
        media_read_busy_ps: 640,
        backlog_ps: 40_000,
    },
    ..Preset::CXL
};

/// A table, its size, and how many entries its inserts have moved.
trait Table: Index<u64> + Sized {
    const TITLE: &'static str;

    fn options() -> PoolOptions;

    fn make(pool: &Pool, plan: IndexPlan) -> Result<Self>;

    fn slot_count(&self) -> u64;

    fn moved(&self) -> u64;
}

macro_rules! table {
    ($kind:ty, $title:expr) => {
        impl Table for $kind {
            const TITLE: &'static str = $title;

            fn options() -> PoolOptions {
                <$kind>::pool_options()
            }

            fn make(pool: &Pool, plan: IndexPlan) -> Result<Self> {
                <$kind>::create(pool, plan)
            }

            fn slot_count(&self) -> u64 {
                self.slots()
            }

            fn moved(&self) -> u64 {
                self.moves()
            }
        }
    };
}

table!(LevelTable<Quads>, "Level hashing");
table!(LevelTable<LoggedQuads>, "Level hashing, all logged");
table!(LevelTable<StreamedQuads>, "Level hashing, streamed");
table!(BchQuad, "BCH");
table!(PfhtQuad, "PFHT");
table!(PathHashQuad, "Path hashing");

/// The tables of the figure.
struct Tables {
    operations: Rows,
    fullness: Rows,
    growth: Rows,
}

/// Modelled times at stated loads, loads, growth, and the throughput of threads.
pub(crate) fn baselines(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 2000);
    let ns = |name| column(name, "ns", 0);
    let operations = [
        ns("insert"),
        ns("update"),
        ns("search"),
        ns("missing"),
        column("update persists", "", 2),
    ];
    let about = format!("tables planned for {entries} entries; modelled times per operation");
    let mut all = Tables {
        operations: Rows::new(about, &["medium", "load", "table"], operations)
            .named("operations")
            .headings(2),
        fullness: Rows::new(
            "when a table must grow: its load, and entries moved so far, of 100 inserts",
            &["table"],
            [column("load", "%", 1), column("moved", "%", 2)],
        )
        .named("fullness"),
        growth: Rows::new(
            "modelled times of a growth, per entry of the table",
            &["medium", "table"],
            [ns("growth"), column("persists", "", 2)],
        )
        .named("growth")
        .headings(1),
    };
    for preset in [Preset::DRAM, NVM] {
        measure::<LevelTable<Quads>>(preset, entries, &mut all)?;
        measure::<LevelTable<LoggedQuads>>(preset, entries, &mut all)?;
        measure::<LevelTable<StreamedQuads>>(preset, entries, &mut all)?;
        measure::<BchQuad>(preset, entries, &mut all)?;
        measure::<PfhtQuad>(preset, entries, &mut all)?;
        measure::<PathHashQuad>(preset, entries, &mut all)?;
    }
    let operations = all.operations.note(
        "slides: inserts are 1.4 to 3.0 times as fast as the others', updates 1.2 to 2.1 times as \
         fast as with a log; searches are close to BCH's and faster than PFHT's and path hashing's",
    );
    let fullness = all
        .fullness
        .note("slides: 1.2 % of Level hashing's inserts move an entry");
    let growth = all
        .growth
        .note("slides: Level hashing's takes 76 % less time, 4.3 times as fast");
    Ok(vec![operations, fullness, growth, threads(entries)?])
}

/// A table under the model.
struct Modelled<T> {
    table: T,
    model: Arc<Mutex<Model>>,
    slots: u64,
    /// Keys that are there.
    filled: u64,
}

impl<T: Table> Modelled<T> {
    fn new(preset: Preset, entries: u64) -> Result<Self> {
        let plan = IndexPlan {
            capacity: entries,
            seed: Some(1),
        };
        let size = (64 << 20) + entries * 512;
        let small = Pool::anonymous(PoolOptions {
            size,
            ..T::options()
        })?;
        // How large it becomes says how large its cache is.
        let slots = T::make(&small, plan)?.slot_count();
        let preset = behind(preset, slots as f64 * CACHE_BYTES_OF_SLOT);
        let model = Arc::new(Mutex::new(Model::new(preset)));
        let pool = Pool::anonymous(PoolOptions {
            size,
            watcher: Some(model.clone()),
            ..T::options()
        })?;
        let table = T::make(&pool, plan)?;
        Ok(Modelled {
            table,
            model,
            slots,
            filled: 0,
        })
    }

    /// What something costs.
    fn cost(&self, run: impl FnOnce() -> Result<()>) -> Result<Costs> {
        let before = counted(&self.model);
        run()?;
        Ok(counted(&self.model) - before)
    }

    /// Inserts one more; tells whether the table has its size still.
    fn insert_one(&mut self) -> Result<bool> {
        self.table.insert(&key_of(self.filled), self.filled)?;
        self.filled += 1;
        Ok(self.table.slot_count() == self.slots)
    }

    /// Inserts until so many per cent of the slots are filled; false if the table grows before.
    fn fill(&mut self, percent: u64) -> Result<bool> {
        while self.filled * 100 < self.slots * percent {
            if !self.insert_one()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fills to a load, and measures operations there; none if the table grows before.
    fn at_load(&mut self, percent: u64) -> Result<Option<[f64; 5]>> {
        if !self.fill(percent - LOAD_WINDOW)? {
            return Ok(None);
        }
        let (first, before) = (self.filled, counted(&self.model));
        if !self.fill(percent)? {
            return Ok(None);
        }
        let inserts = counted(&self.model) - before;
        let insert = inserts.estimated_ns as f64 / (self.filled - first) as f64;
        let operations = self.filled.min(OPERATIONS_MAX);
        let each = |operation: &dyn Fn(u64) -> Result<Option<u64>>| -> Result<[f64; 2]> {
            let costs = self.cost(|| {
                for number in 0..operations {
                    operation(key_of(number * 7919 % self.filled))?;
                }
                Ok(())
            })?;
            Ok([costs.estimated_ns, costs.fences].map(|count| count as f64 / operations as f64))
        };
        let [update, persists] = each(&|key| self.table.update(&key, 1))?;
        let [search, _] = each(&|key| self.table.get(&key))?;
        let [missing, _] = each(&|key| self.table.get(&!key))?;
        Ok(Some([insert, update, search, missing, persists]))
    }

    /// Fills the table until it grows. What that took, and the entries that moved before.
    fn grow(&mut self) -> Result<(Costs, u64)> {
        // What waits in buffers takes no time, and to drain them for each insert would.
        let model = Arc::clone(&self.model);
        let costs = || model.lock().costs();
        loop {
            let (before, moved) = (costs(), self.table.moved());
            if !self.insert_one()? {
                return Ok((costs() - before, moved));
            }
        }
    }
}

fn measure<T: Table>(preset: Preset, entries: u64, all: &mut Tables) -> Result<()> {
    let mut modelled = Modelled::<T>::new(preset, entries)?;
    let is_for_growth = T::TITLE == <LevelTable<StreamedQuads>>::TITLE;
    let mut has_grown = false;
    for percent in LOADS.into_iter().filter(|_| !is_for_growth) {
        let values = match has_grown {
            true => None,
            false => modelled.at_load(percent)?,
        };
        has_grown = values.is_none();
        let at = [preset.name, &format!("{percent} %"), T::TITLE];
        match values {
            Some(values) => all.operations.row(&at, values),
            None => {
                let note = "it has grown before".to_owned();
                all.operations.row_with(&at, [f64::NAN; 5], note);
            }
        }
    }
    if has_grown || T::TITLE == <LevelTable<LoggedQuads>>::TITLE {
        return Ok(());
    }
    let (costs, moved) = modelled.grow()?;
    let filled = modelled.filled as f64;
    if preset.name == NVM.name && !is_for_growth {
        let load = (filled - 1.0) * 100.0 / modelled.slots as f64;
        let values = [load, moved as f64 * 100.0 / filled];
        all.fullness.row(&[T::TITLE], values);
    }
    let each = [costs.estimated_ns, costs.fences].map(|count| count as f64 / filled);
    all.growth.row(&[preset.name, T::TITLE], each);
    Ok(())
}

/// Operations of several threads in tables that have room, on this machine's DRAM.
fn threads(entries: u64) -> Result<Rows> {
    let columns = [
        column("inserts", "M/s", 2),
        column("half searches", "M/s", 2),
    ];
    let about = format!(
        "operations of all threads together, in this machine's DRAM, median of {TURNS}: from half \
         of {entries} entries on"
    );
    let mut rows = Rows::new(about, &["threads", "table"], columns)
        .named("threads")
        .headings(1);
    for count in THREADS {
        let (mut level, mut cuckoo) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            level.push(rates::<LevelTable<Quads>>(entries, count)?);
            cuckoo.push(rates::<BchQuad>(entries, count)?);
        }
        let of = count.to_string();
        let title = <LevelTable<Quads>>::TITLE;
        rows.row(&[&of, title], medians(&level));
        rows.row(&[&of, BchQuad::TITLE], medians(&cuckoo));
    }
    Ok(rows.note("slides: Level hashing's are 1.6 to 2.1 times those of libcuckoo, a BCH"))
}

fn medians(rates: &[[f64; 2]]) -> [f64; 2] {
    [0, 1].map(|of| {
        let mut rates: Vec<f64> = rates.iter().map(|rates| rates[of]).collect();
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    })
}

/// Operations per microsecond: inserts, and half inserts with half searches.
fn rates<T: Table>(entries: u64, threads: u64) -> Result<[f64; 2]> {
    let pool = Pool::anonymous(PoolOptions {
        size: (64 << 20) + entries * 512,
        always_flush: true,
        ..T::options()
    })?;
    let plan = IndexPlan {
        capacity: entries,
        seed: Some(1),
    };
    let table = T::make(&pool, plan)?;
    for number in 0..entries / 2 {
        table.insert(&key_of(number), number)?;
    }
    let quarter = entries / 4;
    let inserts = run(threads, quarter, |number| {
        let number = entries / 2 + number;
        table.insert(&key_of(number), number).map(drop)
    })?;
    let mixed = run(threads, quarter, |number| {
        if number % 2 == 0 {
            let number = entries / 2 + quarter + number;
            return table.insert(&key_of(number), number).map(drop);
        }
        let number = number * 7919 % (entries / 2);
        let found = table.get(&key_of(number))?;
        assert_eq!(found, Some(number), "{} has lost a key", T::TITLE);
        Ok(())
    })?;
    Ok([inserts, mixed])
}

/// Operations per microsecond of threads that share them.
fn run(threads: u64, count: u64, operation: impl Fn(u64) -> Result<()> + Sync) -> Result<f64> {
    let operation = &operation;
    let worker = |first: u64| {
        let threads = usize::try_from(threads).unwrap_or(1);
        move || (first..count).step_by(threads).try_for_each(operation)
    };
    let start = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| scope.spawn(worker(first)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(count as f64 / start.elapsed().as_secs_f64() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each table has its rows; path hashing moves nothing; the log costs three persists, and a
    /// free slot fewer; a growth by inserts persists more often than one past the cache.
    #[test]
    fn all_tables_are_compared() {
        let tables = baselines(Scale(0.000_1)).unwrap();
        let [operations, fullness, growth, threads] = &tables[..] else {
            panic!("{} tables", tables.len());
        };
        let number = |table: &Rows, at: &[&str], column: &str| {
            let mut numbers = table.numbers(column);
            numbers.find(|(row, _)| row.at == at).expect("a row").1
        };
        for load in ["40 %", "60 %", "80 %"] {
            for table in ["Level hashing", "BCH", "PFHT", "Path hashing"] {
                let insert = number(operations, &["200/600", load, table], "insert");
                assert!(insert > 600.0, "{table} {load} {insert}");
            }
            let persists = |table| number(operations, &["dram", load, table], "update persists");
            assert!((persists("Level hashing, all logged") - 3.0).abs() < 1e-9);
            assert!(persists("Level hashing") < 2.9, "{load}");
        }
        for table in ["Level hashing", "BCH", "PFHT", "Path hashing"] {
            let load = number(fullness, &[table], "load");
            assert!((80.0..100.0).contains(&load), "{table} {load}");
            let moved = number(fullness, &[table], "moved");
            assert_eq!(moved > 0.0, table != "Path hashing", "{table} {moved}");
        }
        let persists = |table| number(growth, &["dram", table], "persists");
        assert!(persists("BCH") >= 1.0);
        assert!((0.2..0.7).contains(&persists("Level hashing")));
        assert!(persists("Level hashing, streamed") < 0.1);
        assert_eq!(threads.rows.len(), 2 * THREADS.len());
    }
}
