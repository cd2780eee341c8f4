//! Expiry: records that count as deleted from a moment on.
//!
//! # Layout
//! A record that expires is of a kind of its own ([`Kind::PutExpiring`]). What is stored of it is
//! the moment (u64, little-endian, milliseconds since 1970), then the value. Other records pay
//! nothing.
//!
//! # Reading
//! A record is there for who reads before its moment. A snapshot reads at the moment at which it
//! was taken, however long it lives ([`ReadPoint`]). Flushes, merges and compactions make a
//! tombstone of a record whose moment has passed for all who read: as any other tombstone it hides
//! what is older of its key, and is dropped where nothing is.
//!
//! # Invariants
//! - X1. Moments do not go back: [`ReadClock::now`] is the highest that the clock has shown since
//!   the store was opened, or, where something expires, before the last flush or close of before.
//!   What was once gone stays gone, wherever the clock is set.
//! - X2. Nothing is taken for expired that a reader who is registered, or who comes later, sees:
//!   the horizon of a job is the oldest moment among those of registered readers and now, found
//!   under their locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Slice;
use crate::clock::Clock;
use crate::types::{Kind, Seq};

/// Milliseconds since 1970.
pub(crate) type UnixMillis = u64;

/// Bytes of the moment in front of the value.
pub(crate) const MOMENT_BYTES: usize = size_of::<UnixMillis>();

/// When a record expires: it is visible before that time and gone from then on.
///
/// Times are kept in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// At this time of the system's clock.
    At(SystemTime),
    /// This long after the write.
    After(Duration),
}

impl From<SystemTime> for Expiry {
    fn from(at: SystemTime) -> Expiry {
        Expiry::At(at)
    }
}

impl From<Duration> for Expiry {
    fn from(after: Duration) -> Expiry {
        Expiry::After(after)
    }
}

impl Expiry {
    /// The moment, of what is written `now`.
    pub(crate) fn moment(self, now: UnixMillis) -> UnixMillis {
        match self {
            Expiry::At(at) => millis(at.duration_since(UNIX_EPOCH).unwrap_or_default()),
            Expiry::After(after) => now.saturating_add(millis(after)),
        }
    }
}

/// A time in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> UnixMillis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A moment as the system's time; one beyond all that the system knows is its last.
pub(crate) fn time_of(moment: UnixMillis) -> SystemTime {
    let mut since = Duration::from_millis(moment);
    loop {
        match UNIX_EPOCH.checked_add(since) {
            Some(time) => return time,
            None => since /= 2,
        }
    }
}

/// What a reader sees: writes up to a number, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadPoint {
    /// The newest write.
    pub(crate) seq: Seq,
    /// What expires up to then is gone.
    pub(crate) moment: UnixMillis,
}

#[cfg(test)]
impl ReadPoint {
    /// A reader at a number before everything expires.
    pub(crate) fn early(seq: Seq) -> ReadPoint {
        ReadPoint { seq, moment: 0 }
    }
}

/// The moments of a store.
#[derive(Debug)]
pub(crate) struct ReadClock {
    clock: Clock,
    highest: AtomicU64,
}

impl ReadClock {
    /// Moments by a clock.
    pub(crate) fn new(clock: &Clock) -> ReadClock {
        ReadClock {
            clock: clock.clone(),
            highest: AtomicU64::new(0),
        }
    }

    /// No moment is before this one any more, at which somebody has read.
    pub(crate) fn raise(&self, moment: UnixMillis) {
        // ORDER: Relaxed, as in `now`.
        self.highest.fetch_max(moment, Ordering::Relaxed);
    }

    /// This one (X1).
    pub(crate) fn now(&self) -> UnixMillis {
        let now = millis(self.clock.unix_time());
        // ORDER: Relaxed (both); each thread sees its own, and the highest is one atomic's.
        match self.highest.load(Ordering::Relaxed) {
            highest if highest >= now => highest,
            _ => self.highest.fetch_max(now, Ordering::Relaxed).max(now),
        }
    }
}

/// What is stored of a record that expires at a moment.
pub(crate) fn stored(expires: UnixMillis, value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(MOMENT_BYTES + value.len());
    stored.extend_from_slice(&expires.to_le_bytes());
    stored.extend_from_slice(value);
    stored
}

