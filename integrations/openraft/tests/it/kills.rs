//! Three nodes of the example `registers`, which are killed while clients use them: what the
//! clients saw must be linearizable, and the nodes must agree in the end.
//!
//! `GABION_RAFT_KILLS` is how many rounds of kills there are, `GABION_SEED` what is drawn from.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gabion_media::seeded::{SeededRng, setting};

use crate::app::{Answer, Ask, Status, Swap};
use crate::checker::{Operation, check};

const CLIENTS: u64 = 3;

/// Registers that clients use in a round, and operations that a round waits for.
const REGISTERS: u64 = 3;
const OPERATIONS: u64 = 40;

/// After so long without any progress something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a client waits for an answer, which a node without a majority does not give.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Waits for something, and says what it was if it does not come.
fn until<T>(what: &str, mut is_there: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = is_there() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "this did not come: {what}");
        pause();
    }
}

struct Cluster {
    dir: tempfile::TempDir,
    addresses: Vec<String>,
    nodes: Vec<Option<Child>>,
}

impl Cluster {
    fn start() -> Cluster {
        // Bound together, so that they differ, and free again for the nodes. Connections come from
        // another address, so they do not take the port of a node that is not there.
        let listeners: Vec<_> = (0..3)
            .map(|_| TcpListener::bind("127.0.0.2:0").unwrap())
            .collect();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let mut cluster = Cluster {
            dir: tempfile::tempdir().unwrap(),
            addresses: listeners.iter().map(address).collect(),
            nodes: vec![None, None, None],
        };
        drop(listeners);
        (0..3).for_each(|node| cluster.start_node(node));
        cluster
    }

    fn start_node(&mut self, node: usize) {
        let id = (node + 1).to_string();
        let child = Command::new(example())
            .arg(&id)
            .arg(self.dir.path().join(&id))
            .args(&self.addresses)
            .spawn()
            .unwrap_or_else(|error| panic!("{error}; `cargo test` builds the example"));
        self.nodes[node] = Some(child);
    }

    /// Kills a node as the system does, by the signal that nobody can catch.
    fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// How far a node is, if it answers.
    fn status(&self, node: usize) -> Option<Status> {
        let mut connection = connect(&self.addresses[node]).ok()?;
        match ask(&mut connection, &Ask::Status).ok()? {
            Answer::Status(status) => Some(status),
            other => panic!("a status was asked for: {other:?}"),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..3).for_each(|node| self.kill(node));
    }
}

/// Where cargo puts the example when it builds the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    profile.join("examples/registers")
}

