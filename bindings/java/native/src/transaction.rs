//! Begin and end of transactions. What they read and write is in [`crate::read`] and
//! [`mod@crate::write`].

use gabion_bindings::{Reader, SharedTransaction, options};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JString};
use jni::sys::{jboolean, jint, jlong};

use crate::border::{array, bytes, call};
use crate::store::{durability, handle, number, settings};
use crate::table;

/// Begins a transaction with packed options.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_begin<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    packed: JByteArray<'l>,
) -> jlong {
    call(&mut env, |env| {
        let packed = bytes(env, &packed)?;
        let options = options::transaction(&settings(&packed)?)?;
        let open = table::store(number(store))?;
        let transaction = SharedTransaction::begin(&open.db, options)?;
        let reader = Reader::Transaction(transaction);
        Ok(handle(table::add_view(number(store), reader)?))
    })
}

/// How often a transaction with packed options is tried.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_attemptsMax<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    packed: JByteArray<'l>,
) -> jint {
    call(&mut env, |env| {
        let packed = bytes(env, &packed)?;
        let options = options::transaction(&settings(&packed)?)?;
        Ok(jint::try_from(options.attempts_max).unwrap_or(jint::MAX))
    })
}

/// As a read of the transaction, which also conflicts with whoever writes the key meanwhile.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_getForUpdate<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
) -> JByteArray<'l> {
    call(&mut env, |env| {
        let key = bytes(env, &key)?;
        let own = table::keyspace(number(keyspace))?;
        table::view(number(transaction))?.of(&own)?;
        let shared = table::transaction(number(transaction))?;
        let found = shared.read(|open| open.get_for_update(&own.keyspace, &*key))?;
        match found {
            Some(value) => array(env, &value),
            None => Ok(JByteArray::default()),
        }
    })
}

/// Marks this moment.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_savepoint<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
) -> jlong {
    call(&mut env, |_| {
        let savepoint = table::transaction(number(transaction))?.savepoint()?;
        Ok(handle(savepoint))
    })
}

/// Takes back what was written since a savepoint.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_rollbackTo<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    savepoint: jlong,
) {
    call(&mut env, |_| {
        let shared = table::transaction(number(transaction))?;
        Ok(shared.rollback_to(number(savepoint))?)
    });
}

/// Commits, at a durability or at that of the store.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_commit<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    word: JString<'l>,
) {
    call(&mut env, |env| {
        let level = durability(env, &word)?;
        Ok(table::transaction(number(transaction))?.commit(level)?)
    });
}

/// Ends without an effect; whether the transaction was open.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_rollback<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
) -> jboolean {
    call(&mut env, |_| {
        let shared = table::transaction(number(transaction));
        Ok(shared.is_ok_and(|shared| shared.rollback()))
    })
}
