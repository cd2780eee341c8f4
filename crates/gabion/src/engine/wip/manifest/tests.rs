//! The manifest as a whole: against a naive twin, against damage, and against interrupted creation.

use gabion_media::crc32c;
use gabion_media::{Disk, Fault, FaultKind, SimDisk, Tear};
use proptest::prelude::*;

use super::edit::{FileMeta, TableAge, VersionEdit};
use super::recovery::{ManifestLookup, inspect, read};
use super::state::ManifestState;
use super::writepath::Manifest;
use crate::engine::expiries::{Expiries, MARKS};
use crate::names::{CURRENT, LOCK, log_name, manifest_name, table_name};
use crate::{Error, KeyspaceOptions};

fn meta(file: u64) -> FileMeta {
    FileMeta {
        file_bytes: file * 100,
        entries: file,
        smallest: vec![b'a'; 3],
        largest: file.to_le_bytes().to_vec(),
        sketch: vec![1; 20],
        expiries: file.is_multiple_of(2).then(|| {
            Box::new(Expiries {
                entries: 1,
                marks: [file; MARKS],
            })
        }),
        ..FileMeta::default()
    }
}

fn bucket(id: u64, lower: &[u8]) -> VersionEdit {
    VersionEdit::AddBucket {
        id,
        keyspace: 1,
        lower: lower.to_vec(),
        flushed_seq: 0,
    }
}

/// Groups as an engine writes them: a keyspace, a flush, a split with shared tables, a compaction,
/// another keyspace and its drop.
fn history() -> Vec<Vec<VersionEdit>> {
    let table = |bucket, level, run, file| VersionEdit::AddTable {
        bucket,
        level,
        run,
        file,
    };
    let new = |file| VersionEdit::NewFile {
        file,
        meta: meta(file),
        age: TableAge::default(),
    };
    vec![
        vec![
            VersionEdit::AddKeyspace {
                id: 1,
                name: "default".to_owned(),
            },
            bucket(1, b""),
        ],
        vec![
            new(1),
            table(1, 0, 1, 1),
            VersionEdit::FlushedSeq {
                bucket: 1,
                seq: 500,
            },
            VersionEdit::LogTail { segment: 2 },
            VersionEdit::LastSeq { seq: 510 },
        ],
        vec![VersionEdit::LogSealed {
            segment: 2,
            length: 4096,
        }],
        vec![
            VersionEdit::RemoveBucket { id: 1 },
            bucket(2, b""),
            bucket(3, b"m"),
            table(2, 0, 1, 1),
            table(3, 0, 1, 1),
        ],
        vec![
            new(2),
            VersionEdit::RemoveTable { bucket: 2, file: 1 },
            table(2, 1, 1, 2),
        ],
        vec![
            new(3),
            VersionEdit::RemoveTable { bucket: 3, file: 1 },
            table(3, 1, 1, 3),
            VersionEdit::DropFile { file: 1 },
        ],
        vec![
            VersionEdit::AddKeyspace {
                id: 2,
                name: "another".to_owned(),
            },
            VersionEdit::AddBucket {
                id: 4,
                keyspace: 2,
                lower: Vec::new(),
                flushed_seq: 0,
            },
            new(4),
            table(4, 0, 1, 4),
        ],
        vec![VersionEdit::DropKeyspace { id: 2 }],
    ]
}

/// A store that was written and not closed, and its states after each group.
fn written(sim: &SimDisk) -> Vec<ManifestState> {
    let mut manifest = Manifest::create(&Disk::simulated(sim)).unwrap();
    let mut states = vec![manifest.state().clone()];
    for group in history() {
        manifest.apply(&group).unwrap();
        states.push(manifest.state().clone());
    }
    states
}

