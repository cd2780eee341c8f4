//! Values in the format of Redis' dumps (RDB): in files, and as `DUMP` and `RESTORE` carry them.
//!
//! # Idea
//! A value is read in pieces ([`Piece`]): an element, a member, a field, an entry. Who reads it
//! takes them one by one, so that of a value which is written element by element no more than one
//! is in memory. What is written as one string, as packed forms are, is in memory while its pieces
//! are taken. `docs/from-redis.md` tells users what is read.
//!
//! Written are the plain types only, which all versions read, and streams as Redis 7.0 does. Read
//! are the packed ones, too: see [`packs`]. The source is Redis' own description of each type,
//! `rdb.h` of its versions up to 7.4, and of Valkey's up to 9.
//!
//! # Invariants
//! - I1. No byte is believed: what is damaged is refused, not met by a panic, and no room is made
//!   for more than has come, but for what a compressed string may unpack to (264 times its bytes).
//! - I2. The pieces of a value are of one type, and a stream's come in the order of [`Piece`].

mod checksum;
mod file;
pub(crate) mod libraries;
mod lzf;
mod packs;
mod payload;
mod piece;
mod read;
mod streams;
mod value;
mod write;

pub(crate) use file::{File, Key, Part};
pub(crate) use payload::{kind, open, read, write};
pub(crate) use piece::{Ends, GroupValue, HasRead, Piece, Refused, StreamValue, Value};
