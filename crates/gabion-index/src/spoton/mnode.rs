//! The middle layer: a node in DRAM for each leaf.
//!
//! Nodes lie in slabs and are named by numbers, which are used again when a leaf was given up.
//! Their memory stays a node for ever, and the version in its word never goes back. So readers may
//! follow any number, however old, and find out from the word whether what they read was still so.
//!
//! # The word
//! Bit 0: somebody holds the lock. Bit 1: the node is not in use. Bit 2: it is *raw*, see below.
//! Above: the version, which grows whenever the lock is let go. Readers look at the word, wait
//! while it is locked, read, and look again (optimistic locking). Whoever holds the lock makes its
//! changes of the medium durable before it lets go, so what a reader returns is durable.
//!
//! # Raw nodes
//! A raw node stands for a whole run of leaves that nobody has looked at yet since the index was
//! opened: it has the run's first leaf, the range of all of them and the links to both sides, and
//! nothing else of it means anything. Nobody reads, locks or merges it, but one: who recovers the
//! run locks it, puts the other nodes of the run behind it and makes it one of them. So service may
//! begin while most nodes are missing, and costs those nothing that are there: what readers ask of
//! a word anyway tells raw nodes, too.
//!
//! # Links
//! `next` and `prev` are numbers plus one. Both links between two neighbours are written by the
//! holder of the left one's lock.
//!
//! # Changes
//! A node numbers the changes that it writes to the logs, one after the other; a new node goes on
//! from the number of that which it was split from, and one that takes a neighbour's entries from
//! the greater of both numbers. So among changes of one key the last has the greatest number, and
//! `merged` tells which of them the leaf has. A node without a write buffer has no others.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use gabion_media::prefetch_line;
use parking_lot::Mutex;

use super::bloom::Bloom;
use crate::lock::Backoff;

const LOCKED: u64 = 1;
const DEAD: u64 = 2;
const RAW: u64 = 4;
const ONE_VERSION: u64 = 8;

/// A node: two cache lines, of which the second is the filter.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Mnode {
    word: AtomicU64,
    lkey: AtomicU64,
    hkey: AtomicU64,
    leaf: AtomicU64,
    next: AtomicU32,
    prev: AtomicU32,
    /// Number of the write buffer plus one, 0 without one.
    buffer: AtomicU32,
    /// Entries of the leaf and of the buffer, those in both counted once.
    count: AtomicU8,
    /// Whether the order is that of the leaf's slots and nothing waits in the buffer.
    is_sorted: AtomicBool,
    /// Writes, halved now and then.
    heat: AtomicU8,
    /// The last change in the logs.
    last: AtomicU64,
    /// The last change that the leaf has, durably.
    merged: AtomicU64,
    pub(crate) bloom: Bloom,
}

const _: () = assert!(size_of::<Mnode>() == 128);

/// The order of a leaf's slots by their keys, for scans (the paper's `seqs`).
#[derive(Debug, Default)]
pub(crate) struct SlotOrder([AtomicU64; 8]);

/// What a node was told when it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeInit {
    pub(crate) leaf: u64,
    pub(crate) lkey: u64,
    pub(crate) hkey: u64,
    /// Number of the right neighbour plus one, 0 without one.
    pub(crate) next: u64,
    /// Number of the left neighbour plus one, 0 without one.
    pub(crate) prev: u64,
    /// Entries of the leaf.
    pub(crate) count: usize,
    /// The last change that the leaf has.
    pub(crate) merged: u64,
}

impl Default for Mnode {
    fn default() -> Mnode {
        Mnode {
            word: AtomicU64::new(DEAD),
            lkey: AtomicU64::new(0),
            hkey: AtomicU64::new(0),
            leaf: AtomicU64::new(0),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            buffer: AtomicU32::new(0),
            count: AtomicU8::new(0),
            is_sorted: AtomicBool::new(false),
            heat: AtomicU8::new(0),
            last: AtomicU64::new(0),
            merged: AtomicU64::new(0),
            bloom: Bloom::default(),
        }
    }
}

// ORDER: Acquire throughout: pairs with the releasing stores below, and keeps loads in their order
// and before the second look at the word.
impl Mnode {
    /// The word once nobody holds the lock; none if the node is not in use, or raw.
    #[inline]
    pub(crate) fn look(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        if word & (LOCKED | DEAD | RAW) == 0 {
            return Some(word);
        }
        self.look_again()
    }

    #[cold]
    fn look_again(&self) -> Option<u64> {
        let word = self.unlocked();
        (word & (DEAD | RAW) == 0).then_some(word)
    }

