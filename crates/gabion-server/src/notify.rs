//! Notifications to the service manager by systemd's protocol: datagrams to a socket that it names.
//!
//! `READY=1` once clients can come, `STOPPING=1` when the server ends, and `WATCHDOG=1` as often as
//! it is wanted, from a task among those that serve clients: when they stand still, it does too.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager to notify.
#[derive(Clone, Debug)]
pub struct NotifyConfig {
    /// Its socket: a path, or a name that begins with `@`, which is in no directory.
    pub socket: OsString,
    /// After how long a silence it takes the server for dead.
    pub watchdog: Option<Duration>,
}

impl NotifyConfig {
    /// What the environment of a process says, if a manager has started it.
    pub fn from_environment() -> Option<NotifyConfig> {
        let is_for_us = std::env::var("WATCHDOG_PID")
            .map_or(true, |process| process.parse() == Ok(std::process::id()));
        let micros = std::env::var("WATCHDOG_USEC").ok();
        let micros: Option<u64> = micros.and_then(|micros| micros.parse().ok());
        Some(NotifyConfig {
            socket: std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty())?,
            watchdog: micros
                .filter(|micros| is_for_us && *micros > 0)
                .map(Duration::from_micros),
        })
    }
}

/// The socket of the manager.
#[derive(Debug)]
pub(crate) struct ServiceNotifier {
    socket: UnixDatagram,
    address: SocketAddr,
}

/// The address of a socket that is in no directory.
#[cfg(target_os = "linux")]
fn unnamed(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

impl ServiceNotifier {
    /// Of a manager.
    ///
    /// # Errors
    /// When its socket has no such name.
    pub(crate) fn new(socket: &OsStr) -> io::Result<ServiceNotifier> {
        let address = match socket.as_bytes().strip_prefix(b"@") {
            Some(name) => unnamed(name)?,
            None => SocketAddr::from_pathname(socket)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(ServiceNotifier { socket, address })
    }

    /// Tells it something. A manager that does not listen misses it.
    pub(crate) fn tell(&self, line: &str) {
        let _ = self.socket.send_to_addr(line.as_bytes(), &self.address);
    }

    /// Says that the server lives, twice in each interval.
    pub(crate) async fn keep_telling(&self, interval: Duration) {
        let mut ticks = tokio::time::interval((interval / 2).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tell("WATCHDOG=1");
        }
    }
}
