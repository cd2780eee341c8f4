//! The engines, and what each of them can do.

use std::fmt;
use std::str::FromStr;

use crate::limits;
use crate::{Error, Result};

/// The engines behind the facade.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// WipDB, write-in-place: an ordered engine for SSDs that cuts the key space into buckets and
    /// keeps a miniature log-structured merge tree in each.
    #[default]
    Wip,
    /// FlexDB: all pairs of a keyspace sorted in one address space and changed in place, without
    /// levels and compactions.
    Flex,
    /// SCMKV: pairs in logs and a hash table of words, in a mapped file. It has no order and no
    /// snapshots, and is for data that fits into memory, and for persistent memory. On an ordinary
    /// file [`Durability::Sync`](crate::Durability::Sync) costs a checkpoint of what has changed.
    Scmkv,
    /// SPTree: a tree with its leaves in a mapped file and its inner nodes in memory. It is
    /// ordered, has no snapshots, and is for data that fits into memory, and for persistent memory.
    /// On an ordinary file [`Durability::Sync`](crate::Durability::Sync) costs a checkpoint of what
    /// has changed.
    Sptree,
}

impl Engine {
    /// All engines.
    pub const ALL: &'static [Engine] = &[Engine::Wip, Engine::Flex, Engine::Scmkv, Engine::Sptree];

    /// The name of the engine in the program and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Wip => "wip",
            Engine::Flex => "flex",
            Engine::Scmkv => "scmkv",
            Engine::Sptree => "sptree",
        }
    }

    /// Whether this program was built with the engine. [`Engine::Scmkv`] and [`Engine::Sptree`]
    /// need the feature `pm`: without it, opening a store of theirs is an error that says so.
    pub const fn is_built(self) -> bool {
        match self {
            Engine::Wip | Engine::Flex => true,
            Engine::Scmkv | Engine::Sptree => cfg!(feature = "pm"),
        }
    }

    /// An error where this program was built without it.
    pub(crate) fn check_built(self) -> Result<()> {
        match self.is_built() {
            true => Ok(()),
            false => Err(Error::InvalidOption {
                option: "engine",
                why: format!(
                    "this program was built without the engine {self}; build it with the feature \
                     \"pm\" of gabion"
                ),
            }),
        }
    }

    /// What the engine can do.
    pub fn capabilities(self) -> Capabilities {
        match self {
            Engine::Wip | Engine::Flex => Capabilities {
                ordered: true,
                snapshots: true,
                transactions: true,
                expiry: true,
                merges: true,
                ingest: self == Engine::Wip,
                checkpoint: true,
                backup: true,
                repair: true,
                keyspace_options: true,
                drop_keyspace: true,
                changes: true,
                followers: self == Engine::Wip,
                mapped: false,
                key_bytes_max: limits::KEY_BYTES_MAX,
                value_bytes_max: limits::VALUE_BYTES_MAX,
            },
            Engine::Scmkv | Engine::Sptree => Capabilities {
                ordered: self == Engine::Sptree,
                snapshots: false,
                transactions: false,
                expiry: false,
                merges: false,
                ingest: false,
                checkpoint: false,
                backup: false,
                repair: false,
                keyspace_options: false,
                drop_keyspace: false,
                changes: false,
                followers: false,
                mapped: true,
                key_bytes_max: limits::KEY_BYTES_MAX,
                value_bytes_max: match self {
                    Engine::Sptree => limits::SPTREE_VALUE_BYTES_MAX,
                    _ => limits::SCMKV_VALUE_BYTES_MAX,
                },
            },
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Engine, String> {
        let names: Vec<_> = Engine::ALL.iter().map(|engine| engine.name()).collect();
        Engine::ALL
            .iter()
            .copied()
            .find(|engine| engine.name() == text)
            .ok_or_else(|| {
                format!(
                    "{text:?} is not an engine; choose from: {}",
                    names.join(", ")
                )
            })
    }
}

/// What an engine can do, so that a program knows before it tries. All engines have puts, gets,
/// deletes, keyspaces, atomic batches and [`Keyspace::pairs`](crate::Keyspace::pairs); what an
/// engine cannot do returns [`Error::Unsupported`](crate::Error::Unsupported).
///
/// ```
/// use gabion::Engine;
///
/// assert!(Engine::Wip.capabilities().ingest);
/// assert!(!Engine::Scmkv.capabilities().ordered);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Keys have an order: ranges, prefixes and iteration in both directions, deletes and
    /// compactions of ranges. Without it, [`Keyspace::pairs`](crate::Keyspace::pairs) goes through
    /// all pairs.
    pub ordered: bool,
    /// Consistent views of an earlier moment. Without them, the values that
    /// [`Keyspace::multi_get`](crate::Keyspace::multi_get) returns may be of several moments during
    /// the call, but never of half a batch. The same holds for an iterator, which reads pages of a
    /// few pairs: it may or may not see what is written while it runs, and returns every other pair
    /// exactly once.
    pub snapshots: bool,
    /// Reads and writes that take effect together, if nobody else has changed what they depend on:
    /// [`Db::begin`](crate::Db::begin). All engines have
    /// [`Keyspace::update`](crate::Keyspace::update) and
    /// [`Keyspace::compare_and_swap`](crate::Keyspace::compare_and_swap).
    pub transactions: bool,
    /// Records that expire: [`Keyspace::put_expiring`](crate::Keyspace::put_expiring).
    pub expiry: bool,
    /// Changes that are written without a read: [`Keyspace::merge`](crate::Keyspace::merge).
    pub merges: bool,
    /// Sorted pairs become tables of the store directly, bypassing the log and the MemTables:
    /// [`Keyspace::ingest`](crate::Keyspace::ingest).
    pub ingest: bool,
    /// Copies an open store, as of one moment, to a store of its own:
    /// [`Db::checkpoint`](crate::Db::checkpoint).
    pub checkpoint: bool,
    /// Copies a store, as of one moment, to a repository that holds each piece once:
    /// [`Db::backup`](crate::Db::backup).
    pub backup: bool,
    /// Saves what is readable of a damaged store to a new one: [`repair`](crate::repair()).
    pub repair: bool,
    /// Keyspaces have options of their own: [`Db::keyspace_with`](crate::Db::keyspace_with). Those
    /// of tables are for [`Engine::Wip`] alone.
    pub keyspace_options: bool,
    /// Keyspaces can be dropped: [`Db::drop_keyspace`](crate::Db::drop_keyspace).
    pub drop_keyspace: bool,
    /// A feed of all changes: [`Db::changes`](crate::Db::changes).
    pub changes: bool,
    /// Another process can read the store while it is written:
    /// [`Options::follower`](crate::Options::follower).
    pub followers: bool,
    /// The store is one mapped file, which must lie in a directory of the system:
    /// [`MappedOptions`](crate::MappedOptions) are for it.
    pub mapped: bool,
    /// Length in bytes of the longest key.
    pub key_bytes_max: u64,
    /// Length in bytes of the longest value.
    pub value_bytes_max: u64,
}
