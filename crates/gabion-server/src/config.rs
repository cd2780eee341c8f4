//! Configuration: the settings at the start, and the parameters that `CONFIG` shows and changes.
//!
//! A parameter is a line of [`PARAMETERS`]: its name as Redis has it, what it may be, and its value
//! at the start. What commands ask for often is kept beside it as a number ([`Settings`]).
//!
//! Redis has parameters for forms in memory that this server does not have, such as
//! `hash-max-listpack-entries`. Clients and tests set them, so they are taken and shown, and
//! nothing follows from them but what `OBJECT ENCODING` answers: [`Effect::None`] marks them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use crate::config_file;
use crate::events::EventClasses;
use crate::fault::{Fault, Result};
use crate::notify::NotifyConfig;
use crate::tls::TlsConfig;

/// When a write is safe from a power loss: the values of `appendfsync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppendFsync {
    /// Before its reply. Replies of all connections wait for one sync together.
    Always,
    /// At most a second later.
    #[default]
    EverySecond,
    /// When the system likes.
    No,
}

impl std::str::FromStr for AppendFsync {
    type Err = String;

    fn from_str(text: &str) -> Result<AppendFsync, String> {
        match text {
            "always" => Ok(AppendFsync::Always),
            "everysec" => Ok(AppendFsync::EverySecond),
            "no" => Ok(AppendFsync::No),
            _ => Err(format!("{text:?} is not one of always, everysec and no")),
        }
    }
}

/// Settings of the HTTP interface, which shows metrics, health and a dashboard.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Where to listen: `HOST:PORT`, or `PORT` for this machine only.
    pub address: String,
    /// The most connections. Half of them may be dashboards.
    pub connections_max: usize,
    /// How long a client may take for the head of a request, and to send another one.
    pub head_time: Duration,
}

impl HttpConfig {
    /// The usual limits: 64 connections, 10 s.
    pub fn new(address: impl Into<String>) -> HttpConfig {
        HttpConfig {
            address: address.into(),
            connections_max: 64,
            head_time: Duration::from_secs(10),
        }
    }
}

/// The configuration that a server is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the store.
    pub db: PathBuf,
    /// The file of parameters that it was started with, which `CONFIG REWRITE` writes.
    pub file: Option<PathBuf>,
    /// Parameters of `CONFIG` that have other values at the start, by their names.
    pub parameters: Vec<(String, String)>,
    /// The addresses to listen on. None: those of this machine only.
    pub bind: Vec<String>,
    /// The port; 0 for any that is free, `None` for none.
    pub port: Option<u16>,
    /// TLS, if it is spoken.
    pub tls: Option<TlsConfig>,
    /// A socket of this machine to listen on, besides.
    pub unix_socket: Option<PathBuf>,
    /// Metrics, health and a dashboard by HTTP, if they are wanted.
    pub http: Option<HttpConfig>,
    /// A service manager to tell, if there is one.
    pub notify: Option<NotifyConfig>,
    /// The password, if clients need one.
    pub password: Option<String>,
    /// A file of users. Without it they are in the store.
    pub acl_file: Option<PathBuf>,
    /// How many databases there are.
    pub databases: u16,
    /// When writes are safe.
    pub fsync: AppendFsync,
    /// The store's ceiling for memory, in bytes; 0 for one that follows from the machine.
    pub memory_bytes_max: u64,
    /// The most clients.
    pub clients_max: u64,
    /// Seconds after which a client that says nothing is disconnected; 0 for never.
    pub timeout_seconds: u64,
    /// Up to how many bytes a list, a set, a sorted set or a hash is kept in one record with its
    /// key. A larger one has a record for each element.
    pub packed_bytes_max: usize,
    /// Threads that run commands; 0 for one more than there are processors, at least 4.
    pub threads: usize,
}

impl Config {
    /// The defaults of Redis, for a store in `db`.
    pub fn new(db: impl Into<PathBuf>) -> Config {
        Config {
            db: db.into(),
            file: None,
            parameters: Vec::new(),
            bind: Vec::new(),
            port: Some(6379),
            tls: None,
            unix_socket: None,
            http: None,
            notify: None,
            password: None,
            acl_file: None,
            databases: 16,
            fsync: AppendFsync::default(),
            memory_bytes_max: 0,
            clients_max: 10_000,
            timeout_seconds: 0,
            packed_bytes_max: 512,
            threads: 0,
        }
    }
}

