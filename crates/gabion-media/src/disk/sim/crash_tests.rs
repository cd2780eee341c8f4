//! Tests of power cuts and kills: what survives, what may be torn, what may be lost.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::{Appender, Disk};
use super::*;
use crate::Purpose;

fn recording() -> (SimDisk, Disk) {
    let sim = SimDisk::recording();
    let disk = Disk::simulated(&sim);
    (sim, disk)
}

/// A durable file with this content.
fn durable_file(disk: &Disk, name: &str, content: &[u8]) -> Appender {
    let mut file = disk.create_append(name, Purpose::Flush).unwrap();
    file.append(content).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    file
}

/// Byte of file `id` at an offset, never zero, so that bytes that are missing or of another file
/// are seen.
fn pattern(id: u8, offset: usize) -> u8 {
    let mixed = offset.wrapping_mul(0x9e37_79b1).wrapping_add(offset >> 8);
    ((mixed >> 5).to_le_bytes()[0] ^ id.wrapping_mul(37)) | 1
}

/// What a test knows of a file: how far it was written and synced.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    written: usize,
    synced: usize,
}

/// What may be on the disk after a power cut at some operation: an oracle that knows the promises
/// and nothing of the simulation.
#[derive(Clone, Debug, Default)]
struct Oracle {
    files: BTreeMap<u8, Known>,
    names: BTreeMap<String, u8>,
    /// For each name the files it meant since the last sync of the directory; `None` is no file.
    meanings: BTreeMap<String, BTreeSet<Option<u8>>>,
}

impl Oracle {
    fn name(&mut self, name: &str, id: Option<u8>) {
        let before = self.names.get(name).copied();
        let meanings = self.meanings.entry(name.to_owned()).or_default();
        meanings.insert(before);
        meanings.insert(id);
        match id {
            Some(id) => self.names.insert(name.to_owned(), id),
            None => self.names.remove(name),
        };
    }

    fn sync_dir(&mut self) {
        self.meanings = self
            .names
            .iter()
            .map(|(n, id)| (n.clone(), [Some(*id)].into()))
            .collect();
    }

    fn check(&self, cut: &SimDisk) -> Result<(), String> {
        let found: BTreeMap<String, Vec<u8>> = cut
            .names()
            .into_iter()
            .map(|name| (name.clone(), cut.raw(&name).unwrap()))
            .collect();
        for (name, meanings) in &self.meanings {
            let ok = match found.get(name) {
                None => meanings.contains(&None),
                Some(content) => meanings
                    .iter()
                    .flatten()
                    .any(|&id| self.may_hold(id, content)),
            };
            if !ok {
                return Err(format!(
                    "{name} may be {meanings:?}, files {:?}",
                    self.files
                ));
            }
        }
        match found.keys().find(|name| !self.meanings.contains_key(*name)) {
            Some(stranger) => Err(format!("{stranger} never existed")),
            None => Ok(()),
        }
    }

