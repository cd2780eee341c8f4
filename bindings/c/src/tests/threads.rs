//! Threads that use the same handles while one of them closes the store.

use std::ptr;
use std::thread;

use super::{Numbers, open, told};
use crate::batch::{gabion_batch_free, gabion_batch_new, gabion_batch_put, gabion_batch_write};
use crate::changes::{
    gabion_change_free, gabion_changes_free, gabion_changes_new, gabion_changes_next,
};
use crate::error::GabionCode;
use crate::ingest::{gabion_ingest_begin, gabion_ingest_free, gabion_ingest_put};
use crate::iterator::{
    gabion_iterator_first, gabion_iterator_free, gabion_iterator_new, gabion_iterator_next,
    gabion_iterator_prev,
};
use crate::keyspace::{gabion_keyspace_default, gabion_keyspace_free};
use crate::store::{gabion_close, gabion_store_free};
use crate::transaction::{
    gabion_transaction_begin, gabion_transaction_commit, gabion_transaction_free,
    gabion_transaction_put,
};
use crate::write::{gabion_delete, gabion_put};

/// Threads, and calls of each.
const THREADS: u64 = 4;
const CALLS: usize = 400;

/// Handles as numbers, which threads may share.
#[derive(Clone, Copy)]
struct Handles {
    store: usize,
    keyspace: usize,
    batch: usize,
    iterator: usize,
    transaction: usize,
    changes: usize,
    ingest: usize,
}

fn use_them(handles: Handles, seed: u64, is_closer: bool) {
    let mut numbers = Numbers::new(seed);
    for call in 0..CALLS {
        let key = [u8::try_from(numbers.below(20)).unwrap()];
        let (keyspace, batch) = (handles.keyspace as *mut _, handles.batch as *mut _);
        let (store, iterator) = (handles.store as *mut _, handles.iterator as *mut _);
        let transaction = handles.transaction as *mut _;
        let (changes, ingest) = (handles.changes as *mut _, handles.ingest as *mut _);
        let mut change = ptr::null_mut();
        let choice = numbers.below(10);
        let (data, len, none) = (key.as_ptr(), key.len(), ptr::null());
        // SAFETY (each): handles that are freed when all threads have ended, and bytes of `key`.
        let code = told(|error| match choice {
            0 => unsafe { gabion_put(keyspace, data, len, data, len, error) },
            1 => unsafe { gabion_delete(keyspace, data, len, error) },
            2 => unsafe { gabion_batch_put(batch, keyspace, data, len, data, len, error) },
            3 => unsafe { gabion_batch_write(store, batch, none, error) },
            4 => unsafe { gabion_iterator_first(iterator, error) },
            5 => unsafe { gabion_iterator_next(iterator, error) },
            6 => unsafe { gabion_iterator_prev(iterator, error) },
            7 => unsafe { gabion_changes_next(changes, 1, &raw mut change, error) },
            8 => unsafe { gabion_ingest_put(ingest, data, len, data, len, error) },
            _ => unsafe {
                gabion_transaction_put(transaction, keyspace, data, len, data, len, error)
            },
        });
        // SAFETY: a variable with a change, or null.
        unsafe { gabion_change_free(&raw mut change) };
        let is_expected = matches!(
            code,
            GabionCode::Ok
                | GabionCode::Busy
                | GabionCode::Closed
                | GabionCode::Ended
                | GabionCode::Conflict
                | GabionCode::OutOfOrder
        );
        assert!(
            is_expected,
            "seed {seed}, call {call}, choice {choice}: {code:?}"
        );
        if is_closer && call == CALLS / 3 {
            // SAFETY: as above.
            told(|error| unsafe { gabion_transaction_commit(transaction, none, error) });
        }
        if is_closer && call == CALLS / 2 {
            // SAFETY: as above.
            told(|error| unsafe { gabion_close(store, error) });
        }
    }
}

#[test]
fn threads_share_handles_of_a_store_that_closes() {
    for seed in 1..4 {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let (mut keyspace, mut iterator) = (ptr::null_mut(), ptr::null_mut());
        let mut transaction = ptr::null_mut();
        let (mut changes, mut ingest) = (ptr::null_mut(), ptr::null_mut());
        let mut batch = gabion_batch_new();
        let none = ptr::null();
        // SAFETY (each): handles, and places for results.
        let made = [
            told(|error| unsafe { gabion_keyspace_default(store, &raw mut keyspace, error) }),
            told(|error| unsafe {
                let place = &raw mut iterator;
                gabion_iterator_new(keyspace, ptr::null(), none, 0, none, 0, place, error)
            }),
            told(|error| unsafe {
                gabion_transaction_begin(store, ptr::null(), &raw mut transaction, error)
            }),
            told(|error| unsafe {
                let (since, options) = (ptr::null(), ptr::null());
                gabion_changes_new(store, since, options, &raw mut changes, error)
            }),
            told(|error| unsafe { gabion_ingest_begin(keyspace, &raw mut ingest, error) }),
        ];
        assert_eq!(made, [GabionCode::Ok; 5]);
        let handles = Handles {
            store: store as usize,
            keyspace: keyspace as usize,
            batch: batch as usize,
            iterator: iterator as usize,
            transaction: transaction as usize,
            changes: changes as usize,
            ingest: ingest as usize,
        };
        thread::scope(|scope| {
            for number in 0..THREADS {
                let seed = seed * THREADS + number;
                scope.spawn(move || use_them(handles, seed, number == 0));
            }
        });
        // SAFETY (each): variables with handles that nobody uses any more.
        unsafe { gabion_store_free(&raw mut store) };
        unsafe { gabion_keyspace_free(&raw mut keyspace) };
        unsafe { gabion_batch_free(&raw mut batch) };
        unsafe { gabion_iterator_free(&raw mut iterator) };
        unsafe { gabion_transaction_free(&raw mut transaction) };
        unsafe { gabion_changes_free(&raw mut changes) };
        unsafe { gabion_ingest_free(&raw mut ingest) };
    }
}
