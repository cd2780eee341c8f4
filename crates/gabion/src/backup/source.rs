//! A moment of a store, as its engine gives it to a backup.

use crate::Result;
use crate::types::Seq;

pub(crate) const KNOWN_BYTES: usize = 16;

/// Marks by which bytes are known without being read: of all pieces that stores ever have, those
/// with the same marks have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KnownPieces(pub(crate) [u8; KNOWN_BYTES]);

/// What a store is at a moment, beside the small files that its engine has written anew.
pub(crate) struct BackupSource {
    /// The last write that is in it.
    pub(crate) position: Seq,
    pub(crate) files: Vec<SourceFile>,
}

/// A file that is there, of which nothing changes as long as the moment is held.
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) len: u64,
    /// In the order of their offsets; the rest of the file is of no meaning, and taken for zeros.
    pub(crate) pieces: Vec<SourcePiece>,
}

/// A part of such a file.
pub(crate) struct SourcePiece {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) known: Option<KnownPieces>,
    /// Opens the file.
    pub(crate) open: Box<dyn Fn() -> Result<PieceReader>>,
}

/// Fills a buffer with the bytes from an offset of a file on.
pub(crate) type PieceReader = Box<dyn Fn(&mut [u8], u64) -> Result<()>>;

impl KnownPieces {
    /// The marks are these byte strings; the first one says what they are marks of.
    pub(crate) fn by(marks: &[&[u8]]) -> KnownPieces {
        let mut hasher = blake3::Hasher::new();
        for mark in marks {
            hasher.update(&(mark.len() as u64).to_le_bytes());
            hasher.update(mark);
        }
        let mut known = [0; KNOWN_BYTES];
        hasher.finalize_xof().fill(&mut known);
        KnownPieces(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_kept_apart() {
        let known = KnownPieces::by(&[b"table", b"1"]);
        assert_eq!(KnownPieces::by(&[b"table", b"1"]), known);
        for other in [&[&b"table1"[..]][..], &[b"table", b"2"], &[b"tabl", b"e1"]] {
            assert_ne!(KnownPieces::by(other), known);
        }
    }
}
