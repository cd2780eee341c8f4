//! Tests of the disk on the system's files.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn system_disk() -> (tempfile::TempDir, Disk) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let disk = Disk::system(dir.path()).expect("an existing directory opens");
    (dir, disk)
}

/// Runs a test on the system's files and on a simulated disk.
fn on_both_media(test: impl Fn(&Disk)) {
    let (_dir, system) = system_disk();
    test(&system);
    test(&Disk::simulated(&SimDisk::new()));
}

fn contents(disk: &Disk) -> Vec<(String, Vec<u8>)> {
    let names = disk.list().unwrap();
    names
        .into_iter()
        .map(|name| (name.clone(), disk.read_all(&name).unwrap()))
        .collect()
}

#[test]
fn a_file_is_written_anew_as_far_as_it_is_wanted() {
    on_both_media(|disk| {
        let content: Vec<u8> = (0..5 << 19).map(|at: u32| at.to_le_bytes()[1]).collect();
        for len in [0, 1, 1 << 20, (1 << 20) + 1, content.len()] {
            disk.replace("a", &content, Purpose::Flush).unwrap();
            let before = disk.counts().bytes_of(Purpose::Log);
            disk.rewrite("a", len as u64, Purpose::Log).unwrap();
            assert!(disk.read_all("a").unwrap() == content[..len]);
            let written = disk.counts().bytes_of(Purpose::Log) - before;
            assert_eq!(written, len as u64);
        }
        disk.replace("a", b"short", Purpose::Flush).unwrap();
        let refused = disk.rewrite("a", 6, Purpose::Log).unwrap_err();
        assert!(matches!(refused, Error::ShortRead { .. }), "{refused}");
        assert_eq!(contents(disk), [("a".to_owned(), b"short".to_vec())]);
    });
}

#[test]
fn a_stamp_tells_files_and_their_changes_apart() {
    on_both_media(|disk| {
        let stamp = |name: &str| disk.stamp_of(name).unwrap();
        disk.replace("a", b"granite", Purpose::Flush).unwrap();
        let first = stamp("a");
        disk.rename("a", "b").unwrap();
        disk.read_all("b").unwrap();
        assert_eq!(stamp("b"), first);
        // While the first is there, as the system may use its number again.
        disk.replace("a", b"granite", Purpose::Flush).unwrap();
        assert_ne!(stamp("a"), first);
        disk.truncate("b", 3).unwrap();
        assert_ne!(stamp("b"), first);
        assert!(disk.stamp_of("c").unwrap_err().is_not_found());
    });
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    disk.replace("a", b"granite", Purpose::Flush).unwrap();
    let first = disk.stamp_of("a").unwrap();
    let other = Disk::simulated(&sim.process_kill(sim.ops()));
    assert_eq!(other.stamp_of("a").unwrap(), first);
    // The same bytes at two places from then on are two changes.
    let changed = [disk, other].map(|disk| {
        disk.truncate("a", 3).unwrap();
        disk.stamp_of("a").unwrap()
    });
    assert_ne!(changed[0], changed[1]);
}

#[test]
fn a_mapped_file_is_read_in_place_whatever_becomes_of_its_name() {
    on_both_media(|disk| {
        for len in [0, 1, 4095, 4096, 70_000] {
            let content: Vec<u8> = (0..len).map(|at: u32| at.to_le_bytes()[1] ^ 0x55).collect();
            disk.replace("a", &content, Purpose::Flush).unwrap();
            let read = disk.open_read("a").unwrap();
            let map = read.map().unwrap();
            drop(read);
            assert_eq!(map.bytes(), content);
            disk.remove("a").unwrap();
            let clone = map.clone();
            drop(map);
            assert_eq!(clone.bytes(), content);
        }
    });
}

#[test]
fn an_appended_file_is_read_back_and_continued() {
    on_both_media(|disk| {
        let mut file = disk.create_append("a", Purpose::Flush).unwrap();
        file.append(b"hello ").unwrap();
        file.append(b"world").unwrap();
        file.sync().unwrap();
        assert_eq!(file.len(), 11);
        drop(file);
        let mut file = disk.reopen_append("a", Purpose::Gc).unwrap();
        assert_eq!(file.len(), 11);
        file.append(b"!").unwrap();
        assert_eq!(disk.read_all("a").unwrap(), b"hello world!");
        assert_eq!(disk.len_of("a").unwrap(), 12);

        let read = disk.open_read("a").unwrap();
        let mut word = [0; 5];
        read.read_exact_at(&mut word, 6).unwrap();
        assert_eq!(&word, b"world");
        let short = read.read_exact_at(&mut word, 8).unwrap_err();
        assert!(
            matches!(
                short,
                Error::ShortRead {
                    offset: 8,
                    wanted: 5,
                    ..
                }
            ),
            "{short}"
        );
    });
}

