//! Pages: the lowest of the paper's three layers of allocation, and the state of each page in DRAM.
//!
//! A page is a block of the pool, so the pool keeps it from being lost or given out twice, reserves
//! space for it and frees it when its last reader is gone. The page table on the medium says which
//! pages there are and in which state. How much of a page is live changes with every write, so that
//! is counted in DRAM, and written down when the page is full and when the store is closed.
//!
//! # Invariants
//! - P1. A page is in the page table as long as anything refers into it.
//! - P2. What came to a page less what has gone is the sum of the sizes of those live records or
//!   chains in it that lie before `counted_to`. All three change only under the stripe of the
//!   record or chain concerned. What came is counted by one thread at a time: who has the log that
//!   the page is open in, or the cleaner, which copies to pages of its own and counts full ones.
//! - P3. Pages of state Reserve are for the cleaner alone, and writers get a page only when there
//!   are as many as there should be. So the cleaner can always move what is live in one page.
//! - P4. Those of them that are kept for copies besides go to the cleaner's log as well. Copies
//!   take no more than two of them that do not come back: one because the page of records that is
//!   open has no room for them, and one for chains.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use gabion_media::pmem::{Medium, POff, Pool};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use super::layout::{
    AT_MOST, ChainHead, LINE_BYTES, NotedBytes, PAGE_HEAD_BYTES, PAGE_MAGIC, PageDescriptor,
    PageHead, PagePlace, PageState,
};
use crate::{Error, Result};

/// Pages that are kept for the cleaner: one for records, one for chains.
const RESERVE_PAGES: usize = 2;

/// Pages that are kept for copies, if any are: one for a record, one for a chain.
const COPY_PAGES: usize = 2;

/// Pages that are kept.
pub(super) fn kept_pages(keeps_for_copies: bool) -> usize {
    RESERVE_PAGES + if keeps_for_copies { COPY_PAGES } else { 0 }
}

/// For whom a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PageUser {
    #[default]
    Writer,
    Cleaner,
    /// A copy, which goes to the cleaner's log.
    Copy,
}

/// The unit in which addresses are mapped to pages, at most: pages are aligned to it.
const GRANULE_BYTES_MAX: u64 = 64 << 10;

/// `counted_to` of a page of which everything is counted.
const ALL: u64 = u64::MAX;

/// What DRAM knows of a page.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct PageInfo {
    start: AtomicU64,
    generation: AtomicU64,
    /// Bytes in use from the start on, once the page is full.
    end: AtomicU64,
    /// Bytes that came to be live, and those of them that are not any more.
    came: AtomicU64,
    gone: AtomicU64,
    counted_to: AtomicU64,
    /// When it became full, in pages that were full by then.
    stamp: AtomicU64,
    state: AtomicU8,
}

// ORDER: Relaxed throughout, except for the state: the numbers of a page change before its state
// says that it is in use, or under the locks that P2 names; elsewhere they are statistics.
impl PageInfo {
    pub(super) fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The address behind the last record or chain of a full page.
    pub(super) fn end(&self) -> u64 {
        self.start() + self.end.load(Ordering::Relaxed)
    }

    /// Bytes in use from the start on, of a full page.
    pub(super) fn end_bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    pub(super) fn live(&self) -> u64 {
        // ORDER: Acquire pairs with the Release of `count_out`: what is gone came before.
        let gone = self.gone.load(Ordering::Acquire);
        // Of a page that is just being counted anew, both are from different times.
        self.came.load(Ordering::Relaxed).saturating_sub(gone)
    }

    /// So many bytes more are live. Only one thread at a time does so (P2).
    fn count_in(&self, bytes: u64) {
        let came = self.came.load(Ordering::Relaxed);
        self.came.store(came + bytes, Ordering::Relaxed);
    }

    /// Nothing is counted but so many live bytes.
    fn set_live(&self, bytes: u64) {
        self.came.store(bytes, Ordering::Relaxed);
        self.gone.store(0, Ordering::Relaxed);
    }

