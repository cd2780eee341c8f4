//! The names of the files of a store: numbers of 16 hexadecimal digits, so that names sort as the
//! numbers do, and a suffix or prefix that says what the file is.

/// Name of the file that names the manifest in force.
pub(crate) const CURRENT: &str = "CURRENT";

/// Name of the file by which a store of SCMKV is known.
pub(crate) const SCMKV_ROOT: &str = "SCMKV";

/// Name of the file by which a store of SPTree is known.
pub(crate) const SPTREE_ROOT: &str = "SPTREE";

/// Name of the file with the consumers of a store that keeps a log, if it has any.
pub(crate) const CONSUMERS: &str = "CONSUMERS";

/// Name of the lock file.
pub(crate) const LOCK: &str = "LOCK";

/// Name of the file that marks a directory as holding a part of a store only.
pub(crate) const INCOMPLETE: &str = "INCOMPLETE";

const LOG_SUFFIX: &str = ".log";
const TABLE_SUFFIX: &str = ".tbl";
const MANIFEST_PREFIX: &str = "manifest-";

/// Name of table `number`.
pub(crate) fn table_name(number: u64) -> String {
    format!("{number:016x}{TABLE_SUFFIX}")
}

/// Name of log segment `number`.
pub(crate) fn log_name(number: u64) -> String {
    format!("{number:016x}{LOG_SUFFIX}")
}

/// Name of manifest `number`.
pub(crate) fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:016x}")
}

/// The number in a name that [`table_name`] made; `None` for any other name.
pub(crate) fn parse_table_name(name: &str) -> Option<u64> {
    parse_number(name.strip_suffix(TABLE_SUFFIX)?)
}

/// The number in a name that [`log_name`] made; `None` for any other name.
pub(crate) fn parse_log_name(name: &str) -> Option<u64> {
    parse_number(name.strip_suffix(LOG_SUFFIX)?)
}

/// The number in a name that [`manifest_name`] made; `None` for any other name.
pub(crate) fn parse_manifest_name(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix(MANIFEST_PREFIX)?)
}

/// Reads exactly what `{:016x}` writes: no sign, no upper case, no other length.
pub(crate) fn parse_number(digits: &str) -> Option<u64> {
    let canonical = digits.len() == 16
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !canonical {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// Whether a file of that name is one of WipDB, beside CURRENT and the lock.
pub(crate) fn is_file_of_wip(name: &str) -> bool {
    let numbered = [parse_table_name, parse_log_name, parse_manifest_name];
    name == CONSUMERS || numbered.iter().any(|parse| parse(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_their_numbers_back() {
        for number in [0, 1, 0xabc, 1 << 40, u64::MAX] {
            assert_eq!(parse_table_name(&table_name(number)), Some(number));
            assert_eq!(parse_log_name(&log_name(number)), Some(number));
            assert_eq!(parse_manifest_name(&manifest_name(number)), Some(number));
        }
        assert_eq!(table_name(0x1f), "000000000000001f.tbl");
        assert_eq!(log_name(2), "0000000000000002.log");
        assert_eq!(manifest_name(3), "manifest-0000000000000003");
    }

    #[test]
    fn foreign_names_are_not_taken_for_ours() {
        for name in [
            "",
            ".tbl",
            "1.tbl",
            "00000000000000001.tbl",
            "000000000000000A.tbl",
            "+00000000000000a.tbl",
            "000000000000000g.tbl",
            "000000000000000a.tbl.tmp",
            "é00000000000000.tbl",
        ] {
            assert_eq!(parse_table_name(name), None, "{name}");
        }
        assert_eq!(parse_log_name("0000000000000001.tbl"), None);
        assert_eq!(parse_manifest_name("manifest-1"), None);
    }
}
