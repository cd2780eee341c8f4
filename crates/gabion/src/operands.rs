//! What is stored of merges: operands, and what of their key they cover.
//!
//! # Layout
//! What is stored of a record of [`Kind::Merge`]:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 7 | `since`: the oldest number that the record covers; 0 for its own |
//! | 7 | 1 | 0: the base is not known; else 1 + the kind of the base: delete, put or expiring put |
//! | 8 | .. | of a put: its length as a varint, and what is stored of it |
//! | | .. | operands, oldest first: of each its length as a varint, and its bytes |
//!
//! # Idea
//! A record covers all versions of its key from `since` up to its own number: whoever finds it goes
//! on with what is below `since`, as if nothing were in between. That is the *base*; the value is
//! what the operator makes of base and operands.
//!
//! A record is written so that it covers what its MemTable has of its key. Where that is a value,
//! the operator makes the new value at once, and the record is a plain put. So a key of which much
//! is merged has one short record that counts, in the log, in its MemTable and in each table.
//!
//! Two records are folded without the operator: the operands of the newer one are put behind those
//! of the older one, or behind a value. So nothing is lost while an operator fails, or is not
//! known; it only makes less of what is stored.
//!
//! # Invariants
//! - O1. No version of a key has a number between `since` and that of a record, of which the record
//!   says nothing; nor has a range delete of the key.
//! - O2. The versions that a record covers are in its own MemTable, or in its own table, if they
//!   are anywhere. So no job can fold into one of them what is below it, and leave the record above
//!   without its base.
//! - O3. In a keyspace in which values expire, a base is known when a record is written
//!   ([`OlderVersion`]): else nobody could tell which operands came after the base had expired.

use std::time::Duration;

use crate::expiry::{Expiry, StoredRecord, UnixMillis, has_expired, moment_of, stored, value_of};
use crate::log::MalformedPayload;
use crate::log::codec::{PayloadReader, VARINT_BYTES_MAX, put_bytes};
use crate::merge::{MergeError, MergeOperator};
use crate::types::{Kind, Seq};
use crate::{Error, Result, Slice};

/// Bytes in front of base and operands.
const HEAD_BYTES: usize = 8;

/// Bits of `since` in the first word.
const SINCE_BITS: u32 = 56;

/// What operands are merged into.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Base {
    /// What is below.
    Unknown,
    /// No value.
    Nothing,
    /// A put, expiring or not, and what is stored of it.
    Put(Kind, Vec<u8>),
}

/// Operands of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operands {
    /// The oldest number that is covered; 0 for the record's own.
    since: Seq,
    base: Base,
    operands: Vec<Vec<u8>>,
}

/// What a key has below a merge, as far as its writer has to look.
pub(crate) enum OlderVersion {
    /// Nothing in memory; what is below is not looked for.
    Unknown,
    /// Nothing.
    Nothing,
    /// A record, with its number.
    Record(Seq, StoredRecord),
}

/// How an operator is asked: whose operands they are, and by which moments.
#[derive(Clone, Copy)]
pub(crate) struct MergeContext<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) operator: Option<&'a MergeOperator>,
    /// A base that has expired by then is none.
    pub(crate) moment: UnixMillis,
    /// When a value expires that takes no other's place.
    pub(crate) expires: Option<UnixMillis>,
}

impl Operands {
    /// One operand, of a write that covers nothing else.
    pub(crate) fn one(operand: &[u8]) -> Operands {
        Operands {
            since: 0,
            base: Base::Unknown,
            operands: vec![operand.to_vec()],
        }
    }

    /// The same, of the write of that number.
    pub(crate) fn from(self, since: Seq) -> Operands {
        Operands { since, ..self }
    }

    /// What the record of a number covers below it, if its base is not known: versions below this.
    pub(crate) fn below(&self, own: Seq) -> Option<Seq> {
        (self.base == Base::Unknown).then_some(match self.since {
            0 => own,
            since => since,
        })
    }

