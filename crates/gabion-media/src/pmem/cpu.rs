//! Instructions of the processor for persistent memory: the only module that names them.
//!
//! # What they do
//! | instruction | effect on a cache line |
//! |---|---|
//! | `clwb` | starts to write it back and keeps it in the cache |
//! | `clflushopt` | starts to write it back and drops it from the cache |
//! | `clflush` | the same, one after the other: the oldest and slowest |
//! | `movnti` | stores a word past the cache |
//! | `sfence` | waits until the write-backs and stores past the cache of this thread are accepted |
//!
//! A line that was accepted by the memory controller survives the loss of power (the domain of
//! asynchronous DRAM refresh; the paper on write amplification, section II-A).
//!
//! Instructions are written as inline assembly, which the compiler takes for an access to memory of
//! an unknown kind: it moves no store of the program across them.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::asm;

/// An instruction that writes a cache line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushInstruction {
    /// Writes back and keeps the line.
    Clwb,
    /// Writes back and drops the line.
    ClflushOpt,
    /// Writes back and drops the line, in order with other flushes.
    Clflush,
}

impl FlushInstruction {
    /// The best one of this processor; none on processors that this module does not know.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn detect() -> Option<FlushInstruction> {
        use std::arch::x86_64::{__cpuid, __cpuid_count, __get_cpuid_max};
        if cfg!(miri) {
            return None;
        }
        let leaf_max = __get_cpuid_max(0).0;
        if leaf_max >= 7 {
            let features = __cpuid_count(7, 0).ebx;
            if features & (1 << 24) != 0 {
                return Some(FlushInstruction::Clwb);
            }
            if features & (1 << 23) != 0 {
                return Some(FlushInstruction::ClflushOpt);
            }
        }
        let has_clflush = leaf_max >= 1 && __cpuid(1).edx & (1 << 19) != 0;
        has_clflush.then_some(FlushInstruction::Clflush)
    }

    /// The best one of this processor; none on processors that this module does not know.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn detect() -> Option<FlushInstruction> {
        None
    }
}

/// Starts to write back the line that holds `address`.
///
/// # Safety
/// The address is mapped, and the processor has the instruction.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(super) unsafe fn flush_line(instruction: FlushInstruction, address: *const u8) {
    match instruction {
        FlushInstruction::Clwb => {
            // SAFETY: changes no content; the caller vouches for address and instruction.
            unsafe { asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags)) }
        }
        FlushInstruction::ClflushOpt => {
            // SAFETY: as above.
            unsafe { asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags)) }
        }
        FlushInstruction::Clflush => {
            // SAFETY: as above.
            unsafe { asm!("clflush [{}]", in(reg) address, options(nostack, preserves_flags)) }
        }
    }
}

/// Never called: no other processor has an instruction to name.
///
/// # Safety
/// None needed.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) unsafe fn flush_line(_: FlushInstruction, _: *const u8) {}

/// Waits for the write-backs and the stores past the cache of this thread.
#[inline(always)]
pub(super) fn store_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction touches no memory and every processor of this kind has it.
    unsafe {
        asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // ORDER: stands for the store fence; pairs with whoever reads what was stored before it.
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Stores words past the cache, one behind the other, from `target` on.
///
/// # Safety
/// `target` is aligned to words, and all the words lie in mapped memory that is only accessed by
/// atomic operations.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) unsafe fn store_past_cache(target: *mut u64, words: impl Iterator<Item = u64>) {
    for (index, word) in words.enumerate() {
        // SAFETY: within the range that the caller vouches for.
        let address = unsafe { target.add(index) };
        // SAFETY: an aligned store of one word, which is atomic on this processor.
        unsafe {
            asm!(
                "movnti [{}], {}",
                in(reg) address,
                in(reg) word,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Stores words, where no instruction is known that does so past the cache.
///
/// # Safety
/// As on processors that have one.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
pub(super) unsafe fn store_past_cache(target: *mut u64, words: impl Iterator<Item = u64>) {
    use std::sync::atomic::{AtomicU64, Ordering};
    for (index, word) in words.enumerate() {
        // SAFETY: within the range that the caller vouches for.
        let address = unsafe { target.add(index) };
        // SAFETY: aligned, mapped, and accessed by atomic operations only.
        let cell = unsafe { AtomicU64::from_ptr(address) };
        // ORDER: Relaxed as a store past the cache is; ordered by the fence that follows.
        cell.store(word, Ordering::Relaxed);
    }
}
