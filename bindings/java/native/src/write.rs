//! Writes. Where a function takes a transaction, 0 stands for none: the write takes effect at once.
//!
//! # Layout of a batch
//! Operations, one after the other:
//!
//! | what | bytes |
//! |---|---|
//! | kind | `u8`: see [`Operation`] |
//! | keyspace | its number `u64` |
//! | expiry | of the kinds with one only: milliseconds `u64` |
//! | key, value | texts, as [`gabion_bindings::packed`] has them; of a delete the key only |

use gabion::{Db, Keyspace, Transaction, WriteBatch};
use gabion_bindings::packed::{Unpacked, cut};
use gabion_bindings::range::{self, Bounds};
use gabion_bindings::{Failure, Reader, expiry};
use jni::objects::{JByteArray, JByteBuffer, JClass, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned};

use crate::border::{Copied, Result, buffer_bytes, bytes, call, first_bytes, optional_bytes};
use crate::store::{durability, number};
use crate::table::{self, StoreKeyspace};

/// A write of one key, or of the keys of a range.
enum Operation<'a> {
    /// Kind 0.
    Put(&'a [u8], &'a [u8]),
    /// Kind 1.
    Delete(&'a [u8]),
    /// Kind 2.
    Merge(&'a [u8], &'a [u8]),
    /// Kind 3 for so many milliseconds from now on, kind 4 for those since 1970.
    PutExpiring(&'a [u8], &'a [u8], gabion::Expiry),
    /// Kind 5 with both bounds, 6 with a lower one, 7 with an upper one, 8 with none: texts that
    /// are missing are empty.
    DeleteRange(Bounds),
}

impl Operation<'_> {
    /// Runs it by itself.
    fn run(self, keyspace: &Keyspace) -> gabion::Result<()> {
        match self {
            Operation::Put(key, value) => keyspace.put(key, value),
            Operation::Delete(key) => keyspace.delete(key),
            Operation::Merge(key, operand) => keyspace.merge(key, operand),
            Operation::PutExpiring(key, value, at) => keyspace.put_expiring(key, value, at),
            Operation::DeleteRange(bounds) => keyspace.delete_range::<Vec<u8>>(bounds),
        }
    }

    /// Adds it to a batch.
    fn add(self, batch: &mut WriteBatch, keyspace: &Keyspace) -> gabion::Result<()> {
        match self {
            Operation::Put(key, value) => batch.put(keyspace, key, value),
            Operation::Delete(key) => batch.delete(keyspace, key),
            Operation::Merge(key, operand) => batch.merge(keyspace, key, operand),
            Operation::PutExpiring(key, value, at) => batch.put_expiring(keyspace, key, value, at),
            Operation::DeleteRange(bounds) => batch.delete_range::<Vec<u8>>(keyspace, bounds),
        }
    }

    /// Runs it in a transaction.
    fn run_in(self, own: &mut Transaction, keyspace: &Keyspace) -> gabion::Result<()> {
        match self {
            Operation::Put(key, value) => own.put(keyspace, key, value),
            Operation::Delete(key) => own.delete(keyspace, key),
            Operation::Merge(key, operand) => own.merge(keyspace, key, operand),
            Operation::PutExpiring(key, value, at) => own.put_expiring(keyspace, key, value, at),
            Operation::DeleteRange(bounds) => own.delete_range::<Vec<u8>>(keyspace, bounds),
        }
    }
}

/// The next operation of a batch, and the number of its keyspace.
fn operation<'a>(packed: &mut Unpacked<'a>) -> gabion_bindings::Result<(u64, Operation<'a>)> {
    let kind = packed.take(1)?[0];
    let keyspace = packed.long()?;
    let operation = match kind {
        0 => Operation::Put(packed.text()?, packed.text()?),
        1 => Operation::Delete(packed.text()?),
        2 => Operation::Merge(packed.text()?, packed.text()?),
        3 | 4 => {
            let at = expiry(packed.long()?, kind == 4);
            Operation::PutExpiring(packed.text()?, packed.text()?, at)
        }
        5..=8 => {
            let (lower, upper) = (packed.text()?, packed.text()?);
            let lower = (kind == 5 || kind == 6).then_some(lower);
            let upper = (kind == 5 || kind == 7).then_some(upper);
            Operation::DeleteRange(range::between(lower, upper))
        }
        _ => return Err(cut()),
    };
    Ok((keyspace, operation))
}

