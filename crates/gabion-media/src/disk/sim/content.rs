//! The bytes of a simulated file, in pages that copies share until one of them is written.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The bytes of a file. Cloning takes constant time.
///
/// Invariants: bytes behind the length in the last page are zero, so lengthening needs no write;
/// pages that were given back lie within the length and are zero.
#[derive(Clone, Debug, Default)]
pub(super) struct FileContent {
    len: u64,
    /// Missing pages are all zero.
    pages: Arc<Vec<Option<Arc<Page>>>>,
    /// Pages that take no space of the disk until they are written again.
    given_back: Arc<BTreeSet<usize>>,
}

impl FileContent {
    pub(super) fn from_bytes(bytes: &[u8]) -> FileContent {
        let mut content = FileContent::default();
        content.write(0, bytes);
        content
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of the disk that the content takes.
    pub(super) fn used_bytes(&self) -> u64 {
        self.len - (self.given_back.len() * PAGE_BYTES) as u64
    }

    /// Bytes of the disk that writing a range takes beside what the content takes now.
    pub(super) fn growth(&self, offset: u64, len: u64) -> u64 {
        let end = offset.saturating_add(len);
        let holes = self.given_back.range(pages_touched(offset..end)).count();
        end.saturating_sub(self.len) + (holes * PAGE_BYTES) as u64
    }

    /// Reserves the space of a range, and lengthens the content to it.
    pub(super) fn reserve(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        self.take_back(offset..end);
        self.set_len(self.len.max(end));
    }

    /// Gives the space of a range back to the disk: of whole pages that are zero.
    pub(super) fn give_back(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len);
        let first = to_usize(offset).div_ceil(PAGE_BYTES);
        let given_back = Arc::make_mut(&mut self.given_back);
        let pages = Arc::make_mut(&mut self.pages);
        let whole = pages
            .iter_mut()
            .enumerate()
            .take(to_usize(end) / PAGE_BYTES);
        for (number, page) in whole.skip(first) {
            page.take_if(|bytes| **bytes == [0; PAGE_BYTES]);
            if page.is_none() {
                given_back.insert(number);
            }
        }
    }

    fn take_back(&mut self, range: Range<u64>) {
        if !self.given_back.is_empty() {
            let touched = pages_touched(range);
            Arc::make_mut(&mut self.given_back).retain(|page| !touched.contains(page));
        }
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
        let size = to_usize(self.len);
        let mut bytes = vec![0; size];
        self.read(0, &mut bytes);
        bytes
    }

    /// Writes bytes at `offset` and lengthens the content where they reach behind its end.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        self.take_back(offset..end);
        self.set_len(self.len.max(end));
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
        let size = to_usize(len);
        let count = size.div_ceil(PAGE_BYTES);
        if len < self.len && !self.given_back.is_empty() {
            // A page of which a part is left is counted by its bytes.
            Arc::make_mut(&mut self.given_back).retain(|page| *page < size / PAGE_BYTES);
        }
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

/// The pages that a range of bytes touches.
fn pages_touched(range: Range<u64>) -> Range<usize> {
    let first = to_usize(range.start) / PAGE_BYTES;
    first..to_usize(range.end).div_ceil(PAGE_BYTES).max(first)
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).expect("a simulated file fits into memory")
}

/// Page, offset within it, and how many of `wanted` bytes lie in it.
fn place(offset: u64, wanted: usize) -> (usize, usize, usize) {
    let offset = to_usize(offset);
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
        GiveBack(usize, usize),
        Reserve(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..12_000_usize, 0..9_000_usize, any::<u8>())
                .prop_map(|(at, size, byte)| Step::Write(at, size, byte)),
            (0..20_000_usize).prop_map(Step::SetLen),
            (0..12_000_usize, 0..9_000_usize).prop_map(|(at, size)| Step::GiveBack(at, size)),
            (0..12_000_usize, 0..9_000_usize).prop_map(|(at, size)| Step::Reserve(at, size)),
        ]
    }

    proptest! {
        #[test]
        fn content_equals_its_twin_and_copies_stay(steps in prop::collection::vec(step(), 1..20)) {
            let mut twin = Vec::new();
            let mut content = FileContent::default();
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
                    Step::GiveBack(at, size) => {
                        let before = content.used_bytes();
                        content.give_back(at as u64, size as u64);
                        prop_assert!(content.used_bytes() <= before);
                    }
                    Step::Reserve(at, size) => {
                        let growth = content.growth(at as u64, size as u64);
                        let before = content.used_bytes();
                        twin.resize(twin.len().max(at + size), 0);
                        content.reserve(at as u64, size as u64);
                        prop_assert_eq!(content.used_bytes(), before + growth);
                        prop_assert_eq!(content.growth(at as u64, size as u64), 0);
                    }
                }
                prop_assert!(content.used_bytes() <= content.len());
                prop_assert_eq!(content.len(), twin.len() as u64);
                prop_assert!(content.to_vec() == twin);
                prop_assert!(!content.read(1, &mut vec![0; twin.len()]));
            }
            content.write(0, &vec![0; twin.len()]);
            prop_assert_eq!(content.used_bytes(), content.len());
            content.give_back(0, u64::MAX);
            prop_assert!(content.used_bytes() < PAGE_BYTES as u64);
            for (copy, expected) in copies {
                prop_assert!(copy.to_vec() == expected);
            }
        }
    }
}
