//! The command line of `gabion serve`.
//!
//! A flag is defined once, here. It can also be given in the environment, as `GABION_` and its name
//! in capitals, and in a file, under its name: a value of the file becomes an argument in front of
//! those that were given, unless one of these or the environment has the flag.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches};
use gabion_server::{
    AppendFsync, AuthClients, Config, HttpConfig, NotifyConfig, TlsConfig, is_parameter,
    read_config_file,
};

use super::{Arguments, parse_bytes};
use crate::failure::Failure;

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
  gabion serve --db store --http 9121
  gabion serve --config /etc/gabion.toml
  gabion serve --db store --port 7000 --bind 0.0.0.0 --requirepass secret --appendfsync always
  redis-cli -p 7000 -a secret set stone granite")]
pub(crate) struct ServeArguments {
    /// File of parameters, in TOML: flags by their names without the dashes, and parameters that
    /// CONFIG SET takes. A flag and the environment come before it. CONFIG REWRITE writes it.
    #[arg(long, value_name = "FILE", env = "GABION_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the store; it is made if it does not exist.
    #[arg(
        long,
        value_name = "DIR",
        env = "GABION_DB",
        required_unless_present = "config"
    )]
    pub(crate) db: Option<PathBuf>,
    /// Port to listen on; 0 for any that is free, `none` for TLS alone.
    #[arg(long, value_name = "PORT", env = "GABION_PORT", default_value = "6379")]
    pub(crate) port: Port,
    /// Address to listen on, of this machine; may be given several times. `*` for all. Without it,
    /// 127.0.0.1.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "GABION_BIND",
        value_delimiter = ' '
    )]
    pub(crate) bind: Vec<String>,
    /// Socket of this machine to listen on, besides.
    #[arg(long, value_name = "PATH", env = "GABION_UNIXSOCKET")]
    pub(crate) unixsocket: Option<PathBuf>,
    /// Show metrics for Prometheus, health and a dashboard by HTTP here: HOST:PORT, or PORT for
    /// this machine only. Who reaches it reads it, without a password.
    #[arg(long, value_name = "ADDRESS", env = "GABION_HTTP")]
    pub(crate) http: Option<String>,
    /// Speak TLS on this port; 0 for any that is free.
    #[arg(long, value_name = "PORT", env = "GABION_TLS_PORT")]
    pub(crate) tls_port: Option<u16>,
    /// Certificate for TLS, and those between it and an authority: a PEM file.
    #[arg(long, value_name = "FILE", env = "GABION_TLS_CERT_FILE")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Key of that certificate: a PEM file.
    #[arg(long, value_name = "FILE", env = "GABION_TLS_KEY_FILE")]
    pub(crate) tls_key_file: Option<PathBuf>,
    /// Authorities of certificates that clients show: a PEM file.
    #[arg(long, value_name = "FILE", env = "GABION_TLS_CA_CERT_FILE")]
    pub(crate) tls_ca_cert_file: Option<PathBuf>,
    /// Whether clients must show certificates: `yes`, `no`, or `optional` for no wrong one.
    #[arg(
        long,
        value_name = "WHETHER",
        env = "GABION_TLS_AUTH_CLIENTS",
        default_value = "yes"
    )]
    pub(crate) tls_auth_clients: AuthClients,
    /// Password that clients must say.
    #[arg(
        long,
        value_name = "PASSWORD",
        env = "GABION_REQUIREPASS",
        hide_env_values = true
    )]
    pub(crate) requirepass: Option<String>,
    /// File of users, a line for each as ACL LIST shows them. Without it users are in the store.
    #[arg(long, value_name = "PATH", env = "GABION_ACLFILE")]
    pub(crate) aclfile: Option<PathBuf>,
    /// How many databases clients can select.
    #[arg(
        long,
        value_name = "N",
        env = "GABION_DATABASES",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=4096),
    )]
    pub(crate) databases: u16,
    /// When a write is safe from a power loss: `always` before its reply, `everysec` within a
    /// second, `no` when the system likes.
    #[arg(
        long,
        value_name = "WHEN",
        env = "GABION_APPENDFSYNC",
        default_value = "everysec"
    )]
    pub(crate) appendfsync: AppendFsync,
    /// Memory that the store may use, such as 512MiB. 0: it follows from the memory of the machine.
    #[arg(
        long,
        value_name = "BYTES",
        env = "GABION_MAXMEMORY",
        default_value = "0",
        value_parser = parse_bytes
    )]
    pub(crate) maxmemory: u64,
    /// The most clients at the same time.
    #[arg(
        long,
        value_name = "N",
        env = "GABION_MAXCLIENTS",
        default_value_t = 10_000
    )]
    pub(crate) maxclients: u64,
    /// Disconnect clients that say nothing for so many seconds. 0: never.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "GABION_TIMEOUT",
        default_value_t = 0
    )]
    pub(crate) timeout: u64,
    /// Threads that run commands. 0: one more than there are processors, and four at least.
    #[arg(long, value_name = "N", env = "GABION_THREADS", default_value_t = 0)]
    pub(crate) threads: usize,
    /// Give a parameter of CONFIG SET another value at the start; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) set: Vec<(String, String)>,
}

