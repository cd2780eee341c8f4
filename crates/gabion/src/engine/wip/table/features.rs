//! What a table may have beyond plain entries: a word of its footer.
//!
//! | bit | the table has |
//! |---|---|
//! | 0 | range deletes |
//! | 1 | compressed blocks |
//! | 2 | one sequence number for all entries, which stands in the manifest |
//! | 3 | entries that expire |
//! | 4 | merges |
//!
//! What a table does not have takes no space in it. A table with a bit that the program does not
//! know is refused: parts of it would be read wrong, or not at all.

/// Some of the features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableFeatures(u32);

impl TableFeatures {
    /// None of them.
    pub(super) const NONE: TableFeatures = TableFeatures(0);
    /// Range deletes.
    pub(super) const RANGE_DELETES: TableFeatures = TableFeatures(1);
    /// Compressed blocks.
    pub(super) const PACKED_BLOCKS: TableFeatures = TableFeatures(1 << 1);
    /// All entries have the one sequence number that the manifest gives the table.
    pub(super) const NUMBERED_BY_MANIFEST: TableFeatures = TableFeatures(1 << 2);
    /// Entries that expire.
    pub(super) const EXPIRIES: TableFeatures = TableFeatures(1 << 3);
    /// Merges.
    pub(super) const MERGES: TableFeatures = TableFeatures(1 << 4);

    const KNOWN: u32 = (1 << 5) - 1;

    /// The features of these bits; an error with the bits that the program does not know.
    pub(super) fn of(bits: u32) -> Result<TableFeatures, u32> {
        match bits & !TableFeatures::KNOWN {
            0 => Ok(TableFeatures(bits)),
            unknown => Err(unknown),
        }
    }

    /// The bits.
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// These and, if it is there, another one.
    pub(super) fn with_if(self, is_there: bool, feature: TableFeatures) -> TableFeatures {
        TableFeatures(self.0 | if is_there { feature.0 } else { 0 })
    }

    /// Whether a feature is among them.
    pub(super) fn has(self, feature: TableFeatures) -> bool {
        self.0 & feature.0 != 0
    }
}
