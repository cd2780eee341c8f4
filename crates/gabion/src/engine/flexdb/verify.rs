//! Checking a closed store, byte by byte.
//!
//! # What must hold
//! - Every block, node and frame of a space passes its checksum. Its extents refer to data that was
//!   written, no two of them to the same, and it has come as far as the root says.
//! - A space is pairs and nothing else, with lengths that pairs have and in the order of their
//!   keys. A mark is only where a pair begins: recoveries rely on it.
//! - The log is whole up to its end, and names keyspaces that the root knows.
//!
//! Behind damage, the check goes on at the next mark. It writes nothing, so a medium that takes no
//! writes will do.

use std::path::PathBuf;

use gabion_flex::{CheckedPiece, PieceContent, check_content};
use gabion_media::Disk;

use super::interval::{PAIR_HEAD_BYTES_MAX, pair_head};
use super::layout::{ROOT_NAME, Root, RootKeyspace, space_prefix};
use super::partition::DATA_NAME;
use crate::Result;
use crate::engine::{CheckReport, Problem};
use crate::limits::{KEY_BYTES_MAX, STORED_BYTES_MAX};
use crate::names::LOCK;

/// Reads every byte of the store's files and checks it. Damage is part of the report.
pub(crate) fn check_disk(disk: &Disk) -> Result<CheckReport> {
    let _lock = disk.lock_shared(LOCK)?;
    let mut report = CheckReport::default();
    match Root::read(disk) {
        Ok(root) => {
            for known in root.keyspaces.iter() {
                check_space(&disk.part(&space_prefix(known.id)), known, &mut report)?;
            }
            report.check_log(disk, root.log_tail, &root.sealed, root.next_keyspace)?;
        }
        Err(error) => report.add(error, &disk.path_of(ROOT_NAME))?,
    }
    Ok(report)
}

fn check_space(disk: &Disk, known: &RootKeyspace, report: &mut CheckReport) -> Result<()> {
    let mut pairs = Pairs::new(disk.path_of(DATA_NAME));
    match check_content(disk, known.reached, |piece| pairs.read(piece)) {
        Ok(found) => {
            pairs.end(found.len);
            report.table_bytes += found.data_bytes;
            report.entries += pairs.count;
            let damage = found
                .problems
                .into_iter()
                .map(|problem| Problem::new(problem.file, Some(problem.offset), problem.what));
            report.problems.extend(damage);
            report.problems.extend(pairs.problems);
            Ok(())
        }
        Err(error) => report.add(error.into(), disk.path()),
    }
}

/// Reads the pairs of a space, piece by piece.
struct Pairs {
    /// For messages.
    file: PathBuf,
    count: u64,
    problems: Vec<Problem>,
    last_key: Option<Vec<u8>>,
    /// Where the pair begins that is being read.
    start: u64,
    /// What was read of it, up to the end of its key.
    front: Vec<u8>,
    /// Bytes of its value that are still to come, once the key is known.
    value_rest: u64,
    /// Nothing can be told before the next mark.
    lost: bool,
}

impl Pairs {
    fn new(file: PathBuf) -> Pairs {
        Pairs {
            file,
            count: 0,
            problems: Vec::new(),
            last_key: None,
            start: 0,
            front: Vec::new(),
            value_rest: 0,
            lost: false,
        }
    }

    fn problem(&mut self, offset: u64, what: &str) {
        let what = format!("{what} (an offset in the sorted space)");
        let problem = Problem::new(self.file.clone(), Some(offset), what);
        self.problems.push(problem);
    }

    fn is_within_pair(&self) -> bool {
        !self.front.is_empty() || self.value_rest > 0
    }

    /// Begins a pair.
    fn begin(&mut self, start: u64) {
        self.start = start;
        self.front.clear();
        self.value_rest = 0;
        self.lost = false;
    }

    fn lose(&mut self) {
        self.begin(self.start);
        self.lost = true;
    }

    fn read(&mut self, piece: &CheckedPiece<'_>) {
        if piece.is_marked {
            if self.is_within_pair() {
                self.problem(
                    piece.offset,
                    "a pair begins here, but the one before has not ended",
                );
            }
            self.begin(piece.offset);
        }
        match piece.content {
            PieceContent::Data(_) if self.lost => {}
            PieceContent::Data(bytes) => self.read_bytes(bytes),
            PieceContent::Hole => {
                self.problem(piece.offset, "there is a hole among the pairs");
                self.lose();
            }
            // The check of the space has told it.
            _ => self.lose(),
        }
    }

