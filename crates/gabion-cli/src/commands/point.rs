//! `get`, `put`, `merge` and `del`: one key.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use gabion::{Db, Keyspace, Options};

use crate::args::{DelArguments, GetArguments, MergeArguments, NotationArguments, PutArguments};
use crate::escape::{escaped, hex, unhex};
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

/// The bytes that an argument stands for.
pub(crate) fn bytes_of(text: &OsStr, notation: NotationArguments) -> Result<Vec<u8>, Failure> {
    match notation.hex {
        true => unhex(text.as_bytes()).map_err(Failure::usage),
        false => Ok(text.as_bytes().to_vec()),
    }
}

/// How the output shows `bytes`.
pub(crate) fn text_of(bytes: &[u8], notation: NotationArguments) -> String {
    match notation.hex {
        true => hex(bytes),
        false => escaped(bytes),
    }
}

/// Prints the value of a key.
pub(crate) fn get(arguments: &GetArguments, output: &mut Output) -> Result<(), Failure> {
    let key = bytes_of(&arguments.key, arguments.notation)?;
    let db = store::open_reading(&arguments.store.db)?;
    let keyspace = store::existing_keyspace(&db, &arguments.store)?;
    let Some(value) = keyspace.get(&key)? else {
        return Err(Failure::new(format!(
            "the store has no key {}",
            text_of(&key, arguments.notation)
        )));
    };
    match arguments.raw {
        _ if arguments.ttl => output.line(&ttl_of(&db, &keyspace, &key)?)?,
        _ if arguments.number => output.line(&number_of(&value)?.to_string())?,
        true => output.bytes(&value)?,
        false => output.line(&text_of(&value, arguments.notation))?,
    }
    Ok(db.close()?)
}

/// The number that a value is.
fn number_of(value: &[u8]) -> Result<i64, Failure> {
    let number = <[u8; 8]>::try_from(value);
    let number = number.map_err(|_| {
        let len = value.len();
        Failure::new(format!("the value has {len} bytes, and a number has 8"))
    })?;
    Ok(i64::from_le_bytes(number))
}

/// How many seconds are left until the value of a key expires.
fn ttl_of(db: &Db, keyspace: &Keyspace, key: &[u8]) -> Result<String, Failure> {
    if !db.engine().capabilities().expiry {
        return Ok("never".to_owned());
    }
    let at = keyspace.expires_at(key)?;
    let left = |at: SystemTime| at.duration_since(SystemTime::now()).unwrap_or_default();
    Ok(at.map_or("never".to_owned(), |at| left(at).as_secs().to_string()))
}

/// Gives a key a value.
pub(crate) fn put(arguments: &PutArguments) -> Result<(), Failure> {
    let key = bytes_of(&arguments.key, arguments.notation)?;
    let value = bytes_of(&arguments.value, arguments.notation)?;
    let durability = arguments.durability.durability;
    let options = arguments.make.options()?.durability(durability);
    let db = options.open(&arguments.store.db)?;
    let keyspace = store::keyspace(&db, &arguments.store)?;
    match arguments.ttl.ttl() {
        Some(ttl) => keyspace.put_expiring(&key, &value, ttl)?,
        None => keyspace.put(&key, &value)?,
    }
    Ok(db.close()?)
}

/// Merges an operand into the value of a key.
pub(crate) fn merge(arguments: &MergeArguments) -> Result<(), Failure> {
    let key = bytes_of(&arguments.key, arguments.notation)?;
    let operand = match arguments.number {
        true => {
            let text = arguments.operand.to_string_lossy();
            let number = text.parse::<i64>();
            let number = number.map_err(|_| Failure::usage(format!("{text} is not a number")))?;
            number.to_le_bytes().to_vec()
        }
        false => bytes_of(&arguments.operand, arguments.notation)?,
    };
    let durability = arguments.durability.durability;
    let options = Options::default().durability(durability);
    let db = store::open_existing(&arguments.store.db, options)?;
    store::existing_keyspace(&db, &arguments.store)?.merge(&key, &operand)?;
    Ok(db.close()?)
}

/// Deletes a key.
pub(crate) fn del(arguments: &DelArguments) -> Result<(), Failure> {
    let key = bytes_of(&arguments.key, arguments.notation)?;
    let durability = arguments.durability.durability;
    let options = Options::default().durability(durability);
    let db = store::open_existing(&arguments.store.db, options)?;
    store::existing_keyspace(&db, &arguments.store)?.delete(&key)?;
    Ok(db.close()?)
}
