//! A pair of words, replaced as a whole: two slots, and a word that selects one of them.

use super::super::{CrashKind, ExploreLimits, Explorer, OpOutcome, Run, Subject, SubjectMedium};
use super::{HistoryStep, Words, assert_caught, assert_clean, explore};

/// What is wrong with a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// The slot is not flushed before it is selected.
    SlotNotFlushed,
    /// The slot is flushed, but not fenced before the selection is stored.
    NoFenceBetween,
    /// The flush goes to a line next to the slot.
    WrongLineFlushed,
    /// The selection is not flushed.
    SelectionNotFlushed,
    /// The pair is overwritten where it lies.
    InPlace,
    /// The magic is durable before what it vouches for.
    MagicFirst,
    /// A store goes to the memory and not through the medium.
    Bypass,
}

struct Cell(Bug);

const MAGIC: u64 = 0x6c6c_6563;
/// The magic, the selection, the slots: each in its own line.
const SELECTION: u64 = 64;
const SLOTS: u64 = 128;

fn slot(selection: u64) -> u64 {
    SLOTS + selection % 2 * 64
}

impl Subject for Cell {
    type Op = (u64, u64);
    type Structure = Words;
    type Content = (u64, u64);

    fn bytes(&self) -> u64 {
        4096
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Words, String> {
        let words = Words(stage.medium());
        let magic_first = self.0 == Bug::MagicFirst;
        if magic_first {
            words.set(0, MAGIC);
            words.persist(0);
        }
        for (offset, value) in [(SELECTION, 0), (SLOTS, 1), (SLOTS + 8, 2)] {
            words.set(offset, value);
            words.flush(offset);
        }
        words.fence();
        if !magic_first {
            words.set(0, MAGIC);
            words.persist(0);
        }
        Ok(words)
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Words>, String> {
        let words = Words(stage.medium());
        Ok((words.get(0) == MAGIC).then_some(words))
    }

    fn apply(&self, words: &Words, op: &(u64, u64)) -> Result<OpOutcome, String> {
        let selection = words.get(SELECTION) + u64::from(self.0 != Bug::InPlace);
        let at = slot(selection);
        words.set(at, op.0);
        if self.0 == Bug::Bypass {
            let at = usize::try_from(at + 8).map_err(|error| error.to_string())?;
            words.0.region().write(at, &op.1.to_le_bytes());
        } else {
            words.set(at + 8, op.1);
        }
        match self.0 {
            Bug::SlotNotFlushed => {}
            Bug::WrongLineFlushed => words.flush(at + 256),
            _ => words.flush(at),
        }
        if self.0 != Bug::NoFenceBetween {
            words.fence();
        }
        words.set(SELECTION, selection);
        if self.0 != Bug::SelectionNotFlushed {
            words.flush(SELECTION);
        }
        words.fence();
        Ok(OpOutcome::Done)
    }

    fn content(&self, words: &Words) -> Result<(u64, u64), String> {
        let at = slot(words.get(SELECTION));
        Ok((words.get(at), words.get(at + 8)))
    }

    fn empty(&self) -> (u64, u64) {
        (1, 2)
    }

    fn expect(&self, content: &mut (u64, u64), op: &(u64, u64)) {
        *content = *op;
    }

    fn name(&self, _: &(u64, u64)) -> &'static str {
        "replace"
    }

    fn probes(&self) -> Vec<(u64, u64)> {
        vec![(91, 92), (93, 94)]
    }

    fn reports_loads(&self) -> bool {
        true
    }
}

const OPS: [(u64, u64); 4] = [(3, 4), (5, 6), (7, 8), (9, 10)];

#[test]
fn a_correct_cell_is_clean_and_all_its_steps_are_covered() {
    let report = assert_clean(&Cell(Bug::Nothing), &OPS);
    for kind in ["create", "replace", "reopen"] {
        assert!(report.kinds.contains_key(kind), "{report}");
    }
    assert_eq!(report.kinds["replace"].sampled, 0);
    // A failure while the slot is written leaves four images that differ, but none that recovery
    // could tell apart: the slot is not selected. One is tried for each moment of that kind.
    let once = ExploreLimits {
        depth: 1,
        ..ExploreLimits::default()
    };
    let report = explore(&Cell(Bug::Nothing), &OPS, once);
    assert!(report.kinds["replace"].images <= 20, "{report}");
}

#[test]
fn each_bug_of_a_cell_is_caught() {
    assert_caught(&Cell(Bug::SlotNotFlushed), &OPS, "it holds");
    assert_caught(&Cell(Bug::NoFenceBetween), &OPS, "it holds");
    assert_caught(&Cell(Bug::WrongLineFlushed), &OPS, "it holds");
    assert_caught(&Cell(Bug::SelectionNotFlushed), &OPS, "it holds");
    assert_caught(&Cell(Bug::InPlace), &OPS, "it holds");
    assert_caught(&Cell(Bug::MagicFirst), &OPS, "it holds");
}

#[test]
fn a_store_that_bypasses_the_medium_is_found() {
    let acts = OPS.map(HistoryStep::Op);
    let error = Run::record(&Cell(Bug::Bypass), "bypass", &[], &acts).err();
    let error = error.expect("it is seen");
    assert!(error.contains("the word at 0xc8 was changed"), "{error}");
    assert!(error.contains("after (3, 4)"), "{error}");
}

#[test]
fn the_death_of_a_process_loses_no_store_but_tears_pairs() {
    let process = ExploreLimits {
        failure: CrashKind::Process,
        ..ExploreLimits::default()
    };
    for bug in [
        Bug::SlotNotFlushed,
        Bug::NoFenceBetween,
        Bug::SelectionNotFlushed,
    ] {
        let report = explore(&Cell(bug), &OPS, process);
        assert!(report.is_clean(), "{report}");
        assert!(report.images() > 10, "{report}");
    }
    assert!(!explore(&Cell(Bug::InPlace), &OPS, process).is_clean());
    assert!(!explore(&Cell(Bug::MagicFirst), &OPS, process).is_clean());
}

#[test]
fn every_flush_and_fence_of_a_cell_is_needed() {
    let cell = Cell(Bug::Nothing);
    let acts = OPS.map(HistoryStep::Op);
    let run = Run::record(&cell, "replace", &[], &acts).unwrap();
    let mut explorer = Explorer::new(&cell, ExploreLimits::default());
    assert!(explorer.explore(&run).is_clean());
    let report = explorer.mutants(&[&run]);
    println!("{report}");
    // In create: the flush in the loop, its fence, and `persist` of the magic in one place; in
    // apply two flushes and two fences.
    assert_eq!(report.tried.len(), 2 + 2 + 4);
    assert_eq!(report.survivors().count(), 0, "{report}");
    let numbered = explorer.numbered_mutants(&[&run]);
    println!("{numbered}");
    assert_eq!(numbered.tried.len(), 4 + 2 + 2 + 2);
    // In create, the first flush is that of a zero in a line of zeros, and the second that of a
    // line that the third flushes again.
    let survivors: Vec<String> = numbered.survivors().map(ToString::to_string).collect();
    assert_eq!(
        survivors,
        ["flush 0 of create", "flush 1 of create"],
        "{numbered}"
    );
}

#[test]
fn a_violation_is_told_with_the_fate_of_each_store() {
    let report = explore(&Cell(Bug::NoFenceBetween), &OPS, ExploreLimits::default());
    let text = report.to_string();
    for part in [
        "VIOLATION",
        "during step 1, (3, 4)",
        "LOST",
        "arrived",
        "POWER FAILS",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(
        text.contains("cell.rs:"),
        "the places in the source: {text}"
    );
    // The same seed finds the same.
    let again = explore(&Cell(Bug::NoFenceBetween), &OPS, ExploreLimits::default());
    assert_eq!(again.violations[0].context, report.violations[0].context);
    assert_eq!(again.kinds, report.kinds);
}
