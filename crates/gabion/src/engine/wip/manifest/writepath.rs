//! Creating, opening, appending to and closing the manifest.

use gabion_media::{Appender, Disk, Purpose};

use super::edit::{VersionEdit, encode_group};
use super::follow::advance;
use super::layout::{CURRENT_MAGIC, HEADER_BYTES, Header, MANIFEST_MAGIC};
use super::recovery::{FIRST_MANIFEST, names_manifest, read, read_first};
use super::state::ManifestState;
use crate::log::frame::{FrameSeed, PAYLOAD_BYTES_MAX};
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
    output: Output,
    state: ManifestState,
    /// A file of this length is renewed.
    renewed_at: u64,
    /// The first failure that cannot be undone; nothing is written after it.
    failure: Option<Error>,
}

/// What edits are appended to.
#[derive(Debug)]
enum Output {
    /// The manifest in force.
    File(ManifestFile),
    /// One that is to be begun first, with this number, in the place of `old`, if there is one.
    Wanted { old: Option<u64>, number: u64 },
    /// That of somebody else, who writes it; it was read up to `end`.
    Followed { number: u64, end: u64 },
}

/// An open manifest file.
#[derive(Debug)]
struct ManifestFile {
    number: u64,
    appender: Appender,
    place: FrameSeed,
}

impl Manifest {
    /// Creates the store's first manifest and `CURRENT`. The directory was found
    /// [`Free`](super::ManifestLookup::Free).
    pub(crate) fn create(disk: &Disk) -> Result<Manifest> {
        let mut manifest = Manifest::wanted(disk, None, FIRST_MANIFEST, ManifestState::default());
        manifest.begin()?;
        Ok(manifest)
    }

    /// Creates the manifest and `CURRENT` of a store that holds `state` and was closed cleanly
    /// after the edits `last`. All files that it names are durable.
    pub(crate) fn create_closed(
        disk: &Disk,
        state: ManifestState,
        last: &[VersionEdit],
    ) -> Result<()> {
        Manifest::wanted(disk, None, FIRST_MANIFEST, state).close_clean(last)
    }

    /// Reads the manifest in force, puts a new one with a snapshot in its place and removes all
    /// others. From here on the store counts as not closed cleanly.
    ///
    /// Where there is no space for the new one, it is begun with the first edit, and until then the
    /// files are as they were.
    pub(crate) fn open(disk: &Disk) -> Result<Manifest> {
        let loaded = read(disk)?;
        let old = loaded.number;
        if let Some(at) = loaded.torn {
            let name = manifest_name(old);
            tracing::warn!(
                name,
                at,
                "the last edit was interrupted by a crash and is ignored"
            );
        }
        let mut highest = old;
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
        let mut manifest = Manifest::wanted(disk, Some(old), number, loaded.state);
        match manifest.begin() {
            Err(error) if error.is_no_space() && manifest.is_usable() => {
                tracing::warn!(%error, "a new manifest is begun with the first edit");
                // DURABLE: the last edit of the one in force, which a crash may have interrupted.
                disk.sync_file(&manifest_name(old))?;
            }
            begun => begun?,
        }
        Ok(manifest)
    }

    /// The manifest of a store that somebody else writes: what [`Manifest::advance`] reads.
    pub(crate) fn follow(disk: &Disk) -> Result<Manifest> {
        let mut manifest = Manifest::wanted(disk, None, FIRST_MANIFEST, ManifestState::default());
        // No manifest has that number.
        manifest.output = Output::Followed { number: 0, end: 0 };
        manifest.advance()?;
        Ok(manifest)
    }

