//! The table of handles: numbers that Java holds, and the objects that they stand for.
//!
//! # Layout
//! | bits | of a number |
//! |---|---|
//! | 0-31 | the slot |
//! | 32-34 | the [`Kind`] |
//! | 35-62 | how often the slot was used before, from one on |
//!
//! # Invariants
//! - A slot that was used as often as can be counted is left empty for good (J1).
//! - What is removed is dropped outside of the lock: it may wait for a medium.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gabion::{Db, Error, Keyspace};
use gabion_bindings::{Code, Failure, Pages, Reader, Result, SharedTransaction};

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// A [`Store`].
    Store = 1,
    /// A [`StoreKeyspace`].
    Keyspace = 2,
    /// A [`View`] of a snapshot.
    Snapshot = 3,
    /// A [`View`] of a transaction.
    Transaction = 4,
    /// The [`Pages`] of an iterator.
    Pages = 5,
}

/// An open store.
pub struct Store {
    /// The store.
    pub db: Db,
    /// The numbers of its keyspaces, which end with it.
    keyspaces: Mutex<Vec<u64>>,
}

/// A keyspace, and the number of its store.
pub struct StoreKeyspace {
    /// The keyspace.
    pub keyspace: Keyspace,
    /// Its store.
    pub store: u64,
    db: Db,
}

/// What reads, and the number of its store.
pub struct View {
    /// A snapshot or a transaction.
    pub reader: Reader,
    store: u64,
}

#[derive(Clone)]
enum Entry {
    Store(Arc<Store>),
    Keyspace(Arc<StoreKeyspace>),
    View(Arc<View>),
    Pages(Arc<Mutex<Pages>>),
}

/// The most uses of a slot that a number can tell.
const USES_MAX: u64 = (1 << 28) - 1;
const KIND_SHIFT: u32 = 32;
const USES_SHIFT: u32 = 35;

struct Slot {
    /// The number of what is there, or was there last; 0 before the first use.
    number: u64,
    entry: Option<Entry>,
}

struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

static TABLE: RwLock<Table> = RwLock::new(Table {
    slots: Vec::new(),
    free: Vec::new(),
});

impl Kind {
    fn of(number: u64) -> Option<Kind> {
        use Kind::{Keyspace, Pages, Snapshot, Store, Transaction};
        let bits = (number >> KIND_SHIFT) & 7;
        [Store, Keyspace, Snapshot, Transaction, Pages]
            .into_iter()
            .find(|kind| *kind as u64 == bits)
    }

    /// Why nothing is there any more.
    fn closed(self) -> Failure {
        let closed = |what: &str| Failure::Refused(Code::Closed, what.into());
        match self {
            Kind::Store | Kind::Keyspace => Failure::Store(Error::Closed),
            Kind::Snapshot => closed("the snapshot is closed; take another"),
            Kind::Transaction => Failure::Ended,
            Kind::Pages => closed("the iterator is closed; make another"),
        }
    }
}

impl Table {
    fn add(&mut self, kind: Kind, entry: Entry) -> Result<u64> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len());
                self.slots.push(Slot {
                    number: 0,
                    entry: None,
                });
                slot.map_err(|_| {
                    Failure::Refused(
                        Code::Limit,
                        "too many objects are open at once; close some".into(),
                    )
                })?
            }
        };
        let place = &mut self.slots[slot as usize];
        let uses = (place.number >> USES_SHIFT) + 1;
        let number = (uses << USES_SHIFT) | ((kind as u64) << KIND_SHIFT) | u64::from(slot);
        *place = Slot {
            number,
            entry: Some(entry),
        };
        Ok(number)
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let slot = slot_of(number);
        let place = self.slots.get_mut(slot as usize)?;
        let entry = match place.number == number {
            true => place.entry.take()?,
            false => return None,
        };
        if number >> USES_SHIFT < USES_MAX {
            self.free.push(slot);
        }
        Some(entry)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn slot_of(number: u64) -> u32 {
    number as u32
}

fn add(kind: Kind, entry: Entry) -> Result<u64> {
    // Whoever panicked under the lock has changed a slot by one step, or not.
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table.add(kind, entry)
}

fn find(number: u64) -> Result<Entry> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let place = table.slots.get(slot_of(number) as usize);
    let entry = place
        .filter(|place| place.number == number)
        .and_then(|place| place.entry.clone());
    entry.ok_or_else(|| Kind::of(number).map_or_else(unknown, Kind::closed))
}

fn unknown() -> Failure {
    Failure::argument("the handle does not belong to an open object of Gabion")
}

/// Adds a store.
///
/// # Errors
/// [`Code::Limit`] where four thousand million objects are open.
pub fn add_store(db: Db) -> Result<u64> {
    let keyspaces = Mutex::default();
    add(Kind::Store, Entry::Store(Arc::new(Store { db, keyspaces })))
}

/// Adds a keyspace of a store, with which it ends.
///
/// # Errors
/// As [`add_store`].
pub fn add_keyspace(store: u64, keyspace: Keyspace) -> Result<u64> {
    let owner = self::store(store)?;
    let db = owner.db.clone();
    let entry = StoreKeyspace {
        keyspace,
        store,
        db,
    };
    let number = add(Kind::Keyspace, Entry::Keyspace(Arc::new(entry)))?;
    let keyspaces = owner.keyspaces.lock();
    keyspaces
        .unwrap_or_else(PoisonError::into_inner)
        .push(number);
    // A close that came between may not have seen it.
    if self::store(store).is_err() {
        remove(number);
    }
    Ok(number)
}

