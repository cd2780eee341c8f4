//! Tests of checkpoints on a simulated disk that loses power, fails and fills up, and flips bits.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::dirty::PAGE;
use super::*;
use crate::disk::{Fault, FaultKind, SimDisk, Tear};

const NAME: &str = "pool.checkpoint";
const PAGES: usize = 24;
const UUID: [u8; 16] = *b"sixteen bytes...";

type Memory = Vec<Page>;

/// What is done to a pool between two looks at it.
#[derive(Clone, Debug)]
enum Step {
    Change(usize, u8),
    Sync,
    Image,
    Compact,
    Reopen,
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..PAGES, any::<u8>()).prop_map(|(page, fill)| Step::Change(page, fill)),
        4 => Just(Step::Sync),
        1 => Just(Step::Image),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..count)
}

/// A pool of plain memory with checkpoints on a simulated disk.
struct Twin {
    disk: Disk,
    memory: Memory,
    dirty: BTreeSet<u64>,
    checkpoint: Checkpoint,
    /// Whether something failed, so that only an image can be trusted.
    has_failed: bool,
}

fn new_checkpoint(disk: &Disk) -> Checkpoint {
    Checkpoint::new(disk.clone(), NAME, UUID, PAGES as u64 * PAGE)
}

impl Twin {
    fn new(disk: Disk) -> Twin {
        let checkpoint = new_checkpoint(&disk);
        Twin {
            disk,
            memory: vec![[0; PAGE_BYTES]; PAGES],
            dirty: BTreeSet::new(),
            checkpoint,
            has_failed: false,
        }
    }

    fn sync(&mut self, is_image: bool) -> Result<()> {
        let is_image = is_image || self.has_failed || self.checkpoint.len() == 0;
        let pages: Vec<u64> = if is_image {
            (0..PAGES as u64)
                .filter(|page| self.memory[at(*page)] != [0; PAGE_BYTES])
                .collect()
        } else {
            self.dirty.iter().copied().collect()
        };
        let memory = &self.memory;
        self.checkpoint
            .write(pages.into_iter(), is_image, |page, bytes| {
                *bytes = memory[at(page)];
                Ok(())
            })?;
        self.checkpoint.commit()?;
        self.has_failed = false;
        self.dirty.clear();
        Ok(())
    }

    /// True if a checkpoint was finished.
    fn run(&mut self, step: &Step) -> Result<bool> {
        match *step {
            Step::Change(page, fill) => {
                // Not all of a page, so that a mixture of two versions is neither.
                let from = usize::from(fill) * 8;
                self.memory[page][from..from + 2048].fill(fill);
                self.dirty.insert(page as u64);
            }
            Step::Sync => return self.sync(false).map(|()| true),
            Step::Image => return self.sync(true).map(|()| true),
            Step::Compact if self.checkpoint.len() > 0 => self.checkpoint.compact()?,
            Step::Compact => {}
            Step::Reopen => {
                let reopened = reopen(self.disk.clone(), NAME)?;
                self.checkpoint = reopened.unwrap_or_else(|| new_checkpoint(&self.disk));
            }
        }
        Ok(false)
    }
}

fn at(page: u64) -> usize {
    usize::try_from(page).unwrap()
}

/// The checkpoints as a pool that is opened has them.
fn reopen(disk: Disk, name: &str) -> Result<Option<Checkpoint>> {
    let mut found = Checkpoint::look(disk, name)?;
    if let Some(checkpoint) = &mut found {
        checkpoint.take()?;
    }
    Ok(found)
}

