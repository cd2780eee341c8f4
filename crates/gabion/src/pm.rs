//! Structures in persistent memory, ordinary files and shared memory, without a store around them:
//! [`TurboHash`], a hash table; [`FastFair`], a tree of words; [`Masstree`], [`BwTree`], [`Art`],
//! [`Hot`] and [`SkipList`], two trees, two tries and a list of words or strings; [`SpTree`], a
//! tree from words to words or from strings to strings, with only its leaves in the pool;
//! [`Layered`], write buffers above [`FastFair`], a [`SkipList`] of words or [`Cceh`]. All but the
//! first, and [`Layered`] above [`Cceh`], keep the order of their keys, see [`OrderedIndex`].
//!
//! Each of them lies in a [`Pool`]: a file that is mapped into memory. What was written when the
//! process dies is there when the file is opened again, and the first read is answered at once,
//! however large the table is; nothing is loaded, replayed or rebuilt, but for two: [`SpTree`]
//! looks at each of its leaves, at each pair if these are strings, and at the logs of its write
//! buffers if it has such ([`SpTreeOptions`]), and [`Layered`] at its logs and at each part of the
//! index below; whoever wants the upper levels of a [`FastFair`] or a [`SkipList`] in DRAM
//! ([`FastFair::cached`]) has them read. What a *power* failure leaves depends on the file: on
//! persistent memory all of it, on an ordinary file see [`PoolClass`]. The example `warm_restart`
//! shows it.
//!
//! An [`Scmkv`] is a store of keys and values of many lengths: it appends what is put to logs, and
//! cleans them in the background.
//!
//! ```
//! use gabion::pm::{Pool, PoolOptions, TurboHash, TurboOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let file = directory.path().join("words.gabion");
//! type Words = TurboHash<[u8], u64>;
//! let pool = Pool::create(&file, PoolOptions { size: 16 << 20, ..Words::pool_options() })?;
//! let words = Words::create(&pool, &TurboOptions::default())?;
//! words.put(b"stone", &5)?;
//! drop((words, pool));
//!
//! let pool = Pool::open(&file, Words::pool_options())?;
//! let words = Words::open(&pool, &TurboOptions::default())?;
//! assert_eq!(words.get(b"stone")?, Some(5));
//! # Ok(())
//! # }
//! ```
//!
//! Other hash tables, of words to words, are made in the same way and used by the trait [`Index`]:
//! [`PClht`], [`LevelHash`], [`Cceh`]; [`Dash`] and [`Clevel`], which take strings as keys as well;
//! and those that Level hashing was compared with: [`Bch`], [`Pfht`], [`PathHash`].
//!
//! ```
//! use gabion::pm::{Index, IndexPlan, LevelHash, Pool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::anonymous(LevelHash::pool_options())?;
//! let table = LevelHash::create(&pool, IndexPlan { capacity: 1000, seed: None })?;
//! assert_eq!(table.insert(&7, 49)?, None);
//! assert_eq!(table.get(&7)?, Some(49));
//! # Ok(())
//! # }
//! ```
//!
//! ```
//! use gabion::pm::{Art, OrderedIndex, Pool, PoolOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::anonymous(PoolOptions { size: 16 << 20, ..Art::<[u8]>::pool_options() })?;
//! let stones = Art::<[u8]>::create(&pool)?;
//! stones.insert(b"granite", 3)?;
//! stones.insert(b"gabbro", 1)?;
//! let mut found = Vec::new();
//! stones.scan(b"g", 10, &mut found)?;
//! assert_eq!(found, [(b"gabbro".to_vec(), 1), (b"granite".to_vec(), 3)]);
//! # Ok(())
//! # }
//! ```

pub use gabion_index::IndexPlan;
pub use gabion_index::layered::{Base as LayeredBase, Options as LayeredOptions};
pub use gabion_index::scmkv::{
    Durability as ScmkvDurability, Entry as ScmkvEntry, Iter as ScmkvIter, Options as ScmkvOptions,
    Scmkv, ScmkvStats,
};
pub use gabion_index::sptree::{Options as SpTreeOptions, ScanLimit as SpTreeLimit};
pub use gabion_index::turbo::{Iter as TurboIter, Options as TurboOptions, TurboHash, TurboStats};
pub use gabion_index::{
    Art, Bch, BwTree, Cceh, Clevel, Dash, Error as IndexError, FastFair, Hot, Index, Item, Layered,
    LevelHash, Masstree, OrderedIndex, PClht, PathHash, Pfht, SkipList, SpTree,
};
pub use gabion_media::pmem::{Pool, PoolClass, PoolOptions, PoolStats};