#[test]
fn creating_refuses_a_name_that_exists() {
    on_both_media(|disk| {
        drop(disk.create_append("a", Purpose::Flush).unwrap());
        let again = disk.create_append("a", Purpose::Flush).unwrap_err();
        assert!(matches!(again, Error::AlreadyExists { .. }), "{again}");
        let log = disk.create_log("a", 4096).unwrap_err();
        assert!(matches!(log, Error::AlreadyExists { .. }), "{log}");
        assert_eq!(
            disk.len_of("a").unwrap(),
            0,
            "the refused log left the file alone"
        );
    });
}

#[test]
fn names_outside_the_directory_are_refused() {
    on_both_media(|disk| {
        for name in ["", ".", "..", "a/b", "/etc/passwd", "a\0b"] {
            let results = [
                disk.exists(name).map(drop),
                disk.create_append(name, Purpose::Flush).map(drop),
                disk.open_read(name).map(drop),
                disk.create_log(name, 1).map(drop),
                disk.rename("x", name),
                disk.rename(name, "x"),
                disk.remove(name),
                disk.truncate(name, 0),
                disk.sync_file(name),
                disk.replace(name, b"", Purpose::Metadata),
                disk.lock(name).map(drop),
            ];
            for result in results {
                assert!(
                    matches!(result, Err(Error::InvalidName { .. })),
                    "{name:?}: {result:?}"
                );
            }
        }
    });
}

#[test]
fn missing_files_are_not_found() {
    on_both_media(|disk| {
        assert!(!disk.exists("a").unwrap());
        for error in [
            disk.len_of("a").unwrap_err(),
            disk.open_read("a").unwrap_err(),
            disk.reopen_append("a", Purpose::Flush).unwrap_err(),
            disk.remove("a").unwrap_err(),
            disk.rename("a", "b").unwrap_err(),
            disk.truncate("a", 0).unwrap_err(),
        ] {
            assert!(error.is_not_found(), "{error}");
            assert!(error.to_string().contains('a'), "{error}");
        }
    });
}

#[test]
fn directories_are_not_listed() {
    let (dir, disk) = system_disk();
    std::fs::create_dir(dir.path().join("subdirectory")).unwrap();
    drop(disk.create_append("file", Purpose::Flush).unwrap());
    assert_eq!(disk.list().unwrap(), ["file"]);
}

#[test]
fn names_are_listed_sorted_and_change() {
    on_both_media(|disk| {
        for name in ["b", "c", "a"] {
            disk.create_append(name, Purpose::Flush)
                .unwrap()
                .append(name.as_bytes())
                .unwrap();
        }
        disk.rename("c", "a").unwrap();
        disk.truncate("b", 3).unwrap();
        disk.sync_file("b").unwrap();
        disk.sync_dir().unwrap();
        let expected = [
            ("a".to_owned(), b"c".to_vec()),
            ("b".to_owned(), b"b\0\0".to_vec()),
        ];
        assert_eq!(contents(disk), expected);
        let open = disk.open_read("a").unwrap();
        disk.remove("a").unwrap();
        assert_eq!(disk.list().unwrap(), ["b"]);
        let mut byte = [0];
        open.read_exact_at(&mut byte, 0).unwrap();
        assert_eq!(&byte, b"c", "an open file survives its removal");
    });
}

#[test]
fn replacing_leaves_only_the_new_content() {
    on_both_media(|disk| {
        drop(
            disk.create_append("CURRENT.tmp", Purpose::Metadata)
                .unwrap(),
        );
        disk.replace("CURRENT", b"first", Purpose::Metadata)
            .unwrap();
        disk.replace("CURRENT", b"2nd", Purpose::Metadata).unwrap();
        assert_eq!(contents(disk), [("CURRENT".to_owned(), b"2nd".to_vec())]);
        let counts = disk.counts();
        assert_eq!(counts.bytes_of(Purpose::Metadata), 8);
        assert_eq!((counts.file_syncs, counts.dir_syncs), (2, 2));
    });
}

