//! Creating, opening, appending to and closing the manifest.

use gabion_media::{Appender, Disk, Purpose};

use super::edit::{Edit, encode_group};
use super::layout::{CURRENT_MAGIC, HEADER_BYTES, Header, MANIFEST_MAGIC};
use super::recovery::{FIRST_MANIFEST, read};
use super::state::ManifestState;
use crate::log::frame::{PAYLOAD_BYTES_MAX, Place};
use crate::names::{CURRENT, manifest_name, parse_manifest_name};
use crate::{Error, Result};

/// A manifest may grow by this many bytes beyond twice its snapshot before a new one is begun:
/// large enough that it happens rarely, small enough to be read in milliseconds.
const GROWTH_BYTES: u64 = 4 << 20;

/// The largest group of edits.
pub(crate) const GROUP_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64;

/// The manifest in force. One thread at a time changes it.
#[derive(Debug)]
pub(crate) struct Manifest {
    disk: Disk,
    file: ManifestFile,
    state: ManifestState,
    /// The first failure; nothing is written after it.
    failure: Option<Error>,
}

/// An open manifest file.
#[derive(Debug)]
struct ManifestFile {
    number: u64,
    appender: Appender,
    place: Place,
    /// Length with the snapshot only.
    snapshot_len: u64,
}

impl Manifest {
    /// Creates the store's first manifest and `CURRENT`. The directory was found
    /// [`Free`](super::Directory::Free).
    pub(crate) fn create(disk: &Disk) -> Result<Manifest> {
        match disk.remove(&manifest_name(FIRST_MANIFEST)) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        Manifest::begin(disk, FIRST_MANIFEST, ManifestState::default())
    }

    /// Creates the manifest and `CURRENT` of a store that holds `state` and was closed cleanly
    /// after the edits `last`. All files that it names are durable.
    pub(crate) fn create_closed(disk: &Disk, state: ManifestState, last: &[Edit]) -> Result<()> {
        Manifest::begin(disk, FIRST_MANIFEST, state)?.close_clean(last)
    }

    /// Reads the manifest in force, puts a new one with a snapshot in its place and removes all
    /// others. From here on the store counts as not closed cleanly.
    pub(crate) fn open(disk: &Disk) -> Result<Manifest> {
        let loaded = read(disk)?;
        let mut highest = loaded.number;
        for name in disk.list()? {
            highest = highest.max(parse_manifest_name(&name).unwrap_or(0));
        }
        let Some(number) = highest.checked_add(1) else {
            let (what, limit) = ("number of manifests", u64::MAX);
            return Err(Error::Limit {
                what,
                size: highest,
                limit,
            });
        };
        Manifest::begin(disk, number, loaded.state)
    }

    fn begin(disk: &Disk, number: u64, state: ManifestState) -> Result<Manifest> {
        let file = ManifestFile::create(disk, number, &state)?;
        let manifest = Manifest {
            disk: disk.clone(),
            file,
            state,
            failure: None,
        };
        manifest.remove_others()?;
        Ok(manifest)
    }

    /// The size of a group of edits, which is at most [`GROUP_BYTES_MAX`].
    pub(crate) fn group_bytes(edits: &[Edit]) -> u64 {
        encode_group(edits.iter()).len() as u64
    }

    /// What the manifest says.
    pub(crate) fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Applies a group of edits: all of them or, after a crash, none. They are durable when this
    /// returns.
    ///
    /// A group that does not fit the state is an error, and nothing is written. After any error the
    /// manifest takes no more edits: whether the group is in force shows at the next open.
    pub(crate) fn apply(&mut self, edits: &[Edit]) -> Result<()> {
        self.while_healthy(|manifest| {
            manifest.append(edits)?;
            // The mark need not be durable itself. If it cannot be written, the group is in force
            // all the same; the next one would fail in the same way.
            if let Err(error) = manifest.file.append_mark() {
                manifest.failure = Some(error);
            } else if manifest.file.is_overgrown() {
                manifest.renew()?;
            }
            Ok(())
        })
    }

