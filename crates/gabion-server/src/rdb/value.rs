//! A value's pieces, of each of its forms.

use std::io::Read;

use super::packs::{self, Items};
use super::piece::{
    HASH, HASH_2, HASH_LISTPACK, HASH_LISTPACK_EX, HASH_METADATA, HASH_ZIPLIST, HASH_ZIPMAP, LIST,
    LIST_QUICKLIST, LIST_QUICKLIST_2, LIST_ZIPLIST, MODULE, MODULE_2, Piece, Refused, Result, SET,
    SET_INTSET, SET_LISTPACK, SORTED_SET, SORTED_SET_2, SORTED_SET_LISTPACK, SORTED_SET_ZIPLIST,
    STREAM, STREAM_2, STREAM_3, STRING, Take,
};
use super::read::Reader;
use super::streams::{self, Version};
use crate::store::meta::KeyType;

/// The type of a value in that form.
///
/// # Errors
/// For a form that is not known.
pub(super) fn kind(form: u8) -> Result<KeyType> {
    Ok(match form {
        STRING => KeyType::String,
        LIST | LIST_ZIPLIST | LIST_QUICKLIST | LIST_QUICKLIST_2 => KeyType::List,
        SET | SET_INTSET | SET_LISTPACK => KeyType::Set,
        SORTED_SET | SORTED_SET_2 | SORTED_SET_ZIPLIST | SORTED_SET_LISTPACK => KeyType::SortedSet,
        HASH | HASH_2 | HASH_ZIPMAP | HASH_ZIPLIST | HASH_LISTPACK | HASH_METADATA
        | HASH_LISTPACK_EX => KeyType::Hash,
        STREAM | STREAM_2 | STREAM_3 => KeyType::Stream,
        MODULE | MODULE_2 => return Err(Refused::Unknown("a value of a module".to_owned())),
        _ => {
            let sentence = format!("a value of type {form}, which this server does not know");
            return Err(Refused::Unknown(sentence));
        }
    })
}

/// Gives away the pieces of a value in that form.
///
/// # Errors
/// When it is none; and what `take` says.
pub(super) fn read<R: Read>(reader: &mut Reader<R>, form: u8, take: Take<'_>) -> Result<()> {
    let count = match kind(form)? {
        KeyType::String => {
            take(Piece::String(&reader.string()?))?;
            return Ok(());
        }
        KeyType::List => list(reader, form, take)?,
        KeyType::Set => set(reader, form, take)?,
        KeyType::SortedSet => sorted_set(reader, form, take)?,
        KeyType::Hash => hash(reader, form, take)?,
        KeyType::Stream => {
            let version = match form {
                STREAM => Version::One,
                STREAM_2 => Version::Two,
                _ => Version::Three,
            };
            // A stream may be there without entries.
            return streams::read(reader, version, take);
        }
    };
    match count {
        0 => Err(Refused::Empty),
        _ => Ok(()),
    }
}

/// Reads so many parts as stand in front of them; returns how many.
fn each<R: Read>(
    reader: &mut Reader<R>,
    mut one: impl FnMut(&mut Reader<R>) -> Result<()>,
) -> Result<u64> {
    let count = reader.length()?;
    for _ in 0..count {
        one(reader)?;
    }
    Ok(count)
}

/// Gives away the items of a packed form; returns how many there were.
fn items(items: Items<'_>, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<u64> {
    let mut count = 0;
    for item in items {
        take(&item?)?;
        count += 1;
    }
    Ok(count)
}

