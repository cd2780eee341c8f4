//! The tests that kvdb publishes for its implementations, and a few of our own.

use std::io;

use gabion::{Db, Engine, Options};
use gabion_kvdb::Database;
use kvdb::{DBTransaction, KeyValueDB};
use kvdb_shared_tests as shared;
use tempfile::TempDir;

/// Runs a test on a new store of each engine that has order and is built.
fn on_each(columns: u32, test: impl Fn(&dyn KeyValueDB) -> io::Result<()>) {
    for engine in [Engine::Wip, Engine::Flex] {
        let dir = TempDir::new().unwrap();
        let db = Options::default().engine(engine).open(dir.path()).unwrap();
        let tested = test(&Database::new(db, columns).unwrap());
        tested.unwrap_or_else(|error| panic!("{engine}: {error}"));
    }
}

#[test]
fn get_fails_with_non_existing_column() {
    on_each(1, shared::test_get_fails_with_non_existing_column);
}

#[test]
fn put_and_get() {
    on_each(1, shared::test_put_and_get);
}

#[test]
fn delete_and_get() {
    on_each(1, shared::test_delete_and_get);
}

#[test]
fn delete_prefix() {
    on_each(
        shared::DELETE_PREFIX_NUM_COLUMNS,
        shared::test_delete_prefix,
    );
}

#[test]
fn iter() {
    on_each(1, shared::test_iter);
}

#[test]
fn iter_with_prefix() {
    on_each(1, shared::test_iter_with_prefix);
}

#[test]
fn write_clears_buffered_ops() {
    on_each(1, shared::test_write_clears_buffered_ops);
}

#[test]
fn io_stats() {
    on_each(shared::IO_STATS_NUM_COLUMNS, shared::test_io_stats);
}

#[test]
fn complex() {
    on_each(1, shared::test_complex);
}

#[test]
fn operations_of_a_transaction_take_effect_in_their_order() {
    on_each(1, |database| {
        let mut transaction = DBTransaction::new();
        transaction.put(0, b"stone 1", b"granite");
        transaction.delete_prefix(0, b"stone");
        transaction.put(0, b"stone 2", b"slate");
        transaction.put(0, b"sand", b"yellow");
        transaction.delete(0, b"sand");
        database.write(transaction)?;
        let keys: io::Result<Vec<_>> = database.iter(0).map(|pair| Ok(pair?.0)).collect();
        assert_eq!(keys?.len(), 1);
        assert!(database.has_key(0, b"stone 2")?);
        assert!(!database.has_key(0, b"sand")?);
        assert!(database.has_prefix(0, b"stone")?);
        Ok(())
    });
}

#[test]
fn a_transaction_with_a_missing_column_writes_nothing() {
    on_each(1, |database| {
        let mut transaction = DBTransaction::new();
        transaction.put(0, b"stone", b"granite");
        transaction.put(1, b"stone", b"slate");
        let error = database.write(transaction).unwrap_err();
        assert_eq!(error.to_string(), "there is no column 1: there are 1");
        assert_eq!(database.get(0, b"stone")?, None);
        assert!(database.iter(1).next().unwrap().is_err());
        Ok(())
    });
}

#[test]
fn an_iterator_sees_the_column_as_it_was() {
    on_each(1, |database| {
        let put = |value: &[u8]| {
            let mut transaction = DBTransaction::new();
            transaction.put(0, b"stone", value);
            database.write(transaction)
        };
        put(b"granite")?;
        let mut before = database.iter(0);
        put(b"slate")?;
        assert_eq!(before.next().unwrap()?.1, b"granite");
        assert_eq!(database.get(0, b"stone")?, Some(b"slate".to_vec()));
        Ok(())
    });
}

#[test]
fn columns_are_there_after_a_restart_and_may_become_more() {
    let dir = TempDir::new().unwrap();
    for columns in 1..4 {
        let database = Database::new(Db::open(dir.path()).unwrap(), columns).unwrap();
        let mut transaction = DBTransaction::new();
        transaction.put(columns - 1, b"column", &columns.to_le_bytes());
        database.write(transaction).unwrap();
        for column in 0..columns {
            let value = database.get(column, b"column").unwrap();
            assert_eq!(value, Some((column + 1).to_le_bytes().to_vec()));
        }
    }
}