    fn read_bytes(&mut self, bytes: &[u8]) {
        let skipped = usize::try_from(self.value_rest).map_or(bytes.len(), |r| r.min(bytes.len()));
        self.value_rest -= skipped as u64;
        self.front.extend_from_slice(&bytes[skipped..]);
        let mut at = 0;
        while at < self.front.len() {
            let (head, key, all) = match pair_head(&self.front[at..]) {
                Ok(lens) => lens,
                Err(_) if self.front.len() - at < PAIR_HEAD_BYTES_MAX => break,
                Err(malformed) => {
                    self.problem(self.start, malformed.what);
                    return self.lose();
                }
            };
            let value = (all - head - key) as u64;
            if key as u64 > KEY_BYTES_MAX || value > STORED_BYTES_MAX {
                self.problem(self.start, "the length of a pair is impossible");
                return self.lose();
            }
            let Some(own) = self.front.get(at + head..at + head + key) else {
                break;
            };
            let own = own.to_vec();
            if self.last_key.as_ref().is_some_and(|last| *last >= own) {
                self.problem(self.start, "a key is not above the one before it");
            }
            self.last_key = Some(own);
            self.count += 1;
            self.start += all as u64;
            let there = self.front.len() - at;
            self.value_rest = all.saturating_sub(there) as u64;
            at += all.min(there);
        }
        self.front.drain(..at);
    }

    /// The space ends here.
    fn end(&mut self, len: u64) {
        if self.is_within_pair() {
            self.problem(len, "the last pair is cut off");
        }
    }
}

#[cfg(test)]
mod tests {
    use gabion_flex::{Edit, FlexSpace};
    use gabion_media::SimDisk;

    use super::*;
    use crate::Tuning;
    use crate::engine::flexdb::interval::put_pair;
    use crate::types::Kind;
    use crate::{Db, Engine, Options};

    fn options() -> Options {
        Options::default()
            .engine(Engine::Flex)
            .background_threads(0)
            .tuning(Tuning::default().memtable_budget_bytes(64 << 10))
    }

    fn key(number: usize) -> String {
        format!("key {number:03}")
    }

    fn value(number: usize) -> String {
        "v".repeat(number * 7 % 300)
    }

    /// A closed store of one keyspace with 200 pairs.
    fn store() -> SimDisk {
        let sim = SimDisk::new();
        let db = Db::open_on(Disk::simulated(&sim), options()).unwrap();
        for number in 0..200 {
            db.put(key(number), value(number)).unwrap();
        }
        db.close().unwrap();
        assert!(problems(&sim).is_empty());
        sim
    }

    /// Where the pair of that number begins, and the bytes of it.
    fn pair(number: usize) -> (u64, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut start = 0;
        for number in 0..=number {
            start = bytes.len();
            put_pair(
                &mut bytes,
                Kind::Put,
                key(number).as_bytes(),
                value(number).as_bytes(),
            );
        }
        (start as u64, bytes[start..].to_vec())
    }

    fn space_disk(sim: &SimDisk) -> Disk {
        Disk::simulated(sim).part(&space_prefix(0))
    }

