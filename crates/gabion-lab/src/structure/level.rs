//! Level hashing beside the tables that its slides compare it with: bucketized cuckoo hashing, PFHT
//! and path hashing.
//!
//! Each table is filled from small to the figure's number of entries, which makes it grow many
//! times; then entries are updated, looked up, and looked for that are not there. The times are
//! modelled: of DRAM, and of a medium that is read in 200 ns and written in 600, behind a cache
//! that holds a thirtieth of the table. So they do not depend on the machine.
//!
//! Source: Zuo, Hua, Wu, "Write-optimized and high-performance hashing index scheme for persistent
//! memory", OSDI 2018, slides 31 to 38.

use std::sync::Arc;

use gabion_index::{Bch, Index, LevelHash, PathHash, Pfht, Plan, Result};
use gabion_media::pmem::model::{Model, Preset, Times};
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::medium::{behind, counted};
use super::{Shown, key_of};
use crate::rows::{Table as Rows, column};
use crate::scale::Scale;

/// Entries at full scale.
const ENTRIES: u64 = 64_000_000;

/// Bytes of cache for each entry: a thirtieth of the table.
const CACHE_BYTES_OF_ENTRY: f64 = 1.0;

/// Lines that an insert writes if the table grows, at least.
const GROWTH_LINES_MIN: u64 = 64;

/// Updates and lookups of a phase.
const OPERATIONS_MAX: u64 = 100_000;

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

/// A table, and how many entries its inserts have moved.
trait Table: Index<u64> + Sized {
    const TITLE: &'static str;

    fn options() -> PoolOptions;

    fn make(pool: &Pool, plan: Plan) -> Result<Self>;

    fn moved(&self) -> u64;
}

macro_rules! table {
    ($kind:ty, $title:literal) => {
        impl Table for $kind {
            const TITLE: &'static str = $title;

            fn options() -> PoolOptions {
                <$kind>::pool_options()
            }

            fn make(pool: &Pool, plan: Plan) -> Result<Self> {
                <$kind>::create(pool, plan)
            }

            fn moved(&self) -> u64 {
                self.moves()
            }
        }
    };
}

table!(LevelHash, "Level hashing");
table!(Bch, "BCH");
table!(Pfht, "PFHT");
table!(PathHash, "Path hashing");

/// Movements and modelled times of all four.
pub(crate) fn baselines(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 2000);
    let about = format!(
        "{entries} entries; modelled times per operation, and per entry of the last growth, which \
         the inserts do not include"
    );
    let columns = [
        column("moved", "%", 2),
        column("insert", "ns", 0),
        column("update", "ns", 0),
        column("search", "ns", 0),
        column("missing", "ns", 0),
        column("growth", "ns", 0),
    ];
    let mut rows = Rows::new(about, &["medium", "table"], columns).headings(1);
    for preset in [Preset::DRAM, NVM] {
        measure::<LevelHash>(preset, entries, &mut rows)?;
        measure::<Bch>(preset, entries, &mut rows)?;
        measure::<Pfht>(preset, entries, &mut rows)?;
        measure::<PathHash>(preset, entries, &mut rows)?;
    }
    Ok(vec![rows.note(
        "slides: 1.2 % of Level hashing's inserts move an entry (four slots in a bucket; three \
         here); its inserts are 1.4 to 3.0 times as fast as the others', its growth 4.3 times; its \
         searches are close to BCH's and faster than PFHT's and path hashing's",
    )])
}

fn measure<T: Table>(preset: Preset, entries: u64, rows: &mut Rows) -> Result<()> {
    let preset = behind(preset, entries as f64 * CACHE_BYTES_OF_ENTRY);
    let model = Arc::new(Mutex::new(Model::new(preset)));
    let pool = Pool::anonymous(PoolOptions {
        size: (64 << 20) + entries * 512,
        watcher: Some(model.clone()),
        ..T::options()
    })?;
    let plan = Plan {
        capacity: entries / 64,
        seed: Some(1),
    };
    let table = T::make(&pool, plan)?;
    let (mut inserts_ns, mut growth_ns) = (0, 0);
    for number in 0..entries {
        let before = counted(&model);
        table.insert(&key_of(number), number)?;
        let costs = counted(&model) - before;
        // No insert that leaves the table as large as it is writes nearly so much.
        if costs.wpq_inserts() < GROWTH_LINES_MIN {
            inserts_ns += costs.estimated_ns;
        } else {
            // The last time, from half of the entries or more on, counts.
            growth_ns = costs.estimated_ns / number.max(1);
        }
    }
    let moved = table.moved() as f64 * 100.0 / entries as f64;
    let operations = entries.min(OPERATIONS_MAX);
    let time = |operation: &dyn Fn(u64) -> Result<Option<u64>>| -> Result<u64> {
        let before = counted(&model);
        for number in 0..operations {
            operation(key_of(number * 7919 % entries))?;
        }
        Ok((counted(&model) - before).estimated_ns / operations)
    };
    let update = time(&|key| table.update(&key, 1))?;
    let search = time(&|key| table.get(&key))?;
    let missing = time(&|key| table.get(&!key))?;
    let insert = inserts_ns / entries;
    let times = [insert, update, search, missing, growth_ns].map(|ns| ns as f64);
    rows.row(&[preset.name, T::TITLE], [&[moved][..], &times].concat());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each table has a row for each medium, and path hashing moves nothing.
    #[test]
    fn all_tables_are_compared() {
        let tables = baselines(Scale(0.000_1)).unwrap();
        let moved: Vec<_> = tables[0].numbers("moved").collect();
        assert_eq!(moved.len(), 8, "{moved:#?}");
        for (row, moved) in moved {
            assert_eq!(moved > 0.0, row.at[1] != PathHash::TITLE, "{row:?}");
        }
    }
}
