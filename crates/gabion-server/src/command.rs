//! Commands as a table: name, arguments, keys, properties and handler of each.
//!
//! One entry feeds everything that is about commands: the search by name, the check of the number
//! of arguments, the locks, `COMMAND` with its subcommands. Each family has a file below
//! `commands/` with its entries and their handlers, and `table.rs` puts the families together.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::args::{Args, integer};
use crate::execution::Execution;
use crate::fault::Result;

/// What runs a command. It checks its arguments, reads, and only then writes: after an error
/// nothing of it is committed, but inside of `EXEC` what it wrote before stays.
pub(crate) type Handler = fn(&mut Execution<'_>) -> Result<()>;

/// It changes keys.
pub(crate) const WRITE: u32 = 1;
/// It reads keys.
pub(crate) const READONLY: u32 = 1 << 1;
/// It may need more memory or space.
pub(crate) const DENYOOM: u32 = 1 << 2;
/// It is for who runs the server.
pub(crate) const ADMIN: u32 = 1 << 3;
/// It is about channels.
pub(crate) const PUBSUB: u32 = 1 << 4;
/// Scripts cannot call it.
pub(crate) const NOSCRIPT: u32 = 1 << 5;
/// It may run while data is loaded.
pub(crate) const LOADING: u32 = 1 << 6;
/// It may run on a replica that is behind.
pub(crate) const STALE: u32 = 1 << 7;
/// It takes constant or logarithmic time.
pub(crate) const FAST: u32 = 1 << 8;
/// It needs no password.
pub(crate) const NO_AUTH: u32 = 1 << 9;
/// It cannot be between `MULTI` and `EXEC`.
pub(crate) const NO_MULTI: u32 = 1 << 10;
/// Where its keys are depends on its arguments.
pub(crate) const MOVABLE_KEYS: u32 = 1 << 11;
/// Inside of `MULTI` it runs at once.
pub(crate) const UNQUEUED: u32 = 1 << 12;
/// It may wait for a key.
pub(crate) const BLOCKING: u32 = 1 << 13;

/// It runs while a script has been running for long, so it takes no locks.
pub(crate) const ALLOW_BUSY: u32 = 1 << 14;

/// What it does may reach replicas, though it may write nothing.
pub(crate) const MAY_WRITE: u32 = 1 << 28;
/// It reads all that it needs before it writes: [`WorkMode::Direct`](crate::store::work::WorkMode).
/// Not shown to clients, as those that follow.
pub(crate) const DIRECT: u32 = 1 << 24;
/// Nobody else may run meanwhile.
pub(crate) const ALONE: u32 = 1 << 25;
/// It reads the store once, so it needs no locks of its keys.
pub(crate) const ONE_READ: u32 = 1 << 26;
/// It may take long, so other tasks of its thread are handed over first.
pub(crate) const LONG: u32 = 1 << 27;

/// Names of the flags that clients see.
const FLAG_NAMES: &[(u32, &str)] = &[
    (WRITE, "write"),
    (READONLY, "readonly"),
    (DENYOOM, "denyoom"),
    (ADMIN, "admin"),
    (PUBSUB, "pubsub"),
    (NOSCRIPT, "noscript"),
    (LOADING, "loading"),
    (STALE, "stale"),
    (FAST, "fast"),
    (NO_AUTH, "no_auth"),
    (NO_MULTI, "no_multi"),
    (MOVABLE_KEYS, "movablekeys"),
    (ALLOW_BUSY, "allow_busy"),
    (BLOCKING, "blocking"),
];

/// Families, as `COMMAND DOCS` and the categories of ACL name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandGroup {
    /// Keys of any type.
    Generic,
    /// Strings.
    String,
    /// Bits of strings.
    Bitmap,
    /// Sketches in strings.
    HyperLogLog,
    /// Scripts and functions.
    Scripting,
    /// Hashes.
    Hash,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Streams.
    Stream,
    /// Places on the earth in sorted sets.
    Geo,
    /// Channels.
    PubSub,
    /// `MULTI` and what belongs to it.
    Transactions,
    /// The connection itself.
    Connection,
    /// The server.
    Server,
}