/// What a restored pool holds; none if there is no checkpoint.
fn restored(disk: &Disk) -> Result<Option<Memory>> {
    let Some(checkpoint) = reopen(disk.clone(), NAME)? else {
        return Ok(None);
    };
    assert_eq!(checkpoint.uuid(), UUID);
    assert_eq!(checkpoint.size(), PAGES as u64 * PAGE);
    let mut memory = vec![[0; PAGE_BYTES]; PAGES];
    let mut order = Vec::new();
    checkpoint.restore(|page, bytes| {
        memory[at(page)] = *bytes;
        order.push(page);
        Ok(())
    })?;
    let zero = order.iter().position(|page| *page == 0);
    assert!(
        zero.is_none_or(|place| place + 1 == order.len()),
        "page 0 comes last: {order:?}"
    );
    Ok(Some(memory))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Power is lost after each operation of the disk; what comes back is the last state whose
    /// sync returned, or the one whose sync was at work.
    #[test]
    fn a_power_cut_leaves_the_last_sync_or_the_one_in_flight(steps in steps(40), seed: u64) {
        let sim = SimDisk::recording();
        let mut twin = Twin::new(Disk::simulated(&sim));
        // The operation after which a state was durable, and the state.
        let mut states: Vec<(u64, Option<Memory>)> = vec![(0, None)];
        for step in &steps {
            if twin.run(step).unwrap() {
                states.push((sim.ops(), Some(twin.memory.clone())));
            }
        }
        for cut in 0..=sim.ops() {
            let last = states.iter().rposition(|(done, _)| *done <= cut).unwrap();
            let possible = &states[last..(last + 2).min(states.len())];
            for style in Tear::ALL {
                let crashed = sim.power_cut(cut, seed ^ cut, style);
                let disk = Disk::simulated(&crashed);
                let found = restored(&disk).map_err(|error| TestCaseError::fail(format!(
                    "cut after {cut} ({:?}): {error}", sim.describe(cut)
                )))?;
                prop_assert!(
                    possible.iter().any(|(_, state)| *state == found),
                    "cut after {cut} ({:?})", sim.describe(cut)
                );
                // Opening cut off what was unfinished; the next sync goes on from there.
                let mut next = Twin::new(disk.clone());
                next.run(&Step::Reopen).unwrap();
                next.memory = found.unwrap_or_else(|| vec![[0; PAGE_BYTES]; PAGES]);
                for step in [Step::Change(3, 0x33), Step::Sync] {
                    next.run(&step).unwrap();
                }
                let again = Disk::simulated(&crashed.power_cut(crashed.ops(), 7, style));
                prop_assert_eq!(restored(&again).unwrap(), Some(next.memory));
            }
        }
    }

    /// A fault strikes one operation. The error is told; what was synced before is there, and
    /// after an error of a full disk the next sync succeeds.
    #[test]
    fn a_fault_costs_no_synced_state(
        steps in steps(24),
        kind in prop_oneof![
            Just(FaultKind::Eio),
            Just(FaultKind::NoSpace),
            Just(FaultKind::ShortWrite),
            Just(FaultKind::SyncFails { keep: true }),
            Just(FaultKind::SyncFails { keep: false }),
        ],
        seed: u64,
    ) {
        let total = {
            let sim = SimDisk::new();
            let mut twin = Twin::new(Disk::simulated(&sim));
            for step in &steps {
                twin.run(step).unwrap();
            }
            sim.ops()
        };
        for at in 1..=total {
            let sim = SimDisk::recording();
            sim.inject(Fault::once(at, kind));
            let mut twin = Twin::new(Disk::simulated(&sim));
            let mut possible: Vec<Option<Memory>> = vec![None];
            for step in &steps {
                match twin.run(step) {
                    Ok(true) => possible = vec![Some(twin.memory.clone())],
                    Ok(false) => {}
                    Err(_) => {
                        twin.has_failed = true;
                        possible.push(Some(twin.memory.clone()));
                    }
                }
            }
            // A fault that struck no step may strike now, and counts for one more try.
            let mut retried = twin.sync(false);
            if retried.is_err() {
                twin.has_failed = true;
                possible.push(Some(twin.memory.clone()));
                retried = twin.sync(false);
            }
            if retried.is_ok() {
                possible = vec![Some(twin.memory.clone())];
            } else {
                prop_assert!(matches!(retried, Err(Error::Poisoned { .. })), "{retried:?}");
            }
            let crashed = sim.power_cut(sim.ops(), seed, Tear::Random512);
            let found = restored(&Disk::simulated(&crashed)).unwrap();
            prop_assert!(possible.contains(&found), "fault {kind:?} at {at} of {total}");
        }
    }

    /// Of a flipped bit comes an error or, in what the last sync wrote, the state before it.
    #[test]
    fn a_flipped_bit_is_never_restored(at: prop::sample::Index, bit in 0..8_u8) {
        let sim = SimDisk::new();
        let mut twin = Twin::new(Disk::simulated(&sim));
        let mut states = vec![];
        for (page, fill) in [(0, 1), (5, 2), (5, 3), (9, 4)] {
            twin.run(&Step::Change(page, fill)).unwrap();
            twin.run(&Step::Sync).unwrap();
            states.push(twin.memory.clone());
        }
        let mut bytes = sim.raw(NAME).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        sim.set_raw(NAME, bytes);
        match restored(&Disk::simulated(&sim)) {
            Ok(found) => prop_assert!(states[2..].contains(&found.unwrap()), "{at}"),
            Err(Error::Pool { fault, .. }) => {
                let told = matches!(
                    fault,
                    crate::PoolFault::Damaged { .. } | crate::PoolFault::ForeignCheckpoint
                );
                prop_assert!(told, "{fault:?}");
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn the_file_stays_within_twice_the_image() {
    let sim = SimDisk::new();
    let mut twin = Twin::new(Disk::simulated(&sim));
    let limit = 2 * (PAGES * PAGE_BYTES) as u64 + SLACK_BYTES;
    let mut was_compacted = false;
    for round in 0..400_u32 {
        let fill = round.to_le_bytes()[0] | 1;
        for page in 0..PAGES / 4 {
            twin.run(&Step::Change(page * 4, fill)).unwrap();
        }
        twin.sync(false).unwrap();
        if twin.checkpoint.wants_image() {
            twin.checkpoint.compact().unwrap();
            was_compacted = true;
        }
        assert!(twin.checkpoint.len() <= limit + 7 * PAGE);
    }
    assert!(was_compacted);
    assert_eq!(restored(&twin.disk).unwrap(), Some(twin.memory));
}

#[test]
fn an_image_of_many_pieces_is_whole() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let pages = 3 * PIECE_PAGES as u64 + 1;
    let mut checkpoint = Checkpoint::new(disk.clone(), NAME, UUID, pages * PAGE);
    checkpoint
        .write(0..pages, true, |page, bytes| {
            bytes[..8].copy_from_slice(&(page + 1).to_le_bytes());
            Ok(())
        })
        .unwrap();
    checkpoint.commit().unwrap();
    let checkpoint = reopen(disk, NAME).unwrap().unwrap();
    let mut found = BTreeSet::new();
    checkpoint
        .restore(|page, bytes| {
            assert_eq!(bytes[..8], (page + 1).to_le_bytes());
            assert!(found.insert(page));
            Ok(())
        })
        .unwrap();
    assert_eq!(found.len() as u64, pages);
}

#[test]
fn another_files_content_is_told() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    for (content, what) in [
        (vec![], "truncated"),
        (vec![7; 100], "GABIONCP"),
        (
            FileHeader {
                uuid: UUID,
                size: 4096,
            }
            .encode()
            .to_vec(),
            "image",
        ),
    ] {
        sim.set_raw(NAME, content);
        let error = reopen(disk.clone(), NAME).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}
