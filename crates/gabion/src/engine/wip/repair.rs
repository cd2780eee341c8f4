//! Repair: a new store from what can be read of a damaged one, which stays as it is.
//!
//! # Idea
//! Tables that pass their checks are linked or copied, as into a checkpoint. Of others the entries
//! of sound blocks are written to a table that takes the place of the damaged one, with their
//! sequence numbers; so what is newest stays newest. The manifest says the rest. The log is
//! replayed as far as it can be read, as writes to the new store.
//!
//! These writes have new numbers, above those of all tables. After ingests and joins the log may
//! hold what is older than tables of its bucket (`ingest`, N3). It is left out for each key of
//! which a table has a newer version; so a range delete becomes deletes of the keys that it still
//! concerns.
//!
//! # What is lost
//! What lay in damaged blocks. The manifest says how many entries a table has, so how many are lost
//! is known; the entries around a block say between which keys. If that was the newest version of
//! a key, an older one may be found instead of it, also one that was deleted: the report names each
//! part that is lost.
//!
//! # What is refused
//! A store whose manifest says nothing any more, as its snapshot is damaged or it is missing. The
//! tables are whole, but they do not make a store:
//! - A table does not say of which keyspace it is, and those of several have the same keys. One
//!   that was ingested does not say its sequence number either.
//! - A file may be there that is not in use, until its last reader is gone or a crash's leavings
//!   are removed; and of one that several buckets share, the part of some may have been merged
//!   away. Tombstones that these entries had above them are gone once they have been merged to the
//!   last level. So keys that were deleted would be back, and nobody could tell which.
//! - A dropped keyspace is one of which only the manifest does not speak.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use gabion_media::{Disk, Purpose};

use super::bucket::file::{file_meta, table_meta};
use super::bucket::{Levels, Router};
use super::manifest::{FileMeta, Manifest, ManifestState, read_damaged};
use super::readpath::has_newer;
use super::readpath::scan::WipScan;
use super::table::{Table, TableMeta, TableOptions, TableWriter};
use super::{Wip, WipKeyspace, Write};
use crate::bytes::assign;
use crate::cache::BlockCache;
use crate::engine::ssd::{CommitWrites, Lifecycle};
use crate::engine::{LostEntries, RepairReport};
use crate::log::{LogOp, MalformedPayload, replay_operations};
use crate::names::{CURRENT, LOCK, table_name};
use crate::operands::{Operands, malformed_in_memory};
use crate::types::{Kind, Seq, hash_key};
use crate::{Error, Options, Result};

