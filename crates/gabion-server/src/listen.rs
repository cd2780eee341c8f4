//! A server from its start to its end: sockets, accepted clients, the background, the shutdown.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Notify as Wakeup;

use crate::acl::AclUsers;
use crate::background;
use crate::calls::CommandStats;
use crate::clients::{Client, Clients, now_ms};
use crate::command::CommandTable;
use crate::config::{Config, HttpConfig, Settings};
use crate::connection;
use crate::http::Http;
use crate::notify::ServiceNotifier;
use crate::open_files;
use crate::saves::SaveState;
use crate::server::{Server, count};
use crate::store::Store;
use crate::sync::Syncer;
use crate::table;
use crate::tls::{Acceptor, TlsError};

/// Connections that wait to be accepted, as Redis has it.
const BACKLOG: i32 = 511;

/// How long clients have to take their last replies when the server ends.
const LAST_REPLIES: Duration = Duration::from_millis(200);

/// Why a server cannot start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {}", listen_text(.cause))]
    Listen {
        /// The address.
        address: String,
        /// Why.
        cause: io::Error,
    },
    /// The system gives no threads.
    #[error("cannot start the threads of the server: {0}")]
    Threads(io::Error),
    /// The service manager has given a socket that cannot be.
    #[error("cannot notify the service manager: NOTIFY_SOCKET does not name a socket: {0}")]
    Notify(io::Error),
    /// TLS cannot be spoken.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store cannot be opened, or closed.
    #[error("{0}")]
    Store(String),
}

/// Why an address cannot be listened on.
fn listen_text(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "another program uses the port; end that program, or choose another port".to_owned()
        }
        _ => cause.to_string(),
    }
}

/// Where a server listens.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// For clients of Redis.
    pub tcp: Vec<SocketAddr>,
    /// The same by TLS.
    pub tls: Vec<SocketAddr>,
    /// For metrics, health and the dashboard.
    pub http: Option<SocketAddr>,
}

/// The sockets of a server.
struct Sockets {
    tcp: Vec<TcpListener>,
    tls: Option<(Acceptor, Vec<TcpListener>)>,
    unix: Option<UnixListener>,
    http: Option<(HttpConfig, TcpListener)>,
}

