//! Memory of its own for a cache: pages that are cut into slots of one size, and buffers that lie
//! in slots.
//!
//! # Idea
//! The buffers of a cache come and go in no order, made by one thread and freed by another. The
//! system's allocator keeps what is freed, for the thread or the size that it was made for: a cache
//! that was counted to the byte took twice that. Here all threads share the slots of a size, a slot
//! that is freed is the next one that is taken, and what is counted is pages, with all that is free
//! in them.
//!
//! Sizes come in eight steps for each doubling, so that a buffer leaves a sixteenth of its slot on
//! average. A buffer that would take more than a quarter of a page is an allocation of its own, and
//! so are all where the cache is too small for pages.
//!
//! # Pages
//! A page belongs to one size as long as one of its slots is in use. Then it is spare: the next
//! size that needs a page takes it, or it goes back to the system ([`Slabs::give_up_spare`]). When
//! other sizes are asked for than before, many pages are nearly empty. Then the owner drains some
//! ([`Slabs::begin_drain`]): they give out no slot any more, and it moves the buffers that lie in
//! them ([`Buffer::is_drained`]) to other pages of their size.
//!
//! # Invariants
//! - S1. A slot is free, or it is one buffer's and begins with its [`Head`]: the number of those
//!   who share the buffer, which frees the slot when it comes to none.
//! - S2. A page with a slot in use keeps its slabs, which keep the page. So a buffer may outlive
//!   whoever made it.
//! - S3. A page is open when it has a free slot and is not drained; slots come from open pages.
//! - S4. All bytes of a page are initialized: a buffer has bytes, which may be those of another one
//!   before it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cmp::Reverse;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use gabion_media::SystemMemory;
use parking_lot::Mutex;

/// A cache has about so many pages.
const PAGES: u64 = 1024;

/// Smallest and largest size of a page in bytes.
const PAGE_BYTES_MIN: u64 = 64 << 10;
const PAGE_BYTES_MAX: u64 = 256 << 10;

/// A cache of more pages than this has larger ones, up to a size: the system has a limit for how
/// many pieces of memory a process may have.
const PAGES_MAX: u64 = 16 << 10;
const PAGE_BYTES_MOST: u64 = 16 << 20;

/// A cache of fewer bytes has no pages: sizes that nobody asks for would take a good part of it.
const CACHE_BYTES_MIN: u64 = 8 << 20;

/// Of the pages of a cache, one in so many stays spare.
const SPARE_ONE_IN: u64 = 64;

/// A page has at least so many slots.
const SLOTS_MIN: usize = 4;

/// Smallest slot in bytes.
const SLOT_BYTES_MIN: usize = 128;

/// Slots are cut at multiples of this.
const SLOT_ALIGN: usize = 16;

/// What a buffer begins with.
#[repr(C)]
struct Head {
    /// How many share the buffer.
    count: AtomicU32,
    len: u32,
    /// The page that it lies in; nothing for an allocation of its own.
    page: Option<NonNull<Page>>,
}

const HEAD_BYTES: usize = size_of::<Head>();

const _: () = assert!(HEAD_BYTES == 16 && align_of::<Head>() <= SLOT_ALIGN);

/// Bytes of the slot for so many bytes, head included.
fn slot_bytes(bytes: usize) -> usize {
    let step = bytes.next_power_of_two() / 16;
    bytes.next_multiple_of(step.max(1)).max(SLOT_BYTES_MIN)
}

/// The place of a slot's size among all sizes.
fn class_of(slot_bytes: usize) -> usize {
    if slot_bytes <= SLOT_BYTES_MIN {
        return 0;
    }
    let last = slot_bytes - 1;
    let doubling = last.ilog2();
    let step = (last >> (doubling - 3)) & 7;
    1 + 8 * (doubling - SLOT_BYTES_MIN.ilog2()) as usize + step
}

/// The length of the longest buffer that takes no more memory than one of `len` bytes.
pub(crate) fn full_len(len: usize) -> usize {
    memory_of(len) - HEAD_BYTES
}

/// Memory in bytes of a buffer of `len` bytes.
pub(crate) fn memory_of(len: usize) -> usize {
    slot_bytes(HEAD_BYTES + len)
}

