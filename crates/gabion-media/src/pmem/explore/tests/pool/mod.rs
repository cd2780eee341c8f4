//! The real pool under the explorer, by a structure that uses all of it: a directory of blocks.
//!
//! - `histories`: creation, opening, allocating, freeing, large blocks, moved references, a full
//!   pool, and crashes of all that and of its recovery.
//! - `mutants`: each flush and each fence is left out.
//! - `published`: bugs that others have had with allocators and pools, planted.

mod histories;
mod mutants;
mod published;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::super::{HistoryStep, OpOutcome, Subject, SubjectMedium};
use crate::pmem::alloc::intent::{IntentSlot, SLOTS as INTENTS};
use crate::pmem::layout::{FIXED_BYTES, HeaderState, check_header};
use crate::pmem::{
    BlockClaim, Medium, PAtomicU64, POff, Pool, PoolOptions, PoolStats, ROOT_HINT, Reachable,
    Reserved, Retiring,
};

/// Slots of the directory, which is the root block: each a word with the offset of a block.
const SLOTS: u64 = 6;

/// A directory of blocks in a pool. The first operation makes it.
struct Directory {
    bytes: u64,
    heaps: u32,
    bug: Bug,
    /// Bytes that blocks may use, in use or not: always the same.
    space: OnceLock<u64>,
}

/// What is wrong with how a directory uses its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// A block is durably someone's before anything refers to it.
    CommittedBeforePublish,
    /// A block is given back before nothing refers to it any more.
    FreedBeforeUnpublished,
    /// That a block goes is announced only when nothing refers to it any more.
    AnnouncedTooLate,
    /// The announcement names another place than the one of the reference.
    WrongHint,
    /// The new directory is published before the references are in it.
    PublishedBeforeCopied,
    /// The second of two blocks is announced after the first, which refers to it, is published.
    SecondTooLate,
}

#[derive(Clone, Debug)]
enum Op {
    /// A new block in a slot; the one before it is freed.
    Put { slot: u64, size: u64, value: u64 },
    /// The same, but the old block waits for its readers.
    PutLazily { slot: u64, size: u64, value: u64 },
    /// The slot's block is freed.
    Delete { slot: u64 },
    /// Blocks are reserved and announced as retired, and nothing comes of it.
    GiveUp { size: u64, slot: u64 },
    /// Two blocks are published by one store: the second is referred to by the first.
    PutTwo { slot: u64, size: u64, value: u64 },
    /// The directory moves to a new block, and with it all references.
    Move,
    /// Blocks that wait for readers are freed.
    Collect,
    /// All slots are empty, so all space but the directory's must be free.
    Empty,
}

/// Size as asked for, value, and the value of the block behind it or 0, by slot.
type Content = BTreeMap<u64, (u64, u64, u64)>;

/// Bytes of a chunk.
const CHUNK: u64 = 4096;

/// Bytes of the second of two blocks.
const SECOND: u64 = 48;

/// A hint with this bit is the offset of a slot whose block refers to the one in question.
const BEHIND: u64 = 1 << 60;

/// Whether a block is referred to by a slot, or by the block that a slot refers to.
fn is_reachable(medium: &Medium, claim: BlockClaim) -> bool {
    let refers = |at: u64| {
        let word: Option<&PAtomicU64> = medium.try_at(POff::new(at));
        // ORDER: Relaxed: one thread.
        word.map_or(0, |word| word.load(medium, Ordering::Relaxed))
    };
    if claim.hint & BEHIND == 0 {
        return refers(claim.hint) == claim.block.raw();
    }
    let first = refers(claim.hint & !BEHIND);
    first != 0 && refers(first + 16) == claim.block.raw()
}

impl Directory {
    fn options(&self, stage: &SubjectMedium) -> PoolOptions {
        PoolOptions {
            layout: 77,
            heaps: self.heaps,
            chunk_bytes: CHUNK,
            reachable: Reachable::ask_fn(is_reachable),
            watcher: Some(stage.watcher().clone()),
            ..PoolOptions::default()
        }
    }

    fn slot(pool: &Pool, slot: u64) -> &PAtomicU64 {
        pool.at(pool.root::<PAtomicU64>().element(slot))
    }

    fn load(pool: &Pool, slot: u64) -> u64 {
        // ORDER: Relaxed: one thread.
        Directory::slot(pool, slot).load(pool, Ordering::Relaxed)
    }

    /// Fills a block: its size as asked for, its value and the block behind it at its begin, and
    /// the value at its end.
    fn fill(pool: &Pool, at: u64, size: u64, value: u64, next: u64) {
        let words = [size, value, next];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        pool.write(at, &bytes);
        pool.flush_range(at, 24);
        pool.write(at + size - 8, &value.to_le_bytes());
        pool.flush_range(at + size - 8, 8);
    }