/// Writes what can be read of the store on `disk` to an empty directory.
pub(crate) fn repair(disk: &Disk, target: &Disk) -> Result<RepairReport> {
    let _lock = disk.lock_shared(LOCK)?;
    let mut report = RepairReport::default();
    let current = disk.path_of(CURRENT);
    let mut state = read_damaged(disk, &mut |error| {
        report.lose(&error, &current);
        // Edits behind that may have named any table.
        report.lost.push(LostEntries::default());
    })?;
    let files: Vec<_> = state.files.keys().copied().collect();
    for number in files {
        let Some(meta) = state.files.get(&number).map(|file| file.meta.clone()) else {
            continue;
        };
        match check_table(disk, number, &meta) {
            Ok(()) => {
                let name = table_name(number);
                if !disk.link_to(target, &name)? {
                    disk.copy_to(target, &name, meta.file_bytes, Purpose::Checkpoint)?;
                }
                report.entries += meta.entries;
            }
            // A sound table that this program cannot read: another one can.
            Err(error) if error.needs_another_program() => return Err(error),
            Err(error) => {
                let path = disk.path_of(&table_name(number));
                let before = report.problems.len();
                let keyspace = keyspace_of(&state, number);
                let table = Damaged {
                    number,
                    meta: &meta,
                    keyspace,
                };
                let saved = save_table(disk, target, &table, &mut report)?;
                if report.problems.len() == before {
                    // Blocks are sound; what they amount to is not what the table says.
                    report.lose(&error, &path);
                }
                state.replace_file(number, saved.as_ref().map(file_meta));
            }
        }
    }
    let (tail, sealed) = (state.log_tail, std::mem::take(&mut state.sealed));
    let flushed = Flushed::of(&state);
    let (keyspaces, given_out) = (state.keyspaces.clone(), state.next_keyspace);
    // DURABLE: the files were synced when they were written, and now their names are.
    target.sync_dir()?;
    Manifest::create_closed(target, state, &[])?;

    let engine = Wip::open(target.clone(), Options::default().create_if_missing(false))?;
    let found = keyspaces.iter().filter_map(|(id, name)| {
        let keyspace = engine.keyspaces.find(name)?;
        Some((*id, (Tables::of(&keyspace), keyspace)))
    });
    let targets: BTreeMap<u32, _> = found.collect();
    let merges = Merges::of_log(disk, tail, &sealed, given_out);
    let replayed = report.replay(disk, tail, &sealed, given_out, |operation| {
        // What a keyspace held that was dropped went with it.
        let Some((tables, keyspace)) = targets.get(&operation.keyspace) else {
            return Ok(());
        };
        if tables.have_newer(&operation)? {
            return Ok(());
        }
        for part in flushed.missing(&operation) {
            match operation.kind == Kind::DeleteRange && tables.are_newer(&part, operation.seq) {
                true => delete_older(&engine, keyspace, tables, &part, operation.seq)?,
                false if operation.kind == Kind::Merge => {
                    if merges.counts(&operation) {
                        let stored = covering_itself(&operation).map_err(malformed_in_memory)?;
                        let part = Part {
                            value: &stored,
                            ..part
                        };
                        write(&engine, keyspace, operation.kind, &part)?;
                    }
                }
                false => write(&engine, keyspace, operation.kind, &part)?,
            }
        }
        Ok(())
    });
    drop(targets);
    let closed = engine.close();
    let result = replayed.and(closed).map(|()| report);
    result.map_err(|error| engine.health.as_error_of_copy(error))
}

/// A key of a keyspace.
type Place = (u32, Vec<u8>);

/// The merges of a log that no other one covers, by their keys: of each its number, and down to
/// which it covers its key. What is covered is left out, for a merge that is written anew covers
/// itself alone: the new store may freeze a MemTable anywhere.
#[derive(Default)]
struct Merges(HashMap<Place, Vec<(Seq, Seq)>>);

impl Merges {
    /// Those of a log, as far as it can be read.
    fn of_log(disk: &Disk, tail: u64, sealed: &BTreeMap<u64, u64>, keyspaces: u32) -> Merges {
        let mut merges = Merges::default();
        // What is damaged is told by the replay that follows.
        let _ = replay_operations(disk, tail, sealed, keyspaces, |_, operation| {
            if operation.kind == Kind::Merge {
                merges.note(&operation);
            }
            Ok(())
        });
        merges
    }

    fn note(&mut self, merge: &LogOp<'_>) {
        let below = Operands::below_of(merge.value, merge.seq).unwrap_or(0);
        let known = self.0.entry((merge.keyspace, merge.key.to_vec()));
        let known = known.or_default();
        let is_covered =
            |(seq, own_below): &(Seq, Seq)| merge.seq < *seq && merge.seq >= *own_below;
        if known.iter().any(is_covered) {
            return;
        }
        known.retain(|(seq, _)| *seq > merge.seq || *seq < below);
        known.push((merge.seq, below));
    }

    /// Whether no other merge covers one of the log.
    fn counts(&self, merge: &LogOp<'_>) -> bool {
        let known = self.0.get(&(merge.keyspace, merge.key.to_vec()));
        known.is_none_or(|known| known.iter().any(|(seq, _)| *seq == merge.seq))
    }
}

/// What is stored of a merge that covers itself alone.
fn covering_itself(merge: &LogOp<'_>) -> Result<Vec<u8>, MalformedPayload> {
    Ok(Operands::decode(merge.value)?.from(0).encode())
}

