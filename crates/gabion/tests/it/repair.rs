//! Repairs: what can be read is saved, what is lost is told, and nothing else is in the new store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use gabion::{Db, Engine, Error, Options, RepairReport, Result, Tuning};
use gabion_media::crc32c;
use gabion_media::{Disk, Fault, FaultKind, SimDisk};

use crate::damage::{Specimen, problems};
use crate::support::{
    PanicContext, SeededRng, assert_sound, base_seed, bytes_of, engines_on_disks, setting,
};

/// Repairs a disk and reads all of the new store. Returns how many pairs are as they were.
fn repaired(specimen: &Specimen, sim: &SimDisk) -> Result<(RepairReport, usize)> {
    let target = SimDisk::new();
    let report = gabion::repair_disk(&Disk::simulated(sim), &Disk::simulated(&target))?;
    let unsound = problems(&target);
    assert!(unsound.is_empty(), "the new store is damaged: {unsound:?}");
    let db = Db::open_on(Disk::simulated(&target), specimen.options.clone())?;
    let found = assert_sound(&db)?;
    let mut same = 0;
    for (keyspace, pairs) in found.iter().enumerate() {
        for (key, value) in pairs {
            let was = |(of, k, v): &(usize, Vec<u8>, Vec<u8>)| {
                *of == keyspace && k == key && v[..] == value[..]
            };
            assert!(
                specimen.written.iter().any(was),
                "{} never had this value",
                key.escape_ascii()
            );
            same += usize::from(specimen.twin.pairs(keyspace).get(key) == Some(value));
        }
    }
    assert!(report.lost.is_empty() || !report.problems.is_empty());
    if report.lost.is_empty() {
        let difference = specimen.twin.difference(&found);
        assert!(
            specimen.twin.equals(&found),
            "lost and not told: {difference}"
        );
    }
    Ok((report, same))
}

/// Pairs of the specimen's twin.
fn pairs_of(specimen: &Specimen) -> usize {
    (0..3)
        .map(|keyspace| specimen.twin.pairs(keyspace).len())
        .sum()
}

#[test]
fn a_sound_store_is_repaired_into_the_same() {
    for engine in engines_on_disks() {
        for closed in [false, true] {
            let specimen = Specimen::new(engine, closed);
            let (report, same) = repaired(&specimen, &specimen.with(&[])).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            assert_eq!(same, pairs_of(&specimen), "{engine}");
            // FlexDB leaves no log when it is closed.
            let has_log = engine == Engine::Wip || !closed;
            assert!(report.entries > 0 && (report.log_operations > 0) == has_log);
        }
    }
}

#[test]
fn a_wrong_byte_of_wipdb_costs_a_block() {
    let (specimen, repairs) = flip_bytes(Engine::Wip, 13);
    let all = pairs_of(&specimen);
    for (name, at, outcome) in &repairs {
        let same = outcome.unwrap_or(0);
        let _context = PanicContext(|| format!("byte {at} of {name}: {same} of {all}"));
        let kind = name.split('.').next_back().unwrap();
        // Of a log, all behind the damage; of a table, a block, or all of it if the index is lost.
        let least = match kind {
            "LOCK" => all,
            "tbl" => all / 2,
            "log" => all / 3,
            _ => 0,
        };
        assert!(same >= least);
    }
    let of_tables: Vec<_> = repairs
        .iter()
        .filter(|(name, ..)| name.ends_with(".tbl"))
        .map(|(.., same)| same.unwrap_or(0))
        .collect();
    let mean = of_tables.iter().sum::<usize>() / of_tables.len();
    assert!(mean >= all * 8 / 10, "{mean} of {all}");
}

#[test]
fn a_wrong_byte_of_flexdb_costs_a_block() {
    let (specimen, repairs) = flip_bytes(Engine::Flex, 2_401);
    let all = pairs_of(&specimen);
    let of_data: Vec<_> = repairs
        .iter()
        .filter(|(name, ..)| name.ends_with("DATA"))
        .map(|(.., same)| same.unwrap_or(0))
        .collect();
    assert!(!of_data.is_empty(), "{:?}", specimen.files.keys());
    let mean = of_data.iter().sum::<usize>() / of_data.len();
    assert!(mean >= all * 8 / 10, "{mean} of {all}");
}

