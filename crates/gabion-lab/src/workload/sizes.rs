//! Sizes of records by name, as papers and field studies have them.

/// Sizes of the keys and values of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The name on the command line.
    pub name: &'static str,
    /// Where it comes from.
    pub about: &'static str,
    /// Bytes of every key.
    pub key_bytes: usize,
    /// Bytes of every value.
    pub value_bytes: usize,
}

const fn size(
    name: &'static str,
    about: &'static str,
    (key_bytes, value_bytes): (usize, usize),
) -> Size {
    Size {
        name,
        about,
        key_bytes,
        value_bytes,
    }
}

/// All named sizes, in the order in which they are listed. Those of Facebook are the means of
/// Atikoglu and others (2012) and Cao and others (2020), as the FlexSpace paper uses them.
pub static SIZES: &[Size] = &[
    size("16+100", "db_bench's own, and the WipDB paper's", (16, 100)),
    size("udb", "social graph at Facebook", (27, 127)),
    size("zippydb", "metadata store at Facebook", (48, 43)),
    size("sys", "system metadata in memcached at Facebook", (28, 396)),
    size(
        "8+8",
        "small fixed items of persistent-memory indexes",
        (8, 8),
    ),
    size("30", "small items of 15 and 15 bytes", (15, 15)),
    size("16+64KiB", "large values", (16, 64 << 10)),
];

impl Size {
    /// The size of that name.
    pub fn named(name: &str) -> Option<&'static Size> {
        SIZES.iter().find(|size| size.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::keys::KeyShape;

    #[test]
    fn every_size_can_number_a_billion_records() {
        for size in SIZES {
            assert!(
                KeyShape::new(size.key_bytes, 1_000_000_000).is_ok(),
                "{size:?}"
            );
            assert_eq!(Size::named(size.name), Some(size));
        }
    }
}
