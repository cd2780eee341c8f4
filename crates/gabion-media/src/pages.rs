//! Asking for large pages, for memory before it is needed, and giving it back.

use std::ops::Range;

/// Size of a large page in bytes, and what it is aligned to.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// A multiple of the sizes that systems have for plain pages.
const PAGES_BYTES: usize = 64 << 10;

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

/// Lets the system have the memory of the whole pages that lie in `memory`, whose content is
/// undefined afterwards. The address stays: the system gives memory again when it is used. A hint;
/// without effect where the system has none.
pub fn give_up_memory(memory: &mut [u8]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use rustix::mm::{Advice, madvise};
        let page = rustix::param::page_size();
        let begin = memory.as_ptr().addr();
        let (from, to) = (begin.next_multiple_of(page), begin + memory.len());
        let to = to - to % page;
        if from >= to {
            return;
        }
        let start = memory.as_mut_ptr().wrapping_add(from - begin);
        #[expect(unsafe_code, reason = "the call takes a raw address")]
        // SAFETY: the pages lie within `memory`, which the caller lends alone, and are bytes of any
        // value afterwards.
        let advised = unsafe { madvise(start.cast(), to - from, Advice::LinuxDontNeed) };
        // The memory stays where it is, then.
        let _ = advised;
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = memory;
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

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn memory_is_given_back_and_comes_again() {
        const BYTES: usize = 8 << 20;
        let mut memory = vec![7_u8; BYTES];
        let begin = memory.as_ptr().addr();
        let (from, to) = (1000, (3 << 20) + 1000);
        give_up_memory(&mut memory[from..to]);
        let (there, all) = resident(begin, from..to);
        assert!(there == 0 && all > 700, "{there} of {all} pages");
        let whole = memory[..from].iter().chain(&memory[to..]);
        assert!(whole.into_iter().all(|byte| *byte == 7), "others stay");
        memory.fill(8);
        give_up_memory(&mut memory[5..1000]);
        give_up_memory(&mut []);
        assert!(memory.iter().all(|byte| *byte == 8));
    }
}
