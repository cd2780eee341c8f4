//! Steps that are left out, each in turn: some image must show it. First every flush and every
//! fence of the store, then the steps of [`Step`]. A flush that only one durability needs shows
//! only there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use gabion_media::pmem::explore::{
    ExploreLimits, Explorer, History, Mutant, MutantOutcome, MutantReport, Run,
};

use super::super::steps::{Step, leave_out};
use super::concurrent;
use super::crash::{self, Small, few, histories, shortage, strict};
use super::relaxed::{Tail, relaxed};

type Content = std::collections::BTreeMap<u64, u64>;

/// Where the sources are.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Flushes and fences that nothing gives away, each with the reason.
const KNOWN: &[(&str, &str)] = &[
    (
        "fence in finish_enlarging of scmkv/enlarge.rs: \
         .store_persist(&self.medium, next.0, Ordering::Relaxed);",
        SAME_LINE,
    ),
    (
        "flush in finish_enlarging of scmkv/enlarge.rs: \
         .store_persist(&self.medium, next.0, Ordering::Relaxed);",
        SAME_LINE,
    ),
    (
        "fence in finish_enlarging of scmkv/enlarge.rs: \
         .store_persist(&self.medium, 0, Ordering::Relaxed);",
        "an opening finds that the next table is the table already",
    ),
    (
        "flush in finish_enlarging of scmkv/enlarge.rs: \
         .store_persist(&self.medium, 0, Ordering::Relaxed);",
        "an opening finds that the next table is the table already",
    ),
    (
        "flush in begin_enlarging of scmkv/enlarge.rs: block.commit::<PAtomicU64>();",
        COMMIT,
    ),
    (
        "flush in create of scmkv/recovery.rs: \
         let space = pool.alloc_aligned(header_bytes, LINE_BYTES, ROOT_HINT)?;",
        SAME_LINE,
    ),
    (
        "flush in move_bucket of scmkv/enlarge.rs: \
         bucket.store_persist(&self.medium, Entry::MOVED.0, Ordering::Release);",
        MEETING,
    ),
    (
        "fence in move_bucket of scmkv/enlarge.rs: \
         bucket.store_persist(&self.medium, Entry::MOVED.0, Ordering::Release);",
        MEETING,
    ),
    (
        "fence in redirect of scmkv/gc.rs: self.medium.fence();",
        "a fence of the release comes before the page goes",
    ),
    (
        "flush in begin of scmkv/pages.rs: medium.flush(descriptor);",
        SAME_LINE,
    ),
    (
        "flush in close_page of scmkv/pages.rs: medium.flush(descriptor);",
        SAME_LINE,
    ),
    (
        "fence in close_page of scmkv/pages.rs: \
         .store_persist(medium, place.0, Ordering::Relaxed);",
        "an open page is read again, and found to be sound",
    ),
    (
        "flush in close_page of scmkv/pages.rs: \
         .store_persist(medium, place.0, Ordering::Relaxed);",
        "an open page is read again, and found to be sound",
    ),
    (
        "fence in persist_and_mark of scmkv/pages.rs: \
         .store_persist(medium, head.tail, Ordering::Relaxed);",
        "the mark tells damage from what was lost, and here is no damage",
    ),
    (
        "flush in persist_and_mark of scmkv/pages.rs: \
         .store_persist(medium, head.tail, Ordering::Relaxed);",
        "the mark tells damage from what was lost, and here is no damage",
    ),
    (
        "fence in set_closed of scmkv/recovery.rs: \
         .store_persist(&self.medium, word, Ordering::Relaxed);",
        "the next put has a fence before anything refers to its record",
    ),
];

/// As the reason says.
const SAME_LINE: &str = "what is stored next lies in the same line and is flushed";
/// As the reason says.
const COMMIT: &str = "the intent stands for the state until the line is flushed again";

/// As the reason says; the last test of this file lets them meet.
const MEETING: &str = "shows only where threads meet";

fn is_of_store(mutant: &Mutant) -> bool {
    match mutant {
        Mutant::Place(place, _) => place.file().contains("src/scmkv/"),
        Mutant::Number(..) => false,
    }
}