fn write(engine: &Wip, keyspace: &WipKeyspace, kind: Kind, part: &Part<'_>) -> Result<()> {
    let Part { key, value } = *part;
    let write = Write::Single {
        keyspace,
        kind,
        key,
        value,
    };
    engine.write(write, (key.len() + value.len()) as u64, false)
}

/// Deletes the keys of a part of a range delete, but those of which a table has a version above
/// `seq`, the number of the range delete. All else that is there by now is older.
fn delete_older(
    engine: &Arc<Wip>,
    keyspace: &WipKeyspace,
    tables: &Tables,
    part: &Part<'_>,
    seq: Seq,
) -> Result<()> {
    let upper = part.upper().map_or(Bound::Unbounded, Bound::Excluded);
    let store = Arc::<Wip>::clone(engine);
    let snapshot = engine.begin_snapshot();
    let scan = WipScan::new(store, keyspace, snapshot, Bound::Included(part.key), upper);
    let mut scan = scan.of_keys();
    while scan.advance()? {
        let (key, value): (_, &[u8]) = (scan.key(), &[]);
        if !tables.have_newer_of(key, seq)? {
            write(engine, keyspace, Kind::Delete, &Part { key, value })?;
        }
    }
    Ok(())
}

/// Checks a table, and that it is the one that the manifest describes.
fn check_table(disk: &Disk, number: u64, meta: &FileMeta) -> Result<()> {
    let cache = Arc::new(BlockCache::new(0));
    let table = Arc::new(Table::open(disk, number, meta.min_seq, &cache)?);
    table.verify()?;
    if table_meta(number, meta).as_ref() == Some(table.meta()) {
        return Ok(());
    }
    Err(Error::Corruption {
        file: disk.path_of(&table_name(number)),
        offset: 0,
        what: "the table is not the one that the manifest describes".to_owned(),
    })
}

/// A table that does not pass its checks.
struct Damaged<'t> {
    number: u64,
    /// What the manifest says of it.
    meta: &'t FileMeta,
    keyspace: Option<String>,
}

/// The name of the keyspace that a table is of.
fn keyspace_of(state: &ManifestState, number: u64) -> Option<String> {
    let mut buckets = state.buckets.values();
    let bucket = buckets.find(|bucket| bucket.tables.iter().any(|table| table.file == number))?;
    state.keyspaces.get(&bucket.keyspace).cloned()
}

/// Keys around what is lost, if there are some: all of it is above the first one and below the
/// second one.
type Around = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The keys around the blocks of a table that are lost.
#[derive(Default)]
struct LostBlocks {
    last: Option<Vec<u8>>,
    /// Whether a block is lost behind that key.
    is_open: bool,
    ranges: Vec<Around>,
}

impl LostBlocks {
    fn lose(&mut self) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.ranges.push((self.last.clone(), None));
        }
    }

    fn find(&mut self, key: &[u8]) {
        if std::mem::take(&mut self.is_open)
            && let Some((_, below)) = self.ranges.last_mut()
        {
            *below = Some(key.to_vec());
        }
        match &mut self.last {
            Some(last) => assign(last, key),
            None => self.last = Some(key.to_vec()),
        }
    }
}

