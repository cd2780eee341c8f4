//! Making a table, and finding it again.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, POff, Pool, PoolOptions, ROOT_HINT, Reachable};

use super::build::planned_bytes;
use super::layout::{
    BUCKET_BYTES, Header, KIND_BYTE_KEYS, KIND_BYTE_VALUES, LAYOUT, LINE_BYTES, MAGIC,
    SHARD_BITS_MAX, ShardDescriptor, ShardPlace, Slot,
};
use super::shard::{Counts, Shard};
use super::{Options, TurboHash};
use crate::{Error, Item, Result, Seed, root};

/// What a header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    kinds: u64,
    shard_bits: u32,
    seed: u64,
    capacity: u64,
    directory: u64,
}

impl Plan {
    /// The words of the header, without the check.
    fn words(&self) -> [u64; 7] {
        let kinds = self.kinds | u64::from(self.shard_bits) << 32;
        [MAGIC, kinds, self.seed, self.capacity, self.directory, 0, 0]
    }

    fn check(&self) -> u64 {
        let bytes: Vec<u8> = self
            .words()
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect();
        Seed::new(0).hash_bytes(&bytes)
    }

    /// By how much a hash that was shifted right by one is shifted further to give its shard.
    fn shard_shift(&self) -> u32 {
        63 - self.shard_bits
    }

    /// The least hash of a shard.
    pub(super) fn shard_hint(index: u64, shard_shift: u32) -> u64 {
        index << shard_shift << 1
    }
}

/// Where the buckets of the shard of `hash` are.
pub(super) fn place_of(medium: &Medium, plan: &Plan, hash: u64) -> Result<ShardPlace> {
    let shard = hash >> 1 >> plan.shard_shift();
    let directory: POff<ShardDescriptor> = POff::new(plan.directory);
    let descriptor = medium.try_at(directory.element(shard));
    let descriptor = descriptor.ok_or_else(|| damaged(plan.directory))?;
    medium.touch(descriptor);
    read_place(medium, descriptor)
}

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    const KINDS: u64 = (if K::IS_WORD { 0 } else { KIND_BYTE_KEYS })
        | (if V::IS_WORD { 0 } else { KIND_BYTE_VALUES });

    /// Makes an empty table the root of `pool`.
    ///
    /// A crash before the return leaves the table or a pool without root, and then nothing is lost
    /// but time.
    ///
    /// # Errors
    /// The pool has a root already, or no space for the directory and the array of one shard: no
    /// entry could come in. A plan of larger shards than there can be.
    pub fn create(pool: &Pool, options: &Options) -> Result<TurboHash<K, V>> {
        let _within = pool.write_guard();
        if !pool.root::<Header>().is_null() {
            return Err(Error::RootTaken);
        }
        let shard_bits = options.shard_bits();
        let directory_bytes = (size_of::<ShardDescriptor>() as u64) << shard_bits;
        let header_bytes = size_of::<Header>() as u64;
        let bytes = header_bytes + directory_bytes;
        let array_bytes = planned_bytes(options.capacity, shard_bits)?;
        pool.expect_room(&[
            root::part(bytes, LINE_BYTES),
            root::part(array_bytes, BUCKET_BYTES),
        ])?;
        let space = pool.alloc_aligned(bytes, LINE_BYTES, ROOT_HINT)?;
        let root = space.offset::<Header>();
        let plan = Plan {
            kinds: Self::KINDS,
            shard_bits,
            seed: options.seed.unwrap_or_else(Seed::random),
            capacity: options.capacity,
            directory: root.raw() + header_bytes,
        };
        pool.zero(root.raw(), bytes);
        let header = pool.at(root);
        let [magic, kinds, seed, capacity, directory, ..] = plan.words();
        // ORDER: Relaxed: nobody else sees the header before the root refers to it.
        header.magic.store(pool, magic, Ordering::Relaxed);
        header.kinds.store(pool, kinds, Ordering::Relaxed);
        header.seed.store(pool, seed, Ordering::Relaxed);
        header.capacity.store(pool, capacity, Ordering::Relaxed);
        header.directory.store(pool, directory, Ordering::Relaxed);
        header.check.store(pool, plan.check(), Ordering::Relaxed);
        // DURABLE: header and directory, before the root refers to them.
        pool.persist(header);
        pool.set_root(root);
        space.commit::<Header>();
        let shards = 0..1_u64 << shard_bits;
        let empty = |_| Shard::new(ShardPlace(0), Some(Counts::default()));
        Ok(Self::with(pool, plan, options, shards.map(empty).collect()))
    }

    /// Finds the table that is the root of `pool`. Reads the directory and nothing else.
    ///
    /// # Errors
    /// No table there, a table of other kinds of keys or values, or a damaged one.
    pub fn open(pool: &Pool, options: &Options) -> Result<TurboHash<K, V>> {
        let root = pool.root::<Header>();
        if root.is_null() {
            return Err(Error::NoRoot);
        }
        let plan = read_plan(pool, root.raw())?;
        if plan.kinds != Self::KINDS {
            return Err(Error::OtherKind);
        }
        let directory: POff<ShardDescriptor> = POff::new(plan.directory);
        let descriptors = pool.try_slice(directory, 1 << plan.shard_bits);
        let descriptors = descriptors.ok_or_else(|| damaged(root.raw()))?;
        pool.touch(descriptors);
        let shards: Result<Box<[Shard]>> = descriptors
            .iter()
            .map(|descriptor| read_place(pool, descriptor))
            .map(|place| place.map(|place| Shard::new(place, None)))
            .collect();
        Ok(Self::with(pool, plan, options, shards?))
    }

    /// Options of pools for tables: the layout id, and how recovery finds what is in use. Whoever
    /// makes or opens the pool sets the rest. For a million entries or more, `chunk_bytes` should
    /// be 1 MiB: arrays of 14 to 30 KiB are cut from chunks, and small ones leave more over, a
    /// fifth of 64 KiB.
    #[must_use]
    pub fn pool_options() -> PoolOptions {
        PoolOptions {
            layout: LAYOUT,
            reachable: Reachable::ask_fn(super::space::is_referenced),
            ..PoolOptions::default()
        }
    }

    fn with(pool: &Pool, plan: Plan, options: &Options, shards: Box<[Shard]>) -> Self {
        TurboHash {
            medium: Medium::clone(pool),
            pool: pool.clone(),
            seed: Seed::new(plan.seed),
            shard_shift: plan.shard_shift(),
            shards,
            directory: POff::new(plan.directory),
            first_count: super::build::planned_count(plan.capacity, plan.shard_bits),
            collects_garbage: options.collects_garbage,
            keys: PhantomData,
            values: PhantomData,
        }
    }
}

