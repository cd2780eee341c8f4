//! Published bugs of pools, allocators and resizes that are no flush or fence left out, planted in
//! the use that the directory makes of its pool. (Those that are: see `mutants`.)

use super::super::super::{ExploreLimits, Explorer, HistoryStep, Report, Run};
use super::{Bug, Directory, Op, lazily, put, put_two, small};

fn explore(bug: Bug, acts: &[HistoryStep<Op>]) -> Report {
    let subject = Directory { bug, ..small() };
    let run = Run::record(&subject, "planted", &[], acts).unwrap();
    let limits = ExploreLimits {
        depth: 1,
        ..ExploreLimits::default()
    };
    Explorer::new(&subject, limits).explore(&run)
}

/// The same history is clean without the bug, and with it a violation says so.
#[track_caller]
fn assert_caught(bug: Bug, acts: &[HistoryStep<Op>], says: &str) {
    assert!(explore(Bug::Nothing, acts).is_clean());
    let report = explore(bug, acts);
    let mut messages = report.violations.iter().map(|violation| &violation.message);
    assert!(
        messages.any(|message| message.contains(says)),
        "no {says:?} in {report}"
    );
}

/// P-BwTree, and pools in general: given out durably, and nobody's after a crash.
#[test]
fn a_block_that_is_allocated_before_it_is_published_leaks() {
    let acts = [put(0, 48, 1), put(1, 48, 2)];
    assert_caught(Bug::CommittedBeforePublish, &acts, "in use");
}

/// P-CLHT: the old table is leaked around a resize.
#[test]
fn a_block_that_is_announced_after_its_end_leaks() {
    let acts = [put(0, 48, 1), put(0, 304, 2)];
    assert_caught(Bug::AnnouncedTooLate, &acts, "in use");
}

/// P-CLHT: the old table is freed while a crash can still bring it back.
#[test]
fn a_block_that_is_freed_before_its_end_has_two_owners() {
    let acts = [put(0, 48, 1), lazily(0, 304, 2)];
    assert_caught(Bug::FreedBeforeUnpublished, &acts, "in use");
}

/// P-HOT: what is done goes to the wrong address.
#[test]
fn an_intent_that_looks_at_the_wrong_place_leaks() {
    assert_caught(Bug::WrongHint, &[put(0, 48, 1)], "in use");
}

/// CCEH: doubling publishes the directory before it is there.
#[test]
fn a_directory_that_is_published_before_its_entries_are_in_it_loses_them() {
    let acts = [put(0, 48, 1), put(3, 48, 2), HistoryStep::Op(Op::Move)];
    assert_caught(Bug::PublishedBeforeCopied, &acts, "");
}

/// P-CLHT: the overflow bucket comes after what refers to it; level hashing, FAST&FAIR: one change
/// is made by two stores.
#[test]
fn a_pair_that_is_published_in_two_steps_is_torn() {
    assert_caught(Bug::SecondTooLate, &[put_two(2, 304, 1)], "it holds");
}