    /// The blocks of a slot: the one that it refers to, and the one behind that.
    fn blocks(pool: &Pool, slot: u64) -> [u64; 2] {
        let first = Directory::load(pool, slot);
        if first == 0 {
            return [0, 0];
        }
        let second: &PAtomicU64 = pool.at(POff::new(first + 16));
        // ORDER: Relaxed: one thread.
        [first, second.load(pool, Ordering::Relaxed)]
    }

    /// Announces blocks of a slot as retired.
    fn retire(pool: &Pool, slot: u64, blocks: [u64; 2]) -> crate::Result<Vec<Retiring<'_>>> {
        let hint = pool.offset_of(Directory::slot(pool, slot)).raw();
        let hints = [hint, hint | BEHIND];
        let blocks = blocks.into_iter().zip(hints);
        blocks
            .filter(|(block, _)| *block != 0)
            .map(|(block, hint)| announce(pool, block, hint))
            .collect()
    }

    fn put(&self, pool: &Pool, op: &Op) -> crate::Result<()> {
        let (slot, size, value) = match *op {
            Op::Put { slot, size, value }
            | Op::PutLazily { slot, size, value }
            | Op::PutTwo { slot, size, value } => (slot, size, value),
            _ => return Ok(()),
        };
        let word = Directory::slot(pool, slot);
        let hint = pool.offset_of(word).raw();
        let wrong = u64::from(self.bug == Bug::WrongHint) * 8;
        let is_two = matches!(op, Op::PutTwo { .. });
        let new = reserve(pool, size, hint ^ wrong)?;
        let behind = || reserve(pool, SECOND, hint | BEHIND);
        let is_early = is_two && self.bug != Bug::SecondTooLate;
        let mut second = is_early.then(behind).transpose()?;
        let blocks = Directory::blocks(pool, slot);
        let is_announced = self.bug != Bug::AnnouncedTooLate;
        let mut old = match is_announced {
            true => Directory::retire(pool, slot, blocks)?,
            false => Vec::new(),
        };
        if self.bug == Bug::FreedBeforeUnpublished {
            pool.fence();
            old.drain(..).for_each(free_now);
        }
        let at = |block: &Reserved<'_>| block.offset::<u8>().raw();
        if let Some(second) = &second {
            Directory::fill(pool, at(second), SECOND, value + 1, 0);
        }
        Directory::fill(pool, at(&new), size, value, second.as_ref().map_or(0, at));
        pool.fence();
        let new_at = at(&new);
        let new = match self.bug {
            Bug::CommittedBeforePublish => {
                done(new);
                pool.fence();
                None
            }
            _ => Some(new),
        };
        word.store(pool, new_at, Ordering::Release);
        pool.persist(word);
        if is_two && !is_early {
            let late = behind()?;
            Directory::fill(pool, at(&late), SECOND, value + 1, 0);
            let next: &PAtomicU64 = pool.at(POff::new(new_at + 16));
            // ORDER: Relaxed: one thread.
            next.store(pool, at(&late), Ordering::Relaxed);
            pool.persist(next);
            second = Some(late);
        }
        new.into_iter().chain(second).for_each(done);
        if !is_announced {
            old = Directory::retire(pool, slot, blocks)?;
            pool.fence();
        }
        for old in old {
            if matches!(op, Op::PutLazily { .. }) {
                old.commit(&pool.enter());
            } else {
                free_now(old);
            }
        }
        Ok(())
    }

    /// Makes the directory.
    fn make_root(pool: &Pool) -> crate::Result<()> {
        let root = reserve(pool, SLOTS * 8, ROOT_HINT)?;
        pool.zero(root.offset::<u8>().raw(), SLOTS * 8);
        pool.fence();
        pool.set_root(root.offset::<PAtomicU64>());
        done(root);
        Ok(())
    }

    fn move_root(&self, pool: &Pool) -> crate::Result<()> {
        // The hints of operations before refer to the old slots, which stay as they are until their
        // block is freed; and that ends these operations first. So nothing must be settled here.
        let bytes = SLOTS * 8;
        let new = reserve(pool, bytes, ROOT_HINT)?;
        let old = announce(pool, pool.root::<PAtomicU64>().raw(), ROOT_HINT)?;
        let words: Vec<u64> = (0..SLOTS).map(|slot| Directory::load(pool, slot)).collect();
        if self.bug == Bug::PublishedBeforeCopied {
            pool.fence();
            pool.set_root(new.offset::<PAtomicU64>());
        }
        for (slot, word) in (0..).zip(words) {
            let at = new.offset::<PAtomicU64>().element(slot);
            // ORDER: Relaxed: the fence below, and the root's store, publish it.
            pool.at(at).store(pool, word, Ordering::Relaxed);
        }
        pool.flush_range(new.offset::<u8>().raw(), bytes);
        pool.fence();
        pool.set_root(new.offset::<PAtomicU64>());
        done(new);
        free_now(old);
        Ok(())
    }

    fn run(&self, pool: &Pool, op: &Op) -> crate::Result<()> {
        if pool.root::<PAtomicU64>().is_null() {
            Directory::make_root(pool)?;
        }
        match *op {
            Op::Put { .. } | Op::PutLazily { .. } | Op::PutTwo { .. } => self.put(pool, op),
            Op::Delete { slot } => {
                let word = Directory::slot(pool, slot);
                let retired = Directory::retire(pool, slot, Directory::blocks(pool, slot))?;
                pool.fence();
                word.store(pool, 0, Ordering::Release);
                pool.persist(word);
                retired.into_iter().for_each(free_now);
                Ok(())
            }
            Op::GiveUp { size, slot } => {
                let hint = pool.offset_of(Directory::slot(pool, slot)).raw();
                let new = reserve(pool, size, hint)?;
                let second = reserve(pool, size, hint)?;
                let retired = Directory::retire(pool, slot, Directory::blocks(pool, slot))?;
                drop(new);
                drop(retired);
                drop(second);
                Ok(())
            }
            Op::Move => self.move_root(pool),
            Op::Collect => {
                pool.collect();
                Ok(())
            }
            Op::Empty => {
                pool.collect();
                let stats = pool.stats();
                let root = pool.rounded_size(SLOTS * 8);
                assert_eq!(
                    (stats.retired_bytes, stats.used_bytes),
                    (0, root),
                    "{stats:?}"
                );
                assert_eq!(stats.fragmented_bytes + root, CHUNK, "{stats:?}");
                Ok(())
            }
        }
    }
}

