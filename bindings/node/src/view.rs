//! Views: a store as it is now, a snapshot, or a transaction, each with reads and writes.

use std::ops::Bound;

use gabion::{Db, Durability, Keyspace, Slice};
use gabion_bindings::packed::Unpacked;
use gabion_bindings::range::{self, Bounds};
use gabion_bindings::{Code, Failure, Pages, Reader, Result, SharedTransaction, guard};
use napi::Env;
use napi::bindgen_prelude::{BufferSlice, ClassInstance, Either};
use napi_derive::napi;

use crate::failures::call;
use crate::job::{Bytes, Promised, promise};
use crate::packed::Answers;
use crate::pairs::Pairs;
use crate::snapshot::Snapshot;

/// Bits that say what a range has, and how it is read. They are in `range.js` as well.
pub mod flags {
    /// It has a lower bound.
    pub const LOWER: u32 = 1;
    /// The lower bound is not part of it.
    pub const LOWER_EXCLUDED: u32 = 2;
    /// It has an upper bound.
    pub const UPPER: u32 = 4;
    /// The upper bound is not part of it.
    pub const UPPER_EXCLUDED: u32 = 8;
    /// It is read from its end.
    pub const REVERSE: u32 = 16;
    /// Keys are wanted.
    pub const KEYS: u32 = 32;
    /// Values are wanted.
    pub const VALUES: u32 = 64;
    /// What is written is to be on the medium.
    pub const SYNC: u32 = 128;
}

/// The bounds of a range.
pub(crate) fn bounds(bits: u32, lower: &[u8], upper: &[u8]) -> Bounds {
    let bound = |key: &[u8], has: u32, is_excluded: u32| match (bits & has, bits & is_excluded) {
        (0, _) => Bound::Unbounded,
        (_, 0) => Bound::Included(key.to_vec()),
        _ => Bound::Excluded(key.to_vec()),
    };
    (
        bound(lower, flags::LOWER, flags::LOWER_EXCLUDED),
        bound(upper, flags::UPPER, flags::UPPER_EXCLUDED),
    )
}

/// What reads and writes.
#[napi]
pub struct View {
    inner: Inner,
}

/// What a view and its jobs have of the store.
#[derive(Clone)]
pub(crate) struct Inner {
    pub(crate) db: Db,
    pub(crate) keyspace: Keyspace,
    pub(crate) transaction: Option<SharedTransaction>,
}

type GivenSnapshot<'a> = Option<ClassInstance<'a, Snapshot>>;

impl View {
    pub(crate) fn new(db: Db, transaction: Option<SharedTransaction>) -> View {
        let keyspace = db.default_keyspace().clone();
        View {
            inner: Inner {
                db,
                keyspace,
                transaction,
            },
        }
    }

    fn reader(&self, snapshot: &GivenSnapshot<'_>) -> Result<Reader> {
        match (&self.inner.transaction, snapshot) {
            (Some(_), Some(_)) => Err(Failure::argument(
                "a transaction reads at a moment of its own and takes no snapshot",
            )),
            (Some(transaction), None) => Ok(Reader::Transaction(transaction.clone())),
            (None, Some(snapshot)) => snapshot.reader(),
            (None, None) => Ok(Reader::Live),
        }
    }
}

#[napi]
impl View {
    /// The values of keys, or empty ones for `is_presence`.
    #[napi]
    pub fn read(
        &self,
        env: &Env,
        keys: BufferSlice<'_>,
        is_presence: bool,
        snapshot: GivenSnapshot<'_>,
    ) -> napi::Result<Promised<Bytes>> {
        let reader = call(env, || self.reader(&snapshot))?;
        let (inner, keys) = (self.inner.clone(), keys.to_vec());
        Ok(promise(move || {
            let keys = Unpacked::new(&keys).texts()?;
            Ok(Bytes(
                inner.answers(&reader, &keys, is_presence).into_bytes(),
            ))
        }))
    }

