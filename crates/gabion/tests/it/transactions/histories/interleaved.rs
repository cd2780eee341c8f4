//! Histories of one thread that has several transactions open: all follows from the seed.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use gabion::{Db, Durability, Engine, Isolation, Options};
use gabion_media::{Disk, SimDisk, Tear};

use super::client::{Client, Open};
use super::record::{History, Key, Record, Value};
use crate::support::{SeededRng, Totals, small_options, small_tuning, with_little_memory};

/// Steps of a history at most.
const STEPS: u64 = 400;

/// Operations of the disk before a loss of power that it may take back.
const LOST_OPERATIONS: u64 = 200;

/// A history, and what its store did.
pub(super) struct Run {
    pub(super) history: History,
    pub(super) totals: Totals,
    pub(super) crashes: u64,
    /// Commits that a loss of power took back.
    pub(super) lost: u64,
}

/// What the keys of a history have after so many records.
struct State {
    records: usize,
    values: BTreeMap<Key, Value>,
}

/// What happens one after the other.
struct Interleaved<'h> {
    options: Options,
    random: SeededRng,
    sim: SimDisk,
    client: Client<'h>,
    ticks: &'h AtomicU64,
    open: Vec<Open>,
    records: Vec<Record>,
    /// After each write that took effect; first of all the empty one.
    states: Vec<State>,
    /// From which operation of this disk on how many of the states are durable.
    durable: Vec<(u64, usize)>,
    totals: Totals,
    crashes: u64,
    lost: u64,
}

/// Options of a store that a few hundred writes flush, compact, split and join.
pub(super) fn options_of(engine: Engine, random: &mut SeededRng) -> Options {
    let memtables = [2 << 10, 4 << 10, 16 << 10, 64 << 10][random.index(4)];
    let log_bytes_max = [2 << 10, 16 << 10, 64 << 10][random.index(3)];
    small_options()
        .engine(engine)
        .tuning(
            small_tuning()
                .memtable_budget_bytes(memtables)
                .bucket_bytes([2 << 10, 4 << 10, 8 << 10][random.index(3)])
                .sublevels_max([2, 4][random.index(2)])
                .split_ways([2, 4][random.index(2)]),
        )
        .log_bytes_max(log_bytes_max)
}

/// The history of a seed.
pub(super) fn run(engine: Engine, isolation: Isolation, seed: u64) -> Run {
    let mut random = SeededRng::new(seed);
    let options = with_little_memory(options_of(engine, &mut random), seed);
    let (sim, ticks) = (SimDisk::recording(), AtomicU64::new(1));
    let client = Client::new(open(&sim, &options), isolation, &ticks);
    client.db.persist(Durability::Sync).expect("a sync");
    let beginning = State {
        records: 0,
        values: BTreeMap::new(),
    };
    let mut run = Interleaved {
        options,
        durable: vec![(sim.ops(), 1)],
        sim,
        client,
        ticks: &ticks,
        open: Vec::new(),
        records: Vec::new(),
        states: vec![beginning],
        totals: Totals::default(),
        crashes: 0,
        lost: 0,
        random,
    };
    let open_max = 2 + run.random.index(5);
    for _ in 0..STEPS / 4 + run.random.below(STEPS * 3 / 4) {
        run.step(open_max);
    }
    run.end()
}

fn open(sim: &SimDisk, options: &Options) -> Db {
    Db::open_on(Disk::simulated(sim), options.clone()).expect("the store opens")
}