/// Whether `CONFIG SET` changes a parameter of that name.
pub fn is_parameter(name: &str) -> bool {
    let mut known = PARAMETERS.iter();
    known.any(|parameter| parameter.name == name && parameter.effect != Effect::Fixed)
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Anything.
    Text,
    /// `yes` or `no`.
    YesNo,
    /// A whole number.
    Number(i64, i64),
    /// Bytes, with a unit or without.
    Bytes,
    /// One of some words.
    Word(&'static [&'static str]),
    /// Classes of keyspace events.
    Events,
    /// Percentages with spaces between them.
    Percents,
}

/// What follows from a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The value, at once.
    Live,
    /// It is as at the start.
    Fixed,
    /// Nothing: it is of a form that this server does not have.
    None,
}

struct Parameter {
    name: &'static str,
    form: Form,
    effect: Effect,
    first: &'static str,
}

const fn parameter(
    name: &'static str,
    form: Form,
    effect: Effect,
    first: &'static str,
) -> Parameter {
    Parameter {
        name,
        form,
        effect,
        first,
    }
}

const COUNT: Form = Form::Number(0, i64::MAX);
const SIGNED: Form = Form::Number(i64::MIN, i64::MAX);
const FSYNC: Form = Form::Word(&["always", "everysec", "no"]);

