//! Options of a keyspace that override the store's.
//!
//! # Layout
//! What a store keeps of them: for each option that is set its tag (varint) and its value as a byte
//! string, ascending by their tags. Numbers within are varints. Nothing for a keyspace that has the
//! store's options. Tags are never reused.
//!
//! | tag | option | value |
//! |---|---|---|
//! | 1 | `compression` | 0 for none, 1 for LZ4, 2 and a level for Zstandard |
//! | 2 | `block_bytes` | a number |
//! | 3 | `filter_bits_per_key` | a number |
//! | 4 | `default_expiry` | milliseconds |
//! | 5 | `merge` | the operator's name |
//!
//! An unknown tag is of a newer program and an error: a keyspace may need what it says.

use std::fmt;
use std::time::Duration;

use crate::compaction_filter::SharedCompactionFilter;
use crate::expiry::millis;
use crate::log::MalformedPayload;
use crate::log::codec::{PayloadReader, put_bytes, put_varint};
use crate::merge::MergeOperator;
use crate::{Compression, Engine, Error, Options, Result};

/// Options of one keyspace. `None` means the value of the store's [`Options`].
///
/// The store records them. They apply to what is written from then on: existing tables stay as they
/// are until a compaction rewrites them ([`Keyspace::compact`](crate::Keyspace::compact)).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use gabion::{Compression, Db, KeyspaceOptions};
///
/// let db = Db::open(dir.path())?;
/// let options = KeyspaceOptions::default().compression(Compression::Lz4).block_bytes(16 << 10);
/// let texts = db.keyspace_with("texts", &options)?;
/// assert_eq!(texts.options(), options);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    /// How blocks are compressed. For [`Engine::Wip`].
    pub compression: Option<Compression>,
    /// Bytes of a block before compression, as [`Tuning::block_bytes`](crate::Tuning::block_bytes).
    /// For [`Engine::Wip`].
    pub block_bytes: Option<usize>,
    /// Bits of the filters of tables for each key, as
    /// [`Tuning::filter_bits_per_key`](crate::Tuning::filter_bits_per_key). For [`Engine::Wip`].
    pub filter_bits_per_key: Option<u32>,
    /// How long after a put its value expires, unless the put gives an expiry
    /// ([`Keyspace::put_expiring`](crate::Keyspace::put_expiring)). For puts in batches,
    /// transactions and ingests it counts from their calls. In whole milliseconds, at least one.
    pub default_expiry: Option<Duration>,
    /// What [merged](crate::Keyspace::merge) operands mean. The keyspace records the operator's
    /// name: from then on, options without it or with another one are an error.
    pub merge: Option<MergeOperator>,
    /// What compactions ask about values, as long as the store is open. For [`Engine::Wip`] and
    /// [`Engine::Flex`].
    pub compaction_filter: Option<SharedCompactionFilter>,
}

impl KeyspaceOptions {
    /// Sets [`KeyspaceOptions::compression`].
    #[must_use]
    pub fn compression(self, compression: Compression) -> KeyspaceOptions {
        KeyspaceOptions {
            compression: Some(compression),
            ..self
        }
    }

    /// Sets [`KeyspaceOptions::block_bytes`].
    #[must_use]
    pub fn block_bytes(self, block_bytes: usize) -> KeyspaceOptions {
        KeyspaceOptions {
            block_bytes: Some(block_bytes),
            ..self
        }
    }

    /// Sets [`KeyspaceOptions::filter_bits_per_key`].
    #[must_use]
    pub fn filter_bits_per_key(self, filter_bits_per_key: u32) -> KeyspaceOptions {
        KeyspaceOptions {
            filter_bits_per_key: Some(filter_bits_per_key),
            ..self
        }
    }

    /// Sets [`KeyspaceOptions::default_expiry`].
    #[must_use]
    pub fn default_expiry(self, default_expiry: Duration) -> KeyspaceOptions {
        KeyspaceOptions {
            default_expiry: Some(default_expiry),
            ..self
        }
    }

    /// Sets [`KeyspaceOptions::merge`]: a [`Merge`](crate::Merge) of the program's own, or a
    /// [`MergeOperator`].
    #[must_use]
    pub fn merge(self, operator: impl Into<MergeOperator>) -> KeyspaceOptions {
        KeyspaceOptions {
            merge: Some(operator.into()),
            ..self
        }
    }

