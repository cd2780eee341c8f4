//! The options of an open keyspace, as its engine reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

use crate::compaction_filter::SharedCompactionFilter;
use crate::expiry::{UnixMillis, millis};
use crate::merge::MergeOperator;
use crate::operands::{MergeContext, new_moment};
use crate::{KeyspaceOptions, Result};

/// The options of an open keyspace.
#[derive(Default)]
pub(crate) struct LiveKeyspaceOptions {
    options: ArcSwap<KeyspaceOptions>,
    /// The default expiry of these, in milliseconds; 0 for none. For each put.
    default_expiry: AtomicU64,
    /// Whether anything in the keyspace may expire.
    expires: AtomicBool,
}

impl LiveKeyspaceOptions {
    /// These options; `expires` says whether anything in the keyspace may expire.
    pub(super) fn new(options: KeyspaceOptions, expires: bool) -> LiveKeyspaceOptions {
        let own = LiveKeyspaceOptions {
            expires: AtomicBool::new(expires),
            ..LiveKeyspaceOptions::default()
        };
        own.set(options);
        own
    }

    /// The options.
    pub(super) fn get(&self) -> Guard<Arc<KeyspaceOptions>> {
        self.options.load()
    }

    /// Has these options from now on.
    pub(super) fn set(&self, options: KeyspaceOptions) {
        if options.default_expiry.is_some() {
            self.set_expires();
        }
        // ORDER: Relaxed; puts that come at the same time have the one or the other.
        self.default_expiry
            .store(options.default_expiry.map_or(0, millis), Ordering::Relaxed);
        self.options.store(Arc::new(options));
    }

    /// Whether the keyspace `name` is as who opens it wants it; then it has what the program says
    /// of its operator. An error if its operands would mean something else.
    pub(super) fn is_as_wanted(
        &self,
        name: &str,
        options: Option<&KeyspaceOptions>,
    ) -> Result<bool> {
        let kept = self.get();
        let Some(options) = options else {
            return Ok(true);
        };
        let wanted = options.in_place_of(name, &kept)?;
        let is_wanted = wanted.encode() == kept.encode();
        if is_wanted {
            // Unless somebody has set others meanwhile.
            self.options.compare_and_swap(&*kept, Arc::new(wanted));
        }
        Ok(is_wanted)
    }

    /// How long after a put its value expires, if the put says nothing.
    #[inline]
    pub(super) fn default_expiry(&self) -> Option<Duration> {
        // ORDER: Relaxed, as above.
        match self.default_expiry.load(Ordering::Relaxed) {
            0 => None,
            after => Some(Duration::from_millis(after)),
        }
    }

    /// What operands mean.
    #[inline]
    pub(super) fn merge_operator(&self) -> Option<MergeOperator> {
        self.options.load().merge.clone()
    }

    /// What compactions ask about values.
    pub(super) fn compaction_filter(&self) -> Option<SharedCompactionFilter> {
        self.options.load().compaction_filter.clone()
    }

    /// How the operator is asked about a key, at a moment.
    pub(super) fn ask<'a>(
        &self,
        operator: Option<&'a MergeOperator>,
        key: &'a [u8],
        moment: UnixMillis,
    ) -> MergeContext<'a> {
        MergeContext {
            key,
            operator,
            moment,
            expires: new_moment(self.default_expiry(), moment),
        }
    }

    /// As [`LiveKeyspaceOptions::ask`], for who writes now: where nothing expires, nobody asks for
    /// the moment.
    pub(super) fn ask_now<'a>(
        &self,
        operator: Option<&'a MergeOperator>,
        key: &'a [u8],
        now: impl Fn() -> UnixMillis,
    ) -> MergeContext<'a> {
        let default = self.default_expiry();
        let moment = match default.is_some() || self.expires() {
            true => now(),
            false => 0,
        };
        MergeContext {
            key,
            operator,
            moment,
            expires: new_moment(default, moment),
        }
    }

    /// Something that expires is about to be written. Whoever says so holds a lock that whoever
    /// merges into the same key holds, too.
    #[inline]
    pub(super) fn set_expires(&self) {
        // ORDER: Relaxed (both); the lock orders it for whoever must know.
        if !self.expires.load(Ordering::Relaxed) {
            self.expires.store(true, Ordering::Relaxed);
        }
    }

    /// Whether anything in the keyspace may expire.
    #[inline]
    pub(super) fn expires(&self) -> bool {
        // ORDER: Relaxed, as above.
        self.expires.load(Ordering::Relaxed)
    }
}
