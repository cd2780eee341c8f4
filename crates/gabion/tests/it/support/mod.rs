//! What the tests share: random choices, the twin of a store, option sets, workloads.

mod copies;
mod options;
mod place;
mod subject;
mod twin;
mod workload;

pub(crate) use copies::assert_copies_beside_writers;
pub(crate) use gabion_media::seeded::{PanicContext, SeededRng, each_seed, setting};
pub(crate) use options::{
    Ticker, drawn_options, engines_on_disks, mapped, option_sets, roomy_options, roomy_tuning,
    small_mapped, small_options, small_tuning, tuned, with_little_memory,
};
pub(crate) use place::{Place, copy_with_holes, taken_bytes};
pub(crate) use subject::{
    KEYSPACES, Subject, Totals, assert_gone, assert_sound, assert_twin, existing_keyspace,
    keyspace, log_number, read_all,
};
pub(crate) use twin::{Bounds, Change, Operation, Pairs, Twin, bytes_of};
pub(crate) use workload::{Step, Workload};

/// Where all random choices begin.
pub(crate) fn base_seed() -> u64 {
    setting("GABION_SEED", 1)
}