    pub(super) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Relaxed)
    }

    /// Whether all of it is counted.
    pub(super) fn is_counted(&self) -> bool {
        self.counted_to.load(Ordering::Relaxed) == ALL
    }

    pub(super) fn state(&self) -> PageState {
        // ORDER: Acquire pairs with the Release of `set_state`: the numbers go with the state.
        PageState::from_u8(self.state.load(Ordering::Acquire)).unwrap_or(PageState::Free)
    }

    fn set_state(&self, state: PageState) {
        // ORDER: Release pairs with the Acquire of `state`.
        self.state.store(state as u8, Ordering::Release);
    }

    /// Forgets what is counted. Nobody changes anything in the page meanwhile.
    pub(super) fn uncount_all(&self) {
        self.set_live(0);
        self.counted_to.store(0, Ordering::Relaxed);
    }

    /// Counts a record or chain from `address` on as seen, under its stripe.
    pub(super) fn count_to(&self, address: u64, bytes: u64, is_live: bool) {
        if is_live {
            self.count_in(bytes);
        }
        let seen = address + bytes - self.start();
        self.counted_to.store(seen, Ordering::Relaxed);
    }

    /// Everything has been counted.
    pub(super) fn count_done(&self) {
        self.counted_to.store(ALL, Ordering::Relaxed);
    }
}

/// The place in an open page where the next record or chain goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppendPoint {
    pub(super) number: u32,
    pub(super) start: u64,
    pub(super) generation: u64,
    /// Bytes in use from the start on.
    pub(super) tail: u64,
    /// Bytes from the start on that were flushed and fenced.
    pub(super) persisted: u64,
}

impl AppendPoint {
    /// The address of what comes next.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.start + self.tail
    }
}

/// Pages that nobody uses.
#[derive(Debug, Default)]
struct Spare {
    /// Numbers of descriptors that are free, the lowest last.
    unused: Vec<u32>,
    reserve: Vec<u32>,
    /// Open pages from before the store was closed.
    open: Vec<(PageState, AppendPoint)>,
    /// The generation of the newest page.
    generation: u64,
}

/// All pages of a store.
#[derive(Debug)]
pub(super) struct PageTable {
    pool: Pool,
    /// Bytes of a page.
    pub(super) bytes: u64,
    granule_shift: u32,
    table: POff<PageDescriptor>,
    pages: Box<[PageInfo]>,
    /// For each granule of the pool the number of its page plus one, or 0.
    owners: Box<[AtomicU32]>,
    /// Pages that are kept.
    reserve_pages: usize,
    spare: Mutex<Spare>,
    /// Pages that became full so far.
    clock: AtomicU64,
}

impl PageTable {
    /// The pages that a page table of `count` descriptors tells of. They are not read yet.
    pub(super) fn new(
        pool: &Pool,
        table: POff<PageDescriptor>,
        count: usize,
        bytes: u64,
        keeps_for_copies: bool,
    ) -> PageTable {
        let granule_shift = granule_bytes(bytes).trailing_zeros();
        let granules = usize::try_from(pool.len() >> granule_shift).unwrap_or(usize::MAX);
        PageTable {
            pool: pool.clone(),
            bytes,
            granule_shift,
            table,
            pages: (0..count).map(|_| PageInfo::default()).collect(),
            owners: (0..=granules).map(|_| AtomicU32::new(0)).collect(),
            reserve_pages: kept_pages(keeps_for_copies),
            spare: Mutex::default(),
            clock: AtomicU64::new(0),
        }
    }

    fn medium(&self) -> &Medium {
        &self.pool
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.pages.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn page(&self, number: u32) -> &PageInfo {
        &self.pages[number as usize]
    }

    /// The numbers of all pages that are there.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count()).filter(|number| self.page(*number).state() != PageState::Free)
    }

    pub(super) fn descriptor(&self, number: u32) -> &PageDescriptor {
        self.medium().at(self.table.element(u64::from(number)))
    }

    /// Pages that became full so far.
    pub(super) fn now(&self) -> u64 {
        // ORDER: Relaxed: an age needs no more.
        self.clock.load(Ordering::Relaxed)
    }

    /// The page that an address lies in.
    #[inline]
    pub(super) fn number_of(&self, address: u64) -> Option<u32> {
        let granule = usize::try_from(address >> self.granule_shift).ok()?;
        // ORDER: Relaxed: whoever has an address got it by a word that was published later.
        let owner = self.owners.get(granule)?.load(Ordering::Relaxed);
        owner.checked_sub(1)
    }

    /// A record or chain was published. By who has the log that it was put into.
    #[inline]
    pub(super) fn count_in(&self, address: u64, bytes: u64) {
        if let Some(number) = self.number_of(address) {
            self.page(number).count_in(bytes);
        }
    }