/// Writes what can be read of a damaged table to a table of the same number; `None` when that is
/// nothing.
fn save_table(
    disk: &Disk,
    target: &Disk,
    table: &Damaged<'_>,
    report: &mut RepairReport,
) -> Result<Option<TableMeta>> {
    let number = table.number;
    let name = table_name(number);
    let path = disk.path_of(&name);
    let options = TableOptions {
        checks_order: true,
        ..TableOptions::default()
    };
    let appender = target.create_append(&name, Purpose::Checkpoint)?;
    let mut writer = TableWriter::new(appender, number, &options);
    let mut failed = None;
    let mut problems = Vec::new();
    let blocks = RefCell::new(LostBlocks::default());
    let mut lost = |error, is_block| {
        problems.push(error);
        if is_block {
            blocks.borrow_mut().lose();
        }
    };
    let read = Table::salvage(disk, number, &mut lost, &mut |entry| {
        // What says 0 leaves its number to the manifest; the properties may be lost that say so.
        let seq = if entry.seq() == 0 {
            table.meta.min_seq
        } else {
            entry.seq()
        };
        blocks.borrow_mut().find(entry.key());
        let added = writer.add(entry.key(), seq, entry.kind(), entry.value_bytes());
        added.inspect_err(|error| failed = Some(error.clone()))
    });
    problems.iter().for_each(|error| report.lose(error, &path));
    match (read, failed) {
        (Err(_), Some(error)) => return Err(error),
        (Err(error), None) => {
            report.lose(&error, &path);
            blocks.borrow_mut().lose();
        }
        (Ok(()), _) => {}
    }
    let missing = table.meta.entries.saturating_sub(writer.entries());
    let ranges = blocks.into_inner().ranges;
    report.lost.extend(lost_of(table, ranges, missing));
    if writer.entries() == 0 {
        drop(writer);
        target.remove(&name)?;
        return Ok(None);
    }
    report.entries += writer.entries();
    Ok(Some(writer.finish()?))
}

/// What is lost of a table: as many entries as are missing, in these ranges.
fn lost_of(table: &Damaged<'_>, mut ranges: Vec<Around>, missing: u64) -> Vec<LostEntries> {
    if missing == 0 {
        return Vec::new();
    }
    if ranges.is_empty() {
        // The table is not the one that the manifest describes.
        ranges.push((None, None));
    }
    let entries = (ranges.len() == 1).then_some(missing);
    let lost = ranges.into_iter().map(|(above, below)| LostEntries {
        keyspace: table.keyspace.clone(),
        above,
        below,
        entries,
        entries_max: Some(missing),
    });
    lost.collect()
}

/// The tables of a keyspace before anything of the log is written to it.
struct Tables {
    router: Arc<Router>,
    /// Of each bucket, with the largest sequence number in them.
    levels: Vec<(Arc<Levels>, Seq)>,
}

impl Tables {
    fn of(keyspace: &WipKeyspace) -> Tables {
        let router = keyspace.router.load_full();
        let levels = router.buckets().iter().map(|bucket| {
            let levels = Arc::clone(&bucket.state.load().levels);
            let newest = levels.runs().map(|run| run.seqs().1).max();
            (levels, newest.unwrap_or(0))
        });
        Tables {
            levels: levels.collect(),
            router,
        }
    }

    /// Whether they have a newer version of an operation's key, as replay asks (`ingest`, N3).
    fn have_newer(&self, operation: &LogOp<'_>) -> Result<bool> {
        match operation.kind {
            Kind::DeleteRange => Ok(false),
            _ => self.have_newer_of(operation.key, operation.seq),
        }
    }

    /// Whether they have a version of the key above `seq`.
    fn have_newer_of(&self, key: &[u8], seq: Seq) -> Result<bool> {
        let (levels, newest) = &self.levels[self.router.position(key)];
        if seq >= *newest {
            return Ok(false);
        }
        has_newer(levels, key, hash_key(key), seq)
    }

    /// Whether they may have a version above `seq` of a key in a part of a range delete.
    fn are_newer(&self, part: &Part<'_>, seq: Seq) -> bool {
        let buckets = self.router.touching(part.key, part.upper());
        let first = self.router.position(part.key);
        let mut levels = self.levels[first..].iter().zip(buckets);
        levels.any(|((_, newest), _)| *newest > seq)
    }
}

/// Which writes of the log are in tables.
struct Flushed {
    /// By keyspace and smallest possible key.
    buckets: BTreeMap<(u32, Vec<u8>), FlushedBucket>,
}

/// A bucket of the damaged store.
struct FlushedBucket {
    /// The smallest possible key of the next one.
    upper: Option<Vec<u8>>,
    /// All writes to it up to this number are in tables.
    seq: Seq,
}

