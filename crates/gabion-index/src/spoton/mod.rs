//! Spot-On: what an index above persistent memory keeps in DRAM, in parts that indexes share.
//!
//! - `buffer.rs`, write buffers (guideline B), and `log.rs`, the logs in the pool that have what is
//!   in them; `layout.rs` says how records lie there.
//! - `mnode.rs`, a node in DRAM for each part of an index: its range, its lock, its place on the
//!   medium; `bloom.rs`, the filter of its keys (guideline C, with the router of
//!   [`sptree`](crate::sptree)).
//! - `search_starts.rs`, from a key to a node of an index that has its upper levels in the pool
//!   (guideline C).
//!
//! [`sptree`](crate::sptree) is made of all but the last. [`layered`](crate::layered) puts buffers
//! and logs above an index that has none.
//!
//! Source: X. Zhao, "Designing large-scale key-value systems on high-speed storage devices",
//! dissertation, University of Texas at Arlington, 2022, chapter 4.

pub(crate) mod bloom;
pub(crate) mod buffer;
pub(crate) mod layout;
pub(crate) mod log;
pub(crate) mod mnode;
pub(crate) mod search_starts;
