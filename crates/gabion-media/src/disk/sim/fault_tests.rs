//! Tests of injected faults: each kind, at every operation it can strike.

use super::super::{Disk, LogFile};
use super::*;
use crate::Purpose;

fn disk() -> (SimDisk, Disk) {
    let sim = SimDisk::recording();
    let disk = Disk::simulated(&sim);
    (sim, disk)
}

fn next(sim: &SimDisk) -> u64 {
    sim.ops() + 1
}

fn is_eio(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(5))
}

/// All operations that a fault may strike, from a new disk, stopping at the first failure.
fn workload(disk: &Disk) -> Result<()> {
    let mut file = disk.create_append("table", Purpose::Flush)?;
    file.append(b"content")?;
    file.sync()?;
    let mut log: LogFile = disk.create_log("log", 4096)?;
    log.append(&[b"record"])?;
    log.sync_handle().sync()?;
    disk.sync_dir()?;
    disk.replace("CURRENT", b"first", Purpose::Metadata)?;
    disk.rename("table", "renamed")?;
    disk.truncate("renamed", 3)?;
    disk.sync_file("renamed")?;
    log.finish()?;
    disk.remove("log")?;
    disk.sync_dir()
}

#[test]
fn an_error_at_each_operation_is_reported_and_used_up() {
    let (sim, disk) = disk();
    workload(&disk).unwrap();
    let ops = sim.ops();
    assert_eq!(ops, 18);
    for at in 1..=ops {
        let sim = SimDisk::new();
        sim.inject(Fault::once(at, FaultKind::Eio));
        let error = workload(&Disk::simulated(&sim)).expect_err("the fault strikes");
        assert!(is_eio(&error), "operation {at}: {error}");
        assert_eq!(sim.waiting_faults(), 0);
        let struck = if at == 5 { 6 } else { at };
        assert!(
            sim.ops() >= struck && sim.ops() <= struck + 1,
            "operation {at}: {}",
            sim.ops()
        );
    }
    sim.inject(Fault::once(ops + 1, FaultKind::Eio));
    assert_eq!(sim.waiting_faults(), 1);
}

#[test]
fn a_struck_operation_does_nothing() {
    let (sim, disk) = disk();
    workload(&disk).unwrap();
    let contents = || -> Vec<_> {
        sim.names()
            .into_iter()
            .map(|name| (name.clone(), sim.raw(&name)))
            .collect()
    };
    let before = contents();
    let mut file = disk.reopen_append("renamed", Purpose::Flush).unwrap();
    sim.inject(Fault::forever(0, FaultKind::Eio));
    for result in [
        disk.create_append("new", Purpose::Flush).map(drop),
        disk.create_log("new.log", 4096).map(drop),
        file.append(b"more"),
        disk.rename("renamed", "other"),
        disk.remove("renamed"),
        disk.truncate("renamed", 0),
        disk.replace("CURRENT", b"second", Purpose::Metadata),
        disk.sync_dir(),
    ] {
        assert!(is_eio(&result.unwrap_err()));
    }
    assert_eq!(contents(), before);
    sim.clear_faults();
    file.append(b"more").unwrap();
    assert_eq!(sim.raw("renamed").unwrap(), b"conmore");
}

#[test]
fn appends_to_a_log_never_fail() {
    let (sim, disk) = disk();
    let mut log = disk.create_log("log", 4096).unwrap();
    for kind in [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite] {
        sim.inject(Fault::forever(0, kind));
    }
    log.append(&[b"record"]).unwrap();
    assert_eq!(&sim.raw("log").unwrap()[..7], b"record\0");
    let error = log.sync_handle().sync().unwrap_err();
    assert!(is_eio(&error), "{error}");
    sim.clear_faults();
    let poisoned = log.append(&[b"record"]).unwrap_err();
    assert!(matches!(poisoned, Error::Poisoned { .. }), "{poisoned}");
}

/// The failure may belong to a name that its user gives up; others count on theirs.
#[test]
fn a_failed_sync_of_the_directory_is_not_made_good_by_another() {
    let (sim, disk) = disk();
    disk.create_append("a", Purpose::Flush).unwrap();
    let lost = FaultKind::SyncFails { keep: false };
    sim.inject(Fault::once(next(&sim), lost));
    assert!(is_eio(&disk.part("b").sync_dir().unwrap_err()));
    for disk in [disk.clone(), disk.part("c")] {
        let poisoned = disk.sync_dir().unwrap_err();
        assert!(matches!(poisoned, Error::Poisoned { .. }), "{poisoned}");
    }
    assert_eq!(disk.counts().dir_syncs, 0);
    let cut = sim.power_cut(sim.ops(), 0, Tear::DropAll);
    assert_eq!(cut.names(), Vec::<String>::new());
}

