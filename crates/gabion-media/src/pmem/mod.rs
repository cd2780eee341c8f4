//! Persistent memory: the foundation of structures that live in it.
//!
//! # Idea
//! A [`Pool`] is a file mapped into memory (or memory alone), with an allocator. Structures in it
//! hold offsets ([`POff`]), never pointers, and consist of atomics ([`PAtomicU64`] and others,
//! [`media_struct!`](crate::media_struct)). They store, flush and fence through the pool's
//! [`Medium`], which does what the pool's [`PoolClass`] needs and no more, and which a test can
//! watch:
//!
//! - [`trace`] says what is done to a medium, step by step;
//! - [`model`] tells what the steps cost on one kind of medium;
//! - [`explore`] tries whether a structure survives what a power failure may leave.
//!
//! # What survives what
//! | class | the end of the process | the loss of power |
//! |---|---|---|
//! | [`PoolClass::Power`] | all that was flushed and fenced | the same |
//! | [`PoolClass::PowerBySync`] | all stores | all that was before the last [`Pool::sync`] |
//! | [`PoolClass::Process`] | all stores | nothing for sure; such a pool is refused |
//! | [`PoolClass::None`] | nothing | nothing |
//!
//! # Modules
//! `layout` is what lies in a pool; `region` the memory, `medium` the steps on it, `cpu` their
//! instructions, `atomic` the types; `file` and `pool` open and close; `alloc` gives out blocks and
//! `epoch` waits for their last readers. On ordinary files `dirty` notes what changed,
//! `checkpoint_gate` and `checkpoint` make it survive the loss of power, and `page_witness` tells
//! whether power was lost.

#[cfg(target_endian = "big")]
compile_error!("pools are little-endian and hold native integers: this target is not supported");

mod alloc;
#[expect(
    unsafe_code,
    reason = "lends what lies at an offset, and vouches for its types"
)]
pub(crate) mod atomic;
mod checkpoint;
mod checkpoint_gate;
#[expect(unsafe_code, reason = "calls instructions of the processor")]
mod cpu;
mod dirty;
#[expect(unsafe_code, reason = "hands blocks to the collector as pointers")]
mod epoch;
pub mod explore;
mod file;
mod layout;
#[expect(
    unsafe_code,
    reason = "lends what lies at an offset, and calls instructions on it"
)]
mod medium;
pub mod model;
mod off;
mod options;
mod page_witness;
mod pool;
#[expect(
    unsafe_code,
    reason = "maps and allocates memory, and lends it as atomics"
)]
mod region;
pub mod trace;

pub use self::alloc::RoomRequest;
pub use self::atomic::{Media, PAtomicU32, PAtomicU64};
pub use self::checkpoint_gate::WriteGuard;
pub use self::epoch::Guard;
pub use self::medium::Medium;
pub use self::off::POff;
pub use self::options::{BlockClaim, PoolClass, PoolOptions, Reachable};
pub use self::pool::{Pool, PoolStats, ROOT_HINT, Reserved, Retiring};
pub use self::region::Region;

#[cfg(test)]
mod tests;
