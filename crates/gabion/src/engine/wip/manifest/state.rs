//! What the manifest says: the fold over its edits.

use std::collections::{BTreeMap, BTreeSet};

use super::edit::{FileMeta, TableAge, VersionEdit};
use crate::KeyspaceOptions;
use crate::expiry::UnixMillis;
use crate::types::Seq;

/// The structure of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManifestState {
    /// Names of the keyspaces by id.
    pub(crate) keyspaces: BTreeMap<u32, String>,
    /// Options of those that have any of their own.
    pub(crate) options: BTreeMap<u32, KeyspaceOptions>,
    /// Buckets by id.
    pub(crate) buckets: BTreeMap<u64, BucketRecord>,
    /// Table files by number.
    pub(crate) files: BTreeMap<u64, TableRecord>,
    /// First segment of the log that is needed.
    pub(crate) log_tail: u64,
    /// Valid lengths of segments from the tail on that are known; 0: the segment holds nothing.
    pub(crate) sealed: BTreeMap<u64, u64>,
    /// Sequence numbers up to here are used; the log may hold larger ones.
    pub(crate) last_seq: Seq,
    /// The latest moment by which readers went; 0 where nothing expires.
    pub(crate) moment: UnixMillis,
    /// First file number that was never used.
    pub(crate) next_file: u64,
    /// First bucket id that was never used.
    pub(crate) next_bucket: u64,
    /// First keyspace id that was never used.
    pub(crate) next_keyspace: u32,
    /// Names of the keyspaces: each there once.
    names: BTreeSet<String>,
    /// The buckets by their keyspaces and lower bounds: unique in a keyspace.
    bounds: BTreeMap<(u32, Vec<u8>), u64>,
    /// Buckets with the numbers of their tables: a bucket has a table once.
    places: BTreeSet<(u64, u64)>,
    /// Bytes of all files.
    file_bytes: u64,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketRecord {
    /// The keyspace that it is a part of.
    pub(crate) keyspace: u32,
    /// Its smallest possible key.
    pub(crate) lower: Vec<u8>,
    /// All writes to it up to this number are in tables.
    pub(crate) flushed_seq: Seq,
    /// Its tables, in the order in which they were added.
    pub(crate) tables: Vec<TableSlice>,
}

/// A table as a part of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSlice {
    /// Level in the bucket.
    pub(crate) level: u8,
    /// Run in the level; the higher, the newer.
    pub(crate) run: u64,
    /// Number of the file.
    pub(crate) file: u64,
}

/// A table file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableRecord {
    /// What is known about it.
    pub(crate) meta: FileMeta,
    /// How old its entries are.
    pub(crate) age: TableAge,
    /// Number of buckets that refer to it.
    pub(crate) refs: u32,
}

impl Default for ManifestState {
    /// The state of a new store: nothing, and all numbers begin at 1, but those of keyspaces at 0.
    fn default() -> ManifestState {
        ManifestState {
            keyspaces: BTreeMap::new(),
            options: BTreeMap::new(),
            buckets: BTreeMap::new(),
            files: BTreeMap::new(),
            log_tail: 1,
            sealed: BTreeMap::new(),
            last_seq: 0,
            moment: 0,
            next_file: 1,
            next_bucket: 1,
            next_keyspace: 0,
            names: BTreeSet::new(),
            bounds: BTreeMap::new(),
            places: BTreeSet::new(),
            file_bytes: 0,
        }
    }
}

