//! Making a backup.
//!
//! # Order
//! What others have left is cleared; the log is archived up to now, if it is to be (`archive`); the
//! engine gives a moment, and writes its small files to the repository under names that begin with
//! `new-`; pieces that are not known become objects, and so
//! do the small files; the directory is synced; the description is written (B1); what nobody
//! names is removed.

use std::collections::HashMap;

use gabion_media::TEMPORARY_SUFFIX;

use super::layout::{BackupDescription, BackupFile, FilePiece, LogLink};
use super::objects::{ObjectHash, ObjectStore, STEP_BYTES};
use super::part::LogParts;
use super::source::{BackupSource, KnownPieces, SourceFile};
use super::transfer::{BackupOptions, Transfer};
use super::{BackupInfo, BackupOrigin, BackupRepository, Descriptions};
use crate::Result;
use crate::names::LOCK;
use crate::options::Durability;

/// How the names of the files begin that an engine writes for a moment.
const STAGED_PREFIX: &str = "new-";

/// A backup that is being made.
struct Making<'m, 't> {
    objects: ObjectStore<'m>,
    transfer: &'m mut Transfer<'t>,
    /// What earlier backups know unread.
    known: HashMap<KnownPieces, (ObjectHash, u64)>,
    files: Vec<BackupFile>,
    bytes_copied: u64,
    files_copied: u64,
}

impl BackupRepository {
    /// Makes a backup of a store as it is now.
    pub(crate) fn create(
        &self,
        origin: &BackupOrigin<'_>,
        options: BackupOptions<'_>,
    ) -> Result<BackupInfo> {
        let _lock = self.disk.lock(LOCK)?;
        self.clear_left()?;
        let created = self.clock.unix_time();
        let earlier = self.descriptions()?;
        let id = self.ids()?.last().map_or(1, |last| last + 1);
        let made = self.take(origin, (id, &earlier), options);
        let mut description = made.inspect_err(|_| {
            // The first error is the one to tell; the next backup clears the rest away.
            let _ = self.clear_left();
        })?;
        description.engine = origin.engine;
        description.store = origin.path.to_string_lossy().into_owned();
        description.created_ms = u64::try_from(created.as_millis()).unwrap_or(u64::MAX);
        description.write(&self.disk, id)?;
        let all = earlier.good.iter().map(|(_, own)| own);
        let removed = match earlier.bad.into_iter().next() {
            None => self.remove_unnamed(all.chain([&description])).err(),
            Some((_, error)) => Some(error),
        };
        if let Some(error) = removed {
            tracing::warn!(%error, "an object that no backup needs could not be removed yet");
        }
        Ok(description.info(id, &LogParts::default()))
    }

    /// Takes the moment of backup `id`, and its place in the log; makes its objects.
    fn take(
        &self,
        origin: &BackupOrigin<'_>,
        (id, earlier): (u64, &Descriptions),
        options: BackupOptions<'_>,
    ) -> Result<BackupDescription> {
        let archives = options.archive_log;
        let mut transfer = Transfer::new(options, 0);
        let place = match archives {
            true => Some(self.place_in_log(origin, (id, earlier), &mut transfer)?),
            false => None,
        };
        let staging = self.disk.part(STAGED_PREFIX);
        let source = origin.handle.backup(&staging, archives)?;
        let taken_ms = self.now_ms();
        if archives {
            // What follows in the log goes on from tables, and the store loses nothing that the
            // backup has.
            origin.handle.flush()?;
            origin.handle.persist(Durability::Sync)?;
        }
        let made = self.make(&source, earlier, &mut transfer)?;
        Ok(BackupDescription {
            log: place.map(|place| LogLink { place, taken_ms }),
            ..made
        })
    }

