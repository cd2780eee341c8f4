//! Values on media: integers whose every access is atomic, and structures of them.
//!
//! # Idea
//! Everything in a pool that another thread or a recovery reads is one of these types. The
//! compiler can neither tear nor repeat their loads and stores, and since any bytes are a valid
//! value of them, a damaged pool or a stale offset leads to wrong numbers, never to undefined
//! behaviour. [`Medium::at`](super::Medium::at) lends them by reference.
//!
//! Stores take the [`Medium`] that the value lies in, so that a watched medium sees them. `load`
//! is seen too; `peek` is not, and is for loads that come in groups: tell the watcher of the group
//! by [`Medium::touch`](super::Medium::touch).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::medium::Medium;
use super::trace::TraceStep;

/// Types that may lie on media: all their fields are atomics, without gaps between them, so that
/// any bytes are a valid value and shared access is no data race.
///
/// Structures get it from [`media_struct!`](crate::media_struct).
///
/// # Safety
/// The type consists of atomic integers only, has no padding and drops nothing.
pub unsafe trait Media: Send + Sync + 'static {}

// SAFETY: an array has no padding between its elements, and each one is `Media`.
unsafe impl<T: Media, const N: usize> Media for [T; N] {}

macro_rules! persistent_integer {
    ($(#[$doc:meta])* $name:ident, $atomic:ty, $int:ty) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug, Default)]
        pub struct $name($atomic);

        // SAFETY: one atomic integer.
        unsafe impl Media for $name {}

        // ORDER: Relaxed throughout where a watched medium repeats an operation under its lock,
        // which orders it more strongly than any caller can ask.
        impl $name {
            /// A value outside of any medium, such as a part of a template that is copied in.
            pub const fn new(value: $int) -> $name {
                $name(<$atomic>::new(value))
            }

            /// Loads the value.
            #[inline]
            #[track_caller]
            pub fn load(&self, medium: &Medium, order: Ordering) -> $int {
                if medium.is_watched() {
                    medium.touch(self);
                }
                self.0.load(order)
            }

            /// Loads the value, unseen by a watcher.
            #[inline]
            pub fn peek(&self, order: Ordering) -> $int {
                self.0.load(order)
            }

            /// Stores a value. It survives what the medium's class says after a flush and a fence.
            #[inline]
            #[track_caller]
            pub fn store(&self, medium: &Medium, value: $int, order: Ordering) {
                if medium.is_noted() {
                    return self.noted_store(medium, value, order);
                }
                self.0.store(value, order);
            }

            /// Stores a value and waits until it survives.
            #[inline]
            #[track_caller]
            pub fn store_persist(&self, medium: &Medium, value: $int, order: Ordering) {
                if medium.is_plain() {
                    self.0.store(value, order);
                    return medium.fence();
                }
                self.store(medium, value, order);
                medium.persist(self);
            }

            /// Stores `new` if the value is `current`. `Ok` and `Err` hold the value before.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                medium: &Medium,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                if medium.is_noted() {
                    self.note(medium);
                    if medium.is_watched() {
                        let change = |value| (value == current).then_some(new);
                        let before = self.watched(medium, change);
                        return if before == current { Ok(before) } else { Err(before) };
                    }
                }
                self.0.compare_exchange(current, new, success, failure)
            }

            /// Stores a value and returns the one before.
            #[inline]
            #[track_caller]
            pub fn swap(&self, medium: &Medium, value: $int, order: Ordering) -> $int {
                if medium.is_noted() {
                    self.note(medium);
                    if medium.is_watched() {
                        return self.watched(medium, |_| Some(value));
                    }
                }
                self.0.swap(value, order)
            }

            /// Adds, wrapping around, and returns the value before.
            #[inline]
            #[track_caller]
            pub fn fetch_add(&self, medium: &Medium, value: $int, order: Ordering) -> $int {
                if medium.is_noted() {
                    self.note(medium);
                    if medium.is_watched() {
                        return self.watched(medium, |before| Some(before.wrapping_add(value)));
                    }
                }
                self.0.fetch_add(value, order)
            }

            /// Sets the bits of `bits` and returns the value before.
            #[inline]
            #[track_caller]
            pub fn fetch_or(&self, medium: &Medium, bits: $int, order: Ordering) -> $int {
                if medium.is_noted() {
                    self.note(medium);
                    if medium.is_watched() {
                        return self.watched(medium, |before| Some(before | bits));
                    }
                }
                self.0.fetch_or(bits, order)
            }

            /// Keeps only the bits of `bits` and returns the value before.
            #[inline]
            #[track_caller]
            pub fn fetch_and(&self, medium: &Medium, bits: $int, order: Ordering) -> $int {
                if medium.is_noted() {
                    self.note(medium);
                    if medium.is_watched() {
                        return self.watched(medium, |before| Some(before & bits));
                    }
                }
                self.0.fetch_and(bits, order)
            }

            // A function of its own, and by value, so that the arguments of a store that nobody
            // takes note of stay in registers.
            #[cold]
            #[inline(never)]
            #[track_caller]
            fn noted_store(&self, medium: &Medium, value: $int, order: Ordering) {
                self.note(medium);
                let offset = medium.offset_of(self).raw();
                let bytes = &value.to_le_bytes();
                let step = TraceStep::Store { offset, bytes };
                medium.watched_step(step, || self.0.store(value, order));
            }

            /// Notes the value's page for the next checkpoint. The caller is within the pool's
            /// gate, so it does not matter whether this comes before the store or after it.
            #[inline]
            fn note(&self, medium: &Medium) {
                medium.note_dirty(medium.offset_of(self).raw(), size_of::<$int>() as u64);
            }

            #[cold]
            #[inline(never)]
            #[track_caller]
            fn watched(
                &self,
                medium: &Medium,
                change: impl FnOnce($int) -> Option<$int>,
            ) -> $int {
                // ORDER: SeqCst for loads by `peek`, whatever the caller asked for.
                let before = medium.watched_change(
                    medium.offset_of(self).raw(),
                    || self.0.load(Ordering::Relaxed).to_le_bytes(),
                    |value| change(<$int>::from_le_bytes(value)).map(<$int>::to_le_bytes),
                    |value| self.0.store(<$int>::from_le_bytes(value), Ordering::SeqCst),
                );
                <$int>::from_le_bytes(before)
            }
        }
    };
}

