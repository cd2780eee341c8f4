//! Threads that meet at one place in a certain order: each is stopped behind a step on the medium
//! until the others have come where they must be.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread::{Builder, Scope, ScopedJoinHandle, current};

use gabion_media::pmem::trace::{Trace, TraceEvent, TraceStep, Watcher};
use parking_lot::{Condvar, Mutex};

/// Where a step is, if it is of some kind.
pub(crate) type StepSite = fn(TraceStep<'_>) -> Option<u64>;

/// Where a step loads, if it does.
pub(crate) fn load(step: TraceStep<'_>) -> Option<u64> {
    match step {
        TraceStep::Load { offset, .. } => Some(offset),
        _ => None,
    }
}

/// Where a step stores, if it does.
pub(crate) fn store(step: TraceStep<'_>) -> Option<u64> {
    match step {
        TraceStep::Store { offset, .. } => Some(offset),
        _ => None,
    }
}

/// Where a step flushes, if it does.
pub(crate) fn flush(step: TraceStep<'_>) -> Option<u64> {
    match step {
        TraceStep::Flush { offset } => Some(offset),
        _ => None,
    }
}

/// What a named thread does.
enum Course {
    /// It goes on to the first step of a kind in a range, and stops behind that.
    To(StepSite, Range<u64>),
    /// It has come there.
    There,
    Stopped,
    Ended,
}

/// Stops threads by their names, and keeps what all do to the medium but loads.
#[derive(Default)]
pub(crate) struct Director {
    courses: Mutex<BTreeMap<String, Course>>,
    changed: Condvar,
    pub(crate) trace: Mutex<Trace>,
}

impl Director {
    /// Lets a thread that ends begin, and waits until it stops behind a step.
    pub(crate) fn start<'scope, R: Send + 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        (place, range): (StepSite, Range<u64>),
        act: impl FnOnce() -> R + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, R> {
        self.set(name, Course::To(place, range));
        let owned = name.to_owned();
        let act = move || {
            let result = act();
            self.set(&owned, Course::Ended);
            result
        };
        let handle = Builder::new().name(name.to_owned());
        let handle = handle.spawn_scoped(scope, act).expect("a thread");
        self.wait(name);
        handle
    }

    fn set(&self, name: &str, course: Course) {
        self.courses.lock().insert(name.to_owned(), course);
        self.changed.notify_all();
    }

    /// Lets a thread go on to its end.
    pub(crate) fn finish(&self, name: &str) {
        self.courses.lock().remove(name);
        self.changed.notify_all();
    }

    /// Lets a thread go on to another step, and waits until it is there. False if it ends before.
    pub(crate) fn advance(&self, name: &str, place: StepSite, range: Range<u64>) -> bool {
        self.set(name, Course::To(place, range));
        self.wait(name)
    }

    fn wait(&self, name: &str) -> bool {
        let mut courses = self.courses.lock();
        loop {
            match courses.get(name) {
                Some(Course::Stopped) => return true,
                Some(Course::Ended) => return false,
                _ => self.changed.wait(&mut courses),
            }
        }
    }
}

impl Watcher for Director {
    fn event(&self, event: TraceEvent<'_>) {
        if !matches!(event.step, TraceStep::Load { .. }) {
            self.trace.lock().push(event);
        }
        let thread = current();
        let mut courses = self.courses.lock();
        let course = thread.name().and_then(|name| courses.get_mut(name));
        if let Some(course) = course
            && let Course::To(place, range) = course
            && place(event.step).is_some_and(|offset| range.contains(&offset))
        {
            *course = Course::There;
        }
    }

    fn pause(&self) {
        let thread = current();
        let Some(name) = thread.name() else { return };
        let mut courses = self.courses.lock();
        if let Some(course) = courses.get_mut(name)
            && matches!(course, Course::There)
        {
            *course = Course::Stopped;
            self.changed.notify_all();
        }
        while let Some(Course::Stopped) = courses.get(name) {
            self.changed.wait(&mut courses);
        }
    }
}
