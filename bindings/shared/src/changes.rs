//! Changes, flat: every operation has the same fields, as languages without enums of Rust's kind
//! want them, and as they are packed for one crossing.
//!
//! # Layout of a packed change
//! Texts and numbers are as [`packed`](crate::packed) has them.
//!
//! | what | bytes |
//! |---|---|
//! | position | text |
//! | operations | one after the other, to the end |
//!
//! An operation, field by field as [`FlatOperation`] has them:
//!
//! | what | bytes |
//! |---|---|
//! | action | `u8`: see [`ActionKind`] |
//! | what is there | `u8` of bits: 1 name, 2 key, 4 end, 8 value, 16 expiry, 32 base |
//! | number of the keyspace | `u32` |
//! | name, key, end, value | texts, those that are there |
//! | expiry, base | `u64`, those that are there |
//! | pairs | `u64` |
//! | operands | how many `u32`, and so many texts |

use std::sync::Arc;
use std::time::SystemTime;

use gabion::{Change, ChangeAction, MergeBase, Operation, Position, Slice};

use crate::packed::push_text;
use crate::{Code, Failure, Result, unix_millis};

/// What an operation does. The numbers stay as they are for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ActionKind {
    /// The key has the value.
    Put = 1,
    /// The key has no value.
    Delete = 2,
    /// The keys from the key on and below the end have no values.
    DeleteRange = 3,
    /// Operands were merged into the key.
    Merge = 4,
    /// The keyspace was made.
    KeyspaceCreated = 5,
    /// The keyspace was dropped.
    KeyspaceDropped = 6,
    /// Sorted pairs were ingested, from the key to the end, that one included.
    Ingested = 7,
}

impl ActionKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ActionKind::Put => "put",
            ActionKind::Delete => "delete",
            ActionKind::DeleteRange => "delete_range",
            ActionKind::Merge => "merge",
            ActionKind::KeyspaceCreated => "keyspace_created",
            ActionKind::KeyspaceDropped => "keyspace_dropped",
            ActionKind::Ingested => "ingested",
        }
    }
}

/// A change.
pub struct FlatChange {
    /// The position behind it, as text.
    pub position: String,
    /// What it did, in its order.
    pub operations: Vec<FlatOperation>,
}

/// An operation of a change.
pub struct FlatOperation {
    /// What it does.
    pub action: ActionKind,
    /// The number of the keyspace.
    pub keyspace_id: u32,
    /// Its name, if the reader came to know it.
    pub keyspace: Option<Arc<str>>,
    /// The key, the first one of a range, or the smallest one that was ingested.
    pub key: Option<Slice>,
    /// Where a range ends: below this key, or nowhere; the largest key that was ingested.
    pub end: Option<Slice>,
    /// The value of a put; what operands are merged into, if that is a value.
    pub value: Option<Slice>,
    /// When that value expires, in milliseconds since 1970, if it does.
    pub expires_ms: Option<u64>,
    /// Operands are merged into what the key had before the write of this number. If there is none,
    /// into the value, or into nothing.
    pub base: Option<u64>,
    /// How many pairs were ingested.
    pub pairs: u64,
    /// The operands, oldest first.
    pub operands: Vec<Slice>,
}

fn millis(expires: Option<SystemTime>) -> Option<u64> {
    u64::try_from(unix_millis(expires)).ok()
}

fn unknown() -> Failure {
    let why = "the change is of a kind that this binding does not know: use a newer one";
    Failure::Refused(Code::Unsupported, why.to_owned())
}

impl FlatChange {
    /// The same change, flat.
    ///
    /// # Errors
    /// [`Code::Unsupported`] of operations that are newer than this.
    pub fn of(change: Change) -> Result<FlatChange> {
        let operations = change.operations.into_iter().map(FlatOperation::of);
        Ok(FlatChange {
            position: change.position.to_string(),
            operations: operations.collect::<Result<_>>()?,
        })
    }