impl ManifestState {
    /// Applies an edit, or says why it does not fit; then the state is unchanged.
    pub(crate) fn apply(&mut self, edit: &VersionEdit) -> Result<(), String> {
        match edit {
            VersionEdit::AddKeyspace { id, name } => self.add_keyspace(*id, name),
            VersionEdit::AddBucket {
                id,
                keyspace,
                lower,
                flushed_seq,
            } => self.add_bucket(*id, *keyspace, lower, *flushed_seq),
            VersionEdit::RemoveBucket { id } => self.remove_bucket(*id),
            VersionEdit::AddTable {
                bucket,
                level,
                run,
                file,
            } => self.add_table(
                *bucket,
                TableSlice {
                    level: *level,
                    run: *run,
                    file: *file,
                },
            ),
            VersionEdit::RemoveTable { bucket, file } => self.remove_table(*bucket, *file),
            VersionEdit::NewFile { file, meta, age } => self.new_file(*file, meta, *age),
            VersionEdit::DropFile { file } => self.drop_file(*file),
            VersionEdit::FlushedSeq { bucket, seq } => {
                let bucket = self.bucket(*bucket)?;
                bucket.flushed_seq = bucket.flushed_seq.max(*seq);
                Ok(())
            }
            VersionEdit::LogTail { segment } => {
                self.log_tail = self.log_tail.max(*segment);
                self.sealed = self.sealed.split_off(&self.log_tail);
                Ok(())
            }
            VersionEdit::LogSealed { segment, length } => self.seal_log(*segment, *length),
            VersionEdit::LastSeq { seq } => {
                self.last_seq = self.last_seq.max(*seq);
                Ok(())
            }
            VersionEdit::NextFile { number } => {
                self.next_file = self.next_file.max(*number);
                Ok(())
            }
            VersionEdit::NextBucket { id } => {
                self.next_bucket = self.next_bucket.max(*id);
                Ok(())
            }
            VersionEdit::DropKeyspace { id } => self.drop_keyspace(*id),
            VersionEdit::NextKeyspace { id } => {
                self.next_keyspace = self.next_keyspace.max(*id);
                Ok(())
            }
            VersionEdit::SetOptions { id, options } => self.set_options(*id, options),
            VersionEdit::Moment { moment } => {
                self.moment = self.moment.max(*moment);
                Ok(())
            }
        }
    }

    /// The keyspaces in whose tables anything expires.
    pub(crate) fn expiring(&self) -> BTreeSet<u32> {
        let expires = |bucket: &&BucketRecord| {
            let mut files = bucket
                .tables
                .iter()
                .filter_map(|table| self.files.get(&table.file));
            files.any(|file| file.meta.expiries.is_some())
        };
        let expiring = self.buckets.values().filter(expires);
        expiring.map(|bucket| bucket.keyspace).collect()
    }

    /// Whether anything in the tables expires.
    pub(crate) fn expires(&self) -> bool {
        let mut files = self.files.values();
        files.any(|file| file.meta.expiries.is_some())
    }

    /// Puts another file in the place of one that was damaged, under the same number, or none.
    pub(crate) fn replace_file(&mut self, number: u64, meta: Option<FileMeta>) {
        match (self.files.get_mut(&number), meta) {
            (Some(file), Some(meta)) => {
                self.file_bytes = self.file_bytes.wrapping_sub(file.meta.file_bytes);
                self.file_bytes = self.file_bytes.wrapping_add(meta.file_bytes);
                file.meta = meta;
            }
            _ => {
                self.remove_file(number);
                for bucket in self.buckets.values_mut() {
                    bucket.tables.retain(|table| table.file != number);
                }
                self.places.retain(|(_, file)| *file != number);
            }
        }
    }

    fn add_keyspace(&mut self, id: u32, name: &str) -> Result<(), String> {
        if self.keyspaces.contains_key(&id) || self.names.contains(name) {
            return Err(format!("keyspace {id} ({name:?}) is added twice"));
        }
        if id < self.next_keyspace {
            return Err(format!(
                "keyspace {id} ({name:?}) has the id of a dropped keyspace"
            ));
        }
        let Some(next_keyspace) = id.checked_add(1) else {
            return Err(format!("keyspace {id} ({name:?}) has an impossible id"));
        };
        self.keyspaces.insert(id, name.to_owned());
        self.names.insert(name.to_owned());
        self.next_keyspace = next_keyspace;
        Ok(())
    }

