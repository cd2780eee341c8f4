//! Removes the elements of deleted collections.
//!
//! A command that deletes or replaces a large collection notes its number in `garbage`, whatever
//! its size. Nobody reads those elements any more, so they are removed here at leisure, one range
//! for each collection. A crash in between leaves the note, and the range is deleted again.

use gabion::WriteBatch;

use super::Store;
use super::keys::after_prefix;
use crate::fault::Result;

/// Collections that one batch removes.
const AT_ONCE: usize = 256;

/// Removes some dead collections; returns how many.
///
/// # Errors
/// As [`gabion::Db::write`].
pub(crate) fn remove_garbage(store: &Store) -> Result<usize> {
    let mut batch = WriteBatch::new();
    let mut count = 0;
    for pair in store.garbage.iter().take(AT_ONCE) {
        let (prefix, _) = pair?;
        match after_prefix(&prefix) {
            Some(end) => batch.delete_range(&store.elements, &prefix[..]..&end[..])?,
            None => batch.delete_range(&store.elements, &prefix[..]..)?,
        }
        batch.delete(&store.garbage, &prefix)?;
        count += 1;
    }
    store.db.write(batch)?;
    Ok(count)
}