    /// The change as bytes.
    pub fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        push_text(&mut packed, self.position.as_bytes());
        for operation in &self.operations {
            operation.pack(&mut packed);
        }
        packed
    }
}

impl FlatOperation {
    fn of(operation: Operation) -> Result<FlatOperation> {
        let mut flat = FlatOperation {
            action: ActionKind::KeyspaceCreated,
            keyspace_id: operation.keyspace,
            keyspace: operation.name,
            key: None,
            end: None,
            value: None,
            expires_ms: None,
            base: None,
            pairs: 0,
            operands: Vec::new(),
        };
        flat.action = match operation.action {
            ChangeAction::Put {
                key,
                value,
                expires,
            } => {
                (flat.key, flat.value) = (Some(key), Some(value));
                flat.expires_ms = millis(expires);
                ActionKind::Put
            }
            ChangeAction::Delete { key } => {
                flat.key = Some(key);
                ActionKind::Delete
            }
            ChangeAction::DeleteRange { from, to } => {
                (flat.key, flat.end) = (Some(from), to);
                ActionKind::DeleteRange
            }
            ChangeAction::Merge {
                key,
                base,
                operands,
            } => {
                (flat.key, flat.operands) = (Some(key), operands);
                match base {
                    MergeBase::Before(number) => flat.base = Some(number),
                    MergeBase::Nothing => {}
                    MergeBase::Value(value, expires) => {
                        flat.value = Some(value);
                        flat.expires_ms = millis(expires);
                    }
                    _ => return Err(unknown()),
                }
                ActionKind::Merge
            }
            ChangeAction::KeyspaceCreated => ActionKind::KeyspaceCreated,
            ChangeAction::KeyspaceDropped => ActionKind::KeyspaceDropped,
            ChangeAction::Ingested { pairs, first, last } => {
                (flat.key, flat.end, flat.pairs) = (Some(first), Some(last), pairs);
                ActionKind::Ingested
            }
            _ => return Err(unknown()),
        };
        Ok(flat)
    }

    fn pack(&self, packed: &mut Vec<u8>) {
        let name = self.keyspace.as_ref().map(|name| name.as_bytes());
        let texts = [
            name,
            self.key.as_deref(),
            self.end.as_deref(),
            self.value.as_deref(),
        ];
        let numbers = [self.expires_ms, self.base];
        let there = texts.iter().map(Option::is_some);
        let there = there.chain(numbers.iter().map(Option::is_some)).enumerate();
        let bits = there.fold(0, |bits, (at, is_there)| bits | (u8::from(is_there) << at));
        packed.extend_from_slice(&[self.action as u8, bits]);
        packed.extend_from_slice(&self.keyspace_id.to_le_bytes());
        texts
            .into_iter()
            .flatten()
            .for_each(|text| push_text(packed, text));
        let numbers = numbers.into_iter().flatten().chain([self.pairs]);
        numbers.for_each(|number| packed.extend_from_slice(&number.to_le_bytes()));
        // A record of the log has fewer bytes than a number of 32 bits tells.
        let count = u32::try_from(self.operands.len()).unwrap_or_default();
        packed.extend_from_slice(&count.to_le_bytes());
        let operands = self.operands.iter().take(count as usize);
        operands.for_each(|operand| push_text(packed, operand));
    }
}

/// A position of its text; that in front of all changes for none.
///
/// # Errors
/// [`Code::InvalidArgument`] for what is no position.
pub fn position(text: Option<&str>) -> Result<Position> {
    let parsed = text.map_or(Ok(Position::START), str::parse);
    parsed.map_err(Failure::argument)
}

#[cfg(test)]
mod tests {
    use gabion::{Db, KeyspaceOptions, MergeOperator};

    use super::*;
    use crate::expiry;
    use crate::packed::Unpacked;