const PARAMETERS: &[Parameter] = &[
    parameter(
        "acl-pubsub-default",
        Form::Word(&["allchannels", "resetchannels"]),
        Effect::Live,
        "resetchannels",
    ),
    parameter("aclfile", Form::Text, Effect::Fixed, ""),
    parameter("acllog-max-len", COUNT, Effect::Live, "128"),
    parameter("appendfsync", FSYNC, Effect::Live, "everysec"),
    parameter("appendonly", Form::YesNo, Effect::Fixed, "yes"),
    parameter("bind", Form::Text, Effect::Fixed, ""),
    parameter("databases", COUNT, Effect::Fixed, "16"),
    parameter("dir", Form::Text, Effect::Fixed, ""),
    parameter("busy-reply-threshold", COUNT, Effect::Live, "5000"),
    parameter("lua-time-limit", COUNT, Effect::Live, "5000"),
    parameter("daemonize", Form::YesNo, Effect::Fixed, "no"),
    parameter("hll-sparse-max-bytes", COUNT, Effect::Live, "3000"),
    parameter(
        "maxclients",
        Form::Number(1, 1 << 32),
        Effect::Live,
        "10000",
    ),
    parameter("latency-monitor-threshold", COUNT, Effect::Live, "0"),
    parameter("latency-tracking", Form::YesNo, Effect::Live, "yes"),
    parameter(
        "latency-tracking-info-percentiles",
        Form::Percents,
        Effect::Live,
        "50 99 99.9",
    ),
    parameter("maxmemory", Form::Bytes, Effect::Fixed, "0"),
    parameter(
        "maxmemory-policy",
        Form::Word(&["noeviction"]),
        Effect::Fixed,
        "noeviction",
    ),
    parameter("notify-keyspace-events", Form::Events, Effect::Live, ""),
    parameter("port", COUNT, Effect::Fixed, "6379"),
    parameter("proto-max-bulk-len", Form::Bytes, Effect::Live, "536870912"),
    parameter("requirepass", Form::Text, Effect::Live, ""),
    parameter("save", Form::Text, Effect::None, ""),
    parameter("slowlog-log-slower-than", SIGNED, Effect::Live, "10000"),
    parameter("slowlog-max-len", COUNT, Effect::Live, "128"),
    parameter("tcp-keepalive", COUNT, Effect::Live, "300"),
    parameter("timeout", COUNT, Effect::Live, "0"),
    parameter(
        "tls-auth-clients",
        Form::Word(&["yes", "no", "optional"]),
        Effect::Fixed,
        "yes",
    ),
    parameter("tls-ca-cert-file", Form::Text, Effect::Fixed, ""),
    parameter("tls-cert-file", Form::Text, Effect::Fixed, ""),
    parameter("tls-key-file", Form::Text, Effect::Fixed, ""),
    parameter("tls-port", COUNT, Effect::Fixed, "0"),
    parameter("tracking-table-max-keys", COUNT, Effect::Live, "1000000"),
    parameter("unixsocket", Form::Text, Effect::Fixed, ""),
    // Forms that this server does not have.
    parameter("active-defrag-running", COUNT, Effect::None, "0"),
    parameter("activedefrag", Form::YesNo, Effect::None, "no"),
    parameter("auto-aof-rewrite-percentage", COUNT, Effect::None, "100"),
    parameter(
        "auto-aof-rewrite-min-size",
        Form::Bytes,
        Effect::None,
        "67108864",
    ),
    parameter("client-output-buffer-limit", Form::Text, Effect::None, ""),
    parameter(
        "client-query-buffer-limit",
        Form::Bytes,
        Effect::None,
        "1073741824",
    ),
    parameter("hash-max-listpack-entries", COUNT, Effect::None, "512"),
    parameter("hash-max-listpack-value", COUNT, Effect::None, "64"),
    parameter("hash-max-ziplist-entries", COUNT, Effect::None, "512"),
    parameter("hash-max-ziplist-value", COUNT, Effect::None, "64"),
    parameter("hz", COUNT, Effect::None, "10"),
    parameter("lazyfree-lazy-expire", Form::YesNo, Effect::None, "yes"),
    parameter("lazyfree-lazy-server-del", Form::YesNo, Effect::None, "yes"),
    parameter("lazyfree-lazy-user-del", Form::YesNo, Effect::None, "yes"),
    parameter("lazyfree-lazy-user-flush", Form::YesNo, Effect::None, "no"),
    parameter("lfu-decay-time", COUNT, Effect::None, "1"),
    parameter("lfu-log-factor", COUNT, Effect::None, "10"),
    parameter("list-compress-depth", COUNT, Effect::None, "0"),
    parameter("list-max-listpack-size", SIGNED, Effect::None, "-2"),
    parameter("list-max-ziplist-size", SIGNED, Effect::None, "-2"),
    parameter("maxmemory-samples", COUNT, Effect::None, "5"),
    parameter("min-replicas-to-write", COUNT, Effect::None, "0"),
    parameter("rdb-key-save-delay", SIGNED, Effect::None, "0"),
    parameter("rdbcompression", Form::YesNo, Effect::None, "yes"),
    parameter("repl-diskless-sync-delay", COUNT, Effect::None, "5"),
    parameter("repl-diskless-sync", Form::YesNo, Effect::None, "yes"),
    parameter("repl-ping-replica-period", COUNT, Effect::None, "10"),
    parameter("replica-serve-stale-data", Form::YesNo, Effect::None, "yes"),
    parameter("set-max-intset-entries", COUNT, Effect::None, "512"),
    parameter("stream-node-max-bytes", Form::Bytes, Effect::None, "4096"),
    parameter("stream-node-max-entries", COUNT, Effect::None, "100"),
    parameter("zset-max-listpack-entries", COUNT, Effect::None, "128"),
    parameter("zset-max-listpack-value", COUNT, Effect::None, "64"),
    parameter("zset-max-ziplist-entries", COUNT, Effect::None, "128"),
    parameter("zset-max-ziplist-value", COUNT, Effect::None, "64"),
];

/// The parameters of a running server.
#[derive(Debug)]
pub(crate) struct Settings {
    values: RwLock<BTreeMap<&'static str, String>>,
    /// Those that a start with the same flags and file would have.
    kept: RwLock<BTreeMap<&'static str, String>>,
    /// Classes of keyspace events that are published.
    events: AtomicU64,
    fsync: AtomicU64,
    clients_max: AtomicU64,
    timeout_seconds: AtomicU64,
    bulk_bytes_max: AtomicU64,
    keepalive_seconds: AtomicU64,
    busy_ms: AtomicU64,
    slow_micros: AtomicU64,
    spike_ms: AtomicU64,
    tracked_max: AtomicU64,
}

