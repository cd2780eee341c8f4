//! `Slice`: immutable bytes that are cheap to clone.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::bytes::copy_to;
use crate::slabs::Buffer;

/// Bytes up to this length live inside the `Slice` itself.
pub(crate) const INLINE_LEN: usize = 22;

/// An immutable byte string, as keys and values are returned. Cloning costs at most one atomic
/// increment: short strings are stored inline, longer ones share a buffer, such as the cached
/// block that they were read from.
///
/// A `Slice` that shares a block keeps the whole block (usually 4 KiB), or a piece of it, in
/// memory; [`to_vec`](slice::to_vec) makes a copy that does not.
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; INLINE_LEN],
    },
    Shared {
        buffer: Arc<[u8]>,
        start: u32,
        len: u32,
    },
    Cached {
        buffer: Buffer,
        start: u32,
        len: u32,
    },
}

impl Slice {
    /// Copies `bytes`.
    ///
    /// # Panics
    /// For 4 GiB or more, four times the longest value of a store.
    #[inline]
    pub fn new(bytes: &[u8]) -> Slice {
        match Slice::inline(bytes) {
            Some(slice) => slice,
            None => {
                let len = u32::try_from(bytes.len()).expect("a slice is shorter than 4 GiB");
                Slice(Repr::Shared {
                    buffer: Arc::from(bytes),
                    start: 0,
                    len,
                })
            }
        }
    }

    /// The `len` bytes at `start` of `buffer`, shared when they are too long to store inline.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    #[inline]
    pub(crate) fn shared(buffer: &Arc<[u8]>, start: usize, len: usize) -> Slice {
        Slice::part(buffer, start, len, |start, len| Repr::Shared {
            buffer: Arc::clone(buffer),
            start,
            len,
        })
    }

    /// As [`Slice::shared`], of a buffer of a cache.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    #[inline]
    pub(crate) fn cached(buffer: &Buffer, start: usize, len: usize) -> Slice {
        Slice::part(buffer, start, len, |start, len| Repr::Cached {
            buffer: buffer.clone(),
            start,
            len,
        })
    }

    /// The bytes behind the first `front`, of the same memory; none if there are fewer.
    pub(crate) fn without_front(&self, front: usize) -> Slice {
        match &self.0 {
            Repr::Inline { .. } => Slice::new(self.get(front..).unwrap_or_default()),
            Repr::Shared { buffer, start, len } => {
                let (start, len) = (*start as usize, *len as usize);
                let front = front.min(len);
                Slice::shared(buffer, start + front, len - front)
            }
            Repr::Cached { buffer, start, len } => {
                let (start, len) = (*start as usize, *len as usize);
                let front = front.min(len);
                Slice::cached(buffer, start + front, len - front)
            }
        }
    }

    #[inline]
    fn part(
        buffer: &[u8],
        start: usize,
        len: usize,
        share: impl FnOnce(u32, u32) -> Repr,
    ) -> Slice {
        match Slice::inline(&buffer[start..start + len]) {
            Some(slice) => slice,
            None => {
                let start = u32::try_from(start).expect("a buffer is shorter than 4 GiB");
                let len = u32::try_from(len).expect("a buffer is shorter than 4 GiB");
                Slice(share(start, len))
            }
        }
    }

    #[inline]
    fn inline(bytes: &[u8]) -> Option<Slice> {
        let len = bytes.len();
        if len > INLINE_LEN {
            return None;
        }
        let mut inline = [0; INLINE_LEN];
        copy_to(&mut inline, bytes);
        #[expect(clippy::cast_possible_truncation, reason = "at most INLINE_LEN")]
        Some(Slice(Repr::Inline {
            len: len as u8,
            bytes: inline,
        }))
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared { buffer, start, len } => {
                &buffer[*start as usize..*start as usize + *len as usize]
            }
            Repr::Cached { buffer, start, len } => {
                &buffer[*start as usize..*start as usize + *len as usize]
            }
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// So that maps with `Slice`s as keys are searched by bytes; equality, order and hash are those of
/// the bytes.
impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

/// No bytes.
impl Default for Slice {
    fn default() -> Slice {
        Slice::new(&[])
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Slice {
        Slice::new(bytes)
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl PartialEq<[u8]> for Slice {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialEq<&[u8]> for Slice {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Slice {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == **other
    }
}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Slice) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Slice) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl std::hash::Hash for Slice {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_bytes_at_every_length_around_the_inline_limit() {
        for len in 0..64u8 {
            let bytes: Vec<u8> = (0..len).collect();
            let slice = Slice::new(&bytes);
            assert_eq!(&*slice, &bytes[..]);
            assert_eq!(slice.clone(), slice);
        }
    }

    #[test]
    fn is_found_in_maps_by_its_bytes() {
        let keys = [&b""[..], b"granite", &[7; 100]];
        let ordered: std::collections::BTreeMap<Slice, usize> = keys
            .iter()
            .map(|key| (Slice::new(key), key.len()))
            .collect();
        let hashed: std::collections::HashMap<Slice, usize> = ordered.clone().into_iter().collect();
        for key in keys {
            assert_eq!(
                (ordered.get(key), hashed.get(key)),
                (Some(&key.len()), Some(&key.len()))
            );
        }
        assert_eq!(ordered.keys().next(), Some(&Slice::default()));
    }

    #[test]
    fn shares_a_part_of_a_buffer() {
        let buffer: Arc<[u8]> = Arc::from((0..200u8).collect::<Vec<u8>>());
        for (start, len) in [(0, 0), (10, 5), (10, 22), (10, 23), (100, 100), (200, 0)] {
            assert_eq!(
                &*Slice::shared(&buffer, start, len),
                &buffer[start..start + len]
            );
        }
    }

    #[test]
    fn loses_bytes_at_its_front() {
        let buffer: Arc<[u8]> = Arc::from((0..200u8).collect::<Vec<u8>>());
        for slice in [Slice::new(&buffer[..20]), Slice::shared(&buffer, 5, 100)] {
            for front in [0, 1, 8, 20, 90] {
                let left = slice.without_front(front);
                assert_eq!(&*left, slice.get(front..).unwrap_or_default());
            }
            assert_eq!(slice.without_front(300).len(), 0);
        }
    }

    #[test]
    fn is_as_small_as_three_words_and_a_tag() {
        assert!(std::mem::size_of::<Slice>() <= 32);
    }
}
