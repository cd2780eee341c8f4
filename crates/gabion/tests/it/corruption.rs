//! Damage of every byte of every file: wrong bytes, truncation, swapped sectors, missing files.
//!
//! A closed store must give the right data or an error that names the file; never wrong data, and
//! never a panic. `check` must find every damage that is in the way of reading; of WipDB's files,
//! in which every byte has a meaning, every damage. FlexDB's have slack: segments and slots that
//! are free, and what lies behind the end of a log.

use std::ops::Range;

use gabion::{Engine, Error};

use crate::damage::{Outcome, Specimen, problems};
use crate::support::{PanicContext, SeededRng, Twin, base_seed, setting};

/// Size of the sectors that are swapped.
const SECTOR_BYTES: usize = 512;

/// What was tried and what came of it.
#[derive(Debug, Default)]
struct Counts {
    damages: u64,
    refused: u64,
    unharmed: u64,
}

/// A file with one change.
struct Damage<'d> {
    name: &'d str,
    /// `None`: the file is gone.
    bytes: Option<Vec<u8>>,
    /// Where the change is.
    place: Range<usize>,
    words: &'d str,
}

fn is_lock(name: &str) -> bool {
    name.ends_with("LOCK")
}

/// Whether the file is one of several segments of the store's log.
fn is_segment(name: &str) -> bool {
    name.ends_with(".log") && !name.contains('-')
}

/// Whether each byte of the engine's files has a meaning.
fn is_tight(engine: Engine) -> bool {
    engine == Engine::Wip
}

/// Flip every n-th byte. FlexDB's files are larger, and alike for long stretches.
fn stride(engine: Engine) -> usize {
    let default = if is_tight(engine) { 1 } else { 31 };
    usize::try_from(setting("GABION_DAMAGE_STRIDE", default)).unwrap()
}

/// Opens a damaged store and checks what comes of it.
fn try_damage(specimen: &Specimen, damage: &Damage<'_>, counts: &mut Counts) {
    let Damage {
        name,
        bytes,
        place,
        words,
    } = damage;
    let _context = PanicContext(|| format!("{words} of {name} at {place:?}"));
    counts.damages += 1;
    let change = [(*name, bytes.as_deref())];
    let refused = match specimen.open(&specimen.with(&change)) {
        Outcome::Read(found) => {
            assert!(
                specimen.twin.equals(&found),
                "wrong data: {}",
                specimen.twin.difference(&found)
            );
            counts.unharmed += 1;
            false
        }
        Outcome::Refused(error) => {
            assert!(
                !is_lock(name),
                "the lock file holds nothing that matters: {error}"
            );
            assert_names(&error, name, bytes.is_some());
            counts.refused += 1;
            true
        }
    };
    let problems = problems(&specimen.with(&change));
    if is_lock(name) {
        assert!(problems.is_empty(), "{problems:?}");
    } else if refused || is_tight(specimen.options.engine) {
        assert!(
            problems.iter().any(|problem| problem.contains(name)),
            "check does not find the damage in the file: {problems:?}"
        );
    }
}

/// The error names the damaged file, and says where in it if the file is there.
fn assert_names(error: &Error, name: &str, has_place: bool) {
    let text = error.to_string();
    assert!(text.contains(name), "{text}");
    let is_whole = matches!(error, Error::NewerFormat { .. } | Error::NotAStore { .. });
    if has_place && !is_whole {
        assert!(text.contains("offset"), "{text}");
    }
}

#[test]
fn a_wrong_byte_anywhere_is_found_and_named() {
    let (specimen, counts) = flip_bytes(Engine::Wip);
    let kinds = |suffix: &str| {
        let names = specimen.files.keys();
        names.filter(|name| name.contains(suffix)).count()
    };
    assert!(kinds(".tbl") >= 3 && kinds(".log") >= 1 && kinds("manifest-") == 1);
    assert!(counts.refused > counts.damages * 8 / 10, "{counts:?}");
}

#[test]
fn a_wrong_byte_anywhere_in_spaces_is_found_and_named() {
    let (_, counts) = flip_bytes(Engine::Flex);
    assert!(counts.refused > counts.damages / 20, "{counts:?}");
}

fn flip_bytes(engine: Engine) -> (Specimen, Counts) {
    let specimen = Specimen::new(engine, true);
    let stride = stride(engine);
    let mut random = SeededRng::new(base_seed());
    let mut counts = Counts::default();
    for (name, bytes) in &specimen.files {
        println!("corruption: {name} has {} bytes", bytes.len());
        for at in (0..bytes.len()).step_by(stride) {
            let mut bytes = bytes.clone();
            bytes[at] ^= [1 << random.below(8), 0xff][random.index(2)];
            let place = at..at + 1;
            let damage = Damage {
                name,
                bytes: Some(bytes),
                place,
                words: "a wrong byte",
            };
            try_damage(&specimen, &damage, &mut counts);
        }
    }
    println!("corruption: wrong bytes, {engine}: {counts:?}");
    (specimen, counts)
}

