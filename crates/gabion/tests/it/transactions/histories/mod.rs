//! Histories of transactions: what many of them read and wrote, and whether it can have been.
//!
//! A history is recorded (`client`), of one thread that has several transactions open, which
//! follows from a seed (`interleaved`), or of several threads (`threads`). A checker (`check`)
//! makes a graph of what depends on what, and looks for cycles. In between there are plain writes,
//! ingests, snapshots, flushes, compactions, splits, joins, and losses of power, of which a commit
//! that was not acknowledged is whole or gone.

mod check;
mod check_tests;
mod client;
mod graph;
mod interleaved;
mod record;
mod threads;

use gabion::{Engine, Isolation};

use crate::support::{PanicContext, Totals, base_seed, each_seed, setting};
use check::{Anomaly, worst};
use record::History;

/// So many histories have some of everything; fewer are run to look at a seed again.
const COVERING: u64 = 25;

/// What was found in histories.
#[derive(Debug, Default)]
struct Counts {
    histories: u64,
    committed: u64,
    conflicts: u64,
    /// Histories in which snapshots had write skew.
    skewed: u64,
    crashes: u64,
    lost: u64,
}

impl Counts {
    /// Counts a history, in which nothing is that its isolation forbids.
    fn add(&mut self, history: &History) {
        self.histories += 1;
        let committed = history.records.iter().filter(|record| record.is_committed);
        let committed = committed.count();
        self.committed += committed as u64;
        self.conflicts += (history.records.len() - committed) as u64;
        if let Some((anomaly, words)) = worst(history) {
            assert!(
                anomaly.is_allowed(history.isolation),
                "{anomaly:?}: {words}"
            );
            self.skewed += u64::from(anomaly != Anomaly::StaleSkew);
        }
    }

    fn merge(&mut self, other: &Counts) {
        self.histories += other.histories;
        self.committed += other.committed;
        self.conflicts += other.conflicts;
        self.skewed += other.skewed;
        self.crashes += other.crashes;
        self.lost += other.lost;
    }
}

/// Records and checks histories of one isolation and engine.
fn check_all(
    what: &str,
    engine: Engine,
    isolation: Isolation,
    histories: u64,
    run: impl Fn(u64, &mut Counts) -> Totals + Sync,
) -> (Counts, Totals) {
    let checked = each_seed(
        base_seed(),
        |begun| begun < histories,
        |seed| {
            let _context = PanicContext(|| format!("{what}: {engine}, {isolation:?}, seed {seed}"));
            let mut counts = Counts::default();
            let totals = run(seed, &mut counts);
            (counts, totals)
        },
    );
    let (mut counts, mut totals) = (Counts::default(), Totals::default());
    for (own, of_store) in &checked {
        counts.merge(own);
        totals.merge(of_store);
    }
    println!(
        "{what}: {engine}, {isolation:?} from seed {}, {counts:?}, {totals:?}",
        base_seed()
    );
    (counts, totals)
}

fn check_interleaved(engine: Engine) {
    let histories = setting("GABION_HISTORIES", 150);
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let run = |seed, counts: &mut Counts| {
            let run = interleaved::run(engine, isolation, seed);
            counts.add(&run.history);
            counts.crashes += run.crashes;
            counts.lost += run.lost;
            run.totals
        };
        let (counts, totals) = check_all("interleaved", engine, isolation, histories, run);
        if histories < COVERING {
            continue;
        }
        assert_eq!(
            counts.skewed > 0,
            isolation == Isolation::Snapshot,
            "{counts:?}"
        );
        assert!(counts.conflicts > histories && counts.committed > 20 * histories);
        assert!(counts.crashes > histories / 4 && counts.lost > histories / 20);
        assert!(totals.flushes > histories, "{totals:?}");
        let splits = totals.splits > histories / 4 && totals.joins > histories / 40;
        assert!(splits || engine != Engine::Wip, "{totals:?}");
    }
}

fn check_threads(engine: Engine) {
    let histories = setting("GABION_HISTORIES", 150) / 10;
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let run = |seed, counts: &mut Counts| {
            let (history, totals) = threads::run(engine, isolation, seed);
            counts.add(&history);
            totals
        };
        let (counts, totals) = check_all("threads", engine, isolation, histories, run);
        if histories < COVERING {
            continue;
        }
        assert_eq!(
            counts.skewed > 0,
            isolation == Isolation::Snapshot,
            "{counts:?}"
        );
        assert!(counts.conflicts > histories && counts.committed > 100 * histories);
        assert!(totals.flushes > histories, "{totals:?}");
    }
}

#[test]
fn interleaved_transactions_of_a_wip_store_have_an_order() {
    check_interleaved(Engine::Wip);
}

#[test]
fn interleaved_transactions_of_a_flex_store_have_an_order() {
    check_interleaved(Engine::Flex);
}

#[test]
fn transactions_of_threads_of_a_wip_store_have_an_order() {
    check_threads(Engine::Wip);
}

#[test]
fn transactions_of_threads_of_a_flex_store_have_an_order() {
    check_threads(Engine::Flex);
}