/// The layout of a buffer with an allocation of its own.
fn own_layout(slot_bytes: usize) -> Layout {
    let layout = Layout::from_size_align(slot_bytes, SLOT_ALIGN);
    layout.expect("a buffer is shorter than isize::MAX")
}

/// Memory for a buffer with an allocation of its own, all zero.
fn own_slot(slot_bytes: usize) -> NonNull<u8> {
    let layout = own_layout(slot_bytes);
    // SAFETY: the size is not zero, since slots have a smallest size.
    let start = unsafe { alloc_zeroed(layout) };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
}

/// A page that is cut into slots.
struct Page {
    memory: SystemMemory,
    /// Whose page it is (S2).
    slabs: NonNull<Slabs>,
    class: usize,
    /// Its place among those of its class.
    number: usize,
    is_drained: AtomicBool,
}

// SAFETY: the pointer to the slabs is used as a shared reference to them only, which all threads
// may have; the memory is reached through buffers.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

/// A page, as its class has it.
struct Entry {
    page: Arc<Page>,
    /// Slots that nobody uses.
    free: Vec<u32>,
    /// Where it stands among the open pages.
    open_at: Option<usize>,
    keeper: Arc<Slabs>,
}

/// All pages of one size of slots.
#[derive(Default)]
struct Class {
    entries: Vec<Option<Entry>>,
    /// Numbers that no page has.
    vacant: Vec<usize>,
    /// Numbers of open pages (S3); the last one gives the next slot.
    open: Vec<usize>,
    /// Numbers of pages that were drained, or still are.
    drained: Vec<usize>,
    /// Slots that nobody uses, of all pages.
    free: usize,
}

impl Class {
    fn entry(&mut self, number: usize) -> &mut Entry {
        let entry = self.entries[number].as_mut();
        entry.expect("a number that is known belongs to a page")
    }

    fn open(&mut self, number: usize) {
        let at = self.open.len();
        self.open.push(number);
        self.entry(number).open_at = Some(at);
    }

    fn close(&mut self, number: usize) {
        let Some(at) = self.entry(number).open_at.take() else {
            return;
        };
        self.open.swap_remove(at);
        if let Some(moved) = self.open.get(at).copied() {
            self.entry(moved).open_at = Some(at);
        }
    }
}

/// The memory of a cache.
pub(crate) struct Slabs {
    /// Bytes of a page; 0 for none.
    page_bytes: usize,
    classes: Vec<Mutex<Class>>,
    spare: Mutex<Vec<SystemMemory>>,
    spare_count: AtomicU64,
    /// Bytes of all pages.
    pages: AtomicU64,
    /// Bytes of the slots that are in use.
    used: AtomicU64,
    /// Bytes of the slots that nobody uses.
    free: AtomicU64,
}