    /// As [`Operands::below`], of what is stored.
    pub(crate) fn below_of(stored: &[u8], own: Seq) -> Option<Seq> {
        let head = Seq::from_le_bytes(*stored.first_chunk::<HEAD_BYTES>()?);
        match (head >> SINCE_BITS, head) {
            (0, 0) => Some(own),
            (0, since) => Some(since),
            _ => None,
        }
    }

    /// Whether a record is one of operands whose base is not known.
    pub(crate) fn are_open_in(record: &StoredRecord) -> bool {
        let (kind, stored) = record.parts();
        kind == Kind::Merge && Operands::below_of(stored, 1).is_some()
    }

    /// The operands, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.operands.iter().map(Vec::as_slice)
    }

    /// The base, if it is known: a put, or a delete.
    pub(crate) fn base(&self) -> Option<(Kind, &[u8])> {
        match &self.base {
            Base::Unknown => None,
            Base::Nothing => Some((Kind::Delete, &[])),
            Base::Put(kind, stored) => Some((*kind, stored)),
        }
    }

    /// Puts them on top of an older version of their key, the next one below them.
    pub(crate) fn set_base(
        &mut self,
        seq: Seq,
        kind: Kind,
        stored: &[u8],
    ) -> Result<(), MalformedPayload> {
        self.since = seq;
        match kind {
            Kind::Put | Kind::PutExpiring => self.base = Base::Put(kind, stored.to_vec()),
            Kind::Delete | Kind::DeleteRange | Kind::Operand => self.base = Base::Nothing,
            Kind::Merge => {
                let mut older = Operands::decode(stored)?;
                older.operands.append(&mut self.operands);
                *self = match older.since {
                    0 => older.from(seq),
                    _ => older,
                };
            }
        }
        Ok(())
    }

    /// There is no older version of their key, or none that counts.
    pub(crate) fn set_no_base(&mut self) {
        self.base = Base::Nothing;
    }

    /// Puts them on top of what their writer has found.
    fn set_base_version(&mut self, older: OlderVersion) -> Result<(), MalformedPayload> {
        match older {
            OlderVersion::Unknown => Ok(()),
            OlderVersion::Nothing => {
                self.set_no_base();
                Ok(())
            }
            OlderVersion::Record(seq, record) => {
                let (kind, stored) = record.parts();
                self.set_base(seq, kind, stored)
            }
        }
    }

    /// The base's value and when it expires, at a moment.
    fn base_at(&self, moment: UnixMillis) -> Option<(&[u8], Option<UnixMillis>)> {
        match &self.base {
            Base::Put(kind, stored) if !has_expired(*kind, stored, || moment) => {
                let expires = (*kind == Kind::PutExpiring).then(|| moment_of(stored));
                Some((value_of(*kind, stored), expires))
            }
            _ => None,
        }
    }

    /// Base and operands merged; a base that is not known is none.
    fn merged(&self, asked: MergeContext<'_>) -> Result<(Kind, Vec<u8>), MergeError> {
        let unknown = || MergeError::from("the keyspace has no merge operator");
        let operator = asked.operator.ok_or_else(unknown)?;
        let base = self.base_at(asked.moment);
        let operands: Vec<&[u8]> = self.iter().collect();
        let value = operator.full_merge(asked.key, base.map(|(value, _)| value), &operands)?;
        let expires = base.map_or(asked.expires, |(_, expires)| expires);
        Ok(match (value, expires) {
            (Some(value), Some(moment)) => (Kind::PutExpiring, stored(moment, &value)),
            (Some(value), None) => (Kind::Put, value),
            (None, _) => (Kind::Delete, Vec::new()),
        })
    }

    /// What has to be stored of them: what they amount to, if the base is known and the operator
    /// can tell; else themselves, as few as it makes of them.
    pub(crate) fn settled(mut self, asked: MergeContext<'_>) -> (Kind, Vec<u8>) {
        if self.base != Base::Unknown
            && let Ok(merged) = self.merged(asked)
        {
            return merged;
        }
        let mut folded: Vec<Vec<u8>> = Vec::with_capacity(self.operands.len());
        for operand in std::mem::take(&mut self.operands) {
            let both = folded.last().zip(asked.operator);
            match both.and_then(|(last, own)| own.partial_merge(asked.key, last, &operand)) {
                Some(both) => *folded.last_mut().expect("there is a last one") = both,
                None => folded.push(operand),
            }
        }
        self.operands = folded;
        (Kind::Merge, self.encode())
    }

    /// The record that a reader finds, who has come to the base.
    ///
    /// # Errors
    /// [`Error::MergeFailed`].
    pub(crate) fn read(&self, asked: MergeContext<'_>) -> Result<Option<StoredRecord>> {
        match self.merged(asked) {
            Ok((Kind::Delete, _)) => Ok(None),
            Ok((kind, stored)) => Ok(Some(StoredRecord::new(kind, Slice::new(&stored)))),
            Err(why) => Err(match asked.operator {
                Some(operator) => operator.failed(asked.key, &why),
                None => MergeOperator::named("none").failed(asked.key, &why),
            }),
        }
    }

    /// What is stored.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (form, put) = match &self.base {
            Base::Unknown => (0, None),
            Base::Nothing => (1 + Kind::Delete as u64, None),
            Base::Put(kind, stored) => (1 + *kind as u64, Some(stored)),
        };
        let operands = self.operands.iter();
        let bytes: usize = operands.clone().chain(put).map(|own| own.len() + 5).sum();
        let mut stored = Vec::with_capacity(HEAD_BYTES + bytes);
        stored.extend((self.since | form << SINCE_BITS).to_le_bytes());
        put.into_iter()
            .chain(operands)
            .for_each(|own| put_bytes(&mut stored, own));
        stored
    }

    /// What was stored.
    pub(crate) fn decode(stored: &[u8]) -> Result<Operands, MalformedPayload> {
        let mut reader = PayloadReader::new(stored, 0);
        let head = reader.u64()?;
        let [form, ..] = (head >> SINCE_BITS).to_le_bytes();
        let base = match form.checked_sub(1).map(Kind::from_u8) {
            None => Base::Unknown,
            Some(Some(Kind::Delete)) => Base::Nothing,
            Some(Some(kind @ (Kind::Put | Kind::PutExpiring))) => {
                Base::Put(kind, reader.bytes()?.to_vec())
            }
            Some(_) => return Err(reader.malformed("the kind of a merge's base is unknown")),
        };
        let mut operands = Vec::new();
        while !reader.is_empty() {
            operands.push(reader.bytes()?.to_vec());
        }
        if operands.is_empty() {
            return Err(reader.malformed("a merge has no operand"));
        }
        Ok(Operands {
            since: head & ((1 << SINCE_BITS) - 1),
            base,
            operands,
        })
    }
}

