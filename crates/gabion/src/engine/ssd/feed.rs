//! What was written, for who follows the store: the log's records as committed writes.
//!
//! # Idea
//! The log has every write in the order of the numbers (`commit`, C1), whole. A feed reads it from
//! a position on (`log::cursor`) and hands out what is published. Who writes does nothing for it.
//!
//! What the log tells that nobody has committed is passed over: records that were logged again.
//! What is published and in no record, numbers of drops and ingests whose event found no room or no
//! time, leaves a gap in the numbers, which is told as an error and never passed over.
//!
//! # Invariants
//! - F1. Each write comes once, whole, in the order of the numbers, when it is published.
//! - F2. The position behind a write is one of the log, so what is found there after a power loss
//!   that has taken writes is either what was there or nothing; numbers alone would be used again.
//! - F3. Between a position and the write that is handed out behind it no number is missing.

use std::time::{Duration, Instant};

use super::{Shell, SsdEngine};
use crate::engine::keyspaces::DroppableKeyspace;
use crate::log::{CursorStep, KeyspaceEvent, LogCursor, LogEntry, Lsn, MalformedPayload};
use crate::names::log_name;
use crate::position::Position;
use crate::types::Seq;
use crate::{Error, Result};

/// For how long who waits for a write sleeps at first, and at most, before it looks again: a look
/// costs some loads, and writers nothing.
const SLEEP_FIRST: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(5);

/// Reads on from a position.
#[derive(Debug)]
pub(crate) struct ChangeFeed {
    cursor: LogCursor,
    /// The number of the last write before.
    seq: Seq,
    /// Whether only what is durable is handed out.
    durable_only: bool,
}

/// One write, or event, with the position behind it.
pub(crate) struct FeedItem<'f> {
    /// Where its record begins.
    pub(crate) at: Lsn,
    pub(crate) position: Position,
    /// Its record, which says this:
    pub(crate) record: &'f [u8],
    pub(crate) logged: LogEntry<'f>,
}

/// The numbers of a record: its first and its last one.
#[derive(Clone, Copy)]
struct Numbers {
    first: Seq,
    last: Seq,
}

impl Numbers {
    /// Those of a record; `None` for one that tells nothing new. An event without a number of its
    /// own has none, which lies behind the one that it tells.
    fn of(logged: &LogEntry<'_>) -> Option<Numbers> {
        let (first, last) = match logged {
            LogEntry::Again => return None,
            LogEntry::Batch(first, count, _) => (*first, first + u64::from(*count) - 1),
            LogEntry::Event(seq, _, event) if !event.is_numbered() => (seq + 1, *seq),
            LogEntry::Event(seq, ..) => (*seq, *seq),
        };
        Some(Numbers { first, last })
    }

    /// Whether nothing of it is behind a number.
    fn is_before(self, seq: Seq) -> bool {
        self.first <= seq
    }
}

impl ChangeFeed {
    /// Where it stands.
    pub(crate) fn position(&self) -> Position {
        Position {
            log: self.cursor.position().0,
            number: self.seq,
        }
    }