impl Slabs {
    /// The memory of a cache of so many bytes.
    pub(crate) fn new(cache_bytes: u64) -> Arc<Slabs> {
        let page_bytes = match cache_bytes {
            0..CACHE_BYTES_MIN => 0,
            bytes => (bytes / PAGES)
                .clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX)
                .max((bytes / PAGES_MAX).min(PAGE_BYTES_MOST))
                .next_power_of_two(),
        };
        let page_bytes = usize::try_from(page_bytes).expect("a page is small");
        let classes = match page_bytes {
            0 => 0,
            bytes => class_of(bytes / SLOTS_MIN) + 1,
        };
        Arc::new(Slabs {
            page_bytes,
            classes: std::iter::repeat_with(Mutex::default)
                .take(classes)
                .collect(),
            spare: Mutex::default(),
            spare_count: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            used: AtomicU64::new(0),
            free: AtomicU64::new(0),
        })
    }

    /// A buffer of so many bytes, whatever they are.
    ///
    /// # Panics
    /// For 4 GiB or more.
    pub(crate) fn take(self: &Arc<Slabs>, len: usize) -> Buffer {
        let slot = memory_of(len);
        let (start, page) = match self.classes.get(class_of(slot)) {
            Some(class) => self.take_slot(&mut class.lock(), slot),
            None => (own_slot(slot), None),
        };
        let head = start.cast::<Head>();
        let len = u32::try_from(len).expect("a buffer is shorter than 4 GiB");
        let count = AtomicU32::new(1);
        // SAFETY: the slot is this buffer's alone (S1), is aligned for a head and begins with it.
        unsafe { head.write(Head { count, len, page }) };
        Buffer { head }
    }

    /// A buffer with these bytes.
    pub(crate) fn copy(self: &Arc<Slabs>, bytes: &[u8]) -> Buffer {
        let mut buffer = self.take(bytes.len());
        buffer.own().copy_from_slice(bytes);
        buffer
    }

    /// A slot of a class, and its page.
    fn take_slot(
        self: &Arc<Slabs>,
        class: &mut Class,
        slot: usize,
    ) -> (NonNull<u8>, Option<NonNull<Page>>) {
        let number = match class.open.last() {
            Some(number) => *number,
            None => self.add_page(class, slot),
        };
        let entry = class.entry(number);
        let free = entry.free.pop().expect("an open page has a free slot");
        let page = NonNull::new(Arc::as_ptr(&entry.page).cast_mut());
        let start = entry.page.memory.start();
        if entry.free.is_empty() {
            class.close(number);
        }
        class.free -= 1;
        // ORDER: Relaxed (both); sums that order nothing.
        self.free.fetch_sub(slot as u64, Ordering::Relaxed);
        self.used.fetch_add(slot as u64, Ordering::Relaxed);
        // SAFETY: a page has this slot.
        (unsafe { start.add(free as usize * slot) }, page)
    }

    /// Cuts a page into slots of a class; returns its number.
    fn add_page(self: &Arc<Slabs>, class: &mut Class, slot: usize) -> usize {
        let memory = self.spare.lock().pop();
        let memory = match memory {
            Some(memory) => {
                // ORDER: Relaxed; a hint.
                self.spare_count.fetch_sub(1, Ordering::Relaxed);
                memory
            }
            None => {
                // ORDER: Relaxed; a sum that orders nothing.
                self.pages
                    .fetch_add(self.page_bytes as u64, Ordering::Relaxed);
                SystemMemory::new(self.page_bytes)
            }
        };
        let slots = self.page_bytes / slot;
        let number = class.vacant.pop().unwrap_or(class.entries.len());
        let page = Page {
            memory,
            slabs: NonNull::from(&**self),
            class: class_of(slot),
            number,
            is_drained: AtomicBool::new(false),
        };
        let entry = Entry {
            page: Arc::new(page),
            free: (0..u32::try_from(slots).unwrap_or(u32::MAX))
                .rev()
                .collect(),
            open_at: None,
            keeper: Arc::clone(self),
        };
        match class.entries.get_mut(number) {
            Some(place) => *place = Some(entry),
            None => class.entries.push(Some(entry)),
        }
        class.open(number);
        class.free += slots;
        // ORDER: Relaxed; a sum that orders nothing.
        self.free
            .fetch_add((slots * slot) as u64, Ordering::Relaxed);
        number
    }

    /// Takes a slot of a page back, and returns the page if nothing of it is in use any more.
    fn free_slot(&self, page: &Page, start: NonNull<u8>, slot: usize) -> Option<Entry> {
        let number = page.number;
        let slots = self.page_bytes / slot;
        let at = (start.addr().get() - page.memory.start().addr().get()) / slot;
        let mut class = self.classes[page.class].lock();
        class.free += 1;
        // ORDER: Relaxed (both); sums that order nothing.
        self.used.fetch_sub(slot as u64, Ordering::Relaxed);
        self.free.fetch_add(slot as u64, Ordering::Relaxed);
        let entry = class.entry(number);
        entry.free.push(u32::try_from(at).unwrap_or(u32::MAX));
        let is_empty = entry.free.len() == slots;
        // ORDER: Relaxed; changed with the class locked.
        let is_open = entry.open_at.is_some() || entry.page.is_drained.load(Ordering::Relaxed);
        if !is_empty {
            if !is_open {
                class.open(number);
            }
            return None;
        }
        class.close(number);
        class.free -= slots;
        class.vacant.push(number);
        // ORDER: Relaxed; a sum that orders nothing.
        self.free
            .fetch_sub((slots * slot) as u64, Ordering::Relaxed);
        class.entries[number].take()
    }

    /// Gives spare pages back to the system, but for a few of those that a cache of `cache_bytes`
    /// has: a buffer that is alone in its size takes one, and leaves it again.
    pub(crate) fn give_up_spare(&self, cache_bytes: u64) {
        let page = self.page_bytes.max(1) as u64;
        let kept = cache_bytes / page / SPARE_ONE_IN;
        // ORDER: Relaxed; a hint.
        if self.spare_count.load(Ordering::Relaxed) <= kept {
            return;
        }
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        let mut spare = self.spare.lock();
        let at = spare.len().min(kept);
        let given_up = spare.split_off(at);
        drop(spare);
        let count = given_up.len() as u64;
        // ORDER: Relaxed (both); sums that order nothing.
        self.spare_count.fetch_sub(count, Ordering::Relaxed);
        self.pages
            .fetch_sub(count * self.page_bytes as u64, Ordering::Relaxed);
    }

    /// Bytes of pages that no buffer has: free slots, what is left behind them, spare pages.
    pub(crate) fn slack_bytes(&self) -> u64 {
        // ORDER: Relaxed (both); sums that order nothing.
        let used = self.used.load(Ordering::Relaxed);
        self.pages.load(Ordering::Relaxed).saturating_sub(used)
    }

    /// Bytes of slots that nobody uses, in pages of which others are in use.
    pub(crate) fn free_bytes(&self) -> u64 {
        // ORDER: Relaxed; a sum that orders nothing.
        self.free.load(Ordering::Relaxed)
    }

    /// Begins to drain pages of at least so many bytes, if there are, of the sizes with the most
    /// free slots: those with the least in use, as far as the other pages of their size have free
    /// slots for that. Returns whether there are any.
    pub(crate) fn begin_drain(&self, bytes: u64) -> bool {
        let pages = usize::try_from(bytes.div_ceil(self.page_bytes.max(1) as u64));
        let mut left = pages.unwrap_or(usize::MAX);
        let classes = self.classes.iter().enumerate();
        let mut classes: Vec<(usize, &Mutex<Class>)> = classes
            .map(|(at, class)| (class.lock().free / self.slots_of(at), class))
            .filter(|(pages, _)| *pages > 0)
            .collect();
        classes.sort_by_key(|(pages, _)| Reverse(*pages));
        let before = left;
        for (_, class) in classes {
            left -= self.drain_class(&mut class.lock(), left);
        }
        left < before
    }

    /// Slots of a page of that class.
    fn slots_of(&self, class: usize) -> usize {
        let slot = match class {
            0 => SLOT_BYTES_MIN,
            class => (8 + (class - 1) % 8 + 1) << ((class - 1) / 8 + 4),
        };
        self.page_bytes / slot
    }

    /// Drains up to so many pages of a class; returns how many.
    fn drain_class(&self, class: &mut Class, most: usize) -> usize {
        let (mut pages, mut free, mut moving) = (Vec::new(), 0, 0);
        for entry in class.entries.iter().flatten() {
            let own = entry.free.len();
            // ORDER: Relaxed; changed with the class locked.
            if entry.page.is_drained.load(Ordering::Relaxed) {
                moving += self.slots_of(entry.page.class) - own;
            } else if own > 0 {
                free += own;
                pages.push((own, entry.page.number));
            }
        }
        free = free.saturating_sub(moving);
        pages.sort_unstable_by_key(|(free, _)| Reverse(*free));
        let mut drained = 0;
        for (_, number) in pages.into_iter().take(most) {
            let entry = class.entry(number);
            // Its own free slots go, and as many are needed as it has in use.
            let Some(left) = free.checked_sub(self.slots_of(entry.page.class)) else {
                break;
            };
            free = left;
            // ORDER: Relaxed; the class's lock orders who changes it, and others take it as a hint.
            entry.page.is_drained.store(true, Ordering::Relaxed);
            class.close(number);
            class.drained.push(number);
            drained += 1;
        }
        drained
    }

    /// Ends draining: pages that are still in use give out slots again.
    pub(crate) fn end_drain(&self) {
        for class in &self.classes {
            let mut class = class.lock();
            for number in std::mem::take(&mut class.drained) {
                // The number may be another page's by now.
                let Some(entry) = &mut class.entries[number] else {
                    continue;
                };
                // ORDER: Relaxed, as in `drain_class`.
                let was_drained = entry.page.is_drained.swap(false, Ordering::Relaxed);
                if was_drained && !entry.free.is_empty() {
                    class.open(number);
                }
            }
        }
    }
}

