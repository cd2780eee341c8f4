//! Work that one thread hands to others, in order and no faster than they do it.
//!
//! # Invariants
//! - Q1: items are taken in the order in which they were pushed. So when one fails, all in front of
//!   it are done or being done, and the failure that is kept is that of the first item that fails.
//! - Q2: after a failure nothing more is taken; what was taken is done to its end.
//! - Q3: nobody waits for ever: whoever waits is woken by each end of an item, by a failure, and by
//!   a panic of one of the threads, which takes the queue down with it.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::{Error, Result};

/// Items on their way from the thread that pushes them to those that work on them.
pub(super) struct WorkQueue<T> {
    /// Items that wait, at most.
    waiting_max: usize,
    state: Mutex<State<T>>,
    /// There is something to take, or there will be nothing more.
    filled: Condvar,
    /// An item was taken or is done.
    moved: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// The number of the next item that is taken.
    next: u64,
    /// Items that are being worked on.
    taken: usize,
    /// Nothing more comes.
    ended: bool,
    /// Nothing more is taken.
    stopped: bool,
    /// The first item that failed, and why.
    failure: Option<(u64, Error)>,
}

impl<T> WorkQueue<T> {
    /// An empty queue in which at most so many items wait.
    pub(super) fn new(waiting_max: usize) -> WorkQueue<T> {
        WorkQueue {
            waiting_max,
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                next: 0,
                taken: 0,
                ended: false,
                stopped: false,
                failure: None,
            }),
            filled: Condvar::new(),
            moved: Condvar::new(),
        }
    }

    /// Adds an item once there is room. An error if an item has failed.
    pub(super) fn push(&self, item: T) -> Result<()> {
        let mut state = self.state.lock();
        while state.waiting.len() >= self.waiting_max && !state.stopped {
            self.moved.wait(&mut state);
        }
        state.check()?;
        state.waiting.push_back(item);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits until all items are done. An error if one has failed.
    pub(super) fn await_idle(&self) -> Result<()> {
        let mut state = self.state.lock();
        while (state.taken > 0 || !state.waiting.is_empty()) && !state.stopped {
            self.moved.wait(&mut state);
        }
        state.check()
    }

    /// Says that nothing more comes, when it is dropped, however that comes about.
    pub(super) fn end_on_drop(&self) -> EndOnDrop<'_, T> {
        EndOnDrop(self)
    }

    /// Works on items until there will be none or one has failed.
    pub(super) fn work(&self, mut work: impl FnMut(T) -> Result<()>) {
        while let Some((item, taken)) = self.take() {
            let result = work(item);
            taken.end(result);
        }
    }

    fn take(&self) -> Option<(T, Taken<'_, T>)> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(item) = state.waiting.pop_front() {
                let number = state.next;
                state.next += 1;
                state.taken += 1;
                self.moved.notify_all();
                return Some((
                    item,
                    Taken {
                        queue: self,
                        number,
                    },
                ));
            }
            if state.ended {
                return None;
            }
            self.filled.wait(&mut state);
        }
    }

    /// Lets nothing more be taken.
    pub(super) fn stop(&self) {
        self.change(|state| state.stopped = true);
    }

    /// The failure of the first item that failed. Once nobody works any more.
    pub(super) fn result(self) -> Result<()> {
        self.state.into_inner().check()
    }

    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        change(&mut self.state.lock());
        self.filled.notify_all();
        self.moved.notify_all();
    }
}

impl<T> State<T> {
    fn check(&self) -> Result<()> {
        match &self.failure {
            Some((_, error)) => Err(error.clone()),
            // A thread has panicked; who waits for the threads learns of it.
            None if self.stopped => Err(Error::Closed),
            None => Ok(()),
        }
    }
}

/// Ends a queue when it is dropped.
pub(super) struct EndOnDrop<'q, T>(&'q WorkQueue<T>);

impl<T> Drop for EndOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.change(|state| state.ended = true);
    }
}

/// An item that is being worked on.
struct Taken<'q, T> {
    queue: &'q WorkQueue<T>,
    number: u64,
}

impl<T> Taken<'_, T> {
    fn end(self, result: Result<()>) {
        if let Err(error) = result {
            self.queue.change(|state| {
                state.stopped = true;
                let is_first = |(first, _): &(u64, Error)| self.number < *first;
                if state.failure.as_ref().is_none_or(is_first) {
                    state.failure = Some((self.number, error));
                }
            });
        }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.queue.change(|state| {
            state.taken -= 1;
            state.stopped |= std::thread::panicking();
        });
    }
}
