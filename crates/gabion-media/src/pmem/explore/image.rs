//! The durable content of the medium, line by line, with an incremental hash.

use crate::pmem::trace::{LINE, WORD};
use crate::seeded::mix;

/// Bytes of a word.
pub(super) const WORD_BYTES: usize = size_of::<u64>();

/// Words of a line.
pub(super) const WORDS: usize = 8;

const _: () = assert!(WORD_BYTES as u64 == WORD && (WORDS * WORD_BYTES) as u64 == LINE);

/// The content of a line, as little-endian words.
pub(super) type LineWords = [u64; WORDS];

/// The durable content of a medium. The hash of equal contents is equal, and changes with every
/// line that changes, so that images are recognized without looking at them.
pub(super) struct CrashImage {
    lines: Vec<LineWords>,
    hash: u64,
    /// Lines before their change, for [`CrashImage::undo`].
    journal: Vec<(u32, LineWords)>,
}

impl CrashImage {
    /// The image that holds `bytes`; what is missing at the end of the last line is zero.
    pub(super) fn new(bytes: &[u8]) -> CrashImage {
        let line = |bytes: &[u8]| {
            let mut words = [0; WORDS];
            for (word, bytes) in words.iter_mut().zip(bytes.chunks(WORD_BYTES)) {
                let mut whole = [0; WORD_BYTES];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(whole);
            }
            words
        };
        let lines: Vec<LineWords> = bytes.chunks(WORDS * WORD_BYTES).map(line).collect();
        // Only differences between images of one medium matter, so the hash may begin anywhere.
        CrashImage {
            lines,
            hash: 0,
            journal: Vec::new(),
        }
    }

    /// The content of a line.
    pub(super) fn line(&self, line: u32) -> &LineWords {
        &self.lines[line as usize]
    }

    /// All lines in their order.
    pub(super) fn lines(&self) -> &[LineWords] {
        &self.lines
    }

    /// The hash of the whole content.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// Gives a line another content.
    pub(super) fn set(&mut self, line: u32, content: LineWords) {
        let before = self.lines[line as usize];
        self.hash ^= hash_of(line, &before) ^ hash_of(line, &content);
        self.journal.push((line, before));
        self.lines[line as usize] = content;
    }

    /// A moment to which [`CrashImage::undo`] can return.
    pub(super) fn mark(&self) -> usize {
        self.journal.len()
    }

    /// The lines that were set since a mark.
    pub(super) fn changed_since(&self, mark: usize) -> impl Iterator<Item = u32> {
        self.journal[mark..].iter().map(|(line, _)| *line)
    }

    /// Returns to an earlier moment, and names the lines that changed by it.
    pub(super) fn undo(&mut self, mark: usize) -> Vec<u32> {
        let mut changed = Vec::with_capacity(self.journal.len() - mark);
        while self.journal.len() > mark {
            let Some((line, before)) = self.journal.pop() else {
                break;
            };
            let after = self.lines[line as usize];
            self.hash ^= hash_of(line, &before) ^ hash_of(line, &after);
            self.lines[line as usize] = before;
            changed.push(line);
        }
        changed
    }

    /// Forgets how to return: what changed so far stays.
    pub(super) fn settle(&mut self) {
        self.journal.clear();
    }
}

/// A hash of a line's content and its place.
pub(super) fn hash_of(line: u32, content: &LineWords) -> u64 {
    let mut hash = mix(u64::from(line) + 1);
    for word in content {
        hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 29;
    }
    mix(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_the_content_and_not_the_way_to_it() {
        let mut image = CrashImage::new(&[7; 300]);
        assert_eq!(image.lines().len(), 5);
        assert_eq!(
            image.line(4)[5],
            u64::from_le_bytes([7, 7, 7, 7, 0, 0, 0, 0])
        );
        let start = image.hash();
        let old = *image.line(1);
        image.set(1, [1; WORDS]);
        let mark = image.mark();
        let one = image.hash();
        image.set(2, [1; WORDS]);
        assert!(one != start && image.hash() != one);
        image.set(1, old);
        image.set(1, [1; WORDS]);
        assert_eq!(image.undo(mark), [1, 1, 2]);
        assert_eq!(image.hash(), one);
        image.set(1, old);
        assert_eq!(image.hash(), start);
        image.settle();
        assert!(image.undo(0).is_empty());
        // The same content in two lines has two hashes.
        assert_ne!(hash_of(1, &old), hash_of(2, &old));
    }
}
