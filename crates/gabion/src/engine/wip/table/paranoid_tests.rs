//! Tests of the checks that paranoid options ask for.

use std::sync::Arc;

use gabion_media::Purpose;

use super::tests::{FILE, Home, Way, assert_walks, numbered, options, rows};
use super::*;
use crate::cache::BlockCache;
use crate::error::Error;
use crate::names::table_name;
use crate::types::{Kind, SEQ_MAX, hash_key};

#[test]
fn a_mapped_table_that_is_checked_always_finds_what_changes_later() {
    let home = Home::new();
    home.write(&numbered(500, 100), &TableOptions::default());
    let cache = BlockCache::new(0).map_tables(true).check_always(true);
    let table = Arc::new(Table::open(&home.disk, FILE, 0, &Arc::new(cache)).unwrap());
    let key = b"0000000000000007";
    let get = || table.get(key, hash_key(key), SEQ_MAX);
    assert_walks(&mut table.cursor(), &rows(&numbered(500, 100)));
    assert!(get().unwrap().is_some());
    let file = std::fs::OpenOptions::new().write(true).open(home.path());
    std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), &[0xee], 5).unwrap();
    assert!(matches!(get(), Err(Error::Corruption { offset: 0, .. })));
    let mut cursor = table.cursor();
    assert!(matches!(cursor.seek(key), Err(Error::Corruption { .. })));
    assert!(!cursor.valid());
}

#[test]
fn entries_out_of_order_are_refused_where_that_is_checked() {
    let home = Home::new();
    let options = TableOptions {
        checks_order: true,
        ..options(64, 10)
    };
    let appender = home.disk.create_append(&table_name(FILE), Purpose::Flush);
    let mut writer = TableWriter::new(appender.unwrap(), FILE, &options);
    let mut add = |key: &[u8], seq| writer.add(key, seq, Kind::Put, &[7; 40]);
    for (key, seq) in [(b"b", 7), (b"b", 5), (b"c", 9), (b"d", 1)] {
        add(key, seq).unwrap();
    }
    for (key, seq) in [(&b"c"[..], 1), (b"d", 1), (b"d", 2), (b"", 0)] {
        assert!(matches!(add(key, seq), Err(Error::Corruption { .. })));
    }
    add(b"d", 0).unwrap();
    add(b"da", 9).unwrap();
    writer.finish().unwrap();
    home.open(Way::Mapped).unwrap().verify().unwrap();
}
