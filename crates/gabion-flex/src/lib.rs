//! Address spaces in which bytes are inserted and removed anywhere.
//!
//! [`FlexSpace`] is such a space in a directory, persistent and checked:
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("space");
//! use gabion_flex::{FlexSpace, Options};
//!
//! let space = FlexSpace::open(&path, Options::default())?;
//! space.append(b"granite, basalt")?;
//! space.insert_range(8, b" marble,")?; // what is behind moves, nothing is written anew
//! space.sync()?;
//!
//! let mut buffer = [0; 100];
//! let len = space.read_at(0, &mut buffer)?;
//! assert_eq!(&buffer[..len], b"granite, marble, basalt");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`FlexTree`] is the index behind it: extents, in memory, whose insertions and removals shift all
//! that is behind them in logarithmic time. [`twin`] has two plain indexes to compare it with.
//!
//! ```
//! use gabion_flex::FlexTree;
//!
//! let mut tree = FlexTree::new(1 << 17);
//! tree.append(100, 0); // 100 bytes that are at address 0
//! tree.insert(40, 8, 5000); // 8 bytes more, in the middle
//! assert_eq!(tree.len(), 108);
//! let addresses: Vec<u64> = tree.range(39, 11).map(|extent| extent.address).collect();
//! assert_eq!(addresses, [39, 5000, 40]);
//! ```
//!
//! # Caveats first
//! - A space belongs to one process at a time. What was not synced is lost when the process ends.
//! - The index takes some 24 bytes of memory per extent. Random small insertions make about one
//!   extent each; [`FlexSpace::defrag`] joins them again. With a budget ([`Options::index_bytes`])
//!   what does not fit is read when it is needed, and a random insertion then costs the reading and
//!   writing of 1 KiB.
//! - A commit, a checkpoint or a collection that is due is done by the write that meets it.
//!
//! Source: Chen, Zhong, Wu: Efficient Data Management with a Flexible Address Space.
#![forbid(unsafe_code)]

mod error;
mod shared_lock;
mod space;
mod tree;
pub mod twin;

pub use error::{Error, Result};
pub use shared_lock::{ExclusiveGuard, ReaderWaits, SharedLock, UpgradableGuard};
pub use space::{
    CheckReport, CheckedPiece, DEFAULT_BLOCK_BYTES, DEFAULT_COMMIT_BYTES, DEFAULT_GARBAGE_PARTS,
    DEFAULT_LOG_BYTES, DEFAULT_SEGMENT_BYTES, DurablePoint, Edit, FetchedNodes, FlexSpace, Frozen,
    FrozenFile, FrozenPart, GcRound, Options, PendingRead, PieceContent, Problem, SpaceFile,
    SpaceStats, check, check_content, check_disk, check_reached, exists, is_file_of_space, remove,
};
pub use tree::{Extent, ExtentIter, FlexTree, HOLE};