#[test]
fn a_failed_sync_keeps_what_was_to_be_written() {
    let (sim, disk) = disk();
    let mut file = disk.create_append("a", Purpose::Flush).unwrap();
    disk.sync_dir().unwrap();
    file.append(b"content").unwrap();
    sim.inject(Fault::once(next(&sim), FaultKind::SyncFails { keep: true }));
    assert!(is_eio(&file.sync().unwrap_err()));
    let poisoned = file.sync().unwrap_err();
    assert!(matches!(poisoned, Error::Poisoned { .. }), "{poisoned}");
    assert_eq!(disk.counts().file_syncs, 0);
    let cut = |style| sim.power_cut(sim.ops(), 0, style).raw("a").unwrap();
    assert_eq!(cut(Tear::DropAll), b"");
    assert_eq!(cut(Tear::KeepAll), b"content");
    disk.sync_file("a").unwrap();
    assert_eq!(cut(Tear::DropAll), b"content", "a new sync writes it");
}

#[test]
fn a_failed_sync_drops_what_was_to_be_written() {
    let (sim, disk) = disk();
    let mut file = disk.create_append("a", Purpose::Flush).unwrap();
    file.append(b"synced ").unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    file.append(b"content").unwrap();
    sim.inject(Fault::once(
        next(&sim),
        FaultKind::SyncFails { keep: false },
    ));
    assert!(is_eio(&file.sync().unwrap_err()));
    disk.sync_file("a").expect("a second sync pretends success");
    assert_eq!(
        disk.read_all("a").unwrap(),
        b"synced content",
        "reads show the cached pages"
    );
    for style in Tear::ALL {
        let content = sim.power_cut(sim.ops(), 0, style).raw("a").unwrap();
        assert_eq!(content, b"synced ", "{style:?}");
    }
    let mut file = disk.reopen_append("a", Purpose::Flush).unwrap();
    file.append(b"!").unwrap();
    let kept = sim.power_cut(sim.ops(), 0, Tear::KeepAll).raw("a").unwrap();
    assert_eq!(
        kept, b"synced \0\0\0\0\0\0\0!",
        "later writes do not bring it back"
    );
}

#[test]
fn a_failed_sync_of_the_directory_keeps_or_drops_names() {
    for keep in [true, false] {
        let (sim, disk) = disk();
        disk.create_append("a", Purpose::Flush)
            .unwrap()
            .sync()
            .unwrap();
        sim.inject(Fault::once(next(&sim), FaultKind::SyncFails { keep }));
        assert!(is_eio(&disk.sync_dir().unwrap_err()));
        Disk::simulated(&sim).sync_dir().unwrap();
        assert_eq!(disk.list().unwrap(), ["a"]);
        let cut = sim.power_cut(sim.ops(), 0, Tear::DropAll);
        assert_eq!(cut.raw("a").is_some(), keep);
    }
}

#[test]
fn a_short_write_leaves_a_part_and_the_next_append_covers_it() {
    for kind in [FaultKind::ShortWrite, FaultKind::NoSpace] {
        let (sim, disk) = disk();
        let mut file = disk.create_append("a", Purpose::Flush).unwrap();
        file.append(b"head").unwrap();
        sim.inject(Fault::once(next(&sim), kind));
        let error = file.append(b"abcdef").unwrap_err();
        assert_eq!(error.is_no_space(), kind == FaultKind::NoSpace, "{error}");
        assert_eq!(
            (file.len(), sim.raw("a").unwrap()),
            (4, b"headabc".to_vec())
        );
        assert_eq!(disk.counts().bytes_of(Purpose::Flush), 4);
        file.append(b"xyzw").unwrap();
        assert_eq!(sim.raw("a").unwrap(), b"headxyzw");
    }
}

/// What is tried again as long as a disk is full wrote all that fits each time.
#[test]
fn a_file_is_not_written_anew_where_it_does_not_fit() {
    let (sim, disk) = disk();
    sim.set_capacity(Some(10_000));
    disk.create_append("a", Purpose::Flush)
        .unwrap()
        .append(&[1; 6000])
        .unwrap();
    for _ in 0..3 {
        let full = disk.rewrite("a", 4001, Purpose::Log).unwrap_err();
        assert!(full.is_no_space(), "{full}");
        assert_eq!(disk.counts().bytes_of(Purpose::Log), 0);
        assert_eq!(sim.names(), ["a"]);
    }
    // The remains of an earlier try do not count.
    sim.set_raw("a.tmp", vec![2; 3000]);
    assert_eq!(disk.room().unwrap().free_bytes, 1000);
    disk.rewrite("a", 4000, Purpose::Log).unwrap();
    assert_eq!(disk.read_all("a").unwrap(), [1; 4000]);
}

