//! The table of all commands, from the tables of their families.

use std::sync::LazyLock;

use crate::command::{Command, CommandTable};
use crate::commands::{
    acl, bitfield, bits, client, cluster, config, connection, debug, dump, expiry, functions, geo,
    hash, hash_expiry, hyperloglog, info, introspection, keys, latency, lcs, list, list_moves,
    memory, migrate, numbers, object, pubsub, scan, scripts, server, set, sort, stream,
    stream_groups, stream_info, string, transactions, watching, zset, zset_pops, zset_ranges,
    zset_sets,
};

const FAMILIES: &[&[Command]] = &[
    acl::COMMANDS,
    bitfield::COMMANDS,
    bits::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    dump::COMMANDS,
    expiry::COMMANDS,
    functions::COMMANDS,
    geo::COMMANDS,
    hyperloglog::COMMANDS,
    hash::COMMANDS,
    hash_expiry::COMMANDS,
    info::COMMANDS,
    introspection::COMMANDS,
    keys::COMMANDS,
    latency::COMMANDS,
    lcs::COMMANDS,
    list::COMMANDS,
    list_moves::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    numbers::COMMANDS,
    object::COMMANDS,
    pubsub::COMMANDS,
    scan::COMMANDS,
    scripts::COMMANDS,
    server::COMMANDS,
    set::COMMANDS,
    sort::COMMANDS,
    stream::COMMANDS,
    stream_groups::COMMANDS,
    stream_info::COMMANDS,
    string::COMMANDS,
    transactions::COMMANDS,
    watching::COMMANDS,
    zset::COMMANDS,
    zset_pops::COMMANDS,
    zset_ranges::COMMANDS,
    zset_sets::COMMANDS,
];

static COMMANDS: LazyLock<CommandTable> = LazyLock::new(|| CommandTable::new(FAMILIES));

/// All commands.
pub(crate) fn commands() -> &'static CommandTable {
    &COMMANDS
}

/// What people are told of a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandHelp {
    /// Its name, of a subcommand with that of its container, as `client|id`.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// How many arguments it takes at least, and whether it takes more. Its names do not count.
    pub arguments: (usize, bool),
}

/// What people are told of the command, or subcommand, that words begin with.
pub fn command_help(words: &[Vec<u8>]) -> Option<CommandHelp> {
    let commands = commands();
    let first = commands.find(words.first()?)?;
    let subcommand = words.get(1).and_then(|word| first.subcommand(word));
    let command = subcommand.unwrap_or(first);
    let names = if subcommand.is_some() { 2 } else { 1 };
    let least = usize::try_from(command.arity.unsigned_abs()).unwrap_or(usize::MAX);
    Some(CommandHelp {
        name: &commands.entry(command).name,
        summary: command.summary,
        arguments: (least.saturating_sub(names), command.arity < 0),
    })
}

/// The names of all commands and subcommands, those of a subcommand with a `|` between.
pub fn command_names() -> impl Iterator<Item = &'static str> {
    commands().names()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{KeySpec, READONLY, WRITE};

    #[test]
    fn entries_are_complete_and_no_name_is_taken_twice() {
        let all: Vec<_> = FAMILIES.iter().copied().flatten().collect();
        assert_eq!(commands().all().len(), all.len());
        for command in all
            .iter()
            .copied()
            .chain(all.iter().flat_map(|one| one.subcommands))
        {
            assert!(command.arity != 0, "{}", command.name);
            assert!(command.summary.ends_with('.'), "{}", command.name);
            assert_eq!(command.name, command.name.to_ascii_lowercase());
            let has_keys = matches!(command.keys, KeySpec::Range(..));
            assert!(
                !has_keys || command.has(READONLY | WRITE),
                "{}",
                command.name
            );
        }
        assert!(commands().find(b"GeT").is_some());
        assert!(commands().find(b"nothing").is_none());
        assert!(commands().find(&[b'x'; 100]).is_none());
    }
}
