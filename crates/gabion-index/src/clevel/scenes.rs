//! Threads that meet at one entry in a certain order: each is stopped behind a step on the medium
//! until the others have come where they must be.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use gabion_media::pmem::explore::{ExploreLimits, Explorer, History, Mutant, Subject};
use gabion_media::pmem::trace::{Trace, TraceEvent, TraceStep};
use gabion_media::pmem::{Pool, PoolOptions, Region};

use super::layout::BUCKET_BYTES;
use super::places::homes;
use super::{Clevel, TINY};
use crate::suite::Keys;
use crate::suite::crash::limits_of;
use crate::suite::director::{Director, StepSite, flush, load, store};
use crate::suite::interleaved::Numbered;
use crate::suite::words::check;
use crate::{Index, IndexPlan};

type Table = Clevel<u64, 2>;

/// A table of two levels, and a key for which there is room in the last one only.
struct Scene {
    director: Arc<Director>,
    pool: Pool,
    table: Table,
    /// The number of the key among `keys`.
    number: u64,
    key: u64,
    hash: u64,
    keys: Keys<u64>,
    content: BTreeMap<u64, u64>,
}

impl Scene {
    fn new() -> Scene {
        let keys = Keys::words(&TINY).expect("words are keys");
        let director = Arc::new(Director::default());
        let region = Region::new(96 << 10);
        *director.trace.lock() = Trace::new(region.to_vec());
        let options = PoolOptions {
            heaps: 1,
            chunk_bytes: 4096,
            watcher: Some(director.clone()),
            ..Table::pool_options()
        };
        let pool = Pool::create_in(&region, options).expect("a pool in memory");
        let plan = IndexPlan {
            capacity: 8,
            seed: Some(7),
        };
        let table = Table::create(&pool, plan).expect("a table");
        let context = table.context();
        let (last, first) = (context.last(), context.first());
        let hash_of = |number: u64| table.seed.hash_u64((keys.key)(number));
        let is_in_first_bucket = |number: &u64| homes(last, hash_of(*number)) == [0, 0];
        let number = (0..).find(is_in_first_bucket).expect("one of four");
        let hash = hash_of(number);
        let mut content = BTreeMap::new();
        let neighbours = (number + 1..).filter(|other| {
            // They fill the places of the key in the first level.
            homes(first, hash_of(*other)) == homes(first, hash)
        });
        for other in neighbours {
            if table.free_place(first..=first, hash).is_none() {
                break;
            }
            table.insert(&(keys.key)(other), other).expect("space");
            content.insert(other, other);
        }
        assert_eq!(table.context(), context);
        let key = (keys.key)(number);
        Scene {
            director,
            pool,
            table,
            number,
            key,
            hash,
            keys,
            content,
        }
    }

    /// Where the buckets of the level with so many bits are.
    fn level(&self, bits: u32) -> Range<u64> {
        let at = |number| self.table.bucket_at(bits, number);
        at(0)..at(0) + (BUCKET_BYTES << bits)
    }

    /// Moves a bucket, as the insert does that comes first.
    fn move_one(&self) {
        let _moving = self.table.moving.lock();
        assert!(self.table.advance().expect("space"));
    }
}

/// What is done in one phase to one key, whose value before or after it may be found.
struct OneChange {
    trace: Trace,
    contents: [BTreeMap<u64, u64>; 2],
}

impl History<BTreeMap<u64, u64>> for OneChange {
    fn trace(&self) -> &Trace {
        &self.trace
    }

    fn judge(&self, _: usize, content: Option<&BTreeMap<u64, u64>>) -> Result<(), String> {
        match content {
            Some(content) if self.contents.contains(content) => Ok(()),
            _ => Err(format!("{content:?} is none of {:?}", self.contents)),
        }
    }

    fn demand(&self, phase: usize) -> u64 {
        phase as u64
    }

    fn name(&self) -> &str {
        "a scene"
    }

    fn is_explored(&self, phase: usize) -> bool {
        phase > 0
    }

    fn kind(&self, _: usize) -> &'static str {
        "update"
    }

    fn tell(&self, _: usize) -> String {
        "while an update is under way".to_owned()
    }

    fn step(&self, _: u32) -> &str {
        "update"
    }
}

