//! Asking for large pages.

/// Size of a large page in bytes, and what it is aligned to.
const LARGE_PAGE_BYTES: usize = 2 << 20;

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
}
