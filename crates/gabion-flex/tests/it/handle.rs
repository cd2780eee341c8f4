//! A space as a file of the standard library, beside a cursor on a vector.

use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom, Write};

use gabion_flex::{FlexSpace, Options};
use gabion_media::{Disk, SimDisk};

use crate::support::{SeededRng, base_seed, bytes_of};

fn space() -> FlexSpace {
    FlexSpace::open_on(Disk::simulated(&SimDisk::new()), Options::default()).unwrap()
}

#[test]
fn a_file_does_what_a_cursor_does() {
    let mut random = SeededRng::new(base_seed());
    let space = space();
    let mut file = space.file();
    let mut twin = Cursor::new(Vec::new());
    for number in 0..3_000 {
        match random.below(8) {
            0 | 1 => {
                let data = bytes_of(number, random.index(3_000));
                file.write_all(&data).unwrap();
                twin.write_all(&data).unwrap();
            }
            2..=4 => {
                let len = if random.one_in(30) { 200_000 } else { 2_000 };
                let mut found = vec![1; random.index(len)];
                let count = file.read(&mut found).unwrap();
                let mut expected = vec![2; count];
                twin.read_exact(&mut expected).unwrap();
                assert!(found[..count] == expected);
                let end = twin.position() >= twin.get_ref().len() as u64;
                assert!(
                    count > 0 || found.is_empty() || end,
                    "a read of nothing before the end"
                );
            }
            5 => {
                let to = match random.below(3) {
                    0 => SeekFrom::Start(random.below(twin.get_ref().len() as u64 + 10)),
                    1 => SeekFrom::Current(-i64::try_from(random.below(3_000)).unwrap()),
                    _ => SeekFrom::End(-i64::try_from(random.below(3_000)).unwrap()),
                };
                match (file.seek(to), twin.seek(to)) {
                    (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                    (Err(found), Err(_)) => assert_eq!(found.kind(), ErrorKind::InvalidInput),
                    other => panic!("{to:?}: {other:?}"),
                }
            }
            6 if twin.position() <= twin.get_ref().len() as u64 => {
                let data = bytes_of(number, random.index(1_000));
                file.insert(&data).unwrap();
                let at = usize::try_from(twin.position()).unwrap();
                twin.get_mut().splice(at..at, data.iter().copied());
                twin.set_position((at + data.len()) as u64);
            }
            7 => {
                let at = usize::try_from(twin.position()).unwrap();
                let left = twin.get_ref().len().saturating_sub(at);
                let len = random.index(left.min(2_000) + 1);
                if left > 0 {
                    file.collapse(len as u64).unwrap();
                    twin.get_mut().drain(at..at + len);
                }
            }
            _ => {}
        }
    }
    file.rewind().unwrap();
    let mut all = Vec::new();
    file.read_to_end(&mut all).unwrap();
    assert!(all == *twin.get_ref());
}

#[test]
fn what_was_read_ahead_is_forgotten_when_the_space_changes() {
    let space = space();
    space.append(b"first\nsecond\n").unwrap();
    let mut file = space.file();
    let mut two = [0; 2];
    file.read_exact(&mut two).unwrap();
    space.replace_range(0, 5, b"zeroth").unwrap();
    let mut lines = BufReader::new(file).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "roth");
    assert_eq!(lines.next().unwrap().unwrap(), "second");
}

#[test]
fn a_space_is_removed_without_what_else_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("space");
    assert!(!gabion_flex::exists(&path).unwrap());
    std::fs::create_dir(&path).unwrap();
    assert!(!gabion_flex::exists(&path).unwrap());
    let space = FlexSpace::open(&path, Options::default()).unwrap();
    space.append(b"granite").unwrap();
    space.checkpoint().unwrap();
    assert!(gabion_flex::exists(&path).unwrap());
    let error = gabion_flex::remove(&path).unwrap_err();
    assert!(error.to_string().contains("locked"), "{error}");
    let point = space.durable_point();
    space.close();
    let report = gabion_flex::check_reached(&path, point).unwrap();
    assert_eq!((report.reached, report.problems.len()), (point, 0));
    let later = gabion_flex::DurablePoint {
        tree_version: point.tree_version + 1,
        log_offset: 0,
    };
    let report = gabion_flex::check_reached(&path, later).unwrap();
    assert_eq!(report.problems.len(), 1);
    let disk = Disk::system(&path).unwrap();
    disk.create_random("notes").unwrap();
    gabion_flex::remove(&path).unwrap();
    assert!(!gabion_flex::exists(&path).unwrap());
    let names = std::fs::read_dir(&path).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["notes"]);
}
