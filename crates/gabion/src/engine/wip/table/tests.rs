//! Tests of whole tables against a sorted vector, the naive twin.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gabion_media::{Disk, Purpose};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::cache::BlockCache;
use crate::error::{Error, Result};
use crate::names::table_name;
use crate::types::{Kind, SEQ_MAX, hash_key};

pub(super) const FILE: u64 = 42;

pub(super) type Twin = BTreeMap<(Vec<u8>, Reverse<Seq>), (Kind, Vec<u8>)>;

/// How blocks come into memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Mapped,
    /// Through a cache of so many bytes.
    Cached(u64),
}

pub(super) const WAYS: [Way; 2] = [Way::Mapped, Way::Cached(1 << 20)];

pub(super) struct Home {
    dir: TempDir,
    pub(super) disk: Disk,
}

impl Home {
    pub(super) fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::system(dir.path()).unwrap();
        Home { dir, disk }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join(table_name(FILE))
    }

    pub(super) fn write(&self, twin: &Twin, options: &TableOptions) -> TableMeta {
        self.write_as(FILE, twin, options)
    }

    pub(super) fn write_as(&self, file: u64, twin: &Twin, options: &TableOptions) -> TableMeta {
        let name = table_name(file);
        if self.disk.exists(&name).unwrap() {
            self.disk.remove(&name).unwrap();
        }
        let appender = self.disk.create_append(&name, Purpose::Flush).unwrap();
        let mut writer = TableWriter::new(appender, file, options);
        for ((key, Reverse(seq)), (kind, value)) in twin {
            writer.add(key, *seq, *kind, value).unwrap();
        }
        assert_eq!(writer.entries(), twin.len() as u64);
        writer.finish().unwrap()
    }

    pub(super) fn open(&self, way: Way) -> Result<Arc<Table>> {
        let cache = match way {
            Way::Mapped => BlockCache::new(0).map_tables(true),
            Way::Cached(bytes) => BlockCache::new(bytes),
        };
        Table::open(&self.disk, FILE, 0, &Arc::new(cache)).map(Arc::new)
    }

    fn table(&self, twin: &Twin, options: &TableOptions) -> Arc<Table> {
        let [mapped, _] = self.tables(twin, options);
        mapped
    }

    /// The table, opened in both ways.
    pub(super) fn tables(&self, twin: &Twin, options: &TableOptions) -> [Arc<Table>; 2] {
        let meta = self.write(twin, options);
        WAYS.map(|way| {
            let table = self.open(way).unwrap();
            assert_eq!(table.meta(), &meta);
            table
        })
    }
}

pub(super) fn options(block_bytes: usize, filter_bits_per_key: u32) -> TableOptions {
    TableOptions {
        block_bytes,
        filter_bits_per_key,
        ..TableOptions::default()
    }
}

pub(super) fn compressed(block_bytes: usize, compression: Compression) -> TableOptions {
    TableOptions {
        compression,
        ..options(block_bytes, 10)
    }
}

pub(super) fn compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(Compression::available().collect::<Vec<_>>())
}

/// `count` keys of 16 bytes in the order of their numbers, one version each.
pub(super) fn numbered(count: u64, value_len: usize) -> Twin {
    let entry = |number: u64| {
        let key = format!("{number:016x}").into_bytes();
        let value = hash_key(&key).to_le_bytes().repeat(value_len.div_ceil(8));
        (
            (key, Reverse(number + 1)),
            (Kind::Put, value[..value_len].to_vec()),
        )
    };
    (0..count).map(entry).collect()
}

