//! The transfer of bytes: its rate limit, progress and cancellation.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// How often somebody who waits for the rate is asked whether to go on.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Who is told of progress.
type Listener<'a> = Box<dyn FnMut(BackupProgress) -> ControlFlow<()> + Send + 'a>;

/// Options of a backup, a restore or a verification.
#[derive(Default)]
pub struct BackupOptions<'a> {
    /// Limit on the bytes that it reads per second, on average; 0 for no limit. Data recognized
    /// without reading does not count, nor do the log and the manifest of WipDB when a backup
    /// begins.
    pub bytes_per_second_max: u64,
    /// Of a backup: archive the log, too, so that what is written from now on can be restored to
    /// any moment ([`Db::archive_log`](crate::Db::archive_log)). Default: false.
    pub archive_log: bool,
    progress: Option<Listener<'a>>,
}

/// Progress of a backup, a restore or a verification.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes done so far, including those that need not be copied.
    pub bytes: u64,
    /// Bytes in total.
    pub bytes_total: u64,
}

impl fmt::Debug for BackupOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupOptions")
            .field("bytes_per_second_max", &self.bytes_per_second_max)
            .field("archive_log", &self.archive_log)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

impl<'a> BackupOptions<'a> {
    /// Sets [`BackupOptions::bytes_per_second_max`].
    #[must_use]
    pub fn bytes_per_second_max(mut self, bytes: u64) -> Self {
        self.bytes_per_second_max = bytes;
        self
    }

    /// Sets [`BackupOptions::archive_log`].
    #[must_use]
    pub fn archive_log(mut self, archive_log: bool) -> Self {
        self.archive_log = archive_log;
        self
    }

    /// Calls `listener` after each mebibyte, and while waiting for the rate limit. If it returns
    /// [`ControlFlow::Break`], the operation ends with [`Error::Cancelled`].
    #[must_use]
    pub fn progress(
        mut self,
        listener: impl FnMut(BackupProgress) -> ControlFlow<()> + Send + 'a,
    ) -> Self {
        self.progress = Some(Box::new(listener));
        self
    }
}

/// A backup, a restore or a verification that is under way.
pub(super) struct Transfer<'a> {
    options: BackupOptions<'a>,
    progress: BackupProgress,
    began: Instant,
    /// Bytes that count for the rate.
    moved: u64,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(options: BackupOptions<'a>, bytes_total: u64) -> Transfer<'a> {
        Transfer {
            options,
            progress: BackupProgress {
                bytes: 0,
                bytes_total,
            },
            began: Instant::now(),
            moved: 0,
        }
    }

    /// So many bytes more than was known before are to be done.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.progress.bytes_total += bytes;
    }

    /// Bytes that were read so far.
    pub(super) fn bytes_moved(&self) -> u64 {
        self.moved
    }

    /// So many bytes were read; waits until the rate allows more.
    pub(super) fn moved(&mut self, bytes: u64) -> Result<()> {
        self.moved += bytes;
        self.passed(bytes)?;
        let due = due(self.moved, self.options.bytes_per_second_max);
        loop {
            let left = due.saturating_sub(self.began.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_AGAIN));
            self.passed(0)?;
        }
    }

    /// So many bytes are done, unread or not.
    pub(super) fn passed(&mut self, bytes: u64) -> Result<()> {
        self.progress.bytes += bytes;
        let told = self.options.progress.as_mut();
        match told.map(|listener| listener(self.progress)) {
            Some(ControlFlow::Break(())) => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }
}

/// When so many bytes may have been moved.
fn due(bytes: u64, bytes_per_second: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000;
    let nanos = nanos.checked_div(u128::from(bytes_per_second));
    Duration::from_nanos(u64::try_from(nanos.unwrap_or(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_due_by_their_rate() {
        assert_eq!(due(1 << 40, 0), Duration::ZERO);
        assert_eq!(due(50, 100), Duration::from_millis(500));
        assert_eq!(due(u64::MAX, 1), Duration::from_nanos(u64::MAX));
    }

    /// Somebody may wait for days, and must not wait for days until it can be ended.
    #[test]
    fn who_waits_for_the_rate_can_be_told_to_end() {
        let mut calls = 0;
        let options = BackupOptions::default()
            .bytes_per_second_max(1)
            .progress(|_| {
                calls += 1;
                match calls {
                    3 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            });
        let mut transfer = Transfer::new(options, 1 << 40);
        let ended = transfer.moved(1 << 30);
        assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
        drop(transfer);
        assert_eq!(calls, 3);
    }
}