/// Adds what reads a store.
///
/// # Errors
/// As [`add_store`].
pub fn add_view(store: u64, reader: Reader) -> Result<u64> {
    let kind = match reader {
        Reader::Transaction(_) => Kind::Transaction,
        _ => Kind::Snapshot,
    };
    add(kind, Entry::View(Arc::new(View { reader, store })))
}

/// Adds the pages of an iterator.
///
/// # Errors
/// As [`add_store`].
pub fn add_pages(pages: Pages) -> Result<u64> {
    add(Kind::Pages, Entry::Pages(Arc::new(Mutex::new(pages))))
}

/// The store of a number.
///
/// # Errors
/// [`Code::Closed`]; [`Code::InvalidArgument`] if the number never was one of a store. So for the
/// other kinds, but that of a transaction has [`Failure::Ended`].
pub fn store(number: u64) -> Result<Arc<Store>> {
    match find(number)? {
        Entry::Store(store) => Ok(store),
        _ => Err(unknown()),
    }
}

/// The keyspace of a number.
///
/// # Errors
/// As [`store`].
pub fn keyspace(number: u64) -> Result<Arc<StoreKeyspace>> {
    match find(number)? {
        Entry::Keyspace(keyspace) => Ok(keyspace),
        _ => Err(unknown()),
    }
}

/// The snapshot or transaction of a number.
///
/// # Errors
/// As [`store`].
pub fn view(number: u64) -> Result<Arc<View>> {
    match find(number)? {
        Entry::View(view) => Ok(view),
        _ => Err(unknown()),
    }
}

/// The transaction of a number.
///
/// # Errors
/// As [`store`].
pub fn transaction(number: u64) -> Result<SharedTransaction> {
    match &view(number)?.reader {
        Reader::Transaction(transaction) => Ok(transaction.clone()),
        _ => Err(unknown()),
    }
}

/// The pages of a number.
///
/// # Errors
/// As [`store`].
pub fn pages(number: u64) -> Result<Arc<Mutex<Pages>>> {
    match find(number)? {
        Entry::Pages(pages) => Ok(pages),
        _ => Err(unknown()),
    }
}

/// Forgets a number, with those of its keyspaces if it is one of a store. Calls that are under way
/// go on.
pub fn remove(number: u64) {
    let take = |number| {
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(number)
    };
    if let Some(Entry::Store(store)) = take(number) {
        let keyspaces = store.keyspaces.lock();
        let keyspaces = std::mem::take(&mut *keyspaces.unwrap_or_else(PoisonError::into_inner));
        for keyspace in keyspaces {
            take(keyspace);
        }
    }
}

impl StoreKeyspace {
    /// Its store.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Refuses the keyspace where it is used with something of another store.
    ///
    /// # Errors
    /// [`Code::ForeignKeyspace`].
    pub fn check_of(&self, store: u64) -> Result<()> {
        match self.store == store {
            true => Ok(()),
            false => Err(Failure::Store(Error::ForeignKeyspace {
                keyspace: self.keyspace.name().to_owned(),
            })),
        }
    }
}

impl View {
    /// What reads a keyspace.
    ///
    /// # Errors
    /// [`Code::ForeignKeyspace`] where the keyspace is of another store.
    pub fn of(&self, keyspace: &StoreKeyspace) -> Result<&Reader> {
        keyspace.check_of(self.store)?;
        Ok(&self.reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T>) -> Code {
        result.map(|_| ()).unwrap_err().code()
    }

    #[test]
    fn a_number_is_used_once_and_its_keyspaces_end_with_a_store() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let first = add_store(db.clone()).unwrap();
        let own = add_keyspace(first, db.default_keyspace().clone()).unwrap();
        let held = keyspace(own).unwrap();
        assert_eq!(code(view(own)), Code::InvalidArgument);
        let snapshot = add_view(first, Reader::now(&db)).unwrap();
        assert_eq!(code(transaction(snapshot)), Code::InvalidArgument);
        remove(first);
        remove(first);
        assert_eq!(code(store(first)), Code::Closed);
        assert_eq!(code(keyspace(own)), Code::Closed);
        // Who has it goes on.
        held.keyspace.put("stone", "granite").unwrap();
        let second = add_store(db).unwrap();
        assert_ne!(first, second);
        assert_eq!(
            code(view(snapshot).unwrap().of(&held).map(|_| ()).and(view(9))),
            { Code::InvalidArgument }
        );
        remove(snapshot);
        assert_eq!(code(view(snapshot)), Code::Closed);
        for number in [0, 1, u64::MAX, 1 << 40] {
            assert_eq!(code(store(number)), Code::InvalidArgument, "{number}");
        }
        remove(second);
    }

    #[test]
    fn a_slot_that_cannot_count_on_is_left_empty() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let mut table = Table {
            slots: Vec::new(),
            free: Vec::new(),
        };
        let store = || {
            let keyspaces = Mutex::default();
            Entry::Store(Arc::new(Store {
                db: db.clone(),
                keyspaces,
            }))
        };
        let first = table.add(Kind::Store, store()).unwrap();
        assert!(table.remove(first).is_some() && table.remove(first).is_none());
        table.slots[0].number = (USES_MAX - 1) << USES_SHIFT;
        let last = table.add(Kind::Store, store()).unwrap();
        assert_eq!(last >> USES_SHIFT, USES_MAX);
        assert!(i64::try_from(last).is_ok(), "Java's numbers have a sign");
        assert!(table.remove(last).is_some());
        let other = table.add(Kind::Store, store()).unwrap();
        assert_eq!(slot_of(other), 1);
    }
}
