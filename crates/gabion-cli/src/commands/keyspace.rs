//! `keyspace`: the keyspaces of a store, and their options.

use std::time::Duration;

use gabion::{Db, Error, KeyspaceOptions, Options};
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
    let db = store::open_reading(&arguments.db)?;
    let mut keyspaces = Vec::new();
    for name in db.keyspace_names() {
        keyspaces.push(match db.existing_keyspace(&name) {
            // One whose operator is another program's can be listed all the same.
            Err(Error::OtherMergeOperator { kept, .. }) => (name, Err(kept)),
            keyspace => (name, Ok(keyspace?.options())),
        });
    }
    if arguments.json {
        let all = keyspaces.iter().map(|(name, options)| match options {
            Ok(options) => as_json(name, options),
            Err(operator) => json!({ "name": name, "options": null, "merge": operator }),
        });
        output.json(&Value::Array(all.collect()))?;
    } else {
        for (name, options) in &keyspaces {
            output.line(&match options {
                Ok(options) => as_line(name, options),
                Err(operator) => {
                    let name = escaped(name.as_bytes());
                    format!("{name} merge={operator} (defined by another program)")
                }
            })?;
        }
    }
    Ok(db.close()?)
}

fn create(arguments: &SetArguments, output: &mut Output) -> Result<(), Failure> {
    let db = store::open_existing(&arguments.db, Options::default())?;
    let name = &arguments.keyspace;
    if db.keyspace_names().contains(name) {
        let name = escaped(name.as_bytes());
        return Err(Failure::new(format!(
            "the store already has a keyspace {name}; change the options with `gabion keyspace set`"
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
        true => {
            let mut options = KeyspaceOptions::default();
            options.merge = before.merge;
            options
        }
        false => before,
    };
    options.compression = arguments.compression.or(options.compression);
    options.block_bytes = arguments.block_bytes.or(options.block_bytes);
    let bits = arguments.filter_bits_per_key;
    options.filter_bits_per_key = bits.or(options.filter_bits_per_key);
    let expiry = arguments.default_ttl.map(Duration::from_secs);
    options.default_expiry = expiry.or(options.default_expiry);
    options.merge = arguments.merge.clone().or(options.merge);
    let (name, options) = (
        &arguments.keyspace,
        db.keyspace_with(&arguments.keyspace, &options)?.options(),
    );
    match arguments.json {
        true => output.json(&as_json(name, &options))?,
        false => output.line(&as_line(name, &options))?,
    }
    Ok(db.close()?)
}

fn as_json(name: &str, options: &KeyspaceOptions) -> Value {
    json!({
        "name": name,
        "options": {
            "compression": options.compression.map(|own| own.to_string()),
            "block_bytes": options.block_bytes,
            "filter_bits_per_key": options.filter_bits_per_key,
            "default_expiry_ms": options.default_expiry.map(|own| own.as_millis()),
            "merge": options.merge.as_ref().map(|own| own.name()),
        },
    })
}

fn as_line(name: &str, options: &KeyspaceOptions) -> String {
    let name = escaped(name.as_bytes());
    match options.is_empty() {
        true => name.to_string(),
        false => format!("{name} {options}"),
    }
}
