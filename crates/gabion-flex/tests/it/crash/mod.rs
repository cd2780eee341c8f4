//! The explorer of power cuts: every state of the disk that a crash may leave is opened.
//!
//! A workload runs on a simulated disk that records its operations. For every operation the disk is
//! rebuilt as a power cut right after it may leave it: nothing unsynced kept, all kept, or sectors
//! of 512 or 4096 bytes and directory entries kept and lost at random. Each image must open and
//! hold the result of exactly the first `k` groups of changes: at least those that were synced by
//! then, at most those begun. Opening writes too, so the power is also cut during it, and during
//! the opening after that.

mod explore;
mod record;

use std::sync::atomic::{AtomicU64, Ordering};

use explore::{Counts, explore};
use record::{Recording, Totals};

use crate::support::{base_seed, each_seed, setting};

#[test]
fn a_power_cut_after_any_operation_leaves_a_prefix_with_all_that_was_synced() {
    let wanted = setting("GABION_FLEX_CRASH_POINTS", 15_000);
    let done = AtomicU64::new(0);
    // ORDER: Relaxed (both); the number stands for itself.
    let goes_on = |_| done.load(Ordering::Relaxed) < wanted;
    let sums = each_seed(base_seed(), goes_on, |seed| {
        let recording = Recording::new(seed);
        let counts = explore(&recording);
        done.fetch_add(counts.images(), Ordering::Relaxed);
        (counts, recording.totals)
    });
    let mut counts = Counts::default();
    let mut totals = Totals::default();
    for sum in sums {
        counts.merge(&sum.0);
        totals.merge(&sum.1);
    }
    println!(
        "crash: from seed {}, {} images, {counts:?}, {totals:?}",
        base_seed(),
        counts.images()
    );
    assert!(counts.images() >= wanted, "{counts:?}");
    assert!(counts.during_opening > wanted / 40, "{counts:?}");
    assert!(
        counts.lost > wanted / 20,
        "power cuts that lose nothing show nothing: {counts:?}"
    );
    assert!(counts.repeated > wanted / 20, "{counts:?}");
    // Per image, so that the coverage is the same for longer runs.
    assert!(totals.collections > wanted / 2_000, "{totals:?}");
    assert!(counts.fetched > wanted, "{counts:?}");
    assert!(
        totals.checkpoints > wanted / 400 && totals.commits > wanted / 100,
        "{totals:?}"
    );
}
