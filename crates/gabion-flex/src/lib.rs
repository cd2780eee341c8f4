//! Address spaces in which bytes are inserted and removed anywhere.
//!
//! [`FlexTree`] is an index of extents, in memory, whose insertions and removals shift everything
//! behind them in logarithmic time. `twin` has two plain indexes to compare it with.
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
//! Source: Chen, Zhong, Wu: Efficient Data Management with a Flexible Address Space.
#![forbid(unsafe_code)]

mod tree;
pub mod twin;

pub use tree::{Extent, FlexTree, HOLE, Pieces};