fn connect(address: &str) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn ask(connection: &mut BufReader<TcpStream>, ask: &Ask) -> io::Result<Answer> {
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    connection.get_mut().write_all(&line)?;
    line.clear();
    connection.read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// What clients and the test share.
#[derive(Default)]
struct Shared {
    clock: AtomicU64,
    round: AtomicU64,
    answered: AtomicU64,
    is_over: AtomicBool,
    /// The operations on each register.
    histories: Mutex<BTreeMap<String, Vec<Operation>>>,
}

impl Shared {
    fn tick(&self) -> u64 {
        // ORDER: SeqCst; a call that follows a return anywhere has a later moment.
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Waits until clients had some answers more.
    fn await_answers(&self) {
        let wanted = self.answered.load(Ordering::SeqCst) + OPERATIONS;
        until("answers to clients", || {
            (self.answered.load(Ordering::SeqCst) >= wanted).then_some(())
        });
    }
}

/// Swaps and reads registers, of this round most of the time, of the one before else.
fn run_client(number: u64, seed: u64, addresses: &[String], shared: &Shared) {
    let mut rng = SeededRng::new(seed ^ number);
    let mut node = 0;
    let mut connection = None;
    for count in 0_u64.. {
        if shared.is_over.load(Ordering::SeqCst) {
            return;
        }
        let round = shared.round.load(Ordering::SeqCst);
        let round = round.saturating_sub(u64::from(rng.one_in(4)));
        let name = format!("{round}.{}", rng.below(REGISTERS));
        let new = rng.one_in(2).then(|| format!("{number}.{count}"));
        let wanted = match new.clone() {
            Some(value) => Ask::Swap(Swap {
                name: name.clone(),
                value,
            }),
            None => Ask::Get { name: name.clone() },
        };
        if connection.is_none() {
            connection = connect(&addresses[node]).ok();
        }
        let Some(open) = connection.as_mut() else {
            node = (node + 1) % addresses.len();
            pause();
            continue;
        };
        let called = shared.tick();
        let answer = ask(open, &wanted);
        let returned = shared.tick();
        let found = match answer {
            Ok(Answer::Value(found)) => {
                shared.answered.fetch_add(1, Ordering::SeqCst);
                Some(found)
            }
            // The leader is elsewhere, or there is none.
            other => {
                node = (node + 1) % addresses.len();
                connection = None;
                pause();
                if new.is_none() || matches!(other, Ok(Answer::NotLeader)) {
                    continue;
                }
                None
            }
        };
        let mut histories = shared.histories.lock().unwrap();
        histories.entry(name).or_default().push(Operation {
            new,
            found,
            called,
            returned,
        });
    }
}

/// Kills nodes and starts them again: in turns one until it needs a snapshot, one, two, all.
fn kill_some(round: u64, cluster: &mut Cluster, rng: &mut SeededRng, shared: &Shared) {
    let first = rng.index(3);
    let victims: Vec<usize> = match round % 4 {
        0 | 1 => vec![first],
        2 => vec![first, (first + 1) % 3],
        _ => vec![0, 1, 2],
    };
    for victim in &victims {
        cluster.kill(*victim);
    }
    if victims.len() == 1 {
        shared.await_answers();
    }
    if round.is_multiple_of(4) {
        let others = |of: fn(Status) -> Option<u64>| {
            let statuses = (0..3).filter_map(|node| cluster.status(node));
            statuses.filter_map(of).max()
        };
        // What the victim has is below this, and then in no log any more.
        let last = until("the end of a log", || others(|status| status.last));
        until("a purge", || {
            others(|status| status.purged).filter(|purged| *purged >= last)
        });
    }
    for victim in &victims {
        cluster.start_node(*victim);
    }
    shared.await_answers();
}

#[test]
fn nodes_that_are_killed_stay_linearizable_and_agree() {
    let rounds = setting("GABION_RAFT_KILLS", 8);
    let seed = setting("GABION_SEED", 1);
    let mut rng = SeededRng::new(seed);
    let shared = Shared::default();
    let mut cluster = Cluster::start();
    let addresses = cluster.addresses.clone();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (addresses, shared) = (&addresses, &shared);
            scope.spawn(move || run_client(number, seed, addresses, shared));
        }
        // Clients end whatever becomes of this thread.
        let over = OnDrop(&shared.is_over);
        shared.await_answers();
        for round in 0..rounds {
            kill_some(round, &mut cluster, &mut rng, &shared);
            shared.round.fetch_add(1, Ordering::SeqCst);
        }
        drop(over);
    });

    let statuses = until("the same state at all nodes", || {
        let statuses: Option<Vec<_>> = (0..3).map(|node| cluster.status(node)).collect();
        let statuses = statuses?;
        let is_same = |status: &Status| {
            status.applied == statuses[0].applied && status.registers == statuses[0].registers
        };
        statuses.iter().all(is_same).then_some(statuses)
    });
    let histories = shared.histories.into_inner().unwrap();
    for (name, history) in &histories {
        if let Err(what) = check(history) {
            panic!("seed {seed}, register {name}: {what}\n{history:#?}");
        }
    }
    assert_stale_reads_are_refused(&histories);

    let operations: Vec<_> = histories.values().flatten().collect();
    let unknown = operations
        .iter()
        .filter(|operation| operation.found.is_none());
    let installs = statuses
        .iter()
        .filter(|status| status.keyspace != "raft.state.0");
    let installs = installs.count();
    println!(
        "{rounds} rounds of kills: {} operations on {} registers, {} without an answer; nodes \
         that installed snapshots: {installs}",
        operations.len(),
        histories.len(),
        unknown.count(),
    );
    assert!(installs > 0 || rounds == 0, "nobody was sent a snapshot");
}

/// Plants a stale read into the history of each register that was swapped twice.
fn assert_stale_reads_are_refused(histories: &BTreeMap<String, Vec<Operation>>) {
    let mut planted = 0;
    for (name, history) in histories {
        let swaps = history.iter().filter(|operation| operation.new.is_some());
        // A value that a later swap has found is overwritten.
        let Some(stale) = swaps.filter_map(|swap| swap.found.clone().flatten()).next() else {
            continue;
        };
        let end = history.iter().map(|operation| operation.returned).max();
        let end = end.unwrap_or_default();
        let read = Operation {
            new: None,
            found: Some(Some(stale)),
            called: end + 1,
            returned: end + 2,
        };
        let with_read = [history.as_slice(), &[read]].concat();
        assert!(check(&with_read).is_err(), "register {name}");
        planted += 1;
    }
    assert!(planted > 0, "no register was swapped twice");
}

/// Sets a flag when it is dropped.
struct OnDrop<'f>(&'f AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
