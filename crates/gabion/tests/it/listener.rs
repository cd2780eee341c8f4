//! Who listens to the reports of a store is code of its user, and may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use gabion::{Durability, Error};
use gabion_media::{Disk, Fault, FaultKind, SimDisk};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{PanicContext, Subject, engines_on_disks, small_options};

/// Writers at a time.
const WRITERS: usize = 5;

/// Panics when a store reports anything, once all others are about to write.
struct Panics {
    writing: Arc<AtomicUsize>,
}

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        // ORDER: Relaxed: a number that stands for itself.
        while self.writing.load(Ordering::Relaxed) < WRITERS {
            std::thread::yield_now();
        }
        // Most of them wait by then behind the one that is here; whether or not, all come back.
        std::thread::sleep(Duration::from_millis(20));
        panic!("the listener");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A sync fails, and the leader of a group of writes panics while it says so: those who waited for
/// it did so for ever, and so did all who wrote later.
#[test]
fn writers_come_back_when_a_listener_panics() {
    for engine in engines_on_disks() {
        let _context = PanicContext(|| format!("{engine}"));
        let options = small_options()
            .engine(engine)
            .durability(Durability::Sync)
            .background_threads(0);
        let sim = SimDisk::new();
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        subject.keyspaces[0].put("before", "value").unwrap();
        sim.inject(Fault::forever(sim.ops() + 1, FaultKind::Eio));
        let writing = Arc::new(AtomicUsize::new(0));
        let (tell, told) = mpsc::channel();
        let threads = (0..WRITERS).map(|number| {
            let (writing, keyspace) = (Arc::clone(&writing), subject.keyspaces[0].clone());
            let tell = tell.clone();
            std::thread::spawn(move || {
                let panics = Panics {
                    writing: Arc::clone(&writing),
                };
                let write = || {
                    // ORDER: Relaxed, as above.
                    writing.fetch_add(1, Ordering::Relaxed);
                    keyspace.put(format!("{number}"), "value")
                };
                let write = || tracing::subscriber::with_default(panics, write);
                tell.send(catch_unwind(AssertUnwindSafe(write)).ok())
                    .unwrap();
            })
        });
        let threads: Vec<_> = threads.collect();
        let mut panicked = 0;
        for _ in 0..WRITERS {
            let outcome = told.recv_timeout(Duration::from_secs(60));
            match outcome.expect("a writer that comes back") {
                None => panicked += 1,
                Some(result) => drop(result.expect_err("a disk that fails")),
            }
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(panicked > 0, "nothing was reported");
        let refused = subject.keyspaces[0].put("later", "value").unwrap_err();
        assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
        let found = subject.keyspaces[0].get("before").unwrap();
        assert_eq!(found.as_deref(), Some(&b"value"[..]));
        sim.clear_faults();
        drop(subject);
        let again = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let found = again.keyspaces[0].get("before").unwrap();
        assert_eq!(found.as_deref(), Some(&b"value"[..]));
        again.keyspaces[0].put("later", "value").unwrap();
    }
}
