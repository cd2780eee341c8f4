//! Scans of any engine: which one it is.

use std::ops::Bound;

use super::{EngineHandle, EngineKeyspace, ScmStore, SpStore, Walk, flexdb, foreign, sptree, wip};
use crate::expiry::{ReadPoint, UnixMillis};
use crate::ranges::key_range;
use crate::store_handle::StoreHandle;
use crate::{Error, Result, Slice};

/// A scan of a keyspace. Its store stays open as long as it lives.
pub(crate) enum EngineScan {
    Wip(Box<wip::WipScan>),
    Flex(Box<flexdb::FlexScan>),
    Sptree(Box<sptree::TreeScan>),
    /// The engine has none, or the store is closed, or the keyspace was dropped: the error that
    /// tells so, until it is told.
    Refused(Option<Error>),
}

/// A scan of a store at a point whose registration it takes over.
pub(crate) fn scan(
    store: &StoreHandle,
    keyspace: &EngineKeyspace,
    point: ReadPoint,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> EngineScan {
    let is_open = store.engine.check_open();
    if let Err(refused) = is_open.and_then(|()| keyspace.check_at(point.seq)) {
        store.engine.end_snapshot(point);
        return EngineScan::Refused(Some(refused));
    }
    match (&store.engine, keyspace) {
        (EngineHandle::Wip(_), EngineKeyspace::Wip(keyspace)) => {
            let scan = wip::WipScan::new(store.lease(), keyspace, point, lower, upper);
            EngineScan::Wip(Box::new(scan))
        }
        (EngineHandle::Flex(_), EngineKeyspace::Flex(keyspace)) => {
            let scan = flexdb::FlexScan::new(store.lease(), keyspace, point, lower, upper);
            EngineScan::Flex(Box::new(scan))
        }
        (EngineHandle::Sptree(_), EngineKeyspace::Sptree(keyspace)) => {
            let range = key_range((lower, upper));
            EngineScan::Sptree(Box::new(sptree::TreeScan::new(
                store.lease(),
                keyspace,
                range,
            )))
        }
        (EngineHandle::Scmkv(_), EngineKeyspace::Scmkv(_)) => {
            EngineScan::Refused(Some(ScmStore::unsupported("scans")))
        }
        _ => foreign(),
    }
}

/// As [`scan`], of a snapshot.
pub(crate) fn scan_snapshot(
    store: &StoreHandle,
    keyspace: &EngineKeyspace,
    point: ReadPoint,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
) -> EngineScan {
    match scan(store, keyspace, point, lower, upper) {
        EngineScan::Sptree(_) => EngineScan::Refused(Some(SpStore::unsupported("snapshots"))),
        scan => scan,
    }
}

/// A walk through all pairs of a keyspace, if the engine has no scans.
pub(crate) fn walk(store: &StoreHandle, keyspace: &EngineKeyspace) -> Option<Walk> {
    match (&store.engine, keyspace) {
        (EngineHandle::Scmkv(_), EngineKeyspace::Scmkv(keyspace)) => {
            Some(Walk::new(store.lease(), keyspace))
        }
        _ => None,
    }
}

/// All scans do the same thing, each in its way.
macro_rules! each_scan {
    ($scan:expr, $own:ident => $call:expr, $none:expr) => {
        match $scan {
            EngineScan::Wip($own) => $call,
            EngineScan::Flex($own) => $call,
            EngineScan::Sptree($own) => $call,
            EngineScan::Refused(_) => $none,
        }
    };
}

impl EngineScan {
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
            EngineScan::Refused(error) => error.take().map_or(Ok(()), Err),
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
    pub(crate) fn expires(&self) -> Option<UnixMillis> {
        match self {
            EngineScan::Wip(scan) => scan.expires(),
            EngineScan::Flex(scan) => scan.expires(),
            EngineScan::Sptree(_) | EngineScan::Refused(_) => None,
        }
    }

    #[inline]
    pub(crate) fn value_bytes(&self) -> &[u8] {
        each_scan!(self, scan => scan.value_bytes(), &[])
    }
}
