//! `/readyz`: whether the server is ready for clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::Http;
use crate::server::Server;

/// The phase of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerPhase {
    /// The store is being opened.
    Loading,
    /// Clients may come.
    Serving,
    /// The server ends.
    Draining,
    /// Nothing is answered any more.
    Closed,
}

impl Http {
    /// Why clients should not come, if they should not. It may look at each table of the store.
    pub(super) fn why_not_ready(&self) -> Option<String> {
        let phase = *self.phase.borrow();
        let server = self.server.get();
        match (phase, server) {
            (ServerPhase::Loading, _) | (_, None) => {
                Some("loading: the store is being opened".to_owned())
            }
            (ServerPhase::Serving, Some(server)) if !server.is_stopping() => refusal(server),
            _ => Some("draining: the server is shutting down".to_owned()),
        }
    }
}

/// Why the store takes no writes, if it does not.
fn refusal(server: &Server) -> Option<String> {
    if let Some(cause) = server.store.db.stats().read_only {
        return Some(format!("the store takes no writes: {cause}"));
    }
    // ORDER: Relaxed; the probe finds out.
    if !server.has_failed_write.load(Ordering::Relaxed) {
        return None;
    }
    match server.store.probe() {
        Ok(()) => {
            // ORDER: Relaxed, as above.
            server.has_failed_write.store(false, Ordering::Relaxed);
            None
        }
        Err(fault) => Some(fault.text().into_owned()),
    }
}

/// `ready`, or why not.
pub(super) async fn answer(State(http): State<Arc<Http>>) -> Response {
    let found = tokio::task::spawn_blocking(move || http.why_not_ready()).await;
    match found {
        Ok(None) => "ready\n".into_response(),
        Ok(Some(reason)) => (StatusCode::SERVICE_UNAVAILABLE, reason + "\n").into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