pub(super) fn to_usize(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

pub(super) type Row = (Vec<u8>, Seq, Kind, Vec<u8>);

pub(super) fn row(cursor: &TableCursor) -> Option<Row> {
    cursor.valid().then(|| {
        assert_eq!(&*cursor.value(), cursor.value_bytes());
        let value = cursor.value_bytes().to_vec();
        (cursor.key().to_vec(), cursor.seq(), cursor.kind(), value)
    })
}

pub(super) fn rows(twin: &Twin) -> Vec<Row> {
    twin.iter()
        .map(|((key, Reverse(seq)), (kind, value))| (key.clone(), *seq, *kind, value.clone()))
        .collect()
}

/// Compares every entry in both directions.
pub(super) fn assert_walks(cursor: &mut TableCursor, rows: &[Row]) {
    cursor.seek_first().unwrap();
    for expected in rows {
        assert_eq!(row(cursor).as_ref(), Some(expected));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.next().unwrap();
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    for expected in rows.iter().rev() {
        assert_eq!(row(cursor).as_ref(), Some(expected));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

fn assert_gets(table: &Table, twin: &Twin, key: &[u8], seq: Seq) {
    let hash = hash_key(key);
    let found = table.get(key, hash, seq).unwrap();
    let expected = twin
        .range((key.to_vec(), Reverse(seq))..)
        .next()
        .filter(|((found, _), _)| found == key)
        .map(|((_, Reverse(seq)), (kind, value))| (*seq, *kind, value.as_slice()));
    let found = found
        .as_ref()
        .map(|entry| (entry.seq, entry.kind, &*entry.value));
    assert_eq!(found, expected);
    assert!(expected.is_none() || table.may_contain(hash));
}

#[derive(Clone, Debug)]
enum Step {
    First,
    Last,
    Seek(Vec<u8>),
    SeekBefore(Vec<u8>),
    Next(usize),
    Prev(usize),
}

/// Keys that meet, share prefixes, are empty, or differ in length.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(0u8..3, 0..5),
        2 => prop::collection::vec(any::<u8>(), 8),
        1 => prop::collection::vec(0u8..2, 12..15),
        1 => (0u8..4, 100usize..400).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn twin() -> impl Strategy<Value = Twin> {
    let seq = prop_oneof![1u64..20, 1..=SEQ_MAX];
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (any::<u8>(), prop_oneof![20usize..300, 0usize..3000]).prop_map(|(b, n)| vec![b; n]),
    ];
    let entry = (key(), seq, any::<bool>(), value).prop_map(|(key, seq, put, value)| {
        let kind = if put {
            (Kind::Put, value)
        } else {
            (Kind::Delete, Vec::new())
        };
        ((key, Reverse(seq)), kind)
    });
    prop::collection::vec(entry, 1..120).prop_map(|entries| entries.into_iter().collect())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::First),
        1 => Just(Step::Last),
        3 => key().prop_map(Step::Seek),
        3 => key().prop_map(Step::SeekBefore),
        3 => (1usize..30).prop_map(Step::Next),
        3 => (1usize..30).prop_map(Step::Prev),
    ]
}

/// Takes a step on the twin: positions are indices, `None` is "not valid".
fn walk(rows: &[Row], at: Option<usize>, step: &Step) -> Option<usize> {
    let inside = |at: usize| (at < rows.len()).then_some(at);
    match step {
        Step::First => Some(0),
        Step::Last => Some(rows.len() - 1),
        Step::Seek(key) => inside(rows.partition_point(|row| row.0 < *key)),
        Step::SeekBefore(key) => rows.partition_point(|row| row.0 < *key).checked_sub(1),
        Step::Next(count) => at.and_then(|at| inside(at + count)),
        Step::Prev(count) => at.and_then(|at| at.checked_sub(*count)),
    }
}

fn take(cursor: &mut TableCursor, step: &Step) -> Result<()> {
    match step {
        Step::First => cursor.seek_first(),
        Step::Last => cursor.seek_last(),
        Step::Seek(key) => cursor.seek(key),
        Step::SeekBefore(key) => cursor.seek_before(key),
        Step::Next(count) => (0..*count).try_for_each(|_| cursor.next()),
        Step::Prev(count) => (0..*count).try_for_each(|_| cursor.prev()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn cursors_walk_as_the_twin_does(
        twin in twin(),
        steps in prop::collection::vec(step(), 1..60),
        block_bytes in prop_oneof![Just(64usize), Just(512), Just(4096), Just(1 << 20)],
        way in prop_oneof![Just(Way::Mapped), Just(Way::Cached(0)), Just(Way::Cached(1 << 20))],
        compression in compression(),
    ) {
        let home = Home::new();
        home.write(&twin, &compressed(block_bytes, compression));
        let table = home.open(way).unwrap();
        let rows = rows(&twin);
        for mut cursor in [table.cursor(), table.scan_cursor()] {
            prop_assert!(!cursor.valid());
            let mut at = None;
            for step in &steps {
                take(&mut cursor, step).unwrap();
                at = walk(&rows, at, step);
                prop_assert_eq!(row(&cursor), at.map(|at| rows[at].clone()));
            }
            assert_walks(&mut cursor, &rows);
        }
        table.verify().unwrap();
    }

    #[test]
    fn gets_answer_as_the_twin_does(
        twin in twin(),
        absent in prop::collection::vec((key(), 0..=SEQ_MAX), 20),
        block_bytes in prop_oneof![Just(64usize), Just(512), Just(4096)],
        bits in prop_oneof![Just(0u32), Just(10)],
        compression in compression(),
    ) {
        let home = Home::new();
        let options = TableOptions { compression, ..options(block_bytes, bits) };
        for table in home.tables(&twin, &options) {
            for (key, Reverse(seq)) in twin.keys() {
                for seq in [seq - 1, *seq, (seq + 1).min(SEQ_MAX), SEQ_MAX, 0] {
                    assert_gets(&table, &twin, key, seq);
                }
            }
            for (key, seq) in &absent {
                assert_gets(&table, &twin, key, *seq);
            }
        }
    }

    /// A stretch lends what comes before each rival, and the rest when there is none: of each key
    /// the newest version in the block, unless that is a tombstone.
    #[test]
    fn stretches_end_before_their_rivals(
        twin in twin(),
        mut rivals in prop::collection::vec((key(), (0..=SEQ_MAX).prop_map(Reverse)), 0..12),
        block_bytes in prop_oneof![Just(64usize), Just(512), Just(4096)],
    ) {
        let home = Home::new();
        rivals.sort();
        for table in home.tables(&twin, &options(block_bytes, 10)) {
            let (mut cursor, mut walker) = (table.cursor(), table.cursor());
            cursor.seek_first().unwrap();
            walker.seek_first().unwrap();
            while cursor.valid() {
                let block = cursor.block_number();
                let mut newest: BTreeMap<Vec<u8>, (Seq, Kind, Vec<u8>)> = BTreeMap::new();
                while walker.valid() && walker.block_number() == block {
                    let (key, seq, kind, value) = row(&walker).unwrap();
                    newest.entry(key).or_insert((seq, kind, value));
                    walker.next().unwrap();
                }
                let mut stretch = cursor.stretch([None, None]).unwrap();
                let (mut taken, mut key) = (Vec::new(), Vec::new());
                for rival in rivals.iter().map(Some).chain([None]) {
                    stretch.extend(rival.map(|(key, _)| key.as_slice()));
                    loop {
                        while stretch.next(SEQ_MAX, &mut key) {
                            taken.push((key.clone(), stretch.value()));
                        }
                        if !rival.is_some_and(|(key, seq)| stretch.extend_exactly(key, seq.0)) {
                            break;
                        }
                    }
                    let is_before = |key: &Vec<u8>, seq: Seq| {
                        rival.is_none_or(|rival| (key, Reverse(seq)) <= (&rival.0, rival.1))
                    };
                    let before = newest.iter().filter(|(key, entry)| is_before(key, entry.0));
                    let expected: Vec<_> = before
                        .filter(|(_, (_, kind, _))| *kind == Kind::Put)
                        .map(|(key, (.., value))| (key.clone(), Slice::new(value)))
                        .collect();
                    prop_assert_eq!(&taken, &expected);
                }
                cursor.leave(&stretch).unwrap();
            }
            prop_assert!(!walker.valid());
        }
    }

    #[test]
    fn cut_keys_ascend_inside_the_range(
        twin in twin(),
        lower in key(),
        upper in prop::option::of(key()),
        parts in 1usize..10,
    ) {
        let home = Home::new();
        let table = home.table(&twin, &options(128, 10));
        let keys = table.cut_keys(&lower, upper.as_deref(), parts);
        prop_assert!(keys.len() < parts);
        let bounds: Vec<&[u8]> = std::iter::once(lower.as_slice())
            .chain(keys.iter().map(Vec::as_slice))
            .chain(upper.as_deref())
            .collect();
        if upper.as_ref().is_none_or(|upper| lower < *upper) {
            prop_assert!(bounds.is_sorted_by(|a, b| a < b));
            let whole = table.bytes_between(&lower, upper.as_deref());
            let ends = bounds[1..].iter().copied().map(Some).chain(upper.is_none().then_some(None));
            let pieces: u64 = bounds.iter().zip(ends).map(|(a, b)| table.bytes_between(a, b)).sum();
            prop_assert_eq!(whole, pieces);
        } else {
            prop_assert!(keys.is_empty());
        }
    }
}

#[test]
fn properties_tell_what_is_inside() {
    let mut twin = numbered(1000, 100);
    twin.insert((b"zz".to_vec(), Reverse(5000)), (Kind::Delete, vec![]));
    let home = Home::new();
    let table = home.table(&twin, &TableOptions::default());
    let meta = table.meta();
    assert_eq!((meta.file, meta.entries, meta.tombstones), (FILE, 1001, 1));
    assert_eq!(meta.user_bytes, 1000 * 116 + 2);
    assert_eq!(
        meta.file_bytes,
        home.disk.len_of(&table_name(FILE)).unwrap()
    );
    assert_eq!((meta.min_seq, meta.max_seq), (1, 5000));
    assert_eq!(meta.smallest, b"0000000000000000");
    assert_eq!(meta.largest, b"zz");
    assert!(meta.sketch.estimate().abs_diff(1001) < 100);
    table.verify().unwrap();
}

#[test]
fn an_entry_costs_few_bytes_beyond_key_and_value() {
    let mut twin = Twin::new();
    for number in 0..20_000u64 {
        let key = [hash_key(&number.to_le_bytes()), number]
            .map(u64::to_le_bytes)
            .concat();
        twin.insert((key, Reverse(number)), (Kind::Put, vec![7; 100]));
    }
    let home = Home::new();
    let table = home.table(&twin, &TableOptions::default());
    let bytes = table.bytes_between(b"", None);
    assert!(bytes < 20_000 * (116 + 8), "{bytes}");
}

#[test]
fn extreme_keys_and_values_come_back() {
    let longest = vec![7u8; (64 << 10) - 1];
    let nearly = [&longest[..(64 << 10) - 2], &[8]].concat();
    let large: Vec<u8> = (0..5u32 << 20)
        .map(|n| n.to_le_bytes()[n as usize % 3])
        .collect();
    let mut twin = Twin::new();
    let mut put = |key: &[u8], seq, value: &[u8]| {
        twin.insert((key.to_vec(), Reverse(seq)), (Kind::Put, value.to_vec()));
    };
    put(b"", 1, b"");
    put(b"", SEQ_MAX, &large);
    put(b"\0", 0, b"x");
    put(&longest, 3, b"");
    put(&longest, 2, &large);
    put(&nearly, 9, b"y");
    put(&[255; 40], 10, &large[..40_000]);
    for seq in 100..3000 {
        put(&longest, seq, b"");
    }
    let home = Home::new();
    let rows = rows(&twin);
    let tables = Compression::available()
        .flat_map(|compression| home.tables(&twin, &compressed(4096, compression)));
    for table in tables {
        assert_walks(&mut table.cursor(), &rows);
        assert_walks(&mut table.scan_cursor(), &rows);
        for (key, seq, ..) in &rows {
            assert_gets(&table, &twin, key, *seq);
        }
        table.verify().unwrap();
    }
}

#[test]
fn many_versions_of_a_key_are_found_across_blocks() {
    let mut twin = numbered(50, 10);
    for seq in 1..5000u64 {
        let key = b"0000000000000014x".to_vec();
        twin.insert(
            (key, Reverse(seq * 3)),
            (Kind::Put, seq.to_le_bytes().to_vec()),
        );
    }
    let home = Home::new();
    let table = home.table(&twin, &TableOptions::default());
    for seq in (0..15_010).step_by(7).chain([SEQ_MAX]) {
        assert_gets(&table, &twin, b"0000000000000014x", seq);
    }
    let rows = rows(&twin);
    let first = rows.iter().position(|row| row.0.len() == 17).unwrap();
    let mut cursor = table.cursor();
    cursor.seek(b"0000000000000014x").unwrap();
    assert_eq!(row(&cursor).as_ref(), Some(&rows[first]));
    cursor.seek_before(b"0000000000000014x").unwrap();
    assert_eq!(row(&cursor).as_ref(), Some(&rows[first - 1]));
    cursor.seek_before(b"0000000000000015").unwrap();
    assert_eq!(row(&cursor).as_ref(), Some(&rows[first + 4998]));
    table.verify().unwrap();
}

#[test]
fn values_outlive_the_cursor_and_later_reads() {
    let twin = numbered(20_000, 100);
    let home = Home::new();
    let [mapped, cached] = home.tables(&twin, &TableOptions::default());
    let [_, packed] = home.tables(&twin, &compressed(4096, Compression::Lz4));
    let packed = [packed.cursor(), packed.scan_cursor()];
    let cursors = [mapped.cursor(), cached.cursor(), cached.scan_cursor()];
    for mut cursor in cursors.into_iter().chain(packed) {
        cursor.seek_first().unwrap();
        let mut kept = Vec::new();
        while cursor.valid() {
            kept.push(cursor.value());
            cursor.next().unwrap();
        }
        drop(cursor);
        assert!(
            kept.iter()
                .zip(twin.values())
                .all(|(kept, (_, value))| **kept == **value)
        );
        assert_eq!(kept.len(), twin.len());
    }
}

#[test]
fn scans_leave_the_cache_alone_and_cursors_fill_it() {
    let home = Home::new();
    home.write(&numbered(5000, 100), &TableOptions::default());
    let cache = Arc::new(BlockCache::new(16 << 20));
    let table = Arc::new(Table::open(&home.disk, FILE, 0, &cache).unwrap());
    let mut scan = table.scan_cursor();
    scan.seek_first().unwrap();
    while scan.valid() {
        scan.next().unwrap();
    }
    table.verify().unwrap();
    assert_eq!(cache.stats(), Default::default());

    let mut cursor = table.cursor();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        cursor.next().unwrap();
    }
    let blocks = table.index.len() as u64;
    let stats = cache.stats();
    assert!(stats.bytes > table.bytes_between(b"", None));
    assert!(
        stats.misses < blocks / 5,
        "{} misses, {blocks} blocks",
        stats.misses
    );
    assert!(
        table
            .get(b"0000000000000007", hash_key(b"0000000000000007"), 8)
            .unwrap()
            .is_some()
    );
    assert_eq!(cache.stats().hits, stats.hits + 1);
}

#[test]
fn a_mapped_table_needs_no_cache_and_checks_a_block_when_it_is_first_read() {
    let home = Home::new();
    home.write(&numbered(500, 100), &TableOptions::default());
    let cache = Arc::new(BlockCache::new(16 << 20).map_tables(true));
    let table = Arc::new(Table::open(&home.disk, FILE, 0, &cache).unwrap());
    let get = |number: u64| {
        let key = format!("{number:016x}").into_bytes();
        table.get(&key, hash_key(&key), SEQ_MAX)
    };
    assert!(get(0).unwrap().is_some());
    assert_eq!(cache.stats(), Default::default());

    // One byte of the last block, changed in place: the map shows it.
    let offset = table.index.place(table.index.len() - 1).start;
    let file = std::fs::OpenOptions::new().write(true).open(home.path());
    let file = file.unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xee], offset + 5).unwrap();
    assert!(matches!(get(499), Err(Error::Corruption { offset: at, .. }) if at == offset));
    let mut cursor = table.cursor();
    assert!(matches!(cursor.seek_last(), Err(Error::Corruption { .. })));
    assert!(!cursor.valid());
    assert!(get(0).unwrap().is_some());
}