impl fmt::Debug for Slabs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slabs")
            .field("page_bytes", &self.page_bytes)
            .field("slack_bytes", &self.slack_bytes())
            .finish_non_exhaustive()
    }
}

/// Bytes that are cheap to share, in a slot.
pub(crate) struct Buffer {
    head: NonNull<Head>,
}

// SAFETY: what is behind the pointer is counted atomically, and is changed by who is alone with it.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: the head lives as long as somebody shares the buffer (S1).
        unsafe { self.head.as_ref() }
    }

    /// Where the bytes begin, and how many there are.
    #[inline]
    fn bytes(&self) -> (NonNull<u8>, usize) {
        // SAFETY: the bytes behind the head are the buffer's.
        let start = unsafe { self.head.cast::<u8>().add(HEAD_BYTES) };
        (start, self.head().len as usize)
    }

    fn page(&self) -> Option<&Page> {
        // SAFETY: the page lives as long as a slot of it is in use (S2).
        self.head().page.map(|page| unsafe { page.as_ref() })
    }

    /// Memory in bytes: that of the slot.
    pub(crate) fn memory_bytes(&self) -> usize {
        memory_of(self.len())
    }

    /// The bytes, if nobody shares them.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut [u8]> {
        // ORDER: Acquire pairs with the Release in `drop`: who shared it reads it no more.
        if self.head().count.load(Ordering::Acquire) != 1 {
            return None;
        }
        let (start, len) = self.bytes();
        // SAFETY: they are initialized (S4); nobody shares them, and this is borrowed alone.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// The bytes.
    ///
    /// # Panics
    /// When somebody shares them.
    pub(crate) fn own(&mut self) -> &mut [u8] {
        self.get_mut().expect("nobody shares the buffer")
    }

    /// Whether the buffer lies in a page that is to be emptied.
    pub(crate) fn is_drained(&self) -> bool {
        // ORDER: Relaxed; a hint.
        let is_drained = |page: &Page| page.is_drained.load(Ordering::Relaxed);
        self.page().is_some_and(is_drained)
    }

    /// Frees the slot, of which nobody is left who shares it.
    #[inline(never)]
    fn free(&mut self) {
        let (slot, start) = (self.memory_bytes(), self.head.cast::<u8>());
        let Some(page) = self.page() else {
            // SAFETY: allocated by `own_slot` with this layout, and nobody else has it (S1).
            unsafe { dealloc(start.as_ptr(), own_layout(slot)) };
            return;
        };
        // SAFETY: the page keeps its slabs (S2).
        let slabs = unsafe { page.slabs.as_ref() };
        let Some(entry) = slabs.free_slot(page, start, slot) else {
            return;
        };
        let Entry { page, keeper, .. } = entry;
        if let Some(page) = Arc::into_inner(page) {
            keeper.spare.lock().push(page.memory);
            // ORDER: Relaxed; a hint.
            keeper.spare_count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Buffer {
        // ORDER: Relaxed; whoever has the buffer may share it, and that alone orders nothing.
        let before = self.head().count.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "too many share a buffer");
        Buffer { head: self.head }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // ORDER: Release: what was read here is before the slot is used again.
        if self.head().count.fetch_sub(1, Ordering::Release) == 1 {
            // ORDER: Acquire pairs with the Release of all others.
            fence(Ordering::Acquire);
            self.free();
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let (start, len) = self.bytes();
        // SAFETY: they are initialized (S4), and nobody changes them while this is borrowed.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests;
