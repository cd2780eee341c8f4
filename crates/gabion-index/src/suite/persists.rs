//! What the registry says of persists, counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_media::pmem::trace::{TraceEvent, TraceStep, Watcher};
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use crate::Seed;
use crate::index::IndexPlan;
use crate::registered::{PersistCounts, Registered};
use crate::registry;

/// Fences by thread.
#[derive(Default)]
struct Fences(Mutex<BTreeMap<u32, u64>>);

impl Watcher for Fences {
    fn event(&self, event: TraceEvent<'_>) {
        if event.step == TraceStep::Fence {
            *self.0.lock().entry(event.thread).or_default() += 1;
        }
    }
}

/// The median of the numbers of fences of some operations: few of them change the shape.
fn median(fences: &Fences, thread: u32, operations: impl Iterator<Item = impl FnOnce()>) -> u64 {
    let now = || fences.0.lock().get(&thread).copied().unwrap_or(0);
    let mut counts = Vec::new();
    for operation in operations {
        let before = now();
        operation();
        counts.push(now() - before);
    }
    counts.sort_unstable();
    counts.get(counts.len() / 2).copied().unwrap_or(0)
}

fn counted(index: &Registered) -> PersistCounts {
    let fences = Arc::new(Fences::default());
    let pool = Pool::anonymous(PoolOptions {
        size: 32 << 20,
        heaps: 4,
        watcher: Some(fences.clone()),
        ..(index.words.pool_options)()
    })
    .expect("memory");
    // Others may have threads of their own: only this one is counted.
    let thread = fences.0.lock().keys().copied().next().expect("a fence");
    let plan = IndexPlan {
        capacity: 4000,
        seed: Some(7),
    };
    let table = (index.words.create)(&pool, plan).expect("an index");
    // In no order, as sorted nodes move what is behind a place.
    let order = Seed::new(3);
    let key = |number: u64| order.hash_u64(number);
    for number in 0..1000 {
        table.insert(&key(2 * number), number).expect("space");
    }
    let insert = |number: u64| {
        let (table, key) = (&table, key(2 * number + 1));
        move || assert_eq!(table.insert(&key, 1).expect("space"), None)
    };
    let update = |number: u64| {
        let (table, key) = (&table, key(2 * number));
        move || assert_eq!(table.update(&key, 7).expect("space"), Some(number))
    };
    let remove = |number: u64| {
        let (table, key) = (&table, key(2 * number));
        move || assert_eq!(table.remove(&key).expect("sound"), Some(7))
    };
    PersistCounts {
        insert: median(&fences, thread, (0..500).map(insert)),
        update: median(&fences, thread, (0..500).map(update)),
        remove: median(&fences, thread, (0..500).map(remove)),
    }
}

#[test]
fn operations_persist_as_often_as_the_registry_says() {
    let mut wrong = Vec::new();
    for index in registry::all() {
        let counted = counted(index);
        if counted != index.persists {
            wrong.push(format!(
                "{}: {counted:?} and not {:?}",
                index.name, index.persists
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
