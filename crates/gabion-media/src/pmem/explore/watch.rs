//! Two watchers of a medium: one records a run, the other follows the check of an image.

use std::panic::{Location, resume_unwind};

use parking_lot::Mutex;

use super::pause::PauseSchedule;
use super::record::SYSTEM;
use super::uncertain::line_of;
use crate::pmem::region::Region;
use crate::pmem::trace::{Trace, TraceEvent, TraceStep, Watcher};

/// Keeps all events but loads.
pub(super) struct EventRecorder {
    record: Mutex<Record>,
    /// How the threads of the run take turns, if there are several.
    pace: Option<PauseSchedule>,
}

struct Record {
    trace: Trace,
    /// The medium as it must be after the stores that were seen.
    shadow: Vec<u8>,
}

impl EventRecorder {
    pub(super) fn new(base: Vec<u8>, pace: Option<PauseSchedule>) -> EventRecorder {
        EventRecorder {
            record: Mutex::new(Record {
                shadow: base.clone(),
                trace: Trace::new(base),
            }),
            pace,
        }
    }

    /// Notes that an operation begins or returns.
    pub(super) fn mark(&self, step: TraceStep<'_>, thread: u32) {
        let site = Location::caller();
        let event = TraceEvent { step, site, thread };
        self.record.lock().trace.push(event);
    }

    /// Notes that the system made durable what was stored to the first `len` bytes.
    pub(super) fn sync(&self, len: u64) {
        for offset in (0..len).step_by(64) {
            self.mark(TraceStep::Flush { offset }, SYSTEM);
        }
        self.mark(TraceStep::Fence, SYSTEM);
    }

    /// The run so far; none of it is left here.
    pub(super) fn take(&self) -> Trace {
        std::mem::take(&mut self.record.lock().trace)
    }

    /// How the threads take turns, if there are several.
    pub(super) fn pace(&self) -> Option<&PauseSchedule> {
        self.pace.as_ref()
    }

    /// Whether the memory holds just what was stored through the medium. Asked when no thread
    /// is at work.
    ///
    /// # Errors
    /// A sentence that names the first word that was changed in another way.
    pub(super) fn compare(&self, region: &Region) -> Result<(), String> {
        let now = region.to_vec();
        let shadow = &self.record.lock().shadow;
        if now == *shadow {
            return Ok(());
        }
        let differs = now.iter().zip(shadow).position(|(now, then)| now != then);
        let word = differs.unwrap_or(now.len()) / 8 * 8;
        Err(format!(
            "the word at {word:#x} was changed by a store that bypassed the medium"
        ))
    }
}

impl Watcher for EventRecorder {
    fn event(&self, event: TraceEvent<'_>) {
        if let Some(pace) = &self.pace {
            pace.count();
        }
        if matches!(event.step, TraceStep::Load { .. }) {
            return;
        }
        let mut record = self.record.lock();
        record.trace.push(event);
        if let TraceStep::Store { offset, bytes } | TraceStep::NtStore { offset, bytes } =
            event.step
            && let Ok(at) = usize::try_from(offset)
            && let Some(shadow) = record.shadow.get_mut(at..at + bytes.len())
        {
            shadow.copy_from_slice(bytes);
        }
    }

    fn pause(&self) {
        if let Some(pace) = &self.pace {
            pace.pause();
        }
    }
}

/// What ended a check that took too many steps, as the payload of its panic.
pub(super) struct StepLimitReached;

/// Follows the check of an image: which lines it read, and which it wrote.
pub(super) struct CheckWatcher(Mutex<Sight>);

#[derive(Default)]
struct Sight {
    /// Counts checks; a line is in a list if its stamp is this.
    check: u32,
    written_in: Vec<u32>,
    read_in: Vec<u32>,
    written: Vec<u32>,
    read: Vec<u32>,
    steps_left: u64,
    records: bool,
    /// Whether recovery stored anything.
    has_recovered: bool,
    trace: Trace,
}

