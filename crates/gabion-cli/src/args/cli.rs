//! The command line of `gabion cli`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Talk to a server that speaks Redis' protocol.
///
/// With a command, sends it, prints the reply, and ends: with status 1 if that is an error. Without
/// one, reads commands: from a terminal with history and hints, else a line each from standard
/// input. Words are separated by spaces; "..." and '...' make one of several, and \n, \r, \t, \xNN
/// within "..." any byte.
///
/// A terminal is shown replies by kind, as (integer) 1. Elsewhere, and with --raw, a reply is its
/// bytes, a list an item a line.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion cli
  gabion cli --port 7000 set stone granite
  gabion cli --json hgetall quarry
  gabion cli < commands.txt")]
pub(crate) struct CliArguments {
    /// Host of the server.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Port of the server.
    #[arg(long, short, value_name = "PORT", default_value_t = 6379)]
    pub(crate) port: u16,
    /// Socket of the server, on this machine, in place of host and port.
    #[arg(long, short, value_name = "PATH", conflicts_with = "tls")]
    pub(crate) socket: Option<PathBuf>,
    /// User to log in as; `default` if there is only a password.
    #[arg(long, value_name = "NAME", requires = "pass")]
    pub(crate) user: Option<String>,
    /// Password to log in with. Others on this machine may see it here; not in the environment.
    #[arg(
        long,
        short = 'a',
        value_name = "PASSWORD",
        env = "GABION_PASSWORD",
        hide_env_values = true
    )]
    pub(crate) pass: Option<String>,
    /// Database to select.
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) database: Option<u32>,
    /// Speak TLS.
    #[arg(long, requires = "cacert")]
    pub(crate) tls: bool,
    /// Authorities that the server's certificate may be of: a PEM file.
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(crate) cacert: Option<PathBuf>,
    /// Certificate to show: a PEM file.
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    pub(crate) cert: Option<PathBuf>,
    /// Key of that certificate: a PEM file.
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Name that the server's certificate must have, if it is not that of the host.
    #[arg(long, value_name = "NAME", requires = "tls")]
    pub(crate) sni: Option<String>,
    /// Speak RESP2, for old servers. Without it RESP3 is spoken.
    #[arg(long)]
    pub(crate) resp2: bool,
    /// Print replies as they are, to a terminal too.
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    /// Print each reply as a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Command to send, with its arguments.
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}
