//! `/events`: the dashboard's data, as server-sent events.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::convert::Infallible;

use super::{Http, ServerPhase};

/// How long a browser waits before it comes again, in milliseconds.
const RETRY: &str = "retry: 2000\n\n";

/// Sends what the sampler has taken, until the server ends or who follows goes.
pub(super) async fn follow(State(http): State<Arc<Http>>) -> Response {
    let Ok(place) = Arc::clone(&http.followers).try_acquire_owned() else {
        let sentence = "too many dashboards are open; close one\n";
        return (StatusCode::SERVICE_UNAVAILABLE, sentence).into_response();
    };
    let mut samples = http.sampler.follow();
    samples.mark_changed();
    let phase = http.phase.subscribe();
    let first = Some(Bytes::from_static(RETRY.as_bytes()));
    let events = stream::unfold(
        (samples, phase, first, place),
        |(mut samples, mut phase, first, place)| async move {
            if let Some(first) = first {
                return Some((Ok::<_, Infallible>(first), (samples, phase, None, place)));
            }
            loop {
                tokio::select! {
                    changed = samples.changed() => changed.ok()?,
                    _ = phase.wait_for(|phase| *phase == ServerPhase::Closed) => return None,
                }
                let sample = samples.borrow_and_update().clone();
                if !sample.is_empty() {
                    let event = Bytes::from(format!("data: {sample}\n\n"));
                    return Some((Ok(event), (samples, phase, None, place)));
                }
            }
        },
    );
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // A proxy that gathers answers would keep them back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}