impl CheckWatcher {
    /// For a medium of so many lines.
    pub(super) fn new(lines: usize) -> CheckWatcher {
        CheckWatcher(Mutex::new(Sight {
            written_in: vec![0; lines],
            read_in: vec![0; lines],
            ..Sight::default()
        }))
    }

    /// Begins with a check that may take so many steps.
    pub(super) fn begin(&self, steps: u64, records: bool) {
        let mut sight = self.0.lock();
        if sight.check == u32::MAX {
            sight.check = 0;
            sight.written_in.fill(0);
            sight.read_in.fill(0);
        }
        sight.check += 1;
        sight.written.clear();
        sight.read.clear();
        sight.steps_left = steps;
        sight.records = records;
        sight.has_recovered = false;
        sight.trace.clear();
    }

    /// Notes that recovery has come to its end.
    pub(super) fn recovered(&self) {
        let mut sight = self.0.lock();
        let is_store = |event: TraceEvent<'_>| {
            matches!(
                event.step,
                TraceStep::Store { .. } | TraceStep::NtStore { .. }
            )
        };
        sight.has_recovered = sight.records && sight.trace.iter().any(is_store);
        drop(sight);
        self.mark(TraceStep::End { op: 0 });
    }

    /// Notes that an operation begins or returns.
    pub(super) fn mark(&self, step: TraceStep<'_>) {
        let mut sight = self.0.lock();
        if sight.records {
            let site = Location::caller();
            let thread = 0;
            sight.trace.push(TraceEvent { step, site, thread });
        }
    }

    /// Ends the record of stores, flushes and fences.
    pub(super) fn stop_recording(&self) {
        self.0.lock().records = false;
    }

    /// The record of the recovery and of what was recorded behind it, if the recovery changed
    /// anything or `always`.
    pub(super) fn recovery(&self, always: bool) -> Option<Trace> {
        let sight = self.0.lock();
        let is_wanted = sight.has_recovered || always && sight.trace.len() > 1;
        is_wanted.then(|| sight.trace.clone())
    }

    /// Shows the lines that the check read, in the order of their first read.
    pub(super) fn read<R>(&self, see: impl FnOnce(&[u32]) -> R) -> R {
        see(&self.0.lock().read)
    }

    /// Shows the lines that the check wrote.
    pub(super) fn written(&self, mut see: impl FnMut(u32)) {
        for line in &self.0.lock().written {
            see(*line);
        }
    }
}

impl Sight {
    fn note(&mut self, offset: u64, len: u64, is_store: bool) {
        if len == 0 {
            return;
        }
        for line in line_of(offset)..=line_of(offset + len - 1) {
            let (stamps, lines) = if is_store {
                (&mut self.written_in, &mut self.written)
            } else {
                (&mut self.read_in, &mut self.read)
            };
            let Some(stamp) = stamps.get_mut(line as usize) else {
                continue;
            };
            if *stamp != self.check {
                *stamp = self.check;
                lines.push(line);
            }
        }
    }
}

impl Watcher for CheckWatcher {
    fn event(&self, event: TraceEvent<'_>) {
        let mut sight = self.0.lock();
        if sight.steps_left == 0 {
            drop(sight);
            // What unwinding drops has steps too, and a second panic would be the end of all.
            if std::thread::panicking() {
                return;
            }
            resume_unwind(Box::new(StepLimitReached));
        }
        sight.steps_left -= 1;
        match event.step {
            TraceStep::Store { offset, bytes } | TraceStep::NtStore { offset, bytes } => {
                sight.note(offset, bytes.len() as u64, true);
            }
            TraceStep::Load { offset, len } => sight.note(offset, len, false),
            _ => {}
        }
        if sight.records && !matches!(event.step, TraceStep::Load { .. }) {
            sight.trace.push(event);
        }
    }
}