/// A part of an operation: all of it but for range deletes.
struct Part<'o> {
    key: &'o [u8],
    value: &'o [u8],
}

impl Part<'_> {
    /// The end of the part of a range delete.
    fn upper(&self) -> Option<&[u8]> {
        (!self.value.is_empty()).then_some(self.value)
    }
}

impl Flushed {
    fn of(state: &ManifestState) -> Flushed {
        let numbers: BTreeMap<_, _> = state
            .buckets
            .values()
            .map(|bucket| ((bucket.keyspace, bucket.lower.clone()), bucket.flushed_seq))
            .collect();
        let next = numbers.keys().skip(1).map(Some).chain([None]);
        let buckets = numbers.iter().zip(next).map(|((place, seq), next)| {
            let next = next.filter(|next| next.0 == place.0);
            let upper = next.map(|next| next.1.clone());
            (place.clone(), FlushedBucket { upper, seq: *seq })
        });
        Flushed {
            buckets: buckets.collect(),
        }
    }

    /// What of an operation is in no table: in the buckets that had not flushed it.
    fn missing<'o>(&'o self, operation: &LogOp<'o>) -> Vec<Part<'o>> {
        let (key, value) = (operation.key, operation.value);
        let up_to = (operation.keyspace, key.to_vec());
        let first = self.buckets.range(..=up_to.clone()).next_back();
        let is_range = operation.kind == Kind::DeleteRange;
        let others = self.buckets.range(up_to..).filter(|(place, _)| {
            is_range
                && place.0 == operation.keyspace
                && place.1.as_slice() > key
                && (value.is_empty() || place.1.as_slice() < value)
        });
        first
            .into_iter()
            .chain(others)
            .filter(|(_, bucket)| operation.seq > bucket.seq)
            .map(|((_, lower), bucket)| match is_range {
                false => Part { key, value },
                true => Part {
                    key: key.max(lower),
                    value: match &bucket.upper {
                        Some(upper) if value.is_empty() || upper.as_slice() < value => upper,
                        _ => value,
                    },
                },
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_delete_is_cut_to_the_buckets_that_had_not_flushed_it() {
        let bucket = |keyspace, lower: &str, upper: Option<&str>, seq| {
            let upper = upper.map(|upper| upper.as_bytes().to_vec());
            let place = (keyspace, lower.as_bytes().to_vec());
            (place, FlushedBucket { upper, seq })
        };
        let flushed = Flushed {
            buckets: BTreeMap::from([
                bucket(0, "", Some("d"), 10),
                bucket(0, "d", Some("m"), 30),
                bucket(0, "m", None, 10),
                bucket(1, "", None, 0),
            ]),
        };
        let parts = |kind, key: &'static str, value: &'static str, seq| -> Vec<_> {
            let operation = LogOp {
                seq,
                kind,
                keyspace: 0,
                key: key.as_bytes(),
                value: value.as_bytes(),
            };
            let parts = flushed.missing(&operation);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            parts
                .iter()
                .map(|part| (text(part.key), text(part.value)))
                .collect()
        };
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(parts(Kind::Put, "c", "1", 11), [pair("c", "1")]);
        assert_eq!(parts(Kind::Put, "c", "1", 10), []);
        assert_eq!(parts(Kind::Put, "e", "1", 20), []);
        let delete = Kind::DeleteRange;
        assert_eq!(parts(delete, "b", "c", 20), [pair("b", "c")]);
        assert_eq!(
            parts(delete, "b", "z", 20),
            [pair("b", "d"), pair("m", "z")]
        );
        assert_eq!(parts(delete, "b", "", 20), [pair("b", "d"), pair("m", "")]);
        assert_eq!(parts(delete, "d", "m", 20), []);
        let all = [pair("b", "d"), pair("d", "m"), pair("m", "")];
        assert_eq!(parts(delete, "b", "", 31), all);
    }
}
