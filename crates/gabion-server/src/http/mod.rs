//! The HTTP interface: metrics, health, and a dashboard.
//!
//! | path | what it answers |
//! |---|---|
//! | `/` | the dashboard, one page that loads nothing else |
//! | `/events` | what the dashboard shows, once a second, as server-sent events |
//! | `/metrics` | the same and more as Prometheus reads it |
//! | `/healthz` | that the process lives |
//! | `/readyz` | whether clients may come |
//!
//! Clients should not come while the store is opened, when the server ends, or when the store takes
//! no writes. HTTP is there before the store is open, and until just before it is closed.
//!
//! # Invariants
//! - H1. Nothing here changes the store but [`Store::probe`](crate::store::Store::probe), and that
//!   only after a write has failed.
//! - H2. Whoever asks takes one of a fixed number of places, with a bounded buffer and a time in
//!   which the head of the request must have come. Who follows events takes one of fewer places,
//!   so that probes always find one.
//! - H3. A page of another site learns nothing: a name in `Host` is taken only if it is that of
//!   this machine, and no answer is shared across origins.

mod events;
mod metrics;
mod readiness;
mod sampler;
mod text;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::config::HttpConfig;
use crate::server::Server;

pub(crate) use readiness::ServerPhase;
use sampler::Sampler;

/// The largest head of a request, in bytes, and its most headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// How many may be told at once that there is no place.
const REFUSALS_MAX: usize = 16;

/// How long who asks has to take an answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// The page.
const PAGE: &str = include_str!("dashboard.html");

/// The page loads nothing from anywhere, and is shown in no other.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src \
                           'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
                           form-action 'none'; frame-ancestors 'none'";

/// The state from which HTTP requests are answered.
#[derive(Debug)]
pub(crate) struct Http {
    config: HttpConfig,
    is_loopback: bool,
    phase: watch::Sender<ServerPhase>,
    /// Once the store is open.
    server: OnceLock<Arc<Server>>,
    sampler: Sampler,
    places: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    followers: Arc<Semaphore>,
}

impl Http {
    /// Answers on a socket from now on.
    pub(crate) fn start(config: HttpConfig, listener: TcpListener) -> Arc<Http> {
        let is_loopback = listener
            .local_addr()
            .is_ok_and(|address| address.ip().is_loopback());
        let places = config.connections_max.max(1);
        let http = Arc::new(Http {
            is_loopback,
            phase: watch::Sender::new(ServerPhase::Loading),
            server: OnceLock::new(),
            sampler: Sampler::default(),
            places: Arc::new(Semaphore::new(places)),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            followers: Arc::new(Semaphore::new((places / 2).max(1))),
            config,
        });
        tokio::spawn(Arc::clone(&http).accept(listener));
        tokio::spawn(sampler::run(Arc::clone(&http)));
        http
    }

    /// The store is open.
    pub(crate) fn serve(&self, server: &Arc<Server>) {
        // It is set once.
        let _ = self.server.set(Arc::clone(server));
        self.phase.send_replace(ServerPhase::Serving);
    }

    /// The server ends.
    pub(crate) fn drain(&self) {
        self.phase.send_replace(ServerPhase::Draining);
    }

    /// Lets answers that have begun go out, for a time, and ends.
    pub(crate) async fn close(&self, time: Duration) {
        self.phase.send_replace(ServerPhase::Closed);
        let places = u32::try_from(self.config.connections_max.max(1)).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(time, self.places.acquire_many(places)).await;
    }

    async fn accept(self: Arc<Http>, listener: TcpListener) {
        let router = router(&self);
        let mut phase = self.phase.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = phase.wait_for(|phase| *phase == ServerPhase::Closed) => return,
            };
            let Ok((stream, _)) = accepted else {
                // No files are left, or who asked has gone: others may come.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => {
                    let served = Arc::clone(&self).answer(stream, router.clone());
                    tokio::spawn(async move {
                        served.await;
                        drop(place);
                    });
                }
                Err(_) => self.refuse(stream),
            }
        }
    }

    /// Answers requests until who asks has gone.
    async fn answer(self: Arc<Http>, stream: TcpStream, router: Router) {
        let _ = stream.set_nodelay(true);
        // Who takes nothing of an answer for so long is disconnected by the system.
        #[cfg(target_os = "linux")]
        let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(ANSWER_TIME));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.config.head_time)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        let mut connection = pin!(connection);
        let mut phase = self.phase.subscribe();
        let mut is_closing = false;
        loop {
            tokio::select! {
                // Who asks in a wrong way, or goes, is no failure of the server.
                _ = connection.as_mut() => return,
                _ = phase.wait_for(|phase| *phase == ServerPhase::Closed), if !is_closing => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    /// Says that there is no place.
    fn refuse(&self, mut stream: TcpStream) {
        let Ok(refusal) = Arc::clone(&self.refusals).try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
                content-length: 27\r\nconnection: close\r\nretry-after: 1\r\n\r\n\
                all connections are in use\n";
            let said = async {
                stream.write_all(answer).await?;
                stream.shutdown().await?;
                // A close over what was not read would take the answer back.
                let mut rest = [0; 4096];
                while stream.read(&mut rest).await? > 0 {}
                Ok::<(), std::io::Error>(())
            };
            let _ = tokio::time::timeout(Duration::from_secs(1), said).await;
            drop(refusal);
        });
    }
}

fn router(http: &Arc<Http>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/events", get(events::follow))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics::answer))
        .route("/readyz", get(readiness::answer))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is no such page; try /\n") })
        .layer(middleware::from_fn_with_state(Arc::clone(http), guard))
        .with_state(Arc::clone(http))
}

/// Refuses requests for other hosts, and marks all answers.
async fn guard(
    State(http): State<Arc<Http>>,
    request: Request,
    next: Next,
) -> Result<Response, Infallible> {
    let host = request.headers().get(header::HOST);
    let is_ours = !http.is_loopback || host.is_none_or(|host| is_of_this_machine(host.as_bytes()));
    let mut response = match is_ours {
        true => next.run(request).await,
        false => (
            StatusCode::MISDIRECTED_REQUEST,
            "this server answers only to its IP address or localhost; use one of them\n",
        )
            .into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// Whether a `Host` is a number or this machine's own name, with a port or without.
fn is_of_this_machine(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    if host.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
    ];
    (headers, Body::from(PAGE)).into_response()
}

async fn health() -> &'static str {
    "ok\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_and_the_own_name_are_hosts_of_this_machine() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:80",
            "::1",
            "localhost",
            "LocalHost:9",
        ] {
            assert!(is_of_this_machine(host.as_bytes()), "{host}");
        }
        for host in [
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org:80",
            "",
            "\u{fc}",
        ] {
            assert!(!is_of_this_machine(host.as_bytes()), "{host}");
        }
    }

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[test]
    fn a_store_that_is_being_opened_is_alive_and_not_ready() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let http = Http::start(HttpConfig::new("0"), listener);
            assert!(ask(address, "/healthz").await.starts_with("HTTP/1.1 200"));
            let ready = ask(address, "/readyz").await;
            assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
            assert!(
                ready.ends_with("loading: the store is being opened\n"),
                "{ready}"
            );
            let metrics = ask(address, "/metrics").await;
            assert!(metrics.contains("\nredis_up 0\n"), "{metrics}");
            assert!(
                metrics.ends_with("\nredis_loading_dump_file 1\n"),
                "{metrics}"
            );
            http.close(Duration::from_secs(60)).await;
            assert!(TcpStream::connect(address).await.is_err());
        });
    }
}