    /// Sets [`KeyspaceOptions::compaction_filter`].
    #[must_use]
    pub fn compaction_filter(self, filter: impl Into<SharedCompactionFilter>) -> KeyspaceOptions {
        KeyspaceOptions {
            compaction_filter: Some(filter.into()),
            ..self
        }
    }

    /// Whether all is as the store's options say.
    pub fn is_empty(&self) -> bool {
        *self == KeyspaceOptions::default()
    }

    /// The store's options with those of the keyspace in their place.
    pub(crate) fn on(&self, store: &Options) -> Options {
        let mut options = store.clone();
        options.compression = self.compression.unwrap_or(store.compression);
        let tuning = &mut options.tuning;
        tuning.block_bytes = self.block_bytes.unwrap_or(tuning.block_bytes);
        let bits = self.filter_bits_per_key;
        tuning.filter_bits_per_key = bits.unwrap_or(tuning.filter_bits_per_key);
        options
    }

    /// Checks every value that could not work, as the store's options are checked.
    pub(crate) fn check(&self) -> Result<()> {
        if self.default_expiry.is_some_and(|own| millis(own) == 0) {
            return Err(Error::InvalidOption {
                option: "default_expiry",
                why: "it must be at least one millisecond".into(),
            });
        }
        if let Some(merge) = &self.merge {
            merge.check_name()?;
        }
        self.on(&Options::default()).check()
    }

    /// These options, for a keyspace `name` that has the options `kept`: an error if operands of
    /// `kept` would mean something else. What the program has said of an operator stays said.
    pub(crate) fn in_place_of(
        &self,
        name: &str,
        kept: &KeyspaceOptions,
    ) -> Result<KeyspaceOptions> {
        let shown = |operator: Option<&MergeOperator>| match operator {
            Some(operator) => format!("{:?}", operator.name()),
            None => "none".to_owned(),
        };
        if kept.merge.is_some() && self.merge != kept.merge {
            return Err(Error::OtherMergeOperator {
                keyspace: name.to_owned(),
                kept: shown(kept.merge.as_ref()),
                given: shown(self.merge.as_ref()),
            });
        }
        let given = self.merge.as_ref().filter(|given| given.is_known());
        Ok(KeyspaceOptions {
            merge: given
                .or(kept.merge.as_ref())
                .or(self.merge.as_ref())
                .cloned(),
            compaction_filter: self
                .compaction_filter
                .as_ref()
                .or(kept.compaction_filter.as_ref())
                .cloned(),
            ..self.clone()
        })
    }