persistent_integer! {
    /// A 32-bit number on a medium.
    PAtomicU32, AtomicU32, u32
}
persistent_integer! {
    /// A word on a medium: the unit that a crash never tears, and so the unit of publishing.
    PAtomicU64, AtomicU64, u64
}

/// Declares structures that may lie on media: `#[repr(C)]`, each field
/// [`Media`](crate::pmem::Media), no padding. What does not hold is an error of the compiler.
///
/// ```
/// use gabion_media::media_struct;
/// use gabion_media::pmem::{PAtomicU64, PAtomicU32};
///
/// media_struct! {
///     /// A node of a list.
///     pub struct Node {
///         /// Offset of the next node.
///         pub next: PAtomicU64,
///         /// What it holds.
///         pub value: PAtomicU32,
///         /// Fills the word.
///         pub unused: PAtomicU32,
///     }
/// }
/// assert_eq!(size_of::<Node>(), 16);
/// ```
///
/// A gap is refused:
///
/// ```compile_fail
/// use gabion_media::media_struct;
/// use gabion_media::pmem::{PAtomicU64, PAtomicU32};
///
/// media_struct! {
///     /// Has a gap.
///     pub struct Node {
///         /// Four bytes.
///         pub value: PAtomicU32,
///         /// Eight bytes, aligned.
///         pub next: PAtomicU64,
///     }
/// }
/// ```
#[macro_export]
macro_rules! media_struct {
    ($($(#[$attribute:meta])* $visibility:vis struct $name:ident {
        $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $kind:ty),+ $(,)?
    })+) => {$(
        #[repr(C)]
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $kind),+
        }

        const _: () = {
            const fn is_media<T: $crate::pmem::Media>() -> usize {
                ::core::mem::size_of::<T>()
            }
            assert!(
                0 $(+ is_media::<$kind>())+ == ::core::mem::size_of::<$name>(),
                "a structure on media has no gaps"
            );
            assert!(!::core::mem::needs_drop::<$name>());
        };

        #[allow(unsafe_code, reason = "what makes it sound is asserted above")]
        // SAFETY: the fields are atomics (`is_media`), and their sizes add up to the whole, so
        // there is no padding; nothing is dropped, as was asserted.
        unsafe impl $crate::pmem::Media for $name {}
    )+};
}