/// All pairs of the extent were lost with which one byte was wrong, and the report had neither keys
/// nor counts.
#[test]
fn a_wrong_byte_of_flexdb_costs_a_block_and_what_is_lost_is_told() {
    let options = Options::default()
        .engine(Engine::Flex)
        .background_threads(0)
        .tuning(Tuning::default().memtable_budget_bytes(64 << 10));
    // See `partition`. In front of the segments there is a header, without which nothing is read.
    let (segment_bytes, block_bytes, header_bytes) = (8 << 10, 1 << 10, 32);
    let (sim, pairs) = small_flex_store(&options);
    let pair_bytes = |(key, value): (&Vec<u8>, &Vec<u8>)| key.len() + value.len() + 4;
    let longest = pairs.values().flatten().map(pair_bytes).max().unwrap();
    let stride = usize::try_from(setting("GABION_REPAIR_STRIDE", 101)).unwrap();
    let (mut random, mut repairs, mut losses) = (SeededRng::new(base_seed()), 0, 0);
    for name in sim.names() {
        let sound = sim.raw(&name).unwrap();
        for at in (0..sound.len()).step_by(stride) {
            let _context = PanicContext(|| format!("byte {at} of {name}"));
            let damaged = sim.process_kill(sim.ops());
            let mut bytes = sound.clone();
            // A bit, a byte, or all of half a block.
            let len = [1, 1, 512][random.index(3)].min(bytes.len() - at);
            let wrong = [1 << random.below(8), 0xff, 0x76][random.index(3)];
            bytes[at..at + len]
                .iter_mut()
                .for_each(|byte| *byte ^= wrong);
            damaged.set_raw(&name, bytes);
            let target = SimDisk::new();
            let report = gabion::repair_disk(&Disk::simulated(&damaged), &Disk::simulated(&target));
            let report = match report {
                Ok(report) => report,
                Err(error) => {
                    assert!(
                        name == "FLEXDB" && error.to_string().contains(&*name),
                        "{error}"
                    );
                    continue;
                }
            };
            repairs += 1;
            losses += u64::from(!report.lost.is_empty());
            let missing = check_lost(&report, &pairs, &target, &options);
            if name.ends_with("DATA") && at >= header_bytes {
                let bytes: usize = missing
                    .iter()
                    .map(|(key, value)| pair_bytes((key, value)))
                    .sum();
                // Each end of what is damaged may lie within a pair. A few more are lost where
                // nothing says where the next one begins, and all of a segment with its checksums.
                let most = match len {
                    1 => block_bytes + 2 * longest,
                    _ => segment_bytes + 12 * longest,
                };
                assert!(bytes <= most, "{bytes} bytes are lost");
            }
        }
    }
    println!("repair: {repairs} damaged stores of flex, {losses} with losses");
    assert!(losses > 20 && repairs > losses, "{losses} of {repairs}");
}

/// The pairs of keyspaces by their names.
type ByName = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Two keyspaces, closed, one of which was written in order.
fn small_flex_store(options: &Options) -> (SimDisk, ByName) {
    let sim = SimDisk::recording();
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let mut pairs = BTreeMap::new();
    for (keyspace, count) in [("default", 300_u64), ("words", 60)] {
        let handle = db.keyspace(keyspace).unwrap();
        let own: &mut BTreeMap<Vec<u8>, Vec<u8>> = pairs.entry(keyspace.to_owned()).or_default();
        for number in 0..count {
            let key = match keyspace {
                "default" => format!("{number:05}").into_bytes(),
                // In another order, and in two rounds.
                _ => bytes_of(number * 31 % count, 12).to_vec(),
            };
            let value = bytes_of(number, usize::try_from(number * 7 % 60).unwrap()).to_vec();
            handle.put(&key, &value).unwrap();
            own.insert(key, value);
            if number == count / 2 {
                db.flush().unwrap();
            }
        }
    }
    db.close().unwrap();
    (sim, pairs)
}