/// What the commit of operands writes, of which there is one at least, where their key has this.
pub(crate) fn resolve(
    asked: MergeContext<'_>,
    operands: &[&[u8]],
    own: Seq,
    older: OlderVersion,
) -> Result<(Kind, Vec<u8>)> {
    if let Some(merged) = resolve_shortly(asked, operands, &older) {
        return Ok(merged);
    }
    let mut operands = Operands {
        since: own,
        base: Base::Unknown,
        operands: operands.iter().map(|own| own.to_vec()).collect(),
    };
    match operands.set_base_version(older) {
        Ok(()) => Ok(operands.settled(asked)),
        Err(malformed) => Err(malformed_in_memory(malformed)),
    }
}

/// As [`resolve`], for what a counter meets: a value that does not expire, or one operand that the
/// new one goes together with.
fn resolve_shortly(
    asked: MergeContext<'_>,
    operands: &[&[u8]],
    older: &OlderVersion,
) -> Option<(Kind, Vec<u8>)> {
    let OlderVersion::Record(seq, record) = older else {
        return None;
    };
    let operator = asked.operator?;
    match (record.parts(), operands) {
        ((Kind::Put, value), operands) => {
            let merged = operator.full_merge(asked.key, Some(value), operands);
            merged.ok()?.map(|value| (Kind::Put, value))
        }
        ((Kind::Merge, stored), [operand]) => {
            let below = Operands::below_of(stored, *seq)?;
            let mut reader = PayloadReader::new(stored.get(HEAD_BYTES..)?, HEAD_BYTES);
            let only = reader.bytes().ok().filter(|_| reader.is_empty())?;
            let both = operator.partial_merge(asked.key, only, operand)?;
            let mut stored = Vec::with_capacity(HEAD_BYTES + VARINT_BYTES_MAX + both.len());
            stored.extend(below.to_le_bytes());
            put_bytes(&mut stored, &both);
            Some((Kind::Merge, stored))
        }
        _ => None,
    }
}

