//! A copy of a store in another one, which follows it by its changes.
//!
//! How far the copy is stands in it, and is written in the same batch as what was copied: whenever
//! either process ends, the next one goes on behind that, and does nothing twice or not at all.
//! The store is read as a follower reads it, while another process writes to it.
//!
//! What the log does not have is read from the store itself: merges, whose values nobody has
//! looked up, and pairs that were ingested. They may be newer than the place in the log; what made
//! them newer comes later in the log.
//!
//! `cargo run --example replica STORE COPY [once]`

use std::ops::Bound;
use std::time::Duration;

use gabion::{
    Change, ChangeAction, DEFAULT_KEYSPACE, Db, Error, Keyspace, Operation, Options, Position,
    WriteBatch,
};

/// Pairs of a batch while all of the store is copied.
const BATCH_PAIRS: u32 = 1_000;

struct Replica {
    source: Db,
    copy: Db,
    /// Has under the empty key how far the copy is, if it is whole.
    notes: Keyspace,
}

impl Replica {
    fn open(source: &str, copy: &str) -> gabion::Result<Replica> {
        let copy = Db::open(copy)?;
        Ok(Replica {
            source: Options::default().follower(true).open(source)?,
            notes: copy.reserved_keyspace("replica")?,
            copy,
        })
    }

    /// How far the copy is; `None` if it is not whole.
    fn position(&self) -> gabion::Result<Option<Position>> {
        let bytes = self.notes.get("")?;
        let bytes = bytes.and_then(|bytes| <[u8; 16]>::try_from(&bytes[..]).ok());
        Ok(bytes.map(Position::from_bytes))
    }

    /// Copies all that the store has now.
    fn copy_all(&self) -> gabion::Result<Position> {
        self.notes.delete("")?;
        for name in self.copy.keyspace_names() {
            match name == DEFAULT_KEYSPACE {
                true => self.copy.default_keyspace().delete_range::<&[u8]>(..)?,
                false => self.copy.drop_keyspace(&name)?,
            }
        }
        let (position, snapshot) = (self.source.position()?, self.source.snapshot());
        for name in self.source.keyspace_names() {
            let (from, to) = (
                self.source.existing_keyspace(&name)?,
                self.copy.keyspace(&name)?,
            );
            let (mut batch, mut pairs) = (WriteBatch::new(), 0);
            for pair in snapshot.iter(&from) {
                let (key, value) = pair?;
                batch.put(&to, &key, &value)?;
                pairs += 1;
                if pairs % BATCH_PAIRS == 0 {
                    self.copy.write(std::mem::take(&mut batch))?;
                }
            }
            self.copy.write(&batch)?;
        }
        let position = position.after(&snapshot);
        self.notes.put("", position.to_bytes())?;
        Ok(position)
    }

    /// Copies all changes that the store has behind a position; returns the position behind them.
    fn follow(&self, since: Position) -> gabion::Result<Position> {
        self.source.catch_up()?;
        let mut changes = self.source.changes(since)?;
        for change in &mut changes {
            self.apply(&change?)?;
        }
        Ok(changes.position())
    }

    fn apply(&self, change: &Change) -> gabion::Result<()> {
        let mut batch = WriteBatch::new();
        for operation in &change.operations {
            // What a keyspace had that is not known any more went with it.
            if let Some(name) = operation.name.as_deref()
                && !name.starts_with("gabion.")
            {
                self.add(&mut batch, name, operation)?;
            }
        }
        batch.put(&self.notes, "", change.position.to_bytes())?;
        self.copy.write(&batch)
    }

    fn add(&self, batch: &mut WriteBatch, name: &str, operation: &Operation) -> gabion::Result<()> {
        if operation.action == ChangeAction::KeyspaceDropped {
            return match self.copy.drop_keyspace(name) {
                Err(Error::NoSuchKeyspace { .. }) => Ok(()),
                dropped => dropped,
            };
        }
        let to = self.copy.keyspace(name)?;
        match &operation.action {
            ChangeAction::Put { key, value, .. } => batch.put(&to, key, value),
            ChangeAction::Delete { key } => batch.delete(&to, key),
            ChangeAction::DeleteRange { from, to: end } => {
                let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                batch.delete_range::<&[u8]>(&to, (Bound::Included(&**from), end))
            }
            ChangeAction::Merge { key, .. } => self.look_up(batch, (name, &to), key, key),
            ChangeAction::Ingested { first, last, .. } => {
                self.look_up(batch, (name, &to), first, last)
            }
            _ => Ok(()),
        }
    }

    /// Adds what the store has now of the keys from `first` to `last`.
    fn look_up(
        &self,
        batch: &mut WriteBatch,
        (name, to): (&str, &Keyspace),
        first: &[u8],
        last: &[u8],
    ) -> gabion::Result<()> {
        let from = match self.source.existing_keyspace(name) {
            Err(Error::NoSuchKeyspace { .. }) => return Ok(()),
            found => found?,
        };
        let range = (Bound::Included(first), Bound::Included(last));
        batch.delete_range::<&[u8]>(to, range)?;
        for pair in from.range::<&[u8]>(range) {
            let (key, value) = pair?;
            batch.put(to, key, value)?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut directory = |usual: &str| arguments.next().unwrap_or_else(|| usual.to_owned());
    let source = directory("target/example-word-index");
    let replica = Replica::open(&source, &directory("target/example-replica"))?;
    let is_once = arguments.next().is_some();
    let mut position = match replica.position()? {
        Some(position) => position,
        None => replica.copy_all()?,
    };
    loop {
        let before = position;
        position = match replica.follow(position) {
            // The log is shorter than the copy was behind.
            Err(Error::ChangesGone { .. } | Error::ChangesUnlogged { .. }) => replica.copy_all()?,
            followed => followed?,
        };
        if position != before {
            println!("at {position}");
        } else if is_once {
            break;
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    replica.copy.close()?;
    println!("the copy is up to date");
    Ok(())
}