    /// The word once nobody holds the lock, or the node is not in use.
    fn unlocked(&self) -> u64 {
        let mut backoff = Backoff::default();
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & LOCKED == 0 || word & DEAD != 0 {
                return word;
            }
            backoff.wait();
        }
    }

    /// Whether the node is raw, as far as one can say.
    pub(crate) fn is_raw(&self) -> bool {
        self.word.load(Ordering::Acquire) & (DEAD | RAW) == RAW
    }

    /// Takes the lock of a raw node, after who has it; none if it is not raw then.
    pub(crate) fn lock_raw(&self, number: u64) -> Option<LockedNode<'_>> {
        loop {
            let word = self.unlocked();
            if word & (DEAD | RAW) != RAW {
                return None;
            }
            if let Some(locked) = self.lock_seen(number, word) {
                return Some(locked);
            }
        }
    }

    /// Whether nobody has taken the lock since [`Mnode::look`].
    #[inline]
    pub(crate) fn is_still(&self, seen: u64) -> bool {
        self.word.load(Ordering::Acquire) == seen
    }

    #[inline]
    pub(crate) fn lkey(&self) -> u64 {
        self.lkey.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn hkey(&self) -> u64 {
        self.hkey.load(Ordering::Acquire)
    }

    /// Offset of the leaf.
    #[inline]
    pub(crate) fn leaf(&self) -> u64 {
        self.leaf.load(Ordering::Acquire)
    }

    /// Number of the right neighbour plus one, 0 without one.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        u64::from(self.next.load(Ordering::Acquire))
    }

    /// Number of the left neighbour plus one, 0 without one.
    #[inline]
    pub(crate) fn prev(&self) -> u64 {
        u64::from(self.prev.load(Ordering::Acquire))
    }

    /// Whether the order is that of the slots as they are, and they are all there is.
    #[inline]
    pub(crate) fn is_sorted(&self) -> bool {
        self.is_sorted.load(Ordering::Acquire)
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count.load(Ordering::Acquire))
    }

    /// Number of the write buffer, if there is one.
    #[inline]
    pub(crate) fn buffer(&self) -> Option<u32> {
        self.buffer.load(Ordering::Acquire).checked_sub(1)
    }

    /// Number of the last change in the logs.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Number of the last change that the leaf has.
    #[inline]
    pub(crate) fn merged(&self) -> u64 {
        self.merged.load(Ordering::Acquire)
    }

    /// How much is written here.
    #[inline]
    pub(crate) fn heat(&self) -> u8 {
        // ORDER: Relaxed: a hint.
        self.heat.load(Ordering::Relaxed)
    }

    /// Forgets half of the writes.
    pub(crate) fn cool(&self) {
        // ORDER: Relaxed: a hint; a write that is lost here does not count.
        self.heat.store(self.heat() / 2, Ordering::Relaxed);
    }

    /// Asks for both lines.
    #[inline]
    fn prefetch(&self) {
        prefetch_line(std::ptr::from_ref(self).cast());
        prefetch_line(std::ptr::from_ref(&self.bloom).cast());
    }

    /// Takes the lock if the node is in use, is not raw, and nobody holds it.
    pub(crate) fn try_lock(&self, number: u64) -> Option<LockedNode<'_>> {
        let word = self.word.load(Ordering::Acquire);
        let is_free = word & (LOCKED | DEAD | RAW) == 0;
        is_free.then(|| self.lock_seen(number, word))?
    }

    /// Takes the lock if the word is still what was seen.
    #[inline]
    pub(crate) fn lock_seen(&self, number: u64, seen: u64) -> Option<LockedNode<'_>> {
        let taken = self.word.compare_exchange(
            seen,
            seen | LOCKED,
            // ORDER: Acquire pairs with the release of the last holder.
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        // Not a moment before it is taken: what is dropped lets go of it.
        taken.is_ok().then(|| LockedNode { node: self, number })
    }
}

/// A node that is locked until this is dropped.
#[derive(Debug)]
pub(crate) struct LockedNode<'a> {
    node: &'a Mnode,
    pub(crate) number: u64,
}

impl std::ops::Deref for LockedNode<'_> {
    type Target = Mnode;

    #[inline]
    fn deref(&self) -> &Mnode {
        self.node
    }
}

