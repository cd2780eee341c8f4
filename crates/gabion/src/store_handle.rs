//! An open store, and what keeps it open.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Durability;
use crate::engine::flexdb::Flex;
use crate::engine::open_store::OpenStore;
use crate::engine::wip::Wip;
use crate::engine::{EngineHandle, ScmStore, SpStore, foreign};
use crate::stripe::Striped;

/// An open store, shared by everything that was made from it; closed when the last of them is
/// dropped.
pub(crate) struct OpenedStore {
    pub(crate) engine: EngineHandle,
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    /// What writes survive unless they ask for more.
    pub(crate) durability: Durability,
}

/// An open store in the hands of its users. Each thread's scans hold on to a lease of their own:
/// what counts the references to one store would be written by all threads that scan.
pub(crate) struct StoreHandle {
    store: Arc<OpenedStore>,
    leases: Striped<Arc<StoreLease>>,
}

/// Keeps a store open.
#[repr(align(128))]
pub(crate) struct StoreLease(Arc<OpenedStore>);

impl StoreHandle {
    pub(crate) fn new(store: OpenedStore) -> Arc<StoreHandle> {
        let store = Arc::new(store);
        let leases = Striped::of(|| Arc::new(StoreLease(Arc::clone(&store))));
        Arc::new(StoreHandle { store, leases })
    }

    /// What keeps the store open for a scan of this thread.
    pub(crate) fn lease(&self) -> Arc<StoreLease> {
        Arc::clone(self.leases.own())
    }
}

impl Deref for StoreHandle {
    type Target = OpenedStore;

    fn deref(&self) -> &OpenedStore {
        &self.store
    }
}

/// Gives scans the engine of their store. A scan is of that engine, so none asks for another one.
macro_rules! lease_of {
    ($($engine:ty: $handle:ident,)*) => {
        $(impl OpenStore<$engine> for StoreLease {
            fn engine(&self) -> &$engine {
                match &self.0.engine {
                    EngineHandle::$handle(engine) => engine,
                    _ => foreign(),
                }
            }
        })*
    };
}

lease_of! {
    Wip: Wip,
    Flex: Flex,
    ScmStore: Scmkv,
    SpStore: Sptree,
}

impl Drop for OpenedStore {
    fn drop(&mut self) {
        // What a forked child has is a copy without threads: whatever closing or dropping it would
        // wait for, cut or remove is the parent's.
        if !self.engine.is_of_this_process() {
            std::mem::forget(self.engine.clone());
            return;
        }
        // `Db::close` reports errors; who only drops has chosen not to hear them.
        if let Err(error) = self.engine.close() {
            tracing::warn!(%error, "the store is not closed cleanly; the next open recovers it");
        }
    }
}