#[test]
fn the_state_survives_reopening_and_clean_closing() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    assert_eq!(inspect(&disk).unwrap(), ManifestLookup::Free);
    let states = written(&sim);
    let last = states.last().unwrap();
    assert_eq!(last.files.keys().copied().collect::<Vec<_>>(), [2, 3]);
    assert_eq!((last.next_file, last.next_bucket, last.log_tail), (5, 5, 2));
    assert_eq!((last.keyspaces.len(), last.next_keyspace), (1, 3));
    assert_eq!(last.buckets[&3].lower, b"m");
    for number in 2..5 {
        assert_eq!(inspect(&disk).unwrap(), ManifestLookup::Store);
        let manifest = Manifest::open(&disk).unwrap();
        assert_eq!(manifest.state(), last);
        assert_eq!(sim.names(), [CURRENT.to_owned(), manifest_name(number)]);
    }
    let mut manifest = Manifest::open(&disk).unwrap();
    manifest
        .close_clean(&[VersionEdit::LogSealed {
            segment: 3,
            length: 64,
        }])
        .unwrap();
    let mut manifest = Manifest::open(&disk).unwrap();
    assert_eq!(manifest.state().sealed, [(2, 4096), (3, 64)].into());
    manifest.close_clean(&[]).unwrap();
    assert_eq!(read(&disk).unwrap().torn, None);
}

#[test]
fn an_overgrown_manifest_is_begun_anew() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    let mut manifest = Manifest::create(&disk).unwrap();
    manifest.apply(&history()[0]).unwrap();
    let seal = |segment| VersionEdit::LogSealed {
        segment,
        length: 1 << 40,
    };
    let group: Vec<VersionEdit> = (1..100_000).map(seal).collect();
    for segment in 0..50 {
        manifest.apply(&group).unwrap();
        manifest
            .apply(&[VersionEdit::LogTail {
                segment: 100_000 + segment,
            }])
            .unwrap();
    }
    let names = sim.names();
    assert_eq!(names.len(), 2);
    assert_ne!(names[1], manifest_name(1));
    assert!(disk.len_of(&names[1]).unwrap() < 20 << 20);
    assert_eq!(&read(&disk).unwrap().state, manifest.state());
}

#[test]
fn a_cut_leaves_the_groups_before_it() {
    let sim = SimDisk::new();
    let states = written(&sim);
    let disk = Disk::simulated(&sim);
    let name = manifest_name(1);
    let whole = sim.raw(&name).unwrap();
    let mut seen = 0;
    for len in 0..whole.len() {
        sim.set_raw(&name, whole[..len].to_vec());
        match read(&disk) {
            Ok(loaded) => {
                let index = states
                    .iter()
                    .position(|state| *state == loaded.state)
                    .unwrap();
                assert!(index >= seen, "{len}");
                seen = index;
            }
            // Only what was durable before CURRENT named the manifest is always required.
            Err(Error::Corruption { .. }) => assert!(seen == 0 && len < 100, "{len}"),
            Err(error) => panic!("{len}: {error}"),
        }
    }
    assert_eq!(seen, states.len() - 1);
}

#[test]
fn every_flip_is_corruption_or_hits_the_last_mark() {
    let sim = SimDisk::new();
    let states = written(&sim);
    let disk = Disk::simulated(&sim);
    for name in [manifest_name(1), CURRENT.to_owned()] {
        let whole = sim.raw(&name).unwrap();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                sim.set_raw(&name, damaged);
                match read(&disk) {
                    Err(Error::Corruption { file, offset, .. }) => {
                        assert_eq!(file, disk.path_of(&name));
                        assert!(offset <= at as u64);
                    }
                    Err(error) => panic!("{name} {at}: {error}"),
                    Ok(loaded) => {
                        assert!(name != CURRENT && at >= whole.len() - 16, "{name} {at}");
                        assert_eq!(Some(&loaded.state), states.last());
                        assert_eq!(loaded.torn, Some(whole.len() as u64 - 16));
                    }
                }
            }
        }
        sim.set_raw(&name, whole);
    }
}

