//! Histories of several threads on a store with threads of its own.

use std::sync::atomic::AtomicU64;

use gabion::{Db, Durability, Engine, Isolation};
use gabion_media::{Disk, SimDisk};

use super::client::Client;
use super::interleaved::options_of;
use super::record::{History, Record};
use crate::support::{SeededRng, Totals};

/// Transactions and other writes of each thread.
const ROUNDS: u64 = 80;

/// A history of a seed, which says what each thread does, and not when.
pub(super) fn run(engine: Engine, isolation: Isolation, seed: u64) -> (History, Totals) {
    let mut random = SeededRng::new(seed);
    let options = options_of(engine, &mut random).background_threads(2);
    let db = Db::open_on(Disk::simulated(&SimDisk::new()), options).expect("the store opens");
    let ticks = AtomicU64::new(1);
    let client = Client::new(db, isolation, &ticks);
    let threads = 2 + random.below(3);
    let mut records: Vec<Record> = std::thread::scope(|scope| {
        let run_one = |thread| {
            let (client, seed) = (client.clone(), seed * 100 + thread);
            scope.spawn(move || rounds(&client, &mut SeededRng::new(seed)))
        };
        let running: Vec<_> = (1..=threads).map(run_one).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        let ended =
            ended.flat_map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect()
    });
    records.push(client.read_all());
    let mut totals = Totals::default();
    totals.add(&client.db.stats());
    client.db.clone().close().expect("a close");
    (History { isolation, records }, totals)
}

fn rounds(client: &Client<'_>, random: &mut SeededRng) -> Vec<Record> {
    let mut records = Vec::new();
    for _ in 0..ROUNDS {
        let level = match random.one_in(3) {
            true => Durability::Sync,
            false => Durability::Buffered,
        };
        match random.below(20) {
            0 => records.push(client.write_plainly(random, level)),
            1 => records.push(client.update(random, level)),
            2 => records.push(client.read_all()),
            3 => client.fill(random),
            4 => client.move_data(random),
            _ => {
                let mut open = client.begin();
                for _ in 0..1 + random.below(8) {
                    client.step(&mut open, random);
                    if random.one_in(3) {
                        std::thread::yield_now();
                    }
                }
                records.push(match random.one_in(20) {
                    true => client.roll_back(open),
                    false => client.commit(open, level),
                });
            }
        }
    }
    records
}