    /// The next write that is published, if there is one by now.
    pub(crate) fn next<K: DroppableKeyspace>(
        &mut self,
        shell: &Shell<K>,
    ) -> Result<Option<FeedItem<'_>>> {
        self.next_of(shell, |logged| {
            let LogEntry::Event(_, _, event) = logged else {
                return true;
            };
            !matches!(event, KeyspaceEvent::Void | KeyspaceEvent::Options { .. })
        })
    }

    /// The next record that tells anything new, of those that are published: as
    /// [`ChangeFeed::next`], with events that are no change.
    pub(crate) fn next_record<K: DroppableKeyspace>(
        &mut self,
        shell: &Shell<K>,
    ) -> Result<Option<FeedItem<'_>>> {
        self.next_of(shell, |_| true)
    }

    /// The next published record of those that `is_told` picks.
    fn next_of<K: DroppableKeyspace>(
        &mut self,
        shell: &Shell<K>,
        is_told: impl Fn(&LogEntry<'_>) -> bool,
    ) -> Result<Option<FeedItem<'_>>> {
        shell.health.check_open()?;
        // Whoever comes too late finds the directory given back.
        let Some(_held) = shell.lock.hold() else {
            return Err(Error::Closed);
        };
        let at = loop {
            let end = match self.durable_only {
                true => shell.syncer.durable_lsn(),
                false => shell.syncer.appended_lsn(),
            };
            let start = match self.cursor.step(end)? {
                CursorStep::Record(start) => start,
                CursorStep::End => return Ok(None),
                CursorStep::Gone => {
                    let oldest = shell.oldest_position()?;
                    return Err(Error::ChangesGone { oldest });
                }
            };
            let read = LogEntry::read(self.cursor.record());
            let logged = read.map_err(|malformed| shell.damaged(start, malformed))?;
            let Some(numbers) = Numbers::of(&logged) else {
                continue;
            };
            if numbers.last > shell.visible() {
                self.cursor.back_to(start);
                return Ok(None);
            }
            if numbers.is_before(self.seq) {
                continue;
            }
            if numbers.first > self.seq + 1 {
                self.cursor.back_to(start);
                return Err(Error::ChangesUnlogged {
                    first: self.seq + 1,
                    last: numbers.first - 1,
                    behind: Position {
                        log: start.0,
                        number: numbers.first - 1,
                    },
                });
            }
            self.seq = numbers.last;
            if is_told(&logged) {
                break start;
            }
        };
        let position = self.position();
        let record = self.cursor.record();
        let read = LogEntry::read(record);
        let logged = read.map_err(|malformed| shell.damaged(at, malformed))?;
        Ok(Some(FeedItem {
            at,
            position,
            record,
            logged,
        }))
    }
}

impl<K: DroppableKeyspace> Shell<K> {
    /// A feed from a position on.
    pub(crate) fn feed(&self, since: Position, durable_only: bool) -> ChangeFeed {
        ChangeFeed {
            cursor: LogCursor::new(&self.syncer, Lsn(since.log)),
            seq: since.number,
            durable_only,
        }
    }

    /// The position from which on the log has all that was written.
    pub(crate) fn oldest_position(&self) -> Result<Position> {
        loop {
            let oldest = self.syncer.oldest_lsn();
            let mut cursor = LogCursor::new(&self.syncer, oldest);
            let number = loop {
                match cursor.step(self.syncer.appended_lsn())? {
                    CursorStep::Record(start) => {
                        let read = LogEntry::read(cursor.record());
                        let logged = read.map_err(|malformed| self.damaged(start, malformed))?;
                        if let Some(numbers) = Numbers::of(&logged) {
                            break Some(numbers.first - 1);
                        }
                    }
                    CursorStep::End => break Some(self.visible()),
                    // It went meanwhile.
                    CursorStep::Gone => break None,
                }
            };
            if let Some(number) = number {
                let log = oldest.0;
                return Ok(Position { log, number });
            }
        }
    }

    fn damaged(&self, at: Lsn, malformed: MalformedPayload) -> Error {
        let file = self.disk.path_of(&log_name(at.segment()));
        malformed.in_file(file, at.offset())
    }
}

/// What those do who follow an engine.
pub(crate) trait FeedSource: SsdEngine {
    /// Where the store is now: behind all that is published, and before all else.
    fn position(&self) -> Result<Position> {
        self.health.check_open()?;
        let _alone = self.lock_write_half();
        self.position_alone()
    }

    /// Tells those who follow the log what became of a keyspace, which has happened: at a number
    /// that the caller publishes then, or, if it has none, behind the last one. Where there
    /// is no room for that, the number is in no record, and who follows is told so.
    fn tell(&self, half: &mut Self::WriteHalf, seq: Seq, keyspace: u32, event: KeyspaceEvent<'_>) {
        if let Err(error) = Self::append_event(half, &event.encode(seq, keyspace)) {
            tracing::warn!(%error, "the log has no record of a change of a keyspace");
        }
    }

    /// As [`FeedSource::position`]; the caller has the write half, so that everything in the log is
    /// published, unless it has failed.
    fn position_alone(&self) -> Result<Position> {
        self.syncer.check()?;
        Ok(Position {
            log: self.syncer.last_record_lsn().0,
            number: self.visible(),
        })
    }
}

impl<E: SsdEngine> FeedSource for E {}

/// Calls `look` until it finds something, for so long.
pub(crate) fn wait_for<T>(
    time: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let begun = Instant::now();
    let mut sleep = SLEEP_FIRST;
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        std::thread::sleep(sleep.min(left));
        sleep = (sleep * 2).min(SLEEP_MAX);
    }
}
