//! Texts in memory, read as a load reads them.

use std::io::{Cursor, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use gabion_media::seeded::SeededRng;
use proptest::collection::vec;
use proptest::prelude::*;

use super::delimited::Columns;
use super::input::{Input, Record, Text};
use super::progress::Progress;
use super::source::{Form, Source};
use super::unpack::{self, Packed};
use crate::dump;
use crate::failure::Failure;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// All records of a text, or those before the one that cannot be read and why.
fn records(text: &[u8], piece: usize, form: &Form) -> Result<Pairs, (Pairs, String)> {
    let input = Input::in_memory();
    let (mut found, mut record) = (Pairs::new(), Record::default());
    let mut source = match Source::of(&input, Text::of(text, piece), form) {
        Ok(source) => source,
        Err(failure) => return Err((found, failure.to_string())),
    };
    loop {
        match source.next(&mut record) {
            Ok(true) => found.push((record.key.clone(), record.value.clone())),
            Ok(false) => return Ok(found),
            Err(failure) => return Err((found, failure.to_string())),
        }
    }
}

fn dumped(pairs: &Pairs) -> Vec<u8> {
    let mut text = Vec::new();
    let records = pairs.iter().map(|(key, value)| Ok((key, value, None)));
    dump::write(records, |line| {
        text.extend_from_slice(line);
        Ok::<(), Failure>(())
    })
    .unwrap();
    text
}

/// Bytes that make trouble where marks, escapes and line ends are looked for.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let marks = prop::sample::select(vec![
        "#",
        "#gabion-dump 1",
        "#gabion-dump end, records: 0",
        "\0gabionEndOfFile\0",
        "\\x23",
        "\n",
        "\r\n",
        "\t",
        "\u{feff}",
        "\x1b[31m",
    ]);
    let part = prop_oneof![
        vec(any::<u8>(), 0..6),
        marks.prop_map(|mark| mark.as_bytes().to_vec()),
    ];
    vec(part, 0..3).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A key that began with the words of a dump's last line made a dump that could not be loaded,
    /// or of which the rest was left out in silence.
    #[test]
    fn any_bytes_are_dumped_and_loaded(
        pairs in vec((bytes(), bytes()), 0..12),
        piece in 1..40_usize,
    ) {
        let text = dumped(&pairs);
        prop_assert_eq!(records(&text, piece, &Form::Dump).unwrap(), pairs.clone());
        // A key and its value are on one line, and no record looks like a mark.
        let marks = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"#"));
        prop_assert_eq!(marks.count(), 2);
        prop_assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), pairs.len() + 2);
    }

    #[test]
    fn a_dump_that_was_cut_or_changed_is_refused_or_the_same(
        pairs in vec((bytes(), bytes()), 0..5),
        seed in any::<u64>(),
    ) {
        let text = dumped(&pairs);
        let mut rng = SeededRng::new(seed);
        for at in 0..text.len() {
            let cut = records(&text[..at], 64, &Form::Dump);
            prop_assert!(cut.is_err() || at + 1 == text.len() && cut.unwrap() == pairs);
            let mut changed = text.clone();
            changed[at] ^= u8::try_from(1 + rng.below(255)).unwrap();
            if let Ok(found) = records(&changed, 64, &Form::Dump) {
                prop_assert_eq!(&found, &pairs);
            }
            for flip in [b'\n', b'\t', b'#', b'\\', b'\r'] {
                changed[at] = flip;
                if let Ok(found) = records(&changed, 64, &Form::Dump) {
                    prop_assert_eq!(&found, &pairs);
                }
            }
        }
        let more = [&text[..], b"a\tb\n"].concat();
        let (_, why) = records(&more, 64, &Form::Dump).unwrap_err();
        prop_assert!(why.contains("more lines follow the last one"), "{}", why);
    }

    /// Lines of a dump that change places leave the count as it is.
    #[test]
    fn a_dump_has_its_lines_in_their_order(pairs in vec((bytes(), bytes()), 2..6)) {
        let text = String::from_utf8(dumped(&pairs)).unwrap();
        let lines: Vec<_> = text.split_inclusive('\n').collect();
        for at in 1..lines.len() - 2 {
            let mut lines = lines.clone();
            lines.swap(at, at + 1);
            let is_same = lines[at] == lines[at + 1];
            let found = records(lines.concat().as_bytes(), 64, &Form::Dump);
            prop_assert_eq!(found.is_ok(), is_same);
        }
    }
}

