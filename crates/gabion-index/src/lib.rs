//! Indexes that live in persistent memory, and what they share.
//!
//! An index lies in a [`Pool`](gabion_media::pmem::Pool), whose class decides what it survives: on
//! persistent memory the loss of power, in an ordinary file the death of the process, in anonymous
//! memory nothing. It is the same code each time. [`index`] says what every index can do,
//! [`registry`] lists them all: the hash tables [`TurboHash`], which can do more than the common
//! traits say, [`PClht`], [`LevelHash`], [`Bch`], [`Pfht`], [`PathHash`], [`Cceh`], [`Dash`] and
//! [`Clevel`], and the ordered [`FastFair`], [`Masstree`], [`BwTree`], [`Art`], [`Hot`],
//! [`SkipList`] and [`SpTree`]. [`Layered`] puts write buffers above three of them. [`Scmkv`] is a
//! store of keys and values of many lengths.
//!
//! ```
//! use gabion_index::TurboHash;
//! use gabion_index::turbo::Options;
//! use gabion_media::pmem::{Pool, PoolOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::anonymous(PoolOptions {
//!     size: 16 << 20,
//!     ..TurboHash::<u64, u64>::pool_options()
//! })?;
//! let table: TurboHash<u64, u64> = TurboHash::create(&pool, &Options::default())?;
//! table.put(&7, &49)?;
//! assert_eq!(table.get(&7)?, Some(49));
//! assert_eq!(table.fetch_add(&7, 1)?, Some(49));
//! # Ok(())
//! # }
//! ```
//!
//! # Shared parts
//! [`Item`], what keys and values are; [`Seed`], hashing; [`twohash`], tables with two hash
//! functions. Of the modules within: `tags`, vectors of one-byte tags; `lock`, locks that stay in
//! DRAM; `node_lock`, those of nodes; `root`, the first line of an index; `line`, buckets of one
//! cache line, `bucket` and `quad`, others and what all have in common; `update_log`, a log of
//! updates; `extendible`, directories of segments that are split; `pending`, words that may not be
//! durable yet; `stored_key`, keys in nodes; `leaf`, leaves of tries; `blink`, trees of linked
//! nodes; `retry`, changes that begin again; `spoton`, what DRAM does for them: write buffers,
//! their logs, nodes.
//!
//! # Checkpoints
//! A pool in an ordinary file may have a checkpoint, a moment of it that survives the loss of power
//! ([`Pool::sync`](gabion_media::pmem::Pool::sync)). So that no moment is within a change, every
//! operation that changes an index holds the pool's
//! [`write_guard`](gabion_media::pmem::Pool::write_guard) from before its first lock to its end,
//! and so does who makes durable what it has seen of another's change. Whoever waits within for
//! others waits for none who waits for the guard: nobody asks for it who holds a lock and is not
//! within already.

pub mod art;
mod atomic;
pub mod bch;
mod blink;
mod bucket;
pub mod bwtree;
pub mod cceh;
pub mod clevel;
pub mod dash;
mod error;
mod extendible;
pub mod fastfair;
mod hash;
pub mod hot;
pub mod index;
mod item;
pub mod layered;
mod leaf;
pub mod level;
mod line;
mod lock;
#[cfg(all(test, gabion_loom))]
mod loom_tests;
pub mod masstree;
mod node_lock;
mod parallel;
pub mod pathhash;
pub mod pclht;
mod pending;
pub mod pfht;
mod quad;
mod registered;
pub mod registry;
mod retry;
mod root;
pub mod scmkv;
pub mod skiplist;
mod spoton;
pub mod sptree;
mod steps;
mod stored_key;
#[cfg(test)]
mod suite;
mod tags;
mod thread;
pub mod turbo;
pub mod twohash;
mod update_log;

pub use art::Art;
pub use bch::Bch;
pub use bwtree::BwTree;
pub use cceh::Cceh;
pub use clevel::Clevel;
pub use dash::Dash;
pub use error::{Error, Result};
pub use fastfair::FastFair;
pub use hash::Seed;
pub use hot::Hot;
pub use index::{Index, IndexPlan, OrderedIndex};
pub use item::Item;
pub use layered::Layered;
pub use level::LevelHash;
pub use masstree::Masstree;
pub use pathhash::PathHash;
pub use pclht::PClht;
pub use pfht::Pfht;
pub use scmkv::Scmkv;
pub use skiplist::SkipList;
pub use sptree::SpTree;
pub use turbo::TurboHash;
