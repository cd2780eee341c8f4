//! A leaf of a trie that gets another place while somebody reads it.
//!
//! A reader has found a leaf and not read its value yet. Another key comes, and the leaf is below a
//! new node now, whose lock guards its value. Somebody stores another value there, which is not
//! durable yet. The reader sees it, and asks the lock of the node that it came by, which is free:
//! its answer would be lost in a crash.

use std::ops::Range;

use gabion_media::pmem::trace::{LINE, TraceEvent, TraceStep};
use gabion_media::pmem::{Pool, PoolOptions};

use super::director::{StepSite, flush, load, store};
use super::fresh::directed_pool;
use crate::Index;

/// The key of the leaf, and one that parts from it where the leaf is.
pub(crate) const KEYS: [u64; 2] = [1 << 8, 1 << 8 | 1];

/// Plays that, with `read` to look up the first key: if it answers with the new value, it has made
/// that durable. `leaf_of` tells where the leaf is.
pub(crate) fn answers_are_durable<T: Index<u64>>(
    options: PoolOptions,
    create: fn(&Pool) -> crate::Result<T>,
    leaf_of: fn(&T) -> u64,
    read: fn(&T) -> Option<u64>,
) {
    let (director, pool) = directed_pool(96 << 10, options);
    let trie = create(&pool).expect("a trie");
    let [key, other] = KEYS;
    trie.insert(&key, 1).expect("space");
    let at = leaf_of(&trie);
    let leaf: Range<u64> = at..at + 16;
    std::thread::scope(|scope| {
        let at_leaf = (load as StepSite, leaf.clone());
        let reader = director.start(scope, "reader", at_leaf, || read(&trie));
        trie.insert(&other, 5).expect("space");
        let behind_store = (store as StepSite, leaf.clone());
        let update = || trie.update(&key, 2).expect("sound");
        let writer = director.start(scope, "writer", behind_store, update);
        director.trace.lock().clear();
        director.finish("reader");
        let answer = reader.join().expect("no panic");
        let trace = std::mem::take(&mut *director.trace.lock());
        director.finish("writer");
        assert_eq!(writer.join().expect("no panic"), Some(1));
        assert!(matches!(answer, Some(1 | 2)), "{answer:?}");
        let line = at / LINE * LINE..at / LINE * LINE + LINE;
        let is_flush =
            |event: &TraceEvent<'_>| flush(event.step).is_some_and(|at| line.contains(&at));
        let mut steps = trace.iter().skip_while(|event| !is_flush(event));
        let is_durable = steps.any(|event| event.step == TraceStep::Fence);
        assert!(answer == Some(1) || is_durable, "the answer may be lost");
    });
    assert_eq!(read(&trie), Some(2));
}