// ORDER: Release throughout: pairs with the acquiring loads above; only the holder writes.
impl LockedNode<'_> {
    /// Says that slots hold other keys than before, or that something waits in the buffer.
    #[inline]
    pub(crate) fn note_change(&self) {
        self.is_sorted.store(false, Ordering::Release);
    }

    /// Says that the order is that of the slots.
    pub(crate) fn note_sorted(&self) {
        self.is_sorted.store(true, Ordering::Release);
    }

    /// Says how many entries there are, at most 64.
    #[inline]
    pub(crate) fn set_count(&self, count: usize) {
        let count = u8::try_from(count).unwrap_or(u8::MAX);
        self.count.store(count, Ordering::Release);
    }

    /// Gives the node a buffer, or takes it away.
    pub(crate) fn set_buffer(&self, buffer: Option<u32>) {
        let link = buffer.map_or(0, |number| number + 1);
        self.buffer.store(link, Ordering::Release);
    }

    /// Says which change is the last in the logs.
    #[inline]
    pub(crate) fn set_last(&self, last: u64) {
        self.last.store(last, Ordering::Release);
    }

    /// Says that the leaf has all changes up to this one, durably.
    pub(crate) fn set_merged(&self, merged: u64) {
        self.merged.store(merged, Ordering::Release);
    }

    /// Counts a write, and returns how much is written here.
    #[inline]
    pub(crate) fn warm(&self) -> u8 {
        let heat = self.heat().saturating_add(1);
        // ORDER: Relaxed: a hint.
        self.heat.store(heat, Ordering::Relaxed);
        heat
    }

    pub(crate) fn set_hkey(&self, hkey: u64) {
        self.hkey.store(hkey, Ordering::Release);
    }

    /// Makes another node the right neighbour of this one, and this one its left neighbour.
    pub(crate) fn link(&self, next: Option<(u64, &Mnode)>) {
        let number = next.map_or(0, |(number, _)| number + 1);
        self.next.store(link_of(number), Ordering::Release);
        if let Some((_, node)) = next {
            node.prev.store(link_of(self.number + 1), Ordering::Release);
        }
    }

    /// Says whether the node is raw.
    pub(crate) fn set_raw(&self, is_raw: bool) {
        // ORDER: as above; readers wait for the lock.
        let word = self.word.load(Ordering::Acquire) & !RAW;
        let raw = if is_raw { RAW } else { 0 };
        self.word.store(word | raw, Ordering::Release);
    }

    /// Says that the node is not in use from now on, and lets go of its lock.
    pub(crate) fn bury(self) {
        // ORDER: as above.
        let word = self.word.load(Ordering::Acquire);
        self.word.store(word | DEAD, Ordering::Release);
    }
}

impl Drop for LockedNode<'_> {
    #[inline]
    fn drop(&mut self) {
        // ORDER: Relaxed: only the holder changes the word.
        let word = self.node.word.load(Ordering::Relaxed) & !LOCKED;
        // ORDER: Release pairs with the acquires of `look` and `lock_seen`.
        self.node
            .word
            .store(word.wrapping_add(ONE_VERSION), Ordering::Release);
    }
}

// ORDER: Acquire and Release throughout: guarded by the word of the node.
impl SlotOrder {
    /// Keeps slots in this order, at most 64.
    pub(crate) fn set(&self, slots: impl Iterator<Item = u8>) {
        let mut bytes = [NO_SLOT; 64];
        bytes
            .iter_mut()
            .zip(slots)
            .for_each(|(byte, slot)| *byte = slot);
        for (word, bytes) in self.0.iter().zip(bytes.as_chunks::<8>().0) {
            // ORDER: as above.
            word.store(u64::from_le_bytes(*bytes), Ordering::Release);
        }
    }

    /// The slots in their order, and their number.
    pub(crate) fn get(&self) -> ([u8; 64], usize) {
        let mut slots = [0; 64];
        for (word, slots) in self.0.iter().zip(slots.as_chunks_mut::<8>().0) {
            // ORDER: as above.
            *slots = word.load(Ordering::Acquire).to_le_bytes();
        }
        (slots, slots.partition_point(|slot| *slot != NO_SLOT))
    }
}

/// What stands behind the last slot of an order.
const NO_SLOT: u8 = 0xff;

/// Nodes of a slab.
const SLAB_LOG: u32 = 8;
const SLAB: usize = 1 << SLAB_LOG;
const SLAB_MASK: u64 = (1 << SLAB_LOG) - 1;

/// All nodes.
#[derive(Debug)]
pub(crate) struct Mnodes {
    slabs: Box<[OnceLock<Box<[Mnode]>>]>,
    orders: Box<[OnceLock<Box<[SlotOrder]>>]>,
    numbers: Mutex<Numbers>,
}

/// Which numbers are in use: all up to `used` but the free ones.
#[derive(Debug, Default)]
struct Numbers {
    used: u64,
    free: Vec<u64>,
}

/// A number plus one, or 0, as it stands in a node: there are less than 2^32 nodes.
#[inline]
fn link_of(link: u64) -> u32 {
    u32::try_from(link).unwrap_or(0)
}

