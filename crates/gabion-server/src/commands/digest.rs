//! Fingerprints of values, for tests: `DEBUG DIGEST` and `DEBUG DIGEST-VALUE`. Equal values have
//! the same one, in whatever form they are kept, and the order of sets and hashes does not matter.

use std::ops::Bound;

use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::execution::Execution;
use crate::fault::Result;
use crate::rdb::{self, Value};
use crate::store::keys::{SPACE_BYTES, after_prefix, space_bytes};
use crate::store::meta::KeyRecord;
use crate::store::work::Room;

use super::dump::value_of;

/// The fingerprint of nothing, as forty digits.
const DIGITS: usize = 40;

fn of(value: &Value) -> u128 {
    let whole = |value: Value| xxh3_128_with_seed(&rdb::write(&value), 0);
    // A sum does not depend on the order.
    let sum = |parts: &mut dyn Iterator<Item = Value>| parts.map(whole).fold(0, u128::wrapping_add);
    match value {
        Value::String(_) | Value::List(_) | Value::Stream(_) => whole(value.clone()),
        Value::Set(members) => sum(&mut members
            .iter()
            .map(|member| Value::Set(vec![member.clone()]))),
        Value::SortedSet(members) => sum(&mut members
            .iter()
            .map(|member| Value::SortedSet(vec![member.clone()]))),
        Value::Hash(fields) => {
            sum(&mut fields.iter().map(|field| Value::Hash(vec![field.clone()])))
        }
    }
}

fn of_record(execution: &mut Execution<'_>, meta: &KeyRecord) -> Result<u128> {
    let space = execution.space();
    let value = of(&value_of(execution.work, space, meta)?);
    let moment = meta.head.expires_ms.unwrap_or_default();
    Ok(value ^ u128::from(moment) << 64)
}

/// `DEBUG DIGEST-VALUE key...`
pub(super) fn digest_value(execution: &mut Execution<'_>) -> Result<()> {
    let keys = execution.args.from(2);
    execution.reply.array(keys.len());
    for key in keys.iter() {
        let digest = match execution.find(key)? {
            Some(meta) => of_record(execution, &meta)?,
            None => 0,
        };
        execution.reply.bulk(format!("{digest:0DIGITS$x}"));
    }
    Ok(())
}

/// `DEBUG DIGEST`: of all keys of all databases.
pub(super) fn digest(execution: &mut Execution<'_>) -> Result<()> {
    let selected = execution.session.database;
    let mut all = 0_u128;
    let mut failed = Ok(());
    for database in 0..execution.server.store.databases() {
        execution.session.database = database;
        match of_database(execution) {
            Ok(digest) => all = all.wrapping_add(digest),
            Err(fault) => failed = Err(fault),
        }
    }
    execution.session.database = selected;
    failed?;
    execution.reply.simple(&format!("{all:0DIGITS$x}"));
    Ok(())
}

fn of_database(execution: &mut Execution<'_>) -> Result<u128> {
    let space = space_bytes(execution.space());
    let seed = execution.session.database as u64;
    let end = after_prefix(&space);
    let mut sum = 0_u128;
    let mut from = space.to_vec();
    loop {
        let lower = Bound::Included(from.as_slice());
        let mut pairs = execution.work.range(Room::Keys, lower, end.as_deref())?;
        let Some((key, record)) = pairs.next().transpose()? else {
            return Ok(sum);
        };
        drop(pairs);
        let meta = KeyRecord::read(record)?;
        if meta.is_live(execution.now_ms()) {
            let user_key = key.get(SPACE_BYTES..).unwrap_or_default();
            let value = of_record(execution, &meta)?;
            let both = [user_key, &value.to_le_bytes()].concat();
            sum = sum.wrapping_add(xxh3_128_with_seed(&both, seed));
        }
        from.clear();
        from.extend_from_slice(&key);
        from.push(0);
    }
}
