//! Memory from the system: large pages, and memory prepared before it is needed.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

/// Size of a large page in bytes, and what it is aligned to.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// A multiple of the sizes that systems have for plain pages.
const PAGES_BYTES: usize = 64 << 10;

/// What [`SystemMemory`] is aligned to, at least.
const SYSTEM_ALIGN: usize = 4 << 10;

/// Asks the system to put `memory`, as far as whole pages of 2 MiB lie in it, on such pages: what
/// is reached at random places then costs fewer translations of addresses. A hint; a page that is
/// used at all takes its 2 MiB. Without effect where the system has none.
pub fn prefer_large_pages<T>(memory: &mut [T]) {
    let range = memory.as_mut_ptr_range();
    let (from, to) = (range.start.addr(), range.end.addr());
    let first = from.next_multiple_of(LARGE_PAGE_BYTES);
    let end = to - to % LARGE_PAGE_BYTES;
    if first >= end {
        return;
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use rustix::mm::{Advice, madvise};
        let start = range.start.cast::<u8>().wrapping_add(first - from);
        #[expect(unsafe_code, reason = "the call takes a raw address")]
        // SAFETY: the pages lie within `memory`, which the caller lends alone, and this advice
        // changes no content.
        let advised = unsafe { madvise(start.cast(), end - first, Advice::LinuxHugepage) };
        // Only a matter of speed.
        let _ = advised;
    }
}

/// Lets the system give `vec` the memory of some of its places now, whether a value is there yet or
/// not: who comes to them later does not wait until it is cleared, which may take milliseconds for
/// a large page. It is given in pieces of 64 KiB; the one in which the places begin belongs to
/// those before them, the one in which they end to these. Returns whether the system did it.
pub fn populate<T>(vec: &Vec<T>, places: Range<usize>) -> bool {
    let begin = vec.as_ptr().addr();
    let address = |place: usize| begin + place.min(vec.capacity()) * size_of::<T>();
    let from = address(places.start).next_multiple_of(PAGES_BYTES);
    let end = address(vec.capacity()) / PAGES_BYTES * PAGES_BYTES;
    let to = address(places.end).next_multiple_of(PAGES_BYTES).min(end);
    if from >= to {
        return false;
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use rustix::mm::{Advice, madvise};
        let start = vec.as_ptr().cast::<u8>().wrapping_add(from - begin);
        #[expect(unsafe_code, reason = "the call takes a raw address")]
        // SAFETY: the pages lie within the memory of `vec`, and this advice changes no content.
        let advised = unsafe {
            madvise(
                start.cast_mut().cast(),
                to - from,
                Advice::LinuxPopulateWrite,
            )
        };
        // Only a matter of time; systems before Linux 5.14 do not know it.
        advised.is_ok()
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    false
}

/// Memory of the system's own, zero at first, which goes back to the system when it is dropped.
///
/// The allocator has a place for large memory that comes and goes, too, but it learns: after the
/// first 16 MiB that are freed, glibc's takes all that is smaller from its heap, where what is free
/// stays between what is not. A store that promises a ceiling takes large memory here.
#[derive(Debug)]
pub struct SystemMemory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a plain piece of memory; nothing about it belongs to the thread that asked for it.
#[expect(unsafe_code, reason = "a pointer into memory of its own")]
unsafe impl Send for SystemMemory {}
// SAFETY: as above; all access is the owner's.
#[expect(unsafe_code, reason = "a pointer into memory of its own")]
unsafe impl Sync for SystemMemory {}

impl SystemMemory {
    /// So many bytes, at least one.
    ///
    /// # Panics
    /// For none, and for more than `isize::MAX`. Ends the process as the allocator does where there
    /// is no memory.
    pub fn new(bytes: usize) -> SystemMemory {
        assert!(bytes > 0, "memory has at least one byte");
        let layout = Layout::from_size_align(bytes, SYSTEM_ALIGN);
        let layout = layout.expect("memory is shorter than isize::MAX");
        let start = map(layout).unwrap_or_else(|| handle_alloc_error(layout));
        SystemMemory { start, layout }
    }

    /// The first byte, at a multiple of 4 KiB; the pointer is good for all of them.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for SystemMemory {
    fn drop(&mut self) {
        unmap(self.start, self.layout);
    }
}

#[cfg(all(unix, not(miri)))]
fn map(layout: Layout) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    #[expect(unsafe_code, reason = "the call maps memory")]
    // SAFETY: the system chooses an address that is free, so no existing memory changes.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            layout.size(),
            protection,
            MapFlags::PRIVATE,
        )
    };
    NonNull::new(mapped.ok()?.cast())
}