    /// What a store tells of a bit of everything.
    fn some_changes(db: &Db) -> Vec<FlatChange> {
        // The flush may not take anything from the log.
        db.consumer("keeper").unwrap();
        let before = db.position().unwrap();
        let own = db.default_keyspace();
        own.put("a", "1").unwrap();
        own.put_expiring("b", "2", expiry(4_102_444_800_000, true))
            .unwrap();
        own.delete("a").unwrap();
        own.delete_range("c".."d").unwrap();
        own.delete_range("c"..).unwrap();
        let operator = MergeOperator::built_in("append:,").unwrap();
        let options = KeyspaceOptions::default().merge(operator);
        let lists = db.keyspace_with("lists", &options).unwrap();
        lists.put("k", "0").unwrap();
        db.flush().unwrap();
        lists.merge("k", "1").unwrap();
        lists.ingest([("x", "1"), ("y", "2")]).unwrap();
        db.drop_keyspace("lists").unwrap();
        let changes = db.changes(before).unwrap();
        let flat = changes.map(|change| FlatChange::of(change.unwrap()).unwrap());
        flat.collect()
    }

    #[test]
    fn changes_are_told_field_by_field() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let changes = some_changes(&db);
        let operations: Vec<_> = changes.iter().flat_map(|own| &own.operations).collect();
        let names: Vec<_> = operations.iter().map(|own| own.action.name()).collect();
        let expected = [
            "put",
            "put",
            "delete",
            "delete_range",
            "delete_range",
            "keyspace_created",
            "put",
            "merge",
            "ingested",
            "keyspace_dropped",
        ];
        assert_eq!(names, expected);
        assert_eq!(operations[1].value.as_deref(), Some(&b"2"[..]));
        assert_eq!(operations[1].expires_ms, Some(4_102_444_800_000));
        assert_eq!(operations[3].end.as_deref(), Some(&b"d"[..]));
        assert_eq!(operations[4].end, None);
        assert_eq!(operations[5].keyspace.as_deref(), Some("lists"));
        assert!(operations[7].base.is_some() && operations[7].value.is_none());
        assert_eq!(operations[7].operands, [Slice::new(b"1")]);
        assert_eq!(operations[8].pairs, 2);
        let last = position(Some(&changes.last().unwrap().position)).unwrap();
        assert_eq!(last.number(), db.position().unwrap().number());
    }

    /// Reads what was packed, and holds it to the change.
    #[test]
    fn what_is_packed_is_read_by_the_layout() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        for change in some_changes(&db) {
            let bytes = change.pack();
            let mut packed = Unpacked::new(&bytes);
            assert_eq!(packed.text().unwrap(), change.position.as_bytes());
            for own in &change.operations {
                let head = packed.take(2).unwrap();
                assert_eq!(head[0], own.action as u8);
                assert_eq!(packed.number().unwrap(), own.keyspace_id);
                let name = own.keyspace.as_ref().map(|name| name.as_bytes());
                let texts = [
                    name,
                    own.key.as_deref(),
                    own.end.as_deref(),
                    own.value.as_deref(),
                ];
                for (at, text) in texts.into_iter().enumerate() {
                    let read = (head[1] & (1 << at) != 0).then(|| packed.text().unwrap());
                    assert_eq!(read, text);
                }
                for (at, number) in [(4, own.expires_ms), (5, own.base)] {
                    let read = (head[1] & (1 << at) != 0).then(|| packed.long().unwrap());
                    assert_eq!(read, number);
                }
                assert_eq!(packed.long().unwrap(), own.pairs);
                assert_eq!(packed.number().unwrap() as usize, own.operands.len());
                for operand in &own.operands {
                    assert_eq!(packed.text().unwrap(), &**operand);
                }
            }
            assert!(packed.is_empty());
        }
    }

    #[test]
    fn positions_are_text() {
        assert_eq!(position(None).unwrap(), Position::START);
        assert_eq!(position(Some("1.0.7")).unwrap().number(), 7);
        let failure = position(Some("soon")).unwrap_err();
        assert_eq!(failure.code(), Code::InvalidArgument);
    }
}
