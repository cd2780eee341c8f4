//! Calls in a random order, with null, with handles of another kind, and with lengths that cannot
//! be. `GABION_WRONG_ORDER_SEEDS` says how many seeds are tried, 20 if it is not set.

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use super::{Numbers, open, told};
use crate::backup::*;
use crate::batch::*;
use crate::changes::*;
use crate::consumer::*;
use crate::error::GabionCode;
use crate::ingest::*;
use crate::iterator::*;
use crate::keyspace::*;
use crate::options::*;
use crate::read::*;
use crate::store::*;
use crate::transaction::*;
use crate::write::*;

/// Calls of one seed.
const CALLS: usize = 800;

/// Most handles at a time.
const HANDLES_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Store,
    Keyspace,
    Options,
    Snapshot,
    Pinned,
    Values,
    Batch,
    Iterator,
    Transaction,
    Ingest,
    Changes,
    Change,
    Consumer,
}

/// What was made and not freed.
struct Pool {
    handles: Vec<(Kind, *mut c_void)>,
    numbers: Numbers,
    /// A directory for backups.
    repository: CString,
}

impl Pool {
    /// A handle of a kind; at times null, or one of another kind, which `is_right` tells.
    fn pick(&mut self, kind: Kind) -> (*mut c_void, bool) {
        let choice = self.numbers.below(12);
        if choice == 0 {
            return (ptr::null_mut(), false);
        }
        let is_right = choice > 1;
        let fitting: Vec<_> = self
            .handles
            .iter()
            .filter(|(other, _)| (*other == kind) == is_right)
            .collect();
        match fitting.is_empty() {
            true => (ptr::null_mut(), false),
            false => (fitting[self.numbers.below(fitting.len())].1, is_right),
        }
    }

    fn add<T>(&mut self, kind: Kind, handle: *mut T) {
        if !handle.is_null() {
            self.handles.push((kind, handle.cast()));
        }
    }

    fn free(&mut self, at: usize) {
        let (kind, mut handle) = self.handles.swap_remove(at);
        let place = &raw mut handle;
        for round in 0..2 {
            // SAFETY (each): a variable with a handle of the kind, or null the second time.
            match kind {
                Kind::Store => unsafe { gabion_store_free(place.cast()) },
                Kind::Keyspace => unsafe { gabion_keyspace_free(place.cast()) },
                Kind::Options => unsafe { gabion_options_free(place.cast()) },
                Kind::Snapshot => unsafe { gabion_snapshot_free(place.cast()) },
                Kind::Pinned => unsafe { gabion_pinned_free(place.cast()) },
                Kind::Values => unsafe { gabion_values_free(place.cast()) },
                Kind::Batch => unsafe { gabion_batch_free(place.cast()) },
                Kind::Iterator => unsafe { gabion_iterator_free(place.cast()) },
                Kind::Transaction => unsafe { gabion_transaction_free(place.cast()) },
                Kind::Ingest => unsafe { gabion_ingest_free(place.cast()) },
                Kind::Changes => unsafe { gabion_changes_free(place.cast()) },
                Kind::Change => unsafe { gabion_change_free(place.cast()) },
                Kind::Consumer => unsafe { gabion_consumer_free(place.cast()) },
            }
            assert!(handle.is_null(), "{kind:?}, round {round}");
        }
    }
}

/// A key: bytes, no bytes, null with a length, or a length that cannot be.
fn a_key(numbers: &mut Numbers) -> (*const u8, usize, bool) {
    const KEYS: &[u8] = b"abcdefgh";
    match numbers.below(12) {
        0 => (ptr::null(), 3, false),
        1 => (KEYS.as_ptr(), usize::MAX, false),
        2 => (KEYS.as_ptr(), 1 << 40, false),
        3 => (ptr::null(), 0, true),
        _ => (
            KEYS[numbers.below(4)..].as_ptr(),
            1 + numbers.below(4),
            true,
        ),
    }
}

fn a_word(numbers: &mut Numbers) -> *const c_char {
    match numbers.below(6) {
        0 => c"soon".as_ptr(),
        1 => c"sync".as_ptr(),
        2 => c"\xff\xfe".as_ptr(),
        _ => ptr::null(),
    }
}