#[cfg(all(unix, not(miri)))]
fn unmap(start: NonNull<u8>, layout: Layout) {
    #[expect(unsafe_code, reason = "the call takes a raw address")]
    // SAFETY: mapped with this length, and only its owner, which is dropped, has it.
    let unmapped = unsafe { rustix::mm::munmap(start.as_ptr().cast(), layout.size()) };
    // It stays mapped, then: the system has no room to note a hole between two others.
    let _ = unmapped;
}

#[cfg(not(all(unix, not(miri))))]
fn map(layout: Layout) -> Option<NonNull<u8>> {
    #[expect(unsafe_code, reason = "the allocator's call")]
    // SAFETY: the size is not zero.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(start)
}

#[cfg(not(all(unix, not(miri))))]
fn unmap(start: NonNull<u8>, layout: Layout) {
    #[expect(unsafe_code, reason = "the allocator's call")]
    // SAFETY: allocated with this layout, and only its owner, which is dropped, has it.
    unsafe {
        std::alloc::dealloc(start.as_ptr(), layout);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_as_it_is() {
        for bytes in [0, 1, LARGE_PAGE_BYTES, 5 * LARGE_PAGE_BYTES] {
            let mut memory = vec![7_u8; bytes];
            prefer_large_pages(&mut memory);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
    }

    /// How many of the pages of some bytes behind an address are in memory, and how many there are.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident(begin: usize, places: Range<usize>) -> (usize, usize) {
        use std::os::unix::fs::FileExt;
        const PAGE_BYTES: usize = 4096;
        const IS_PRESENT: u64 = 1 << 63;
        let pages = (begin + places.start).div_ceil(PAGE_BYTES)..(begin + places.end) / PAGE_BYTES;
        let map = std::fs::File::open("/proc/self/pagemap").unwrap();
        let is_present = |page: &usize| {
            let mut entry = [0; 8];
            map.read_exact_at(&mut entry, *page as u64 * 8).unwrap();
            u64::from_le_bytes(entry) & IS_PRESENT != 0
        };
        (pages.clone().filter(is_present).count(), pages.len())
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn memory_is_there_before_it_is_used() {
        const BYTES: usize = 8 << 20;
        let mut vec: Vec<u8> = Vec::with_capacity(BYTES);
        vec.extend([1, 2, 3]);
        let begin = vec.as_ptr().addr();
        // Far from what was written: that may have got a large page.
        assert_eq!(resident(begin, 4 << 20..BYTES).0, 0);
        if populate(&vec, 4 << 20..5 << 20) {
            let (there, all) = resident(begin, (4 << 20) + PAGES_BYTES..5 << 20);
            assert!(there == all && all > 200, "{there} of {all} pages");
            assert_eq!(resident(begin, 7 << 20..BYTES).0, 0);
        }
        assert!(!populate(&vec, 5..5) && !populate(&vec, 2 * BYTES..3 * BYTES));
        populate(&vec, 0..3 * BYTES);
        assert_eq!((&vec[..], vec.capacity()), (&[1, 2, 3][..], BYTES));
    }

    #[test]
    fn memory_of_the_system_is_zero_aligned_and_all_there() {
        for bytes in [1, 4096, 100_000, 5 << 20] {
            let memory = SystemMemory::new(bytes);
            assert_eq!(memory.bytes(), bytes);
            assert_eq!(memory.start().addr().get() % SYSTEM_ALIGN, 0);
            let start = memory.start().as_ptr();
            #[expect(unsafe_code, reason = "the memory is looked at")]
            // SAFETY: all bytes are initialized, and only this test has them.
            let all = unsafe { std::slice::from_raw_parts_mut(start, bytes) };
            assert!(all.iter().all(|byte| *byte == 0));
            all.fill(7);
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn memory_goes_back_to_the_system_when_it_is_dropped() {
        const BYTES: usize = 8 << 20;
        // Another thread may get the address at once.
        let goes_back = || {
            let memory = SystemMemory::new(BYTES);
            let begin = memory.start().addr().get();
            #[expect(unsafe_code, reason = "the memory is written")]
            // SAFETY: all bytes are initialized, and only this test has them.
            let all = unsafe { std::slice::from_raw_parts_mut(memory.start().as_ptr(), BYTES) };
            all.fill(7);
            let (there, all) = resident(begin, 0..BYTES);
            assert_eq!(there, all);
            drop(memory);
            resident(begin, 0..BYTES).0 == 0
        };
        assert!((0..20).any(|_| goes_back()));
    }
}