/// The moment of a record that expires; 0 for what no store has written.
#[inline]
pub(crate) fn moment_of(stored: &[u8]) -> UnixMillis {
    let moment = stored.first_chunk::<MOMENT_BYTES>();
    moment.map_or(0, |moment| UnixMillis::from_le_bytes(*moment))
}

/// Whether a record has expired by a moment.
#[inline]
pub(crate) fn has_expired(kind: Kind, stored: &[u8], moment: impl FnOnce() -> UnixMillis) -> bool {
    kind == Kind::PutExpiring && moment_of(stored) <= moment()
}

/// When a record expires, if it does.
#[inline]
pub(crate) fn expires(kind: Kind, stored: &[u8]) -> Option<UnixMillis> {
    (kind == Kind::PutExpiring).then(|| moment_of(stored))
}

/// What is stored in front of the value of a record of this kind.
#[inline]
pub(crate) fn value_start(kind: Kind) -> usize {
    match kind {
        Kind::PutExpiring => MOMENT_BYTES,
        _ => 0,
    }
}

/// The value of a record, in what is stored of it.
#[inline]
pub(crate) fn value_of(kind: Kind, stored: &[u8]) -> &[u8] {
    stored.get(value_start(kind)..).unwrap_or_default()
}

/// A record as a reader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRecord {
    kind: Kind,
    stored: Slice,
}

impl StoredRecord {
    /// A record with a value: of a kind that has one.
    #[inline]
    pub(crate) fn new(kind: Kind, stored: Slice) -> StoredRecord {
        StoredRecord { kind, stored }
    }

    /// The record, if it is there at a moment.
    #[inline]
    pub(crate) fn at(self, moment: impl FnOnce() -> UnixMillis) -> Option<StoredRecord> {
        (!has_expired(self.kind, &self.stored, moment)).then_some(self)
    }

    /// Its value.
    #[inline]
    pub(crate) fn into_value(self) -> Slice {
        match self.kind {
            Kind::PutExpiring => self.stored.without_front(MOMENT_BYTES),
            _ => self.stored,
        }
    }

    /// When it expires, if it does.
    pub(crate) fn expires(&self) -> Option<UnixMillis> {
        expires(self.kind, &self.stored)
    }

    /// Bytes that are stored of it.
    pub(crate) fn len(&self) -> usize {
        self.stored.len()
    }

    /// Its kind, and what is stored of it.
    pub(crate) fn parts(&self) -> (Kind, &[u8]) {
        (self.kind, &self.stored)
    }

    /// Its value, to look at.
    pub(crate) fn value(&self) -> &[u8] {
        value_of(self.kind, &self.stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_there_before_its_moment() {
        let bytes = stored(1_000, b"value");
        let record = || StoredRecord::new(Kind::PutExpiring, Slice::new(&bytes));
        assert_eq!(record().expires(), Some(1_000));
        let value = |moment| record().at(|| moment).map(StoredRecord::into_value);
        assert_eq!(value(999).as_deref(), Some(&b"value"[..]));
        assert_eq!((value(1_000), value(1_001)), (None, None));
        let plain = StoredRecord::new(Kind::Put, Slice::new(&bytes));
        let never = || -> UnixMillis { panic!("nobody needs the moment") };
        assert_eq!(plain.at(never).unwrap().into_value(), Slice::new(&bytes));
    }

    #[test]
    fn what_is_too_short_has_expired() {
        for len in 0..MOMENT_BYTES {
            let bytes = vec![u8::MAX; len];
            assert!(has_expired(Kind::PutExpiring, &bytes, || 0));
            assert_eq!(value_of(Kind::PutExpiring, &bytes), b"");
        }
    }

    #[test]
    fn moments_do_not_go_back() {
        let clock = Clock::manual();
        let moments = ReadClock::new(&clock);
        clock.advance(Duration::from_millis(1_500));
        assert_eq!(moments.now(), 1_500);
        clock.shift_unix_time(-1);
        assert_eq!(moments.now(), 1_500);
        clock.advance(Duration::from_millis(1_001));
        assert_eq!(moments.now(), 1_501);
    }

    #[test]
    fn any_moment_is_a_time() {
        for moment in [0, 1, 1_700_000_000_000] {
            let at = Expiry::At(time_of(moment));
            assert_eq!(at.moment(5), moment);
        }
        let _ = time_of(u64::MAX);
        assert_eq!(Expiry::After(Duration::MAX).moment(5), u64::MAX);
        assert_eq!(Expiry::After(Duration::from_micros(2_999)).moment(5), 7);
    }
}