/// The error of a record that was checked when it came from its medium, and does not decode.
pub(crate) fn malformed_in_memory(malformed: MalformedPayload) -> Error {
    malformed.in_file("a MemTable or a table of the store".into(), 0)
}

/// When a value expires that is new, in a keyspace with a default.
pub(crate) fn new_moment(default: Option<Duration>, now: UnixMillis) -> Option<UnixMillis> {
    default.map(|after| Expiry::After(after).moment(now))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::merge::{AddI64, Append};

    fn asked<'a>(operator: &'a MergeOperator, moment: UnixMillis) -> MergeContext<'a> {
        MergeContext {
            key: b"key",
            operator: Some(operator),
            moment,
            expires: None,
        }
    }

    fn value(record: Option<StoredRecord>) -> Option<Vec<u8>> {
        record.map(|record| record.into_value().to_vec())
    }

    #[test]
    fn what_is_stored_has_these_bytes() {
        let mut operands = Operands::one(b"ab").from(0x0102);
        operands.operands.push(Vec::new());
        let head = b"\x02\x01\0\0\0\0\0\0";
        assert_eq!(operands.encode(), [&head[..], b"\x02ab\x00"].concat());
        operands.set_base(7, Kind::Put, b"base").unwrap();
        let head = b"\x07\0\0\0\0\0\0\x02";
        assert_eq!(
            operands.encode(),
            [&head[..], b"\x04base\x02ab\x00"].concat()
        );
        for bad in [
            &b""[..],
            b"\0\0\0\0\0\0\0",
            head,
            b"\x07\0\0\0\0\0\0\x03\x01a\x01b",
            b"\x07\0\0\0\0\0\0\x02\x05base",
        ] {
            assert!(Operands::decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_base_that_expires_leaves_its_moment_to_what_is_merged_into_it() {
        let operator = MergeOperator::new(Append::new(" "));
        let expiring = stored(500, b"old");
        let mut operands = Operands::one(b"new");
        operands.set_base(3, Kind::PutExpiring, &expiring).unwrap();
        let at = |moment| operands.clone().settled(asked(&operator, moment));
        assert_eq!(at(499), (Kind::PutExpiring, stored(500, b"old new")));
        assert_eq!(at(500), (Kind::Put, b"new".to_vec()));
        // An operator that is not known changes nothing of it.
        let unknown = MergeOperator::named("other");
        let (kind, kept) = operands.clone().settled(asked(&unknown, 500));
        assert_eq!(kind, Kind::Merge);
        assert_eq!(Operands::decode(&kept), Ok(operands));
    }

    #[test]
    fn an_operator_that_fails_loses_nothing() {
        let add = MergeOperator::new(AddI64);
        let one = 1i64.to_le_bytes();
        let mut operands = Operands::one(&one);
        operands.set_base(3, Kind::Put, b"no number").unwrap();
        let (kind, kept) = operands.settled(asked(&add, 0));
        assert_eq!(kind, Kind::Merge);
        let kept = Operands::decode(&kept).unwrap();
        let error = kept.read(asked(&add, 0)).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("add_i64") && said.contains("9 bytes"),
            "{said}"
        );
        // A later delete of the value, or another operator, finds all of it.
        let append = MergeOperator::new(Append::new("+"));
        let merged = kept.read(asked(&append, 0)).unwrap();
        assert_eq!(value(merged), Some([b"no number+", &one[..]].concat()));
    }

    /// A version of a key.
    #[derive(Clone, Debug)]
    enum Version {
        Put(Vec<u8>),
        Delete,
        Operand(Vec<u8>),
    }

    fn versions() -> impl Strategy<Value = Vec<Version>> {
        let bytes = || prop::collection::vec(b'a'..=b'c', 0..3);
        let version = prop_oneof![
            1 => bytes().prop_map(Version::Put),
            1 => Just(Version::Delete),
            4 => bytes().prop_map(Version::Operand),
        ];
        prop::collection::vec(version, 1..10)
    }

    fn twin(versions: &[Version]) -> Option<Vec<u8>> {
        let mut text: Option<Vec<u8>> = None;
        for version in versions {
            text = match (version, text) {
                (Version::Put(value), _) => Some(value.clone()),
                (Version::Delete, _) => None,
                (Version::Operand(own), None) => Some(own.clone()),
                (Version::Operand(own), Some(text)) => Some([&text[..], b",", own].concat()),
            };
        }
        text
    }

    proptest! {
        /// Versions are folded from the newest one down, with the operator or without it, through
        /// what is stored, as jobs and readers meet them.
        #[test]
        fn folding_says_what_the_versions_say(versions in versions(), known in any::<u16>()) {
            let append = MergeOperator::new(Append::new(","));
            let unknown = MergeOperator::named("unknown");
            let mut kept: Vec<(Seq, Kind, Vec<u8>)> = Vec::new();
            for (seq, version) in (1u64..).zip(&versions) {
                kept.push(match version {
                    Version::Put(value) => (seq, Kind::Put, value.clone()),
                    Version::Delete => (seq, Kind::Delete, Vec::new()),
                    Version::Operand(own) => {
                        (seq, Kind::Merge, Operands::one(own).from(seq).encode())
                    }
                });
            }
            let mut at = 0;
            while kept.len() > 1 {
                let (seq, kind, newer) = kept.pop().unwrap();
                let (older_seq, older_kind, older) = kept.pop().unwrap();
                let mut next = (seq, kind, newer.clone());
                if kind == Kind::Merge {
                    let mut operands = Operands::decode(&newer).unwrap();
                    if let Some(below) = operands.below(seq) {
                        prop_assert_eq!(below, older_seq + 1);
                        operands.set_base(older_seq, older_kind, &older).unwrap();
                    }
                    let operator = if known >> at & 1 == 1 { &append } else { &unknown };
                    at += 1;
                    let (kind, stored) = operands.settled(asked(operator, 0));
                    next = (seq, kind, stored);
                }
                kept.push(next);
            }
            let (_, kind, stored) = kept.pop().unwrap();
            let found = match kind {
                Kind::Put => Some(stored),
                Kind::Merge => {
                    let operands = Operands::decode(&stored).unwrap();
                    value(operands.read(asked(&append, 0)).unwrap())
                }
                _ => None,
            };
            prop_assert_eq!(found, twin(&versions));
        }

        #[test]
        fn other_bytes_are_an_error_or_operands(bytes: Vec<u8>) {
            if let Ok(operands) = Operands::decode(&bytes) {
                prop_assert_eq!(Operands::decode(&operands.encode()), Ok(operands));
            }
        }
    }
}
