//! Tests of compressed tables, and of the bytes of tables.

use std::cmp::Reverse;
use std::sync::Arc;

use gabion_media::Purpose;

use super::layout::FOOTER_BYTES;
use super::tests::{FILE, Home, Twin, assert_walks, compressed, numbered, rows};
use super::*;
use crate::cache::BlockCache;
use crate::names::table_name;
use crate::types::{Kind, hash_key};

/// A table without any features.
const GOLDEN_PLAIN: &str = "\
    02000400010002000100000000000000361170696c6c0000080009617273746f6e65016f77646f776e000000\
    00d650c501000010000000000800080008000000000800010000000000000000008000008000080000008000\
    00000000208000000000000020008000000100000000000010000000005496fc38010000000600000070696c\
    6c6f77310000000000051259fb020000000000000000000000000000000c0000000000000009000000000000\
    00010000000000000002000000000000000a000000000000000600000070696c6c61720600000070696c6c6f\
    7705000000018233415a0000000023d04587476162696f6e5462010000000000000002000000000000003100\
    000000000000480000000000000018000000000000005d00000000000000000000009a5d8825";
/// A table with a block that is compressed by LZ4, put together by hand.
const GOLDEN_PACKED: &str = "\
    10010000ff1402000400010002000100000000000000361170696c6c00007b0009617273746f6e652006005f\
    3f016f777b006050746f6e652001000000ce4643220000100000000008000800080000000008000100000000\
    0000000000800000800008000000800000000000208000000000000020008000000100000000000010000000\
    00f1476176010000000600000070696c6c6f774100000000000dfd4dbe020000000000000000000000000000\
    000c00000000000000f000000000000000010000000000000002000000000000000a00000000000000060000\
    0070696c6c61720600000070696c6c6f7705000000018233415a010000000000000000000000000000000000\
    0000c55668bc476162696f6e5462010000000200000002000000000000004100000000000000480000000000\
    000018000000000000006d00000000000000000000009250bb76";

/// What does not compress is stored and mapped as if nobody had tried.
#[test]
fn blocks_that_do_not_compress_are_stored_and_read_as_they_are() {
    let noise = |number: u64| {
        let words = (0..12).map(|at| hash_key(&(number * 100 + at).to_le_bytes()).to_le_bytes());
        words.collect::<Vec<_>>().concat()
    };
    let entry = |number: u64| {
        let key = noise(number)[..16].to_vec();
        ((key, Reverse(1)), (Kind::Put, noise(number + 1)))
    };
    let mut twin: Twin = (0..500).map(entry).collect();
    for compression in Compression::available() {
        let home = Home::new();
        home.write(&twin, &TableOptions::default());
        let plain = home.disk.read_all(&table_name(FILE)).unwrap();
        home.write(&twin, &compressed(4096, compression));
        assert!(plain == home.disk.read_all(&table_name(FILE)).unwrap());
    }
    // Behind them some that do: now the table has blocks of both kinds.
    twin.extend((0..500u64).map(|number| {
        let key = [&[0xff; 16][..], &number.swap_bytes().to_le_bytes()].concat();
        ((key, Reverse(1)), (Kind::Put, vec![7; 100]))
    }));
    for compression in Compression::available().filter(|one| *one != Compression::None) {
        let home = Home::new();
        for table in home.tables(&twin, &compressed(4096, compression)) {
            let packed = table.properties.packed;
            assert!((1..table.index.len() as u64).contains(&(packed.lz4 + packed.zstd)));
            assert_walks(&mut table.cursor(), &rows(&twin));
            assert_walks(&mut table.scan_cursor(), &rows(&twin));
            table.verify().unwrap();
        }
    }
}

#[test]
fn a_compressed_table_is_smaller_and_goes_through_the_cache() {
    let twin = numbered(5000, 100);
    let home = Home::new();
    let plain = home.write(&twin, &TableOptions::default());
    for compression in Compression::available().filter(|one| *one != Compression::None) {
        let meta = home.write(&twin, &compressed(4096, compression));
        assert!(
            meta.file_bytes < plain.file_bytes / 2,
            "{}",
            meta.file_bytes
        );
        let cache = Arc::new(BlockCache::new(16 << 20).map_tables(true));
        let table = Table::open(&home.disk, FILE, 0, &cache).unwrap();
        let key = b"0000000000000007";
        for hits in 0..3 {
            assert!(table.get(key, hash_key(key), 8).unwrap().is_some());
            assert_eq!((cache.stats().hits, cache.stats().misses), (hits, 1));
        }
        // What is held is the block, not what lies on the medium.
        assert!(cache.stats().bytes > 3000);
    }
}

