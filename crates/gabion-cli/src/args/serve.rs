//! The command line of `gabion serve`.

use std::path::PathBuf;

use clap::Args;
use gabion_server::{Config, Fsync};

use super::parse_bytes;

/// Serve a store to clients of Redis.
///
/// Programs that talk to Redis by RESP2 or RESP3 talk to this server unchanged; the data is in the
/// store, which may be many times larger than memory. Without a password it takes clients of this
/// machine only. SIGTERM, SIGINT and the command SHUTDOWN end it; nothing is lost then. What a
/// power loss may cost is set by --appendfsync, the end of the process, even by kill -9, costs
/// nothing.
///
/// The store must not be open elsewhere, and other commands of this program should leave its
/// keyspaces as they are.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion serve --db store
  gabion serve --db store --port 7000 --bind 0.0.0.0 --requirepass secret --appendfsync always
  redis-cli -p 7000 -a secret set stone granite")]
pub(crate) struct ServeArguments {
    /// Directory of the store; it is made if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Port to listen on; 0 for any that is free.
    #[arg(long, value_name = "PORT", default_value_t = 6379)]
    pub(crate) port: u16,
    /// Address to listen on, of this machine; may be given several times. `*` for all. Without it,
    /// 127.0.0.1.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Vec<String>,
    /// Socket of this machine to listen on, besides.
    #[arg(long, value_name = "PATH")]
    pub(crate) unixsocket: Option<PathBuf>,
    /// Password that clients must say.
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) requirepass: Option<String>,
    /// File of users, a line for each as ACL LIST shows them. Without it users are in the store.
    #[arg(long, value_name = "PATH")]
    pub(crate) aclfile: Option<PathBuf>,
    /// How many databases clients can select.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=4096),
    )]
    pub(crate) databases: u16,
    /// When a write is safe from a power loss: `always` before its reply, `everysec` within a
    /// second, `no` when the system likes.
    #[arg(long, value_name = "WHEN", default_value = "everysec")]
    pub(crate) appendfsync: Fsync,
    /// Memory that the store may use, such as 512MiB. 0: it follows from the memory of the machine.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_bytes)]
    pub(crate) maxmemory: u64,
    /// The most clients at the same time.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) maxclients: u64,
    /// Disconnect clients that say nothing for so many seconds. 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) timeout: u64,
    /// Threads that run commands. 0: one more than there are processors, and four at least.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,
}

impl ServeArguments {
    /// What the server is started with.
    pub(crate) fn config(&self) -> Config {
        Config {
            bind: self.bind.clone(),
            port: Some(self.port),
            unix_socket: self.unixsocket.clone(),
            password: self.requirepass.clone(),
            acl_file: self.aclfile.clone(),
            databases: self.databases,
            fsync: self.appendfsync,
            memory_bytes_max: self.maxmemory,
            clients_max: self.maxclients,
            timeout_seconds: self.timeout,
            threads: self.threads,
            ..Config::new(&self.db)
        }
    }
}
