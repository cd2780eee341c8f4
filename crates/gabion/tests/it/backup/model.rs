//! Random histories with backups at random moments: each restores to the twin of its moment, and
//! now and then the store goes on as one of its restored backups.
//!
//! `GABION_RESTORES` says how many backups are restored, of all engines together.

use gabion::{Options, RetentionPolicy};
use gabion_media::{Disk, SimDisk};

use super::{assert_restores, assert_whole, backup, engines, repository, restored};
use crate::support::{
    KEYSPACES, PanicContext, SeededRng, Step, Subject, Twin, Workload, base_seed, option_sets,
    setting,
};

/// Restores in a history, about.
const RESTORES_OF_HISTORY: u64 = 8;

#[test]
fn each_backup_restores_to_its_moment() {
    let wanted = setting("GABION_RESTORES", 300);
    let sets: Vec<Options> = engines().flat_map(option_sets).collect();
    let (mut restores, mut histories) = (0, 0);
    while restores < wanted {
        let options = &sets[usize::try_from(histories).unwrap() % sets.len()];
        let seed = base_seed().wrapping_mul(1_000_003) + histories;
        let _context = PanicContext(|| format!("seed {seed}: {options:?}"));
        restores += history(seed, options);
        histories += 1;
    }
    println!("{restores} restores of {histories} histories");
}

/// Runs a history; how many backups of it were restored.
fn history(seed: u64, options: &Options) -> u64 {
    let mut random = SeededRng::new(seed);
    let to = SimDisk::new();
    let mut disk = Disk::simulated(&SimDisk::recording());
    let mut subject = Subject::open(&disk, options).unwrap();
    let mut twin = Twin::new(KEYSPACES.len());
    let mut kept: Vec<(u64, Twin)> = Vec::new();
    let mut restores = 0;
    let writes = 150 + random.index(200);
    let workload = match random.one_in(3) {
        true if options.engine.capabilities().ingest => Workload::ingesting(seed, writes),
        _ => Workload::dropping(seed, writes),
    };
    let due = u64::try_from(workload.steps.len()).unwrap() / RESTORES_OF_HISTORY;
    for step in workload.steps {
        match &step {
            Step::Write { operations, .. } => {
                subject.write(operations, None).unwrap();
                twin = twin.after(operations);
            }
            Step::Ingest(puts) => {
                subject.ingest(puts).unwrap();
                twin = twin.after(puts);
            }
            Step::Flush => subject.db.flush().unwrap(),
            Step::WaitIdle => subject.db.wait_idle().unwrap(),
            Step::Compact(keyspace) => subject.keyspaces[*keyspace].compact::<&[u8]>(..).unwrap(),
            Step::DropKeyspace(keyspace) => {
                subject.drop_keyspace(*keyspace).unwrap();
                twin = twin.without(*keyspace);
            }
            Step::Persist => subject.db.persist(gabion::Durability::Sync).unwrap(),
            Step::Reopen => {
                drop(subject);
                subject = Subject::open(&disk, options).unwrap();
            }
        }
        if random.one_in(due.max(1)) {
            kept.push((backup(&subject.db, &to).id, twin.clone()));
        }
        if !kept.is_empty() && random.one_in(due.max(1) * 2) {
            let (id, own) = &kept[random.index(kept.len())];
            assert_restores(&repository(&to), *id, options, own);
            restores += 1;
        }
        if !kept.is_empty() && random.one_in(due.max(1) * 8) {
            // The store goes on as it was.
            let (id, own) = &kept[random.index(kept.len())];
            disk = restored(&repository(&to), *id);
            twin = own.clone();
            subject = Subject::open(&disk, options).unwrap();
        }
        if !kept.is_empty() && random.one_in(due.max(1) * 6) {
            let newest = 1 + random.below(4);
            repository(&to)
                .prune(RetentionPolicy::newest(newest))
                .unwrap();
            let gone = kept.len().saturating_sub(usize::try_from(newest).unwrap());
            kept.drain(..gone);
        }
    }
    let repository = repository(&to);
    assert_whole(&repository);
    let listed = repository.list().unwrap().backups;
    assert!(
        listed
            .iter()
            .map(|own| own.id)
            .eq(kept.iter().map(|own| own.0))
    );
    for (id, own) in &kept {
        assert_restores(&repository, *id, options, own);
        restores += 1;
    }
    restores
}