impl Settings {
    /// Those that the server is started with.
    ///
    /// # Errors
    /// As [`Settings::set`], of [`Config::parameters`].
    pub(crate) fn new(config: &Config) -> Result<Settings> {
        let mut values: BTreeMap<&'static str, String> = PARAMETERS
            .iter()
            .map(|parameter| (parameter.name, parameter.first.to_owned()))
            .collect();
        let fsync = match config.fsync {
            AppendFsync::Always => "always",
            AppendFsync::EverySecond => "everysec",
            AppendFsync::No => "no",
        };
        let shown =
            |path: Option<&PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
        for (name, value) in [
            ("aclfile", shown(config.acl_file.as_ref())),
            ("appendfsync", fsync.to_owned()),
            ("bind", config.bind.join(" ")),
            ("databases", config.databases.to_string()),
            ("dir", config.db.display().to_string()),
            ("maxclients", config.clients_max.to_string()),
            ("maxmemory", config.memory_bytes_max.to_string()),
            ("port", config.port.unwrap_or_default().to_string()),
            ("requirepass", config.password.clone().unwrap_or_default()),
            ("timeout", config.timeout_seconds.to_string()),
            ("unixsocket", shown(config.unix_socket.as_ref())),
        ] {
            values.insert(name, value);
        }
        if let Some(tls) = &config.tls {
            for (name, value) in [
                ("tls-auth-clients", tls.auth_clients.word().to_owned()),
                ("tls-ca-cert-file", shown(tls.ca_cert_file.as_ref())),
                ("tls-cert-file", shown(Some(&tls.cert_file))),
                ("tls-key-file", shown(Some(&tls.key_file))),
                ("tls-port", tls.port.to_string()),
            ] {
                values.insert(name, value);
            }
        }
        let settings = Settings {
            kept: RwLock::new(values.clone()),
            values: RwLock::new(values),
            events: AtomicU64::new(0),
            fsync: AtomicU64::new(0),
            clients_max: AtomicU64::new(0),
            timeout_seconds: AtomicU64::new(0),
            bulk_bytes_max: AtomicU64::new(0),
            keepalive_seconds: AtomicU64::new(0),
            busy_ms: AtomicU64::new(0),
            slow_micros: AtomicU64::new(0),
            spike_ms: AtomicU64::new(0),
            tracked_max: AtomicU64::new(0),
        };
        settings.apply();
        settings.set(&config.parameters)?;
        settings.keep();
        Ok(settings)
    }

    /// Brings the numbers in step with the values.
    fn apply(&self) {
        let values = self.values.read();
        let number = |name: &str| values.get(name).and_then(|value| value.parse().ok());
        let events = values.get("notify-keyspace-events");
        let events = events
            .and_then(|text| EventClasses::parse(text))
            .unwrap_or_default();
        let fsync: Option<AppendFsync> = values
            .get("appendfsync")
            .and_then(|value| value.parse().ok());
        // ORDER: Relaxed throughout; a setting takes effect soon, and orders nothing.
        for (place, value) in [
            (&self.events, Some(u64::from(events.bits()))),
            (&self.fsync, Some(fsync.unwrap_or_default() as u64)),
            (&self.clients_max, number("maxclients")),
            (&self.timeout_seconds, number("timeout")),
            (&self.bulk_bytes_max, number("proto-max-bulk-len")),
            (&self.keepalive_seconds, number("tcp-keepalive")),
            (&self.tracked_max, number("tracking-table-max-keys")),
            (&self.busy_ms, number("busy-reply-threshold")),
            (&self.spike_ms, number("latency-monitor-threshold")),
            // What is negative is no threshold at all.
            (
                &self.slow_micros,
                Some(number("slowlog-log-slower-than").unwrap_or(u64::MAX)),
            ),
        ] {
            // ORDER: Relaxed, as above.
            place.store(value.unwrap_or_default(), Ordering::Relaxed);
        }
    }

    /// Names and values of the parameters whose names match.
    pub(crate) fn matching(&self, matches: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let values = self.values.read();
        let fits = values.iter().filter(|(name, _)| matches(name));
        fits.map(|(name, value)| (*name, value.clone())).collect()
    }

    /// Writes what was changed since the start into the file of parameters.
    ///
    /// # Errors
    /// A sentence, when it cannot be written.
    pub(crate) fn rewrite(&self, file: &Path) -> Result<(), String> {
        let values = self.values.read().clone();
        let kept = self.kept.read().clone();
        let changed = values
            .iter()
            .filter(|(name, value)| kept.get(*name) != Some(value))
            .map(|(name, value)| (*name, value.as_str()));
        config_file::rewrite(file, changed)?;
        self.keep();
        Ok(())
    }