// Each step of the protocol is called in one place, so that its flush is one mutant.

fn reserve(pool: &Pool, size: u64, hint: u64) -> crate::Result<Reserved<'_>> {
    pool.alloc(size, hint)
}

fn announce(pool: &Pool, block: u64, hint: u64) -> crate::Result<Retiring<'_>> {
    pool.retire(POff::<u8>::new(block), hint)
}

fn done(block: Reserved<'_>) {
    block.commit::<u8>();
}

fn free_now(block: Retiring<'_>) {
    block.commit_now();
}

/// Whether operations are in flight on a medium, or are not known to be over.
fn has_intents(medium: &Medium) -> bool {
    let mut bytes = [0; FIXED_BYTES];
    medium.read(0, &mut bytes);
    let HeaderState::Valid(header) = check_header(&bytes) else {
        return false;
    };
    let geometry = header.geometry().expect("a shape that is possible");
    let count = geometry.heaps as usize * INTENTS;
    let slots: &[IntentSlot] = medium.slice(POff::new(geometry.rings_at), count);
    slots.iter().any(|slot| !slot.is_blank(medium))
}

fn space(stats: &PoolStats) -> u64 {
    stats.used_bytes + stats.retired_bytes + stats.fragmented_bytes + stats.free_bytes
}

impl Subject for Directory {
    type Op = Op;
    type Structure = Pool;
    type Content = Content;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Pool, String> {
        // What a crash left is wiped, as a file would be made anew.
        let medium = stage.medium();
        medium.zero(0, medium.len());
        let pool = Pool::create_in(stage.region(), self.options(stage));
        let pool = pool.map_err(|error| error.to_string())?;
        self.space.get_or_init(|| space(&pool.stats()));
        Ok(pool)
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Pool>, String> {
        let medium = stage.medium();
        let mut magic = [0; 8];
        medium.read(0, &mut magic);
        if magic == [0; 8] {
            return Ok(None);
        }
        let has_intents = has_intents(&medium);
        let pool = Pool::open_in(stage.region(), self.options(stage));
        let pool = pool.map_err(|error| error.to_string())?;
        if pool.was_closed() && has_intents {
            return Err("it is said to be closed, and operations are in flight".to_owned());
        }
        Ok(Some(pool))
    }

    fn close(&self, pool: Pool) -> Result<(), String> {
        pool.close().map_err(|error| error.to_string())
    }

    fn apply(&self, pool: &Pool, op: &Op) -> Result<OpOutcome, String> {
        match self.run(pool, op) {
            Ok(()) => Ok(OpOutcome::Done),
            Err(crate::Error::PoolFull { .. }) => Ok(OpOutcome::Refused),
            Err(error) => Err(error.to_string()),
        }
    }

    fn content(&self, pool: &Pool) -> Result<Content, String> {
        let mut content = Content::new();
        let root = pool.root::<PAtomicU64>();
        let mut blocks = Vec::new();
        if !root.is_null() {
            blocks.push((root.raw(), pool.rounded_size(SLOTS * 8)));
        }
        for slot in (0..SLOTS).take_while(|_| !root.is_null()) {
            let at = Directory::load(pool, slot);
            if at == 0 {
                continue;
            }
            let word = |at: u64| -> Result<u64, String> {
                let word: Option<&PAtomicU64> = pool.try_at(POff::new(at));
                let word = word.ok_or_else(|| format!("no word at {at:#x}"))?;
                // ORDER: Relaxed: one thread.
                Ok(word.load(pool, Ordering::Relaxed))
            };
            let block = |at: u64| -> Result<(u64, u64, u64), String> {
                let (size, value, next) = (word(at)?, word(at + 8)?, word(at + 16)?);
                if !(24..=pool.len()).contains(&size) {
                    return Err(format!("slot {slot} has a block of {size} bytes"));
                }
                if word(at + size - 8)? != value {
                    return Err(format!("the end of slot {slot} is not that of {value}"));
                }
                Ok((size, value, next))
            };
            let (size, value, next) = block(at)?;
            blocks.push((at, pool.rounded_size(size)));
            let mut behind = 0;
            if next != 0 {
                let (size, value, _) = block(next)?;
                blocks.push((next, pool.rounded_size(size)));
                behind = value;
            }
            content.insert(slot, (size, value, behind));
        }
        let stats = pool.stats();
        let bytes: u64 = blocks.iter().map(|(_, size)| size).sum();
        if (stats.used_blocks, stats.used_bytes) != (blocks.len() as u64, bytes) {
            return Err(format!(
                "{} blocks of {bytes} bytes are reached, {} of {} bytes in use",
                blocks.len(),
                stats.used_blocks,
                stats.used_bytes
            ));
        }
        if self
            .space
            .get()
            .is_some_and(|whole| *whole != space(&stats))
        {
            return Err(format!(
                "space does not add up: {stats:?}, {:?}",
                self.space
            ));
        }
        blocks.sort_unstable();
        if let Some(pair) = blocks
            .windows(2)
            .find(|pair| pair[0].0 + pair[0].1 > pair[1].0)
        {
            return Err(format!("blocks overlap: {pair:?}"));
        }
        Ok(content)
    }

    fn empty(&self) -> Content {
        Content::new()
    }

    fn expect(&self, content: &mut Content, op: &Op) {
        match *op {
            Op::Put { slot, size, value } | Op::PutLazily { slot, size, value } => {
                content.insert(slot, (size, value, 0));
            }
            Op::PutTwo { slot, size, value } => {
                content.insert(slot, (size, value, value + 1));
            }
            Op::Delete { slot } => {
                content.remove(&slot);
            }
            Op::GiveUp { .. } | Op::Move | Op::Collect | Op::Empty => {}
        }
    }

    fn name(&self, op: &Op) -> &'static str {
        match op {
            Op::Put { size, .. } if *size > 2048 => "put-large",
            Op::Put { .. } => "put",
            Op::PutLazily { .. } => "put-lazily",
            Op::Delete { .. } => "delete",
            Op::GiveUp { .. } => "give-up",
            Op::PutTwo { .. } => "put-two",
            Op::Move => "move",
            Op::Collect => "collect",
            Op::Empty => "empty",
        }
    }

    fn probes(&self) -> Vec<Op> {
        let put = |slot, size| Op::Put {
            slot,
            size,
            value: 9000 + size,
        };
        let mut probes = vec![put(0, 48), put(5, 5000), Op::Delete { slot: 0 }, put(1, 48)];
        probes.extend(drain());
        probes.push(put(2, 48));
        probes
    }
}

/// Empties all slots, one after the other.
fn drain() -> impl Iterator<Item = Op> {
    (0..SLOTS)
        .map(|slot| Op::Delete { slot })
        .chain([Op::Empty])
}

fn put(slot: u64, size: u64, value: u64) -> HistoryStep<Op> {
    HistoryStep::Op(Op::Put { slot, size, value })
}

fn put_two(slot: u64, size: u64, value: u64) -> HistoryStep<Op> {
    HistoryStep::Op(Op::PutTwo { slot, size, value })
}

fn lazily(slot: u64, size: u64, value: u64) -> HistoryStep<Op> {
    HistoryStep::Op(Op::PutLazily { slot, size, value })
}

fn small() -> Directory {
    Directory {
        bytes: 64 << 10,
        heaps: 1,
        bug: Bug::Nothing,
        space: OnceLock::new(),
    }
}
