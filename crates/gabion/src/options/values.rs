//! The values of options that are words: each is read as it is written.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a completed write survives.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Power loss: the log is on the medium before the write returns. Concurrent writers share a
    /// sync.
    Sync,
    /// Process death always; power loss except for the last writes, which are at most this old.
    ///
    /// A sync begins when the oldest unsynced write reaches an age: the interval less the time that
    /// recent syncs took. If the medium takes more than half of the interval for a sync, the last
    /// writes are at most two syncs old, since a write just after a sync has begun waits for the
    /// next; a sync slower than the ones before it adds the difference.
    ///
    /// A thread of the store syncs. Without [threads](crate::Options::background_threads) the next
    /// write of any level syncs once the interval has passed; if no write follows, the close or
    /// [`Db::persist`](crate::Db::persist) syncs.
    Interval(Duration),
    /// Process death always; power loss only as far as the system has written data by itself.
    Buffered,
}

impl Durability {
    /// Whether a write must be on the medium before it is acknowledged.
    pub(crate) fn is_sync(self) -> bool {
        self == Durability::Sync
    }
}

impl Default for Durability {
    fn default() -> Durability {
        // At ten syncs per second the syncs cost a few per cent of one core, and each finds a few
        // megabytes to write.
        Durability::Interval(Duration::from_millis(100))
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Sync => f.write_str("sync"),
            Durability::Interval(interval) => write!(f, "interval:{}", interval.as_millis()),
            Durability::Buffered => f.write_str("buffered"),
        }
    }
}

impl FromStr for Durability {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes: `sync`, `buffered`, `interval:MS`.
    fn from_str(text: &str) -> Result<Durability, String> {
        match text {
            "sync" => Ok(Durability::Sync),
            "buffered" => Ok(Durability::Buffered),
            "interval" => Ok(Durability::default()),
            _ => text
                .strip_prefix("interval:")
                .and_then(|ms| ms.parse().ok())
                .map(|ms| Durability::Interval(Duration::from_millis(ms)))
                .ok_or_else(|| {
                    format!(
                        "{text:?} is not a durability; use sync, interval:MILLISECONDS or buffered"
                    )
                }),
        }
    }
}

/// How the blocks of tables are read.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableReads {
    /// In place, in the system's page cache. The first access to a block since its table was opened
    /// reads it by a system call and checks its checksum; later reads cost no call, no copy and
    /// none of the block cache's memory. The price: the system manages the memory; damage to a
    /// block after its check stays unnoticed until the table is opened again; and a page that the
    /// system dropped and cannot read again ends the process (`SIGBUS`), as does a file that
    /// another program truncates. Acknowledged writes survive that, as they survive every end of
    /// the process.
    ///
    /// This is the fastest while the data fits into memory. If a file cannot be mapped, its blocks
    /// go through the cache.
    #[default]
    Mapped,
    /// Through the [block cache](crate::Tuning::cache_bytes): memory stays within its size, each
    /// read from the medium checks its block, and each failure of the medium is an error. This is
    /// better for data many times larger than memory.
    Cached,
}

impl fmt::Display for TableReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableReads::Mapped => "mapped",
            TableReads::Cached => "cached",
        })
    }
}

impl FromStr for TableReads {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<TableReads, String> {
        match text {
            "mapped" => Ok(TableReads::Mapped),
            "cached" => Ok(TableReads::Cached),
            _ => Err(format!("{text:?} is not a read mode; use mapped or cached")),
        }
    }
}

/// How MemTables keep their records.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemTableForm {
    /// Each bucket adapts by itself: a hash table, until range scans have met new writes in one
    /// MemTable [often enough](crate::Tuning::scans_until_ordered); then ordered, until a
    /// MemTable without scans is flushed.
    #[default]
    Adaptive,
    /// A hash table, sorted for scans and flushes. The fastest for writes.
    Hash,
    /// A hash table for gets and a tree of the keys for range scans; each write updates both. The
    /// fastest for scans between writes.
    Ordered,
}

impl fmt::Display for MemTableForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemTableForm::Adaptive => "adaptive",
            MemTableForm::Hash => "hash",
            MemTableForm::Ordered => "ordered",
        })
    }
}