impl Interleaved<'_> {
    fn step(&mut self, open_max: usize) {
        let level = match self.random.one_in(6) {
            true => Durability::Sync,
            false => Durability::Buffered,
        };
        let (client, random) = (&self.client, &mut self.random);
        match random.below(100) {
            0..4 => {
                let record = client.write_plainly(random, level);
                self.wrote(record, level);
            }
            4 => {
                let record = client.update(random, level);
                self.wrote(record, level);
            }
            5 if client.db.engine().capabilities().ingest => {
                let record = client.ingest(random);
                self.wrote(record, Durability::Sync);
            }
            6 | 7 => {
                let record = client.read_all();
                self.records.push(record);
            }
            8 | 9 => client.fill(random),
            10..14 => client.move_data(random),
            14 if random.one_in(3) => self.crash(),
            15..35 if self.open.len() < open_max => {
                let begun = client.begin();
                self.open.push(begun);
            }
            _ if self.open.is_empty() => {}
            20..36 => {
                let ended = self.open.swap_remove(random.index(self.open.len()));
                if random.one_in(12) {
                    self.records.push(client.roll_back(ended));
                } else {
                    let record = client.commit(ended, level);
                    self.wrote(record, level);
                }
            }
            _ => {
                let at = random.index(self.open.len());
                client.step(&mut self.open[at], random);
            }
        }
    }

    /// Notes what may have taken effect.
    fn wrote(&mut self, record: Record, level: Durability) {
        let takes_effect = record.is_committed && !record.writes.is_empty();
        let mut values = self.states[self.states.len() - 1].values.clone();
        for write in &record.writes {
            match &write.value {
                Some(value) => drop(values.insert(write.key, value.clone())),
                None => values.entry(write.key).or_default().push(write.number),
            }
        }
        self.records.push(record);
        if takes_effect {
            values.retain(|_, value| !value.is_empty());
            self.states.push(State {
                records: self.records.len(),
                values,
            });
            if level == Durability::Sync {
                self.durable.push((self.sim.ops(), self.states.len()));
            }
        }
    }

    /// The store is closed, or its process ends, or the power goes; then it is opened again.
    fn crash(&mut self) {
        self.open.clear();
        self.totals.add(&self.client.db.stats());
        let all = self.states.len();
        let (sim, least) = match self.random.below(4) {
            0 => {
                self.client.db.clone().close().expect("a close");
                (self.sim.process_kill(self.sim.ops()), all)
            }
            1 => (self.sim.process_kill(self.sim.ops()), all),
            _ => {
                let now = self.sim.ops();
                let back = self.random.below(LOST_OPERATIONS);
                let at = now.saturating_sub(back).max(self.durable[0].0);
                let durable = self.durable.iter().rev().find(|(ops, _)| *ops <= at);
                let style = Tear::ALL[self.random.index(Tear::ALL.len())];
                let image = self.sim.power_cut(at, self.random.word(), style);
                (image, durable.expect("the beginning is durable").1)
            }
        };
        self.sim = sim;
        let db = open(&self.sim, &self.options);
        self.client = Client::new(db, self.client.isolation, self.ticks);
        let found = self.client.read_all();
        let found = found
            .reads
            .into_iter()
            .filter(|read| !read.value.is_empty());
        let found: BTreeMap<Key, Value> = found.map(|read| (read.key, read.value)).collect();
        let is_found = |state: &State| state.values == found;
        let kept = self
            .states
            .iter()
            .rposition(is_found)
            .map_or(0, |at| at + 1);
        assert!(
            kept >= least,
            "{kept} of {all} states, of which {least} were durable; found {found:?}"
        );
        self.crashes += 1;
        self.lost += (all - kept) as u64;
        self.states.truncate(kept);
        self.records.truncate(self.states[kept - 1].records);
        // What was found is durable from now on.
        self.client.db.persist(Durability::Sync).expect("a sync");
        self.durable = vec![(self.sim.ops(), kept)];
    }

    /// Ends what is open, and reads all.
    fn end(mut self) -> Run {
        while let Some(open) = self.open.pop() {
            let record = self.client.commit(open, Durability::Buffered);
            self.records.push(record);
        }
        self.records.push(self.client.read_all());
        self.totals.add(&self.client.db.stats());
        self.client.db.clone().close().expect("a close");
        Run {
            history: History {
                isolation: self.client.isolation,
                records: self.records,
            },
            totals: self.totals,
            crashes: self.crashes,
            lost: self.lost,
        }
    }
}