    /// Takes the values as those of the next start.
    fn keep(&self) {
        *self.kept.write() = self.values.read().clone();
    }

    /// The value of a parameter.
    pub(crate) fn text(&self, name: &str) -> String {
        self.values.read().get(name).cloned().unwrap_or_default()
    }

    /// Changes parameters: all of them, or none.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be.
    pub(crate) fn set(&self, changes: &[(String, String)]) -> Result<()> {
        let mut checked = Vec::new();
        for (index, (name, _)) in changes.iter().enumerate() {
            let mut earlier = changes[..index].iter();
            if earlier.any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
                return Err(failed(name, "duplicate parameter"));
            }
        }
        for (name, value) in changes {
            let lower = name.to_ascii_lowercase();
            let Some(parameter) = PARAMETERS.iter().find(|known| known.name == lower) else {
                return Err(Fault::new(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                )));
            };
            if parameter.effect == Effect::Fixed && self.text(parameter.name) != *value {
                return Err(failed(name, "can't set immutable config"));
            }
            let value = normal(parameter.form, value).map_err(|why| failed(name, &why))?;
            // One parameter with two names.
            match parameter.name {
                "lua-time-limit" => checked.push(("busy-reply-threshold", value.clone())),
                "busy-reply-threshold" => checked.push(("lua-time-limit", value.clone())),
                _ => {}
            }
            // A limit of forms in memory has an old name and a new one.
            let twin = match parameter.name.contains("-ziplist-") {
                true => parameter.name.replace("-ziplist-", "-listpack-"),
                false => parameter.name.replace("-listpack-", "-ziplist-"),
            };
            let twin = PARAMETERS.iter().find(|known| known.name == twin);
            checked.extend(twin.map(|twin| (twin.name, value.clone())));
            checked.push((parameter.name, value));
        }
        self.values.write().extend(checked);
        self.apply();
        Ok(())
    }

    /// Classes of keyspace events that are published.
    pub(crate) fn events(&self) -> EventClasses {
        // ORDER: Relaxed, as in `apply`.
        let bits = self.events.load(Ordering::Relaxed);
        EventClasses::from_bits(u32::try_from(bits).unwrap_or_default())
    }

    /// When writes are safe.
    pub(crate) fn fsync(&self) -> AppendFsync {
        // ORDER: Relaxed, as in `apply`.
        match self.fsync.load(Ordering::Relaxed) {
            0 => AppendFsync::Always,
            1 => AppendFsync::EverySecond,
            _ => AppendFsync::No,
        }
    }

    /// The most clients.
    pub(crate) fn clients_max(&self) -> u64 {
        // ORDER: Relaxed, as in `apply`.
        self.clients_max.load(Ordering::Relaxed)
    }

    /// Seconds after which a silent client is disconnected; 0 for never.
    pub(crate) fn timeout_seconds(&self) -> u64 {
        // ORDER: Relaxed, as in `apply`.
        self.timeout_seconds.load(Ordering::Relaxed)
    }

    /// The longest argument.
    pub(crate) fn bulk_bytes_max(&self) -> usize {
        // ORDER: Relaxed, as in `apply`.
        let bytes = self.bulk_bytes_max.load(Ordering::Relaxed);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Microseconds from which on a command is slow.
    pub(crate) fn slow_micros(&self) -> u64 {
        // ORDER: Relaxed, as in `apply`.
        self.slow_micros.load(Ordering::Relaxed)
    }

    /// Milliseconds from which on what takes long is noted for `LATENCY`; 0 for never.
    pub(crate) fn spike_ms(&self) -> u64 {
        // ORDER: Relaxed, as in `apply`.
        self.spike_ms.load(Ordering::Relaxed)
    }

    /// Whether durations of calls are kept.
    pub(crate) fn tracks_latency(&self) -> bool {
        self.text("latency-tracking") == "yes"
    }

    /// The percentages of `INFO latencystats`.
    pub(crate) fn percents(&self) -> Vec<f64> {
        parse_percents(&self.text("latency-tracking-info-percentiles")).unwrap_or_default()
    }

    /// The most keys that are tracked; 0 for any number.
    pub(crate) fn tracked_max(&self) -> usize {
        // ORDER: Relaxed, as in `apply`.
        let most = self.tracked_max.load(Ordering::Relaxed);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Milliseconds after which other clients are told that a script runs.
    pub(crate) fn busy_ms(&self) -> u64 {
        // ORDER: Relaxed, as in `apply`.
        self.busy_ms.load(Ordering::Relaxed)
    }

    /// Seconds of silence after which a connection is probed; 0 for never.
    pub(crate) fn keepalive_seconds(&self) -> u64 {
        // ORDER: Relaxed, as in `apply`.
        self.keepalive_seconds.load(Ordering::Relaxed)
    }
}

fn failed(name: &str, why: &str) -> Fault {
    Fault::new(format!(
        "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
    ))
}

/// A value as it is shown, if it may be.
fn normal(form: Form, value: &str) -> Result<String, String> {
    match form {
        Form::Text => Ok(value.to_owned()),
        Form::YesNo if value.eq_ignore_ascii_case("yes") => Ok("yes".to_owned()),
        Form::YesNo if value.eq_ignore_ascii_case("no") => Ok("no".to_owned()),
        Form::YesNo => Err("argument must be 'yes' or 'no'".to_owned()),
        Form::Number(least, most) => match value.parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(number.to_string()),
            Ok(_) => Err(format!(
                "argument must be between {least} and {most} inclusive"
            )),
            Err(_) => Err("argument couldn't be parsed into an integer".to_owned()),
        },
        Form::Bytes => match parse_bytes(value) {
            Some(bytes) => Ok(bytes.to_string()),
            None => Err("argument must be a memory value".to_owned()),
        },
        Form::Word(words) => match words.iter().find(|word| word.eq_ignore_ascii_case(value)) {
            Some(word) => Ok((*word).to_owned()),
            None => Err(format!(
                "argument(s) must be one of the following: {}",
                words.join(", ")
            )),
        },
        Form::Events => match EventClasses::parse(value) {
            Some(events) => Ok(events.text()),
            None => Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
        },
        Form::Percents => match parse_percents(value) {
            Some(percents) => {
                let texts: Vec<String> = percents.iter().map(f64::to_string).collect();
                Ok(texts.join(" "))
            }
            None => Err(
                "latency-tracking-info-percentiles should consist of percentages from 0 to 100"
                    .to_owned(),
            ),
        },
    }
}