#[test]
fn after_a_clean_close_every_byte_counts() {
    let sim = SimDisk::new();
    let disk = Disk::simulated(&sim);
    written(&sim);
    let seal = VersionEdit::LogSealed {
        segment: 3,
        length: 64,
    };
    Manifest::open(&disk).unwrap().close_clean(&[seal]).unwrap();
    let name = manifest_name(2);
    let whole = sim.raw(&name).unwrap();
    let mut longer = whole.clone();
    longer.push(0);
    let cuts = (0..whole.len()).map(|len| whole[..len].to_vec());
    let flips = (0..whole.len()).map(|at| {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        damaged
    });
    for damaged in cuts.chain(flips).chain([longer]) {
        sim.set_raw(&name, damaged);
        assert!(matches!(read(&disk), Err(Error::Corruption { .. })));
    }
    disk.remove(&name).unwrap();
    assert!(
        matches!(read(&disk), Err(Error::Corruption { .. })),
        "missing"
    );
}

#[test]
fn directories_are_told_apart() {
    let with = |names: &[&str]| {
        let sim = SimDisk::new();
        names
            .iter()
            .for_each(|name| sim.set_raw(name, b"something".to_vec()));
        inspect(&Disk::simulated(&sim))
    };
    let first = manifest_name(1);
    let second = manifest_name(2);
    for names in [
        &[][..],
        &[LOCK],
        &[LOCK, &first],
        &[LOCK, &first, "CURRENT.tmp"],
        &[LOCK, &first, &second],
    ] {
        assert_eq!(with(names).unwrap(), ManifestLookup::Free, "{names:?}");
    }
    for name in [log_name(1), table_name(7)] {
        let error = with(&[LOCK, &name]).unwrap_err().to_string();
        assert!(
            error.contains("CURRENT is missing") && error.contains(&name),
            "{error}"
        );
    }
    let error = with(&["holiday.jpg"]).unwrap_err().to_string();
    assert!(error.contains("holiday.jpg"), "{error}");

    let sim = SimDisk::new();
    sim.set_raw(CURRENT, b"MANIFEST-000004\n".to_vec());
    let error = Manifest::open(&Disk::simulated(&sim)).unwrap_err();
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
}

