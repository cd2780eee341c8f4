//! A linked stack on a heap: published bugs of allocators, chains and constructors.

use super::super::{ExploreLimits, Explorer, OpOutcome, Subject, SubjectMedium};
use super::heap::{BITMAP, MAGIC, ROOT, bit, find};
use super::{HistoryStep, Run, Words, assert_caught, assert_clean};

/// What is wrong with a stack, and of which published bug that is the kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// P-CLHT: the chain's new bucket is linked before it is durable.
    NodeNotFlushed,
    /// P-HOT: published without a fence.
    NoFenceBeforeLink,
    /// FAST&FAIR: the wrong line is flushed.
    WrongLine,
    /// P-BwTree: what the allocator has given out is not durable.
    BitmapNotFlushed,
    /// P-BwTree, memkind: given out, durable, but nobody's after a crash.
    Leak,
    /// P-CLHT: freed while it can still be reached; given out twice.
    FreedBeforeUnlinked,
    /// Pools: the constructor's stores are not flushed.
    ConstructorNotFlushed,
    /// Pools: the pool is taken for created before it is.
    CreatedTooEarly,
    /// Out of space is found only when something has changed.
    RefusedHalfway,
}

struct Stack(Bug);

impl Stack {
    /// The nodes in their order from the root on.
    fn nodes(words: &Words) -> Result<Vec<u64>, String> {
        let mut nodes = Vec::new();
        let mut at = words.get(ROOT);
        while at != 0 {
            if nodes.contains(&at) {
                return Err("the chain is a ring".to_owned());
            }
            nodes.push(at);
            at = words.get(at + 8);
        }
        Ok(nodes)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(u64),
    Pop,
}

impl Subject for Stack {
    type Op = Op;
    type Structure = Words;
    type Content = Vec<u64>;