    fn set_options(&mut self, id: u32, options: &KeyspaceOptions) -> Result<(), String> {
        if !self.keyspaces.contains_key(&id) {
            return Err(format!("the unknown keyspace {id} has options"));
        }
        match options.is_empty() {
            true => drop(self.options.remove(&id)),
            false => drop(self.options.insert(id, options.clone())),
        }
        Ok(())
    }

    fn drop_keyspace(&mut self, id: u32) -> Result<(), String> {
        let Some(name) = self.keyspaces.remove(&id) else {
            return Err(format!("the unknown keyspace {id} is dropped"));
        };
        self.names.remove(&name);
        self.options.remove(&id);
        while let Some((bound, number)) = self.bounds.range((id, Vec::new())..).next()
            && bound.0 == id
        {
            let (bound, number) = (bound.clone(), *number);
            self.bounds.remove(&bound);
            let Some(bucket) = self.buckets.remove(&number) else {
                continue;
            };
            for TableSlice { file, .. } in bucket.tables {
                self.places.remove(&(number, file));
                self.unrefer(file);
                if self.files.get(&file).is_some_and(|file| file.refs == 0) {
                    self.remove_file(file);
                }
            }
        }
        Ok(())
    }

    fn add_bucket(
        &mut self,
        id: u64,
        keyspace: u32,
        lower: &[u8],
        flushed_seq: Seq,
    ) -> Result<(), String> {
        if !self.keyspaces.contains_key(&keyspace) {
            return Err(format!(
                "bucket {id} is added to the unknown keyspace {keyspace}"
            ));
        }
        let bound = (keyspace, lower.to_vec());
        if self.buckets.contains_key(&id) || self.bounds.contains_key(&bound) {
            return Err(format!(
                "bucket {id} of keyspace {keyspace} or its bound is added twice"
            ));
        }
        let Some(next_bucket) = id.checked_add(1) else {
            return Err(format!("bucket {id} has an impossible id"));
        };
        self.bounds.insert(bound, id);
        let lower = lower.to_vec();
        let bucket = BucketRecord {
            keyspace,
            lower,
            flushed_seq,
            tables: Vec::new(),
        };
        self.buckets.insert(id, bucket);
        self.next_bucket = self.next_bucket.max(next_bucket);
        Ok(())
    }

    fn remove_bucket(&mut self, id: u64) -> Result<(), String> {
        let Some(bucket) = self.buckets.remove(&id) else {
            return Err(format!("the unknown bucket {id} is removed"));
        };
        self.bounds.remove(&(bucket.keyspace, bucket.lower));
        for table in &bucket.tables {
            self.places.remove(&(id, table.file));
            self.unrefer(table.file);
        }
        Ok(())
    }

    fn add_table(&mut self, bucket_id: u64, table: TableSlice) -> Result<(), String> {
        let Some(file) = self.files.get_mut(&table.file) else {
            return Err(format!(
                "the unknown file {} is added to bucket {bucket_id}",
                table.file
            ));
        };
        let Some(bucket) = self.buckets.get_mut(&bucket_id) else {
            return Err(format!(
                "file {} is added to the unknown bucket {bucket_id}",
                table.file
            ));
        };
        if !self.places.insert((bucket_id, table.file)) {
            return Err(format!(
                "file {} is added to bucket {bucket_id} twice",
                table.file
            ));
        }
        bucket.tables.push(table);
        file.refs += 1;
        Ok(())
    }

    fn remove_table(&mut self, bucket_id: u64, file: u64) -> Result<(), String> {
        let bucket = self.bucket(bucket_id)?;
        let Some(at) = bucket.tables.iter().position(|table| table.file == file) else {
            return Err(format!(
                "file {file} is removed from bucket {bucket_id}, which lacks it"
            ));
        };
        bucket.tables.remove(at);
        self.places.remove(&(bucket_id, file));
        self.unrefer(file);
        Ok(())
    }

