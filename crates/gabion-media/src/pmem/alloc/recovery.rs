//! Recovery: finds free blocks and chunks when a pool is opened. See the allocator's head for the
//! rules.

use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;

use super::super::epoch::Epochs;
use super::super::layout::{PoolGeometry, ROOT_OFFSET, unseal};
use super::super::medium::Medium;
use super::super::off::POff;
use super::super::{BlockClaim, Reachable};
use super::central::{CentralHeap, known_bit};
use super::chunk::{BlockState, ChunkTable, Descriptor};
use super::classes::SizeClasses;
use super::intent::{Intent, IntentSlot, SLOTS};
use super::reserved_run::ReservedRun;
use super::{Allocator, GrowPool, Heap, PoolReserve};

/// Something on the medium that no pool can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolDamage {
    /// What is damaged.
    pub(crate) what: &'static str,
    /// Where, in bytes from the pool's start.
    pub(crate) offset: u64,
}

impl Allocator {
    /// The allocator of a pool whose first `reserved` chunks have space.
    pub(crate) fn open(
        medium: Medium,
        geometry: PoolGeometry,
        reserved: u64,
        has_intents: bool,
        reachable: &Reachable,
        keeps: PoolReserve,
        grow: GrowPool,
    ) -> Result<Allocator, PoolDamage> {
        let classes = SizeClasses::new(geometry.chunk_bytes);
        let chunks = ChunkTable {
            medium: &medium,
            geometry: &geometry,
        };
        resolve_intents(chunks, &classes, reserved, reachable)?;
        let words = usize::try_from(geometry.chunks.div_ceil(64)).unwrap_or(usize::MAX);
        let known: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let run = ReservedRun::new(keeps.run_bytes.div_ceil(geometry.chunk_bytes));
        let central = CentralHeap::new(classes.count(), reserved, keeps.blocks, run);
        let central = walk(chunks, &classes, central)?;
        let heaps = (0..geometry.heaps).map(|_| Heap::default()).collect();
        let allocator = Allocator {
            medium,
            geometry,
            epochs: Epochs::default(),
            classes,
            heaps,
            central: Mutex::new(central),
            known,
            has_intents,
            is_short: AtomicBool::new(false),
            grow,
        };
        allocator.keep_run();
        Ok(allocator)
    }
}

/// Lists the slabs and the free runs, and frees the runs that were retired.
fn walk(
    chunks: ChunkTable<'_>,
    classes: &SizeClasses,
    mut central: CentralHeap,
) -> Result<CentralHeap, PoolDamage> {
    let reserved = central.reserved;
    let mut freed = false;
    let mut chunk = 0;
    while chunk < reserved {
        let damage = PoolDamage {
            what: "descriptor of a chunk",
            offset: chunks.geometry.descriptor_of(chunk),
        };
        let count = match chunks.descriptor(chunk).ok_or(damage)? {
            Descriptor::Free => {
                central.extents.give(chunk, 1);
                1
            }
            Descriptor::Slab { class } if class < classes.count() => {
                central.found_slab(chunk, class);
                1
            }
            Descriptor::Run { count, is_retired } if count <= reserved - chunk => {
                if is_retired {
                    chunks.set_descriptor(chunk, Descriptor::Free);
                    freed = true;
                    central.extents.give(chunk, count);
                }
                count
            }
            _ => return Err(damage),
        };
        chunk += count;
    }
    if freed {
        // DURABLE: the runs are free before their chunks are used again.
        chunks.medium.fence();
    }
    Ok(central)
}

/// Decides for each operation that was in flight whether it happened.
fn resolve_intents(
    chunks: ChunkTable<'_>,
    classes: &SizeClasses,
    reserved: u64,
    reachable: &Reachable,
) -> Result<(), PoolDamage> {
    let medium = chunks.medium;
    let count = chunks.geometry.heaps as usize * SLOTS;
    let slots: &[IntentSlot] = medium.slice(POff::new(chunks.geometry.rings_at), count);
    let used: Vec<&IntentSlot> = slots.iter().filter(|slot| !slot.is_blank(medium)).collect();
    if used.is_empty() {
        return Ok(());
    }
    // A half-written intent is of an operation that had published nothing.
    let intents: Vec<Intent> = used.iter().filter_map(|slot| slot.read(medium)).collect();
    for is_retire in [false, true] {
        for intent in intents
            .iter()
            .filter(|intent| intent.is_retire == is_retire)
        {
            resolve(chunks, classes, reserved, *intent, reachable)?;
        }
    }
    // DURABLE: what was decided is, before the intents go.
    medium.fence();
    for slot in used {
        slot.erase(medium);
    }
    // DURABLE: the intents are gone before the first operation.
    medium.fence();
    Ok(())
}

fn resolve(
    chunks: ChunkTable<'_>,
    classes: &SizeClasses,
    reserved: u64,
    intent: Intent,
    reachable: &Reachable,
) -> Result<(), PoolDamage> {
    let Intent {
        block,
        hint,
        count,
        is_retire,
    } = intent;
    let damage = PoolDamage {
        what: "intent of the allocator",
        offset: chunks.geometry.rings_at,
    };
    let chunk = chunks
        .geometry
        .chunk_of(block)
        .filter(|chunk| *chunk < reserved)
        .ok_or(damage)?;
    let descriptor = chunks.descriptor(chunk).ok_or(PoolDamage {
        what: "descriptor of a chunk",
        offset: chunks.geometry.descriptor_of(chunk),
    })?;
    let (state, size) = match descriptor {
        Descriptor::Slab { class } if count == 0 && class < classes.count() => {
            (chunks.slab_state(chunk, block), classes.size(class))
        }
        Descriptor::Free if count > 0 && count <= reserved - chunk => {
            (BlockState::Free, count * chunks.geometry.chunk_bytes)
        }
        Descriptor::Run {
            count: length,
            is_retired,
        } if count == length => {
            let state = if is_retired {
                BlockState::Retired
            } else {
                BlockState::Allocated
            };
            (state, count * chunks.geometry.chunk_bytes)
        }
        // The chunk was given another use since: the operation is long over.
        _ => return Ok(()),
    };
    let is_reachable = || {
        let claim = BlockClaim {
            block: POff::new(block),
            size,
            hint,
        };
        if hint == ROOT_OFFSET {
            refers_sealed(chunks.medium, claim)
        } else {
            reachable.ask(chunks.medium, claim)
        }
    };
    match (is_retire, state) {
        (false, BlockState::Free) if is_reachable() => {
            chunks.set_state(chunk, block, count, BlockState::Allocated);
        }
        (true, BlockState::Allocated) if !is_reachable() => {
            chunks.set_state(chunk, block, count, BlockState::Free);
        }
        _ => {}
    }
    Ok(())
}

fn refers_sealed(medium: &Medium, claim: BlockClaim) -> bool {
    let root: &super::super::atomic::PAtomicU64 = medium.at(POff::new(ROOT_OFFSET));
    // ORDER: Relaxed: nobody else has the pool while it is opened.
    unseal(root.load(medium, std::sync::atomic::Ordering::Relaxed)) == Some(claim.block.raw())
}

/// Sets the bit of a chunk whose states are known.
pub(crate) fn mark_known(known: &[AtomicU64], chunk: u64) {
    let (word, bit) = known_bit(known, chunk);
    // ORDER: Relaxed: see `Allocator::know`.
    word.fetch_or(bit, std::sync::atomic::Ordering::Relaxed);
}