/// Percentages with spaces between them.
fn parse_percents(text: &str) -> Option<Vec<f64>> {
    let parse = |word: &str| {
        let percent = crate::args::float(word.as_bytes())?;
        (0.0..=100.0).contains(&percent).then_some(percent)
    };
    text.split_whitespace().map(parse).collect()
}

/// A number of bytes: `100`, `1k` (1000), `1kb` (1024), and so on.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let units = [
        ("kb", 1 << 10),
        ("mb", 1 << 20),
        ("gb", 1 << 30),
        ("k", 1_000),
        ("m", 1_000_000),
        ("g", 1_000_000_000),
        ("b", 1),
        ("", 1),
    ];
    let of_unit = |(unit, factor): (&str, u64)| Some((lower.strip_suffix(unit)?, factor));
    let (digits, factor) = units.into_iter().find_map(of_unit)?;
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_parameters_change_together_or_not_at_all() {
        let settings = Settings::new(&Config::new("x")).unwrap();
        let set = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            settings.set(&pairs)
        };
        set(&[("MAXCLIENTS", "7"), ("appendfsync", "ALWAYS")]).unwrap();
        assert_eq!(
            (settings.clients_max(), settings.fsync()),
            (7, AppendFsync::Always)
        );
        for (refused, why) in [
            (
                &[("maxclients", "8"), ("nothing", "1")][..],
                "Unknown option",
            ),
            (
                &[("maxclients", "8"), ("maxclients", "9")],
                "duplicate parameter",
            ),
            (&[("maxclients", "8"), ("port", "1")], "immutable"),
            (&[("maxclients", "0")], "between"),
            (&[("appendfsync", "never")], "one of the following"),
            (&[("notify-keyspace-events", "?")], "event class"),
        ] {
            let said = set(refused).unwrap_err();
            assert!(said.text().contains(why), "{}", said.text());
            assert_eq!(settings.clients_max(), 7);
        }
    }

    #[test]
    fn bytes_have_units() {
        for (text, bytes) in [
            ("100", Some(100)),
            ("1k", Some(1000)),
            ("1KB", Some(1024)),
            ("2gb", Some(2 << 30)),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }
}