/// Runs a server until it is told to end: by `SHUTDOWN`, SIGTERM or SIGINT. `ready` is called with
/// the addresses once clients can come.
///
/// # Errors
/// When it cannot start; when the store does not close.
pub fn serve(config: Config, ready: impl FnOnce(&Addresses)) -> Result<(), ServeError> {
    let threads = match config.threads {
        0 => std::thread::available_parallelism().map_or(4, |count| (count.get() + 1).max(4)),
        threads => threads,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(ServeError::Threads)?;
    let served = runtime.block_on(run(config, ready));
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

async fn run(config: Config, ready: impl FnOnce(&Addresses)) -> Result<(), ServeError> {
    let sockets = open_sockets(&config)?;
    let manager = config.notify.clone();
    let notify = manager
        .as_ref()
        .map(|manager| ServiceNotifier::new(&manager.socket));
    let notify = Arc::new(notify.transpose().map_err(ServeError::Notify)?);
    let local = |socket: &TcpListener| socket.local_addr().ok();
    let tls_sockets = sockets.tls.iter().flat_map(|(_, sockets)| sockets);
    let addresses = Addresses {
        tcp: sockets.tcp.iter().filter_map(local).collect(),
        tls: tls_sockets.filter_map(local).collect(),
        http: sockets.http.as_ref().and_then(|(_, socket)| local(socket)),
    };
    let commands: &'static CommandTable = table::commands();
    let port = addresses.tcp.first().map_or(0, SocketAddr::port);
    // From here on it is told that the store is being opened.
    let http = sockets
        .http
        .map(|(config, socket)| Http::start(config, socket));
    let started = tokio::task::spawn_blocking(move || start(config, commands, port)).await;
    let server = Arc::new(started.map_err(|error| ServeError::Store(error.to_string()))??);
    if let Some(http) = &http {
        http.serve(&server);
    }
    ready(&addresses);
    let watchdog = notify_ready(&notify, manager.and_then(|manager| manager.watchdog));
    let background = tokio::spawn(background::run(Arc::clone(&server)));
    for listener in sockets.tcp {
        tokio::spawn(accept_tcp(Arc::clone(&server), commands, listener));
    }
    if let Some((acceptor, listeners)) = sockets.tls {
        for listener in listeners {
            let acceptor = acceptor.clone();
            tokio::spawn(accept_tls(
                Arc::clone(&server),
                commands,
                listener,
                acceptor,
            ));
        }
    }
    if let Some(listener) = sockets.unix {
        tokio::spawn(accept_unix(Arc::clone(&server), commands, listener));
    }
    wait_for_end(&server).await;
    if let Some(notify) = &*notify {
        notify.tell("STOPPING=1");
    }
    let ended = end(&server, background, http.as_deref()).await;
    // Until here the manager is to know that the server lives.
    watchdog.abort();
    ended
}

/// Tells the manager that clients can come, and from now on that the server lives.
fn notify_ready(
    notify: &Arc<Option<ServiceNotifier>>,
    watchdog: Option<Duration>,
) -> tokio::task::JoinHandle<()> {
    if let Some(notify) = &**notify {
        notify.tell("READY=1");
    }
    let notify = Arc::clone(notify);
    tokio::spawn(async move {
        if let (Some(notify), Some(interval)) = (&*notify, watchdog) {
            notify.keep_telling(interval).await;
        }
    })
}

fn start(config: Config, commands: &'static CommandTable, port: u16) -> Result<Server, ServeError> {
    let failed = |fault: crate::fault::Fault| ServeError::Store(fault.sentence());
    let store = Store::open(&config);
    let store = Arc::new(store.map_err(failed)?);
    let (file, password) = (config.acl_file.clone(), config.password.as_deref());
    let users = AclUsers::open(commands, &store, file, password).map_err(failed)?;
    let seed = format!("{} {}", now_ms(), std::process::id());
    let hash = |more: u64| xxhash_rust::xxh3::xxh3_64_with_seed(seed.as_bytes(), more);
    let settings = Settings::new(&config).map_err(failed)?;
    let calls = CommandStats::new(table::commands().count());
    calls.track(settings.tracks_latency());
    Ok(Server {
        settings,
        locks: Default::default(),
        watch: Default::default(),
        tracking: Default::default(),
        blocking: Default::default(),
        pubsub: Default::default(),
        users,
        clients: Clients::default(),
        scripts: Default::default(),
        monitor: Default::default(),
        pause: Default::default(),
        cursors: Default::default(),
        counts: Default::default(),
        calls,
        spikes: Default::default(),
        saves: SaveState::new(now_ms() / 1000),
        syncer: Syncer::start(Arc::clone(&store)),
        started: Instant::now(),
        run_id: format!("{:016x}{:016x}{:08x}", hash(0), hash(1), hash(2) >> 32),
        port,
        clients_room: open_files::room_for_clients(),
        slow_until_ms: AtomicU64::new(0),
        removes_expired: AtomicBool::new(true),
        has_failed_write: AtomicBool::new(false),
        is_stopping: AtomicBool::new(false),
        stop: Wakeup::new(),
        store,
        config,
    })
}

fn open_sockets(config: &Config) -> Result<Sockets, ServeError> {
    let tcp = match config.port {
        Some(port) => listen_on_all(&config.bind, port)?,
        None => Vec::new(),
    };
    let tls = match &config.tls {
        Some(tls) => Some((Acceptor::new(tls)?, listen_on_all(&config.bind, tls.port)?)),
        None => None,
    };
    let unix = match &config.unix_socket {
        None => None,
        Some(path) => Some(listen_unix(path).map_err(|cause| ServeError::Listen {
            address: path.display().to_string(),
            cause,
        })?),
    };
    let http = match &config.http {
        None => None,
        Some(http) => {
            let failed = |cause| ServeError::Listen {
                address: http.address.clone(),
                cause,
            };
            // A number alone is a port of this machine.
            let address = match http.address.parse::<u16>() {
                Ok(port) => SocketAddr::from(([127, 0, 0, 1], port)),
                Err(_) => {
                    let found = http.address.to_socket_addrs().map_err(failed)?.next();
                    found.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?
                }
            };
            Some((http.clone(), listen(address).map_err(failed)?))
        }
    };
    Ok(Sockets {
        tcp,
        tls,
        unix,
        http,
    })
}

/// Sockets for a port of all addresses to listen on.
fn listen_on_all(bind: &[String], port: u16) -> Result<Vec<TcpListener>, ServeError> {
    let asked: Vec<&str> = match bind.is_empty() {
        true => vec!["127.0.0.1"],
        false => bind.iter().map(String::as_str).collect(),
    };
    let mut sockets = Vec::new();
    for host in asked {
        let failed = |cause| ServeError::Listen {
            address: format!("{host}:{port}"),
            cause,
        };
        let host = if host == "*" { "0.0.0.0" } else { host };
        for address in (host, port).to_socket_addrs().map_err(failed)? {
            sockets.push(listen(address).map_err(failed)?);
        }
    }
    Ok(sockets)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// A socket that a server of before has left is in the way.
fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

async fn accept_tcp(server: Arc<Server>, commands: &'static CommandTable, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                tokio::spawn(serve_tcp(Arc::clone(&server), commands, stream, address));
            }
            // No files are left, or the client has gone: others may come.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn accept_tls(
    server: Arc<Server>,
    commands: &'static CommandTable,
    listener: TcpListener,
    acceptor: Acceptor,
) {
    while let Some(turn) = acceptor.turn().await {
        let Ok((stream, address)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let (server, acceptor) = (Arc::clone(&server), acceptor.clone());
        tokio::spawn(async move {
            prepare(&server, &stream);
            let local = stream.local_addr().ok();
            let accepted = acceptor.accept(stream).await;
            drop(turn);
            match accepted {
                Ok(stream) => serve_stream(server, commands, stream, address, local).await,
                Err(_) => count(&server.counts.refused, 1),
            }
        });
    }
}

/// What all connections over a network have.
fn prepare(server: &Server, stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = server.settings.keepalive_seconds();
    if keepalive > 0 {
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(keepalive));
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}

async fn serve_tcp(
    server: Arc<Server>,
    commands: &'static CommandTable,
    stream: TcpStream,
    address: SocketAddr,
) {
    prepare(&server, &stream);
    let local = stream.local_addr().ok();
    serve_stream(server, commands, stream, address, local).await;
}

/// Serves a client over a network, unless it cannot stay.
async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin>(
    server: Arc<Server>,
    commands: &'static CommandTable,
    mut stream: S,
    address: SocketAddr,
    local: Option<SocketAddr>,
) {
    if let Some(refusal) = refusal(&server, Some(address)) {
        let said = async {
            stream.write_all(refusal.as_bytes()).await?;
            stream.shutdown().await
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), said).await;
        return;
    }
    let local = local.map_or(String::new(), |local| local.to_string());
    let user = Arc::clone(&server.users.default);
    let client = server.clients.add(address.to_string(), local, false, user);
    connection::serve(server, commands, stream, client).await;
}

async fn accept_unix(server: Arc<Server>, commands: &'static CommandTable, listener: UnixListener) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        if let Some(refusal) = refusal(&server, None) {
            let _ = stream.write_all(refusal.as_bytes()).await;
            continue;
        }
        let path = server.settings.text("unixsocket");
        let user = Arc::clone(&server.users.default);
        let client: Arc<Client> = server.clients.add(format!("{path}:0"), path, true, user);
        let server = Arc::clone(&server);
        tokio::spawn(connection::serve(server, commands, stream, client));
    }
}