/// An update has changed a word, which is not durable yet, and its bucket is moved. A crash then
/// left the item before it in the last level and the new one in another, and recovery, which knows
/// copies by their items, kept both. So the word is made durable before it is copied; if that is
/// left out, it shows.
#[test]
fn an_update_that_is_not_durable_is_not_moved() {
    let mut scene = Scene::new();
    let (table, director) = (&scene.table, &scene.director);
    table.insert(&scene.key, 1).expect("space");
    scene.content.insert(scene.number, 1);
    let level = scene.level(table.context().last());
    table.grow(table.context()).expect("space");
    scene.pool.begin_operation(0);
    let trace = std::thread::scope(|scope| {
        let behind_exchange = (store as StepSite, level.clone());
        let update = || table.update(&scene.key, 2).expect("space");
        let writer = director.start(scope, "writer", behind_exchange, update);
        scene.move_one();
        let trace = std::mem::take(&mut *director.trace.lock());
        director.finish("writer");
        assert_eq!(writer.join().expect("no panic"), Some(1));
        trace
    });
    assert_eq!(table.get(&scene.key).expect("sound"), Some(2));
    check(table, scene.content.len() as u64);
    let mut after = scene.content.clone();
    after.insert(scene.number, 2);
    let contents = [scene.content, after];
    let name = scene.keys.name;
    let subject = Numbered::new(scene.keys);
    assert_eq!(subject.bytes(), scene.pool.len());
    let limits = ExploreLimits {
        depth: 1,
        ..limits_of(name)
    };
    let mut explorer = Explorer::new(&subject, limits);
    let flushed = |event: TraceEvent<'_>| flush(event.step).is_some_and(|at| level.contains(&at));
    let is_before = |event: &TraceEvent<'_>| event.step != TraceStep::Begin { op: 0 };
    let flushes = trace
        .iter()
        .skip_while(is_before)
        .filter(|event| flushed(*event));
    let sites: Vec<_> = flushes.map(|event| event.site).collect();
    let site = sites.first().expect("a flush of the bucket");
    let run = OneChange { trace, contents };
    let report = explorer.explore(&run);
    assert!(report.is_clean(), "{report}");
    let is_persist = |mutant: &Mutant| match mutant {
        Mutant::Place(place, _) => (place.file(), place.line()) == (site.file(), site.line()),
        Mutant::Number(..) => false,
    };
    let mutants: Vec<_> = explorer.places().into_iter().filter(is_persist).collect();
    assert_eq!(mutants.len(), 2, "a flush and a fence");
    for mutant in mutants {
        let text = mutant.to_string();
        let tried = explorer.try_mutant(mutant, &[&run]);
        assert!(tried.caught.is_some(), "{text}");
    }
}

/// A writer looks at a slot before its key is there, and finds the copy in another level while the
/// entry in that slot is leaving. It then changed the copy alone: readers still found the old
/// value, and the item of it was free for others while a slot named it. So a writer that found a
/// key while levels change looks whether it is leaving.
#[test]
fn a_copy_is_not_changed_before_its_entry_has_left() {
    let scene = Scene::new();
    let (table, director) = (&scene.table, &scene.director);
    let context = table.context();
    let (last, new) = (context.last(), context.first() + 1);
    std::thread::scope(|scope| {
        // A mark makes an insert flush the places of its key before the item becomes the entry.
        let mark = table.pending.mark(scene.hash);
        let announced = (flush as StepSite, scene.level(last));
        let insert = || table.insert(&scene.key, 1).expect("space");
        let insert = director.start(scope, "insert", announced, insert);
        table.grow(context).expect("space");
        drop(mark);
        let before_copy = (load as StepSite, scene.level(new));
        let update = || table.update(&scene.key, 2).expect("space");
        let update = director.start(scope, "update", before_copy, update);
        director.finish("insert");
        assert_eq!(insert.join().expect("no panic"), None);
        let copied = (flush as StepSite, scene.level(new));
        let mover = director.start(scope, "mover", copied, || scene.move_one());
        // It looks at the last level again, or is through.
        let is_waiting = director.advance("update", load, scene.level(last));
        let found = table.get(&scene.key).expect("sound");
        director.finish("update");
        director.finish("mover");
        mover.join().expect("no panic");
        assert_eq!(update.join().expect("no panic"), Some(1));
        assert_eq!(found, Some(if is_waiting { 1 } else { 2 }));
    });
    assert_eq!(table.get(&scene.key).expect("sound"), Some(2));
    check(table, 1 + scene.content.len() as u64);
}

/// A visit does not show a key whose removal is not durable yet: so it makes that durable, or a
/// crash after the visit would bring the key back.
#[test]
fn what_a_visit_misses_is_durably_gone() {
    let scene = Scene::new();
    let (table, director) = (&scene.table, &scene.director);
    table.insert(&scene.key, 1).expect("space");
    let level = scene.level(table.context().last());
    std::thread::scope(|scope| {
        let behind_exchange = (store as StepSite, level.clone());
        let remove = || table.remove(&scene.key).expect("sound");
        let remover = director.start(scope, "remover", behind_exchange, remove);
        director.trace.lock().clear();
        let mut is_there = false;
        let visited = table.for_each(&mut |key, _| is_there |= *key == scene.key);
        let trace = std::mem::take(&mut *director.trace.lock());
        director.finish("remover");
        assert_eq!(remover.join().expect("no panic"), Some(1));
        visited.expect("sound");
        assert!(!is_there);
        let is_flush =
            |event: &TraceEvent<'_>| flush(event.step).is_some_and(|at| level.contains(&at));
        let steps = trace.iter().skip_while(|event| !is_flush(event));
        let fences = steps.filter(|event| event.step == TraceStep::Fence).count();
        assert!(fences > 0, "{trace:?}");
    });
}