    /// Nothing refers to a record or chain any more. Under its stripe.
    #[inline]
    pub(super) fn count_out(&self, address: u64, bytes: u64) {
        if let Some(number) = self.number_of(address) {
            let page = self.page(number);
            // ORDER: Relaxed: see `PageInfo`. Release pairs with the Acquire of `live`.
            if address - page.start() < page.counted_to.load(Ordering::Relaxed) {
                page.gone.fetch_add(bytes, Ordering::Release);
            }
        }
    }

    fn own(&self, start: u64, owner: u32) {
        let last = (start + self.bytes - 1) >> self.granule_shift;
        for granule in start >> self.granule_shift..=last {
            if let Some(slot) = usize::try_from(granule)
                .ok()
                .and_then(|at| self.owners.get(at))
            {
                // ORDER: Relaxed: as in `number_of`.
                slot.store(owner, Ordering::Relaxed);
            }
        }
    }

    /// An open page of this state.
    ///
    /// # Errors
    /// No space.
    pub(super) fn open_page(&self, state: PageState, taker: PageUser) -> Result<AppendPoint> {
        let mut spare = self.spare.lock();
        if let Some(at) = spare.open.iter().position(|(open, _)| *open == state) {
            return Ok(spare.open.swap_remove(at).1);
        }
        // How many of those that were set aside are for others.
        let left = match taker {
            PageUser::Writer => self.reserve_pages,
            PageUser::Cleaner => 0,
            PageUser::Copy => RESERVE_PAGES,
        };
        if taker == PageUser::Writer {
            self.refill(&mut spare, left)?;
        } else if let Ok(head) = self.new_page(&mut spare, state) {
            return Ok(head);
        }
        if spare.reserve.len() > left
            && let Some(number) = spare.reserve.pop()
        {
            let start = self.page(number).start();
            return Ok(self.begin(&mut spare, number, start, state));
        }
        self.new_page(&mut spare, state)
    }

    /// Sets aside what is kept, and so many pages for writers besides.
    ///
    /// # Errors
    /// No space.
    pub(super) fn fill_reserve(&self, besides: usize) -> Result<()> {
        self.refill(&mut self.spare.lock(), self.reserve_pages + besides)
    }

    fn refill(&self, spare: &mut Spare, count: usize) -> Result<()> {
        while spare.reserve.len() < count {
            let head = self.new_page(spare, PageState::Reserve)?;
            spare.reserve.push(head.number);
        }
        Ok(())
    }

    /// Takes a page from the pool.
    fn new_page(&self, spare: &mut Spare, state: PageState) -> Result<AppendPoint> {
        let Some(&number) = spare.unused.last() else {
            return Err(self.full());
        };
        let align = granule_bytes(self.bytes);
        let block = self
            .pool
            .alloc_aligned(self.bytes, align, u64::from(number))?;
        let start = block.offset::<PageHead>().raw();
        spare.unused.pop();
        let head = self.begin(spare, number, start, state);
        block.commit::<PageHead>();
        Ok(head)
    }

    /// Makes a block an empty page of a state.
    fn begin(&self, spare: &mut Spare, number: u32, start: u64, state: PageState) -> AppendPoint {
        let medium = self.medium();
        spare.generation += 1;
        let generation = spare.generation;
        if state == PageState::ChainsOpen {
            medium.zero(start, self.bytes);
        }
        let head: &PageHead = medium.at(POff::new(start));
        // ORDER: Relaxed: nobody else sees the page before its descriptor tells of it.
        let words = [PAGE_MAGIC, u64::from(number), generation];
        head.magic.store(medium, words[0], Ordering::Relaxed);
        head.number.store(medium, words[1], Ordering::Relaxed);
        head.generation.store(medium, words[2], Ordering::Relaxed);
        head.check
            .store(medium, check_of_head(words), Ordering::Relaxed);
        head.mark.store(medium, PAGE_HEAD_BYTES, Ordering::Relaxed);
        medium.flush(head);
        let descriptor = self.descriptor(number);
        // ORDER: Relaxed: read by recovery.
        descriptor
            .generation
            .store(medium, generation, Ordering::Relaxed);
        self.note(descriptor, generation, PAGE_HEAD_BYTES, 0);
        medium.flush(descriptor);
        // DURABLE: the page's head, its zeros and its generation, before it is in the page table.
        medium.fence();
        let place = PagePlace::new(start, state);
        // DURABLE: the page is in the page table, before anything is put into it.
        // ORDER: Relaxed: read by recovery.
        descriptor
            .place
            .store_persist(medium, place.0, Ordering::Relaxed);
        let head = AppendPoint {
            number,
            start,
            generation,
            tail: PAGE_HEAD_BYTES,
            persisted: PAGE_HEAD_BYTES,
        };
        self.know(number, place, &head, 0);
        head
    }