    /// Reads what somebody else has written since; whether that was anything. After an error the
    /// next call begins anew.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let Output::Followed { number, end } = self.output else {
            return Ok(false);
        };
        self.output = Output::Followed { number: 0, end: 0 };
        let (number, end, changed) = advance(&self.disk, (number, end), &mut self.state)?;
        self.output = Output::Followed { number, end };
        Ok(changed)
    }

    fn wanted(disk: &Disk, old: Option<u64>, number: u64, state: ManifestState) -> Manifest {
        Manifest {
            disk: disk.clone(),
            output: Output::Wanted { old, number },
            state,
            renewed_at: 0,
            failure: None,
        }
    }

    /// Begins the manifest that is wanted, if one is. Where there is no space or descriptor for it,
    /// all is as before, unless it may be in force; then, as after any other error, it takes no
    /// edit.
    fn begin(&mut self) -> Result<()> {
        let Output::Wanted { old, number } = self.output else {
            return Ok(());
        };
        let created = ManifestFile::create(&self.disk, old, number, &self.state);
        let is_as_before = |error: &Error| {
            let is_in_force = |old| is_still_in_force(&self.disk, old, error);
            error.is_shortage() && old.is_some_and(is_in_force)
        };
        if created.as_ref().is_err_and(is_as_before) {
            return created.map(drop);
        }
        let begun = created.and_then(|file| {
            self.renewed_at = file.renewed_at();
            self.output = Output::File(file);
            self.mark()?;
            self.remove_all_but(number)
        });
        self.failure = begun.clone().err();
        begun
    }

    /// Removes all other manifests. Without descriptors or space for that, another opening does.
    fn remove_all_but(&self, number: u64) -> Result<()> {
        match self.try_remove_all_but(number) {
            Err(error) if error.is_shortage() => Ok(()),
            removed => removed,
        }
    }

    fn try_remove_all_but(&self, number: u64) -> Result<()> {
        for name in self.disk.list()? {
            if parse_manifest_name(&name).is_some_and(|other| other != number) {
                self.disk.remove(&name)?;
            }
        }
        Ok(())
    }

    /// The size of a group of edits, which is at most [`GROUP_BYTES_MAX`].
    pub(crate) fn group_bytes(edits: &[VersionEdit]) -> u64 {
        encode_group(edits.iter()).len() as u64
    }

    /// What the manifest says.
    pub(crate) fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Applies a group of edits: all of them or, after a crash, none. They are durable when this
    /// returns.
    ///
    /// A group that does not fit the state is an error, and nothing is written. Where there is no
    /// space for a group, all is as before, and the manifest takes edits again. After any other
    /// error it does not ([`Manifest::is_usable`]): whether the group is in force shows at the next
    /// open.
    pub(crate) fn apply(&mut self, edits: &[VersionEdit]) -> Result<()> {
        self.append(edits)?;
        // The group is in force, whatever becomes of these; the next one tells of a failure.
        let ended = self.mark().and_then(|()| self.renew_if_long());
        self.failure = ended.err();
        Ok(())
    }

    /// Applies last edits and records that the store was closed cleanly. The manifest takes no more
    /// edits.
    pub(crate) fn close_clean(&mut self, edits: &[VersionEdit]) -> Result<()> {
        if edits.is_empty() {
            self.check()?;
            self.begin()?;
            self.output.file()?.appender.sync()?;
        } else {
            self.append(edits)?;
        }
        self.failure = Some(Error::Closed);
        let file = self.output.file()?;
        file.put_in_force(&self.disk, file.appender.len())
    }

    /// Whether the manifest takes edits.
    pub(crate) fn is_usable(&self) -> bool {
        self.failure.is_none()
    }

    /// Begins a new manifest, unless there is no space for one. Its snapshot must be valid: what it
    /// says is never taken for a group that a crash has interrupted, whatever becomes of the bytes
    /// behind it. As after a group, the next one tells of a failure.
    pub(crate) fn renew(&mut self) {
        if self.is_usable() {
            self.renewed_at = 0;
            self.failure = self.renew_if_long().err();
        }
    }

    /// Lets the next group be followed by a new manifest.
    #[cfg(test)]
    pub(super) fn renew_next(&mut self) {
        self.renewed_at = 0;
    }

    fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Applies a group, durably. The state is changed first, which shows whether the group fits it.
    fn append(&mut self, edits: &[VersionEdit]) -> Result<()> {
        self.check()?;
        self.begin()?;
        let appended = self.change_state(edits).and_then(|()| {
            let file = self.output.file()?;
            let group = encode_group(edits.iter());
            match file.append_group(&group) {
                Err(error) if error.is_no_space() => {
                    // What is left of the group is cut off, and the state is what the file says.
                    file.appender.cut()?;
                    self.state = file.read_again(&self.disk)?;
                    Ok(Err(error))
                }
                Err(error) => Err(error),
                // DURABLE: the group. All groups before it were made durable by their own syncs.
                Ok(()) => Ok(Ok(file.appender.sync()?)),
            }
        });
        appended.unwrap_or_else(|error| {
            self.failure = Some(error.clone());
            Err(error)
        })
    }

    fn change_state(&mut self, edits: &[VersionEdit]) -> Result<()> {
        let file = self.output.file()?;
        for edit in edits {
            self.state.apply(edit).map_err(|what| Error::Corruption {
                file: file.appender.path().to_path_buf(),
                offset: file.appender.len(),
                what,
            })?;
        }
        Ok(())
    }

    /// Says that everything so far is durable. The mark need not be durable itself, and where there
    /// is no space for it there is none.
    fn mark(&mut self) -> Result<()> {
        let file = self.output.file()?;
        match file.append_mark() {
            Err(error) if error.is_no_space() => Ok(file.appender.cut()?),
            marked => marked,
        }
    }

    /// Begins a new manifest with a snapshot of the state if this one has grown long. Without space
    /// or descriptors for it the one in force goes on, and this is tried again when it has grown.
    fn renew_if_long(&mut self) -> Result<()> {
        let file = self.output.file()?;
        let (old, len) = (file.number, file.appender.len());
        if len <= self.renewed_at {
            return Ok(());
        }
        match ManifestFile::create(&self.disk, Some(old), old + 1, &self.state) {
            Ok(file) => {
                self.renewed_at = file.renewed_at();
                self.output = Output::File(file);
                // What cannot be removed the next open removes.
                let _ = self.disk.remove(&manifest_name(old));
                self.mark()
            }
            Err(error) if error.is_shortage() && is_still_in_force(&self.disk, old, &error) => {
                tracing::warn!(%error, "the manifest could not be rewritten yet");
                self.renewed_at = len + GROWTH_BYTES;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Output {
    /// The manifest in force, which was begun.
    fn file(&mut self) -> Result<&mut ManifestFile> {
        match self {
            Output::File(file) => Ok(file),
            Output::Wanted { .. } => Err(Error::Closed),
            Output::Followed { .. } => Err(Error::OpenedReadOnly),
        }
    }
}

impl ManifestFile {
    /// Writes a manifest with a snapshot of `state` and puts it in force, in the place of `old`. If
    /// this fails, and `old` is in force, nothing is left of it.
    fn create(
        disk: &Disk,
        old: Option<u64>,
        number: u64,
        state: &ManifestState,
    ) -> Result<ManifestFile> {
        let name = manifest_name(number);
        // What an earlier try has left.
        match disk.remove(&name) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        let created = ManifestFile::write(disk, number, state).and_then(|file| {
            // DURABLE: the manifest with its snapshot, and its name; CURRENT may point to it.
            file.put_in_force(disk, 0)?;
            Ok(file)
        });
        created.inspect_err(|error| {
            if old.is_some_and(|old| is_still_in_force(disk, old, error)) {
                // It takes space of which there may be none left. Else the next open removes it.
                let _ = disk.remove(&name);
            }
        })
    }

    /// Writes a manifest with a snapshot of `state`, durably.
    fn write(disk: &Disk, number: u64, state: &ManifestState) -> Result<ManifestFile> {
        let mut appender = disk.create_append(&manifest_name(number), Purpose::Metadata)?;
        appender.append(
            &Header {
                manifest: number,
                clean_len: 0,
            }
            .encode(MANIFEST_MAGIC),
        )?;
        debug_assert_eq!(appender.len(), HEADER_BYTES as u64);
        let place = FrameSeed::new(&MANIFEST_MAGIC, number);
        let mut file = ManifestFile {
            number,
            appender,
            place,
        };
        file.append_group(&encode_group(state.snapshot().iter()))?;
        file.appender.sync()?;
        disk.sync_dir()?;
        Ok(file)
    }

    /// What the file says.
    fn read_again(&self, disk: &Disk) -> Result<ManifestState> {
        read_first(disk, self.number, self.appender.len())
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

    fn append_mark(&mut self) -> Result<()> {
        let at = self.appender.len();
        Ok(self.appender.append(&self.place.mark(at, at))?)
    }

    /// The length at which the file, which holds a snapshot only, is worth a new one.
    fn renewed_at(&self) -> u64 {
        2 * self.appender.len() + GROWTH_BYTES
    }
}

/// Whether a manifest is in force still, after another one could not be put in its place: what
/// failed may be the sync of the directory, which has the new one by then.
fn is_still_in_force(disk: &Disk, old: u64, error: &Error) -> bool {
    error.is_too_many_files() || names_manifest(disk, old)
}
