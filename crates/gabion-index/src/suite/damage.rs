//! Wrong bits in a pool that was closed: whatever is asked of what lies there ends, without a
//! panic.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use gabion_media::pmem::{Pool, PoolOptions, Region};

use crate::{Error, Result};

/// Bits of a word that are wrong by turns: those of levels, marks and versions, and some that lead
/// far away.
const BITS: [u32; 9] = [0, 1, 3, 6, 7, 8, 12, 16, 63];

/// A wrong bit: the place of its word, and its number.
pub(crate) type FlippedBit = (u64, u32);

/// A small pool that was closed, and the places in it that are damaged by turns.
struct Closed {
    region: Arc<Region>,
    bytes: Vec<u8>,
    words: Vec<u64>,
}

fn small(layout: PoolOptions) -> PoolOptions {
    PoolOptions {
        heaps: 1,
        chunk_bytes: 4096,
        ..layout
    }
}

impl Closed {
    fn new(layout: PoolOptions, make: impl FnOnce(&Pool) -> Vec<u64>) -> Closed {
        let region = Region::new(96 << 10);
        let pool = Pool::create_in(&region, small(layout)).expect("a pool in memory");
        let words = make(&pool);
        pool.close().expect("nobody else has it");
        let bytes = region.to_vec();
        Closed {
            region,
            bytes,
            words,
        }
    }

    /// The pool as it was closed, but for a bit.
    fn open(&self, layout: PoolOptions, (place, bit): FlippedBit) -> Pool {
        self.region.write(0, &self.bytes);
        let pool = Pool::open_in(&self.region, small(layout)).expect("a pool that was closed");
        let mut word = [0; 8];
        pool.read(place, &mut word);
        let wrong = u64::from_le_bytes(word) ^ 1 << bit;
        pool.write(place, &wrong.to_le_bytes());
        pool
    }
}

/// Asks for damage what lies in a pool: `make` puts it there and names the words that are to have
/// a wrong bit, and `ask` is told the pool with each of them.
///
/// # Panics
/// If `ask` does, or does not come to its end.
pub(crate) fn ask_all(
    layout: fn() -> PoolOptions,
    make: impl FnOnce(&Pool) -> Vec<u64> + Send + 'static,
    ask: impl Fn(FlippedBit, &Pool) + Send + 'static,
) {
    ask_bits(BITS.to_vec(), layout, make, ask);
}

/// As [`ask_all`], with these bits of the words.
pub(crate) fn ask_bits(
    bits: Vec<u32>,
    layout: fn() -> PoolOptions,
    make: impl FnOnce(&Pool) -> Vec<u64> + Send + 'static,
    ask: impl Fn(FlippedBit, &Pool) + Send + 'static,
) {
    let (told, hears) = mpsc::channel();
    // One that goes on for ever would keep this thread, too.
    let thread = std::thread::spawn(move || {
        let closed = Closed::new(layout(), make);
        let wrong = |place: &u64| bits.iter().map(|bit| (*place, *bit)).collect::<Vec<_>>();
        for wrong in closed.words.iter().flat_map(wrong) {
            told.send(wrong).expect("a listener");
            ask(wrong, &closed.open(layout(), wrong));
        }
    });
    let mut last = None;
    loop {
        match hears.recv_timeout(Duration::from_secs(60)) {
            Ok(wrong) => last = Some(wrong),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no end with {last:?}"),
        }
    }
    assert!(thread.join().is_ok(), "a panic with {last:?}");
}

/// What may be said of a damaged pool: an answer, that it is damaged, or that the allocator does
/// not know a block or has no other one.
pub(crate) fn may_be<T>(wrong: FlippedBit, said: Result<T>) {
    if let Err(error) = said {
        let is_told = matches!(error, Error::Damaged { .. } | Error::Media(_));
        assert!(is_told, "{wrong:?}: {error}");
    }
}
