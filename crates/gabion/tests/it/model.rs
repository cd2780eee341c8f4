//! The store against ordered maps: sequences of operations that proptest makes and shortens.
//!
//! Each sequence runs on a simulated disk under one of the option sets, which are so small that
//! splits, compactions and log turnover happen all the time. Snapshots and iterators are kept over
//! later operations and compared with what the maps held when they began. The process ends in the
//! middle, or the store is closed, and everything written must be there again. Transactions are
//! open beside all that, and their commits must say what the maps say.
//!
//! Bugs that this found and keeps from coming back:
//! - A writer that held iterators waited for ever for memory that only its own iterators held on
//!   to; so did one whose last look at the MemTables' memory was from before the flush it had
//!   waited for (option sets with threads).
//! - A job that a close interrupted counted as a failure, and the close reported a read-only store.
//! - Two threads found the same bucket full; the second one split it again after the first had
//!   replaced it, and the manifest refused (the option set with three threads).
//! - The log's keeper froze the MemTable of a bucket that had just been split; it waited for a
//!   second flush for ever, and `wait_idle` with it (option sets with threads, a few runs in ten).

mod action;
mod machine;
mod transactions;

use action::Action;
use proptest::collection::vec;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use gabion::{Engine, Options, TableReads};

use crate::support::{
    Totals, base_seed, drawn_options, option_sets, roomy_options, roomy_tuning, setting,
};

/// Operations per sequence.
const ACTIONS: std::ops::Range<usize> = 20..240;

/// Runs sequences under the option sets whose position leaves `part` when divided by `parts`.
fn run_part(engine: Engine, part: usize, parts: usize) -> Totals {
    let sets = option_sets(engine)
        .into_iter()
        .enumerate()
        .filter(|(number, _)| number % parts == part);
    run_sets(engine, sets, action::action)
}

/// Runs sequences of such actions under option sets, which have numbers.
fn run_sets<S: Strategy<Value = Action>>(
    engine: Engine,
    sets: impl Iterator<Item = (usize, Options)>,
    action: fn() -> S,
) -> Totals {
    let cases = u32::try_from(setting("GABION_CASES", 20)).expect("a small number of cases");
    let mut totals = Totals::default();
    for (number, options) in sets {
        let seed = base_seed() + number as u64;
        println!("model: {engine}, option set {number}, seed {seed}, {cases} cases");
        let config = Config {
            cases,
            failure_persistence: None,
            max_shrink_iters: 2_000,
            rng_seed: RngSeed::Fixed(seed),
            ..Config::default()
        };
        let mut seen = Totals::default();
        let seen_cell = std::cell::RefCell::new(&mut seen);
        let result = TestRunner::new(config).run(&vec(action(), ACTIONS), |actions| {
            let totals = machine::run(&options, &actions);
            seen_cell.borrow_mut().merge(&totals);
            Ok(())
        });
        if let Err(failure) = result {
            panic!("{engine}, option set {number}, seed {seed}, {options:?}: {failure}");
        }
        totals.merge(&seen);
    }
    println!("model: {engine}, {totals:?}");
    totals
}

/// The counts below make sure that a change of the engine's policies cannot turn these tests into
/// tests of MemTables without anybody noticing.
fn assert_covered(totals: &Totals) {
    let cases = setting("GABION_CASES", 20);
    assert!(totals.writes > 150 * cases, "{totals:?}");
    assert!(totals.flushes > 300 * cases, "{totals:?}");
    assert!(totals.compactions > 200 * cases, "{totals:?}");
    assert!(totals.splits > 50 * cases, "{totals:?}");
    assert!(totals.joins > 5 * cases, "{totals:?}");
    assert!(totals.log_segments > 120 * cases, "{totals:?}");
    assert_transacted(totals);
}

/// Commits are refused and take effect, and seldom the twin cannot say which.
fn assert_transacted(totals: &Totals) {
    let cases = setting("GABION_CASES", 20);
    assert!(totals.commits > 8 * cases, "{totals:?}");
    assert!(totals.conflicts > cases / 2, "{totals:?}");
    assert!(totals.undecided < totals.commits / 8, "{totals:?}");
}