#[test]
fn a_full_disk_takes_what_fits_and_goes_on_once_space_is_freed() {
    let (sim, disk) = disk();
    sim.set_capacity(Some(10_000));
    let mut file = disk.create_append("a", Purpose::Flush).unwrap();
    file.append(&[1; 6000]).unwrap();
    assert_eq!(disk.room().unwrap().free_bytes, 4000);
    let log = disk.create_log("log", 4096).unwrap_err();
    assert!(log.is_no_space(), "{log}");
    assert!(!disk.exists("log").unwrap(), "nothing is left of it");

    let mut other = disk.create_append("b", Purpose::Flush).unwrap();
    let full = other.append(&[2; 5000]).unwrap_err();
    assert!(
        full.is_no_space() && full.to_string().contains("free space"),
        "{full}"
    );
    assert_eq!((other.len(), disk.len_of("b").unwrap()), (0, 4000));
    assert!(disk.truncate("b", 4001).unwrap_err().is_no_space());

    disk.remove("a").unwrap();
    assert_eq!(
        disk.room().unwrap().free_bytes,
        0,
        "an open file keeps its space"
    );
    drop(file);
    other.append(&[2; 5000]).unwrap();
    assert_eq!(disk.room().unwrap().free_bytes, 5000);
    drop(disk.create_log("log", 4096).unwrap());
    sim.set_capacity(None);
    other.append(&[3; 50_000]).unwrap();
}

#[test]
fn reads_fail_or_flip_one_bit_where_told() {
    let (sim, disk) = disk();
    disk.replace("a", &[0; 100], Purpose::Metadata).unwrap();
    let file = disk.open_read("a").unwrap();
    let mut buffer = [9; 10];
    sim.inject(Fault::once(sim.reads() + 2, FaultKind::ReadEio));
    file.read_exact_at(&mut buffer, 0).unwrap();
    let error = file.read_exact_at(&mut buffer, 20).unwrap_err();
    assert!(
        is_eio(&error) && error.to_string().contains("offset 20"),
        "{error}"
    );
    sim.inject(Fault::once(
        sim.reads() + 1,
        FaultKind::BitFlip { bit: 80 + 13 },
    ));
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(buffer, [0, 1 << 5, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(buffer, [0; 10], "the medium holds the right bit");
    sim.inject(Fault::once(sim.reads() + 1, FaultKind::ReadGone));
    assert!(disk.read_all("a").unwrap_err().is_not_found());
    sim.inject(Fault::forever(0, FaultKind::ReadEio));
    assert!(is_eio(&disk.read_all("a").unwrap_err()));
    disk.remove("a")
        .expect("faults of reads strike nothing else");
}

#[test]
fn files_without_a_name_live_as_long_as_their_handles() {
    let (sim, disk) = disk();
    let mut file = disk.create_append("a", Purpose::Flush).unwrap();
    file.append(b"still here").unwrap();
    let read = disk.open_read("a").unwrap();
    disk.remove("a").unwrap();
    disk.sync_dir().unwrap();
    file.append(b"!").unwrap();
    drop(file);
    let mut content = [0; 11];
    read.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"still here!");
    assert_eq!(sim.names(), Vec::<String>::new());
    drop(read);
    let inner = sim.0.lock();
    assert!(
        inner.state.file(0).is_none(),
        "nothing leads to the file any more"
    );
}

#[test]
fn too_many_open_files_refuse_more_and_change_nothing() {
    let (sim, disk) = disk();
    disk.replace("a", b"first", Purpose::Metadata).unwrap();
    let file = disk.open_read("a").unwrap();
    let clone = file.clone();
    assert_eq!(sim.open_files(), 1, "a clone is no handle of its own");
    sim.set_open_max(Some(1));
    let before = (sim.names(), sim.ops());
    let refused = [
        disk.open_read("a").map(drop),
        disk.create_append("b", Purpose::Flush).map(drop),
        disk.create_log("b", 4096).map(drop),
        disk.create_random("b").map(drop),
        disk.replace("a", b"second", Purpose::Metadata),
        disk.truncate("a", 0),
        disk.sync_file("a"),
        disk.list().map(drop),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(error.is_too_many_files(), "{error}");
    }
    assert_eq!((sim.names(), sim.ops()), before);
    assert_eq!(sim.raw("a").unwrap(), b"first");
    drop(file);
    assert!(disk.read_all("a").is_err(), "the clone holds it");
    drop(clone);
    assert_eq!(disk.read_all("a").unwrap(), b"first");
    sim.set_open_max(None);
    disk.replace("a", b"second", Purpose::Metadata).unwrap();
    let open: Vec<_> = (0..9).map(|_| disk.open_read("a").unwrap()).collect();
    assert_eq!(sim.open_files(), open.len() as u64);
    assert_eq!(sim.process_kill(sim.ops()).open_files(), 0);
}

#[test]
fn what_failed_appends_left_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let (sim, simulated) = disk();
    for disk in [simulated, Disk::system(dir.path()).unwrap()] {
        let mut file = disk.create_append("a", Purpose::Flush).unwrap();
        file.append(b"head").unwrap();
        // What an append leaves that another handle's owner sees.
        let mut other = disk.open_random("a").unwrap();
        other.write_at(4, b"half", Purpose::Flush).unwrap();
        file.cut().unwrap();
        assert_eq!(disk.read_all("a").unwrap(), b"head");
        file.append(b"tail").unwrap();
        assert_eq!(disk.read_all("a").unwrap(), b"headtail");
    }
    sim.inject(Fault::once(next(&sim), FaultKind::Eio));
    let mut file = Disk::simulated(&sim)
        .reopen_append("a", Purpose::Flush)
        .unwrap();
    assert!(is_eio(&file.cut().unwrap_err()));
}