    fn bytes(&self) -> u64 {
        4096
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Words, String> {
        let words = Words(stage.medium());
        if self.0 == Bug::CreatedTooEarly {
            words.set(0, MAGIC);
            words.persist(0);
        }
        // The word behind says that the root is valid, as constructors set more than zeros.
        for (offset, value) in [(BITMAP, 0), (ROOT, 0), (ROOT + 8, 1)] {
            words.set(offset, value);
            if self.0 != Bug::ConstructorNotFlushed {
                words.flush(offset);
            }
        }
        words.fence();
        words.set(0, MAGIC);
        words.persist(0);
        Ok(words)
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Words>, String> {
        let words = Words(stage.medium());
        if words.get(0) != MAGIC {
            return Ok(None);
        }
        if words.get(ROOT + 8) != 1 {
            return Err("the root is not valid".to_owned());
        }
        if self.0 != Bug::Leak {
            // What cannot be reached is free.
            let used = Stack::nodes(&words)?
                .iter()
                .fold(0, |used, node| used | bit(*node));
            let only_frees = words.get(BITMAP) & used == used;
            if words.get(BITMAP) != used && (only_frees || self.0 != Bug::BitmapNotFlushed) {
                words.set(BITMAP, used);
                words.persist(BITMAP);
            }
        }
        Ok(Some(words))
    }

    fn apply(&self, words: &Words, op: &Op) -> Result<OpOutcome, String> {
        let root = words.get(ROOT);
        match op {
            Op::Push(value) => {
                if self.0 == Bug::RefusedHalfway {
                    words.set(ROOT, 0);
                    words.persist(ROOT);
                }
                let Some(node) = find(words.get(BITMAP), 1) else {
                    return Ok(OpOutcome::Refused);
                };
                words.set(BITMAP, words.get(BITMAP) | bit(node));
                if self.0 != Bug::BitmapNotFlushed {
                    words.persist(BITMAP);
                }
                words.set(node, *value);
                words.set(node + 8, root);
                match self.0 {
                    Bug::NodeNotFlushed => {}
                    Bug::WrongLine => words.flush(node + 64),
                    _ => words.flush(node),
                }
                if self.0 != Bug::NoFenceBeforeLink {
                    words.fence();
                }
                words.set(ROOT, node);
                words.persist(ROOT);
            }
            Op::Pop if root == 0 => {}
            Op::Pop => {
                let next = words.get(root + 8);
                if self.0 == Bug::FreedBeforeUnlinked {
                    words.mark(bit(root), false);
                    // It is reused at once, as another thread might.
                    words.set(root + 8, 0);
                    words.persist(root);
                }
                words.set(ROOT, next);
                words.persist(ROOT);
                if self.0 != Bug::FreedBeforeUnlinked {
                    words.mark(bit(root), false);
                }
            }
        }
        Ok(OpOutcome::Done)
    }

    fn content(&self, words: &Words) -> Result<Vec<u64>, String> {
        let nodes = Stack::nodes(words)?;
        let reached = nodes.iter().fold(0, |used, node| used | bit(*node));
        let used = words.get(BITMAP);
        if used & !reached != 0 {
            return Err(format!("blocks {:#b} are leaked", used & !reached));
        }
        if reached & !used != 0 {
            return Err(format!("blocks {:#b} are free and in use", reached & !used));
        }
        Ok(nodes.iter().map(|node| words.get(*node)).collect())
    }

    fn empty(&self) -> Vec<u64> {
        Vec::new()
    }

    fn expect(&self, content: &mut Vec<u64>, op: &Op) {
        match op {
            Op::Push(value) => content.insert(0, *value),
            Op::Pop if content.is_empty() => {}
            Op::Pop => {
                content.remove(0);
            }
        }
    }

    fn name(&self, op: &Op) -> &'static str {
        match op {
            Op::Push(_) => "push",
            Op::Pop => "pop",
        }
    }

    fn probes(&self) -> Vec<Op> {
        vec![Op::Push(1001), Op::Push(1002), Op::Pop]
    }

    fn reports_loads(&self) -> bool {
        true
    }
}

fn ops() -> Vec<Op> {
    let mut ops = vec![Op::Pop];
    ops.extend((1..15).map(Op::Push));
    ops.extend([Op::Pop, Op::Pop, Op::Push(20), Op::Pop]);
    ops
}

#[test]
fn a_correct_stack_is_clean_also_when_it_is_full() {
    let report = assert_clean(&Stack(Bug::Nothing), &ops());
    for kind in ["create", "push", "pop"] {
        assert!(report.kinds[kind].images > 0, "{report}");
    }
    assert!(report.kinds["reopen"].points > 0, "{report}");
    assert!(report.total().nested > 0, "{report}");
}

#[test]
fn published_bugs_of_chains_are_caught() {
    assert_caught(&Stack(Bug::NodeNotFlushed), &ops(), "");
    assert_caught(&Stack(Bug::NoFenceBeforeLink), &ops(), "");
    assert_caught(&Stack(Bug::WrongLine), &ops(), "");
}

#[test]
fn published_bugs_of_allocators_are_caught() {
    assert_caught(&Stack(Bug::BitmapNotFlushed), &ops(), "are free and in use");
    assert_caught(&Stack(Bug::Leak), &ops(), "are leaked");
    assert_caught(&Stack(Bug::FreedBeforeUnlinked), &ops(), "");
}

#[test]
fn published_bugs_of_constructors_are_caught() {
    assert_caught(&Stack(Bug::ConstructorNotFlushed), &ops(), "does not open");
    assert_caught(&Stack(Bug::CreatedTooEarly), &ops(), "does not open");
}

#[test]
fn an_operation_that_is_refused_may_change_nothing() {
    let acts: Vec<HistoryStep<Op>> = ops().into_iter().map(HistoryStep::Op).collect();
    let recorded = Run::record(&Stack(Bug::RefusedHalfway), "full", &[], &acts);
    assert!(recorded.is_err());
}

#[test]
fn all_mutants_of_a_stack_are_caught_or_explained() {
    let stack = Stack(Bug::Nothing);
    let acts: Vec<HistoryStep<Op>> = ops().into_iter().map(HistoryStep::Op).collect();
    let run = Run::record(&stack, "stack", &[], &acts).unwrap();
    let mut explorer = Explorer::new(&stack, ExploreLimits::default());
    assert!(explorer.explore(&run).is_clean());
    let report = explorer.mutants(&[&run]);
    println!("{report}");
    let mut survivors: Vec<String> = report.survivors().map(ToString::to_string).collect();
    survivors.sort();
    println!("{survivors:#?}");
    // Recovery computes the bitmap anew, so that nothing ever depends on its being durable.
    assert!(report.caught() * 2 >= report.tried.len(), "{report}");
}
