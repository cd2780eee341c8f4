//! Compaction filters: what a program drops or changes when the store rewrites it anyway.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::expiry::{value_of, value_start};
use crate::limits::check_limits;
use crate::types::Kind;

/// Looks at values while compactions rewrite them, and says what becomes of them: for what
/// [expiry](crate::Keyspace::put_expiring) cannot say.
///
/// A filter sees the newest version of a key among what is compacted, if no snapshot, iterator or
/// transaction was open that could see it when the compaction began; one that begins meanwhile may
/// see the value first, and then what the filter made of it. A newer version, or
/// [operands](crate::Keyspace::merge) that are merged into this one, may lie above it. When a
/// filter is called is not told: a value that is never rewritten is never seen, and
/// [`Keyspace::compact`](crate::Keyspace::compact) rewrites all. [`Engine::Flex`](crate::Engine)
/// keeps pairs in place and rewrites none of its own accord: its filters are asked by that call
/// alone, and only if nobody reads an earlier moment when it begins. What a filter removes is gone
/// for who reads from then on, without a write: no sequence number tells of it, so it makes no
/// conflict for a transaction.
///
/// The store does not record the filter: give it in the options of the keyspace at each open. A
/// filter must not use the store. If it panics, the value stays.
///
/// ```
/// use gabion::{CompactionFilter, Db, Filtered, KeyspaceOptions};
///
/// /// Removes records of versions that are gone.
/// struct Since(u8);
///
/// impl CompactionFilter for Since {
///     fn filter(&self, _key: &[u8], value: &[u8]) -> Filtered {
///         match value.first() {
///             Some(version) if *version < self.0 => Filtered::Remove,
///             _ => Filtered::Keep,
///         }
///     }
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path())?;
/// let options = KeyspaceOptions::default().compaction_filter(Since(2));
/// let versions = db.keyspace_with("versions", &options)?;
/// versions.put("old", [1])?;
/// versions.put("new", [2])?;
/// versions.compact::<&str>(..)?;
/// assert_eq!(versions.iter().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CompactionFilter: Send + Sync + 'static {
    /// Decides about the value of a key. Keep it short: compactions wait for it.
    fn filter(&self, key: &[u8], value: &[u8]) -> Filtered;
}

/// What to do with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// It stays.
    Keep,
    /// Remove it.
    Remove,
    /// Replace it by this value, which keeps the expiry. If it is too long for a value, the old one
    /// stays.
    Replace(Vec<u8>),
}

/// The filter of a keyspace. All are equal: which one there is makes no difference to what a store
/// keeps of the options.
#[derive(Clone)]
pub struct FilterOfKeyspace(Arc<dyn CompactionFilter>);

impl<F: CompactionFilter> From<F> for FilterOfKeyspace {
    fn from(filter: F) -> FilterOfKeyspace {
        FilterOfKeyspace(Arc::new(filter))
    }
}

impl FilterOfKeyspace {
    /// What becomes of a record, as a kind and what is stored; nothing if it stays as it is, also
    /// because it is no value, or because the filter panics or makes it too long.
    pub(crate) fn filter(&self, key: &[u8], kind: Kind, stored: &[u8]) -> Option<(Kind, Vec<u8>)> {
        if !matches!(kind, Kind::Put | Kind::PutExpiring) {
            return None;
        }
        // Nothing of the store's is changed while a filter runs.
        let ask = || self.0.filter(key, value_of(kind, stored));
        match catch_unwind(AssertUnwindSafe(ask)).ok()? {
            Filtered::Keep => None,
            Filtered::Remove => Some((Kind::Delete, Vec::new())),
            Filtered::Replace(value) => {
                check_limits(key, &value).ok()?;
                let moment = stored.get(..value_start(kind)).unwrap_or_default();
                Some((kind, [moment, &value].concat()))
            }
        }
    }
}

impl PartialEq for FilterOfKeyspace {
    fn eq(&self, _other: &FilterOfKeyspace) -> bool {
        true
    }
}

impl Eq for FilterOfKeyspace {}

impl fmt::Debug for FilterOfKeyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FilterOfKeyspace")
    }
}