impl CommandGroup {
    /// The name in `COMMAND DOCS`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CommandGroup::Generic => "generic",
            CommandGroup::String => "string",
            CommandGroup::Bitmap => "bitmap",
            CommandGroup::HyperLogLog => "hyperloglog",
            CommandGroup::Scripting => "scripting",
            CommandGroup::Hash => "hash",
            CommandGroup::List => "list",
            CommandGroup::Set => "set",
            CommandGroup::SortedSet => "sorted-set",
            CommandGroup::Stream => "stream",
            CommandGroup::Geo => "geo",
            CommandGroup::PubSub => "pubsub",
            CommandGroup::Transactions => "transactions",
            CommandGroup::Connection => "connection",
            CommandGroup::Server => "server",
        }
    }

    /// The category of ACL.
    fn category(self) -> Option<&'static str> {
        match self {
            CommandGroup::Generic => Some("@keyspace"),
            CommandGroup::String => Some("@string"),
            CommandGroup::Bitmap => Some("@bitmap"),
            CommandGroup::HyperLogLog => Some("@hyperloglog"),
            CommandGroup::Scripting => Some("@scripting"),
            CommandGroup::Hash => Some("@hash"),
            CommandGroup::List => Some("@list"),
            CommandGroup::Set => Some("@set"),
            CommandGroup::SortedSet => Some("@sortedset"),
            CommandGroup::Stream => Some("@stream"),
            CommandGroup::Geo => Some("@geo"),
            CommandGroup::PubSub => Some("@pubsub"),
            CommandGroup::Transactions => Some("@transaction"),
            CommandGroup::Connection => Some("@connection"),
            CommandGroup::Server => None,
        }
    }
}

/// The positions of a command's keys among its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeySpec {
    /// It has none.
    None,
    /// From the first to the last, which counts from the end if it is negative, by steps.
    Range(usize, i32, usize),
    /// As many as the argument at `count` says, behind it; and those before it from `first` on.
    Counted {
        /// The first key, `count` itself if there is none before.
        first: usize,
        /// Where their number is.
        count: usize,
    },
    /// The first half of what follows `STREAMS`.
    Streams,
    /// The first argument, and what follows a word that begins like this.
    Stored(&'static str),
    /// The third argument, or, where that is empty, all behind `KEYS`.
    Migrated,
}

/// A command, or a subcommand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// The name in lower case; of a subcommand its own part.
    pub(crate) name: &'static str,
    /// Its number among all of its [`CommandTable`], from 0 on.
    pub(crate) number: usize,
    /// How many arguments it takes, the name included; at least so many if negative.
    pub(crate) arity: i32,
    /// Flags.
    pub(crate) flags: u32,
    /// Its keys.
    pub(crate) keys: KeySpec,
    /// Its family.
    pub(crate) group: CommandGroup,
    /// The version of Redis that had it first.
    pub(crate) since: &'static str,
    /// What it does, in a sentence.
    pub(crate) summary: &'static str,
    /// Its subcommands, if it has any; then it does nothing by itself.
    pub(crate) subcommands: &'static [Command],
    /// What runs it.
    pub(crate) handler: Handler,
}

/// An entry without keys and flags.
pub(crate) const fn command(name: &'static str, arity: i32, handler: Handler) -> Command {
    Command {
        name,
        number: 0,
        arity,
        flags: 0,
        keys: KeySpec::None,
        group: CommandGroup::Generic,
        since: "1.0.0",
        summary: "",
        subcommands: &[],
        handler,
    }
}

impl Command {
    /// With flags.
    pub(crate) const fn flags(mut self, flags: u32) -> Command {
        self.flags = flags;
        self
    }

    /// With keys from `first` to `last`.
    pub(crate) const fn keys(mut self, first: usize, last: i32, step: usize) -> Command {
        self.keys = KeySpec::Range(first, last, step);
        self
    }

    /// With keys of which an argument says how many they are.
    pub(crate) const fn counted_keys(mut self, first: usize, count: usize) -> Command {
        self.flags |= MOVABLE_KEYS;
        self.keys = KeySpec::Counted { first, count };
        self
    }

    /// With the keys of streams.
    pub(crate) const fn stream_keys(mut self) -> Command {
        self.flags |= MOVABLE_KEYS;
        self.keys = KeySpec::Streams;
        self
    }

    /// With a key, and another behind a word.
    pub(crate) const fn stored_keys(mut self, word: &'static str) -> Command {
        self.flags |= MOVABLE_KEYS;
        self.keys = KeySpec::Stored(word);
        self
    }

    /// With the keys of `MIGRATE`.
    pub(crate) const fn migrated_keys(mut self) -> Command {
        self.flags |= MOVABLE_KEYS;
        self.keys = KeySpec::Migrated;
        self
    }

    /// With what documentation says.
    pub(crate) const fn about(
        mut self,
        group: CommandGroup,
        since: &'static str,
        summary: &'static str,
    ) -> Command {
        self.group = group;
        self.since = since;
        self.summary = summary;
        self
    }

    /// With subcommands.
    pub(crate) const fn with(mut self, subcommands: &'static [Command]) -> Command {
        self.subcommands = subcommands;
        self
    }

    /// Whether it has one of the flags.
    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether it takes so many arguments.
    pub(crate) fn takes(&self, count: usize) -> bool {
        let least = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        match self.arity < 0 {
            true => count >= least,
            false => count == least,
        }
    }

