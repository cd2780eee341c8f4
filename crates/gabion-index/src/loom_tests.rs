//! The orderings of locks and marks, under loom: it runs the threads of a test in all orders, and
//! lets their loads find all values that the memory model allows.
//!
//! In each test a word of a medium is an atomic beside the lock, and another one says whether the
//! word is durable. Writers and readers do with them what the indexes do. They are loaded and
//! stored as weakly as the contracts of the locks allow.
//!
//! Of the accesses to an atomic loom remembers the last one, and tries the orders in which that
//! comes later. A writer who looks at a lock's word before it takes it makes loom forget the look
//! of a reader before, and no order is tried in which the reader looks at a lock that is held. So
//! threads mark their steps in a word of their own ([`Words::mark`]), without any ordering: loom
//! tries all orders of these marks, and with them all orders of what lies between.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::lock::{Stripe, StripeChange};
use crate::node_lock::{NodeGuard, NodeLocks};
use crate::pending::PendingCells;

/// Two words of a medium, and what of them is durable.
#[derive(Default)]
struct Words {
    one: AtomicU64,
    two: AtomicU64,
    durable: AtomicU64,
    marks: AtomicU64,
}

// ORDER: as the indexes do it: words of a medium are stored with release and loaded with acquire.
// What is durable is no word that threads exchange, so it is relaxed.
impl Words {
    /// Lets loom try all orders of what comes before and after this, and what others do between
    /// their marks. Relaxed: nobody sees anything by it.
    fn mark(&self) {
        self.marks.fetch_add(1, Ordering::Relaxed);
    }

    /// Stores both words, one after the other, and makes them durable.
    fn store(&self, value: u64) {
        self.one.store(value, Ordering::Release);
        self.mark();
        self.two.store(value, Ordering::Release);
        self.mark();
        self.persist(value);
    }

    fn persist(&self, value: u64) {
        self.durable.store(value, Ordering::Relaxed);
    }

    fn load(&self) -> (u64, u64) {
        (
            self.one.load(Ordering::Acquire),
            self.two.load(Ordering::Acquire),
        )
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }
}

