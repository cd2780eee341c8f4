//! An ingest that another language holds from call to call.
//!
//! The facade's [`Ingest`] borrows its keyspace. Here both are in one place.
//!
//! # Invariants
//! - O1. The keyspace stays where it is as long as the ingest lives: it is behind a counted
//!   reference that nobody else has, and is dropped after the ingest.

use std::sync::Arc;

use gabion::{Ingest, Keyspace};

use crate::Result;

/// An ingest of sorted pairs, and the keyspace that it goes to.
pub struct OwnedIngest {
    /// Of the keyspace below, so it is dropped first (O1).
    ingest: Ingest<'static>,
    _keyspace: Arc<Keyspace>,
}

impl OwnedIngest {
    /// Begins an ingest.
    ///
    /// # Errors
    /// As [`Keyspace::begin_ingest`].
    pub fn begin(keyspace: &Keyspace) -> Result<OwnedIngest> {
        let keyspace = Arc::new(keyspace.clone());
        // SAFETY: the keyspace lies behind a counted reference, which goes nowhere before the
        // ingest is dropped (O1), and nothing changes a keyspace.
        let lent: &'static Keyspace = unsafe { &*Arc::as_ptr(&keyspace) };
        Ok(OwnedIngest {
            ingest: lent.begin_ingest()?,
            _keyspace: keyspace,
        })
    }

    /// Adds a pair, whose key is above the one before.
    ///
    /// # Errors
    /// As [`Ingest::put`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.ingest.put(key, value)?)
    }

    /// Adds all pairs to the keyspace, durably, and returns their number.
    ///
    /// # Errors
    /// As [`Ingest::finish`].
    pub fn finish(self) -> Result<u64> {
        Ok(self.ingest.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use gabion::{Db, Options};

    use super::*;
    use crate::Code;

    #[test]
    fn an_ingest_goes_from_hand_to_hand_and_outlives_other_handles() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let mut ingest = OwnedIngest::begin(&db.keyspace("stones").unwrap()).unwrap();
        drop(db);
        ingest.put(b"basalt", b"black").unwrap();
        let ingest = std::thread::spawn(move || {
            let mut ingest = ingest;
            ingest.put(b"chalk", b"white").unwrap();
            ingest
        });
        let ingest = Box::new(ingest.join().unwrap());
        assert_eq!(ingest.finish().unwrap(), 2);
        let db = Db::open(dir.path()).unwrap();
        let stones = db.keyspace("stones").unwrap();
        assert_eq!(stones.get("chalk").unwrap().as_deref(), Some(&b"white"[..]));
    }

    #[test]
    fn what_ends_an_ingest_is_told_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let mut ingest = OwnedIngest::begin(db.default_keyspace()).unwrap();
        ingest.put(b"b", b"").unwrap();
        for key in ["a", "c"] {
            let failure = ingest.put(key.as_bytes(), b"").unwrap_err();
            assert_eq!(failure.code(), Code::OutOfOrder, "{key}");
        }
        assert_eq!(ingest.finish().unwrap_err().code(), Code::OutOfOrder);
        let mut left = OwnedIngest::begin(db.default_keyspace()).unwrap();
        left.put(b"b", b"").unwrap();
        db.clone().close().unwrap();
        assert_eq!(left.put(b"c", b"").unwrap_err().code(), Code::Closed);
        drop(left);
        drop(db);
        let db = Db::open(dir.path()).unwrap();
        assert!(db.iter().next().is_none());
        drop(db);
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default().engine(gabion::Engine::Flex);
        let flex = options.open(dir.path()).unwrap();
        let refused = OwnedIngest::begin(flex.default_keyspace()).err().unwrap();
        assert_eq!(refused.code(), Code::Unsupported);
    }
}
