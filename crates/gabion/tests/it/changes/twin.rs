//! The naive twin of a store's changes: a list of all that was committed, with the store's content
//! after each.

use std::collections::BTreeMap;

use gabion::{Change, ChangeAction, MergeBase, Position};

/// What the keyspaces hold, by their names.
pub(crate) type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// What a store holds.
pub(crate) fn content(db: &gabion::Db) -> Content {
    let names = db.keyspace_names().into_iter();
    let pairs = |name: &str| {
        let pairs = db.existing_keyspace(name).unwrap().iter();
        let pairs = pairs.map(|pair| pair.unwrap());
        pairs
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect::<BTreeMap<_, _>>()
    };
    names.map(|name| (name.clone(), pairs(&name))).collect()
}

/// The keyspace whose values are counters that merges add to.
pub(super) const COUNTERS: &str = "counters";

/// One commit.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// The number of its last write.
    pub(crate) number: u64,
    /// What its operations were, if they come as they were handed in: those with merges need not.
    pub(crate) exact: Option<Vec<(String, Did)>>,
    /// What the store held then.
    pub(crate) content: Content,
}

/// What an operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Put(Vec<u8>, Vec<u8>),
    PutExpiring(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Option<Vec<u8>>),
    Merge(Vec<u8>, i64),
    Made,
    Dropped,
    Ingested(Vec<(Vec<u8>, Vec<u8>)>),
}

impl Written {
    /// Whether a crash may leave it without its record: what became of a keyspace is durable by
    /// itself.
    pub(super) fn is_event(&self) -> bool {
        let exact = self.exact.iter().flatten();
        exact.map(|(_, did)| did).any(Did::is_event)
    }

    /// Whether it has no number of its own.
    pub(super) fn is_made(&self) -> bool {
        let exact = self.exact.iter().flatten();
        exact.map(|(_, did)| did).any(|did| *did == Did::Made)
    }
}

impl Did {
    fn is_event(&self) -> bool {
        matches!(self, Did::Made | Did::Dropped | Did::Ingested(_))
    }

    /// Does it to a content.
    pub(super) fn apply(&self, content: &mut Content, name: &str) {
        match self {
            Did::Made => {
                content.insert(name.to_owned(), BTreeMap::new());
                return;
            }
            Did::Dropped => {
                content.remove(name).expect("a keyspace that is there");
                return;
            }
            _ => {}
        }
        let pairs = content.get_mut(name).expect("a keyspace that is there");
        match self {
            Did::Put(key, value) | Did::PutExpiring(key, value) => {
                pairs.insert(key.clone(), value.clone());
            }
            Did::Delete(key) => drop(pairs.remove(key)),
            Did::DeleteRange(from, to) => {
                pairs.retain(|key, _| key < from || to.as_ref().is_some_and(|to| key >= to))
            }
            Did::Merge(key, by) => {
                let old = pairs.get(key).map_or(0, |value| number(value));
                pairs.insert(key.clone(), (old + by).to_le_bytes().to_vec());
            }
            Did::Ingested(new) => pairs.extend(new.iter().cloned()),
            Did::Made | Did::Dropped => unreachable!("above"),
        }
    }
}

fn number(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("eight bytes"))
}