/// The slab of a number, and the place in it.
#[inline]
fn place(number: u64) -> (usize, usize) {
    let slab = usize::try_from(number >> SLAB_LOG).unwrap_or(usize::MAX);
    (slab, (number & SLAB_MASK) as usize)
}

impl Mnodes {
    /// Room for `count` nodes, or somewhat less than 2^32.
    pub(crate) fn new(count: u64) -> Mnodes {
        let count = count.min(u64::from(u32::MAX) - 2 * SLAB as u64);
        let slabs = place(count).0.saturating_add(1);
        Mnodes {
            slabs: (0..slabs).map(|_| OnceLock::new()).collect(),
            orders: (0..slabs).map(|_| OnceLock::new()).collect(),
            numbers: Mutex::default(),
        }
    }

    /// Nodes that there can be.
    pub(crate) fn room(&self) -> usize {
        self.slabs.len() * SLAB
    }

    /// Locks the node of a number, after who has it; none if it is raw or not in use.
    pub(crate) fn lock(&self, number: u64) -> Option<LockedNode<'_>> {
        let node = self.get(number)?;
        loop {
            let word = node.look()?;
            if let Some(locked) = node.lock_seen(number, word) {
                return Some(locked);
            }
        }
    }

    /// The node of a number, if there ever was one.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<&Mnode> {
        let (slab, place) = place(number);
        self.slabs.get(slab)?.get()?.get(place)
    }

    /// Asks for the lines of a node.
    #[inline]
    pub(crate) fn prefetch(&self, number: u64) {
        if let Some(node) = self.get(number) {
            node.prefetch();
        }
    }

    /// The order of the slots of a node that exists.
    pub(crate) fn order(&self, number: u64) -> Option<&SlotOrder> {
        let (slab, place) = place(number);
        let slab = self.orders.get(slab)?;
        let orders = slab.get_or_init(|| (0..SLAB).map(|_| SlotOrder::default()).collect());
        orders.get(place)
    }

    /// A new node, locked; none if there are as many as can be.
    pub(crate) fn add(&self, born: NodeInit) -> Option<LockedNode<'_>> {
        let number = self.number_for(born.lkey)?;
        let node = self.get(number)?;
        // ORDER: Relaxed: nobody writes to a node that is not in use. The release of the other
        // words, and of the lock, comes after it.
        let version = node.word.load(Ordering::Relaxed) & !(DEAD | LOCKED | RAW);
        node.word.store(version | LOCKED, Ordering::Relaxed);
        let locked = LockedNode { node, number };
        // ORDER: Release pairs with the acquires of readers that know the number from before.
        node.lkey.store(born.lkey, Ordering::Release);
        node.leaf.store(born.leaf, Ordering::Release);
        node.next.store(link_of(born.next), Ordering::Release);
        node.prev.store(link_of(born.prev), Ordering::Release);
        // ORDER: Relaxed: a hint.
        node.heat.store(0, Ordering::Relaxed);
        locked.set_hkey(born.hkey);
        locked.set_buffer(None);
        locked.set_count(born.count);
        locked.set_last(born.merged);
        locked.set_merged(born.merged);
        locked.note_change();
        Some(locked)
    }

    /// A number for the node with an lkey, with memory behind it. The first leaf's is 0.
    fn number_for(&self, lkey: u64) -> Option<u64> {
        let mut numbers = self.numbers.lock();
        let fresh = numbers.used + 1;
        let number = if lkey == 0 {
            0
        } else {
            numbers.free.pop().unwrap_or(fresh)
        };
        let slab = self.slabs.get(place(number).0)?;
        slab.get_or_init(|| (0..SLAB).map(|_| Mnode::default()).collect());
        numbers.used = numbers.used.max(number);
        Some(number)
    }

    /// Gives back the number of a node that is not in use any more.
    pub(crate) fn give_back(&self, number: u64) {
        self.numbers.lock().free.push(number);
    }

    /// Number of nodes in use.
    pub(crate) fn in_use(&self) -> u64 {
        let numbers = self.numbers.lock();
        numbers.used + 1 - numbers.free.len() as u64
    }

    /// Bytes of DRAM that nodes and orders take.
    pub(crate) fn bytes(&self) -> u64 {
        let nodes = self.slabs.iter().filter(|slab| slab.get().is_some());
        let orders = self.orders.iter().filter(|slab| slab.get().is_some());
        let slab =
            (nodes.count() * size_of::<Mnode>() + orders.count() * size_of::<SlotOrder>()) as u64;
        slab * SLAB as u64
    }
}