    /// Writes down end and live bytes of a page of this generation. The caller flushes them.
    fn note(&self, descriptor: &PageDescriptor, generation: u64, end: u64, live: u64) {
        let medium = self.medium();
        let end = NotedBytes::End.word(end, generation);
        let live = NotedBytes::Live.word(live, generation);
        // ORDER: Relaxed: read by recovery.
        descriptor.end.store(medium, end, Ordering::Relaxed);
        descriptor.live.store(medium, live, Ordering::Relaxed);
    }

    /// Notes what is known of a page.
    pub(super) fn know(&self, number: u32, place: PagePlace, head: &AppendPoint, live: u64) {
        let page = self.page(number);
        // ORDER: Relaxed: see `PageInfo`.
        page.start.store(head.start, Ordering::Relaxed);
        page.generation.store(head.generation, Ordering::Relaxed);
        page.end.store(head.tail, Ordering::Relaxed);
        page.set_live(live & !AT_MOST);
        let counted = if live & AT_MOST == 0 { ALL } else { 0 };
        page.counted_to.store(counted, Ordering::Relaxed);
        page.stamp.store(self.now(), Ordering::Relaxed);
        self.own(head.start, number + 1);
        page.set_state(place.state().unwrap_or(PageState::Free));
    }

    /// Takes note of what was found when the store was opened.
    pub(super) fn found(
        &self,
        unused: Vec<u32>,
        reserve: Vec<u32>,
        open: Vec<(PageState, AppendPoint)>,
        generation: u64,
    ) {
        *self.spare.lock() = Spare {
            unused,
            reserve,
            open,
            generation,
        };
    }

    /// Makes everything in an open page durable, as far as it is not.
    pub(super) fn persist(&self, head: &mut AppendPoint) {
        if head.persisted == head.tail {
            return;
        }
        let medium = self.medium();
        medium.flush_range(head.start + head.persisted, head.tail - head.persisted);
        // DURABLE: all records of the page: none of them will be rolled back.
        medium.fence();
        head.persisted = head.tail;
    }

    /// As [`PageTable::persist`], and leaves a mark of it, so that later damage is not taken for a
    /// tail that was lost.
    pub(super) fn persist_and_mark(&self, head: &mut AppendPoint) {
        let medium = self.medium();
        let page: &PageHead = medium.at(POff::new(head.start));
        // ORDER: Relaxed: read by recovery, and changed under the log's lock.
        if head.persisted == head.tail && page.mark.load(medium, Ordering::Relaxed) == head.tail {
            return;
        }
        self.persist(head);
        // DURABLE: all records before the mark are.
        page.mark
            .store_persist(medium, head.tail, Ordering::Relaxed);
    }

    /// Makes a page full: all of it is durable, and it takes no more.
    pub(super) fn close_page(&self, head: &mut AppendPoint) {
        let medium = self.medium();
        let page = self.page(head.number);
        let descriptor = self.descriptor(head.number);
        medium.flush_range(head.start + head.persisted, head.tail - head.persisted);
        let bound = head.tail | AT_MOST;
        self.note(descriptor, head.generation, head.tail, bound);
        medium.flush(descriptor);
        // DURABLE: all records or chains of the page, and where they end, before it counts as full
        // and recovery does not look at it any more.
        medium.fence();
        head.persisted = head.tail;
        let full = page.state().full();
        let place = PagePlace::new(head.start, full);
        // DURABLE: what the fence before says.
        // ORDER: Relaxed: read by recovery; the page's end goes with its state.
        descriptor
            .place
            .store_persist(medium, place.0, Ordering::Relaxed);
        page.end.store(head.tail, Ordering::Relaxed);
        // ORDER: Relaxed: an age needs no more.
        let now = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        page.stamp.store(now, Ordering::Relaxed);
        page.set_state(full);
    }