impl FromStr for MemTableForm {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<MemTableForm, String> {
        match text {
            "adaptive" => Ok(MemTableForm::Adaptive),
            "hash" => Ok(MemTableForm::Hash),
            "ordered" => Ok(MemTableForm::Ordered),
            _ => Err(format!(
                "{text:?} is not a MemTable form; use adaptive, hash or ordered"
            )),
        }
    }
}

/// How to compress the blocks of new tables. Tables of all kinds may coexist: each block records
/// how it is compressed, and existing tables stay as they are until they are compacted.
///
/// Reads of a compressed block decompress it into the [block cache](crate::Tuning::cache_bytes)
/// instead of reading it in place ([`TableReads::Mapped`]). A block that does not shrink by an
/// eighth is stored uncompressed, and a table of only such blocks is mapped as usual. [Larger
/// blocks](crate::Tuning::block_bytes), of 16 KiB, say, compress better.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By LZ4: little effort.
    Lz4,
    /// By Zstandard, at a level from 1 to 19: smaller, and slower with each level. Only with the
    /// feature `zstd`, whose build needs a C compiler.
    Zstd(i32),
}

/// The level of Zstandard if none is given: its own default.
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    /// What this program was built with; of Zstandard the usual level.
    pub fn available() -> impl Iterator<Item = Compression> {
        let all = [
            Compression::None,
            Compression::Lz4,
            Compression::Zstd(ZSTD_LEVEL),
        ];
        all.into_iter()
            .filter(|compression| compression.check().is_ok())
    }

    /// Why it cannot be had, if so.
    pub(super) fn check(self) -> Result<(), &'static str> {
        match self {
            Compression::Zstd(_) if !cfg!(feature = "zstd") => Err(
                "this program was built without the feature zstd of gabion; use none or lz4, or \
                 build it with zstd",
            ),
            Compression::Zstd(level) if !(1..=19).contains(&level) => {
                Err("the level of Zstandard must be between 1 and 19")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Lz4 => f.write_str("lz4"),
            Compression::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes: `none`, `lz4`, `zstd:LEVEL`; `zstd` is level 3.
    fn from_str(text: &str) -> Result<Compression, String> {
        let compression = match text {
            "none" => Some(Compression::None),
            "lz4" => Some(Compression::Lz4),
            "zstd" => Some(Compression::Zstd(ZSTD_LEVEL)),
            _ => text
                .strip_prefix("zstd:")
                .and_then(|level| level.parse().ok())
                .map(Compression::Zstd),
        };
        let compression = compression
            .ok_or_else(|| format!("{text:?} is not a compression; use none, lz4 or zstd:LEVEL"))?;
        compression
            .check()
            .map(|()| compression)
            .map_err(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;

    #[test]
    fn words_are_read_as_they_are_written() {
        for durability in [
            Durability::Sync,
            Durability::Buffered,
            Durability::default(),
        ] {
            assert_eq!(durability.to_string().parse(), Ok(durability));
        }
        assert!("soon".parse::<Durability>().is_err());
        for reads in [TableReads::Mapped, TableReads::Cached] {
            assert_eq!(reads.to_string().parse(), Ok(reads));
        }
        assert!("fast".parse::<TableReads>().is_err());
        for compression in Compression::available() {
            assert_eq!(compression.to_string().parse(), Ok(compression));
        }
        for bad in ["zip", "zstd:0", "zstd:20", "zstd:", "lz4:1"] {
            assert!(bad.parse::<Compression>().is_err(), "{bad}");
        }
        let zstd = "zstd".parse::<Compression>();
        assert_eq!(zstd.is_ok(), cfg!(feature = "zstd"));
        for form in ["adaptive", "hash", "ordered"] {
            assert_eq!(form.parse::<MemTableForm>().unwrap().to_string(), form);
        }
        assert!("skip".parse::<MemTableForm>().is_err());
        for engine in Engine::ALL {
            assert_eq!(engine.name().parse(), Ok(*engine));
        }
        assert!("rocks".parse::<Engine>().unwrap_err().contains("wip"));
    }
}