    fn unrefer(&mut self, file: u64) {
        if let Some(file) = self.files.get_mut(&file) {
            file.refs -= 1;
        }
    }

    fn new_file(&mut self, file: u64, meta: &FileMeta, age: TableAge) -> Result<(), String> {
        let Some(next_file) = file.checked_add(1) else {
            return Err(format!("file {file} has an impossible number"));
        };
        if self.files.contains_key(&file) {
            return Err(format!("file {file} is added twice"));
        }
        self.file_bytes = self.file_bytes.wrapping_add(meta.file_bytes);
        self.files.insert(
            file,
            TableRecord {
                meta: meta.clone(),
                age,
                refs: 0,
            },
        );
        self.next_file = self.next_file.max(next_file);
        Ok(())
    }

    fn drop_file(&mut self, file: u64) -> Result<(), String> {
        match self.files.get(&file) {
            None => Err(format!("the unknown file {file} is dropped")),
            Some(TableRecord { refs: 0, .. }) => {
                self.remove_file(file);
                Ok(())
            }
            Some(TableRecord { refs, .. }) => Err(format!(
                "file {file} is dropped while {refs} buckets refer to it"
            )),
        }
    }

    fn remove_file(&mut self, file: u64) {
        if let Some(file) = self.files.remove(&file) {
            self.file_bytes = self.file_bytes.wrapping_sub(file.meta.file_bytes);
        }
    }

    /// Bytes of all files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn seal_log(&mut self, segment: u64, length: u64) -> Result<(), String> {
        if segment < self.log_tail {
            return Ok(());
        }
        match self.sealed.get(&segment) {
            Some(known) if *known != length => Err(format!(
                "the log segment {segment:x} is sealed at {length} bytes and was at {known}"
            )),
            _ => {
                self.sealed.insert(segment, length);
                Ok(())
            }
        }
    }

    fn bucket(&mut self, id: u64) -> Result<&mut BucketRecord, String> {
        self.buckets
            .get_mut(&id)
            .ok_or_else(|| format!("an edit names the unknown bucket {id}"))
    }

    /// Edits that make this state of an empty one.
    pub(super) fn snapshot(&self) -> Vec<VersionEdit> {
        let mut edits = Vec::new();
        for (&id, name) in &self.keyspaces {
            edits.push(VersionEdit::AddKeyspace {
                id,
                name: name.clone(),
            });
        }
        for (&id, options) in &self.options {
            let options = options.clone();
            edits.push(VersionEdit::SetOptions { id, options });
        }
        for (&file, state) in &self.files {
            edits.push(VersionEdit::NewFile {
                file,
                meta: state.meta.clone(),
                age: state.age,
            });
        }
        for (&id, bucket) in &self.buckets {
            let (keyspace, flushed_seq) = (bucket.keyspace, bucket.flushed_seq);
            let lower = bucket.lower.clone();
            edits.push(VersionEdit::AddBucket {
                id,
                keyspace,
                lower,
                flushed_seq,
            });
            for &TableSlice { level, run, file } in &bucket.tables {
                edits.push(VersionEdit::AddTable {
                    bucket: id,
                    level,
                    run,
                    file,
                });
            }
        }
        edits.push(VersionEdit::LogTail {
            segment: self.log_tail,
        });
        for (&segment, &length) in &self.sealed {
            edits.push(VersionEdit::LogSealed { segment, length });
        }
        edits.push(VersionEdit::LastSeq { seq: self.last_seq });
        if self.moment > 0 {
            let moment = self.moment;
            edits.push(VersionEdit::Moment { moment });
        }
        edits.push(VersionEdit::NextFile {
            number: self.next_file,
        });
        edits.push(VersionEdit::NextBucket {
            id: self.next_bucket,
        });
        edits.push(VersionEdit::NextKeyspace {
            id: self.next_keyspace,
        });
        edits
    }
}