/// A position, or what is none; whether it is one.
fn a_position(numbers: &mut Numbers) -> (*const c_char, bool) {
    match numbers.below(6) {
        0 => (c"soon".as_ptr(), false),
        1 => (c"\xff\xfe".as_ptr(), false),
        2 => (c"9.9.9".as_ptr(), true),
        _ => (c"1.0.0".as_ptr(), true),
    }
}

/// Goes on with a backup, or does not, as the context says.
unsafe extern "C" fn go_on(context: *mut c_void, bytes: u64, bytes_total: u64) -> bool {
    assert!(bytes <= bytes_total);
    // SAFETY: the call has the place of a bool for a context.
    unsafe { context.cast::<bool>().read() }
}

/// Makes one call, and holds its code to what its arguments allow.
#[expect(clippy::too_many_lines, reason = "a table of all calls")]
fn make_a_call(pool: &mut Pool) {
    let (store, is_store) = pool.pick(Kind::Store);
    let (own, is_own) = pool.pick(Kind::Keyspace);
    let (snapshot, is_snapshot) = pool.pick(Kind::Snapshot);
    let (batch, is_batch) = pool.pick(Kind::Batch);
    let (iterator, is_iterator) = pool.pick(Kind::Iterator);
    let (transaction, is_transaction) = pool.pick(Kind::Transaction);
    let (options, is_options) = pool.pick(Kind::Options);
    let (values, _) = pool.pick(Kind::Values);
    let (pinned, _) = pool.pick(Kind::Pinned);
    let (ingest, is_ingest) = pool.pick(Kind::Ingest);
    let (changes, is_changes) = pool.pick(Kind::Changes);
    let (change, _) = pool.pick(Kind::Change);
    let (consumer, is_consumer) = pool.pick(Kind::Consumer);
    let (key, key_len, is_key) = a_key(&mut pool.numbers);
    let (other, other_len, is_other) = a_key(&mut pool.numbers);
    let word = a_word(&mut pool.numbers);
    let (position, is_position) = a_position(&mut pool.numbers);
    let mut goes_on = pool.numbers.below(3) > 0;
    let repository = pool.repository.as_ptr();
    let (store, own) = (store.cast::<GabionStore>(), own.cast::<GabionKeyspace>());
    let (snapshot, batch) = (
        snapshot.cast::<GabionSnapshot>(),
        batch.cast::<GabionBatch>(),
    );
    let iterator = iterator.cast::<GabionIterator>();
    let transaction = transaction.cast::<GabionTransaction>();
    let options = options.cast::<GabionOptions>();
    let (ingest, changes) = (
        ingest.cast::<GabionIngest>(),
        changes.cast::<GabionChanges>(),
    );
    let consumer = consumer.cast::<GabionConsumer>();
    let (mut keyspace_, mut snapshot_) = (ptr::null_mut(), ptr::null_mut());
    let (mut pinned_, mut values_) = (ptr::null_mut(), ptr::null_mut());
    let (mut iterator_, mut transaction_) = (ptr::null_mut(), ptr::null_mut());
    let (mut ingest_, mut consumer_) = (ptr::null_mut(), ptr::null_mut());
    let (mut changes_, mut change_) = (ptr::null_mut(), ptr::null_mut());
    let (mut value, mut len, mut flag, mut number) = (ptr::null_mut(), 0, false, 0);
    let (mut text, mut moment) = (ptr::null_mut::<c_char>(), 0);
    let choice = pool.numbers.below(62);
    let (result, is_fine) = {
        let call =
            |is_fine: bool, call: &mut dyn FnMut(*mut *mut _) -> GabionCode| (told(call), is_fine);
        // SAFETY (each): handles that are not freed, or null; bytes with their length, or what is
        // refused before it is read; places for results.
        match choice {
            0 => call(is_store, &mut |error| unsafe {
                gabion_keyspace_default(store, &raw mut keyspace_, error)
            }),
            1 => call(is_store, &mut |error| unsafe {
                let name = c"stones".as_ptr();
                gabion_keyspace_open(store, name, ptr::null(), &raw mut keyspace_, error)
            }),
            2 => call(
                is_store && (is_options || options.is_null()),
                &mut |error| unsafe {
                    let name = c"stones".as_ptr();
                    gabion_keyspace_open(store, name, options, &raw mut keyspace_, error)
                },
            ),
            3 => call(is_store, &mut |error| unsafe {
                gabion_keyspace_drop(store, c"stones".as_ptr(), error)
            }),
            4 => call(is_store, &mut |error| unsafe {
                gabion_keyspace_names(store, &raw mut values_, error)
            }),
            5 => call(is_store, &mut |error| unsafe {
                gabion_snapshot_new(store, &raw mut snapshot_, error)
            }),
            6..=8 => call(is_own && is_key && is_other, &mut |error| unsafe {
                gabion_put(own, key, key_len, other, other_len, error)
            }),
            9 => call(is_own && is_key, &mut |error| unsafe {
                gabion_put_with(own, key, key_len, key, key_len, word, error)
            }),
            10 => call(is_own && is_key, &mut |error| unsafe {
                gabion_delete(own, key, key_len, error)
            }),
            11 => call(is_own && is_key && is_other, &mut |error| unsafe {
                gabion_delete_range(own, key, key_len, other, other_len, error)
            }),
            12 => call(is_own && is_key, &mut |error| unsafe {
                gabion_get(own, key, key_len, &raw mut value, &raw mut len, error)
            }),
            13 => call(is_own && is_key, &mut |error| unsafe {
                gabion_get_pinned(own, key, key_len, &raw mut pinned_, error)
            }),
            14 => call(is_own && is_snapshot && is_key, &mut |error| unsafe {
                let place = &raw mut pinned_;
                gabion_snapshot_get_pinned(snapshot, own, key, key_len, place, error)
            }),
            15 => call(is_own && is_key, &mut |error| unsafe {
                gabion_contains(own, key, key_len, &raw mut flag, error)
            }),
            16 => call(is_own && is_key && is_other, &mut |error| unsafe {
                let place = &raw mut flag;
                let (value, value_len) = (other, other_len);
                gabion_compare_and_swap(
                    own, key, key_len, value, value_len, key, key_len, place, error,
                )
            }),
            17 => call(is_own && is_key && is_other, &mut |error| unsafe {
                let (keys, lens) = ([key, other], [key_len, other_len]);
                let (keys, lens, place) = (keys.as_ptr(), lens.as_ptr(), &raw mut values_);
                gabion_multi_get(own, ptr::null(), keys, lens, 2, place, error)
            }),
            18 => call(false, &mut |error| unsafe {
                let (keys, lens, place) = (&raw const key, &raw const key_len, &raw mut values_);
                gabion_multi_get(own, snapshot, keys, lens, usize::MAX, place, error)
            }),
            19 => call(
                is_batch && is_own && is_key && is_other,
                &mut |error| unsafe {
                    gabion_batch_put(batch, own, key, key_len, other, other_len, error)
                },
            ),
            20 => call(is_batch && is_own && is_key, &mut |error| unsafe {
                gabion_batch_delete(batch, own, key, key_len, error)
            }),
            21 => call(is_batch && is_store, &mut |error| unsafe {
                gabion_batch_write(store, batch, word, error)
            }),
            22 => call(is_own && is_key && is_other, &mut |error| unsafe {
                let place = &raw mut iterator_;
                let (from, to) = ((key, key_len), (other, other_len));
                gabion_iterator_new(own, ptr::null(), from.0, from.1, to.0, to.1, place, error)
            }),
            23 => call(
                is_own && (is_snapshot || snapshot.is_null()),
                &mut |error| unsafe {
                    let (none, place) = (ptr::null(), &raw mut iterator_);
                    gabion_iterator_new(own, snapshot, none, 0, none, 0, place, error)
                },
            ),
            24 => call(is_iterator, &mut |error| unsafe {
                gabion_iterator_first(iterator, error)
            }),
            25 => call(is_iterator, &mut |error| unsafe {
                gabion_iterator_next(iterator, error)
            }),
            26 => call(is_iterator && is_key, &mut |error| unsafe {
                gabion_iterator_seek_back(iterator, key, key_len, error)
            }),
            27 => call(is_store, &mut |error| unsafe {
                gabion_transaction_begin(store, ptr::null(), &raw mut transaction_, error)
            }),
            28 => call(is_transaction && is_own && is_key, &mut |error| unsafe {
                gabion_transaction_put(transaction, own, key, key_len, key, key_len, error)
            }),
            29 => call(is_transaction && is_own, &mut |error| unsafe {
                let (none, place) = (ptr::null(), &raw mut iterator_);
                gabion_transaction_iterator(transaction, own, none, 0, none, 0, place, error)
            }),
            30 => call(is_transaction, &mut |error| unsafe {
                gabion_transaction_savepoint(transaction, &raw mut number, error)
            }),
            31 => call(is_transaction, &mut |error| unsafe {
                gabion_transaction_commit(transaction, word, error)
            }),
            32 => call(is_transaction && is_own && is_key, &mut |error| unsafe {
                let place = &raw mut flag;
                gabion_transaction_contains(transaction, own, key, key_len, place, error)
            }),
            33 => call(
                is_transaction && is_own && is_key && is_other,
                &mut |error| unsafe {
                    let (keys, lens) = ([key, other], [key_len, other_len]);
                    let (keys, lens, place) = (keys.as_ptr(), lens.as_ptr(), &raw mut values_);
                    gabion_transaction_multi_get(transaction, own, keys, lens, 2, place, error)
                },
            ),
            34 => call(is_transaction && is_own && is_key, &mut |error| unsafe {
                let place = &raw mut moment;
                gabion_transaction_expires_at(transaction, own, key, key_len, place, error)
            }),
            35 => call(is_snapshot && is_own && is_key, &mut |error| unsafe {
                let place = &raw mut moment;
                gabion_snapshot_expires_at(snapshot, own, key, key_len, place, error)
            }),
            36 => call(
                is_batch && is_own && is_key && is_other,
                &mut |error| unsafe {
                    gabion_batch_put_expiring_at(
                        batch, own, key, key_len, other, other_len, 1, error,
                    )
                },
            ),
            37 => call(is_own && is_key, &mut |error| unsafe {
                gabion_expire(own, key, key_len, 5000, &raw mut flag, error)
            }),
            38 => call(is_own && is_key, &mut |error| unsafe {
                gabion_remove_expiry(own, key, key_len, &raw mut flag, error)
            }),
            39 => call(is_own, &mut |error| unsafe {
                gabion_keyspace_options(own, &raw mut text, error)
            }),
            40 => call(is_store, &mut |error| unsafe {
                gabion_keyspace_hidden(store, c"notes".as_ptr(), &raw mut keyspace_, error)
            }),
            41 => call(is_store, &mut |error| unsafe {
                gabion_capabilities(store, &raw mut text, error)
            }),
            42 => call(is_store, &mut |error| unsafe {
                gabion_catch_up(store, &raw mut flag, error)
            }),
            43 => call(is_store, &mut |error| unsafe {
                gabion_position(store, &raw mut text, error)
            }),
            44 => call(is_snapshot && is_position, &mut |error| unsafe {
                gabion_position_after(position, snapshot, &raw mut text, error)
            }),
            45 => call(is_store && is_position, &mut |error| unsafe {
                gabion_changes_new(store, position, ptr::null(), &raw mut changes_, error)
            }),
            46..=48 => call(is_changes, &mut |error| unsafe {
                gabion_changes_next(changes, 0, &raw mut change_, error)
            }),
            49 => call(is_changes, &mut |error| unsafe {
                gabion_changes_position(changes, &raw mut text, error)
            }),
            50 => call(is_store, &mut |error| unsafe {
                gabion_consumer_open(store, c"mirror".as_ptr(), &raw mut consumer_, error)
            }),
            51 => call(is_consumer, &mut |error| unsafe {
                gabion_consumer_changes(consumer, ptr::null(), &raw mut changes_, error)
            }),
            52 => call(is_consumer && is_position, &mut |error| unsafe {
                gabion_consumer_acknowledge(consumer, position, error)
            }),
            53 => call(is_consumer, &mut |error| unsafe {
                gabion_consumer_position(consumer, &raw mut text, error)
            }),
            54 => match pool.numbers.below(2) {
                0 => call(is_store, &mut |error| unsafe {
                    gabion_consumers(store, &raw mut text, error)
                }),
                _ => call(is_store, &mut |error| unsafe {
                    gabion_consumer_drop(store, c"mirror".as_ptr(), error)
                }),
            },
            55 => call(is_own, &mut |error| unsafe {
                gabion_ingest_begin(own, &raw mut ingest_, error)
            }),
            56 | 57 => call(is_ingest && is_key && is_other, &mut |error| unsafe {
                gabion_ingest_put(ingest, key, key_len, other, other_len, error)
            }),
            58 => call(is_ingest, &mut |error| unsafe {
                gabion_ingest_finish(ingest, &raw mut number, error)
            }),
            59 => call(
                is_store && (is_options || options.is_null()),
                &mut |error| unsafe {
                    let (context, place) = ((&raw mut goes_on).cast(), &raw mut text);
                    gabion_backup(
                        store,
                        repository,
                        options,
                        Some(go_on),
                        context,
                        place,
                        error,
                    )
                },
            ),
            60 => call(true, &mut |error| unsafe {
                gabion_backup_list(repository, &raw mut text, error)
            }),
            // A directory that is not empty is no place for a store.
            _ => call(false, &mut |error| unsafe {
                let (options, none) = (ptr::null(), ptr::null_mut());
                gabion_backup_restore(repository, 1, repository, options, None, none, error)
            }),
        }
    };
    // What has no code: none of them minds what it is given.
    // SAFETY (each): as above.
    unsafe { gabion_values_at(values.cast(), pool.numbers.below(3), &raw mut len) };
    unsafe { gabion_pinned_data(pinned.cast(), &raw mut len) };
    unsafe { gabion_iterator_key(iterator, &raw mut len) };
    let (change, at) = (change.cast::<GabionChange>(), pool.numbers.below(3));
    unsafe { gabion_change_position(change) };
    unsafe { gabion_change_action(change, at) };
    unsafe { gabion_change_keyspace(change, at, &raw mut len) };
    unsafe { gabion_change_value(change, at, &raw mut len) };
    unsafe { gabion_change_operand(change, at, at, &raw mut len) };
    unsafe { gabion_engine(store) };
    unsafe { gabion_keyspace_id(own) };
    unsafe { crate::gabion_free(value.cast()) };
    unsafe { crate::gabion_free(text.cast()) };
    if !is_fine {
        assert_ne!(result, GabionCode::Ok, "choice {choice}");
    }
    pool.add(Kind::Keyspace, keyspace_);
    pool.add(Kind::Snapshot, snapshot_);
    pool.add(Kind::Pinned, pinned_);
    pool.add(Kind::Values, values_);
    pool.add(Kind::Iterator, iterator_);
    pool.add(Kind::Transaction, transaction_);
    pool.add(Kind::Ingest, ingest_);
    pool.add(Kind::Changes, changes_);
    pool.add(Kind::Change, change_);
    pool.add(Kind::Consumer, consumer_);
}