    /// Changes the only space behind the engine's back.
    fn edit(sim: &SimDisk, edits: &[Edit<'_>]) {
        let options = gabion_flex::Options::default().create(false);
        let space = FlexSpace::open_on(space_disk(sim), options).unwrap();
        space.apply(edits).unwrap();
        space.checkpoint().unwrap();
        space.close();
    }

    fn problems(sim: &SimDisk) -> Vec<Problem> {
        check_disk(&Disk::simulated(sim)).unwrap().problems
    }

    /// The only problem, as its file's name, its place and what it says.
    fn only_problem(sim: &SimDisk) -> (String, Option<u64>, String) {
        let mut found = problems(sim);
        assert_eq!(found.len(), 1, "{found:?}");
        let Problem { file, offset, what } = found.remove(0);
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        (name.into_owned(), offset, what)
    }

    fn assert_problem(sim: &SimDisk, name: &str, offset: u64, words: &str) {
        let (file, found, what) = only_problem(sim);
        assert!(
            file.ends_with(name) && found == Some(offset) && what.contains(words),
            "{file}, offset {found:?}: {what}"
        );
    }

    #[test]
    fn a_sound_store_is_counted() {
        let report = check_disk(&Disk::simulated(&store())).unwrap();
        assert_eq!(report.entries, 200);
        assert_eq!((report.log_operations, report.log_segments), (0, 0));
        let (start, last) = pair(199);
        assert!(report.table_bytes >= start + last.len() as u64);
    }

    #[test]
    fn pairs_in_the_wrong_order_are_told() {
        let sim = store();
        let (offset, data) = pair(50);
        let len = data.len() as u64;
        let (behind, _) = pair(52);
        edit(
            &sim,
            &[
                Edit::Collapse { offset, len },
                Edit::InsertMarked {
                    offset: behind - len,
                    data: &data,
                },
            ],
        );
        assert_problem(&sim, DATA_NAME, behind - len, "not above the one before");
        assert_eq!(check_disk(&Disk::simulated(&sim)).unwrap().entries, 200);
    }

    #[test]
    fn bytes_that_are_no_pair_are_told() {
        let (offset, _) = pair(50);
        let mut long = vec![0xff, 0xff, 0xff, 0xff, 0x07, 1];
        long.extend([b'k'; 6]);
        for data in [&[0xff; 12][..], &long] {
            let sim = store();
            edit(&sim, &[Edit::InsertMarked { offset, data }]);
            let (file, found, _) = only_problem(&sim);
            assert!(file.ends_with(DATA_NAME) && found == Some(offset));
        }
    }

    #[test]
    fn a_mark_within_a_pair_is_told() {
        let sim = store();
        let (offset, data) = pair(50);
        let (front, back) = data.split_at(20);
        edit(
            &sim,
            &[
                Edit::Collapse {
                    offset: offset + 20,
                    len: back.len() as u64,
                },
                Edit::InsertMarked {
                    offset: offset + front.len() as u64,
                    data: back,
                },
            ],
        );
        let found = problems(&sim);
        let first = found.first().expect("the mark is seen");
        assert_eq!(first.offset, Some(offset + 20));
        assert!(first.what.contains("has not ended"), "{}", first.what);
    }

    #[test]
    fn a_pair_that_is_cut_off_and_a_hole_are_told() {
        let sim = store();
        let (offset, data) = pair(199);
        let end = offset + data.len() as u64;
        edit(
            &sim,
            &[Edit::Collapse {
                offset: end - 1,
                len: 1,
            }],
        );
        assert_problem(&sim, DATA_NAME, end - 1, "cut off");

        let sim = store();
        let (offset, _) = pair(7);
        edit(&sim, &[Edit::InsertHole { offset, len: 9 }]);
        assert_problem(&sim, DATA_NAME, offset, "hole");
    }

    #[test]
    fn a_space_that_has_not_come_as_far_as_the_root_says_is_told() {
        let sim = store();
        let disk = Disk::simulated(&sim);
        let mut root = Root::read(&disk).unwrap();
        let mut reached = root.keyspaces.iter().next().unwrap().reached;
        let end = reached.log_offset;
        reached.log_offset += 1;
        root.keyspaces.set_reached(|_| Some((reached, false)));
        root.write(&disk).unwrap();
        assert_problem(&sim, ".log", end, "durable up to offset");
        assert!(Db::open_on(disk.clone(), options()).is_err());

        reached.tree_version += 1;
        root.keyspaces.set_reached(|_| Some((reached, false)));
        root.write(&disk).unwrap();
        assert_problem(&sim, "TREE", 0, "was durable");
        assert!(Db::open_on(disk, options()).is_err());
    }

    #[test]
    fn a_space_that_is_not_there_is_told_and_not_made_anew() {
        let sim = store();
        for name in sim.names() {
            if name.starts_with(&space_prefix(0)) {
                Disk::simulated(&sim).remove(&name).unwrap();
            }
        }
        let (_, _, what) = only_problem(&sim);
        assert!(what.contains("TREE"), "{what}");
        let opened = Db::open_on(Disk::simulated(&sim), options());
        let error = opened.expect_err("a space is missing").to_string();
        assert!(error.contains("TREE"), "{error}");
    }

    #[test]
    fn operations_of_keyspaces_that_the_root_does_not_know_are_told() {
        let sim = SimDisk::recording();
        let db = Db::open_on(Disk::simulated(&sim), options()).unwrap();
        db.keyspace("other").unwrap().put("key", "value").unwrap();
        let sim = sim.process_kill(sim.ops());
        let disk = Disk::simulated(&sim);
        assert!(problems(&sim).is_empty());
        let mut root = Root::read(&disk).unwrap();
        root.keyspaces.remove(1);
        root.next_keyspace = 1;
        root.write(&disk).unwrap();
        let (file, _, what) = only_problem(&sim);
        assert!(file.ends_with(".log") && what.contains("names the unknown keyspace 1"));
        drop(db);
    }
}
