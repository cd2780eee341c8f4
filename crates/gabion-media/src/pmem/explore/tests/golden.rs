//! Golden persist traces.

use super::super::{OpOutcome, Run, Subject, SubjectMedium};
use super::{HistoryStep, Words};

/// A counter, and a copy of it in another line.
struct Counter;

impl Subject for Counter {
    type Op = u64;
    type Structure = Words;
    type Content = u64;

    fn bytes(&self) -> u64 {
        4096
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Words, String> {
        Ok(Words(stage.medium()))
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Words>, String> {
        Ok(Some(Words(stage.medium())))
    }

    fn apply(&self, words: &Words, value: &u64) -> Result<OpOutcome, String> {
        words.0.write(256, &value.to_le_bytes());
        words.0.write_past_cache(512, &[7; 16]);
        words.set(64, *value);
        words.flush(256);
        words.persist(64);
        Ok(OpOutcome::Done)
    }

    fn content(&self, words: &Words) -> Result<u64, String> {
        Ok(words.get(64))
    }

    fn empty(&self) -> u64 {
        0
    }

    fn expect(&self, content: &mut u64, value: &u64) {
        *content = *value;
    }

    fn name(&self, _: &u64) -> &'static str {
        "count"
    }
}

#[test]
fn a_golden_trace_tells_each_way_of_an_operation_once() {
    let acts = [HistoryStep::Op(1), HistoryStep::Op(2), HistoryStep::Reopen];
    let run = Run::record(&Counter, "count", &[5], &acts).unwrap();
    let expected = "\
count
  st A+0..8 | nt B+0..16 | st C+0..8 | fl A C | fence
reopen
";
    assert_eq!(run.golden(), expected);
}
