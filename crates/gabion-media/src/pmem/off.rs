//! Offsets, which media hold instead of pointers.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// Where a `T` lies in a pool, in bytes from the pool's start. Offset 0 is the pool's header and
/// stands for "none".
#[repr(transparent)]
pub struct POff<T: ?Sized = u8> {
    raw: u64,
    kind: PhantomData<fn() -> *const T>,
}

impl<T: ?Sized> POff<T> {
    /// No place.
    pub const NULL: POff<T> = POff::new(0);

    /// The place `raw` bytes behind the pool's start.
    #[inline]
    pub const fn new(raw: u64) -> POff<T> {
        POff {
            raw,
            kind: PhantomData,
        }
    }

    /// Bytes from the pool's start.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.raw
    }

    /// Whether this is no place.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.raw == 0
    }

    /// The same place, for a value of another type.
    #[inline]
    pub const fn cast<U: ?Sized>(self) -> POff<U> {
        POff::new(self.raw)
    }

    /// The place `bytes` further on, for a value of another type.
    ///
    /// # Panics
    /// If there is no such offset.
    #[inline]
    pub fn byte_add<U: ?Sized>(self, bytes: u64) -> POff<U> {
        POff::new(self.raw.checked_add(bytes).expect("an offset has 64 bits"))
    }
}

impl<T> POff<T> {
    /// The place of the element with number `index` of an array that begins here.
    ///
    /// # Panics
    /// If there is no such offset.
    #[inline]
    pub fn element(self, index: u64) -> POff<T> {
        let bytes = index.checked_mul(size_of::<T>() as u64);
        self.byte_add(bytes.expect("an offset has 64 bits"))
    }
}

impl<T: ?Sized> Clone for POff<T> {
    #[inline]
    fn clone(&self) -> POff<T> {
        *self
    }
}

impl<T: ?Sized> Copy for POff<T> {}

impl<T: ?Sized> Default for POff<T> {
    fn default() -> POff<T> {
        POff::NULL
    }
}

impl<T: ?Sized> PartialEq for POff<T> {
    #[inline]
    fn eq(&self, other: &POff<T>) -> bool {
        self.raw == other.raw
    }
}

impl<T: ?Sized> Eq for POff<T> {}

impl<T: ?Sized> PartialOrd for POff<T> {
    fn partial_cmp(&self, other: &POff<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: ?Sized> Ord for POff<T> {
    fn cmp(&self, other: &POff<T>) -> Ordering {
        self.raw.cmp(&other.raw)
    }
}

impl<T: ?Sized> Hash for POff<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

impl<T: ?Sized> fmt::Debug for POff<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:#x}", self.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_elements_and_bytes() {
        let array = POff::<u64>::new(64);
        assert_eq!(array.element(3), POff::new(88));
        assert_eq!(array.byte_add::<u8>(3).raw(), 67);
        assert_eq!(size_of::<POff<[u64]>>(), 8);
        assert!(POff::<u8>::default().is_null() && !array.is_null());
        assert_eq!(format!("{array:?}"), "+0x40");
    }
}
