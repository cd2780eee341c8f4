//! `MIGRATE`: hands keys over to another server.
//!
//! The command keeps the locks of its keys while it speaks to that server, at most for its timeout
//! with each word, so nobody changes a key that is on its way. A key is removed here once the other
//! server has said that it has it; where that reply is lost, both have it.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::command::{Command, CommandGroup, LONG, WRITE, command, parse_integer};
use crate::commands::dump::value_of;
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::rdb;

pub(crate) const COMMANDS: &[Command] = &[command("migrate", -6, migrate)
    .flags(WRITE | LONG)
    .migrated_keys()
    .about(
        CommandGroup::Generic,
        "2.6.0",
        "Hands keys over to another server.",
    )];

/// The timeout of who asks for none.
const TIMEOUT_MS: u64 = 1000;

/// The longest line that the other server may reply.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// What a command asks for besides its keys.
#[derive(Debug, Default)]
struct Asked<'a> {
    copies: bool,
    replaces: bool,
    /// The words of `AUTH`.
    says: Vec<&'a [u8]>,
}

fn asked<'a>(execution: &Execution<'a>) -> Result<Asked<'a>> {
    let args = execution.args;
    let mut asked = Asked::default();
    let mut at = 6;
    while let Some(word) = args.get(at) {
        let left = args.len() - at - 1;
        at += 1;
        match word.to_ascii_lowercase().as_slice() {
            b"copy" => asked.copies = true,
            b"replace" => asked.replaces = true,
            b"auth" if left >= 1 => {
                asked.says = vec![args.at(at)];
                at += 1;
            }
            b"auth2" if left >= 2 => {
                asked.says = vec![args.at(at), args.at(at + 1)];
                at += 2;
            }
            b"keys" if args.at(3).is_empty() => break,
            b"keys" => {
                return Err(Fault::line(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the \
                     empty string",
                ));
            }
            _ => return Err(Fault::SYNTAX),
        }
    }
    Ok(asked)
}

fn migrate(execution: &mut Execution<'_>) -> Result<()> {
    let asked = asked(execution)?;
    let args = execution.args;
    let database = parse_integer(args.at(4))?;
    let timeout_ms = u64::try_from(parse_integer(args.at(5))?).unwrap_or_default();
    let timeout = match timeout_ms {
        0 => Duration::from_millis(TIMEOUT_MS),
        ms => Duration::from_millis(ms),
    };
    let mut requests = Vec::new();
    let mut keys = Vec::new();
    let (space, now_ms) = (execution.space(), execution.now_ms());
    for place in execution.command.key_places(args) {
        let key = args.at(place);
        let Some(meta) = execution.look_up(key)? else {
            continue;
        };
        let payload = rdb::write(&value_of(execution.work, space, &meta)?);
        let expires = meta.head.expires_ms;
        let ttl = expires.map_or(0, |expires| expires.saturating_sub(now_ms).max(1));
        let ttl = ttl.to_string();
        let mut words = vec![&b"RESTORE"[..], key, ttl.as_bytes(), &payload];
        words.extend(asked.replaces.then_some(&b"REPLACE"[..]));
        write_request(&mut requests, &words);
        keys.push(key);
    }
    if keys.is_empty() {
        execution.reply.simple("NOKEY");
        return Ok(());
    }
    let mut target = Target::connect(args.at(1), args.at(2), timeout)?;
    if !asked.says.is_empty() {
        let words: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(asked.says).collect();
        target.say(&words)?;
    }
    target.say(&[b"SELECT", database.to_string().as_bytes()])?;
    target.send(&requests)?;
    let mut refusal = None;
    for key in keys {
        match target.answer() {
            Ok(()) if asked.copies => {}
            Ok(()) => {
                execution.remove(key)?;
                execution.notify(EventClasses::GENERIC, "del", key);
            }
            // Keys that were taken before stay there, and are removed here.
            Err(fault) => refusal = refusal.or(Some(fault)),
        }
    }
    match refusal {
        None => execution.reply.ok(),
        Some(fault) => execution.reply.error(&fault.text()),
    }
    Ok(())
}

fn write_request(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// The other server.
struct Target(BufReader<TcpStream>);

impl Target {
    fn connect(host: &[u8], port: &[u8], timeout: Duration) -> Result<Target> {
        let failed = |_| Fault::line("IOERR error or timeout connecting to the client");
        let host = String::from_utf8_lossy(host);
        let port = u16::try_from(parse_integer(port)?).map_err(|_| Fault::NOT_AN_INTEGER)?;
        let mut addresses = (&*host, port).to_socket_addrs().map_err(failed)?;
        let address = addresses.next();
        let address = address.ok_or(Fault::line(
            "IOERR error or timeout connecting to the client",
        ))?;
        let stream = TcpStream::connect_timeout(&address, timeout).map_err(failed)?;
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(timeout)).map_err(failed)?;
        }
        Ok(Target(BufReader::new(stream)))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let sent = self.0.get_mut().write_all(bytes);
        sent.map_err(|_| Fault::line("IOERR error or timeout writing to target instance"))
    }

    /// Reads a line, which must be no error.
    fn answer(&mut self) -> Result<()> {
        let lost = || Fault::line("IOERR error or timeout reading from target instance");
        let mut line = Vec::new();
        let mut limited = std::io::Read::take(&mut self.0, LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut line).map_err(|_| lost())?;
        let line = line.strip_suffix(b"\r\n").ok_or_else(lost)?;
        match line.strip_prefix(b"-") {
            None => Ok(()),
            Some(error) => Err(Fault::new(format!(
                "ERR Target instance replied with error: {}",
                String::from_utf8_lossy(error)
            ))),
        }
    }

    fn say(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut request = Vec::new();
        write_request(&mut request, words);
        self.send(&request)?;
        self.answer()
    }
}