/// Nothing is in the new store that was not in the other one, and all that is missing is in the
/// ranges that the report names, as often as it says. Returns what is missing.
fn check_lost(
    report: &RepairReport,
    pairs: &ByName,
    target: &SimDisk,
    options: &Options,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let db = Db::open_on(Disk::simulated(target), options.clone()).unwrap();
    let mut all_missing = Vec::new();
    let mut told = vec![0; report.lost.len()];
    for (name, pairs) in pairs {
        let keyspace = db.existing_keyspace(name).unwrap();
        let found: BTreeMap<Vec<u8>, Vec<u8>> = keyspace
            .iter()
            .map(|pair| {
                pair.map(|(key, value)| (key.to_vec(), value.to_vec()))
                    .unwrap()
            })
            .collect();
        for pair in &found {
            assert_eq!(pairs.get_key_value(pair.0), Some(pair));
        }
        for (key, value) in pairs.iter().filter(|(key, _)| !found.contains_key(*key)) {
            let holds = |lost: &gabion::LostEntries| {
                lost.keyspace.as_ref().is_none_or(|own| own == name)
                    && lost.above.as_ref().is_none_or(|above| above < key)
                    && lost.below.as_ref().is_none_or(|below| key < below)
            };
            let range = report.lost.iter().position(holds);
            let range = range.unwrap_or_else(|| panic!("{} is not told", key.escape_ascii()));
            told[range] += 1;
            all_missing.push((key.clone(), value.clone()));
        }
    }
    for (lost, count) in report.lost.iter().zip(told) {
        assert!(count > 0, "{lost:?}: nothing is");
        assert!(
            lost.entries.is_none_or(|entries| entries == count),
            "{lost:?}: {count}"
        );
        assert!(
            lost.entries_max.is_none_or(|most| most >= count),
            "{lost:?}: {count}"
        );
    }
    all_missing
}

/// A check made lock files, and a repair left them; a store on a medium that takes no writes could
/// be neither checked nor repaired.
#[test]
fn neither_a_check_nor_a_repair_writes_to_the_store() {
    for engine in engines_on_disks() {
        for closed in [true, false] {
            let specimen = Specimen::new(engine, closed);
            let content = specimen.files.keys().filter(|name| *name != "LOCK");
            let names: Vec<Option<&String>> = content.map(Some).chain([None]).collect();
            for damaged in names {
                let _context = PanicContext(|| format!("{engine}: {damaged:?} is damaged"));
                let dir = tempfile::tempdir().unwrap();
                let store = dir.path().join("store");
                std::fs::create_dir(&store).unwrap();
                for (name, bytes) in &specimen.files {
                    let mut bytes = bytes.clone();
                    let middle = bytes.len() / 2;
                    if damaged == Some(name) {
                        bytes[middle] ^= 0x55;
                    }
                    if name != "LOCK" {
                        let mut file = File::create(store.join(name)).unwrap();
                        file.write_all(&bytes).unwrap();
                    }
                }
                let before = files_of(&store);
                let _ = gabion::check(&store).unwrap();
                assert!(files_of(&store) == before, "a check has changed something");
                let _ = gabion::repair(&store, dir.path().join("new"));
                assert!(files_of(&store) == before, "a repair has changed something");
            }
        }
    }
}

type Found = (std::time::SystemTime, Vec<u8>);

/// The names of the files in a directory, when each was changed last, and what is in it.
fn files_of(dir: &std::path::Path) -> BTreeMap<std::ffi::OsString, Found> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| {
        let file = file.unwrap();
        let changed = file.metadata().unwrap().modified().unwrap();
        let content = std::fs::read(file.path()).unwrap();
        (file.file_name(), (changed, content))
    });
    files.collect()
}

