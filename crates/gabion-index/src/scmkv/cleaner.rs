//! The background thread of a store: counts live bytes, cleans pages and enlarges the hash table.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::gc::Collected;
use super::{Scmkv, Volume};
use crate::Result;

/// How often the thread looks whether there is anything to do. In that time a writer fills some
/// pages, of which an eighth of all is kept free.
const PAUSE: Duration = Duration::from_millis(20);

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Cleaner {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    is_due: Mutex<bool>,
    changed: Condvar,
}

impl Cleaner {
    /// Starts the thread. Without one the store works as well, so that a system that has no thread
    /// to give is no error.
    pub(super) fn start(volume: &Arc<Volume>) -> Option<Cleaner> {
        let stop = Arc::new(Stop::default());
        let (volume, own_stop) = (Arc::clone(volume), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("scmkv cleaner".to_owned());
        let thread = thread.spawn(move || run(&volume, &own_stop)).ok()?;
        Some(Cleaner {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        *self.stop.is_due.lock() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn run(volume: &Volume, stop: &Stop) {
    loop {
        // What fails here fails for whoever needs it as well, and is told there.
        let did_some = step(volume).unwrap_or(false);
        let mut is_due = stop.is_due.lock();
        if !*is_due && !did_some {
            stop.changed.wait_for(&mut is_due, PAUSE);
        }
        if *is_due {
            return;
        }
    }
}

/// Does a little, and tells whether there may be more to do.
fn step(volume: &Volume) -> Result<bool> {
    volume.enlarge_if_due()?;
    let counted = volume.count_one()?;
    let Collected { pages, .. } = volume.clean_if_due()?;
    Ok(counted || pages > 0)
}

impl Scmkv {
    /// Does a little of what the store's thread does, and tells whether there may be more to do:
    /// for a store without such a thread, and for who waits until all is done.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn work(&self) -> Result<bool> {
        step(&self.volume)
    }
}