/// Runs an operation, by itself or in a transaction.
fn run(transaction: jlong, keyspace: jlong, operation: Operation<'_>) -> Result<()> {
    let own = table::keyspace(number(keyspace))?;
    if let Operation::DeleteRange(bounds) = &operation
        && range::is_empty(bounds)
    {
        return Ok(());
    }
    if transaction == 0 {
        return Ok(operation.run(&own.keyspace)?);
    }
    let view = table::view(number(transaction))?;
    match view.of(&own)? {
        Reader::Transaction(shared) => {
            Ok(shared.write(|open| operation.run_in(open, &own.keyspace))?)
        }
        _ => Err(Failure::argument("a snapshot takes no writes").into()),
    }
}

/// Gives a key a value.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_put<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
    value: JByteArray<'l>,
) {
    call(&mut env, |env| {
        let (key, value) = (bytes(env, &key)?, bytes(env, &value)?);
        run(transaction, keyspace, Operation::Put(&key, &value))
    });
}

/// Gives a key a value, both of them parts of direct buffers.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_putBuffer<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    key: JByteBuffer<'l>,
    key_at: jint,
    key_len: jint,
    value: JByteBuffer<'l>,
    value_at: jint,
    value_len: jint,
) {
    call(&mut env, |env| {
        let key = buffer_bytes(env, &key, key_at, key_len)?;
        let value = buffer_bytes(env, &value, value_at, value_len)?;
        run(transaction, keyspace, Operation::Put(&key, &value))
    });
}

/// Gives a key a value that expires: after so many milliseconds, or at those since 1970.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_putExpiring<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
    value: JByteArray<'l>,
    millis: jlong,
    is_absolute: jboolean,
) {
    call(&mut env, |env| {
        let (key, value) = (bytes(env, &key)?, bytes(env, &value)?);
        // What is before the beginning is over at once.
        let at = expiry(number(millis), is_absolute);
        run(
            transaction,
            keyspace,
            Operation::PutExpiring(&key, &value, at),
        )
    });
}

/// Merges an operand into the value of a key.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_merge<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
    operand: JByteArray<'l>,
) {
    call(&mut env, |env| {
        let (key, operand) = (bytes(env, &key)?, bytes(env, &operand)?);
        run(transaction, keyspace, Operation::Merge(&key, &operand))
    });
}

/// Removes a key.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_delete<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
) {
    call(&mut env, |env| {
        let key = bytes(env, &key)?;
        run(transaction, keyspace, Operation::Delete(&key))
    });
}

/// The bounds that two arrays give, null for none.
pub(crate) fn bounds(
    env: &Env<'_>,
    lower: &JByteArray<'_>,
    upper: &JByteArray<'_>,
) -> Result<Bounds> {
    let (lower, upper) = (optional_bytes(env, lower)?, optional_bytes(env, upper)?);
    Ok(range::between(lower.as_deref(), upper.as_deref()))
}

/// Removes the keys of a range.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_deleteRange<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    transaction: jlong,
    keyspace: jlong,
    lower: JByteArray<'l>,
    upper: JByteArray<'l>,
) {
    call(&mut env, |env| {
        let bounds = bounds(env, &lower, &upper)?;
        run(transaction, keyspace, Operation::DeleteRange(bounds))
    });
}

/// Changes the value of a key if it is the expected one; null stands for none. Whether it did.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_compareAndSwap<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    keyspace: jlong,
    key: JByteArray<'l>,
    expected: JByteArray<'l>,
    value: JByteArray<'l>,
) -> jboolean {
    call(&mut env, |env| {
        let key = bytes(env, &key)?;
        let expected = optional_bytes(env, &expected)?;
        let value = optional_bytes(env, &value)?;
        let own = table::keyspace(number(keyspace))?;
        let swapped =
            own.keyspace
                .compare_and_swap(&*key, expected.as_deref(), value.as_deref())?;
        Ok(swapped)
    })
}

/// Writes a batch: the first bytes of an array.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_write<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    packed: JByteArray<'l>,
    len: jint,
    word: JString<'l>,
) {
    call(&mut env, |env| {
        let packed = first_bytes(env, &packed, len)?;
        let level = durability(env, &word)?;
        let open = table::store(number(store))?;
        write(&open.db, number(store), &packed, level)
    });
}

fn write(db: &Db, store: u64, packed: &Copied, level: Option<gabion::Durability>) -> Result<()> {
    let mut packed = Unpacked::new(packed);
    let mut batch = WriteBatch::new();
    // Operations on one keyspace most often stand together.
    let mut last: Option<(u64, std::sync::Arc<StoreKeyspace>)> = None;
    while !packed.is_empty() {
        let (number, operation) = operation(&mut packed)?;
        let own = match last.take() {
            Some((last, own)) if last == number => own,
            _ => table::keyspace(number)?,
        };
        own.check_of(store)?;
        operation.add(&mut batch, &own.keyspace)?;
        last = Some((number, own));
    }
    match level {
        Some(level) => db.write_with(batch, level)?,
        None => db.write(batch)?,
    }
    Ok(())
}