/// What lies behind the sealed end of the log means nothing: a crash may leave it there.
fn assert_unharmed(specimen: &Specimen, damage: &Damage<'_>) {
    let change = [(damage.name, damage.bytes.as_deref())];
    let _context =
        PanicContext(|| format!("{} of {} at {:?}", damage.words, damage.name, damage.place));
    match specimen.open(&specimen.with(&change)) {
        Outcome::Read(found) => {
            assert!(
                specimen.twin.equals(&found),
                "{}",
                specimen.twin.difference(&found)
            );
        }
        Outcome::Refused(error) => panic!("{error}"),
    }
}

#[test]
fn a_file_that_is_too_short_too_long_or_missing_is_found_and_named() {
    let counts = change_lengths(Engine::Wip);
    assert!(
        counts.refused == counts.damages,
        "a wrong length is always seen: {counts:?}"
    );
    let counts = change_lengths(Engine::Flex);
    assert!(counts.refused > counts.damages / 2, "{counts:?}");
}

fn change_lengths(engine: Engine) -> Counts {
    let specimen = Specimen::new(engine, true);
    let mut counts = Counts::default();
    for (name, bytes) in specimen.files.iter().filter(|(name, _)| !is_lock(name)) {
        let len = bytes.len();
        let step = (len / 300).max(1);
        for short in (0..len).step_by(step).chain(len.saturating_sub(40)..len) {
            let bytes = Some(bytes[..short].to_vec());
            let damage = Damage {
                name,
                bytes,
                place: short..len,
                words: "truncation",
            };
            try_damage(&specimen, &damage, &mut counts);
        }
        for more in [1, 7, 64, 5_000] {
            for filler in [0, 0xa5] {
                let mut bytes = bytes.clone();
                bytes.resize(len + more, filler);
                let place = len..len + more;
                let damage = Damage {
                    name,
                    bytes: Some(bytes),
                    place,
                    words: "more bytes",
                };
                let is_slack = name.ends_with(".log") || !is_tight(engine) && name.contains('-');
                match is_slack {
                    true => assert_unharmed(&specimen, &damage),
                    false => try_damage(&specimen, &damage, &mut counts),
                }
            }
        }
        let damage = Damage {
            name,
            bytes: None,
            place: 0..len,
            words: "removal",
        };
        try_damage(&specimen, &damage, &mut counts);
    }
    println!("corruption: lengths, {engine}: {counts:?}");
    counts
}

#[test]
fn sectors_in_each_others_places_are_found_and_named() {
    let counts = move_sectors(Engine::Wip);
    assert!(
        counts.damages > 100 && counts.refused > counts.damages / 2,
        "{counts:?}"
    );
}

#[test]
fn sectors_of_spaces_in_each_others_places_are_found_and_named() {
    let counts = move_sectors(Engine::Flex);
    assert!(
        counts.damages > 100 && counts.refused > counts.damages / 8,
        "{counts:?}"
    );
}

fn move_sectors(engine: Engine) -> Counts {
    let specimen = Specimen::new(engine, true);
    let sectors = |len: usize| len / SECTOR_BYTES;
    let mut counts = Counts::default();
    for (name, bytes) in &specimen.files {
        for first in 0..sectors(bytes.len()) {
            for second in first + 1..sectors(bytes.len()) {
                let (a, b) = (first * SECTOR_BYTES, second * SECTOR_BYTES);
                let (front, back) = (&bytes[a..a + SECTOR_BYTES], &bytes[b..b + SECTOR_BYTES]);
                if front == back {
                    continue;
                }
                let mut swapped = bytes.clone();
                swapped[a..a + SECTOR_BYTES].copy_from_slice(back);
                swapped[b..b + SECTOR_BYTES].copy_from_slice(front);
                let place = a..b + SECTOR_BYTES;
                let damage = Damage {
                    name,
                    bytes: Some(swapped),
                    place,
                    words: "swapped sectors",
                };
                try_damage(&specimen, &damage, &mut counts);
            }
        }
        // A sector of another file, or zeros, in place of its own.
        let others = specimen.files.values().filter(|other| *other != bytes);
        let others = others.filter_map(|other| other.get(..SECTOR_BYTES));
        for other in others.chain([&[0; SECTOR_BYTES][..]]) {
            for at in (0..sectors(bytes.len())).map(|sector| sector * SECTOR_BYTES) {
                if bytes[at..at + SECTOR_BYTES] == *other {
                    continue;
                }
                let mut replaced = bytes.clone();
                replaced[at..at + SECTOR_BYTES].copy_from_slice(other);
                let place = at..at + SECTOR_BYTES;
                let damage = Damage {
                    name,
                    bytes: Some(replaced),
                    place,
                    words: "a foreign sector",
                };
                try_damage(&specimen, &damage, &mut counts);
            }
        }
    }
    println!("corruption: sectors, {engine}: {counts:?}");
    counts
}