/// A wrong byte in one leaf of a space's tree: nothing of the keyspace was saved, and mostly the
/// store did not open.
#[test]
fn a_wrong_byte_in_a_leaf_of_flexdbs_tree_costs_what_that_refers_to() {
    let options = Options::default()
        .engine(Engine::Flex)
        .background_threads(0)
        .tuning(Tuning::default().memtable_budget_bytes(256 << 10));
    let sim = SimDisk::new();
    let db = Db::open_on(Disk::simulated(&sim), options.clone()).unwrap();
    let pairs: BTreeMap<[u8; 8], Vec<u8>> = (0..20_000_u64)
        .map(|number| {
            let key = number
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .swap_bytes()
                .to_le_bytes();
            (key, bytes_of(number, 50).to_vec())
        })
        .collect();
    for number in 0..20_000_u64 {
        let key = number
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .swap_bytes()
            .to_le_bytes();
        db.put(key, &pairs[&key]).unwrap();
    }
    db.close().unwrap();
    let is_tree = |name: &String| name.ends_with("TREE");
    let name = sim.names().into_iter().find(is_tree).unwrap();
    let tree = sim.raw(&name).unwrap();
    let word = |at: usize| u32::from_le_bytes(tree[at..at + 4].try_into().unwrap());
    // Behind two headers nodes follow each other, which begin with a count and a level.
    let nodes = (8192..tree.len()).step_by(1024);
    let leaves: Vec<usize> = nodes
        .filter(|at| (1..=60).contains(&word(*at)) && word(at + 4) == 0)
        .collect();
    assert!(leaves.len() > 50, "{} leaves", leaves.len());
    let mut in_use = 0;
    for leaf in leaves.iter().copied().step_by(leaves.len() / 12) {
        let damaged = SimDisk::new();
        for own in sim.names() {
            let mut bytes = sim.raw(&own).unwrap();
            if own == name {
                bytes[leaf + 64 + 3] ^= 1;
            }
            damaged.set_raw(&own, bytes);
        }
        let target = SimDisk::new();
        let disk = Disk::simulated(&damaged);
        let report = gabion::repair_disk(&disk, &Disk::simulated(&target)).unwrap();
        let repaired = Db::open_on(Disk::simulated(&target), options.clone()).unwrap();
        let damaged = Db::open_on(disk, options.clone()).unwrap();
        let (mut saved, mut read) = (0, 0);
        for (key, value) in &pairs {
            let found = repaired.get(key).unwrap();
            assert!(found.as_ref().is_none_or(|found| found[..] == value[..]));
            saved += usize::from(found.is_some());
            // It may say that there is damage, but not that there is no such key.
            if let Ok(found) = damaged.get(key) {
                assert_eq!(found.as_deref(), Some(&value[..]));
                read += 1;
            }
        }
        println!("repair: a leaf is damaged: {saved} saved and {read} read of 20000");
        assert!(saved >= 16_000 && read >= 16_000, "{saved}, {read}");
        let told = |problem: &gabion::Problem| {
            problem.file.to_string_lossy().contains(&name) && problem.offset == Some(leaf as u64)
        };
        assert_eq!(report.problems.iter().any(told), saved < pairs.len());
        assert_eq!(report.problems.len(), usize::from(saved < pairs.len()));
        in_use += usize::from(saved < pairs.len());
    }
    assert!(in_use > 3, "{in_use} leaves were in use");
}

/// A file, the place of a wrong byte in it, and how many pairs were saved; `None` where the repair
/// was refused.
type Repair = (String, usize, Option<usize>);

