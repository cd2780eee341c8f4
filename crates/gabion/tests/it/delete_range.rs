//! Range deletes: that they cost what they should, and that nothing of what they hide comes back.
//! Which keys they delete is the model's business.

use gabion::{Options, TableReads, WriteBatch};
use gabion_media::{Disk, SimDisk};

use crate::support::{Subject, engines_on_disks, small_options, small_tuning};

fn open(sim: &SimDisk, options: &Options) -> Subject {
    Subject::open(&Disk::simulated(sim), options).expect("the store opens")
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn fill(subject: &Subject, count: u32) {
    for number in 0..count {
        let put = subject.keyspaces[0].put(key(number), [number.to_le_bytes()[0]; 60]);
        put.expect("put");
    }
}

/// Blocks that reads looked at.
fn blocks(subject: &Subject) -> u64 {
    let cache = subject.db.stats().cache;
    cache.hits + cache.misses
}

#[test]
fn scans_seek_past_what_was_deleted_instead_of_stepping_over_it() {
    let sim = SimDisk::new();
    // One bucket and no compaction, so that everything that was deleted is still there.
    let options = small_options()
        .tuning(
            small_tuning()
                .memtable_budget_bytes(32 << 20)
                .bucket_bytes(64 << 20)
                .sublevels_min(8)
                .sublevels_max(8),
        )
        .log_bytes_max(64 << 20)
        // The cache counts the blocks that were looked at.
        .table_reads(TableReads::Cached)
        .space_amplification_max(f64::INFINITY);
    let subject = open(&sim, &options);
    let keyspace = &subject.keyspaces[0];
    fill(&subject, 20_000);
    subject.db.flush().expect("flush");
    let all = blocks(&subject);
    assert_eq!(keyspace.iter().count(), 20_000);
    let all = blocks(&subject) - all;
    assert!(all > 100, "{all} blocks");

    // A snapshot keeps the tables from being dropped.
    let snapshot = subject.db.snapshot();
    keyspace
        .delete_range(key(10)..key(19_990))
        .expect("delete_range");
    for flushed in [false, true] {
        if flushed {
            subject.db.flush().expect("flush");
        }
        let before = blocks(&subject);
        let forward: Vec<_> = keyspace.iter().map(|pair| pair.expect("scan").0).collect();
        let backward = keyspace.iter().rev();
        let mut backward: Vec<_> = backward.map(|pair| pair.expect("scan").0).collect();
        backward.reverse();
        assert_eq!(forward.len(), 20);
        assert_eq!(forward, backward);
        let seen = blocks(&subject) - before;
        assert!(seen < all / 5, "{seen} blocks of {all}");
        assert_eq!(keyspace.get(key(10)).expect("get"), None);
        assert_eq!(keyspace.get(key(5_000)).expect("get"), None);
        assert!(keyspace.get(key(19_990)).expect("get").is_some());
    }
    assert_eq!(snapshot.iter(keyspace).count(), 20_000);
}

#[test]
fn tables_that_hold_nothing_else_are_dropped_without_being_read() {
    let sim = SimDisk::new();
    let options = small_options().tuning(small_tuning().bucket_bytes(1 << 20).sublevels_max(8));
    let subject = open(&sim, &options);
    let keyspace = &subject.keyspaces[0];
    fill(&subject, 3_000);
    keyspace.compact::<&[u8]>(..).expect("compact");
    let full = subject.db.stats();
    keyspace.delete_range::<&[u8]>(..).expect("delete_range");
    let reads = sim.reads();
    subject.db.flush().expect("flush");
    subject.db.wait_idle().expect("wait_idle");
    let empty = subject.db.stats();
    assert_eq!(empty.tables, 0, "{} tables before", full.tables);
    // The table with the range delete is read, of the others nothing.
    let reads = sim.reads() - reads;
    assert!(reads < 10, "{reads} reads");
    assert!(empty.written.compaction == full.written.compaction);
}

#[test]
fn a_range_delete_survives_splits_crashes_and_compactions_of_a_part() {
    let sim = SimDisk::recording();
    let options = small_options().tuning(small_tuning().split_ways(8));
    let subject = open(&sim, &options);
    fill(&subject, 500);
    let keyspace = &subject.keyspaces[0];
    keyspace
        .delete_range(key(100)..key(400))
        .expect("delete_range");
    // The buckets split while the range delete is in MemTables and tables that they share.
    for number in (0..500).step_by(7) {
        keyspace.put(key(number), vec![9; 600]).expect("put");
    }
    keyspace.compact(key(150)..key(200)).expect("compact");
    let expected: Vec<_> = (0..500)
        .filter(|number| number % 7 == 0 || !(100..400).contains(number))
        .map(key)
        .collect();
    let found = |subject: &Subject| -> Vec<Vec<u8>> {
        let pairs = subject.keyspaces[0].iter();
        pairs.map(|pair| pair.expect("scan").0.to_vec()).collect()
    };
    assert_eq!(found(&subject), expected);
    let after = open(&sim.process_kill(sim.ops()), &options);
    assert_eq!(found(&after), expected);
    for number in 0..500 {
        let there = after.keyspaces[0].contains(key(number)).expect("get");
        assert_eq!(there, expected.contains(&key(number)), "{number}");
    }
    after.keyspaces[0].compact::<&[u8]>(..).expect("compact");
    assert_eq!(found(&after), expected);
    after.db.clone().close().expect("close");
}

#[test]
fn the_order_within_a_batch_counts() {
    for engine in engines_on_disks() {
        write_in_order(&small_options().engine(engine));
    }
}

fn write_in_order(options: &Options) {
    let sim = SimDisk::new();
    let subject = open(&sim, options);
    let keyspace = &subject.keyspaces[0];
    let mut batch = WriteBatch::new();
    for number in 0..40 {
        batch.put(keyspace, key(number), "before").expect("put");
    }
    batch
        .delete_range(keyspace, key(5)..=key(30))
        .expect("delete_range");
    batch.put(keyspace, key(7), "after").expect("put");
    batch
        .delete_range(keyspace, key(9)..key(9))
        .expect("no keys");
    assert_eq!(batch.len(), 42);
    subject.db.write(batch).expect("write");
    assert_eq!(keyspace.iter().count(), 40 - 26 + 1);
    assert_eq!(
        keyspace.get(key(7)).expect("get").as_deref(),
        Some(&b"after"[..])
    );
}

#[test]
fn many_range_deletes_stay_cheap_and_an_empty_store_stays_empty() {
    let sim = SimDisk::new();
    let subject = open(&sim, &small_options().background_threads(1));
    let keyspace = &subject.keyspaces[0];
    for _ in 0..1_000 {
        keyspace.delete_range::<&[u8]>(..).expect("delete_range");
    }
    subject.db.flush().expect("flush");
    assert_eq!(subject.db.stats().tables, 0, "there was nothing to delete");
    // A queue: what is old is deleted again and again.
    for number in 0..4_000 {
        keyspace.put(key(number), [1; 30]).expect("put");
        keyspace.delete_range(..key(number)).expect("delete_range");
    }
    assert_eq!(keyspace.iter().count(), 1);
    assert_eq!(keyspace.iter().rev().count(), 1);
    keyspace.compact::<&[u8]>(..).expect("compact");
    let stats = subject.db.stats();
    assert!(stats.table_bytes < 4_000, "{}", stats.table_bytes);
}