/// Runs threads under loom, the last of them as the one that is there already.
fn run<S: Default + 'static>(threads: &'static [fn(&S)]) {
    loom::model(move || {
        let shared = Arc::new(S::default());
        let (last, others) = threads.split_last().expect("there are threads");
        let others: Vec<_> = others
            .iter()
            .map(|run| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || run(&shared))
            })
            .collect();
        last(&shared);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[derive(Default)]
struct Striped {
    stripe: Stripe,
    words: Words,
}

impl Striped {
    /// Reads beside a writer that stores a value in both words.
    fn read(&self) {
        self.words.mark();
        let seen = self.stripe.look();
        let (one, two) = self.words.load();
        self.words.mark();
        match self.stripe.since(seen) {
            StripeChange::Quiet => {
                assert_eq!(one, two, "nobody was at work");
                assert!(self.words.durable() >= one, "what is read is durable");
            }
            // In the middle of one operation, or nothing that means anything.
            StripeChange::Busy | StripeChange::Changed => {}
        }
    }

    fn write(&self) {
        let held = self.stripe.lock();
        self.words.mark();
        self.words.store(self.words.load().0 + 1);
        drop(held);
        self.words.mark();
    }
}

#[test]
fn a_stripe_tells_readers_of_a_writer() {
    run::<Striped>(&[Striped::write, Striped::read]);
}

#[test]
fn a_stripe_has_one_holder() {
    run::<Striped>(&[Striped::write, |shared| {
        shared.write();
        let _held = shared.stripe.lock();
        let (one, two) = shared.words.load();
        assert!(one == two && one >= 1, "{one} {two}");
    }]);
}

/// What a reader finds between two steps belongs to the time between them.
#[test]
fn a_step_makes_readers_look_again() {
    run::<Striped>(&[
        |shared| {
            let mut held = shared.stripe.lock();
            shared.words.mark();
            shared.words.one.store(1, Ordering::Release);
            held.step();
            shared.words.mark();
            shared.words.two.store(1, Ordering::Release);
            held.step();
            shared.words.mark();
            shared.words.one.store(2, Ordering::Release);
            drop(held);
            shared.words.mark();
        },
        |shared| {
            shared.words.mark();
            let seen = shared.stripe.look();
            let found = shared.words.load();
            shared.words.mark();
            if shared.stripe.since(seen) != StripeChange::Changed {
                let possible: &[(u64, u64)] = match seen {
                    0 => &[(0, 0)],
                    1 => &[(0, 0), (1, 0)],
                    3 => &[(1, 0), (1, 1)],
                    5 => &[(1, 1), (2, 1)],
                    _ => &[(2, 1)],
                };
                assert!(possible.contains(&found), "{seen}: {found:?}");
            }
        },
    ]);
}

#[derive(Default)]
struct Noded {
    locks: NodeLocks,
    words: Words,
}

/// A node of the tests.
const NODE: u64 = 64;

impl Noded {
    fn write(&self) {
        let lock = self.locks.lock(NODE);
        self.words.mark();
        self.words.store(self.words.load().0 + 1);
        drop(lock);
        self.words.mark();
    }

    fn read(&self) {
        self.words.mark();
        let before = self.locks.stamp(NODE);
        let (one, two) = self.words.load();
        self.words.mark();
        let after = self.locks.stamp(NODE);
        if before == after && !after.is_locked() {
            assert_eq!(one, two, "nobody wrote");
        }
        // Whoever reads without a look before knows by one afterwards what is durable.
        if !after.is_locked() {
            assert!(self.words.durable() >= one.max(two));
        }
    }
}

#[test]
fn a_stamp_tells_readers_of_a_writer() {
    run::<Noded>(&[Noded::write, Noded::read]);
}

#[test]
fn a_node_has_one_holder() {
    run::<Noded>(&[Noded::write, |shared| {
        shared.write();
        let lock = shared.locks.lock(NODE);
        let (one, two) = shared.words.load();
        assert!(one == two && one >= 1, "{one} {two}");
        let again = shared.locks.try_beside(&[&lock], NODE);
        drop(again);
        assert!(shared.locks.is_locked(NODE), "the first one holds it yet");
    }]);
}

/// An entry moves up from the first word to the second, then down again. A reader goes the way that
/// the turn tells; if no turn came in between, it has met the entry.
#[test]
fn a_turn_tells_readers_of_moves() {
    /// The entry is at the first word while that is 0, and at the second one while that is 1.
    fn is_met(one: u64, two: u64) -> bool {
        one == 0 || two == 1
    }
    run::<Noded>(&[
        |shared| {
            let (one, two) = (&shared.words.one, &shared.words.two);
            let lock: NodeGuard<'_> = shared.locks.lock(NODE);
            lock.set_turn(0);
            two.store(1, Ordering::Release);
            shared.words.mark();
            one.store(1, Ordering::Release);
            lock.set_turn(1);
            shared.words.mark();
            one.store(0, Ordering::Release);
            shared.words.mark();
            two.store(0, Ordering::Release);
            drop(lock);
            shared.words.mark();
        },
        |shared| {
            let load = |word: &AtomicU64| word.load(Ordering::Acquire);
            shared.words.mark();
            let before = shared.locks.stamp(NODE);
            let (one, two) = match before.turn() {
                0 => shared.words.load(),
                _ => {
                    let two = load(&shared.words.two);
                    (load(&shared.words.one), two)
                }
            };
            shared.words.mark();
            let after = shared.locks.stamp(NODE);
            if before.turns() == after.turns() {
                assert!(is_met(one, two), "{before:?}: {one} {two}");
            }
        },
    ]);
}

struct Marked {
    pending: PendingCells,
    words: Words,
}

impl Default for Marked {
    fn default() -> Marked {
        Marked {
            pending: PendingCells::new(),
            words: Words::default(),
        }
    }
}

/// A cell of the tests.
const CELL: u64 = 8;

impl Marked {
    fn write(&self, value: u64) {
        let mark = self.pending.mark(CELL);
        self.words.one.store(value, Ordering::Release);
        self.words.persist(value);
        drop(mark);
    }

    fn read(&self) {
        let one = self.words.one.load(Ordering::Acquire);
        if one == 1 && !self.pending.is_marked(CELL) {
            assert_eq!(self.words.durable(), 1, "no mark: the word is durable");
        }
    }
}

#[test]
fn a_word_without_a_mark_is_durable() {
    run::<Marked>(&[|shared| shared.write(1), Marked::read]);
}

/// Another cell's writer has the same mark.
#[test]
fn a_mark_that_cells_share_holds_for_both() {
    run::<Marked>(&[
        |shared| shared.write(1),
        |shared| drop(shared.pending.mark(CELL)),
        Marked::read,
    ]);
}