fn flip_bytes(engine: Engine, stride: u64) -> (Specimen, Vec<Repair>) {
    let specimen = Specimen::new(engine, true);
    let stride = usize::try_from(setting("GABION_REPAIR_STRIDE", stride)).unwrap();
    let mut random = SeededRng::new(base_seed());
    let mut repairs = Vec::new();
    for (name, bytes) in &specimen.files {
        for at in (0..bytes.len()).step_by(stride) {
            let _context = PanicContext(|| format!("byte {at} of {name}"));
            let mut bytes = bytes.clone();
            bytes[at] ^= [1 << random.below(8), 0xff][random.index(2)];
            let sim = specimen.with(&[(name, Some(&bytes))]);
            let outcome = match repaired(&specimen, &sim) {
                Ok((_, same)) => Some(same),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(&**name), "{text}");
                    None
                }
            };
            repairs.push((name.clone(), at, outcome));
        }
    }
    println!("repair: {} wrong bytes in files of {engine}", repairs.len());
    (specimen, repairs)
}

#[test]
fn a_missing_file_costs_what_was_in_it() {
    for engine in engines_on_disks() {
        let specimen = Specimen::new(engine, true);
        for name in specimen.files.keys() {
            let _context = PanicContext(|| format!("{name} is missing"));
            match repaired(&specimen, &specimen.with(&[(name, None)])) {
                Ok((report, _)) => {
                    let told = |problem: &gabion::Problem| problem.file.ends_with(name);
                    let is_lock = name.ends_with("LOCK");
                    assert!(
                        is_lock || !report.problems.is_empty(),
                        "{:?}",
                        report.problems.iter().any(told)
                    );
                }
                Err(error) => assert!(!name.ends_with(".tbl"), "{error}"),
            }
        }
    }
}

#[test]
fn reads_that_fail_cost_no_more_than_what_they_read() {
    for engine in engines_on_disks() {
        let specimen = Specimen::new(engine, true);
        let (mut saved, mut refused) = (0, 0);
        for read in 0.. {
            let _context = PanicContext(|| format!("{engine}: read {read} fails"));
            let sim = specimen.with(&[]);
            sim.inject(Fault::once(read, FaultKind::ReadEio));
            let outcome = repaired(&specimen, &sim);
            if sim.waiting_faults() > 0 {
                outcome.unwrap();
                break;
            }
            match outcome {
                Ok(_) => saved += 1,
                Err(_) => refused += 1,
            }
        }
        println!("repair: {engine}: {saved} saved the rest, {refused} refused");
        assert!(saved > 0, "{engine}");
    }
}

#[test]
fn a_full_new_disk_is_an_error_and_no_loss() {
    for engine in engines_on_disks() {
        // With a log that is replayed.
        let specimen = Specimen::new(engine, false);
        let source = specimen.with(&[]);
        let repair = |target: &SimDisk| {
            gabion::repair_disk(&Disk::simulated(&source), &Disk::simulated(target))
        };
        let target = SimDisk::new();
        repair(&target).unwrap();
        let operations = target.ops();
        let mut refused = 0;
        for op in (0..operations).step_by(3) {
            let _context = PanicContext(|| format!("{engine}: no space from operation {op} on"));
            let target = SimDisk::new();
            target.inject(Fault::forever(op, FaultKind::NoSpace));
            match repair(&target) {
                // It said that the store was read-only: the new one was.
                Err(error) => {
                    assert!(matches!(error, Error::Media(_)), "{error}");
                    refused += 1;
                }
                Ok(report) => assert!(report.problems.is_empty(), "{:?}", report.problems),
            }
        }
        assert!(refused > 0, "{engine}: {operations} operations");
    }
}

#[test]
fn the_directory_of_a_repair_is_new_and_the_store_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = Db::open(path("store")).unwrap();
    db.put("basket", "stones").unwrap();
    let busy = gabion::repair(path("store"), path("new")).unwrap_err();
    assert!(busy.to_string().contains("locked"), "{busy}");
    assert!(!path("new").exists() && !path("new.incomplete").exists());
    db.flush().unwrap();
    db.put("basket", "sand").unwrap();
    db.close().unwrap();
    let report = gabion::repair(path("store"), path("new")).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    for name in ["store", "new"] {
        let db = Db::open(path(name)).unwrap();
        assert_eq!(db.get("basket").unwrap().as_deref(), Some(&b"sand"[..]));
    }
    let taken = gabion::repair(path("store"), path("new")).unwrap_err();
    assert!(taken.to_string().contains("already exists"), "{taken}");
    let none = gabion::repair(path("nothing"), path("else")).unwrap_err();
    assert!(none.to_string().contains("is not a Gabion store"), "{none}");
}