    /// Makes the objects of a backup, durably; what they are is in the description.
    fn make(
        &self,
        source: &BackupSource,
        earlier: &Descriptions,
        transfer: &mut Transfer<'_>,
    ) -> Result<BackupDescription> {
        let staged = self.disk.part(STAGED_PREFIX);
        let names = staged.list()?;
        let mut bytes = source.files.iter().map(SourceFile::piece_bytes).sum();
        for name in &names {
            bytes += staged.len_of(name)?;
        }
        transfer.expect(bytes);
        let pieces = || earlier.good.iter().flat_map(|(_, own)| own.pieces());
        let named = pieces().map(|piece| piece.hash).collect();
        let known = pieces().filter_map(|own| Some((own.known?, (own.hash, own.len))));
        let mut making = Making {
            objects: ObjectStore::new(&self.disk, named),
            transfer,
            known: known.collect(),
            files: Vec::new(),
            bytes_copied: 0,
            files_copied: 0,
        };
        let made = making.add_all(source, names).and_then(|()| {
            // DURABLE: objects were synced before they got their names, which are durable now
            // (B1).
            Ok(self.disk.sync_dir()?)
        });
        if let Err(error) = made {
            making.objects.give_up();
            return Err(error);
        }
        Ok(BackupDescription {
            position: source.position,
            bytes_copied: making.bytes_copied,
            files_copied: making.files_copied,
            files: making.files,
            ..BackupDescription::default()
        })
    }

    /// Removes what was being written when a backup ended early.
    pub(super) fn clear_left(&self) -> Result<()> {
        for name in self.disk.list()? {
            if name.starts_with(STAGED_PREFIX) || name.ends_with(TEMPORARY_SUFFIX) {
                self.disk.remove(&name)?;
            }
        }
        Ok(())
    }
}

impl Making<'_, '_> {
    fn add_all(&mut self, source: &BackupSource, staged: Vec<String>) -> Result<()> {
        for file in &source.files {
            self.add(file)?;
        }
        staged
            .into_iter()
            .try_for_each(|name| self.add_staged(name))
    }

    /// Adds a file of the store.
    fn add(&mut self, file: &SourceFile) -> Result<()> {
        let (mut pieces, before) = (Vec::new(), self.bytes_copied);
        for source in &file.pieces {
            let place = (source.offset, source.len);
            let hash = match self.find(source.known, source.len)? {
                Some(hash) => {
                    self.transfer.passed(source.len)?;
                    hash
                }
                None => {
                    let from = (source.open)()?;
                    let (hash, is_new) = match source.len <= STEP_BYTES {
                        true => self.objects.put_small(&from, place, self.transfer)?,
                        false => self.objects.put(&from, place, self.transfer)?,
                    };
                    self.bytes_copied += if is_new { source.len } else { 0 };
                    hash
                }
            };
            pieces.push(FilePiece {
                offset: source.offset,
                len: source.len,
                hash,
                known: source.known,
            });
        }
        self.files_copied += u64::from(self.bytes_copied > before);
        self.files.push(BackupFile {
            name: file.name.clone(),
            len: file.len,
            pieces,
        });
        Ok(())
    }

    /// Adds a file that the engine wrote for the moment.
    fn add_staged(&mut self, name: String) -> Result<()> {
        let staged = format!("{STAGED_PREFIX}{name}");
        let (hash, len, is_new) = self.objects.put_staged(&staged, self.transfer)?;
        self.bytes_copied += if is_new { len } else { 0 };
        self.files_copied += u64::from(is_new);
        let piece = FilePiece {
            offset: 0,
            len,
            hash,
            known: None,
        };
        self.files.push(BackupFile {
            name,
            len,
            pieces: vec![piece],
        });
        Ok(())
    }

    /// The object of a piece that need not be read.
    fn find(&self, known: Option<KnownPieces>, len: u64) -> Result<Option<ObjectHash>> {
        let found = known.and_then(|known| self.known.get(&known));
        match found.filter(|(_, known_len)| *known_len == len) {
            Some((hash, _)) if self.objects.holds(hash, len)? => Ok(Some(*hash)),
            _ => Ok(None),
        }
    }
}

impl SourceFile {
    fn piece_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }
}
