//! Compaction filters: user code that removes or changes values while the store rewrites them
//! anyway.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::expiry::{value_of, value_start};
use crate::limits::check_limits;
use crate::types::Kind;

/// Decides, while compactions rewrite values, whether to keep, remove or replace them. Use it where
/// [expiry](crate::Keyspace::put_expiring) is not enough.
///
/// A filter sees the newest version of a key among the compacted ones, unless a snapshot, iterator
/// or transaction that could see it was open when the compaction began. One that begins during the
/// compaction may see first the value, and then the filter's result. A newer version, or
/// [operands](crate::Keyspace::merge) to be merged into this one, may exist elsewhere. The store
/// does not promise when it calls a filter: a filter never sees a value that is never rewritten;
/// [`Keyspace::compact`](crate::Keyspace::compact) rewrites all. [`Engine::Flex`](crate::Engine)
/// keeps pairs in place: it calls filters only in that call, and only if no reader of an earlier
/// moment is open when it begins. Later readers do not see a removed value, but there is no write:
/// the removal has no sequence number and conflicts with no transaction.
///
/// The store does not record the filter: set it in the keyspace's options at each open. A filter
/// must not use the store. If it panics, the value stays.
///
/// ```
/// use gabion::{CompactionFilter, Db, FilterDecision, KeyspaceOptions};
///
/// /// Removes records of old versions.
/// struct Since(u8);
///
/// impl CompactionFilter for Since {
///     fn filter(&self, _key: &[u8], value: &[u8]) -> FilterDecision {
///         match value.first() {
///             Some(version) if *version < self.0 => FilterDecision::Remove,
///             _ => FilterDecision::Keep,
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
    /// Decides about the value of a key. Compactions wait for this call, so keep it short.
    fn filter(&self, key: &[u8], value: &[u8]) -> FilterDecision;
}

/// A filter's decision about a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterDecision {
    /// Keep it.
    Keep,
    /// Remove it.
    Remove,
    /// Replace it by this value; the expiry stays the same. If the new value exceeds the limit, the
    /// old one stays.
    Replace(Vec<u8>),
}

/// The filter of a keyspace, shared. All compare equal, as the store does not record the filter
/// with the options.
#[derive(Clone)]
pub struct SharedCompactionFilter(Arc<dyn CompactionFilter>);

impl<F: CompactionFilter> From<F> for SharedCompactionFilter {
    fn from(filter: F) -> SharedCompactionFilter {
        SharedCompactionFilter(Arc::new(filter))
    }
}

impl SharedCompactionFilter {
    /// The new kind and stored bytes of a record; `None` if it stays as it is: the filter keeps it,
    /// panics or makes it too long, or the record is not a value.
    pub(crate) fn filter(&self, key: &[u8], kind: Kind, stored: &[u8]) -> Option<(Kind, Vec<u8>)> {
        if !matches!(kind, Kind::Put | Kind::PutExpiring) {
            return None;
        }
        // Nothing of the store's is changed while a filter runs.
        let ask = || self.0.filter(key, value_of(kind, stored));
        match catch_unwind(AssertUnwindSafe(ask)).ok()? {
            FilterDecision::Keep => None,
            FilterDecision::Remove => Some((Kind::Delete, Vec::new())),
            FilterDecision::Replace(value) => {
                check_limits(key, &value).ok()?;
                let moment = stored.get(..value_start(kind)).unwrap_or_default();
                Some((kind, [moment, &value].concat()))
            }
        }
    }
}

impl PartialEq for SharedCompactionFilter {
    fn eq(&self, _other: &SharedCompactionFilter) -> bool {
        true
    }
}

impl Eq for SharedCompactionFilter {}

impl fmt::Debug for SharedCompactionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedCompactionFilter")
    }
}
