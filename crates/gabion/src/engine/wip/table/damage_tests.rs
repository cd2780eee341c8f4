//! Damaged tables: an error or some answer, never a panic, and never in silence.

use std::cmp::Reverse;
use std::sync::Arc;

use gabion_media::Purpose;
use proptest::prelude::*;

use super::block_layout::HEADER_BYTES;
use super::tests::{
    FILE, Home, Row, WAYS, Way, compressed, compression, numbered, options, row, rows, to_usize,
};
use super::*;
use crate::cache::BlockCache;
use crate::error::{Error, Result};
use crate::names::table_name;
use crate::types::{Kind, SEQ_MAX, hash_key};

/// Everything that can be read of the table, or the first error.
fn dump(home: &Home) -> Result<Vec<Row>> {
    let [mapped, cached] = WAYS.map(|way| dump_one_way(home, way));
    assert_eq!(format!("{mapped:?}"), format!("{cached:?}"));
    mapped
}

fn dump_one_way(home: &Home, way: Way) -> Result<Vec<Row>> {
    let table = home.open(way)?;
    let mut rows = Vec::new();
    let mut cursor = table.cursor();
    cursor.seek_first()?;
    while cursor.valid() {
        rows.extend(row(&cursor));
        cursor.next()?;
    }
    table.verify()?;
    Ok(rows)
}

fn small(compression: Compression) -> (Home, Vec<Row>, Vec<u8>) {
    let mut twin = numbered(12, 40);
    twin.insert((b"0000".to_vec(), Reverse(77)), (Kind::Delete, vec![]));
    let home = Home::new();
    home.write(&twin, &compressed(200, compression));
    let packed = home.open(Way::Mapped).unwrap().properties.packed;
    assert_eq!(packed.is_empty(), compression == Compression::None);
    let bytes = home.disk.read_all(&table_name(FILE)).unwrap();
    let rows = rows(&twin);
    assert_eq!(dump(&home).unwrap(), rows);
    (home, rows, bytes)
}

fn overwrite(home: &Home, bytes: &[u8]) {
    home.disk
        .replace(&table_name(FILE), bytes, Purpose::Flush)
        .unwrap();
}

#[test]
fn every_flipped_bit_is_noticed() {
    Compression::available().for_each(notices_every_flipped_bit);
}

fn notices_every_flipped_bit(compression: Compression) {
    let (home, _, bytes) = small(compression);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        overwrite(&home, &damaged);
        match dump(&home) {
            Err(Error::Corruption { file, offset, .. }) => {
                assert_eq!(file, home.path());
                assert!(offset <= at as u64, "byte {at} reported at {offset}");
            }
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

#[test]
fn every_truncation_and_extension_is_noticed() {
    Compression::available().for_each(notices_every_truncation_and_extension);
}

fn notices_every_truncation_and_extension(compression: Compression) {
    let (home, rows, bytes) = small(compression);
    for len in 0..bytes.len() {
        overwrite(&home, &bytes[..len]);
        assert!(
            matches!(dump(&home), Err(Error::Corruption { .. })),
            "{len}"
        );
    }
    overwrite(&home, &[&bytes[..], &[0]].concat());
    assert!(matches!(dump(&home), Err(Error::Corruption { .. })));
    overwrite(&home, &bytes);
    assert_eq!(dump(&home).unwrap(), rows);
}

#[test]
fn a_block_in_the_place_of_another_is_noticed() {
    let home = Home::new();
    home.write(&numbered(64, 20), &options(200, 10));
    let table = home.open(Way::Cached(0)).unwrap();
    let bytes = home.disk.read_all(&table_name(FILE)).unwrap();
    let range = |block| {
        let place = table.index.place(block);
        to_usize(place.start)..to_usize(place.end)
    };
    let (first, second) = (0..table.index.len() - 1)
        .map(|block| (range(block), range(block + 1)))
        .find(|(first, second)| first.len() == second.len())
        .unwrap();
    let mut swapped = bytes.clone();
    swapped[first.clone()].copy_from_slice(&bytes[second.clone()]);
    swapped[second].copy_from_slice(&bytes[first]);
    overwrite(&home, &swapped);
    assert!(matches!(dump(&home), Err(Error::Corruption { .. })));
}

#[test]
fn a_table_under_another_number_is_refused() {
    let (home, _, bytes) = small(Compression::None);
    home.disk
        .replace(&table_name(7), &bytes, Purpose::Flush)
        .unwrap();
    let cache = Arc::new(BlockCache::new(0));
    let opened = Table::open(&home.disk, 7, 0, &cache);
    assert!(matches!(opened, Err(Error::Corruption { .. })));
    assert!(matches!(
        Table::open(&home.disk, 8, 0, &cache),
        Err(Error::Media(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Content that is wrong under right checksums: an error or some answer, never a panic.
    #[test]
    fn damage_under_a_valid_checksum_never_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
        in_head: bool,
        compression in compression(),
    ) {
        let (home, _, bytes) = small(compression);
        let table = home.open(Way::Cached(0)).unwrap();
        let mut damaged = bytes.clone();
        for block in 0..table.index.len() {
            let place = table.index.place(block);
            let (start, end) = (to_usize(place.start), to_usize(place.end));
            let body = if in_head { HEADER_BYTES } else { end - start - layout::TRAILER_BYTES };
            for (index, flip) in &flips {
                damaged[start + index.index(body)] ^= flip;
            }
            let stored = &bytes[start..end];
            let (encoding, _) = layout::check_stored(FILE, place.start, stored).unwrap();
            let mut part = damaged[start..end - layout::TRAILER_BYTES].to_vec();
            layout::append_trailer_of(encoding, &mut part, 0, FILE, place.start);
            damaged[start..end].copy_from_slice(&part);
        }
        overwrite(&home, &damaged);
        let outcome = dump(&home);
        let expected = matches!(outcome, Ok(_) | Err(Error::Corruption { .. }));
        prop_assert!(expected);
        for table in WAYS.map(|way| home.open(way).unwrap()) {
            for number in 0..12 {
                let key = format!("{number:016x}").into_bytes();
                let _ = table.get(&key, hash_key(&key), SEQ_MAX);
                let mut cursor = table.cursor();
                let _ = cursor.seek(&key).and_then(|()| cursor.next());
                let _ = cursor.seek_before(&key).and_then(|()| cursor.prev());
            }
        }
    }

    /// The same of one block: what passes its checks can be read without any.
    #[test]
    fn a_block_that_passes_its_checks_is_sound(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 0..4),
        block: prop::sample::Index,
    ) {
        let (home, _, bytes) = small(Compression::None);
        let table = home.open(Way::Cached(0)).unwrap();
        let place = table.index.place(block.index(table.index.len()));
        let (start, end) = (to_usize(place.start), to_usize(place.end));
        let mut part = bytes[start..end - layout::TRAILER_BYTES].to_vec();
        for (index, flip) in &flips {
            let at = index.index(part.len());
            part[at] ^= flip;
        }
        layout::append_trailer(&mut part, 0, FILE, 0);
        let passes = block::check(FILE, 0, &part).is_ok_and(|packed| packed.is_none());
        prop_assert!(passes || !flips.is_empty());
        if passes {
            let block = block::TableBlock::new(&part);
            for position in 0..block.shape().count {
                let found = block.entry(position);
                prop_assert!(found.suffix_at <= found.value_at && found.value_at <= found.end);
                prop_assert!(found.end <= part.len() - layout::TRAILER_BYTES);
            }
            block.get(&[0, 1], 3, SEQ_MAX);
            block.lower_bound(&[0, 1]);
        }
    }
}