    /// Gives a page back to the pool, for use when its last readers are gone. Nothing refers to it,
    /// and no record that may be rolled back replaced one in it.
    pub(super) fn release(&self, number: u32) -> Result<()> {
        let medium = self.medium();
        let page = self.page(number);
        let block: POff<PageHead> = POff::new(page.start());
        let retiring = self.pool.retire(block, u64::from(number))?;
        // DURABLE: what moved out of the page is where it went, before the page goes.
        medium.fence();
        let descriptor = self.descriptor(number);
        // ORDER: Relaxed: read by recovery.
        // DURABLE: the page is out of the page table, before the pool may use it.
        descriptor.place.store_persist(medium, 0, Ordering::Relaxed);
        page.set_state(PageState::Free);
        self.own(page.start(), 0);
        retiring.commit(&self.pool.enter());
        self.spare.lock().unused.push(number);
        Ok(())
    }

    /// Writes down ends and usage of all pages. `heads` are the open ones in use.
    pub(super) fn checkpoint(&self, heads: &[AppendPoint]) {
        let medium = self.medium();
        let spare = self.spare.lock();
        let spare_heads = spare.open.iter().map(|(_, head)| *head);
        for number in self.numbers() {
            let page = self.page(number);
            let descriptor = self.descriptor(number);
            let is_same = |head: &AppendPoint| head.number == number;
            let open = heads
                .iter()
                .copied()
                .chain(spare_heads.clone())
                .find(is_same);
            let end = open.map_or(page.end_bytes(), |head| head.tail);
            let generation = page.generation();
            let live = if page.is_counted() {
                page.live()
            } else {
                // ORDER: Relaxed: read by recovery.
                let noted = descriptor.live.load(medium, Ordering::Relaxed);
                let noted = NotedBytes::Live.bytes_of(noted, generation);
                noted.unwrap_or(end) | AT_MOST
            };
            self.note(descriptor, generation, end, live);
            medium.flush(descriptor);
        }
        // DURABLE: the page table, before the header says so.
        medium.fence();
    }

    /// Nothing is free.
    pub(super) fn full(&self) -> Error {
        Error::Media(gabion_media::Error::PoolFull {
            path: self.pool.path().to_owned(),
            wanted: self.bytes,
            free: 0,
        })
    }

    /// The chains of a page of chains up to `end`: address and head.
    pub(super) fn chains(
        &self,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, ChainHead)> + '_ {
        let mut at = start + PAGE_HEAD_BYTES;
        std::iter::from_fn(move || {
            if at + LINE_BYTES > end {
                return None;
            }
            let head = chain_head(self.medium(), at)?;
            let chain = (at, head);
            at += head.bytes();
            (head.lines() > 0 && at <= end).then_some(chain)
        })
    }
}

/// The first word of a chain.
pub(super) fn chain_head(medium: &Medium, address: u64) -> Option<ChainHead> {
    let word: &gabion_media::pmem::PAtomicU64 = medium.try_at(POff::new(address))?;
    // ORDER: Relaxed: whoever knows the address acquired it after the chain was written.
    Some(ChainHead(word.load(medium, Ordering::Relaxed)))
}

/// What pages are aligned to.
fn granule_bytes(page_bytes: u64) -> u64 {
    page_bytes.min(GRANULE_BYTES_MAX)
}

/// The check of the first words of a page.
fn check_of_head(words: [u64; 3]) -> u64 {
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    xxh3_64(&bytes)
}

/// Whether a page begins at an offset, with this number and generation; and its mark.
pub(super) fn page_mark(medium: &Medium, start: u64, number: u32, generation: u64) -> Option<u64> {
    let head: &PageHead = medium.try_at(POff::new(start))?;
    medium.touch(head);
    // ORDER: Relaxed: the first words of a page do not change, and the mark is read by recovery.
    let words = [
        head.magic.peek(Ordering::Relaxed),
        head.number.peek(Ordering::Relaxed),
        head.generation.peek(Ordering::Relaxed),
    ];
    let check = head.check.peek(Ordering::Relaxed);
    let mark = head.mark.peek(Ordering::Relaxed);
    let is_sound =
        words == [PAGE_MAGIC, u64::from(number), generation] && check == check_of_head(words);
    is_sound.then_some(mark)
}
