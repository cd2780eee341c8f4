//! `changes`: the change stream of a store.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gabion::{
    Change, ChangeAction, Changes, Consumer, Db, Error, MergeBase, Operation, Options, Position,
};
use serde_json::{Map, Value, json};

use super::point::text_of;
use crate::args::NotationArguments;
use crate::args::changes::ChangesArguments;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::stopped_by_signals;
use crate::store;

/// Changes between two acknowledgments of a consumer, each of which is a sync.
const ACKNOWLEDGED_AFTER: u64 = 10_000;

/// How long nothing is looked for where nothing was found.
const PAUSE: Duration = Duration::from_millis(50);

/// Prints the changes that the arguments ask for.
pub(crate) fn run(arguments: &ChangesArguments, output: &mut Output) -> Result<(), Failure> {
    let (db, consumer) = match &arguments.consumer {
        None if arguments.follow => (store::open_following(&arguments.db)?, None),
        None => (store::open_reading(&arguments.db)?, None),
        Some(name) => {
            let db = store::open_existing(&arguments.db, Options::default())?;
            let consumer = db.consumer(name)?;
            (db, Some(consumer))
        }
    };
    let changes = match &consumer {
        None => first(&db, arguments)?,
        Some(consumer) => consumer.changes()?,
    };
    let printed = match arguments.follow {
        true => follow(&db, changes, consumer.as_ref(), arguments, output),
        false => Printer::new(changes, consumer.as_ref(), arguments).print(output),
    };
    db.close()?;
    printed.map(drop)
}

fn first(db: &Db, arguments: &ChangesArguments) -> Result<Changes, Error> {
    match arguments.from {
        Some(position) => db.changes(position),
        None => db.changes(db.oldest_position()?),
    }
}

/// Prints what there is, and what comes, until a signal or the limit.
fn follow(
    db: &Db,
    changes: Changes,
    consumer: Option<&Consumer>,
    arguments: &ChangesArguments,
    output: &mut Output,
) -> Result<bool, Failure> {
    let stop = stopped_by_signals()?;
    let mut printer = Printer::new(changes, consumer, arguments);
    loop {
        db.catch_up()?;
        if printer.print(output)? {
            return Ok(true);
        }
        output.flush()?;
        // ORDER: Relaxed; nothing else depends on it.
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Prints changes as they come.
struct Printer<'a> {
    changes: Changes,
    consumer: Option<&'a Consumer>,
    arguments: &'a ChangesArguments,
    printed: u64,
    /// How many of them the consumer has acknowledged.
    acknowledged: u64,
}

impl<'a> Printer<'a> {
    fn new(
        changes: Changes,
        consumer: Option<&'a Consumer>,
        arguments: &'a ChangesArguments,
    ) -> Printer<'a> {
        Printer {
            changes,
            consumer,
            arguments,
            printed: 0,
            acknowledged: 0,
        }
    }

    /// Prints what is there now; whether no more is to be printed.
    fn print(&mut self, output: &mut Output) -> Result<bool, Failure> {
        let limit = self.arguments.limit.unwrap_or(u64::MAX);
        let mut position = self.changes.position();
        let mut result = Ok(());
        while self.printed < limit {
            let change = match self.changes.next() {
                None => break,
                Some(Ok(change)) => change,
                Some(Err(error)) => {
                    result = Err(error.into());
                    break;
                }
            };
            match self.arguments.json {
                true => output.json_text(&as_json(&change, self.arguments.notation).to_string())?,
                false => print_lines(&change, self.arguments.notation, output)?,
            }
            position = change.position;
            self.printed += 1;
            if self.printed - self.acknowledged >= ACKNOWLEDGED_AFTER {
                self.acknowledge(position, output)?;
            }
        }
        if self.printed > self.acknowledged {
            self.acknowledge(position, output)?;
        }
        result.map(|()| self.printed >= limit)
    }

    /// The consumer has had what was printed.
    fn acknowledge(&mut self, position: Position, output: &mut Output) -> Result<(), Failure> {
        self.acknowledged = self.printed;
        let Some(consumer) = self.consumer else {
            return Ok(());
        };
        output.flush()?;
        Ok(consumer.acknowledge(position)?)
    }
}

