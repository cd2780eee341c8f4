//! Asking for cache lines before they are needed.

/// Size of a cache line in bytes.
const LINE_BYTES: usize = 64;

/// Asks for the cache line at `address`. A hint without effect but on timing: the address need not
/// be valid.
#[inline]
pub fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[expect(unsafe_code, reason = "the intrinsic takes a raw address")]
        // SAFETY: a prefetch has no effect but on timing, whatever the address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Asks for all cache lines of `bytes`, so that their misses overlap instead of adding up.
#[inline]
pub fn prefetch_bytes(bytes: &[u8]) {
    prefetch_range(bytes.as_ptr(), bytes.len());
}

/// As [`prefetch_bytes`], for so many bytes from `address` on, which need not be valid.
#[inline]
pub fn prefetch_range(address: *const u8, bytes: usize) {
    let Some(last) = bytes.checked_sub(1) else {
        return;
    };
    for offset in (0..last).step_by(LINE_BYTES) {
        prefetch_line(address.wrapping_add(offset));
    }
    // The last line is another one where the first does not begin with `address`.
    prefetch_line(address.wrapping_add(last));
}
