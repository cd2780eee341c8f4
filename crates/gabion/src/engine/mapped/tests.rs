//! The engine over a structure that fails where a test says so, tells what is put into it, and lets
//! something happen in the middle of what it does.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gabion_index::Error as IndexError;
use gabion_media::Disk;

use super::*;
use crate::engine::scmkv::Scmkv;
use crate::engine::sptree::TreeStore;
use crate::log::BatchEncoder;
use crate::types::Kind;
use crate::{Durability, MappedOptions};

thread_local! {
    /// Puts of this thread that succeed before one fails, if one shall.
    static PUTS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    /// Whether it fails for want of space.
    static LACKS_SPACE: Cell<bool> = const { Cell::new(false) };
    /// Bytes that were reserved for pairs, and those of pairs that were put.
    static RESERVED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static PUT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// What happens when this thread has begun the next piece of work, a compaction or a persist.
    static MEANWHILE: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

fn let_happen() {
    if let Some(meanwhile) = MEANWHILE.take() {
        meanwhile();
    }
}

/// A structure whose puts are watched.
struct Watched<S>(S);

impl<S: PoolStore> PoolStore for Watched<S> {
    const ENGINE: Engine = S::ENGINE;
    const ROOT: RootFile = S::ROOT;

    fn pool_options() -> PoolOptions {
        S::pool_options()
    }

    fn create(pool: &Pool, options: &Options) -> IndexResult<Self> {
        S::create(pool, options).map(Watched)
    }

    fn open(pool: &Pool, options: &Options) -> IndexResult<Self> {
        S::open(pool, options).map(Watched)
    }

    fn put(&self, key: &[u8], value: &[u8], flushed: Flushed) -> IndexResult<()> {
        match PUTS_LEFT.get() {
            Some(0) if LACKS_SPACE.get() => {
                return Err(IndexError::Media(gabion_media::Error::PoolFull {
                    path: "a pool".into(),
                    wanted: 1,
                    free: 0,
                }));
            }
            Some(0) => {
                return Err(IndexError::Damaged {
                    what: "what a test says",
                    offset: 0,
                });
            }
            left => PUTS_LEFT.set(left.map(|left| left - 1)),
        }
        PUT.with_borrow_mut(|put| put.push((key.len() + value.len()) as u64));
        self.0.put(key, value, flushed)
    }

    fn put_copy(&self, key: &[u8], value: &[u8]) -> IndexResult<()> {
        self.0.put_copy(key, value)
    }

    fn delete(&self, key: &[u8]) -> IndexResult<()> {
        self.0.delete(key)
    }

    fn delete_range(&self, lower: &[u8], upper: &[u8]) -> IndexResult<()> {
        self.0.delete_range(lower, upper)
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> IndexResult<bool> {
        self.0.get_into(key, value)
    }

    fn reserve(&self, pairs: &[u64]) -> IndexResult<()> {
        RESERVED.with_borrow_mut(|reserved| reserved.extend(pairs));
        self.0.reserve(pairs)
    }

    fn persist(&self) -> IndexResult<()> {
        let_happen();
        self.0.persist()
    }

    fn finish(&self) -> IndexResult<()> {
        self.0.finish()
    }

    fn work(&self) -> IndexResult<bool> {
        let_happen();
        self.0.work()
    }

    fn compact(&self, stops: &dyn Fn() -> bool) -> IndexResult<()> {
        let_happen();
        self.0.compact(stops)
    }

    fn check(&self) -> IndexResult<CheckSummary> {
        self.0.check()
    }

    fn measure(&self) -> PoolStoreStats {
        self.0.measure()
    }
}

fn open<S: PoolStore>(path: &Path) -> (Arc<Mapped<Watched<S>>>, Arc<MappedKeyspace>) {
    open_with::<S>(path, false)
}

fn open_with<S: PoolStore>(
    path: &Path,
    has_checkpoint: bool,
) -> (Arc<Mapped<Watched<S>>>, Arc<MappedKeyspace>) {
    let options = Options::default()
        .engine(S::ENGINE)
        .durability(Durability::Buffered)
        .mapped(
            MappedOptions::default()
                .pool_bytes(64 << 20)
                .checkpoints(has_checkpoint)
                .expected_records(64),
        )
        .background_threads(0);
    let disk = Disk::create_system(path).expect("a directory");
    let store = Mapped::open(disk, options).expect("it opens");
    let keyspace = store.create_keyspace("some").expect("space");
    (store, keyspace)
}

const KEYS: [&[u8]; 3] = [b"one", b"two", b"three"];

/// Puts to all keys, and their number.
fn puts_of(keyspace: u32, value: &[u8]) -> BatchEncoder {
    let mut operations = BatchEncoder::default();
    for key in KEYS {
        operations.op(Kind::Put, keyspace, key, value);
    }
    operations
}

/// The values of all keys, if all of them can be read.
fn values<S: PoolStore>(store: &Mapped<S>, keyspace: &MappedKeyspace) -> Result<Vec<Vec<u8>>> {
    let value = |key: &[u8]| {
        let found = store.get(keyspace, key, None)?;
        Ok(found.expect("it is there").to_vec())
    };
    KEYS.iter().map(|key| value(key)).collect()
}

/// A batch that failed while it was applied was seen in part: the store took no more writes, and
/// gave the values of some of its keys and not of others, until it was opened again.
#[test]
fn a_batch_that_fails_in_the_middle_is_not_seen_in_part() {
    for lacks_space in [false, true] {
        fail_in_the_middle::<Scmkv>(lacks_space);
        fail_in_the_middle::<TreeStore>(lacks_space);
    }
}

fn fail_in_the_middle<S: PoolStore>(lacks_space: bool) {
    LACKS_SPACE.set(lacks_space);
    // One put is that of the copy.
    for puts in 0..4 {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, keyspace) = open::<S>(dir.path());
        let write = |value: &[u8]| {
            let operations = puts_of(keyspace.id, value);
            store.write(Write::Batch(&operations), 1, false)
        };
        write(b"before").expect("space");
        PUTS_LEFT.set(Some(puts));
        write(b"after").expect_err("a put fails");
        PUTS_LEFT.set(None);
        let (before, after) = (vec![b"before".to_vec(); 3], vec![b"after".to_vec(); 3]);
        if puts == 0 {
            // The copy was not there: nothing has happened.
            assert_eq!(values(&store, &keyspace).expect("sound"), before);
            write(b"after").expect("it takes writes");
        } else {
            let refused = values(&store, &keyspace).expect_err("a part is there");
            assert!(matches!(&refused, Error::ReadOnly { .. }), "{refused}");
            assert!(refused.to_string().contains("a batch"), "{refused}");
            let keys = store.multi_get_now(&keyspace, &KEYS);
            assert!(matches!(keys, Err(Error::ReadOnly { .. })));
            assert!(matches!(write(b"more"), Err(Error::ReadOnly { .. })));
        }
        let closed = store.close();
        assert_eq!(closed.is_ok(), puts == 0);
        drop(store);
        if lacks_space && puts > 0 {
            // The next opening fails to apply it, too.
            PUTS_LEFT.set(Some(puts - 1));
            let options = Options::default().engine(S::ENGINE).background_threads(0);
            let disk = Disk::create_system(dir.path()).expect("a directory");
            let store = Mapped::<Watched<S>>::open(disk, options.durability(Durability::Buffered));
            let store = store.expect("it opens");
            PUTS_LEFT.set(None);
            let refused = values(&store, &keyspace).expect_err("a part is there");
            assert!(matches!(&refused, Error::ReadOnly { .. }), "{refused}");
            store.close().expect_err("it is read-only");
        }
        let (store, keyspace) = open::<S>(dir.path());
        assert_eq!(values(&store, &keyspace).expect("sound"), after);
        store.close().expect("it closes");
    }
}

/// Space was reserved for keys without the number of their keyspace and for pieces without their
/// keys, which is less than what is put.
#[test]
fn a_batch_reserves_what_it_puts() {
    reserve::<Scmkv>();
    reserve::<TreeStore>();
}

fn reserve<S: PoolStore>() {
    for keyspace in [0, 126, 127, 20_000, u32::MAX - 1] {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, _) = open::<S>(dir.path());
        RESERVED.take();
        PUT.take();
        // Of several pieces.
        let operations = puts_of(keyspace, &vec![7; 1_000_000]);
        store
            .write(Write::Batch(&operations), 1, false)
            .expect("space");
        let (mut reserved, mut put) = (RESERVED.take(), PUT.take());
        reserved.sort_unstable();
        put.sort_unstable();
        assert!(put.len() > KEYS.len() + 1 && put.len() == reserved.len());
        let is_enough = put.iter().zip(&reserved).all(|(put, had)| put <= had);
        assert!(is_enough, "{keyspace}: {put:?} of {reserved:?}");
        store.close().expect("it closes");
    }
}

