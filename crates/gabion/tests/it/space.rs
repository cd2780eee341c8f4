//! What a store takes on the medium, and that it gives back what it does not need.

use gabion_media::{Disk, SimDisk};

use crate::support::{
    Context, KEYSPACES, Operation, Random, Subject, Twin, assert_twin, base_seed, bytes_of,
    option_sets,
};

/// Bytes of the log's files.
fn log_file_bytes(sim: &SimDisk) -> u64 {
    let names = sim.names();
    let logs = names.iter().filter(|name| name.ends_with(".log"));
    logs.filter_map(|name| sim.raw(name))
        .map(|bytes| bytes.len() as u64)
        .sum()
}

/// Puts random pairs into all keyspaces, and into a twin.
fn put_some(subject: &Subject, twin: &mut Twin, random: &mut Random, count: usize) {
    for _ in 0..count {
        let key = format!("{:05}", random.below(5_000)).into_bytes();
        let value = bytes_of(random.word(), random.index(120));
        let operation = Operation::new(random.index(KEYSPACES.len()), key, Some(value));
        subject
            .write(std::slice::from_ref(&operation), None)
            .unwrap();
        twin.apply(&operation);
    }
}

#[test]
fn the_log_of_an_idle_store_is_a_segment_or_less() {
    for (number, options) in option_sets().into_iter().enumerate() {
        let _context = Context(|| format!("option set {number}: {options:?}"));
        let sim = SimDisk::recording();
        let subject = Subject::open(&Disk::simulated(&sim), &options).unwrap();
        let mut twin = Twin::new(KEYSPACES.len());
        let mut random = Random::new(base_seed());
        let segment = (options.log_bytes_max / 16).max(4 << 10);
        for round in 0..4 {
            put_some(&subject, &mut twin, &mut random, [300, 40, 1, 500][round]);
            let before = subject.db.stats();
            subject.db.wait_idle().unwrap();
            let after = subject.db.stats();
            let files = log_file_bytes(&sim);
            assert_eq!(after.log_file_bytes, files, "round {round}");
            assert!(after.log_bytes <= segment, "{} bytes", after.log_bytes);
            assert!(
                files <= 2 * segment,
                "{files} bytes after {}",
                before.log_bytes
            );
            subject.db.wait_idle().unwrap();
            let again = subject.db.stats();
            assert_eq!(again.flushes, after.flushes, "what rests is left alone");
            assert_eq!(again.log_bytes, after.log_bytes);
        }
        assert_twin(&subject.db, &twin);
        let killed = sim.process_kill(sim.ops());
        drop(subject);
        for image in [killed, sim] {
            let subject = Subject::open(&Disk::simulated(&image), &options).unwrap();
            assert_twin(&subject.db, &twin);
        }
    }
}
