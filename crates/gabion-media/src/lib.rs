//! Everything in Gabion that touches a storage medium.
//!
//! Stores keep their files in one directory, a [`Disk`]. A disk chooses its medium when it is
//! opened: the operating system's files, or a simulated disk in memory that fails, fills up and
//! loses power wherever a test wants it to. The code above is the same for both and makes no file
//! operation of its own. [`pmem`] is for structures that lie in persistent memory or in a mapped
//! file: pools, with a table of its own of what survives what.
//!
//! # What survives what
//! | after | the end of the process | the loss of power |
//! |---|---|---|
//! | appends and writes | survives | may be lost or torn at sectors |
//! | syncs of files | survives | the content survives, if the name does |
//! | a name made, changed or removed | survives | may be lost |
//! | [`Disk::sync_dir`] | survives | all names as they were survive |
//! | [`Disk::replace`] | survives | survives; before its return: the old or the new content |
//!
//! A sync that fails leaves the data in an unknown state: the system may have forgotten that it
//! must still be written. So the file object takes no more writes or syncs, and a disk no more
//! syncs of its directory ([`Error::Poisoned`]), and the store above must not acknowledge anything
//! through them.
//!
//! Every byte is counted under a [`Purpose`]; [`Disk::counts`] reads the counts.

mod counts;
pub mod crc32c;
mod disk;
mod error;
#[expect(unsafe_code, reason = "forks, which only the system's library does")]
pub mod forked;
mod lock_holder;
mod memory_limit;
mod owner;
#[cfg(feature = "pmem")]
pub mod pmem;
mod prefetch;
pub mod seeded;
mod system_memory;

pub use counts::{Purpose, WriteCounts, process_written_bytes};
pub use disk::{
    Appender, CreationHold, DirLock, Disk, DiskRoom, Fault, FaultKind, FileMap, LogFile, LogSpace,
    LogSync, RandomFile, ReadFile, ReadStep, SimDisk, TEMPORARY_SUFFIX, Tear,
};
pub use error::{Error, PoolFault, Result};
pub use lock_holder::LockHolder;
pub use memory_limit::{MemoryGroup, memory_groups, usable_memory_bytes};
pub use owner::Owner;
pub use prefetch::{prefetch_bytes, prefetch_line, prefetch_range};
pub use system_memory::{SystemMemory, populate, prefer_large_pages};