#[test]
fn the_store_equals_its_twin_even_option_sets() {
    assert_covered(&run_part(Engine::Wip, 0, 2));
}

#[test]
fn the_store_equals_its_twin_odd_option_sets() {
    assert_covered(&run_part(Engine::Wip, 1, 2));
}

fn run_drawn(engine: Engine, sets: u64) -> Totals {
    let first = 100 * base_seed();
    let sets = (first..first + sets).map(|seed| drawn_options(engine, seed));
    run_sets(engine, sets.enumerate(), action::action)
}

#[test]
fn the_store_equals_its_twin_under_drawn_options() {
    let totals = run_drawn(Engine::Wip, 8);
    let cases = setting("GABION_CASES", 20);
    assert!(totals.flushes > 50 * cases, "{totals:?}");
    assert!(totals.compactions > 20 * cases, "{totals:?}");
}

#[test]
fn a_flex_store_equals_its_twin_under_drawn_options() {
    let totals = run_drawn(Engine::Flex, 6);
    let cases = setting("GABION_CASES", 20);
    assert!(totals.flushes > 20 * cases, "{totals:?}");
}

#[test]
fn mapped_stores_equal_their_twins_under_drawn_options() {
    for engine in [Engine::Scmkv, Engine::Sptree] {
        let totals = run_drawn(engine, 3);
        let cases = setting("GABION_CASES", 20);
        assert!(totals.writes > 50 * cases, "{totals:?}");
    }
}

#[test]
fn a_store_that_gathers_small_tables_equals_its_twin() {
    let sets = [
        roomy_options().table_reads(TableReads::Cached),
        roomy_options().tuning(roomy_tuning().sublevels_min(4).sublevels_max(6)),
        roomy_options().background_threads(2),
    ];
    let sets = sets.into_iter().enumerate();
    let totals = run_sets(Engine::Wip, sets, action::appending);
    let cases = setting("GABION_CASES", 20);
    assert!(totals.coalesced_tables > 20 * cases, "{totals:?}");
}

#[test]
fn a_store_that_ingests_equals_its_twin() {
    let sets = option_sets(Engine::Wip).into_iter().enumerate();
    let totals = run_sets(Engine::Wip, sets.step_by(2), action::ingesting);
    let cases = setting("GABION_CASES", 20);
    assert!(totals.splits > 20 * cases, "{totals:?}");
    assert!(totals.joins > 2 * cases, "{totals:?}");
}

#[test]
fn a_store_that_drops_keyspaces_equals_its_twin() {
    let sets = option_sets(Engine::Wip).into_iter().enumerate();
    let totals = run_sets(Engine::Wip, sets, action::dropping);
    let cases = setting("GABION_CASES", 20);
    assert!(totals.drops > 50 * cases, "{totals:?}");
    assert!(totals.splits > 5 * cases, "{totals:?}");
}

#[test]
fn a_flex_store_that_drops_keyspaces_equals_its_twin() {
    let sets = option_sets(Engine::Flex).into_iter().enumerate();
    let totals = run_sets(Engine::Flex, sets, action::dropping);
    let cases = setting("GABION_CASES", 20);
    assert!(totals.drops > 50 * cases, "{totals:?}");
    assert!(totals.flushes > 50 * cases, "{totals:?}");
}

#[test]
fn an_scmkv_store_equals_its_twin() {
    let totals = run_part(Engine::Scmkv, 0, 1);
    let cases = setting("GABION_CASES", 20);
    assert!(totals.writes > 100 * cases, "{totals:?}");
}

#[test]
fn an_sptree_store_equals_its_twin() {
    let totals = run_part(Engine::Sptree, 0, 1);
    let cases = setting("GABION_CASES", 20);
    assert!(totals.writes > 100 * cases, "{totals:?}");
    assert!(totals.splits > 5 * cases, "{totals:?}");
}

#[test]
fn a_flex_store_equals_its_twin() {
    let totals = run_part(Engine::Flex, 0, 1);
    let cases = setting("GABION_CASES", 20);
    assert!(totals.writes > 150 * cases, "{totals:?}");
    assert!(totals.flushes > 100 * cases, "{totals:?}");
    assert!(totals.log_segments > 60 * cases, "{totals:?}");
    assert_transacted(&totals);
}
