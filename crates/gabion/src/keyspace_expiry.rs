//! Records that expire: the calls of a keyspace.

use std::time::SystemTime;

use crate::engine::UpdateOutcome;
use crate::expiry::{Expiry, StoredRecord, UnixMillis, stored, time_of};
use crate::limits::check_limits;
use crate::types::Kind;
use crate::{Durability, Keyspace, Result};

impl Keyspace {
    /// Sets `key` to a value that expires: from that time on the key has no value, without a
    /// delete. The expiry costs eight bytes; records that do not expire pay nothing. At the store's
    /// durability.
    ///
    /// A get and an iterator use the time of the store's clock when they begin, a snapshot and a
    /// transaction the time when they were made: what they see stays visible to them. Setting the
    /// clock back does not revive records that have expired for this process. The store frees the
    /// space in the background ([`Options::expiry_lag_max`](crate::Options::expiry_lag_max)).
    ///
    /// A later put of the key does not expire unless it gives an expiry, too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// use std::time::Duration;
    ///
    /// let sessions = db.keyspace("sessions")?;
    /// sessions.put_expiring("alice", "token", Duration::from_secs(1800))?;
    /// assert!(sessions.get("alice")?.is_some());
    /// assert!(sessions.expires_at("alice")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`]; [`Error::Unsupported`](crate::Error::Unsupported) of engines without
    /// [expiry](crate::Capabilities::expiry).
    pub fn put_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        self.put_expiring_with(key, value, expiry, self.durability())
    }

    /// As [`Keyspace::put_expiring`], at the given durability.
    ///
    /// # Errors
    /// Those of [`Keyspace::put_expiring`].
    pub fn put_expiring_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
        durability: Durability,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let moment = expiry.into().moment(self.handle().moment()?);
        self.write_one(Kind::PutExpiring, key, &stored(moment, value), durability)
    }

    /// When the value of `key` expires; `None` for a key without a value, and for a value that
    /// does not expire.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; [`Error::Unsupported`](crate::Error::Unsupported) of engines without
    /// [expiry](crate::Capabilities::expiry).
    pub fn expires_at(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        let record = self
            .handle()
            .find_record(self.inner(), key.as_ref(), None)?;
        Ok(record.and_then(|record| record.expires()).map(time_of))
    }

    /// Sets the expiry of the value of `key`. Returns false if it has none. No other write takes
    /// place meanwhile, as with [`Keyspace::update`].
    ///
    /// # Errors
    /// As [`Keyspace::put_expiring`].
    pub fn expire(&self, key: impl AsRef<[u8]>, expiry: impl Into<Expiry>) -> Result<bool> {
        let moment = expiry.into().moment(self.handle().moment()?);
        let old = self.change_expiry(key.as_ref(), Some(moment))?;
        Ok(old.is_some())
    }

    /// Removes the expiry of the value of `key`. Returns false if it has no value, or no expiry. No
    /// other write takes place meanwhile, as with [`Keyspace::update`].
    ///
    /// # Errors
    /// As [`Keyspace::put_expiring`].
    pub fn remove_expiry(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        // An error of an engine in which nothing expires.
        self.handle().moment()?;
        let old = self.change_expiry(key.as_ref(), None)?;
        Ok(old.is_some_and(|old| old.expires().is_some()))
    }

    fn change_expiry(
        &self,
        key: &[u8],
        expires: Option<UnixMillis>,
    ) -> Result<Option<StoredRecord>> {
        check_limits(key, &[])?;
        let mut change = |_: Option<&[u8]>| UpdateOutcome::Expires(expires);
        let (inner, durability) = (self.inner(), self.durability());
        self.handle().update(inner, key, &mut change, durability)
    }
}
