//! Closing a mapped store while others write.

use std::sync::Barrier;
use std::thread;

use gabion::{Durability, Error};

use crate::mapped::{directory, on_each_engine, options_of};
use crate::support::{PanicContext, Place};

fn key(number: u64) -> String {
    format!("key {number:05}")
}

/// A close and a synced write waited for each other for ever, or the write changed a pool that was
/// said to be closed. Whatever was acknowledged is there.
#[test]
fn synced_writes_end_before_the_store_closes() {
    const WRITERS: u64 = 4;
    on_each_engine(|engine| {
        for round in 0..12 {
            let _context = PanicContext(|| format!("round {round}"));
            let options = || options_of(engine).durability(Durability::Sync);
            let place = Place::of(engine);
            let db = options().open(directory(&place)).unwrap();
            let begin = Barrier::new(usize::try_from(WRITERS).unwrap() + 1);
            let written: Vec<u64> = thread::scope(|scope| {
                let writers: Vec<_> = (0..WRITERS)
                    .map(|writer| {
                        let (db, begin) = (db.clone(), &begin);
                        scope.spawn(move || {
                            let keyspace = db.keyspace(&format!("{writer}")).unwrap();
                            begin.wait();
                            for number in 0.. {
                                let done = match number % 8 {
                                    7 => db.persist(Durability::Sync),
                                    _ => keyspace.put(key(number), key(number)),
                                };
                                match done {
                                    Ok(()) => {}
                                    Err(Error::Closed) => return number,
                                    Err(error) => panic!("{error}"),
                                }
                            }
                            unreachable!("somebody closes")
                        })
                    })
                    .collect();
                begin.wait();
                thread::sleep(std::time::Duration::from_millis(round));
                db.clone().close().unwrap();
                let ends = writers.into_iter().map(|writer| writer.join().unwrap());
                ends.collect()
            });
            let db = options().open(directory(&place)).unwrap();
            for (writer, end) in written.into_iter().enumerate() {
                let keyspace = db.keyspace(&format!("{writer}")).unwrap();
                for number in (0..end).filter(|number| number % 8 != 7) {
                    let found = keyspace.get(key(number)).unwrap();
                    assert_eq!(found.as_deref(), Some(key(number).as_bytes()));
                }
            }
            db.close().unwrap();
        }
    });
}
