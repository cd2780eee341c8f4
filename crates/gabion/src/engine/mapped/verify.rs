//! Checking a closed store: nothing of it changes.
//!
//! The pool is looked at in memory of this process, where it recovers as an opening would do it;
//! then every record is read, and all invariants of the pool and of the store in it are checked.

use gabion_media::Disk;
use gabion_media::pmem::{Pool, PoolOptions};

use super::PoolStore;
use super::layout::Root;
use super::recovery::index_error;
use crate::engine::{CheckReport, Problem};
use crate::names::LOCK;
use crate::{Error, Options, Result};

/// Reads everything in the store and checks it. Damage is part of the report.
pub(crate) fn check_disk<S: PoolStore>(disk: &Disk) -> Result<CheckReport> {
    let _lock = disk.lock(LOCK)?;
    let mut report = CheckReport::default();
    match Root::read(disk, &S::ROOT) {
        Ok(root) if !root.is_made => {
            return Err(Error::NotAStore {
                path: disk.path().to_owned(),
                why: "the creation of the store was interrupted, and the store is empty; open it \
                      to complete the creation"
                    .to_owned(),
            });
        }
        Ok(root) => {
            if let Err(error) = check_pool::<S>(disk, &root, &mut report) {
                add(&mut report, error, disk, &root)?;
            }
        }
        Err(error) => report.add(error, &disk.path_of(S::ROOT.name))?,
    }
    Ok(report)
}

fn check_pool<S: PoolStore>(disk: &Disk, root: &Root, report: &mut CheckReport) -> Result<()> {
    let options = PoolOptions {
        checkpoint: root.checkpoint_path(disk),
        ..S::pool_options()
    };
    let pool = Pool::inspect(&root.pool_path(disk), options)?;
    // Nothing goes on beside the check.
    let options = Options::default().background_threads(0);
    let failed = |error| index_error(&pool, error);
    let store = S::open(&pool, &options).map_err(failed)?;
    let checked = store.check().map_err(failed)?;
    let measured = store.measure();
    report.entries = checked.entries;
    report.tables = measured.tables;
    report.table_bytes = measured.table_bytes;
    let used = pool.stats().used_blocks;
    if used != checked.blocks {
        let what = format!(
            "{used} blocks are in use, and {} are needed",
            checked.blocks
        );
        let path = pool.path().to_owned();
        report.problems.push(Problem::new(path, None, what));
    }
    Ok(())
}

/// As [`CheckReport::add`], of a pool that cannot be opened, too.
fn add(report: &mut CheckReport, error: Error, disk: &Disk, root: &Root) -> Result<()> {
    if let Error::Media(error) = &error
        && let gabion_media::Error::Pool { path, fault } = &**error
    {
        let problem = Problem::new(path.clone(), fault.offset(), fault.to_string());
        report.problems.push(problem);
        return Ok(());
    }
    report.add(error, &root.pool_path(disk))
}