/// Panics unless a change is what was committed at a place of the list.
pub(super) fn assert_same(
    change: &Change,
    (names, written): (&BTreeMap<u32, String>, &[Written]),
    at: usize,
) {
    let expected = &written[at];
    assert_eq!(
        change.position.number(),
        expected.number,
        "change {at}: its number"
    );
    let mut content = match at.checked_sub(1) {
        Some(before) => written[before].content.clone(),
        None => Content::new(),
    };
    let mut found = Vec::new();
    for operation in &change.operations {
        let known = names.get(&operation.keyspace).map(String::as_str);
        let name = operation
            .name
            .as_deref()
            .or(known)
            .expect("a name")
            .to_owned();
        let did = match &operation.action {
            ChangeAction::Put {
                key,
                value,
                expires,
            } => match expires {
                None => Did::Put(key.to_vec(), value.to_vec()),
                Some(_) => Did::PutExpiring(key.to_vec(), value.to_vec()),
            },
            ChangeAction::Delete { key } => Did::Delete(key.to_vec()),
            ChangeAction::DeleteRange { from, to } => {
                Did::DeleteRange(from.to_vec(), to.as_ref().map(|to| to.to_vec()))
            }
            ChangeAction::Merge {
                key,
                base,
                operands,
            } => {
                let base = match base {
                    MergeBase::Before(before) => {
                        let earlier = written[..at].iter().rev();
                        let mut earlier = earlier.skip_while(|written| written.number >= *before);
                        let content = earlier.next().map(|written| &written.content);
                        let value = content.and_then(|content| content.get(&name)?.get(&**key));
                        value.map_or(0, |value| number(value))
                    }
                    MergeBase::Nothing => 0,
                    MergeBase::Value(value, _) => number(value),
                    other => panic!("{other:?}"),
                };
                let sum = operands.iter().map(|operand| number(operand)).sum::<i64>();
                Did::Put(key.to_vec(), (base + sum).to_le_bytes().to_vec())
            }
            ChangeAction::KeyspaceCreated => Did::Made,
            ChangeAction::KeyspaceDropped => Did::Dropped,
            ChangeAction::Ingested { pairs, first, last } => {
                let Some([(_, Did::Ingested(own))]) = expected.exact.as_deref() else {
                    panic!("change {at}: an ingest that there was not");
                };
                let keys: Vec<_> = own.iter().map(|(key, _)| &key[..]).collect();
                assert_eq!(*pairs, keys.len() as u64);
                assert_eq!((&**first, &**last), (keys[0], keys[keys.len() - 1]));
                Did::Ingested(own.clone())
            }
            other => panic!("{other:?}"),
        };
        did.apply(&mut content, &name);
        found.push((name, did));
    }
    if let Some(exact) = &expected.exact {
        assert_eq!(&found, exact, "change {at}");
    }
    assert_eq!(content, expected.content, "what change {at} leaves");
}

/// What changes were read after a crash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Survived {
    /// Events that were told to be in no log.
    pub(super) unlogged: u64,
    /// Events that will be told so when something else has been written.
    pub(super) pending: u64,
    /// Keyspaces of whose making the log has lost the record.
    pub(super) made_lost: u64,
    pub(super) read: u64,
}

/// Panics unless the changes of a store behind a position, which is behind the first `from` ones of
/// the list, are the rest of it; the store has lost power. Returns what there was.
pub(super) fn assert_rest(
    db: &gabion::Db,
    since: Position,
    (names, written): (&BTreeMap<u32, String>, &[Written]),
    from: usize,
) -> Survived {
    let mut survived = Survived::default();
    let mut at = from;
    let mut changes = db.changes(since).expect("changes");
    loop {
        match changes.next() {
            None => break,
            Some(Ok(change)) => {
                let is_made = matches!(
                    change.operations.first().map(|operation| &operation.action),
                    Some(ChangeAction::KeyspaceCreated)
                );
                while written[at].is_made() && !is_made {
                    survived.made_lost += 1;
                    at += 1;
                }
                assert_same(&change, (names, written), at);
                survived.read += 1;
                at += 1;
            }
            Some(Err(gabion::Error::ChangesUnlogged {
                first,
                last,
                behind,
            })) => {
                while written[at].is_made() {
                    survived.made_lost += 1;
                    at += 1;
                }
                let lost = &written[at];
                assert!(lost.is_event(), "change {at} is in no log: {lost:?}");
                assert_eq!((first, last), (lost.number, lost.number));
                survived.unlogged += 1;
                at += 1;
                changes = db.changes(behind).expect("changes");
            }
            Some(Err(error)) => panic!("change {at}: {error}"),
        }
    }
    // What comes behind it shows that a number is missing.
    while at < written.len() && written[at].is_event() {
        match written[at].is_made() {
            true => survived.made_lost += 1,
            false => survived.pending += 1,
        }
        at += 1;
    }
    assert_eq!(at, written.len(), "changes that were not told");
    survived
}