fn list<R: Read>(reader: &mut Reader<R>, form: u8, take: Take<'_>) -> Result<u64> {
    let mut element = |element: &[u8]| -> Result<()> { Ok(take(Piece::Element(element))?) };
    match form {
        LIST => each(reader, |reader| element(&reader.string()?)),
        LIST_ZIPLIST => items(packs::ziplist(&reader.string()?), element),
        _ => {
            // Nodes of several elements.
            let mut count = 0;
            each(reader, |reader| {
                let container = match form {
                    LIST_QUICKLIST_2 => Some(reader.length()?),
                    _ => None,
                };
                let node = reader.string()?;
                count += match container {
                    None => items(packs::ziplist(&node), &mut element)?,
                    Some(1) => {
                        element(&node)?;
                        1
                    }
                    Some(2) => items(packs::listpack(&node), &mut element)?,
                    Some(_) => {
                        return Err(Refused::Broken("a node of a list is in no known form"));
                    }
                };
                Ok(())
            })?;
            Ok(count)
        }
    }
}

fn set<R: Read>(reader: &mut Reader<R>, form: u8, take: Take<'_>) -> Result<u64> {
    let mut member = |member: &[u8]| -> Result<()> { Ok(take(Piece::Member(member))?) };
    match form {
        SET => each(reader, |reader| member(&reader.string()?)),
        SET_INTSET => items(packs::intset(&reader.string()?)?, member),
        _ => items(packs::listpack(&reader.string()?), member),
    }
}

fn sorted_set<R: Read>(reader: &mut Reader<R>, form: u8, take: Take<'_>) -> Result<u64> {
    let mut scored = |member: &[u8], score: f64| -> Result<()> {
        match score.is_nan() {
            true => Err(Refused::Broken("a score is no number")),
            false => Ok(take(Piece::Scored(member, score))?),
        }
    };
    let packed = match form {
        SORTED_SET | SORTED_SET_2 => {
            return each(reader, |reader| {
                let member = reader.string()?;
                let score = match form {
                    SORTED_SET => reader.text_score()?,
                    _ => reader.score()?,
                };
                scored(&member, score)
            });
        }
        _ => reader.string()?,
    };
    let items = match form {
        SORTED_SET_ZIPLIST => packs::ziplist(&packed),
        _ => packs::listpack(&packed),
    };
    items.pairs(|member, score| {
        let score = crate::args::float(score);
        scored(member, score.unwrap_or(f64::NAN))
    })
}

fn hash<R: Read>(reader: &mut Reader<R>, form: u8, take: Take<'_>) -> Result<u64> {
    let mut field = |field: &[u8], value: &[u8], moment: Option<u64>| -> Result<()> {
        Ok(take(Piece::Field(field, value, moment))?)
    };
    match form {
        HASH => each(reader, |reader| {
            field(&reader.string()?, &reader.string()?, None)
        }),
        HASH_2 => each(reader, |reader| {
            let (name, value) = (reader.string()?, reader.string()?);
            // All bits are set where it does not expire.
            let moment = Some(reader.number()?).filter(|moment| *moment != u64::MAX);
            field(&name, &value, moment)
        }),
        HASH_METADATA => {
            let first = reader.number()?;
            each(reader, |reader| {
                let moment = match reader.length()? {
                    0 => None,
                    after => {
                        let moment = first.checked_add(after - 1);
                        Some(moment.ok_or(Refused::Broken("a field expires beyond all time"))?)
                    }
                };
                field(&reader.string()?, &reader.string()?, moment)
            })
        }
        HASH_LISTPACK_EX => {
            reader.number()?;
            let packed = reader.string()?;
            let mut items = packs::listpack(&packed);
            let mut count = 0;
            while let Some(name) = items.next() {
                let (name, value, moment) = (name?, items.one()?, items.unsigned()?);
                field(&name, &value, Some(moment).filter(|moment| *moment != 0))?;
                count += 1;
            }
            Ok(count)
        }
        _ => {
            let packed = reader.string()?;
            let items = match form {
                HASH_ZIPMAP => packs::zipmap(&packed),
                HASH_ZIPLIST => packs::ziplist(&packed),
                _ => packs::listpack(&packed),
            };
            items.pairs(|name, value| field(name, value, None))
        }
    }
}