#[test]
fn a_log_file_is_zero_behind_its_position() {
    on_both_media(|disk| {
        let mut log = disk.create_log("1.log", 100).unwrap();
        let sync = log.sync_handle();
        log.append(&[b"ab", b"", b"cde"]).unwrap();
        sync.sync().unwrap();
        assert_eq!(
            (log.position(), log.remaining(), log.capacity()),
            (5, 95, 100)
        );
        let mut expected = b"abcde".to_vec();
        expected.resize(100, 0);
        assert_eq!(disk.read_all("1.log").unwrap(), expected);

        let full = log.append(&[&[1; 90], &[2; 6]]).unwrap_err();
        assert!(
            matches!(
                full,
                Error::LogFull {
                    wanted: 96,
                    remaining: 95,
                    ..
                }
            ),
            "{full}"
        );
        assert_eq!(
            disk.read_all("1.log").unwrap(),
            expected,
            "nothing of it was written"
        );
        log.append(&[&[7; 95]]).unwrap();
        assert_eq!(log.remaining(), 0);
        assert_eq!(disk.counts().bytes_of(Purpose::Log), 100);
    });
}

#[test]
fn a_finished_log_file_ends_at_its_position() {
    on_both_media(|disk| {
        let mut log = disk.create_log("1.log", 1 << 20).unwrap();
        let sync = log.sync_handle();
        log.append(&[b"record"]).unwrap();
        log.finish().unwrap();
        sync.sync().unwrap();
        assert_eq!(disk.read_all("1.log").unwrap(), b"record");
        let empty = disk.create_log("2.log", 4096).unwrap();
        empty.finish().unwrap();
        assert_eq!(disk.len_of("2.log").unwrap(), 0);
    });
}

#[test]
fn a_log_file_that_cannot_be_reserved_leaves_nothing() {
    on_both_media(|disk| {
        assert!(disk.create_log("empty.log", 0).is_err());
        let too_large = disk.create_log("large.log", 1 << 60).unwrap_err();
        assert!(too_large.to_string().contains("large.log"), "{too_large}");
        assert_eq!(disk.list().unwrap(), Vec::<String>::new());
    });
}

#[test]
fn a_log_file_is_synced_while_it_is_appended_to() {
    on_both_media(|disk| {
        let mut log = disk.create_log("1.log", 1 << 16).unwrap();
        let sync = log.sync_handle();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let syncer = scope.spawn(|| {
                // ORDER: Relaxed, the flag only ends the loop; the scope's join orders the rest.
                while !done.load(Ordering::Relaxed) {
                    sync.sync().unwrap();
                }
            });
            for round in 0..=255_u8 {
                log.append(&[&[round; 256]]).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            syncer.join().unwrap();
        });
        let expected: Vec<u8> = (0..=255_u8).flat_map(|round| [round; 256]).collect();
        assert_eq!(disk.read_all("1.log").unwrap(), expected);
    });
}

#[test]
fn the_lock_has_one_holder_and_tells_which() {
    let (dir, disk) = system_disk();
    check_lock(&disk, &Disk::system(dir.path()).unwrap());
    let sim = SimDisk::new();
    check_lock(&Disk::simulated(&sim), &Disk::simulated(&sim));
}

fn check_lock(disk: &Disk, other: &Disk) {
    let lock = disk.lock("LOCK").unwrap();
    let refused = other.lock("LOCK").unwrap_err();
    let me = std::process::id();
    assert!(
        matches!(&refused, Error::Locked { holder: Some(holder), .. } if holder.process == me),
        "{refused}"
    );
    drop(lock);
    let again = other.lock("LOCK").unwrap();
    assert!(matches!(disk.lock("LOCK"), Err(Error::Locked { .. })));
    drop(again);
    assert_eq!(disk.list().unwrap(), ["LOCK"]);
}

#[test]
fn directories_are_made_with_their_parents() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b/c");
    assert!(Disk::system(&deep).unwrap_err().is_not_found());
    let disk = Disk::create_system(&deep).unwrap();
    disk.replace("file", b"x", Purpose::Metadata).unwrap();
    assert_eq!(disk.path(), deep);
    assert_eq!(disk.path_of("file"), deep.join("file"));
    let again = Disk::create_system(&deep).unwrap();
    assert_eq!(again.read_all("file").unwrap(), b"x");
    assert!(again.room().unwrap().free_bytes > 0);
    let blocked = Disk::create_system(&deep.join("file/under")).unwrap_err();
    assert!(matches!(blocked, Error::Io { .. }), "{blocked}");
}