fn run(seed: u64) {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let backups = tempfile::tempdir().unwrap();
    // The first backup makes it.
    let repository = backups.path().join("repository");
    let mut pool = Pool {
        handles: Vec::new(),
        numbers: Numbers::new(seed),
        repository: CString::new(repository.to_str().unwrap()).unwrap(),
    };
    for dir in &dirs {
        pool.add(Kind::Store, open(dir.path()));
        pool.add(Kind::Batch, gabion_batch_new());
    }
    pool.add(Kind::Options, gabion_options_new());
    let close_at = pool.numbers.below(2 * CALLS);
    for call in 0..CALLS {
        make_a_call(&mut pool);
        if call == close_at
            && let (store, true) = pool.pick(Kind::Store)
        {
            // SAFETY: a handle of a store.
            told(|error| unsafe { gabion_close(store.cast(), error) });
        }
        while pool.handles.len() > HANDLES_MAX {
            let at = pool.numbers.below(pool.handles.len());
            pool.free(at);
        }
    }
    while !pool.handles.is_empty() {
        let at = pool.numbers.below(pool.handles.len());
        pool.free(at);
    }
    // Nothing keeps a store open.
    for dir in &dirs {
        let mut store = open(dir.path());
        // SAFETY: a variable with a handle.
        unsafe { gabion_store_free(&raw mut store) };
    }
}

#[test]
fn calls_in_any_order_are_answered() {
    let seeds = std::env::var("GABION_WRONG_ORDER_SEEDS");
    let seeds = seeds.map_or(20, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        println!("seed {seed}");
        run(seed);
    }
}
