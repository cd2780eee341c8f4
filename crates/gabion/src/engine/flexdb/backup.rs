//! The store of a moment for a backup: the spaces as they are, and what of the log they lack.
//!
//! # The moment
//! Who holds the merge lock finds spaces that nobody changes. They are frozen (`gabion_flex`), all
//! of them; then the moment is taken with the writer's lock and the root's held, for some
//! instructions: what the spaces hold is older than the end of the log there. Merges wait until
//! the log is copied, writers do not.
//!
//! From then on the spaces go on, but collect no garbage and use nothing again that the moment
//! needs, until the backup has all of it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use gabion_flex::Frozen;
use gabion_media::Disk;

use super::Flex;
use super::layout::{Root, space_prefix};
use crate::backup::source::{BackupSource, KnownPieces, PieceReader, SourceFile, SourcePiece};
use crate::log::{self, SealedLog};
use crate::{Error, Result};

/// Frozen spaces by the numbers of their keyspaces.
type Spaces = BTreeMap<u32, Arc<Frozen>>;

impl Flex {
    /// The store as it is now, for a backup: its spaces, and in `staging` the log and a root.
    pub(crate) fn backup(self: &Arc<Flex>, staging: &Disk) -> Result<BackupSource> {
        match self.flush() {
            // All of the log is copied then: who has a full disk wants a copy on another one.
            Err(error) if error.is_no_space() && self.unsettled.is_settled() => {}
            flushed => flushed?,
        }
        let (root, mut spaces) = self.take_moment(staging)?;
        root.write(staging)?;
        // Without those that were dropped meanwhile.
        spaces.retain(|id, _| root.has(*id));
        let mut files = Vec::new();
        for (id, space) in &spaces {
            for at in 0..space.files().len() {
                files.push(self.source_of(*id, space, at)?);
            }
        }
        Ok(BackupSource {
            position: root.last_seq,
            files,
        })
    }

    /// Takes the moment, and copies its log.
    fn take_moment(&self, staging: &Disk) -> Result<(Root, Spaces)> {
        let _no_merge = self.merge_lock.lock();
        if !self.has_directory() {
            return Err(Error::Closed);
        }
        let mut spaces = Spaces::new();
        self.freeze_spaces(&mut spaces)?;
        let (mut root, end, is_merged) = {
            let writer = self.writer.lock();
            let root = self.root.lock();
            // Those of keyspaces that were made meanwhile.
            self.freeze_spaces(&mut spaces)?;
            let mut moment = root.clone();
            moment.last_seq = moment.last_seq.max(writer.next_seq - 1);
            let view = self.view.load();
            let is_merged = view.frozen().is_empty() && view.active().is_empty();
            (moment, self.syncer.appended_lsn(), is_merged)
        };
        let sealed = match is_merged {
            // The spaces hold all that the log does.
            true => SealedLog::empty(end.segment()),
            false => log::copy(&self.disk, staging, root.log_tail, &root.sealed, end)?,
        };
        root.sealed.insert(sealed.segment, sealed.length);
        if is_merged {
            root.log_tail = sealed.segment + 1;
        }
        self.note_reached(&mut root);
        Ok((root, spaces))
    }

    /// Freezes the spaces that are not.
    fn freeze_spaces(&self, spaces: &mut Spaces) -> Result<()> {
        for keyspace in self.keyspaces.load().iter() {
            if let Entry::Vacant(space) = spaces.entry(keyspace.id) {
                let frozen = keyspace.partition.space().freeze()?;
                space.insert(Arc::new(frozen));
            }
        }
        Ok(())
    }

    /// A file of a frozen space as a backup takes it.
    fn source_of(
        self: &Arc<Flex>,
        keyspace: u32,
        space: &Arc<Frozen>,
        at: usize,
    ) -> Result<SourceFile> {
        let file = &space.files()[at];
        let name = format!("{}{}", space_prefix(keyspace), file.name);
        let mut pieces = Vec::with_capacity(file.parts.len());
        for (number, part) in file.parts.iter().enumerate() {
            let mark = {
                let _held = self.lock.hold().ok_or(Error::Closed)?;
                space.mark(part)?
            };
            let place = part.offset.to_le_bytes();
            let known =
                |mark: Vec<u8>| KnownPieces::by(&[b"space", file.name.as_bytes(), &place, &mark]);
            let (engine, space) = (Arc::clone(self), Arc::clone(space));
            pieces.push(SourcePiece {
                offset: part.offset,
                len: part.len,
                known: mark.map(known),
                open: Box::new(move || Ok(engine.reader_of(&space, at, number))),
            });
        }
        Ok(SourceFile {
            name,
            len: file.len,
            pieces,
        })
    }

    /// Reads a part of a frozen space, as long as the directory is this store's.
    fn reader_of(self: &Arc<Flex>, space: &Arc<Frozen>, file: usize, part: usize) -> PieceReader {
        let (engine, space) = (Arc::clone(self), Arc::clone(space));
        Box::new(move |buffer, offset| {
            let _held = engine.lock.hold().ok_or(Error::Closed)?;
            let part = &space.files()[file].parts[part];
            Ok(space.read(part, offset, buffer)?)
        })
    }
}
