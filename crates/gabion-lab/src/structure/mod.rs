//! Figures about one structure: its shape, its times in DRAM, what the model of a medium counts.
//!
//! They need no store, no process of their own and no report: each computes tables of rows. Figures
//! of the shape do not depend on the machine, those on a medium are those of the model, and times
//! are those of this machine's DRAM, or of the file system where a figure writes files.
//!
//! Sources: X. Zhao, dissertation, chapters 3 and 4; the write-amplification study, section III;
//! the FlexSpace paper, section 6; Level hashing, OSDI 2018; SCMKV, NPC 2017.

pub(crate) mod flexspace;
pub(crate) mod flextree;
pub(crate) mod gains;
pub(crate) mod hashes;
pub(crate) mod layers;
pub(crate) mod level;
pub(crate) mod medium;
pub(crate) mod places;
pub(crate) mod scmkv;
pub(crate) mod shape;
pub(crate) mod spoton;
pub(crate) mod study;

use crate::rows::Table;

/// What a figure about one structure shows.
pub(crate) type Shown = gabion_index::Result<Vec<Table>>;

/// A permutation of the words, to make keys of numbers.
fn key_of(number: u64) -> u64 {
    let mut key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key ^= key >> 32;
    key = key.wrapping_mul(0xd6e8_feb8_6659_fd93);
    key ^ (key >> 29)
}
