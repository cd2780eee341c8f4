//! Reads what can be read of a damaged table.
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::sync::Arc;

use gabion_media::Disk;

use super::cursor::TableCursor;
use super::reader::Table;
use crate::cache::BlockCache;
use crate::{Error, Result};

impl Table {
    /// Calls `visit` with each entry of table number `file` that lies in a block that passes its
    /// checks, in order, and `lost` with what is wrong with each part that does not, and whether
    /// that is a block. Blocks are found by the footer and the index: an error when one of these
    /// two is damaged. Filter and properties are not needed.
    pub(crate) fn salvage(
        disk: &Disk,
        file: u64,
        lost: &mut dyn FnMut(Error, bool),
        visit: &mut dyn FnMut(&TableCursor) -> Result<()>,
    ) -> Result<()> {
        let cache = Arc::new(BlockCache::new(0));
        let table = Arc::new(Table::open_unless(disk, file, 0, &cache, &mut |error| {
            lost(error, false);
            Ok(())
        })?);
        // Reads block by block: a medium that refuses one may give the next.
        let mut cursor = table.cursor();
        for block in 0..table.index.len() {
            match cursor.enter_block(block) {
                Err(error) => lost(error, true),
                Ok(()) => loop {
                    visit(&cursor)?;
                    if !cursor.next_in_block() {
                        break;
                    }
                },
            }
        }
        Ok(())
    }
}
