//! What a value is made of, and why bytes are refused.

use std::borrow::Cow;
use std::io;

use crate::fault::Fault;
use crate::store::stream::{ConsumerGroup, GroupConsumer, PendingEntry, StreamEntry, StreamId};

// The forms of values.
pub(super) const STRING: u8 = 0;
pub(super) const LIST: u8 = 1;
pub(super) const SET: u8 = 2;
pub(super) const SORTED_SET: u8 = 3;
pub(super) const HASH: u8 = 4;
pub(super) const SORTED_SET_2: u8 = 5;
pub(super) const MODULE: u8 = 6;
pub(super) const MODULE_2: u8 = 7;
pub(super) const HASH_ZIPMAP: u8 = 9;
pub(super) const LIST_ZIPLIST: u8 = 10;
pub(super) const SET_INTSET: u8 = 11;
pub(super) const SORTED_SET_ZIPLIST: u8 = 12;
pub(super) const HASH_ZIPLIST: u8 = 13;
pub(super) const LIST_QUICKLIST: u8 = 14;
pub(super) const STREAM: u8 = 15;
pub(super) const HASH_LISTPACK: u8 = 16;
pub(super) const SORTED_SET_LISTPACK: u8 = 17;
pub(super) const LIST_QUICKLIST_2: u8 = 18;
pub(super) const STREAM_2: u8 = 19;
pub(super) const SET_LISTPACK: u8 = 20;
pub(super) const STREAM_3: u8 = 21;
/// Of Valkey's files; Redis has had another type of that number in a preview.
pub(super) const HASH_2: u8 = 22;
pub(super) const HASH_METADATA: u8 = 24;
pub(super) const HASH_LISTPACK_EX: u8 = 25;

/// A field, its value, and when it expires.
pub(crate) type Field = (Vec<u8>, Vec<u8>, Option<u64>);

/// A value that is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A string.
    String(Vec<u8>),
    /// The elements of a list.
    List(Vec<Vec<u8>>),
    /// The members of a set.
    Set(Vec<Vec<u8>>),
    /// Members and their scores.
    SortedSet(Vec<(Vec<u8>, f64)>),
    /// Fields.
    Hash(Vec<Field>),
    /// A stream.
    Stream(StreamValue),
}

/// A stream that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamValue {
    /// Its entries.
    pub(crate) entries: Vec<StreamEntry>,
    /// What is known of it besides.
    pub(crate) ends: Ends,
    /// Its groups, by name.
    pub(crate) groups: Vec<(Vec<u8>, GroupValue)>,
}

/// What a stream remembers of entries that it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The last id.
    pub(crate) last: StreamId,
    /// The greatest id that was deleted.
    pub(crate) deleted: StreamId,
    /// Entries that were ever added.
    pub(crate) added: u64,
}

/// A group that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupValue {
    /// The group itself.
    pub(crate) group: ConsumerGroup,
    /// Entries that wait, in order.
    pub(crate) pendings: Vec<(StreamId, PendingEntry)>,
    /// Consumers, by name.
    pub(crate) consumers: Vec<(Vec<u8>, GroupConsumer)>,
}

/// A part of a value that is read.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// All of a string.
    String(&'a [u8]),
    /// The next element of a list.
    Element(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A member of a sorted set, and its score, which is not a NaN.
    Scored(&'a [u8], f64),
    /// A field of a hash, its value, and when it expires.
    Field(&'a [u8], &'a [u8], Option<u64>),
    /// The next entry of a stream: its id, its fields and values in turn.
    Entry(StreamId, &'a [Cow<'a, [u8]>]),
    /// What a stream remembers, behind all of its entries.
    Ends(Ends),
    /// A group of a stream: its name, the last id that it was given, how many entries it has read,
    /// and how many wait.
    Group(&'a [u8], StreamId, HasRead, u64),
    /// A consumer of a group: the names of both.
    Consumer(&'a [u8], &'a [u8], GroupConsumer),
    /// An entry that waits, of a group.
    Pending(&'a [u8], StreamId, &'a PendingEntry),
}

/// How many entries a group has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasRead {
    /// So many, or nobody knows.
    Counted(Option<u64>),
    /// The file does not say; it may follow from the stream.
    Uncounted,
}

impl Piece<'_> {
    /// Bytes of what it has.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Piece::String(bytes)
            | Piece::Element(bytes)
            | Piece::Member(bytes)
            | Piece::Scored(bytes, _) => bytes.len(),
            Piece::Field(field, value, _) => field.len() + value.len(),
            Piece::Entry(_, items) => items.iter().map(|item| item.len()).sum(),
            Piece::Ends(_) => 0,
            Piece::Group(name, ..) => name.len(),
            Piece::Consumer(group, name, _) => group.len() + name.len(),
            Piece::Pending(group, _, pending) => 2 * (group.len() + pending.consumer.len()),
        }
    }
}

/// Who takes the pieces of a value.
pub(crate) type Take<'t> = &'t mut dyn FnMut(Piece<'_>) -> Result<(), Fault>;

/// Why bytes are refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// They end too soon.
    Cut,
    /// They cannot be read.
    Unread(io::Error),
    /// The version is newer, or the checksum is of other bytes.
    Foot,
    /// They are not what is written there.
    Broken(&'static str),
    /// They are something that this server does not have: a sentence.
    Unknown(String),
    /// A collection has nothing.
    Empty,
    /// Who takes the pieces does not go on.
    Fault(Fault),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        Refused::Fault(fault)
    }
}

/// What reading gives.
pub(crate) type Result<T, E = Refused> = std::result::Result<T, E>;