    fn may_hold(&self, id: u8, content: &[u8]) -> bool {
        let Known { written, synced } = self.files[&id];
        let right = |(offset, &byte): (usize, &u8)| {
            byte == pattern(id, offset) || (offset >= synced && byte == 0)
        };
        (synced..=written).contains(&content.len()) && content.iter().enumerate().all(right)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Append(usize, usize),
    Sync(usize),
    Rename(usize, usize),
    Remove(usize),
    SyncDir,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..5_usize;
    prop_oneof![
        3 => name.clone().prop_map(Step::Create),
        8 => (name.clone(), 1..3000_usize).prop_map(|(name, size)| Step::Append(name, size)),
        3 => name.clone().prop_map(Step::Sync),
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => name.prop_map(Step::Remove),
        2 => Just(Step::SyncDir),
    ]
}

/// Runs the steps; the oracle of each operation, by its number.
fn run(steps: &[Step], disk: &Disk, sim: &SimDisk) -> Vec<Oracle> {
    let mut oracles = vec![Oracle::default()];
    let mut open: BTreeMap<u8, Appender> = BTreeMap::new();
    let mut oracle = Oracle::default();
    for step in steps {
        let name = |index: &usize| format!("file{index}");
        match step {
            Step::Create(index) if !oracle.names.contains_key(&name(index)) => {
                let id = u8::try_from(oracle.files.len()).unwrap();
                let file = disk.create_append(&name(index), Purpose::Flush).unwrap();
                open.insert(id, file);
                oracle.files.insert(id, Known::default());
                oracle.name(&name(index), Some(id));
            }
            Step::Append(index, size) => {
                let Some(&id) = oracle.names.get(&name(index)) else {
                    continue;
                };
                let known = oracle.files.get_mut(&id).unwrap();
                let bytes = known.written..known.written + size;
                let bytes: Vec<u8> = bytes.map(|offset| pattern(id, offset)).collect();
                open.get_mut(&id).unwrap().append(&bytes).unwrap();
                known.written += size;
            }
            Step::Sync(index) => {
                let Some(id) = oracle.names.get(&name(index)) else {
                    continue;
                };
                open.get_mut(id).unwrap().sync().unwrap();
                let known = oracle.files.get_mut(id).unwrap();
                known.synced = known.written;
            }
            Step::Rename(from, to) => {
                let Some(&id) = oracle.names.get(&name(from)) else {
                    continue;
                };
                disk.rename(&name(from), &name(to)).unwrap();
                if from != to {
                    oracle.name(&name(from), None);
                    oracle.name(&name(to), Some(id));
                }
            }
            Step::Remove(index) if oracle.names.contains_key(&name(index)) => {
                disk.remove(&name(index)).unwrap();
                oracle.name(&name(index), None);
            }
            Step::SyncDir => {
                disk.sync_dir().unwrap();
                oracle.sync_dir();
            }
            Step::Create(_) | Step::Remove(_) => continue,
        }
        oracles.push(oracle.clone());
        assert_eq!(
            oracles.len() as u64,
            sim.ops() + 1,
            "each step is one operation"
        );
    }
    oracles
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_power_cut_anywhere_keeps_the_promises(
        steps in prop::collection::vec(step(), 1..50),
        seed in any::<u64>(),
    ) {
        let (sim, disk) = recording();
        let oracles = run(&steps, &disk, &sim);
        // Once forwards and once backwards, since replays go on from each other.
        let ops = 0..=sim.ops();
        for at_op in ops.clone().chain(ops.rev()) {
            for style in Tear::ALL {
                let cut = sim.power_cut(at_op, seed ^ at_op, style);
                let checked = oracles[usize::try_from(at_op).unwrap()].check(&cut);
                prop_assert!(checked.is_ok(), "op {} {:?}: {:?}", at_op, style, checked);
                let again = cut.power_cut(0, !seed, Tear::DropAll);
                prop_assert_eq!(image(&cut), image(&again), "what is left is durable");
            }
        }
    }
}

fn image(sim: &SimDisk) -> Vec<(String, Vec<u8>)> {
    sim.names()
        .into_iter()
        .map(|name| (name.clone(), sim.raw(&name).unwrap()))
        .collect()
}

#[test]
fn a_killed_process_leaves_what_it_wrote_and_no_more_durable_than_it_was() {
    let (sim, disk) = recording();
    let lock = disk.lock("LOCK").unwrap();
    let mut snapshots = vec![Vec::new(), image(&sim)];
    let mut file = disk.create_append("a", Purpose::Flush).unwrap();
    snapshots.push(image(&sim));
    for round in 0..50_u8 {
        file.append(&[round; 300]).unwrap();
        snapshots.push(image(&sim));
    }
    disk.rename("a", "b").unwrap();
    snapshots.push(image(&sim));
    for (at_op, expected) in snapshots.iter().enumerate().rev() {
        let killed = sim.process_kill(at_op as u64);
        assert_eq!(&image(&killed), expected, "after operation {at_op}");
        assert!(
            Disk::simulated(&killed).lock("LOCK").is_ok(),
            "locks end with the process"
        );
        let cut = killed.power_cut(killed.ops(), 0, Tear::DropAll);
        assert!(
            cut.names().iter().all(|name| name == "LOCK"),
            "nothing was synced"
        );
    }
    drop((file, lock));
}

#[test]
fn writes_tear_at_sectors_of_the_style() {
    let (sim, disk) = recording();
    let mut file = durable_file(&disk, "a", &[1; 32 << 10]);
    file.append(&[2; 32 << 10]).unwrap();
    disk.truncate("a", 64 << 10).unwrap();
    for (style, sector) in [(Tear::Random512, 512), (Tear::Random4096, 4096)] {
        let mut torn_sizes = BTreeSet::new();
        let mut torn = 0;
        for seed in 0..200 {
            let content = sim.power_cut(sim.ops(), seed, style).raw("a").unwrap();
            assert!(
                content[..32 << 10].iter().all(|&byte| byte == 1),
                "synced data is there"
            );
            let tail = &content[32 << 10..];
            let mut there = BTreeSet::new();
            for sector in tail.chunks(sector) {
                assert!(
                    sector.iter().all(|byte| *byte == sector[0]),
                    "sectors are whole"
                );
                there.insert(sector[0]);
            }
            torn += usize::from(there.len() == 2);
            let runs = tail.chunk_by(|a, b| a == b);
            torn_sizes.extend(runs.map(|run| run.len() % 4096));
        }
        assert!(torn > 50, "{torn} of 200 cuts tore the write");
        assert_eq!(
            torn_sizes.len() > 1,
            style == Tear::Random512,
            "{torn_sizes:?}"
        );
    }
}

#[test]
fn a_sector_may_hold_any_moment_between() {
    let (sim, disk) = recording();
    let mut file = durable_file(&disk, "a", b"");
    for byte in 1..=4 {
        file.append(&[byte; 100]).unwrap();
    }
    let whole: Vec<u8> = (1..=4).flat_map(|byte| [byte; 100]).collect();
    let mut reached = BTreeSet::new();
    for seed in 0..500 {
        let content = sim
            .power_cut(sim.ops(), seed, Tear::Random512)
            .raw("a")
            .unwrap();
        let written = content
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(content.len());
        assert_eq!(
            content[..written],
            whole[..written],
            "writes reach a sector in their order"
        );
        assert!(content[written..].iter().all(|&byte| byte == 0));
        reached.insert((written, content.len()));
    }
    for len in [0, 100, 200, 300, 400] {
        assert!(
            reached.contains(&(len, len)),
            "{len} of {len} bytes: {reached:?}"
        );
    }
    assert!(reached.contains(&(0, 400)), "the length alone: {reached:?}");
}

#[test]
fn a_store_into_a_mapping_may_be_half_done() {
    let (sim, disk) = recording();
    let mut log = disk.create_log("1.log", 4096).unwrap();
    log.sync_handle().sync().unwrap();
    disk.sync_dir().unwrap();
    log.append(&[&[1; 40]]).unwrap();
    log.append(&[&[2; 60]]).unwrap();
    let mut lengths = BTreeSet::new();
    for seed in 0..1000 {
        let content = sim
            .power_cut(sim.ops(), seed, Tear::Random4096)
            .raw("1.log")
            .unwrap();
        assert_eq!(content.len(), 4096, "the capacity was synced");
        let written = content.iter().position(|&byte| byte == 0).unwrap();
        assert!(content[written..].iter().all(|&byte| byte == 0));
        lengths.insert(written);
    }
    let halves: BTreeSet<usize> = (0..=96).step_by(8).chain([100]).collect();
    assert_eq!(lengths, halves);
}

#[test]
fn a_log_file_that_was_never_synced_is_empty_or_holds_zeros_and_records() {
    let (sim, disk) = recording();
    let mut log = disk.create_log("1.log", 8192).unwrap();
    log.append(&[&[7; 5000]]).unwrap();
    disk.sync_dir().unwrap();
    let mut lengths = BTreeSet::new();
    for seed in 0..100 {
        for style in Tear::ALL {
            let content = sim.power_cut(sim.ops(), seed, style).raw("1.log").unwrap();
            assert!(content.iter().all(|&byte| byte == 0 || byte == 7));
            lengths.insert(content.len());
        }
    }
    assert_eq!(lengths, [0, 8192].into());
    log.finish().unwrap();
    let lengths: BTreeSet<usize> = (0..100)
        .map(|seed| {
            sim.power_cut(sim.ops(), seed, Tear::Random512)
                .raw("1.log")
                .unwrap()
                .len()
        })
        .collect();
    assert_eq!(
        lengths,
        [0, 5000, 8192].into(),
        "cutting a file is lost or kept too"
    );
}

#[test]
fn a_cut_that_is_lost_leaves_the_synced_bytes_behind_it() {
    let (sim, disk) = recording();
    drop(durable_file(&disk, "a", &[1; 3000]));
    disk.truncate("a", 1000).unwrap();
    let mut lengths = BTreeSet::new();
    for seed in 0..50 {
        let content = sim
            .power_cut(sim.ops(), seed, Tear::Random512)
            .raw("a")
            .unwrap();
        assert!(
            content.iter().all(|&byte| byte == 1),
            "{} bytes",
            content.len()
        );
        lengths.insert(content.len());
    }
    assert_eq!(lengths, [1000, 3000].into());
    // Bytes that a cut took do not come back when the file grows again.
    disk.truncate("a", 2000).unwrap();
    for seed in 0..50 {
        let content = sim
            .power_cut(sim.ops(), seed, Tear::Random512)
            .raw("a")
            .unwrap();
        let zeros = content.iter().filter(|&&byte| byte == 0).count();
        let expected = if content.len() == 2000 { 1000 } else { 0 };
        assert_eq!(zeros, expected, "{} bytes", content.len());
    }
}

#[test]
fn names_without_a_sync_of_the_directory_are_lost_or_kept() {
    let (sim, disk) = recording();
    drop(durable_file(&disk, "removed", b"r"));
    drop(durable_file(&disk, "old", b"o"));
    drop(durable_file(&disk, "target", b"t"));
    disk.create_append("created", Purpose::Flush)
        .unwrap()
        .sync()
        .unwrap();
    disk.remove("removed").unwrap();
    disk.rename("old", "target").unwrap();
    let mut states = BTreeSet::new();
    for seed in 0..400 {
        let cut = sim.power_cut(sim.ops(), seed, Tear::Random512);
        let has = |name: &str| cut.raw(name).is_some();
        let renamed = cut.raw("target").unwrap() == b"o";
        assert_ne!(has("old"), renamed, "a rename is whole or absent");
        assert!(renamed || cut.raw("target").unwrap() == b"t");
        states.insert((has("created"), has("removed"), renamed));
    }
    assert_eq!(states.len(), 8, "any subset may survive: {states:?}");
    let cut = |style| sim.power_cut(sim.ops(), 1, style).names();
    assert_eq!(cut(Tear::DropAll), ["old", "removed", "target"]);
    assert_eq!(cut(Tear::KeepAll), ["created", "target"]);
}

#[test]
fn a_replaced_file_has_the_old_or_the_new_content_at_every_moment() {
    let (sim, disk) = recording();
    disk.replace("CURRENT", &[1; 1500], Purpose::Metadata)
        .unwrap();
    let before = sim.ops();
    disk.replace("CURRENT", &[2; 1700], Purpose::Metadata)
        .unwrap();
    let mut seen = BTreeSet::new();
    for at_op in before..=sim.ops() {
        for seed in 0..50 {
            for style in Tear::ALL {
                let content = sim.power_cut(at_op, seed, style).raw("CURRENT").unwrap();
                assert!(
                    content == [1; 1500] || content == [2; 1700],
                    "operation {at_op}"
                );
                assert!(at_op < sim.ops() || content[0] == 2, "durable on return");
                seen.insert(content[0]);
            }
        }
    }
    assert_eq!(seen, [1, 2].into());
}

#[test]
fn a_crash_is_repeated_by_its_seed_and_leaves_the_disk_alone() {
    let (sim, disk) = recording();
    let mut file = durable_file(&disk, "a", b"");
    for byte in 0..100 {
        file.append(&[byte; 200]).unwrap();
    }
    let before = image(&sim);
    let cut = |seed| image(&sim.power_cut(sim.ops(), seed, Tear::Random512));
    let images: BTreeSet<_> = (0..50).map(cut).collect();
    assert!(images.len() > 25, "seeds differ: {} images", images.len());
    assert!((0..50).all(|seed| cut(seed) == cut(seed)));
    assert_eq!(image(&sim), before);
    assert_eq!(disk.read_all("a").unwrap().len(), 20_000);
}

#[test]
fn a_disk_with_content_put_on_it_crashes_with_it() {
    let (sim, disk) = recording();
    let mut file = durable_file(&disk, "a", b"before");
    sim.set_raw("a", b"damage".to_vec());
    sim.set_raw("b", b"new".to_vec());
    assert_eq!(disk.read_all("a").unwrap(), b"damage");
    file.append(b"!").unwrap();
    let at_op = sim.ops() - 1;
    let cut = sim.power_cut(at_op, 3, Tear::DropAll);
    let expected = [
        ("a".to_owned(), b"damage".to_vec()),
        ("b".to_owned(), b"new".to_vec()),
    ];
    assert_eq!(image(&cut), expected);
    assert_eq!(
        sim.power_cut(at_op - 1, 3, Tear::KeepAll).raw("a").unwrap(),
        b"before"
    );
}

#[test]
#[should_panic(expected = "needs a recording disk")]
fn a_disk_without_history_cannot_crash_in_the_past() {
    let sim = SimDisk::new();
    durable_file(&Disk::simulated(&sim), "a", b"x");
    assert_eq!(
        sim.power_cut(sim.ops(), 0, Tear::DropAll).raw("a").unwrap(),
        b"x"
    );
    sim.power_cut(1, 0, Tear::DropAll);
}

#[test]
fn operations_are_described() {
    let (sim, disk) = recording();
    drop(durable_file(&disk, "a", b"xyz"));
    assert!(sim.describe(1).unwrap().contains("create a"));
    assert!(sim.describe(2).unwrap().contains("3 bytes at 0"));
    assert!(sim.describe(3).unwrap().contains("sync"));
    assert_eq!(sim.describe(5), None);
}
