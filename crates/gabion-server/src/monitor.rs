//! Monitoring of commands: the slow log, and the stream for `MONITOR`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::args::Args;
use crate::clients::Client;

/// Arguments of a slow command that are kept, and bytes of each.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// A slow command.
#[derive(Clone, Debug)]
pub(crate) struct SlowlogEntry {
    /// Its number.
    pub(crate) id: u64,
    /// When it ended, in seconds since 1970.
    pub(crate) at: u64,
    /// How long it took, in microseconds.
    pub(crate) micros: u64,
    /// Its arguments, or their beginnings.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// Where the client came from.
    pub(crate) address: String,
    /// What it calls itself.
    pub(crate) name: String,
}

/// The slow log, and the clients that monitor commands.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    slow: Mutex<VecDeque<SlowlogEntry>>,
    next: AtomicU64,
    watchers: Mutex<Vec<Arc<Client>>>,
    count: AtomicUsize,
}

/// Time since 1970.
fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// An argument, or its beginning.
fn short(argument: &[u8]) -> Vec<u8> {
    match argument.get(..ARGUMENT_BYTES_MAX) {
        Some(front) if argument.len() > ARGUMENT_BYTES_MAX => {
            let more = argument.len() - ARGUMENT_BYTES_MAX;
            [front, format!("... ({more} more bytes)").as_bytes()].concat()
        }
        _ => argument.to_vec(),
    }
}

/// Whether an argument is a password, or stands among rules that may have some.
fn is_secret(args: Args<'_>, place: usize) -> bool {
    let is = |place: usize, word: &str| {
        let argument = args.get(place).unwrap_or_default();
        argument.eq_ignore_ascii_case(word.as_bytes())
    };
    let follows = |steps: usize, word: &str| place > steps && is(place - steps, word);
    if is(0, "auth") {
        return place > 0;
    }
    if is(0, "acl") {
        return is(1, "setuser") && place > 1;
    }
    if is(0, "config") {
        return follows(1, "requirepass");
    }
    let has_password = is(0, "hello") || is(0, "migrate");
    has_password
        && [1, 2]
            .into_iter()
            .any(|steps| follows(steps, "auth") || follows(steps, "auth2"))
}

impl Monitor {
    /// Notes a slow command, in the place of the oldest if there are `most`.
    pub(crate) fn note_slow(&self, client: &Client, args: Args<'_>, micros: u64, most: usize) {
        let shown = |(place, argument)| match is_secret(args, place) {
            true => b"(redacted)".to_vec(),
            false => short(argument),
        };
        let arguments = args.iter().enumerate().take(ARGUMENTS_MAX);
        let mut arguments: Vec<Vec<u8>> = arguments.map(shown).collect();
        if args.len() > ARGUMENTS_MAX {
            let more = args.len() - ARGUMENTS_MAX + 1;
            arguments[ARGUMENTS_MAX - 1] = format!("... ({more} more arguments)").into_bytes();
        }
        // ORDER: Relaxed; a number that differs from others.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut slow = self.slow.lock();
        slow.push_front(SlowlogEntry {
            id,
            at: now().as_secs(),
            micros,
            arguments,
            address: client.address.clone(),
            name: client.names.lock().name.clone(),
        });
        slow.truncate(most);
    }

    /// The slow commands, the last first, at most `count` of them.
    pub(crate) fn slow(&self, count: usize) -> Vec<SlowlogEntry> {
        self.slow.lock().iter().take(count).cloned().collect()
    }

    /// How many slow commands are known.
    pub(crate) fn slow_count(&self) -> usize {
        self.slow.lock().len()
    }

    /// Forgets the slow commands.
    pub(crate) fn forget_slow(&self) {
        self.slow.lock().clear();
    }

    /// Whether anybody watches.
    pub(crate) fn is_watched(&self) -> bool {
        // ORDER: Relaxed; who begins to watch sees what comes soon after.
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Lets a client watch.
    pub(crate) fn watch(&self, client: Arc<Client>) {
        let mut watchers = self.watchers.lock();
        if watchers.iter().all(|watcher| watcher.id != client.id) {
            watchers.push(client);
        }
        // ORDER: Relaxed, as in `is_watched`.
        self.count.store(watchers.len(), Ordering::Relaxed);
    }

    /// Lets a client watch no more.
    pub(crate) fn leave(&self, id: u64) {
        if self.is_watched() {
            let mut watchers = self.watchers.lock();
            watchers.retain(|watcher| watcher.id != id);
            // ORDER: Relaxed, as in `is_watched`.
            self.count.store(watchers.len(), Ordering::Relaxed);
        }
    }

    /// Shows a command to those who watch.
    pub(crate) fn show(&self, database: usize, from: &str, args: Args<'_>) {
        let now = now();
        let (seconds, micros) = (now.as_secs(), now.subsec_micros());
        let mut line = format!("+{seconds}.{micros:06} [{database} {from}]").into_bytes();
        for argument in args.iter() {
            line.extend_from_slice(b" \"");
            for byte in argument {
                match byte {
                    b'"' | b'\\' => line.extend_from_slice(&[b'\\', *byte]),
                    b'\n' => line.extend_from_slice(b"\\n"),
                    b'\r' => line.extend_from_slice(b"\\r"),
                    b'\t' => line.extend_from_slice(b"\\t"),
                    7 => line.extend_from_slice(b"\\a"),
                    8 => line.extend_from_slice(b"\\b"),
                    32..127 => line.push(*byte),
                    _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
                }
            }
            line.push(b'"');
        }
        line.extend_from_slice(b"\r\n");
        for watcher in self.watchers.lock().iter() {
            watcher.send(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::OwnedArgs;

    #[test]
    fn passwords_are_secret() {
        for (line, secret) in [
            ("auth user word", &[1, 2][..]),
            ("ACL SetUser user >word on", &[2, 3, 4]),
            ("acl list", &[]),
            ("hello 3 auth user word setname a", &[3, 4]),
            ("config set requirepass word", &[3]),
            ("set auth word", &[]),
            ("migrate host 1 key 0 10 auth2 user word", &[7, 8]),
        ] {
            let words = line.split(' ').map(|word| word.as_bytes().to_vec());
            let args = OwnedArgs::of(&words.collect::<Vec<_>>());
            let places = 0..args.borrow().len();
            let found: Vec<_> = places
                .filter(|place| is_secret(args.borrow(), *place))
                .collect();
            assert_eq!(found, secret, "{line}");
        }
    }

    #[test]
    fn long_arguments_are_cut() {
        assert_eq!(short(b"abc"), b"abc");
        assert_eq!(short(&[b'x'; 128]).len(), 128);
        let cut = short(&[b'x'; 200]);
        assert!(cut.ends_with(b"x... (72 more bytes)"));
    }
}
