//! Scans of any engine: which one it is.

use std::ops::Bound;

use super::{Handle, Keyspace, ScmStore, SpStore, Walk, flexdb, foreign, sptree, wip};
use crate::expiry::{Moment, ReadPoint};
use crate::opened::Opened;
use crate::ranges::key_range;
use crate::{Error, Result, Slice};

/// A scan of a keyspace. Its store stays open as long as it lives.
pub(crate) enum Scan {
    Wip(Box<wip::Scan>),
    Flex(Box<flexdb::Scan>),
    Sptree(Box<sptree::Scan>),
    /// The engine has none, or the store is closed, or the keyspace was dropped: the error that
    /// tells so, until it is told.
    Refused(Option<Error>),
}

/// A scan of a store at a point whose registration it takes over.
pub(crate) fn scan(
    store: &Opened,
    keyspace: &Keyspace,
    point: ReadPoint,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Scan {
    let is_open = store.engine.check_open();
    if let Err(refused) = is_open.and_then(|()| keyspace.check_at(point.seq)) {
        store.engine.end_snapshot(point);
        return Scan::Refused(Some(refused));
    }
    match (&store.engine, keyspace) {
        (Handle::Wip(_), Keyspace::Wip(keyspace)) => {
            let scan = wip::Scan::new(store.lease(), keyspace, point, lower, upper);
            Scan::Wip(Box::new(scan))
        }
        (Handle::Flex(_), Keyspace::Flex(keyspace)) => {
            let scan = flexdb::Scan::new(store.lease(), keyspace, point, lower, upper);
            Scan::Flex(Box::new(scan))
        }
        (Handle::Sptree(_), Keyspace::Sptree(keyspace)) => {
            let range = key_range((lower, upper));
            Scan::Sptree(Box::new(sptree::Scan::new(store.lease(), keyspace, range)))
        }
        (Handle::Scmkv(_), Keyspace::Scmkv(_)) => {
            Scan::Refused(Some(ScmStore::unsupported("scans")))
        }
        _ => foreign(),
    }
}

/// As [`scan`], of a snapshot.
pub(crate) fn scan_snapshot(
    store: &Opened,
    keyspace: &Keyspace,
    point: ReadPoint,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> Scan {
    match scan(store, keyspace, point, lower, upper) {
        Scan::Sptree(_) => Scan::Refused(Some(SpStore::unsupported("snapshots"))),
        scan => scan,
    }
}

/// A walk through all pairs of a keyspace, if the engine has no scans.
pub(crate) fn walk(store: &Opened, keyspace: &Keyspace) -> Option<Walk> {
    match (&store.engine, keyspace) {
        (Handle::Scmkv(_), Keyspace::Scmkv(keyspace)) => Some(Walk::new(store.lease(), keyspace)),
        _ => None,
    }
}

/// All scans do the same thing, each in its way.
macro_rules! each_scan {
    ($scan:expr, $own:ident => $call:expr, $none:expr) => {
        match $scan {
            Scan::Wip($own) => $call,
            Scan::Flex($own) => $call,
            Scan::Sptree($own) => $call,
            Scan::Refused(_) => $none,
        }
    };
}

impl Scan {
    /// Goes to the next pair; false at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.check()?;
        each_scan!(self, scan => scan.advance(), Ok(false))
    }

    /// The next pair from the end.
    #[inline]
    pub(crate) fn next_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        self.check()?;
        each_scan!(self, scan => scan.next_back(), Ok(None))
    }

    /// The error of a scan that cannot be, once.
    #[inline]
    fn check(&mut self) -> Result<()> {
        match self {
            Scan::Refused(error) => error.take().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        each_scan!(self, scan => scan.key(), &[])
    }

    #[inline]
    pub(crate) fn value(&mut self) -> Slice {
        each_scan!(self, scan => scan.value(), Slice::new(&[]))
    }

    /// When the current pair expires, if it does.
    pub(crate) fn expires(&self) -> Option<Moment> {
        match self {
            Scan::Wip(scan) => scan.expires(),
            Scan::Flex(scan) => scan.expires(),
            Scan::Sptree(_) | Scan::Refused(_) => None,
        }
    }

    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        each_scan!(self, scan => scan.value_bytes(), &[])
    }
}
