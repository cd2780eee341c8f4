//! A key that is made of the pieces of a dumped value.
//!
//! # Idea
//! Pieces go into an open collection, as a command's changes do. Whoever has many of them saves and
//! commits in between: then the collection is opened again for the next piece, and no more of it is
//! in memory than what has come since.
//!
//! # Invariants
//! - I1. After each save there is a record, with the moment at which the key expires, and it counts
//!   what was saved. So a crash between two saves leaves a part of the value under its key, and
//!   nothing that no key has.
//! - I2. Reads of the store see what was saved before: the caller commits after a save, unless the
//!   work goes through a transaction.

use super::hash::Hash;
use super::list::{List, ListEnd};
use super::members::Members;
use super::meta::{KeyType, RecordHead, SaveOutcome};
use super::scored::SortedSet;
use super::stream::{ConsumerGroup, Stream};
use super::work::Work;
use crate::fault::{Fault, Result};
use crate::rdb::{HasRead, Piece};

/// A collection that is open.
#[derive(Debug)]
enum Open {
    /// With what has become of it.
    String(SaveOutcome),
    List(List),
    Set(Members),
    SortedSet(SortedSet),
    Hash(Hash),
    Stream(Stream),
}

/// A key that is being made.
#[derive(Debug)]
pub(crate) struct Building<'k> {
    space: u16,
    key: &'k [u8],
    kind: KeyType,
    expires_ms: Option<u64>,
    open: Option<Open>,
    is_saved: bool,
}

impl<'k> Building<'k> {
    /// A key of a type, in the place of whatever the key is.
    pub(crate) fn new(
        space: u16,
        key: &'k [u8],
        kind: KeyType,
        expires_ms: Option<u64>,
    ) -> Building<'k> {
        Building {
            space,
            key,
            kind,
            expires_ms,
            open: None,
            is_saved: false,
        }
    }

    /// Whether a record was stored.
    pub(crate) fn is_saved(&self) -> bool {
        self.is_saved
    }

    fn open(&self, work: &mut Work) -> Result<Open> {
        let saved = match self.is_saved {
            true => work.find(self.space, self.key)?,
            false => None,
        };
        let (space, saved) = (self.space, saved.as_ref());
        Ok(match self.kind {
            KeyType::String => Open::String(SaveOutcome::Same),
            KeyType::List => {
                let mut list = List::of(space, saved)?;
                list.expire(self.expires_ms);
                Open::List(list)
            }
            KeyType::Set => {
                let mut set = Members::of(space, saved, KeyType::Set)?;
                set.expire(self.expires_ms);
                Open::Set(set)
            }
            KeyType::SortedSet => {
                let mut set = SortedSet::of(space, saved)?;
                set.expire(self.expires_ms);
                Open::SortedSet(set)
            }
            KeyType::Hash => {
                let mut hash = Hash::of(work, space, saved)?;
                hash.expire(self.expires_ms);
                Open::Hash(hash)
            }
            KeyType::Stream => {
                let mut stream = Stream::create(work, space)?;
                stream.expire(self.expires_ms);
                Open::Stream(stream)
            }
        })
    }

    /// Takes a piece. Fields that have expired by the work's moment are dropped.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn take(&mut self, work: &mut Work, piece: &Piece<'_>) -> Result<()> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.open(work)?,
        };
        match (&mut open, piece) {
            (Open::String(saved), Piece::String(bytes)) => {
                let head = RecordHead::STRING.expiring(self.expires_ms);
                *saved = work.put_collection(self.space, self.key, head, &[bytes])?;
            }
            (Open::List(list), Piece::Element(element)) => {
                list.push(work, ListEnd::Right, element)?
            }
            (Open::Set(set), Piece::Member(member)) => {
                set.set(work, member, &[])?;
            }
            (Open::SortedSet(set), Piece::Scored(member, score)) => {
                set.set(work, member, *score)?;
            }
            (Open::Hash(hash), Piece::Field(field, value, moment)) => {
                if moment.is_none_or(|moment| moment > work.now_ms) {
                    hash.set(work, field, value, *moment)?;
                }
            }
            (Open::Stream(stream), piece) => take_of_stream(stream, work, piece)?,
            _ => return Err(Fault::line("ERR Bad data format")),
        }
        self.open = Some(open);
        Ok(())
    }

    /// Stores what has come.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn save(&mut self, work: &mut Work) -> Result<SaveOutcome> {
        let saved = match self.open.take() {
            None => SaveOutcome::Same,
            Some(Open::String(saved)) => saved,
            Some(Open::List(list)) => list.save_to(work, self.key)?,
            Some(Open::Set(set)) => set.save_to(work, self.key)?,
            Some(Open::SortedSet(set)) => set.save_to(work, self.key)?,
            Some(Open::Hash(hash)) => hash.save_to(work, self.key)?,
            Some(Open::Stream(stream)) => {
                let saved = stream.save_to(work, self.key)?;
                // Its entries are in the store already.
                self.open = Some(Open::Stream(stream));
                saved
            }
        };
        self.is_saved |= matches!(saved, SaveOutcome::New | SaveOutcome::Changed);
        Ok(saved)
    }
}

fn take_of_stream(stream: &mut Stream, work: &mut Work, piece: &Piece<'_>) -> Result<()> {
    match piece {
        Piece::Entry(id, items) => {
            stream.add(work, *id, items.iter().map(|item| &**item))?;
            // Until it is known better.
            (stream.last, stream.added) = (*id, stream.length);
        }
        Piece::Ends(ends) => {
            stream.last = ends.last;
            stream.deleted = ends.deleted;
            stream.added = ends.added;
        }
        Piece::Group(name, last, has_read, pending) => {
            let group = ConsumerGroup {
                last: *last,
                read: match has_read {
                    HasRead::Counted(read) => *read,
                    HasRead::Uncounted => stream.added_up_to(*last),
                },
                pending: *pending,
            };
            stream.set_group(work, name, group)?;
        }
        Piece::Consumer(group, name, consumer) => {
            stream.set_consumer(work, group, name, *consumer)?;
        }
        Piece::Pending(group, id, pending) => stream.set_pending(work, group, *id, pending)?,
        _ => return Err(Fault::line("ERR Bad data format")),
    }
    Ok(())
}