/// A mapped table outlives its name: a deleted file stays readable until its last reader is gone.
#[test]
fn a_mapped_table_outlives_its_name() {
    let twin = numbered(500, 100);
    let home = Home::new();
    let table = home.table(&twin, &TableOptions::default());
    home.disk.remove(&table_name(FILE)).unwrap();
    assert_walks(&mut table.cursor(), &rows(&twin));
}

/// What a mapping shows after its block was checked may still change, on a medium that rots: then
/// there is some answer or none, but no panic.
#[test]
fn a_block_that_changes_after_its_check_never_panics() {
    let home = Home::new();
    let table = home.table(&numbered(200, 30), &options(512, 10));
    assert_walks(&mut table.cursor(), &rows(&numbered(200, 30)));
    let file = std::fs::OpenOptions::new().write(true).open(home.path());
    let file = file.unwrap();
    let place = table.index.place(1);
    for (at, byte) in (place.start..place.end).flat_map(|at| [0, 0x7f, 0xff].map(|b| (at, b))) {
        let mut before = [0];
        std::os::unix::fs::FileExt::read_exact_at(
            &std::fs::File::open(home.path()).unwrap(),
            &mut before,
            at,
        )
        .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte], at).unwrap();
        for number in 0..40 {
            let key = format!("{number:016x}").into_bytes();
            let _ = table.get(&key, hash_key(&key), SEQ_MAX).unwrap();
            let mut cursor = table.cursor();
            cursor.seek(&key).unwrap();
            if cursor.valid()
                && let Some(mut stretch) = cursor.stretch([None, Some(b"0000000000000020")])
            {
                let mut key = Vec::new();
                stretch.extend(Some(b"000000000000001c"));
                while stretch.next(SEQ_MAX, &mut key) {
                    let _ = (stretch.value(), stretch.value_bytes());
                }
                cursor.leave(&stretch).unwrap();
            }
        }
        std::os::unix::fs::FileExt::write_all_at(&file, &before, at).unwrap();
    }
}

#[test]
fn cut_keys_cut_evenly() {
    let home = Home::new();
    let table = home.table(&numbered(20_000, 100), &TableOptions::default());
    let keys = table.cut_keys(b"", None, 8);
    assert_eq!(keys.len(), 7);
    let total = table.bytes_between(b"", None);
    let bounds: Vec<&[u8]> = std::iter::once(&b""[..])
        .chain(keys.iter().map(Vec::as_slice))
        .collect();
    for (at, lower) in bounds.iter().enumerate() {
        let piece = table.bytes_between(lower, bounds.get(at + 1).copied());
        assert!(piece.abs_diff(total / 8) < 2 * 4096, "{piece} of {total}");
    }
    let middle = table.cut_keys(b"0000000000000400", Some(b"0000000000000800"), 2);
    let number = u64::from_str_radix(std::str::from_utf8(&middle[0]).unwrap(), 16);
    // The separator may be shortened: put the cut digits back.
    let digits = 4 * (16 - middle[0].len());
    let number = number.unwrap() << digits;
    assert!(number.abs_diff(0x600) < 80, "{number:x}");
}
