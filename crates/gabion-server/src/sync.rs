//! Syncs for `appendfsync always`: one sync serves all waiting connections.
//!
//! A command commits to the log, which is no sync, and its connection goes on with its pipeline.
//! Before the replies are sent the connection waits here. One thread syncs: a sync that begins
//! after a connection has come covers all that it wrote, so whoever comes while one is under way
//! waits for the next, together with all the others. No thread that runs commands waits.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::store::Store;

type Waiter = oneshot::Sender<gabion::Result<()>>;

#[derive(Debug, Default)]
struct Queue {
    waiters: Mutex<(Vec<Waiter>, bool)>,
    call: Condvar,
}

/// The thread that syncs.
#[derive(Debug)]
pub(crate) struct Syncer {
    queue: Arc<Queue>,
}

impl Syncer {
    /// Starts the thread. It ends with the syncer.
    pub(crate) fn start(store: Arc<Store>) -> Syncer {
        let queue = Arc::new(Queue::default());
        let of_thread = Arc::clone(&queue);
        std::thread::spawn(move || run(&of_thread, &store));
        Syncer { queue }
    }

    /// Waits until all that was committed before the call is safe.
    ///
    /// # Errors
    /// As [`gabion::Db::persist`].
    pub(crate) async fn synced(&self) -> gabion::Result<()> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiters = self.queue.waiters.lock();
            waiters.0.push(sender);
        }
        self.queue.call.notify_one();
        receiver.await.unwrap_or(Err(gabion::Error::Closed))
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.queue.waiters.lock().1 = true;
        self.queue.call.notify_one();
    }
}

fn run(queue: &Queue, store: &Store) {
    loop {
        let waiters = {
            let mut waiting = queue.waiters.lock();
            while waiting.0.is_empty() {
                if waiting.1 {
                    return;
                }
                queue.call.wait(&mut waiting);
            }
            std::mem::take(&mut waiting.0)
        };
        // DURABLE: what the waiters committed is in the log already; this brings it to the medium.
        let synced = store.db.persist(gabion::Durability::Sync);
        for waiter in waiters {
            // A connection that has ended does not wait any more.
            let _ = waiter.send(synced.clone());
        }
    }
}