/// Why a client cannot stay, if it cannot.
fn refusal(server: &Server, address: Option<SocketAddr>) -> Option<&'static str> {
    if server.clients.count() as u64 >= server.clients_max() {
        count(&server.counts.refused, 1);
        return Some("-ERR max number of clients reached\r\n");
    }
    let is_local = address.is_none_or(|address| address.ip().to_canonical().is_loopback());
    if !is_local && server.users.default.rights().is_open() {
        count(&server.counts.refused, 1);
        return Some(
            "-DENIED this server has no password and accepts only local clients; start it with \
             --requirepass to accept others\r\n",
        );
    }
    None
}

async fn wait_for_end(server: &Server) {
    use tokio::signal::unix::{SignalKind, signal};
    let told = async |kind| match signal(kind) {
        Ok(mut signal) => signal.recv().await,
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = server.stop.notified() => {}
        _ = told(SignalKind::terminate()) => {}
        _ = told(SignalKind::interrupt()) => {}
    }
    server.stop();
}

async fn end(
    server: &Arc<Server>,
    background: tokio::task::JoinHandle<()>,
    http: Option<&Http>,
) -> Result<(), ServeError> {
    if let Some(http) = http {
        http.drain();
    }
    for client in server.clients.all() {
        client.kill();
    }
    let deadline = Instant::now() + LAST_REPLIES;
    while server.clients.count() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    background.abort();
    if let Some(http) = http {
        http.close(LAST_REPLIES).await;
    }
    if let Some(path) = &server.config.unix_socket {
        let _ = std::fs::remove_file(path);
    }
    let server = Arc::clone(server);
    let closed = tokio::task::spawn_blocking(move || {
        // Commands that still run have their way first; none comes after.
        let _all = server.locks.all(|| Ok(()));
        server.store.close()
    });
    match closed.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(fault)) => Err(ServeError::Store(fault.text().into_owned())),
        Err(error) => Err(ServeError::Store(error.to_string())),
    }
}
