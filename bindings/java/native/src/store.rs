//! Stores and keyspaces.

use gabion::{Db, Durability};
use gabion_bindings::packed::{Unpacked, push_text};
use gabion_bindings::{Code, Failure, Reader, options};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JString};
use jni::refs::Reference;
use jni::sys::{jint, jlong};

use crate::border::{ABI_VERSION, OfVm, Result, array, bytes, call, text};
use crate::table;

/// A number of Java's as the table has it. What is negative is no number of the table's.
pub(crate) fn number(of: jlong) -> u64 {
    u64::try_from(of).unwrap_or_default()
}

/// A number of the table's as Java has it.
pub(crate) fn handle(number: u64) -> jlong {
    jlong::try_from(number).unwrap_or_default()
}

/// Names and values of options, which are packed as texts.
pub(crate) fn settings(packed: &[u8]) -> Result<Vec<(&str, &str)>> {
    let text = |bytes| {
        std::str::from_utf8(bytes)
            .map_err(|_| Failure::argument("the text of an option is not valid"))
    };
    let texts = Unpacked::new(packed).texts()?;
    let pairs = texts.chunks_exact(2);
    Ok(pairs
        .map(|pair| Ok((text(pair[0])?, text(pair[1])?)))
        .collect::<std::result::Result<_, Failure>>()?)
}

/// A durability by its word, or none for null.
pub(crate) fn durability(env: &jni::Env<'_>, word: &JString<'_>) -> Result<Option<Durability>> {
    match word.is_null() {
        true => Ok(None),
        false => Ok(Some(options::durability(&text(env, word)?)?)),
    }
}

/// The version of the natives.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_abi<'l>(_: EnvUnowned<'l>, _: JClass<'l>) -> jint {
    ABI_VERSION
}

/// The names of all codes, in the order of their numbers, which begin with one.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_codes<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
) -> JString<'l> {
    call(&mut env, |env| {
        let names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        env.new_string(names.join(",")).of_vm()
    })
}

/// The names of all options.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_options<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
) -> JString<'l> {
    call(&mut env, |env| {
        env.new_string(options::names().join(",")).of_vm()
    })
}

/// Opens a store.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_open<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    path: JString<'l>,
    packed: JByteArray<'l>,
) -> jlong {
    call(&mut env, |env| {
        let (path, packed) = (text(env, &path)?, bytes(env, &packed)?);
        let db = options::store(&settings(&packed)?)?.open(path)?;
        Ok(handle(table::add_store(db)?))
    })
}

/// Removes a store that is closed.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_destroy<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    path: JString<'l>,
) {
    call(&mut env, |env| Ok(gabion::destroy(text(env, &path)?)?));
}

/// Closes a store. Nothing is done if it is closed.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_close<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) {
    call(&mut env, |_| {
        let Ok(open) = table::store(number(store)) else {
            return Ok(());
        };
        let closed = open.db.clone().close();
        table::remove(number(store));
        Ok(closed?)
    });
}

/// Forgets anything.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_free<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    any: jlong,
) {
    call(&mut env, |_| {
        table::remove(number(any));
        Ok(())
    });
}

/// Runs what a store is asked for.
fn with_store<T: Default>(
    env: &mut EnvUnowned<'_>,
    store: jlong,
    body: impl FnOnce(&Db) -> gabion::Result<T>,
) -> T {
    call(env, |_| Ok(body(&table::store(number(store))?.db)?))
}

/// The keyspace of a name, which is made if it is not there and has these options then. Without a
/// name the default one, without options one as it is.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_keyspace<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    name: JString<'l>,
    packed: JByteArray<'l>,
) -> jlong {
    call(&mut env, |env| {
        let open = table::store(number(store))?;
        let keyspace = match (name.is_null(), packed.is_null()) {
            (true, _) => open.db.default_keyspace().clone(),
            (false, true) => open.db.existing_keyspace(&text(env, &name)?)?,
            (false, false) => {
                let packed = bytes(env, &packed)?;
                let options = options::keyspace(&settings(&packed)?)?;
                open.db.keyspace_with(&text(env, &name)?, &options)?
            }
        };
        Ok(handle(table::add_keyspace(number(store), keyspace)?))
    })
}

/// The names of all keyspaces, packed.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_keyspaceNames<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) -> JByteArray<'l> {
    call(&mut env, |env| {
        let mut packed = Vec::new();
        for name in table::store(number(store))?.db.keyspace_names() {
            push_text(&mut packed, name.as_bytes());
        }
        array(env, &packed)
    })
}

/// Drops a keyspace and all that is in it.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_dropKeyspace<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    name: JString<'l>,
) {
    call(&mut env, |env| {
        let name = text(env, &name)?;
        Ok(table::store(number(store))?.db.drop_keyspace(&name)?)
    });
}

/// Brings what is in memory to where it stays.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_flush<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) {
    with_store(&mut env, store, Db::flush);
}

/// Makes all that was written survive power loss.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_persist<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) {
    with_store(&mut env, store, |db| db.persist(Durability::Sync));
}

/// Writes a copy of the store to a directory that does not exist.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_checkpoint<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
    path: JString<'l>,
) {
    call(&mut env, |env| {
        let path = text(env, &path)?;
        Ok(table::store(number(store))?.db.checkpoint(path)?)
    });
}

/// Counts and sizes, as JSON.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_stats<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) -> JString<'l> {
    call(&mut env, |env| {
        let json = table::store(number(store))?.db.stats().to_json();
        env.new_string(json).of_vm()
    })
}

/// The store as it is now.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_gabion_Native_snapshot<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    store: jlong,
) -> jlong {
    call(&mut env, |_| {
        let open = table::store(number(store))?;
        let reader = Reader::Snapshot(open.db.snapshot());
        Ok(handle(table::add_view(number(store), reader)?))
    })
}