/// A table as an ingest writes it.
const GOLDEN_INGESTED: &str = "\
    02000400010002000000000000000000361170696c6c0000080001617273746f6e65016f77646f776e000000\
    0079eb2725000010000000000800080008000000000800010000000000000000008000008000080000008000\
    00000000208000000000000020008000000100000000000010000000005496fc38010000000600000070696c\
    6c6f77310000000000051259fb020000000000000000000000000000000c0000000000000009000000000000\
    00000000000000000000000000000000000a000000000000000600000070696c6c61720600000070696c6c6f\
    7705000000018233415a00000000b1a78d74476162696f6e5462010000000400000002000000000000003100\
    000000000000480000000000000018000000000000005d00000000000000000000008a292c55";

/// Table number 2 with these bytes, to which the manifest gives the sequence number `seq`.
fn golden(hex: &str, seq: u64) -> (Home, Arc<Table>) {
    let bytes: Vec<u8> = (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let home = Home::new();
    home.disk
        .replace(&table_name(2), &bytes, Purpose::Flush)
        .unwrap();
    let cache = Arc::new(BlockCache::new(0).map_tables(true));
    let table = Arc::new(Table::open(&home.disk, 2, seq, &cache).unwrap());
    table.verify().unwrap();
    (home, table)
}

/// Tables without compression are read as ever, and written as ever.
#[test]
fn golden_bytes_of_a_plain_table_are_read_and_written() {
    let mut twin = Twin::new();
    for (key, seq, value) in [("pillar", 2, "stone"), ("pillow", 1, "down")] {
        twin.insert((key.into(), Reverse(seq)), (Kind::Put, value.into()));
    }
    let (home, table) = golden(GOLDEN_PLAIN, 0);
    assert_walks(&mut table.cursor(), &rows(&twin));
    let golden = home.disk.read_all(&table_name(2)).unwrap();
    home.write_as(2, &twin, &TableOptions::default());
    assert_eq!(home.disk.read_all(&table_name(2)).unwrap(), golden);
}

/// Another version of the compressor may make other bytes, but all tables of this version are to be
/// read. Its blocks are one run of literals, then matches.
#[test]
fn golden_bytes_of_a_packed_table_are_read() {
    let mut twin = Twin::new();
    for (key, seq) in [("pillar", 2), ("pillow", 1)] {
        let value = b"stone ".repeat(20);
        twin.insert((key.into(), Reverse(seq)), (Kind::Put, value));
    }
    let (_home, table) = golden(GOLDEN_PACKED, 0);
    let packed = table.properties.packed;
    assert_eq!((packed.lz4, packed.zstd), (1, 0));
    assert_walks(&mut table.cursor(), &rows(&twin));
}

/// As an ingest writes it: its entries say 0, and are read with the number that the manifest has.
#[test]
fn golden_bytes_of_an_ingested_table_are_read_and_written() {
    let numbered = |seq| -> Twin {
        let pairs = [("pillar", "stone"), ("pillow", "down")];
        let entry =
            |(key, value): (&str, &str)| ((key.into(), Reverse(seq)), (Kind::Put, value.into()));
        pairs.into_iter().map(entry).collect()
    };
    let (home, table) = golden(GOLDEN_INGESTED, 7);
    assert_walks(&mut table.cursor(), &rows(&numbered(7)));
    assert_walks(&mut table.scan_cursor(), &rows(&numbered(7)));
    assert!(
        table
            .get(b"pillow", hash_key(b"pillow"), 6)
            .unwrap()
            .is_none()
    );
    let golden = home.disk.read_all(&table_name(2)).unwrap();
    assert_eq!(golden[golden.len() - FOOTER_BYTES + 12], 4);
    home.write_as(2, &numbered(0), &TableOptions::default());
    assert_eq!(home.disk.read_all(&table_name(2)).unwrap(), golden);
}