type Work<S> = fn(&Mapped<Watched<S>>, &MappedKeyspace) -> Result<()>;

/// Compactions, persists and the work that writers do or somebody waits for went on after a close
/// had ended. What they did was no part of the store: the next opening believed the page table that
/// the close had written, and the first puts went where live records had been moved to.
#[test]
fn a_close_waits_for_whoever_changes_the_pool() {
    meet::<Scmkv>();
    meet::<TreeStore>();
}

fn meet<S: PoolStore>() {
    let compact: Work<S> = |store, keyspace| store.compact_range(keyspace, &[], None);
    let wait_idle: Work<S> = |store, _| store.wait_idle();
    let persist: Work<S> = |store, _| store.persist(Durability::Sync);
    let put: Work<S> = |store, keyspace| put_value(store, keyspace, 1);
    meet_in("a compaction", compact, false);
    meet_in("a wait", wait_idle, false);
    meet_in("a persist", persist, true);
    meet_in("a put", put, false);
}

fn value_of(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(2500)
}

fn put_value<S: PoolStore>(
    store: &Mapped<Watched<S>>,
    keyspace: &MappedKeyspace,
    number: u64,
) -> Result<()> {
    let write = Write::Single {
        keyspace,
        kind: Kind::Put,
        key: &number.to_le_bytes(),
        value: &value_of(number),
    };
    store.write(write, 1, false)
}