fn print_lines(
    change: &Change,
    notation: NotationArguments,
    output: &mut Output,
) -> Result<(), Failure> {
    for operation in &change.operations {
        let mut line = format!("{}\t{}", change.position, name_of(operation));
        for (at, (name, field)) in fields(operation, notation).into_iter().enumerate() {
            line.push('\t');
            let text = match field {
                Value::String(text) => text,
                Value::Array(operands) => {
                    let operands = operands.iter().filter_map(Value::as_str);
                    operands.collect::<Vec<_>>().join(",")
                }
                other => other.to_string(),
            };
            // Of the fields behind what was done, key and value speak for themselves.
            if at > 0 && !["key", "value"].contains(&name) {
                line.push_str(name);
                line.push('=');
            }
            line.push_str(&text);
        }
        output.line(&line)?;
    }
    Ok(())
}

/// The keyspace's name, or its number where it has gone.
fn name_of(operation: &Operation) -> String {
    match &operation.name {
        Some(name) => escaped(name.as_bytes()),
        None => format!("#{}", operation.keyspace),
    }
}

fn as_json(change: &Change, notation: NotationArguments) -> Value {
    let operations = change.operations.iter().map(|operation| {
        let mut object = Map::new();
        object.insert("keyspace".to_owned(), json!(operation.name.as_deref()));
        object.insert("keyspace_id".to_owned(), json!(operation.keyspace));
        let fields = fields(operation, notation).into_iter();
        object.extend(fields.map(|(name, field)| (name.to_owned(), field)));
        Value::Object(object)
    });
    json!({
        "position": change.position.to_string(),
        "number": change.position.number(),
        "operations": operations.collect::<Vec<_>>(),
    })
}

/// What was done, and to what.
fn fields(operation: &Operation, notation: NotationArguments) -> Vec<(&'static str, Value)> {
    let text = |bytes: &[u8]| Value::from(text_of(bytes, notation));
    let action = |name: &str| ("action", Value::from(name));
    let expiry = |expires: &Option<SystemTime>| {
        let moment = (*expires).map(millis_of);
        moment.map(|moment| ("expires_ms", moment))
    };
    match &operation.action {
        ChangeAction::Put {
            key,
            value,
            expires,
        } => {
            let mut fields = vec![action("put"), ("key", text(key)), ("value", text(value))];
            fields.extend(expiry(expires));
            fields
        }
        ChangeAction::Delete { key } => vec![action("delete"), ("key", text(key))],
        ChangeAction::DeleteRange { from, to } => {
            let mut fields = vec![action("delete_range"), ("from", text(from))];
            fields.extend(to.as_ref().map(|to| ("to", text(to))));
            fields
        }
        ChangeAction::Merge {
            key,
            base,
            operands,
        } => {
            let mut fields = vec![action("merge"), ("key", text(key))];
            match base {
                MergeBase::Before(number) => fields.push(("onto_before", json!(number))),
                MergeBase::Value(value, expires) => {
                    fields.push(("onto", text(value)));
                    fields.extend(expiry(expires));
                }
                _ => fields.push(("onto", Value::Null)),
            }
            let operands = operands.iter().map(|operand| text(operand));
            fields.push(("operands", Value::Array(operands.collect())));
            fields
        }
        ChangeAction::KeyspaceCreated => vec![action("keyspace_created")],
        ChangeAction::KeyspaceDropped => vec![action("keyspace_dropped")],
        ChangeAction::Ingested { pairs, first, last } => vec![
            action("ingested"),
            ("pairs", json!(pairs)),
            ("first", text(first)),
            ("last", text(last)),
        ],
        _ => vec![action("unknown")],
    }
}

fn millis_of(time: SystemTime) -> Value {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Value::from(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
