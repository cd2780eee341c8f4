//! The bytes of a simulated file, in pages that copies share until one of them is written.

use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The bytes of a file. Cloning takes constant time.
///
/// Invariant: bytes behind the length in the last page are zero, so lengthening needs no write.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    len: u64,
    /// Missing pages are all zero.
    pages: Arc<Vec<Option<Arc<Page>>>>,
}

impl Content {
    pub(super) fn from_bytes(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        content.write(0, bytes);
        content
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills the buffer from `offset` on; false if the content ends before.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        if offset
            .checked_add(buffer.len() as u64)
            .is_none_or(|end| end > self.len)
        {
            return false;
        }
        let mut rest = buffer;
        let mut at = offset;
        while !rest.is_empty() {
            let (index, within, size) = place(at, rest.len());
            let (part, behind) = rest.split_at_mut(size);
            match &self.pages[index] {
                Some(page) => part.copy_from_slice(&page[within..within + size]),
                None => part.fill(0),
            }
            rest = behind;
            at += size as u64;
        }
        true
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let size = usize::try_from(self.len).expect("a simulated file fits into memory");
        let mut bytes = vec![0; size];
        self.read(0, &mut bytes);
        bytes
    }

    /// Writes bytes at `offset` and lengthens the content where they reach behind its end.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.set_len(self.len.max(offset + bytes.len() as u64));
        let pages = Arc::make_mut(&mut self.pages);
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let (index, within, size) = place(at, rest.len());
            let (part, behind) = rest.split_at(size);
            let page = pages[index].get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[within..within + size].copy_from_slice(part);
            rest = behind;
            at += size as u64;
        }
    }

    /// Cuts the content or lengthens it with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        if len == self.len {
            return;
        }
        let size = usize::try_from(len).expect("a simulated file fits into memory");
        let count = size.div_ceil(PAGE_BYTES);
        if count != self.pages.len() || len < self.len {
            let pages = Arc::make_mut(&mut self.pages);
            pages.resize(count, None);
            if len < self.len
                && !size.is_multiple_of(PAGE_BYTES)
                && let Some(Some(last)) = pages.last_mut()
            {
                Arc::make_mut(last)[size % PAGE_BYTES..].fill(0);
            }
        }
        self.len = len;
    }
}

/// Page, offset within it, and how many of `wanted` bytes lie in it.
fn place(offset: u64, wanted: usize) -> (usize, usize, usize) {
    let offset = usize::try_from(offset).expect("a simulated file fits into memory");
    let within = offset % PAGE_BYTES;
    (offset / PAGE_BYTES, within, wanted.min(PAGE_BYTES - within))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, usize, u8),
        SetLen(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..12_000_usize, 0..9_000_usize, any::<u8>())
                .prop_map(|(at, size, byte)| Step::Write(at, size, byte)),
            (0..20_000_usize).prop_map(Step::SetLen),
        ]
    }

    proptest! {
        #[test]
        fn content_equals_its_twin_and_copies_stay(steps in prop::collection::vec(step(), 1..20)) {
            let mut twin = Vec::new();
            let mut content = Content::default();
            let mut copies = Vec::new();
            for step in steps {
                copies.push((content.clone(), twin.clone()));
                match step {
                    Step::Write(at, size, byte) => {
                        if size > 0 && twin.len() < at + size {
                            twin.resize(at + size, 0);
                        }
                        if size > 0 {
                            twin[at..at + size].fill(byte);
                        }
                        content.write(at as u64, &vec![byte; size]);
                    }
                    Step::SetLen(len) => {
                        twin.resize(len, 0);
                        content.set_len(len as u64);
                    }
                }
                prop_assert_eq!(content.len(), twin.len() as u64);
                prop_assert!(content.to_vec() == twin);
                prop_assert!(!content.read(1, &mut vec![0; twin.len()]));
            }
            for (copy, expected) in copies {
                prop_assert!(copy.to_vec() == expected);
            }
        }
    }
}