#[test]
fn a_recycled_log_file_keeps_its_content_and_space() {
    on_both_media(|disk| {
        let mut log = disk.create_log("1.log", 100_000).unwrap();
        // Across the border between calls and mapping, and back again behind a sync.
        for round in 0..400_u32 {
            log.append(&[&round.to_le_bytes(), &[7; 96]]).unwrap();
            if round % 250 == 249 {
                log.sync_handle().sync().unwrap();
            }
        }
        log.rest();
        let content = disk.read_all("1.log").unwrap();
        let rounds = content.chunks(100).take(400).enumerate();
        for (round, record) in rounds {
            assert_eq!(record[..4], u32::try_from(round).unwrap().to_le_bytes());
            assert_eq!(record[4..], [7; 96]);
        }

        let held = log.sync_handle();
        let refused = disk.recycle_log(log, "2.log").unwrap();
        assert!(refused.is_none(), "a sync may be running");
        assert_eq!(disk.list().unwrap(), ["1.log"]);
        drop(held);

        let other = disk.create_log("3.log", 5000).unwrap();
        let taken = disk.recycle_log(other, "1.log").unwrap_err();
        assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken}");
        let mut other = disk.create_log("4.log", 5000).unwrap();
        other.append(&[&[9; 5000]]).unwrap();
        let mut again = disk.recycle_log(other, "2.log").unwrap().unwrap();
        assert_eq!(disk.list().unwrap(), ["1.log", "2.log", "3.log"]);
        assert_eq!((again.position(), again.capacity()), (0, 5000));
        assert!(again.path().ends_with("2.log"));
        again.append(&[b"new"]).unwrap();
        again.sync_handle().sync().unwrap();
        let content = disk.read_all("2.log").unwrap();
        assert_eq!(
            (&content[..3], &content[3..]),
            (&b"new"[..], &[9; 4997][..])
        );
    });
}

#[test]
fn what_was_just_written_is_in_memory_and_announcing_it_changes_nothing() {
    on_both_media(|disk| {
        disk.replace("a", &[7; 10_000], Purpose::Flush).unwrap();
        let file = disk.open_read("a").unwrap();
        // The last place is behind the end of the file.
        for offset in [0, 9_999, 10_000, 1 << 40] {
            assert!(file.is_in_memory(offset), "{offset}");
        }
        for place in [0..10_000, 5_000..5_000, 9_000..20_000] {
            file.will_need(place);
        }
        assert_eq!(disk.read_all("a").unwrap(), [7; 10_000]);
    });
}

#[test]
fn a_trace_tells_what_was_announced_before_it_was_read() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    disk.replace("a", &[7; 100], Purpose::Flush).unwrap();
    disk.replace("b", &[7; 100], Purpose::Flush).unwrap();
    let [a, b] = ["a", "b"].map(|name| disk.open_read(name).unwrap());
    a.will_need(0..100);
    sim.begin_trace();
    a.will_need(10..20);
    for (file, offset) in [(&a, 10), (&a, 15), (&b, 10)] {
        file.read_exact_at(&mut [0; 5], offset).unwrap();
    }
    a.read_exact_at(&mut [0; 6], 15).unwrap();
    let steps = sim.end_trace();
    assert_eq!(steps.len(), 5);
    let announced: Vec<bool> = (1..5)
        .map(|at| steps[at].was_announced(&steps[..at]))
        .collect();
    assert_eq!(announced, [true, true, false, false]);
    assert!(sim.end_trace().is_empty());
    sim.set_forgets(true);
    assert!(!a.is_in_memory(0) && a.read_exact_at(&mut [0; 5], 0).is_ok());
}

/// A sync interrupted the other processors for each page of a log that the process had mapped.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn full_pages_of_a_log_file_are_unmapped_and_keep_their_content() {
    let (dir, disk) = system_disk();
    let capacity = 3 << 20;
    let mut log = disk.create_log("log", capacity).unwrap();
    let mut expected = Vec::new();
    for number in 0_usize.. {
        let record = number.to_le_bytes().repeat(1 + number % 50);
        if log.append(&[&record]).is_err() {
            break;
        }
        expected.extend_from_slice(&record);
    }
    // What the process has mapped of the file, by the system's count.
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let path = dir.path().join("log");
    let of_log = maps
        .lines()
        .skip_while(|line| !line.ends_with(path.to_str().unwrap()));
    let resident = of_log.filter_map(|line| line.strip_prefix("Rss:")).next();
    if let Some(resident) = resident {
        let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kib <= 512, "{kib} KiB of 3 MiB are mapped");
    }
    log.sync_handle().sync().unwrap();
    let position = usize::try_from(log.position()).unwrap();
    assert_eq!(position, expected.len());
    assert_eq!(std::fs::read(path).unwrap()[..position], expected);
}