/// A store of a newer format was read as one of this program's, and written to a new one with what
/// was understood of it.
#[test]
fn a_store_of_a_newer_format_is_not_repaired() {
    let specimen = Specimen::new(Engine::Wip, true);
    let is_table = |name: &&String| name.ends_with(".tbl");
    let is_root = |name: &&String| *name == "CURRENT" || name.starts_with("manifest-");
    let roots: Vec<_> = specimen.files.keys().filter(is_root).collect();
    let first_table = specimen.files.keys().find(is_table).unwrap();
    assert_eq!(roots.len(), 2);
    for names in [roots, vec![first_table]] {
        let sim = specimen.with(&[]);
        for name in &names {
            let mut bytes = sim.raw(name).unwrap();
            match is_table(name) {
                true => change_footer(&mut bytes, name, (8, 9)),
                false => renumber_head(&mut bytes[..32]),
            }
            sim.set_raw(name, bytes);
        }
        let target = Disk::simulated(&SimDisk::new());
        let error = gabion::repair_disk(&Disk::simulated(&sim), &target).unwrap_err();
        let is_newer = matches!(error, Error::NewerFormat { found: 9, .. });
        assert!(is_newer, "{names:?}: {error}");
    }
    let mut bytes = specimen.files[first_table].clone();
    change_footer(&mut bytes, first_table, (15, 0x80));
    let sim = specimen.with(&[(first_table, Some(&bytes))]);
    let target = Disk::simulated(&SimDisk::new());
    let error = gabion::repair_disk(&Disk::simulated(&sim), &target).unwrap_err();
    let features = 0x8000_0000;
    assert!(matches!(&error, Error::UnknownFeatures { features: found, .. } if *found == features));
    let told = error.to_string();
    assert!(
        told.contains(first_table) && told.contains("bits 0x80000000"),
        "{told}"
    );
}

/// Tables do not say of which keyspace they are, nor which of them are in use. So there is nothing
/// to repair without a word of the manifest, and who is refused is told why.
#[test]
fn a_store_without_a_word_of_its_manifest_is_refused_with_the_reason() {
    for closed in [false, true] {
        let specimen = Specimen::new(Engine::Wip, closed);
        let is_manifest = |(name, _): &(&String, _)| name.starts_with("manifest-");
        let (name, bytes) = specimen.files.iter().find(is_manifest).unwrap();
        let damaged = |from: usize, to: usize| {
            let mut bytes = bytes.clone();
            bytes[from..to].fill(0xdb);
            Some(bytes)
        };
        let all = bytes.len();
        let cut = Some(bytes[..100].to_vec());
        for content in [
            damaged(80, 81),
            damaged(0, all),
            damaged(64, all),
            cut,
            None,
        ] {
            let sim = specimen.with(&[(name, content.as_deref())]);
            let target = SimDisk::new();
            let repaired = gabion::repair_disk(&Disk::simulated(&sim), &Disk::simulated(&target));
            let error = repaired.unwrap_err();
            let Error::Corruption { file, what, .. } = &error else {
                panic!("{error}");
            };
            assert!(file.ends_with(name), "{error}");
            for word in ["keyspace", "cannot be repaired", "copy"] {
                assert!(what.contains(word), "{error}");
            }
            assert_eq!(target.names(), Vec::<String>::new());
        }
    }
}