    /// The value of a key, at once.
    #[napi]
    pub fn get_sync<'a>(
        &self,
        env: &'a Env,
        key: BufferSlice<'_>,
        is_text: bool,
        snapshot: GivenSnapshot<'_>,
    ) -> napi::Result<Option<Either<String, BufferSlice<'a>>>> {
        let found = call(env, || {
            let keyspace = &self.inner.keyspace;
            self.reader(&snapshot)?.get(keyspace, key.as_ref())
        })?;
        Ok(match found {
            None => None,
            Some(value) if is_text => Some(Either::A(String::from_utf8_lossy(&value).into_owned())),
            Some(value) => Some(Either::B(BufferSlice::copy_from(env, &*value)?)),
        })
    }

    /// Writes units, in their order. Answers nothing, or an answer to each if one of them failed.
    #[napi]
    pub fn write(&self, units: BufferSlice<'_>, is_sync: bool) -> Promised<Option<Bytes>> {
        let (inner, units) = (self.inner.clone(), units.to_vec());
        promise(move || inner.write_units(&units, is_sync))
    }

    /// Deletes the keys of a range: up to `limit` of those that a reader sees, or simply all.
    #[napi]
    pub fn clear(
        &self,
        env: &Env,
        bits: u32,
        lower: BufferSlice<'_>,
        upper: BufferSlice<'_>,
        limit: Option<u32>,
        snapshot: GivenSnapshot<'_>,
    ) -> napi::Result<Promised<()>> {
        let reader = call(env, || self.reader(&snapshot))?;
        let bounds = bounds(bits, &lower, &upper);
        let inner = self.inner.clone();
        let is_reversed = bits & flags::REVERSE != 0;
        let is_sync = bits & flags::SYNC != 0;
        Ok(promise(move || match (limit, &reader) {
            (None, Reader::Live | Reader::Transaction(_)) => inner.delete_range(bounds, is_sync),
            (Some(_), Reader::Live) => {
                let reader = Reader::now(&inner.db);
                inner.delete_read(reader, bounds, is_reversed, limit, is_sync)
            }
            _ => inner.delete_read(reader, bounds, is_reversed, limit, is_sync),
        }))
    }

    /// The pairs of a range, as they are now, at a moment, or for a transaction.
    #[napi]
    pub fn pairs(
        &self,
        env: &Env,
        bits: u32,
        lower: BufferSlice<'_>,
        upper: BufferSlice<'_>,
        snapshot: GivenSnapshot<'_>,
    ) -> napi::Result<Pairs> {
        call(env, || {
            let reader = match self.reader(&snapshot) {
                Ok(Reader::Live) => Reader::now(&self.inner.db),
                Ok(reader) => reader,
                Err(failure) if failure.code() == Code::Closed => return Ok(Pairs::closed()),
                Err(failure) => return Err(failure),
            };
            let bounds = bounds(bits, &lower, &upper);
            let inner = &self.inner;
            let is_reversed = bits & flags::REVERSE != 0;
            let pages = Pages::new(&inner.db, &inner.keyspace, reader, bounds, is_reversed);
            Ok(Pairs::new(pages, bits))
        })
    }

    /// Brings a range into the best order that the engine knows.
    #[napi]
    pub fn compact(
        &self,
        bits: u32,
        lower: BufferSlice<'_>,
        upper: BufferSlice<'_>,
    ) -> Promised<()> {
        let bounds = bounds(bits, &lower, &upper);
        let keyspace = self.inner.keyspace.clone();
        promise(move || match range::is_empty(&bounds) {
            true => Ok(()),
            false => Ok(keyspace.compact::<Vec<u8>>(bounds)?),
        })
    }

    /// Commits the transaction.
    #[napi]
    pub fn commit(&self, is_sync: bool) -> Promised<()> {
        let transaction = self.inner.transaction.clone();
        promise(move || match transaction {
            Some(transaction) => transaction.commit(durability(is_sync)),
            None => Err(Failure::Ended),
        })
    }

    /// Ends the transaction without an effect, if it is open.
    #[napi]
    pub fn rollback(&self) -> Promised<()> {
        let transaction = self.inner.transaction.clone();
        promise(move || {
            transaction.map(|transaction| transaction.rollback());
            Ok(())
        })
    }
}

/// What is asked for beyond what the store does for each write.
pub(crate) fn durability(is_sync: bool) -> Option<Durability> {
    is_sync.then_some(Durability::Sync)
}

impl Inner {
    /// What is there of each key.
    fn answers(&self, reader: &Reader, keys: &[&[u8]], is_presence: bool) -> Answers {
        let mut answers = Answers::of(keys.len());
        // Who asks for several keys gets them of one moment, unless one of them cannot be read.
        if !is_presence
            && keys.len() > 1
            && let Ok(values) = guard(|| reader.multi_get(&self.keyspace, keys))
        {
            for value in values {
                answers.add(value.as_deref());
            }
            return answers;
        }
        for key in keys {
            let found = guard(|| match is_presence {
                true => Ok(reader
                    .contains(&self.keyspace, key)?
                    .then(|| Slice::new(&[]))),
                false => reader.get(&self.keyspace, key),
            });
            match found {
                Ok(value) => answers.add(value.as_deref()),
                Err(failure) => answers.add_failure(&failure),
            }
        }
        answers
    }
}