/// What becomes of each mutant of the store in the runs of a durability.
fn tried(subject: &Small, runs: &[&dyn History<Content>]) -> Vec<MutantOutcome> {
    // A single failure is enough for most, and costs a tenth of two.
    let limits = ExploreLimits { depth: 1, ..few() };
    let mut explorer = Explorer::new(subject, limits);
    for run in runs {
        let report = explorer.explore(*run);
        assert!(report.is_clean(), "{report}");
    }
    let all = explorer.places().into_iter().filter(is_of_store);
    all.map(|mutant| explorer.try_mutant(mutant, runs))
        .collect()
}

#[test]
fn a_store_without_one_of_its_flushes_or_fences_is_caught() {
    let (strict, relaxed) = (strict(), relaxed());
    let all: Vec<crash::History> = histories().into_iter().chain([shortage()]).collect();
    let record =
        |(name, setup, acts): &crash::History| Run::record(&strict, name, setup, acts).expect(name);
    let runs: Vec<Run<Small>> = all.iter().map(record).collect();
    let runs: Vec<&dyn History<Content>> = runs.iter().map(|run| run as _).collect();
    let tails: Vec<Tail> = histories()
        .iter()
        .map(|history| Tail::record(&relaxed, history))
        .collect();
    let tails: Vec<&dyn History<Content>> = tails.iter().map(|tail| tail as _).collect();
    let mut report = MutantReport {
        tried: tried(&strict, &runs),
    };
    for other in tried(&relaxed, &tails) {
        let same = |tried: &&mut MutantOutcome| tried.mutant == other.mutant;
        match report.tried.iter_mut().find(same) {
            Some(tried) if tried.caught.is_none() => *tried = other,
            Some(_) => {}
            None => report.tried.push(other),
        }
    }
    println!("{report}");
    let compared = report.compare_survivors(Path::new(ROOT), KNOWN);
    compared.unwrap_or_else(|error| panic!("{error}"));
}

/// Whether the histories of a relaxed store give away that a step is left out: while they are
/// recorded, or by an image.
fn is_missed(step: Step) -> Option<String> {
    let _left_out = leave_out(step);
    let subject = relaxed();
    let limits = ExploreLimits {
        violations: 1,
        ..few()
    };
    let mut explorer = Explorer::new(&subject, limits);
    histories().iter().find_map(|history| {
        // Without the step the store itself may find that something is wrong.
        let tail = catch_unwind(AssertUnwindSafe(|| Tail::record(&subject, history)));
        let Ok(tail) = tail else {
            return Some(format!("{}: the run itself", history.0));
        };
        let report = explorer.explore(&tail);
        let violation = report.violations.into_iter().next()?;
        Some(format!("{}: {}", history.0, violation.message))
    })
}

#[test]
fn a_store_without_one_of_its_steps_is_caught() {
    for step in Step::ALL {
        let missed = is_missed(step);
        println!("without {step:?}: {missed:?}");
        assert!(missed.is_some(), "{step:?} is not missed");
    }
}

/// Runs of several threads until both mutants of [`MEETING`] have been caught.
const MEETINGS_MAX: u64 = 400;

/// That a bucket has moved is needed by those who write to it before the table has doubled.
#[test]
fn that_a_bucket_has_moved_is_missed_where_threads_meet() {
    let subject = concurrent::subject();
    let limits = ExploreLimits { depth: 1, ..few() };
    let is_of_meetings = |mutant: &Mutant| {
        let name = mutant.in_source(Path::new(ROOT));
        is_of_store(mutant) && KNOWN.contains(&(name.as_str(), MEETING))
    };
    let mut caught: Vec<Mutant> = Vec::new();
    for seed in 0..MEETINGS_MAX {
        let run = concurrent::doubling(&subject, seed);
        let mut explorer = Explorer::new(&subject, limits);
        let report = explorer.explore(&run);
        assert!(report.is_clean(), "seed {seed}: {report}");
        for mutant in explorer.places().into_iter().filter(is_of_meetings) {
            let is_new = !caught.contains(&mutant);
            if is_new
                && explorer
                    .try_mutant(mutant.clone(), &[&run])
                    .caught
                    .is_some()
            {
                println!("seed {seed}: {mutant}");
                caught.push(mutant);
            }
        }
        if caught.len() == 2 {
            return;
        }
    }
    panic!("{caught:?}");
}