#[test]
fn a_file_in_place_of_another_of_its_kind_is_found() {
    [Engine::Wip, Engine::Flex].into_iter().for_each(swap_files);
}

fn swap_files(engine: Engine) {
    let specimen = Specimen::new(engine, true);
    let mut counts = Counts::default();
    for suffix in [".tbl", ".log", "-DATA", "-TREE"] {
        let files = || {
            specimen
                .files
                .iter()
                .filter(|(name, _)| name.ends_with(suffix))
        };
        for (name, bytes) in files() {
            for (_, other) in files().filter(|(other, _)| *other != name) {
                let place = 0..bytes.len();
                let damage = Damage {
                    name,
                    bytes: Some(other.clone()),
                    place,
                    words: "another file",
                };
                try_damage(&specimen, &damage, &mut counts);
            }
        }
    }
    assert!(
        counts.damages > 4 && counts.refused == counts.damages,
        "{counts:?}"
    );
}

/// After the end of a process the log has an end that nobody has sealed. A wrong byte in its last
/// records looks like a write that was torn; anywhere else it is damage. In no case is there
/// anything but the result of the first so many writes.
#[test]
fn a_wrong_byte_in_a_store_that_was_not_closed_never_gives_wrong_data() {
    let counts = flip_bytes_unclosed(Engine::Wip);
    assert!(counts.refused > counts.damages / 2, "{counts:?}");
}

/// What the newest commit of a space holds may be nowhere else: the root says how far the space
/// had come, so that its damage is not taken for a torn write.
#[test]
fn a_wrong_byte_in_spaces_that_were_not_closed_never_gives_wrong_data() {
    let counts = flip_bytes_unclosed(Engine::Flex);
    assert!(counts.refused > counts.damages / 20, "{counts:?}");
}

fn flip_bytes_unclosed(engine: Engine) -> Counts {
    let specimen = Specimen::new(engine, false);
    let stride = stride(engine);
    let complete: usize = (0..crate::support::KEYSPACES.len())
        .map(|keyspace| specimen.twin.pairs(keyspace).len())
        .sum();
    let mut counts = Counts::default();
    let mut shortened = 0;
    for (name, bytes) in &specimen.files {
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        for at in (0..used.min(bytes.len())).step_by(stride) {
            let _context = PanicContext(|| format!("a wrong byte of {name} at {at}"));
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            counts.damages += 1;
            match specimen.open(&specimen.with(&[(name, Some(&bytes))])) {
                Outcome::Read(found) if specimen.twin.equals(&found) => counts.unharmed += 1,
                Outcome::Read(found) => {
                    assert!(name.ends_with(".log"), "only the log may be cut");
                    assert!(
                        is_earlier(&specimen.twin, &found),
                        "not the result of earlier writes"
                    );
                    let left: usize = found.iter().map(|pairs| pairs.len()).sum();
                    assert!(left + 3 >= complete, "{left} of {complete} keys are left");
                    shortened += 1;
                }
                Outcome::Refused(error) if is_segment(name) && !is_tight(engine) => {
                    // Where the log does not go on may be the end of the segment before.
                    assert!(
                        error.to_string().contains(".log is damaged at offset "),
                        "{error}"
                    );
                    counts.refused += 1;
                }
                Outcome::Refused(error) => {
                    assert_names(&error, name, true);
                    counts.refused += 1;
                }
            }
        }
    }
    println!("corruption: {engine}, not closed: {counts:?}, {shortened} with a shorter log");
    // The last record, which no later one vouches for, has well under 200 bytes.
    assert!(
        shortened < 200,
        "{shortened} damages were taken for torn writes"
    );
    counts
}

/// Whether what was found is the twin without its last write, which touched one key.
fn is_earlier(twin: &Twin, found: &[crate::support::Pairs]) -> bool {
    let differences = found.iter().enumerate().map(|(number, found)| {
        let expected = twin.pairs(number);
        let keys = expected.keys().chain(found.keys());
        keys.filter(|key| expected.get(*key) != found.get(*key))
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    });
    differences.sum::<usize>() <= 1
}
