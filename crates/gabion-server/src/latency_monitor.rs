//! The latency monitor: slow events by kind, which `LATENCY` shows.
//!
//! An event that takes at least `latency-monitor-threshold` is noted under its kind, with the
//! second in which it ended. Of several in a second the longest stays, and of each kind the last
//! [`SAMPLES_MAX`]. Below the threshold a call costs one load.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

use crate::clients::now_ms;
use crate::config::Settings;

/// Samples of each kind that are kept, as Redis has it.
const SAMPLES_MAX: usize = 160;

/// What a kind of event is, and what helps against it.
pub(crate) const KINDS: [(&str, &str); 4] = [
    (
        "aof-fsync-always",
        "replies waited for a sync of the log: a faster drive, or appendfsync everysec",
    ),
    (
        "command",
        "a command that reads or writes much: SLOWLOG GET shows which",
    ),
    (
        "expire-cycle",
        "many keys expired at once: give them different expiry times",
    ),
    (
        "fast-command",
        "a short command was delayed by the drive, the processor or a lock: SLOWLOG GET shows \
         which, and the metrics show the store's stalls",
    ),
];

/// A slow event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatencySample {
    /// The second in which it ended, since 1970.
    pub(crate) at: u64,
    /// How long it took, in milliseconds.
    pub(crate) ms: u64,
}

/// The events of a kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencySeries {
    /// The last ones, the oldest first.
    pub(crate) samples: VecDeque<LatencySample>,
    /// The longest since it was reset, in milliseconds.
    pub(crate) ms_max: u64,
}

/// All events.
#[derive(Debug, Default)]
pub(crate) struct LatencyMonitor(Mutex<BTreeMap<&'static str, LatencySeries>>);

impl LatencyMonitor {
    /// Notes an event that took so long, if that is long.
    #[inline]
    pub(crate) fn note(&self, settings: &Settings, kind: &'static str, nanos: u64) {
        let least = settings.spike_ms();
        let ms = nanos / 1_000_000;
        if least > 0 && ms >= least {
            self.add(kind, now_ms() / 1000, ms);
        }
    }

    fn add(&self, kind: &'static str, at: u64, ms: u64) {
        let mut kinds = self.0.lock();
        let kind = kinds.entry(kind).or_default();
        kind.ms_max = kind.ms_max.max(ms);
        match kind.samples.back_mut() {
            Some(last) if last.at == at => last.ms = last.ms.max(ms),
            _ => {
                if kind.samples.len() == SAMPLES_MAX {
                    kind.samples.pop_front();
                }
                kind.samples.push_back(LatencySample { at, ms });
            }
        }
    }

    /// The events of a kind, if there were any.
    pub(crate) fn of(&self, kind: &[u8]) -> Option<LatencySeries> {
        self.all()
            .into_iter()
            .find(|(name, _)| name.as_bytes() == kind)
            .map(|(_, kind)| kind)
    }

    /// All kinds with events.
    pub(crate) fn all(&self) -> Vec<(&'static str, LatencySeries)> {
        let kinds = self.0.lock();
        kinds
            .iter()
            .map(|(name, kind)| (*name, kind.clone()))
            .collect()
    }

    /// Forgets the kinds that fit; returns how many there were.
    pub(crate) fn reset(&self, fits: impl Fn(&str) -> bool) -> usize {
        let mut kinds = self.0.lock();
        let before = kinds.len();
        kinds.retain(|name, _| !fits(name));
        before - kinds.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_sample_and_a_kind_a_bounded_number() {
        let spikes = LatencyMonitor::default();
        for (at, ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            spikes.add("command", at, ms);
        }
        let kind = spikes.of(b"command").unwrap();
        let expected = [
            LatencySample { at: 1, ms: 9 },
            LatencySample { at: 2, ms: 3 },
        ];
        assert_eq!(
            (Vec::from(kind.samples), kind.ms_max),
            (expected.to_vec(), 9)
        );
        (0..1000).for_each(|at| spikes.add("command", at, 1));
        let kind = spikes.of(b"command").unwrap();
        assert_eq!((kind.samples.len(), kind.samples[0].at), (SAMPLES_MAX, 840));
        assert_eq!(spikes.reset(|name| name == "expire-cycle"), 0);
        assert_eq!(spikes.reset(|name| name == "command"), 1);
        assert!(spikes.of(b"command").is_none());
    }
}
