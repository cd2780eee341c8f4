//! A table whose inserts all replace a segment: whatever the suite does to an index it does to
//! segments that are replaced, each of which is a line of the medium where few entries are planned.

use gabion_media::pmem::Pool;

use super::Cceh;
use crate::extendible::uneven::uneven_key;
use crate::index::{IndexPlan, Makers};
use crate::registered::Registered;
use crate::spoton::search_starts::told;
use crate::suite::renewed::{OutOfPlace, Renewed};
use crate::suite::{Keys, crash};
use crate::{OrderedIndex, Result};

/// Recovery of such a table knows of segments that are replaced.
type Table = Cceh<true>;

impl OutOfPlace for Table {
    fn put(&self, key: u64, value: u64) -> Result<()> {
        self.insert_all(&[(key, value)])
    }

    fn order_of(_renewed: &Renewed<Self>) -> Option<&dyn OrderedIndex<u64>> {
        None
    }
}

fn renewed<const IS_CACHED: bool>(table: Result<Table>) -> Result<Box<Renewed<Table>>> {
    let table = told::<IS_CACHED, _>(table, |table| Ok(table.cached()))?;
    Ok(Box::new(Renewed::with(*table)))
}

const fn registered<const IS_CACHED: bool>(name: &'static str) -> Registered {
    let words = Makers {
        pool_options: Table::pool_options,
        create: |pool: &Pool, plan: IndexPlan| Ok(renewed::<IS_CACHED>(Table::create(pool, plan))?),
        open: |pool: &Pool| Ok(renewed::<IS_CACHED>(Table::open(pool))?),
        create_ordered: None,
    };
    Registered::hash_of_words(name, "", "", words)
}

/// The table.
pub(crate) static TINY_RENEWED: Registered = registered::<false>("cceh-o-tiny");

/// The same with its directory in DRAM.
pub(crate) static TINY_RENEWED_CACHED: Registered = registered::<true>("cceh-oc-tiny");

/// The entries of a segment lie in several lines of the directory, so that a crash finds any of
/// them changed and others not.
#[test]
fn power_failures_in_replacements_over_many_lines_of_the_directory_lose_nothing() {
    for index in [&TINY_RENEWED, &TINY_RENEWED_CACHED] {
        crash::survive(Keys {
            name: index.name,
            makers: &index.words,
            key: uneven_key,
        });
    }
}