#[test]
fn newer_formats_are_refused_by_name() {
    for name in [CURRENT.to_owned(), manifest_name(1)] {
        let sim = SimDisk::new();
        written(&sim);
        let mut bytes = sim.raw(&name).unwrap();
        bytes[8] = 5;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..32]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        sim.set_raw(&name, bytes);
        let error = read(&Disk::simulated(&sim)).unwrap_err();
        assert!(
            matches!(error, Error::NewerFormat { found: 5, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_failure_stops_the_manifest_and_leaves_the_groups_before() {
    let history = history();
    let kinds = [
        FaultKind::Eio,
        FaultKind::ShortWrite,
        FaultKind::SyncFails { keep: true },
        FaultKind::SyncFails { keep: false },
    ];
    for kind in kinds {
        for at in 0.. {
            let sim = SimDisk::new();
            let disk = Disk::simulated(&sim);
            let mut manifest = Manifest::create(&disk).unwrap();
            sim.inject(Fault::once(sim.ops() + 1 + at, kind));
            let mut states = vec![manifest.state().clone()];
            let mut failed = None;
            for (index, group) in history.iter().enumerate() {
                match manifest.apply(group) {
                    Ok(()) => assert!(failed.is_none(), "an edit was taken after a failure"),
                    Err(_) => failed = failed.or(Some(index)),
                }
                states.push(manifest.state().clone());
            }
            drop(manifest);
            let struck = sim.waiting_faults() == 0;
            sim.clear_faults();
            let loaded = read(&disk).unwrap().state;
            let acknowledged = failed.unwrap_or(history.len());
            let expected = &states[acknowledged..=(acknowledged + 1).min(history.len())];
            assert!(expected.contains(&loaded), "{kind:?} {at}");
            assert_eq!(Manifest::open(&disk).unwrap().state(), &loaded);
            if !struck {
                break;
            }
        }
    }
}

/// What a crash after each operation from `from` on leaves is one of the states, none of them older
/// than the one that was reached at the operation.
fn assert_images(sim: &SimDisk, from: u64, reached: &[(u64, ManifestState)]) {
    for op in from..=sim.ops() {
        let first = reached.partition_point(|(at, _)| *at <= op) - 1;
        let allowed = &reached[first..reached.len().min(first + 2)];
        let cuts = Tear::ALL.map(|style| sim.power_cut(op, op, style));
        for image in cuts.into_iter().chain([sim.process_kill(op)]) {
            let found = read(&Disk::simulated(&image)).unwrap().state;
            assert!(allowed.iter().any(|(_, state)| *state == found), "{op}");
        }
    }
}

/// Applies groups of which each may find no space, and tries those again; returns the states, from
/// which operation on they are reached, and how many groups were refused. `None` when a sync found
/// no space, which ends the manifest.
fn apply_all(
    sim: &SimDisk,
    manifest: &mut Manifest,
    groups: &[Vec<VersionEdit>],
) -> Option<(Vec<(u64, ManifestState)>, usize)> {
    let mut reached = vec![(sim.ops(), manifest.state().clone())];
    let mut refused = 0;
    for group in groups {
        let before = manifest.state().clone();
        if let Err(error) = manifest.apply(group) {
            assert!(error.is_no_space(), "{error}");
            if !manifest.is_usable() {
                return None;
            }
            assert_eq!(*manifest.state(), before);
            assert_eq!(read(&Disk::simulated(sim)).unwrap().state, before);
            sim.set_capacity(None);
            manifest.apply(group).unwrap();
            refused += 1;
        }
        reached.push((sim.ops(), manifest.state().clone()));
    }
    Some((reached, refused))
}

/// A group that found no space ended the manifest, and with it all writing.
#[test]
fn a_full_disk_refuses_groups_that_are_taken_when_there_is_space() {
    let history = history();
    let mut refusals = 0;
    // So many bytes fit in front of the one that does not, of a group or of the mark behind it.
    for room in 0..500 {
        let sim = SimDisk::recording();
        let disk = Disk::simulated(&sim);
        let mut manifest = Manifest::create(&disk).unwrap();
        let from = sim.ops();
        let used: usize = sim
            .names()
            .iter()
            .filter_map(|name| sim.raw(name))
            .map(|f| f.len())
            .sum();
        sim.set_capacity(Some(used as u64 + room));
        let (reached, refused) = apply_all(&sim, &mut manifest, &history).expect("no sync fails");
        refusals += refused;
        if room % 7 == 0 {
            assert_images(&sim, from, &reached);
        }
        sim.set_capacity(None);
        manifest.close_clean(&[]).unwrap();
        let loaded = read(&disk).unwrap();
        assert_eq!((&loaded.state, loaded.torn), (manifest.state(), None));
    }
    assert!(refusals > 200, "{refusals}");
}

/// The same at each operation of groups of which one is followed by a new manifest.
#[test]
fn a_manifest_that_finds_no_space_to_be_renewed_goes_on() {
    let history = history();
    let (mut refusals, mut ended, mut kept) = (0, 0, 0);
    for at in 0.. {
        let sim = SimDisk::recording();
        let disk = Disk::simulated(&sim);
        let mut manifest = Manifest::create(&disk).unwrap();
        let from = sim.ops();
        apply_all(&sim, &mut manifest, &history[..2]).unwrap();
        sim.inject(Fault::once(sim.ops() + 1 + at, FaultKind::NoSpace));
        manifest.renew_next();
        let applied = apply_all(&sim, &mut manifest, &history[2..]);
        let struck = sim.waiting_faults() == 0;
        sim.clear_faults();
        let Some((reached, refused)) = applied else {
            assert!(struck);
            ended += 1;
            let state = read(&disk).unwrap().state;
            let again = Manifest::open(&Disk::simulated(&sim)).unwrap();
            assert_eq!(again.state(), &state);
            continue;
        };
        refusals += refused;
        let begun = reached[0].0;
        assert_images(&sim, begun.max(from), &reached);
        let is_old = sim.raw(&manifest_name(1)).is_some();
        kept += usize::from(is_old);
        assert_eq!(sim.names().len(), 2, "{:?}", sim.names());
        if disk.sync_dir().is_err() {
            // A sync of the directory was struck, and there is none after that: not in this life.
            manifest.close_clean(&[]).unwrap_err();
            let again = Manifest::open(&Disk::simulated(&sim)).unwrap();
            assert!(is_old && again.state() == manifest.state());
            continue;
        }
        if is_old {
            // There is space again.
            manifest.renew_next();
            manifest
                .apply(&[VersionEdit::LastSeq { seq: 900 }])
                .unwrap();
            assert!(sim.raw(&manifest_name(1)).is_none(), "it is renewed");
        }
        manifest.close_clean(&[]).unwrap();
        assert_eq!(read(&disk).unwrap().state, *manifest.state());
        if !struck {
            break;
        }
    }
    println!("manifest: {refusals} groups refused, {ended} ended, {kept} not renewed");
    assert!(refusals > 3 && kept > 4 && ended > 3);
}

/// The naive twin of the state: plain lists, searched from front to end.
#[derive(Clone, Default)]
struct Twin {
    keyspaces: Vec<(u32, String)>,
    options: Vec<(u32, KeyspaceOptions)>,
    buckets: Vec<(u64, u32, Vec<u8>, u64)>,
    tables: Vec<(u64, u8, u64, u64)>,
    files: Vec<(u64, TableAge)>,
    sealed: Vec<(u64, u64)>,
    tail: u64,
    next_keyspace: u32,
    moment: u64,
}

impl Twin {
    fn apply(&mut self, edit: &VersionEdit) -> bool {
        let has_bucket = |twin: &Twin, id: u64| twin.buckets.iter().any(|known| known.0 == id);
        let has_file = |twin: &Twin, file: u64| twin.files.iter().any(|known| known.0 == file);
        let valid = match edit {
            VersionEdit::AddKeyspace { id, name } => {
                *id >= self.next_keyspace && !self.keyspaces.iter().any(|known| known.1 == *name)
            }
            VersionEdit::DropKeyspace { id } | VersionEdit::SetOptions { id, .. } => {
                self.keyspaces.iter().any(|known| known.0 == *id)
            }
            VersionEdit::AddBucket {
                id,
                keyspace,
                lower,
                ..
            } => {
                self.keyspaces.iter().any(|known| known.0 == *keyspace)
                    && !self
                        .buckets
                        .iter()
                        .any(|known| known.0 == *id || (known.1, &known.2) == (*keyspace, lower))
            }
            VersionEdit::RemoveBucket { id } | VersionEdit::FlushedSeq { bucket: id, .. } => {
                has_bucket(self, *id)
            }
            VersionEdit::AddTable { bucket, file, .. } => {
                has_bucket(self, *bucket)
                    && has_file(self, *file)
                    && !self
                        .tables
                        .iter()
                        .any(|known| (known.0, known.3) == (*bucket, *file))
            }
            VersionEdit::RemoveTable { bucket, file } => self
                .tables
                .iter()
                .any(|known| (known.0, known.3) == (*bucket, *file)),
            VersionEdit::NewFile { file, .. } => !has_file(self, *file),
            VersionEdit::DropFile { file } => {
                has_file(self, *file) && !self.tables.iter().any(|known| known.3 == *file)
            }
            VersionEdit::LogSealed { segment, length } => !self
                .sealed
                .iter()
                .any(|known| known.0 == *segment && known.1 != *length),
            VersionEdit::LogTail { .. }
            | VersionEdit::Moment { .. }
            | VersionEdit::LastSeq { .. }
            | VersionEdit::NextFile { .. }
            | VersionEdit::NextBucket { .. }
            | VersionEdit::NextKeyspace { .. } => true,
        };
        if valid {
            self.change(edit.clone());
        }
        valid
    }

    fn change(&mut self, edit: VersionEdit) {
        match edit {
            VersionEdit::AddKeyspace { id, name } => {
                self.keyspaces.push((id, name));
                self.next_keyspace = id + 1;
            }
            VersionEdit::DropKeyspace { id } => {
                self.keyspaces.retain(|known| known.0 != id);
                self.options.retain(|known| known.0 != id);
                let buckets = self.buckets.clone();
                let referred: Vec<u64> = self.tables.iter().map(|known| known.3).collect();
                for bucket in buckets.iter().filter(|known| known.1 == id) {
                    self.change(VersionEdit::RemoveBucket { id: bucket.0 });
                }
                // Tables that no bucket referred to before are none of the keyspace's.
                for file in referred {
                    if !self.tables.iter().any(|known| known.3 == file) {
                        self.change(VersionEdit::DropFile { file });
                    }
                }
            }
            VersionEdit::NextKeyspace { id } => self.next_keyspace = self.next_keyspace.max(id),
            VersionEdit::AddBucket {
                id,
                keyspace,
                lower,
                flushed_seq,
            } => {
                self.buckets.push((id, keyspace, lower, flushed_seq));
            }
            VersionEdit::RemoveBucket { id } => {
                self.buckets.retain(|known| known.0 != id);
                self.tables.retain(|known| known.0 != id);
            }
            VersionEdit::AddTable {
                bucket,
                level,
                run,
                file,
            } => {
                self.tables.push((bucket, level, run, file));
            }
            VersionEdit::RemoveTable { bucket, file } => {
                self.tables
                    .retain(|known| (known.0, known.3) != (bucket, file));
            }
            VersionEdit::NewFile { file, age, .. } => self.files.push((file, age)),
            VersionEdit::DropFile { file } => self.files.retain(|known| known.0 != file),
            VersionEdit::FlushedSeq { bucket, seq } => {
                for known in self.buckets.iter_mut().filter(|known| known.0 == bucket) {
                    known.3 = known.3.max(seq);
                }
            }
            VersionEdit::LogTail { segment } => {
                self.tail = self.tail.max(segment);
                self.sealed.retain(|known| known.0 >= self.tail);
            }
            VersionEdit::LogSealed { segment, length } => {
                if segment >= self.tail && !self.sealed.contains(&(segment, length)) {
                    self.sealed.push((segment, length));
                }
            }
            VersionEdit::SetOptions { id, options } => {
                self.options.retain(|known| known.0 != id);
                if options != KeyspaceOptions::default() {
                    self.options.push((id, options));
                }
            }
            VersionEdit::Moment { moment } => self.moment = self.moment.max(moment),
            VersionEdit::LastSeq { .. }
            | VersionEdit::NextFile { .. }
            | VersionEdit::NextBucket { .. } => {}
        }
    }

    fn check(&self, state: &ManifestState) {
        let mut twin = self.clone();
        twin.keyspaces.sort();
        twin.buckets.sort();
        twin.files.sort_unstable_by_key(|known| known.0);
        twin.sealed.sort_unstable();
        let keyspaces: Vec<_> = state.keyspaces.clone().into_iter().collect();
        assert_eq!(keyspaces, twin.keyspaces);
        twin.options.sort_unstable_by_key(|known| known.0);
        let options: Vec<_> = state.options.clone().into_iter().collect();
        assert_eq!(options, twin.options);
        let buckets = state.buckets.iter();
        let buckets: Vec<_> = buckets
            .map(|(id, state)| (*id, state.keyspace, state.lower.clone(), state.flushed_seq))
            .collect();
        assert_eq!(buckets, twin.buckets);
        for (id, bucket) in &state.buckets {
            let tables = bucket.tables.iter();
            let tables: Vec<_> = tables
                .map(|table| (*id, table.level, table.run, table.file))
                .collect();
            let expected = twin.tables.iter().filter(|known| known.0 == *id);
            assert_eq!(tables, expected.copied().collect::<Vec<_>>());
        }
        let files: Vec<_> = state
            .files
            .iter()
            .map(|(&file, of)| (file, of.age))
            .collect();
        assert_eq!(files, twin.files);
        for (file, file_state) in &state.files {
            let refs = twin.tables.iter().filter(|known| known.3 == *file).count();
            assert_eq!(file_state.refs as usize, refs);
            assert_eq!(file_state.meta, meta(*file));
        }
        let sealed: Vec<_> = state.sealed.clone().into_iter().collect();
        assert_eq!((sealed, state.log_tail), (twin.sealed, twin.tail));
        assert_eq!(state.next_keyspace, twin.next_keyspace);
        assert_eq!(state.moment, twin.moment);
        assert!(twin.files.iter().all(|file| file.0 < state.next_file));
        assert!(
            twin.buckets
                .iter()
                .all(|bucket| bucket.0 < state.next_bucket)
        );
    }
}

fn any_edit() -> impl Strategy<Value = VersionEdit> {
    let small = 1..5u64;
    (0..19u8, small.clone(), small.clone(), small, 0..3u8).prop_map(|(kind, a, b, c, level)| {
        let keyspace = u32::try_from(b % 2 + 1).unwrap();
        match kind {
            0 | 14 => VersionEdit::AddKeyspace {
                id: keyspace + u32::from(level),
                name: format!("name{}", c % 3),
            },
            12 | 15 => VersionEdit::DropKeyspace { id: keyspace },
            17 => VersionEdit::SetOptions {
                id: keyspace,
                options: match level {
                    0 => KeyspaceOptions::default(),
                    _ => KeyspaceOptions::default().filter_bits_per_key(level.into()),
                },
            },
            18 => VersionEdit::Moment { moment: a * c },
            16 => VersionEdit::NextKeyspace {
                id: u32::from(level),
            },
            1 => VersionEdit::AddBucket {
                id: a,
                keyspace,
                lower: vec![level],
                flushed_seq: c,
            },
            2 => VersionEdit::RemoveBucket { id: a },
            3 | 4 => VersionEdit::AddTable {
                bucket: a,
                level,
                run: c,
                file: b,
            },
            5 => VersionEdit::RemoveTable { bucket: a, file: b },
            6 => VersionEdit::NewFile {
                file: b,
                meta: meta(b),
                age: TableAge {
                    superseded: a,
                    born: c,
                    garbage_since: u64::from(level),
                },
            },
            7 => VersionEdit::DropFile { file: b },
            8 => VersionEdit::FlushedSeq { bucket: a, seq: c },
            9 => VersionEdit::LogTail { segment: a },
            10 => VersionEdit::LogSealed {
                segment: a + b,
                length: c,
            },
            11 => VersionEdit::LastSeq { seq: a },
            _ => VersionEdit::NextFile { number: a * b },
        }
    })
}

proptest! {
    #[test]
    fn random_edits_do_what_the_naive_twin_does(
        edits in prop::collection::vec(any_edit(), 1..120),
        reopen_every in 3..30usize,
    ) {
        let disk = Disk::simulated(&SimDisk::new());
        let mut manifest = Manifest::create(&disk).unwrap();
        let mut twin = Twin { tail: 1, ..Twin::default() };
        let preamble = [VersionEdit::AddKeyspace { id: 1, name: "first".to_owned() }];
        for (index, edit) in preamble.iter().chain(&edits).enumerate() {
            let applied = manifest.apply(std::slice::from_ref(edit));
            prop_assert_eq!(applied.is_ok(), twin.apply(edit), "{:?} {:?}", edit, applied);
            // An edit that does not fit stops the manifest: open it again.
            if applied.is_err() {
                manifest = Manifest::open(&disk).unwrap();
            } else if index % reopen_every == 0 {
                let state = manifest.state().clone();
                if index % 2 == 0 {
                    manifest.close_clean(&[]).unwrap();
                } else {
                    drop(manifest);
                }
                manifest = Manifest::open(&disk).unwrap();
                prop_assert_eq!(manifest.state(), &state);
            }
            twin.check(manifest.state());
        }
    }

    #[test]
    fn random_bytes_in_the_files_do_not_panic(
        current: bool,
        front: bool,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let sim = SimDisk::new();
        written(&sim);
        let name = if current { CURRENT.to_owned() } else { manifest_name(1) };
        let keep = if front { 32 } else { 0 };
        let mut content = sim.raw(&name).unwrap()[..keep].to_vec();
        content.extend(bytes);
        let whole = current && front && content.len() == 32;
        sim.set_raw(&name, content);
        prop_assert_eq!(read(&Disk::simulated(&sim)).is_ok(), whole);
    }
}