/// A port, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port(Option<u16>);

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Port, String> {
        match text {
            "none" => Ok(Port(None)),
            _ => match text.parse() {
                Ok(port) => Ok(Port(Some(port))),
                Err(_) => Err("must be a number up to 65535, or `none`".to_owned()),
            },
        }
    }
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let (name, value) = pair.ok_or("must be a name, `=` and a value")?;
    match is_parameter(name) {
        true => Ok((name.to_owned(), value.to_owned())),
        false => Err(format!("CONFIG SET has no parameter {name}")),
    }
}

impl ServeArguments {
    /// What the server is started with.
    ///
    /// # Errors
    /// When the file of parameters cannot be read, or has what no flag has.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let merged = match &self.config {
            None => None,
            Some(file) => Some(with_file(file, std::env::args_os().collect())?),
        };
        let all = merged.as_ref().unwrap_or(self);
        let db = all.db.as_ref().ok_or_else(|| {
            Failure::usage("no store is named; use --db, or set `db` in the configuration file")
        })?;
        let tls = match (all.tls_port, &all.tls_cert_file, &all.tls_key_file) {
            (Some(port), Some(cert_file), Some(key_file)) => Some(TlsConfig {
                port,
                cert_file: cert_file.clone(),
                key_file: key_file.clone(),
                ca_cert_file: all.tls_ca_cert_file.clone(),
                auth_clients: all.tls_auth_clients,
                handshake_time: Duration::from_secs(10),
            }),
            (Some(_), _, _) => {
                return Err(Failure::usage(
                    "TLS needs a certificate and a key; use --tls-cert-file and --tls-key-file",
                ));
            }
            _ => None,
        };
        Ok(Config {
            file: all.config.clone(),
            parameters: all.set.clone(),
            bind: all.bind.clone(),
            port: all.port.0,
            tls,
            unix_socket: all.unixsocket.clone(),
            http: all.http.clone().map(HttpConfig::new),
            notify: NotifyConfig::from_environment(),
            password: all.requirepass.clone(),
            acl_file: all.aclfile.clone(),
            databases: all.databases,
            fsync: all.appendfsync,
            memory_bytes_max: all.maxmemory,
            clients_max: all.maxclients,
            timeout_seconds: all.timeout,
            threads: all.threads,
            ..Config::new(db)
        })
    }
}

/// What the program was called with, and the values of a file.
fn with_file(path: &Path, given: Vec<OsString>) -> Result<ServeArguments, Failure> {
    let pairs = read_config_file(path).map_err(Failure::new)?;
    let wrong = |why: &str| Failure::new(format!("{}: {why}", path.display()));
    let mut command = Arguments::command();
    let parsed = command.try_get_matches_from_mut(&given);
    let parsed = parsed.map_err(|error| Failure::usage(error.to_string()))?;
    let (Some(of_serve), Some(serve)) = (
        parsed.subcommand_matches("serve"),
        command.find_subcommand("serve"),
    ) else {
        return Err(Failure::usage("the command is not `serve`"));
    };
    let mut added = Vec::new();
    for (key, value) in pairs {
        let mut flags = serve.get_arguments();
        match flags.find(|flag| flag.get_long() == Some(key.as_str())) {
            Some(_) if ["config", "set", "help"].contains(&key.as_str()) => {
                return Err(wrong(&format!("{key} is allowed on the command line only")));
            }
            Some(flag) if is_given(of_serve, flag.get_id().as_str()) => {}
            Some(_) => added.push(OsString::from(format!("--{key}={value}"))),
            None if is_parameter(&key) => {
                added.push(OsString::from(format!("--set={key}={value}")));
            }
            None => return Err(wrong(&format!("{key} is neither a flag nor a parameter"))),
        }
    }
    // Behind the name of the command, so that what was given has the last word.
    let mut all = given;
    let place = all.iter().position(|argument| argument == "serve");
    let place = place.map_or(all.len(), |place| place + 1);
    all.splice(place..place, added);
    let matches = Arguments::command().try_get_matches_from(all);
    let matches = matches.map_err(|error| wrong(first_line(&error.to_string())))?;
    let arguments = matches.subcommand_matches("serve");
    let arguments = arguments.map(ServeArguments::from_arg_matches);
    match arguments {
        Some(Ok(arguments)) => Ok(arguments),
        _ => Err(wrong("the values are not valid arguments")),
    }
}

/// Whether a flag was given by the command line or the environment.
fn is_given(matches: &ArgMatches, flag: &str) -> bool {
    matches!(
        matches.value_source(flag),
        Some(ValueSource::CommandLine | ValueSource::EnvVariable)
    )
}

/// What clap says is wrong, without what it says besides.
fn first_line(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line)
}
