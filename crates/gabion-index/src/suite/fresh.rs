//! What has come into sight and goes at once, before who brought it has told the allocator that it
//! is in use.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gabion_media::pmem::trace::Trace;
use gabion_media::pmem::{Pool, PoolOptions, Region};

use super::director::{Director, StepSite, store};

/// How long who takes something away may do without the others: he fails at once, or waits.
const ALONE_MAX: Duration = Duration::from_millis(200);

/// A pool of so many bytes whose steps a director watches.
pub(crate) fn directed_pool(bytes: usize, options: PoolOptions) -> (Arc<Director>, Pool) {
    let director = Arc::new(Director::default());
    let region = Region::new(bytes);
    *director.trace.lock() = Trace::new(region.to_vec());
    let options = PoolOptions {
        heaps: 1,
        chunk_bytes: 4096,
        watcher: Some(director.clone()),
        ..options
    };
    let pool = Pool::create_in(&region, options).expect("a pool in memory");
    (director, pool)
}

/// What `go` answers, which takes away what `come` brings: `come` is stopped behind its store to
/// the word at an offset, by which it comes into sight, until `go` has come to its end or, as it
/// should where it needs to, waits.
pub(crate) fn go_at_once<R: Send>(
    director: &Director,
    word: u64,
    come: impl FnOnce() + Send,
    go: impl FnOnce() -> R + Send,
) -> R {
    std::thread::scope(|scope| {
        let in_sight = (store as StepSite, word..word + 8);
        let comes = director.start(scope, "comes", in_sight, come);
        let goes = scope.spawn(go);
        let began = Instant::now();
        while !goes.is_finished() && began.elapsed() < ALONE_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        director.finish("comes");
        comes.join().expect("no panic");
        goes.join().expect("no panic")
    })
}