    /// Applies last edits and records that the store was closed cleanly. The manifest takes no more
    /// edits.
    pub(crate) fn close_clean(&mut self, edits: &[Edit]) -> Result<()> {
        self.while_healthy(|manifest| {
            if edits.is_empty() {
                manifest.file.appender.sync()?;
            } else {
                manifest.append(edits)?;
            }
            manifest
                .file
                .put_in_force(&manifest.disk, manifest.file.appender.len())
        })?;
        self.failure = Some(Error::Closed);
        Ok(())
    }

    fn while_healthy(&mut self, work: impl FnOnce(&mut Manifest) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        work(self).inspect_err(|error| self.failure = Some(error.clone()))
    }

    fn append(&mut self, edits: &[Edit]) -> Result<()> {
        for edit in edits {
            let at = self.file.appender.len();
            let file = self.file.appender.path();
            self.state.apply(edit).map_err(|what| Error::Corruption {
                file: file.to_path_buf(),
                offset: at,
                what,
            })?;
        }
        self.file.append_group(&encode_group(edits.iter()))?;
        // DURABLE: the group. All groups before it were made durable by their own syncs.
        Ok(self.file.appender.sync()?)
    }

    /// Begins a new manifest with a snapshot of the state.
    fn renew(&mut self) -> Result<()> {
        self.file = ManifestFile::create(&self.disk, self.file.number + 1, &self.state)?;
        self.remove_others()
    }

    fn remove_others(&self) -> Result<()> {
        for name in self.disk.list()? {
            if parse_manifest_name(&name).is_some_and(|number| number != self.file.number) {
                self.disk.remove(&name)?;
            }
        }
        Ok(())
    }
}

impl ManifestFile {
    /// Writes a manifest with a snapshot of `state` and puts it in force.
    fn create(disk: &Disk, number: u64, state: &ManifestState) -> Result<ManifestFile> {
        let mut appender = disk.create_append(&manifest_name(number), Purpose::Metadata)?;
        appender.append(
            &Header {
                manifest: number,
                clean_len: 0,
            }
            .encode(MANIFEST_MAGIC),
        )?;
        debug_assert_eq!(appender.len(), HEADER_BYTES as u64);
        let place = Place::new(&MANIFEST_MAGIC, number);
        let mut file = ManifestFile {
            number,
            appender,
            place,
            snapshot_len: 0,
        };
        file.append_group(&encode_group(state.snapshot().iter()))?;
        file.snapshot_len = file.appender.len();
        file.appender.sync()?;
        disk.sync_dir()?;
        // DURABLE: the manifest with its snapshot, and its name; CURRENT may point to it.
        file.put_in_force(disk, 0)?;
        file.append_mark()?;
        Ok(file)
    }

    fn put_in_force(&self, disk: &Disk, clean_len: u64) -> Result<()> {
        let current = Header {
            manifest: self.number,
            clean_len,
        }
        .encode(CURRENT_MAGIC);
        Ok(disk.replace(CURRENT, &current, Purpose::Metadata)?)
    }

    fn append_group(&mut self, payload: &[u8]) -> Result<()> {
        let len = match u32::try_from(payload.len()) {
            Ok(len) if u64::from(len) <= GROUP_BYTES_MAX => len,
            _ => {
                let (what, size) = ("group of manifest edits", payload.len() as u64);
                return Err(Error::Limit {
                    what,
                    size,
                    limit: GROUP_BYTES_MAX,
                });
            }
        };
        let header = self.place.header(self.appender.len(), len, &[payload]);
        Ok(self.appender.append(&[&header, payload].concat())?)
    }

    /// Says that everything so far is durable.
    fn append_mark(&mut self) -> Result<()> {
        let at = self.appender.len();
        Ok(self.appender.append(&self.place.mark(at, at))?)
    }

    fn is_overgrown(&self) -> bool {
        self.appender.len() > 2 * self.snapshot_len + GROWTH_BYTES
    }
}
