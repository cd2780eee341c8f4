//! Keeps a store open during a scan.
//!
//! A scan holds on to an open store by one reference, through which it also reaches the engine. It
//! has no reference to the engine itself or to anything else that all scans share: each thread has
//! a lease of its own ([`crate::store_handle`]), but what all threads that scan would count is one
//! word that they all write.

/// A store with an engine `E` that stays open as long as somebody holds it. An engine is one
/// itself where it scans its own keyspaces.
pub(crate) trait OpenStore<E>: Send + Sync {
    /// The store's engine.
    fn engine(&self) -> &E;
}
