//! A process that writes to a pool is killed, again and again: what it had reported is there.
//!
//! The child is this test program, told by an environment variable to be one. It reports each
//! operation on its standard output when the operation has returned.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use super::*;

/// Names the pool to the child.
const CHILD: &str = "GABION_POOL_OF_CHILD";

const SLOTS: u64 = 32;

/// Kills of one run of the test; `GABION_POOL_KILLS` has another number for long runs.
const KILLS: u64 = 12;

/// Sizes of the blocks go through small and large ones.
fn size_of_op(op: u64) -> u64 {
    16 + op * 37 % 9000
}

fn check_state(pool: &Pool) -> u64 {
    let words = pool.slice(pool.root::<PAtomicU64>(), 32);
    let mut found = Vec::new();
    for word in words {
        let block = word.load(pool, Ordering::Acquire);
        if block == 0 {
            continue;
        }
        let op = pool
            .at(POff::<PAtomicU64>::new(block))
            .load(pool, Ordering::Acquire);
        let rest = usize::try_from(size_of_op(op) - 8).unwrap();
        assert!(
            pool.equals(block + 8, &vec![op.to_le_bytes()[0]; rest]),
            "operation {op}"
        );
        found.push(op);
    }
    let last = found.iter().copied().max().unwrap_or(0);
    found.sort_unstable();
    let expected: Vec<u64> = (last.saturating_sub(SLOTS) + 1..=last).collect();
    assert_eq!(found, expected, "the last operation of each word");
    assert_eq!(pool.stats().used_blocks, 1 + found.len() as u64);
    last
}

fn run_op(pool: &Pool, op: u64) {
    let word = pool.root::<PAtomicU64>().element(op % SLOTS);
    let cell = pool.at(word);
    let size = size_of_op(op);
    let new = pool.alloc(size, word.raw()).unwrap();
    let before = cell.load(pool, Ordering::Acquire);
    let old = (before != 0).then(|| pool.retire(POff::<u8>::new(before), word.raw()).unwrap());
    let at = new.offset::<u8>().raw();
    pool.write(at, &op.to_le_bytes());
    pool.write(
        at + 8,
        &vec![op.to_le_bytes()[0]; usize::try_from(size - 8).unwrap()],
    );
    pool.fence();
    cell.store_persist(pool, at, Ordering::Release);
    new.commit::<u8>();
    if let Some(old) = old {
        old.commit(&pool.enter());
    }
}

/// Does nothing unless it is the child.
#[test]
fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let pool = Pool::open(Path::new(&path), options()).unwrap();
    let mut output = std::io::stdout();
    for op in check_state(&pool) + 1.. {
        run_op(&pool, op);
        output.write_all(b"!").unwrap();
        output.flush().unwrap();
    }
}

#[test]
fn what_a_killed_process_had_reported_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = Pool::create(&path, options()).unwrap();
    new_root(&pool, SLOTS);
    drop(pool);
    let kills = std::env::var("GABION_POOL_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut last = 0;
    for round in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "pmem::tests::kill::writes_until_it_is_killed",
                "--nocapture",
            ])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut reported = 0;
        let mut bytes = [0; 64];
        let wanted = 1 + round * 97 % 700;
        while reported < wanted {
            let count = output.read(&mut bytes).unwrap();
            assert!(count > 0, "the child ended by itself");
            reported += count_of_reports(&bytes[..count]);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).unwrap();
        reported += count_of_reports(&rest);
        let pool = Pool::open(&path, options()).unwrap();
        assert!(!pool.was_closed());
        let found = check_state(&pool);
        let promised = last + reported;
        assert!(
            found == promised || found == promised + 1,
            "{promised} reported, {found} found"
        );
        last = found;
    }
}

/// The test program itself prints other things.
fn count_of_reports(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'!').count() as u64
}