    /// The subcommand of that name.
    pub(crate) fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        let known = |known: &&Command| known.name.as_bytes().eq_ignore_ascii_case(name);
        self.subcommands.iter().find(known)
    }

    /// The places of its keys among the arguments.
    pub(crate) fn key_places(&self, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
        // A key in front of the others, and one behind them.
        let (mut before, mut behind) = (None, None);
        let (first, end, step) = match self.keys {
            KeySpec::None => (0, 0, 1),
            KeySpec::Range(first, last, step) => {
                let behind_last = match usize::try_from(last) {
                    Ok(last) => last + 1,
                    Err(_) => {
                        let back = usize::try_from(last.unsigned_abs()).unwrap_or(usize::MAX);
                        (args.len() + 1).saturating_sub(back)
                    }
                };
                (first, behind_last.min(args.len()), step)
            }
            KeySpec::Counted { first, count } => {
                before = (first < count).then_some(first);
                let number = args.get(count).and_then(integer).unwrap_or_default();
                let number = usize::try_from(number).unwrap_or_default();
                let end = count.saturating_add(1).saturating_add(number);
                // A number that is too large is refused, and says nothing about keys.
                let end = if end > args.len() { 0 } else { end };
                (count + 1, end, 1)
            }
            KeySpec::Streams => {
                let is_word = |argument: &[u8]| argument.eq_ignore_ascii_case(b"streams");
                match args.iter().position(is_word) {
                    Some(place) => {
                        let first = place + 1;
                        (first, first + (args.len() - first) / 2, 1)
                    }
                    None => (0, 0, 1),
                }
            }
            KeySpec::Migrated if args.at(3).is_empty() => (behind_keys(args), args.len(), 1),
            KeySpec::Migrated => (3, 4.min(args.len()), 1),
            KeySpec::Stored(word) => {
                let is_word = |argument: &[u8]| {
                    let begins = argument.get(..word.len());
                    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(word.as_bytes()))
                };
                // The last one counts.
                let mut places = (2..args.len().saturating_sub(1)).rev();
                behind = places
                    .find(|place| is_word(args.at(*place)))
                    .map(|place| place + 1);
                (1, 2.min(args.len()), 1)
            }
        };
        let places = before.into_iter().chain((first..end).step_by(step));
        places.chain(behind)
    }

    /// Names of its flags.
    pub(crate) fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        let has = |(flag, _): &&(u32, &str)| self.has(*flag);
        FLAG_NAMES.iter().filter(has).map(|(_, name)| *name)
    }

    /// Categories of ACL of the command of that whole name.
    pub(crate) fn categories(&self, name: &str) -> Vec<&'static str> {
        let mut categories = Vec::new();
        for (flag, category) in [
            (WRITE, "@write"),
            (READONLY, "@read"),
            (ADMIN, "@admin"),
            (ADMIN, "@dangerous"),
            (BLOCKING, "@blocking"),
        ] {
            if self.has(flag) {
                categories.push(category);
            }
        }
        categories.extend(self.group.category());
        categories.push(if self.has(FAST) { "@fast" } else { "@slow" });
        // What does not follow from flags and family.
        let (more, without): (&[&str], &[&str]) = match name {
            "swapdb" | "flushall" | "flushdb" => (&["@keyspace", "@dangerous"], &[]),
            "dbsize" => (&["@keyspace"], &[]),
            "lastsave" | "role" | "cluster|reset" => (&["@admin", "@dangerous"], &[]),
            "info" | "keys" | "migrate" | "restore" => (&["@dangerous"], &[]),
            "sort" | "sort_ro" => (
                &["@set", "@sortedset", "@list", "@dangerous"],
                &["@keyspace"],
            ),
            "wait" => (&["@connection"], &["@keyspace", "@blocking"]),
            "watch" | "eval_ro" | "evalsha_ro" | "fcall_ro" => (&[], &["@read"]),
            _ if name == "command" || name.starts_with("command|") => (&["@connection"], &[]),
            _ => (&[], &[]),
        };
        categories.retain(|category| !without.contains(category));
        categories.extend(more);
        categories
    }
}

/// The place behind the word `KEYS` among the options of `MIGRATE`; that of no argument if there is
/// none.
fn behind_keys(args: Args<'_>) -> usize {
    let mut at = 6;
    while let Some(word) = args.get(at) {
        at += match word.to_ascii_lowercase().as_slice() {
            b"keys" => return at + 1,
            b"auth" => 2,
            b"auth2" => 3,
            _ => 1,
        };
    }
    args.len()
}

/// The hash of FNV, of short names.
#[derive(Debug)]
pub(crate) struct NameHasher(u64);

