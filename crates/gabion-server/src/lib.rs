//! A server that speaks Redis' protocol, and whose data is a Gabion store.
//!
//! Programs that talk to Redis talk to it unchanged. What differs is where the data is: on the
//! drive, in a store that bounds its memory, and may be many times larger than it. `gabion serve`
//! is its face; [`serve`] is all that it needs from here.
//!
//! # A request, room by room
//! 1. **`listen.rs`** accepts a connection, **`connection.rs`** reads what comes. All requests that
//!    have come run back to back on the connection's task, and their replies leave in one write.
//! 2. **`resp/parse.rs`** finds the arguments in the buffer without a copy.
//! 3. **`dispatch.rs`** finds the command in the table (**`command.rs`**, **`table.rs`**), checks
//!    it and what its user may do (**`acl/`**), queues it between `MULTI` and `EXEC`, takes its
//!    locks (**`locks.rs`**), and calls its handler.
//! 4. The handler, in a file of its family below **`commands/`**, is given an
//!    **`execution.rs`**: arguments, reply, and the work on the store (**`store/work.rs`**).
//! 5. The work commits as a whole: one put, one batch, or one transaction. That is the moment at
//!    which the command takes effect.
//! 6. Watchers (**`watch.rs`**) are told under the locks, listeners (**`pubsub.rs`**) and
//!    clients with copies (**`tracking.rs`**) after them, and then clients that wait for the keys
//!    are served (**`blocking.rs`**, **`wake.rs`**).
//!
//! # Invariants
//! - S1. The server is the only writer of its store. So whoever holds the locks of its keys reads
//!   what stays, and nothing is tried twice.
//! - S2. A command is whole: its writes are one commit. So are all commands of an `EXEC`: a crash
//!   leaves all of it or nothing.
//! - S3. A command has one moment. A key that has expired by then is not there, whether or not its
//!   record still is.
//! - S4. A reply leaves when what it acknowledges is as safe as `appendfsync` says.
//! - S5. A large collection costs nothing to delete: its number is dead with its record, and its
//!   elements are removed later (**`store/sweep.rs`**, **`background.rs`**).
//!
//! # Records
//! `docs/server-format.md` describes what is in the store; **`store/meta.rs`** encodes it.
//!
//! # Collections
//! **`store/members.rs`** is what sets, sorted sets and hashes are made of: members in the record
//! of the key, or each with a record of its own. **`store/scored.rs`** adds the order of scores,
//! **`store/hash.rs`** fields that expire, and **`store/list.rs`** is for lists. A handler opens
//! one (**`open.rs`**), changes it in memory, and saves it: that writes what has changed.
//!
//! # From Redis
//! **`rdb/`** reads and writes values as Redis' dumps have them, and reads its files; **`load.rs`**
//! puts a file into a store.
//!
//! # Beside the commands
//! **`http/`** shows metrics, health and a dashboard. **`histogram.rs`** and **`calls.rs`** count
//! how long commands take, **`latency_monitor.rs`** what took long. **`tls.rs`** lets clients in by
//! TLS, **`notify.rs`** tells a service manager, **`config_file.rs`** is the file of parameters.
//! **`open_files.rs`** keeps files for the store when many clients come.
//! **`client/`** is the other side of the protocol, for `gabion cli`.
//!
//! # A new command
//! An entry in the table of its family, and a handler: `fn(&mut Execution) -> Result<()>`. It reads
//! its arguments by `arg`, its keys by `find`, checks everything, then writes by `put` and
//! `remove`, says what happened by `notify`, and replies by `reply`. Flags say how it is locked:
//! `WRITE` alone,
//! `READONLY` shared, `ALONE` against everybody; `DIRECT` for a command with one key that reads all
//! before it writes, which is the fast way; `ONE_READ` for a command that reads once and needs no
//! lock.

#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod acl;
mod args;
mod background;
mod blocking;
mod calls;
mod client;
mod clients;
mod command;
mod commands;
mod config;
mod config_file;
mod connection;
mod cursors;
mod dispatch;
mod events;
mod execution;
mod expire;
mod fault;
mod geo;
mod glob;
mod histogram;
mod hll;
mod http;
mod latency_monitor;
mod listen;
mod load;
mod locks;
mod monitor;
mod notify;
mod open;
mod open_files;
mod pause;
mod pubsub;
mod random;
mod rdb;
mod resp;
mod saves;
mod script;
mod server;
mod session;
mod store;
mod sync;
mod table;
mod tls;
mod tracking;
mod wake;
mod watch;
mod whole_file;

pub use client::{ClientTls, Connection, Reply, ServerAddress};
pub use config::{AppendFsync, Config, HttpConfig, is_parameter};
pub use config_file::read as read_config_file;
pub use listen::{Addresses, ServeError, serve};
pub use load::{LoadError, Loaded, check_rdb, load_rdb};
pub use notify::NotifyConfig;
pub use table::{CommandHelp, command_help, command_names};
pub use tls::{AuthClients, TlsConfig, TlsError};