fn forms() -> [(Form, &'static str); 4] {
    let columns = |header| {
        Form::Delimited(Columns {
            delimiter: b',',
            quotes: true,
            header,
            key: None,
            value: None,
        })
    };
    let json = Form::Json {
        key: None,
        value: None,
    };
    [
        (
            columns(true),
            "k,v\r\n1,x\r\n\r\n2,\"y\r\nz\"\r\n3,\"\"\"\"\r\n4,w",
        ),
        (columns(false), "1,x\n2,y\n\n\"3\n\",z\r4,\n"),
        (json, "{\"k\":1}\n\n{\"k\":2}\r\n{\"k\":3}"),
        (Form::Dump, ""),
    ]
}

fn text_of(form: &Form, text: &str) -> Vec<u8> {
    match form {
        Form::Dump => dumped(&vec![
            (b"#1".to_vec(), b"\n".to_vec()),
            (b"2".to_vec(), Vec::new()),
            (b"3".to_vec(), b"x".to_vec()),
        ]),
        _ => text.as_bytes().to_vec(),
    }
}

/// From each place that a load may have come to it goes on with the rest, and only if the text is
/// what it was up to there.
#[test]
fn a_load_goes_on_from_every_place_of_the_same_text() {
    let input = Input::in_memory();
    for (form, text) in forms() {
        let text = text_of(&form, text);
        let all = records(&text, 7, &form).unwrap();
        assert!(all.len() >= 3, "{form:?}");
        let mut source = Source::of(&input, Text::of(&text, 7), &form).unwrap();
        let mut record = Record::default();
        for done in 1..=all.len() {
            let before = source.place();
            assert!(source.next(&mut record).unwrap());
            assert_eq!(source.place_before(), before);
            let progress = Progress {
                place: source.place(),
                records: done as u64,
            };
            let open = |text: &[u8]| Source::of(&input, Text::of(text, 5), &form);
            let mut rest = open(&text).unwrap();
            let is_line_end = matches!(rest_of(&text, &progress).first(), Some(b'\n' | b'\r'));
            assert_eq!(rest.go_on(&progress).unwrap(), is_line_end, "{form:?}");
            if is_line_end {
                for (key, value) in &all[done..] {
                    assert!(rest.next(&mut record).unwrap());
                    assert_eq!((&record.key, &record.value), (key, value));
                }
                assert!(!rest.next(&mut record).unwrap());
                assert_eq!(rest.place(), end_of(open(&text).unwrap()));
            }
            let up_to = usize::try_from(progress.place.offset).unwrap();
            for at in 0..up_to {
                let mut changed = text.clone();
                changed[at] ^= 1;
                // A first line that is none is refused at once.
                if let Ok(mut source) = open(&changed) {
                    assert!(!source.go_on(&progress).unwrap_or(false), "{form:?}, {at}");
                }
            }
            let mut cut = open(&text[..up_to - 1]).ok();
            let went_on = cut.as_mut().map(|cut| cut.go_on(&progress).unwrap());
            assert_ne!(went_on, Some(true));
        }
    }
}

/// The last byte before the place, as a slice.
fn rest_of<'t>(text: &'t [u8], progress: &Progress) -> &'t [u8] {
    let offset = usize::try_from(progress.place.offset).unwrap();
    &text[offset - 1..offset]
}

fn end_of(mut source: Source<'_>) -> super::input::Place {
    let mut record = Record::default();
    while source.next(&mut record).unwrap() {}
    source.place()
}

/// A line that equalled the mark which the loader put behind a file ended the load, and what came
/// after it was left out in silence.
#[test]
fn no_line_of_columns_is_an_end_mark() {
    let (form, _) = &forms()[1];
    let text = b"a\nb\n\0gabionEndOfFile\0\nc\nd\n";
    let keys: Vec<_> = records(text, 64, form)
        .unwrap()
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys, [&b"a"[..], b"b", b"\0gabionEndOfFile\0", b"c", b"d"]);
}