impl Default for NameHasher {
    fn default() -> NameHasher {
        NameHasher(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_usize(&mut self, _: usize) {
        // The length of a name says nothing that its bytes do not.
    }
}

/// Bytes of the longest name of a command.
const NAME_BYTES_MAX: usize = 24;

/// A command with its full name and its ACL categories.
#[derive(Debug)]
pub(crate) struct CommandEntry {
    /// Its whole name: `get`, or `config|get` of a subcommand.
    pub(crate) name: String,
    /// Its categories of ACL, without their mark.
    pub(crate) categories: Vec<&'static str>,
    /// The command.
    pub(crate) command: &'static Command,
}

/// All commands, by name.
#[derive(Debug)]
pub(crate) struct CommandTable {
    by_name: HashMap<&'static [u8], &'static Command, BuildHasherDefault<NameHasher>>,
    /// By their numbers.
    entries: Vec<CommandEntry>,
}

impl CommandTable {
    /// Of families.
    pub(crate) fn new(families: &[&'static [Command]]) -> CommandTable {
        let mut commands = CommandTable {
            by_name: HashMap::default(),
            entries: Vec::new(),
        };
        for command in families.iter().copied().flatten() {
            let command = commands.add("", command);
            commands.by_name.insert(command.name.as_bytes(), command);
        }
        commands
    }

    /// Numbers a command and its subcommands. The table lives as long as the process.
    fn add(&mut self, before: &str, command: &Command) -> &'static Command {
        let name = format!("{before}{}", command.name);
        let mut own = *command;
        let within = format!("{name}|");
        let subcommands = command.subcommands.iter();
        let subcommands = subcommands.map(|command| *self.add(&within, command));
        own.subcommands = subcommands.collect::<Vec<_>>().leak();
        own.number = self.entries.len();
        let own = Box::leak(Box::new(own));
        let categories = own.categories(&name).into_iter();
        self.entries.push(CommandEntry {
            categories: categories
                .map(|category| category.trim_start_matches('@'))
                .collect(),
            name,
            command: own,
        });
        own
    }

    /// The entry of a command of the table.
    pub(crate) fn entry(&self, command: &Command) -> &CommandEntry {
        &self.entries[command.number]
    }

    /// The entry of a number.
    pub(crate) fn at(&self, id: usize) -> &CommandEntry {
        &self.entries[id]
    }

    /// All commands and subcommands.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &CommandEntry> {
        self.entries.iter()
    }

    /// How many commands and subcommands there are.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The category of a name in any case.
    pub(crate) fn category(&self, name: &[u8]) -> Option<&'static str> {
        let mut all = self.entries.iter().flat_map(|entry| &entry.categories);
        let found = all.find(|category| category.as_bytes().eq_ignore_ascii_case(name));
        found.copied()
    }

    /// The names of all, and of their subcommands, by their numbers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The command of a name in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.by_name.get(&*lower).copied()
    }

    /// All, in the order of their names.
    pub(crate) fn all(&self) -> Vec<&'static Command> {
        let mut all: Vec<_> = self.by_name.values().copied().collect();
        all.sort_unstable_by_key(|command| command.name);
        all
    }
}

/// A whole number of an argument, or what Redis says of it.
///
/// # Errors
/// [`Fault::NOT_AN_INTEGER`](crate::fault::Fault::NOT_AN_INTEGER).
pub(crate) fn parse_integer(text: &[u8]) -> Result<i64> {
    integer(text).ok_or(crate::fault::Fault::NOT_AN_INTEGER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &mut Execution<'_>) -> Result<()> {
        Ok(())
    }

    #[test]
    fn keys_are_found_by_first_last_and_step() {
        let line = b"cabcd";
        let spans: Vec<_> = (0..5).map(|at| at..at + 1).collect();
        let args = Args::new(line, &spans);
        for (first, last, step, expected) in [
            (1, 1, 1, &[1][..]),
            (1, -1, 1, &[1, 2, 3, 4]),
            (1, -1, 2, &[1, 3]),
            (1, -2, 1, &[1, 2, 3]),
            (2, 2, 1, &[2]),
        ] {
            let command = command("c", -1, nothing).keys(first, last, step);
            let found: Vec<_> = command.key_places(args).collect();
            assert_eq!(found, expected);
        }
        let line = b"c2abstored";
        let spans = [0..1, 1..2, 2..3, 3..4, 4..9, 9..10];
        let args = Args::new(line, &spans);
        let of = |command: Command| command.key_places(args).collect::<Vec<_>>();
        assert_eq!(of(command("c", -1, nothing).counted_keys(1, 1)), [2, 3]);
        // There are not so many.
        let few = Args::new(line, &spans[..3]);
        let counted = command("c", -1, nothing).counted_keys(1, 1);
        assert_eq!(counted.key_places(few).count(), 0);
        assert_eq!(of(command("c", -1, nothing).stored_keys("STORE")), [1, 5]);
    }
}