    /// An error unless the program has said what the operator of the keyspace `name` does, if it
    /// has one.
    pub(crate) fn check_operator(&self, name: &str) -> Result<()> {
        match &self.merge {
            Some(kept) if !kept.is_known() => Err(Error::OtherMergeOperator {
                keyspace: name.to_owned(),
                kept: format!("{:?}", kept.name()),
                given: "none".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The bytes that a store keeps.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |tag, numbers: &[u64]| {
            let mut value = Vec::new();
            numbers
                .iter()
                .for_each(|number| put_varint(&mut value, *number));
            put_varint(&mut bytes, tag);
            put_bytes(&mut bytes, &value);
        };
        match self.compression {
            Some(Compression::None) => put(1, &[0]),
            Some(Compression::Lz4) => put(1, &[1]),
            Some(Compression::Zstd(level)) => put(1, &[2, u64::from(level.unsigned_abs())]),
            None => {}
        }
        if let Some(block_bytes) = self.block_bytes {
            put(2, &[block_bytes as u64]);
        }
        if let Some(bits) = self.filter_bits_per_key {
            put(3, &[bits.into()]);
        }
        if let Some(after) = self.default_expiry {
            put(4, &[millis(after)]);
        }
        if let Some(merge) = &self.merge {
            put_varint(&mut bytes, 5);
            put_bytes(&mut bytes, merge.name().as_bytes());
        }
        bytes
    }

    /// The options of bytes that a store kept.
    pub(crate) fn decode(bytes: &[u8]) -> Result<KeyspaceOptions, MalformedPayload> {
        let mut reader = PayloadReader::new(bytes, 0);
        let (mut options, mut last) = (KeyspaceOptions::default(), 0);
        while !reader.is_empty() {
            let tag = reader.varint()?;
            if tag <= last {
                return Err(reader.malformed("the options of a keyspace do not ascend"));
            }
            last = tag;
            let value = reader.bytes()?;
            if tag == 5 {
                let name = std::str::from_utf8(value);
                let name = name
                    .map_err(|_| reader.malformed("the name of a merge operator is not UTF-8"))?;
                options.merge = Some(MergeOperator::named(name));
                continue;
            }
            let mut value = PayloadReader::new(value, 0);
            match tag {
                1 => {
                    options.compression = Some(match value.varint()? {
                        0 => Compression::None,
                        1 => Compression::Lz4,
                        2 => Compression::Zstd(value.varint_u32()?.min(99).cast_signed()),
                        _ => return Err(value.malformed("the compression is unknown")),
                    });
                }
                2 => options.block_bytes = Some(value.varint_u32()? as usize),
                3 => options.filter_bits_per_key = Some(value.varint_u32()?),
                4 => options.default_expiry = Some(Duration::from_millis(value.varint()?)),
                _ => {
                    let what = "a keyspace has an option that this version does not know";
                    return Err(reader.malformed(what));
                }
            }
            if !value.is_empty() {
                return Err(value.malformed("bytes follow an option of a keyspace"));
            }
        }
        Ok(options)
    }

    /// An error for an engine that could not do what they say.
    pub(crate) fn check_for(&self, engine: Engine) -> Result<()> {
        let of_tables = self.compression.is_some()
            || self.block_bytes.is_some()
            || self.filter_bits_per_key.is_some();
        let operation = match engine {
            Engine::Wip => return Ok(()),
            Engine::Flex if of_tables => "table options for single keyspaces",
            Engine::Scmkv | Engine::Sptree if !self.is_empty() => "options for single keyspaces",
            _ => return Ok(()),
        };
        Err(Error::Unsupported {
            engine: engine.name(),
            operation,
        })
    }
}

impl fmt::Display for KeyspaceOptions {
    /// Those that are set, as `name=value`, with blanks in between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = [
            self.compression.map(|own| format!("compression={own}")),
            self.block_bytes.map(|own| format!("block_bytes={own}")),
            self.filter_bits_per_key
                .map(|own| format!("filter_bits_per_key={own}")),
            self.default_expiry
                .map(|own| format!("default_expiry={own:?}")),
            self.merge.as_ref().map(|own| format!("merge={own}")),
        ];
        let shown: Vec<String> = shown.into_iter().flatten().collect();
        f.write_str(&shown.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn options_come_back_and_have_these_bytes() {
        let some = KeyspaceOptions::default()
            .compression(Compression::Zstd(7))
            .block_bytes(16 << 10)
            .filter_bits_per_key(12)
            .default_expiry(Duration::from_millis(300))
            .merge(crate::AddI64);
        assert_eq!(
            some.encode(),
            b"\x01\x02\x02\x07\x02\x03\x80\x80\x01\x03\x01\x0c\x04\x02\xac\x02\x05\x07add_i64"
        );
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd(19)] {
            let options = some.clone().compression(compression);
            assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options));
        }
        let none = KeyspaceOptions::default();
        assert!(none.is_empty() && none.encode().is_empty());
        assert_eq!(KeyspaceOptions::decode(&[]), Ok(none));
        assert_eq!(
            some.to_string(),
            "compression=zstd:7 block_bytes=16384 filter_bits_per_key=12 default_expiry=300ms \
             merge=add_i64"
        );
        for bad in [
            &b"\x06\x01\x01"[..],
            b"\x05\x01\xff",
            b"\x01\x01\x03",
            b"\x02\x02\x01\x01",
            b"\x03\x01\x01\x02\x01\x01",
        ] {
            assert!(KeyspaceOptions::decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn values_that_cannot_work_are_named() {
        let error = KeyspaceOptions::default()
            .block_bytes(1)
            .check()
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::InvalidOption {
                    option: "block_bytes",
                    ..
                }
            ),
            "{error}"
        );
        let soon = KeyspaceOptions::default().default_expiry(Duration::from_micros(999));
        assert!(soon.check().is_err());
        KeyspaceOptions::default()
            .block_bytes(1 << 12)
            .check()
            .unwrap();
    }

    proptest! {
        #[test]
        fn other_bytes_are_an_error_or_options(bytes: Vec<u8>) {
            if let Ok(options) = KeyspaceOptions::decode(&bytes) {
                prop_assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options));
            }
        }
    }
}
