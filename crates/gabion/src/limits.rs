//! How long keys, values, batches and names may be.

use crate::expiry::MOMENT_BYTES;
use crate::{Error, Result};

/// The longest key of any engine, in bytes.
pub(crate) const KEY_BYTES_MAX: u64 = (64 << 10) - 1;

/// The longest value of any engine, in bytes. A value and its key fit into one frame of the log and
/// one block of a table, both of which state lengths in 31 bits.
pub(crate) const VALUE_BYTES_MAX: u64 = 1 << 30;

/// The most that is stored of a value, with the moment at which it expires.
pub(crate) const STORED_BYTES_MAX: u64 = VALUE_BYTES_MAX + MOMENT_BYTES as u64;

/// The longest value of SCMKV, in bytes: with the longest key it fits into a page.
pub(crate) const SCMKV_VALUE_BYTES_MAX: u64 = 15 << 17;

/// The longest value of SPTree, in bytes: a scan copies whole values, a few ahead.
pub(crate) const SPTREE_VALUE_BYTES_MAX: u64 = 16 << 20;

/// The largest batch, in bytes of keys, values and their headers: it is one record of the log.
pub(crate) const BATCH_BYTES_MAX: u64 = (1 << 30) + (1 << 20);

/// The longest name of a keyspace, in bytes.
pub(crate) const NAME_BYTES_MAX: u64 = 255;

/// Checks a key and a value against the limits of any engine.
#[inline]
pub(crate) fn check_limits(key: &[u8], value: &[u8]) -> Result<()> {
    let (key, value) = (key.len() as u64, value.len() as u64);
    if key > KEY_BYTES_MAX {
        return Err(Error::Limit {
            what: "key",
            size: key,
            limit: KEY_BYTES_MAX,
        });
    }
    if value > VALUE_BYTES_MAX {
        return Err(Error::Limit {
            what: "value",
            size: value,
            limit: VALUE_BYTES_MAX,
        });
    }
    Ok(())
}
