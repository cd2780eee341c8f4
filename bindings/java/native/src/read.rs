//! Reads. Where a function takes a view, that is a snapshot or a transaction, or 0 for the store as
//! it is.

use std::time::UNIX_EPOCH;

use gabion::Slice;
use gabion_bindings::Reader;
use gabion_bindings::packed::Unpacked;
use jni::EnvUnowned;
use jni::objects::{JByteArray, JByteBuffer, JClass};
use jni::sys::{jboolean, jint, jlong};

use crate::border::{Result, array, buffer_bytes, bytes, call, fill_buffer};
use crate::store::number;
use crate::table;

/// Reads a keyspace by a view.
fn with_view<T>(
    view: jlong,
    keyspace: jlong,
    body: impl FnOnce(&Reader, &gabion::Keyspace) -> gabion_bindings::Result<T>,
) -> Result<T> {
    let own = table::keyspace(number(keyspace))?;
    Ok(match view {
        0 => body(&Reader::Live, &own.keyspace)?,
        view => body(table::view(number(view))?.of(&own)?, &own.keyspace)?,
    })
}

fn get(view: jlong, keyspace: jlong, key: &[u8]) -> Result<Option<Slice>> {
    with_view(view, keyspace, |reader, keyspace| reader.get(keyspace, key))
}

/// The value of a key, or null.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_get<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
) -> JByteArray<'l> {
    call(&mut env, |env| {
        let key = bytes(env, &key)?;
        match get(view, keyspace, &key)? {
            Some(value) => array(env, &value),
            None => Ok(JByteArray::default()),
        }
    })
}

/// The length of a value, which goes into a direct buffer if there is room; -1 for none.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_getBuffer<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    keyspace: jlong,
    key: JByteBuffer<'l>,
    key_at: jint,
    key_len: jint,
    value: JByteBuffer<'l>,
    value_at: jint,
    room: jint,
) -> jint {
    call(&mut env, |env| {
        let key = buffer_bytes(env, &key, key_at, key_len)?;
        let Some(found) = get(view, keyspace, &key)? else {
            return Ok(-1);
        };
        fill_buffer(env, &value, value_at, room, &found)?;
        // No value is longer than 1 GiB.
        Ok(jint::try_from(found.len()).unwrap_or(jint::MAX))
    })
}

/// Whether a key is there.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_contains<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
) -> jboolean {
    call(&mut env, |env| {
        let key = bytes(env, &key)?;
        with_view(view, keyspace, |reader, keyspace| {
            reader.contains(keyspace, &key)
        })
    })
}

/// The values of packed keys, of one moment: each a length, -1 for none, and bytes.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_multiGet<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    keyspace: jlong,
    keys: JByteArray<'l>,
) -> JByteArray<'l> {
    call(&mut env, |env| {
        let keys = bytes(env, &keys)?;
        let keys = Unpacked::new(&keys).texts()?;
        let values = with_view(view, keyspace, |reader, keyspace| {
            reader.multi_get(keyspace, &keys)
        })?;
        let mut answers = Vec::new();
        for value in values {
            match value {
                Some(value) => gabion_bindings::packed::push_text(&mut answers, &value),
                None => answers.extend_from_slice(&(-1i32).to_le_bytes()),
            }
        }
        array(env, &answers)
    })
}

/// When a key expires, in milliseconds since 1970; -1 for a key that does not or is not there.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_expiresAt<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    keyspace: jlong,
    key: JByteArray<'l>,
) -> jlong {
    call(&mut env, |env| {
        let key = bytes(env, &key)?;
        let at = with_view(view, keyspace, |reader, keyspace| {
            Ok(match reader {
                Reader::Live => keyspace.expires_at(&*key)?,
                Reader::Snapshot(snapshot) => snapshot.expires_at(keyspace, &*key)?,
                Reader::Transaction(own) => own.read(|own| own.expires_at(keyspace, &*key))?,
            })
        })?;
        let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Ok(since.map_or(-1, |since| {
            jlong::try_from(since.as_millis()).unwrap_or(jlong::MAX)
        }))
    })
}
