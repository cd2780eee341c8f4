//! `keyspace`: the keyspaces of a store, and their options.

use std::time::Duration;

use gabion::{Db, Keyspace, KeyspaceOptions, Options};
use serde_json::{Value, json};

use crate::args::keyspace::{KeyspaceAction, KeyspaceArguments, ListArguments, SetArguments};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::Output;
use crate::store;

pub(crate) fn run(arguments: &KeyspaceArguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.action {
        KeyspaceAction::List(arguments) => list(arguments, output),
        KeyspaceAction::Create(arguments) => create(arguments, output),
        KeyspaceAction::Set(arguments) => set(arguments, output),
    }
}

fn list(arguments: &ListArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.db, Options::default())?;
    let keyspaces = db.keyspace_names().into_iter();
    let keyspaces: Result<Vec<Keyspace>, _> =
        keyspaces.map(|name| db.existing_keyspace(&name)).collect();
    let keyspaces = keyspaces?;
    if arguments.json {
        output.json(&Value::Array(keyspaces.iter().map(as_json).collect()))?;
    } else {
        for keyspace in &keyspaces {
            output.line(&as_line(keyspace))?;
        }
    }
    drop(keyspaces);
    Ok(db.close()?)
}

fn create(arguments: &SetArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.db, Options::default())?;
    let name = &arguments.keyspace;
    if db.keyspace_names().contains(name) {
        let name = escaped(name.as_bytes());
        return Err(Failure::new(format!(
            "the store has a keyspace {name} already; `gabion keyspace set` changes its options"
        )));
    }
    change(db, arguments, KeyspaceOptions::default(), output)
}

fn set(arguments: &SetArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.db, Options::default())?;
    let before = db.existing_keyspace(&arguments.keyspace)?.options();
    change(db, arguments, before, output)
}

/// Gives a keyspace the options of the arguments on top of those that it has.
fn change(
    db: Db,
    arguments: &SetArguments,
    before: KeyspaceOptions,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut options = match arguments.reset {
        true => KeyspaceOptions::default(),
        false => before,
    };
    options.compression = arguments.compression.or(options.compression);
    options.block_bytes = arguments.block_bytes.or(options.block_bytes);
    let bits = arguments.filter_bits_per_key;
    options.filter_bits_per_key = bits.or(options.filter_bits_per_key);
    let expiry = arguments.default_ttl.map(Duration::from_secs);
    options.default_expiry = expiry.or(options.default_expiry);
    let keyspace = db.keyspace_with(&arguments.keyspace, &options)?;
    match arguments.json {
        true => output.json(&as_json(&keyspace))?,
        false => output.line(&as_line(&keyspace))?,
    }
    drop(keyspace);
    Ok(db.close()?)
}

fn as_json(keyspace: &Keyspace) -> Value {
    let options = keyspace.options();
    json!({
        "name": keyspace.name(),
        "options": {
            "compression": options.compression.map(|own| own.to_string()),
            "block_bytes": options.block_bytes,
            "filter_bits_per_key": options.filter_bits_per_key,
            "default_expiry_ms": options.default_expiry.map(|own| own.as_millis()),
        },
    })
}

fn as_line(keyspace: &Keyspace) -> String {
    let (name, options) = (escaped(keyspace.name().as_bytes()), keyspace.options());
    match options.is_empty() {
        true => name.to_string(),
        false => format!("{name} {options}"),
    }
}