fn unpacked(bytes: &[u8], named: Option<Packed>) -> Result<Vec<u8>, (Vec<u8>, String)> {
    let mut text = Vec::new();
    let opened = unpack::text(Cursor::new(bytes.to_vec()), named);
    match opened.and_then(|mut bytes| bytes.read_to_end(&mut text)) {
        Ok(_) => Ok(text),
        Err(error) => Err((text, error.to_string())),
    }
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// What a program with the feature `zstd` unpacks.
fn zstd_packed(text: &[u8]) -> Option<Vec<u8>> {
    #[cfg(feature = "zstd")]
    {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(text).unwrap();
        Some(encoder.finish().unwrap())
    }
    #[cfg(not(feature = "zstd"))]
    {
        let _ = text;
        None
    }
}

/// Packed bytes were loaded as if they were text, with exit status 0.
#[test]
fn packed_text_is_read_as_it_is_and_refused_where_it_is_cut_or_damaged() {
    let text: Vec<u8> = (0..400)
        .flat_map(|n| format!("{n},text\n").into_bytes())
        .collect();
    let by_zstd = zstd_packed(&text).map(|packed| (packed, Packed::Zstd));
    if by_zstd.is_none() {
        let (_, why) = unpacked(b"\x28\xb5\x2f\xfd...", Some(Packed::Zstd)).unwrap_err();
        assert!(why.contains("--features full"), "{why}");
    }
    for (packed, kind) in [(gzipped(&text), Packed::Gzip)].into_iter().chain(by_zstd) {
        assert_eq!(unpacked(&packed, None).unwrap(), text);
        assert_eq!(unpacked(&packed, Some(kind)).unwrap(), text);
        let twice = [&packed[..], &packed].concat();
        assert_eq!(unpacked(&twice, None).unwrap(), [&text[..], &text].concat());
        for at in 0..packed.len() {
            let (found, why) = unpacked(&packed[..at], Some(kind)).unwrap_err();
            assert!(text.starts_with(&found), "{at}");
            assert!(
                why.contains("cut off") || at < 4 && why.contains("named like"),
                "{why}"
            );
            let mut changed = packed.clone();
            changed[at] ^= 0x10;
            if let Ok(found) = unpacked(&changed, Some(kind)) {
                // Of the header, the time and the name of the file are not text.
                assert_eq!(found, text, "{at}");
            }
        }
    }
    let (_, why) = unpacked(b"BZh91AY&SY....", None).unwrap_err();
    assert!(why.contains("bzip2 -dc"), "{why}");
    assert!(unpacked(b"BZh is no word", None).is_ok());
}

fn utf16(text: &str, is_big_endian: bool) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units
        .flat_map(|unit| match is_big_endian {
            true => [
                u8::try_from(unit >> 8).unwrap(),
                u8::try_from(unit & 255).unwrap(),
            ],
            false => unit.to_le_bytes(),
        })
        .collect()
}

#[test]
fn text_with_a_byte_order_mark_is_read_as_utf_8() {
    let text = "k,v\nGrüße,世界 \u{1f30d}\n".repeat(3000);
    assert_eq!(
        unpacked(&[b"\xef\xbb\xbf", text.as_bytes()].concat(), None).unwrap(),
        text.as_bytes()
    );
    for is_big_endian in [false, true] {
        let bytes = utf16(&text, is_big_endian);
        assert_eq!(unpacked(&bytes, None).unwrap(), text.as_bytes());
        assert_eq!(unpacked(&gzipped(&bytes), None).unwrap(), text.as_bytes());
        let (found, why) = unpacked(&bytes[..bytes.len() - 1], None).unwrap_err();
        assert!(
            text.as_bytes().starts_with(&found) && why.contains("cut off"),
            "{why}"
        );
        let half = [&bytes[..], &bytes[16..18]].concat();
        let broken = utf16("a\u{1f30d}", is_big_endian);
        let broken = [&half[..], &broken[4..6], &broken[2..4]].concat();
        let (found, why) = unpacked(&broken, None).unwrap_err();
        assert!(
            found.starts_with(text.as_bytes()) && why.contains("surrogate"),
            "{why}"
        );
    }
    let (_, why) = unpacked(b"\xff\xfe\0\0a\0\0\0", None).unwrap_err();
    assert!(why.contains("UTF-32"), "{why}");
}

/// It said "line 3: not a string: ... at line 1 column 8".
#[test]
fn a_line_of_json_is_told_by_its_number_alone() {
    let json = &forms()[2].0;
    for (line, words) in [
        (&b"{\"key\": \"\\ud800\"}"[..], "hex escape"),
        (b"{\"key\": \"\xff\"}", "column 10 is not UTF-8"),
        (b"{\"key\": 1, \"key\": 2}", "twice"),
        (b"{\"key\": 1,}", "column 11"),
        (b"{\"key\": {}}", "must be a string"),
    ] {
        let text = [b"{\"key\": 1}\n\n", line, b"\n{\"key\": 2}\n"].concat();
        let (found, why) = records(&text, 9, json).unwrap_err();
        assert_eq!(found.len(), 1);
        assert!(why.contains("line 3: ") && why.contains(words), "{why}");
        assert!(!why.contains("line 1"), "{why}");
    }
}