/// A repair counted a segment of the log, or a space, of a newer format as lost, and wrote a store
/// without it. It is refused by name, also where damage keeps the log from being read up to it.
#[test]
fn a_log_or_a_space_of_a_newer_format_is_not_repaired() {
    let mut kinds = std::collections::BTreeMap::new();
    for engine in engines_on_disks() {
        let specimen = Specimen::new(engine, false);
        for (name, bytes) in &specimen.files {
            let (kind, head) = match name.split(['-', '.']).collect::<Vec<_>>()[..] {
                [_, "log"] => ("a log", 64),
                [_, "DATA"] => ("DATA", 32),
                [_, "TREE"] => ("TREE", 72),
                [_, _, "log"] => ("the log of a space", 40),
                _ => continue,
            };
            let _context = PanicContext(|| format!("{engine}: {name}"));
            let mut newer = bytes.clone();
            if newer.iter().all(|byte| *byte == 0) {
                continue;
            }
            renumber_head(&mut newer[..head]);
            let refused = |sim: &SimDisk| {
                let target = Disk::simulated(&SimDisk::new());
                let error = gabion::repair_disk(&Disk::simulated(sim), &target).unwrap_err();
                let is_newer = matches!(
                    &error,
                    Error::NewerFormat { found: 9, file, .. } if file.ends_with(name)
                );
                assert!(is_newer, "{error}");
            };
            refused(&specimen.with(&[(name, Some(&newer))]));
            *kinds.entry(kind).or_insert(0) += 1;
            let before = specimen.files.range::<String, _>(..name);
            let before = before.rev().find(|(before, _)| is_log_name(before));
            if kind == "a log"
                && let Some((before, bytes)) = before
            {
                let mut damaged = bytes.clone();
                damaged[64..].fill(0xdb);
                let changes = [(&**name, Some(&*newer)), (&**before, Some(&*damaged))];
                refused(&specimen.with(&changes));
                *kinds.entry("behind damage").or_insert(0) += 1;
            }
        }
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

fn is_log_name(name: &str) -> bool {
    name.ends_with(".log") && !name.contains('-')
}

/// Gives the head of a log or of a file of a space such a version.
fn renumber_head(head: &mut [u8]) {
    head[8] = 9;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..12]), &head[16..]);
    head[12..16].copy_from_slice(&crc.to_le_bytes());
}

/// Changes a byte of the footer of a table, and its checksum.
fn change_footer(bytes: &mut [u8], name: &str, (offset, byte): (usize, u8)) {
    let file = u64::from_str_radix(name.trim_end_matches(".tbl"), 16).unwrap();
    let at = bytes.len() - 64;
    bytes[at + offset] = byte;
    let place = u128::from(file) << 64 | at as u128;
    let seed = crc32c::crc32c(&place.to_le_bytes());
    let end = bytes.len() - 4;
    let crc = crc32c::crc32c_append(seed, &bytes[at..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
}

/// The edit that named a flush was the newest of a store that was not closed, and lost with the
/// mark behind it: an opening takes it for one that a crash has interrupted, as it must. The repair
/// said nothing of it.
#[test]
fn a_repair_tells_of_a_newest_edit_that_is_not_valid() {
    let specimen = Specimen::new(Engine::Wip, false);
    let sim = specimen.with(&[]);
    let db = Db::open_on(Disk::simulated(&sim), specimen.options.clone()).unwrap();
    db.flush().unwrap();
    let raw = |name: String| sim.raw(&name).map(|bytes| (name, bytes));
    let files = sim.names().into_iter().filter_map(raw).collect();
    let specimen = Specimen { files, ..specimen };
    let (name, bytes) = specimen
        .files
        .iter()
        .find(|(name, _)| name.starts_with("manifest-"))
        .unwrap();
    for lost in (17..60).chain([100, 120]) {
        let _context = PanicContext(|| format!("{lost} bytes"));
        let mut bytes = bytes.clone();
        let kept = bytes.len() - lost;
        bytes[kept..].fill(0);
        // It checks that what is missing is told.
        let (report, _) = repaired(&specimen, &specimen.with(&[(name, Some(&bytes))])).unwrap();
        let told = report.problems.iter().any(|problem| {
            problem.file.to_string_lossy().contains(name.as_str()) && problem.offset.is_some()
        });
        assert!(told, "{:?}", report.problems);
    }
}