fn damaged(offset: u64) -> Error {
    Error::damaged("the header or the directory of a hash table", offset)
}

/// Reads and checks a header.
pub(super) fn read_plan(medium: &Medium, root: u64) -> Result<Plan> {
    let header: Option<&Header> = medium.try_at(POff::new(root));
    let header = header.ok_or_else(|| damaged(root))?;
    medium.touch(header);
    // ORDER: Relaxed: the header does not change.
    let kinds = header.kinds.peek(Ordering::Relaxed);
    let plan = Plan {
        kinds: kinds & 0xffff_ffff,
        shard_bits: (kinds >> 32) as u32,
        // ORDER: Relaxed: as above.
        seed: header.seed.peek(Ordering::Relaxed),
        capacity: header.capacity.peek(Ordering::Relaxed),
        directory: header.directory.peek(Ordering::Relaxed),
    };
    // ORDER: Relaxed: as above.
    let magic = header.magic.peek(Ordering::Relaxed);
    let check = header.check.peek(Ordering::Relaxed);
    if magic != MAGIC {
        return Err(Error::NoRoot);
    }
    if check != plan.check() || plan.shard_bits > SHARD_BITS_MAX {
        return Err(damaged(root));
    }
    Ok(plan)
}

/// Reads and checks where the buckets of a shard are.
fn read_place(medium: &Medium, descriptor: &ShardDescriptor) -> Result<ShardPlace> {
    // ORDER: Relaxed: nobody writes while a table is opened.
    let version = descriptor.version.peek(Ordering::Relaxed);
    let set = usize::from(version & 1 != 0);
    // ORDER: Relaxed: as above.
    let place = ShardPlace(descriptor.places[set].peek(Ordering::Relaxed));
    let slots: POff<Slot> = POff::new(place.offset());
    let slots_count = place.bytes() / size_of::<Slot>() as u64;
    let slots_count = usize::try_from(slots_count).unwrap_or(usize::MAX);
    let is_sound =
        u64::from(place.version()) == version && medium.try_slice(slots, slots_count).is_some();
    if is_sound {
        return Ok(place);
    }
    Err(damaged(medium.offset_of(descriptor).raw()))
}