fn meet_in<S: PoolStore>(what: &str, work: Work<S>, has_checkpoint: bool) {
    const KEYS: u64 = 1000;
    let dir = tempfile::tempdir().expect("a directory");
    let (store, keyspace) = open_with::<S>(dir.path(), has_checkpoint);
    let put = |store: &Mapped<_>, number| put_value::<S>(store, &keyspace, number).expect("space");
    for number in 0..KEYS {
        put(&store, number);
    }
    for number in (0..KEYS).filter(|number| number % 4 != 1) {
        let write = Write::Single {
            keyspace: &*keyspace,
            kind: Kind::Delete,
            key: &number.to_le_bytes(),
            value: &[],
        };
        store.write(write, 1, false).expect("sound");
    }
    // The next write works for the background, too.
    store.unattended.store(0, Ordering::Relaxed);
    let (has_met, has_ended) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (sender, closer) = std::sync::mpsc::channel();
    let (closing, met, ended) = (
        Arc::clone(&store),
        Arc::clone(&has_met),
        Arc::clone(&has_ended),
    );
    MEANWHILE.set(Some(Box::new(move || {
        met.store(true, Ordering::Relaxed);
        let store = Arc::clone(&closing);
        let closer = thread::spawn(move || store.close());
        while closing.health.check_open().is_ok() {
            thread::yield_now();
        }
        for _ in 0..200 {
            if closer.is_finished() {
                ended.store(true, Ordering::Relaxed);
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        sender.send(closer).expect("somebody waits");
    })));
    let done = work(&store, &keyspace);
    assert!(has_met.load(Ordering::Relaxed), "{what}: {done:?}");
    assert!(
        done.is_ok() || matches!(done, Err(Error::Closed)),
        "{what}: {done:?}"
    );
    let closer = closer.recv().expect("it was sent");
    closer.join().expect("no panic").expect("it closes");
    assert!(
        matches!(work(&store, &keyspace), Err(Error::Closed)),
        "{what}"
    );
    drop(store);
    let (store, keyspace) = open_with::<S>(dir.path(), has_checkpoint);
    for number in KEYS..KEYS + 200 {
        put(&store, number);
    }
    for number in (0..KEYS + 200).filter(|number| number % 4 == 1 || *number >= KEYS) {
        let found = store.get(&keyspace, &number.to_le_bytes(), None);
        let value = found.expect("sound").map(|value| value.to_vec());
        assert!(value == Some(value_of(number)), "{what}: {number}");
    }
    store.close().expect("it closes");
    assert!(
        !has_ended.load(Ordering::Relaxed),
        "{what} was not waited for"
    );
}
