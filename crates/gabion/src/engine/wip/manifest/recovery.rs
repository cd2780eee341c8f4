//! Reading the manifest, and telling what a directory is.

use gabion_media::{Disk, TEMPORARY_SUFFIX};

use super::edit::decode_group;
use super::layout::{CURRENT_MAGIC, HEADER_BYTES, Header, HeaderState, MANIFEST_MAGIC, VERSION};
use super::state::ManifestState;
use crate::log::frame::{FrameSeed, MARK_BYTES, ParsedFrame, marks};
use crate::names::{
    CURRENT, LOCK, manifest_name, parse_log_name, parse_manifest_name, parse_table_name,
};
use crate::{Error, Result};

/// Number of a store's first manifest.
pub(super) const FIRST_MANIFEST: u64 = 1;

/// What a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManifestLookup {
    /// It holds a store.
    Store,
    /// It is empty, or holds what an interrupted creation left: a store can be created.
    Free,
}

/// What reading a manifest found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecoveredManifest {
    /// What it says.
    pub(crate) state: ManifestState,
    /// Its number.
    pub(crate) number: u64,
    /// Where a group begins that was not completely written, if there is one.
    pub(crate) torn: Option<u64>,
}

/// Tells what the directory is. Foreign files, and a store without its `CURRENT`, are errors.
pub(crate) fn inspect(disk: &Disk) -> Result<ManifestLookup> {
    let names = disk.list()?;
    if names.iter().any(|name| name == CURRENT) {
        return Ok(ManifestLookup::Store);
    }
    let not_a_store = |why: String| {
        let path = disk.path().to_path_buf();
        Err(Error::NotAStore { path, why })
    };
    // Manifests alone prove nothing: if the process ends between the renaming of the first CURRENT
    // and the sync of the directory, the next open begins manifest 2, and then a loss of power may
    // lose CURRENT and keep both manifests. Logs and tables come after a durable CURRENT.
    let beyond_creation =
        |name: &&String| parse_log_name(name).is_some() || parse_table_name(name).is_some();
    if let Some(name) = names.iter().find(beyond_creation) {
        return not_a_store(format!(
            "the file {CURRENT} is missing, and {name} is there; restore {CURRENT} from a copy of \
             the store"
        ));
    }
    let temporary = format!("{CURRENT}{TEMPORARY_SUFFIX}");
    let ours =
        |name: &String| *name == LOCK || *name == temporary || parse_manifest_name(name).is_some();
    if let Some(name) = names.iter().find(|name| !ours(name)) {
        return not_a_store(format!(
            "the directory holds other files, such as {name}; choose an empty or new directory"
        ));
    }
    Ok(ManifestLookup::Free)
}

/// Reads the manifest in force. Writes nothing.
pub(crate) fn read(disk: &Disk) -> Result<RecoveredManifest> {
    let current = read_current(disk)?;
    let (state, end, len) = read_named(disk, &current)?;
    let torn = (end < len).then_some(end);
    match torn {
        Some(end) if current.clean_len > 0 => {
            let what = "the bytes are not a valid edit".to_owned();
            Err(damage_of(disk, current.manifest)(end, what))
        }
        _ => Ok(RecoveredManifest {
            state,
            number: current.manifest,
            torn,
        }),
    }
}

/// Reads the manifest that `CURRENT` names; returns where its valid frames end, and its length.
pub(super) fn read_named(disk: &Disk, current: &Header) -> Result<(ManifestState, u64, u64)> {
    let name = manifest_name(current.manifest);
    let corrupt = damage_of(disk, current.manifest);
    if !disk.exists(&name)? {
        return Err(corrupt(
            0,
            format!("the manifest is missing, though {CURRENT} names it"),
        ));
    }
    let bytes = disk.read_all(&name)?;
    let header = bytes
        .first_chunk()
        .map(|header| Header::decode(header, MANIFEST_MAGIC));
    match header {
        Some(HeaderState::Valid(header)) if header.manifest == current.manifest => {}
        Some(HeaderState::Newer(found)) => {
            let file = disk.path_of(&name);
            return Err(Error::NewerFormat {
                file,
                found,
                supported: VERSION,
            });
        }
        _ => return Err(corrupt(0, "the manifest's header is not valid".to_owned())),
    }
    if current.clean_len > 0 && current.clean_len != bytes.len() as u64 {
        return Err(corrupt(
            current.clean_len.min(bytes.len() as u64),
            format!(
                "the manifest has {} bytes instead of the {} that it had when the store was closed",
                bytes.len(),
                current.clean_len
            ),
        ));
    }
    let (state, end) = fold(current.manifest, &bytes, &corrupt)?;
    refuse_cut(current.manifest, &bytes, end, &corrupt)?;
    Ok((state, end as u64, bytes.len() as u64))
}

/// Reads what is left of the newest manifest: the state up to the first edit that is damaged.
/// `lost` is told what is wrong: also where that may be no more than an edit that a crash has
/// interrupted. An error when nothing of the state can be read, or the format is a newer one.
pub(crate) fn read_damaged(disk: &Disk, lost: &mut dyn FnMut(Error)) -> Result<ManifestState> {
    let error = match read(disk) {
        Ok(loaded) => {
            if let Some(at) = loaded.torn {
                let what = "the bytes are not a valid edit: damage, or an edit that a crash has \
                            interrupted";
                lost(damage_of(disk, loaded.number)(at, what.to_owned()));
            }
            return Ok(loaded.state);
        }
        Err(error @ Error::NewerFormat { .. }) => return Err(error),
        Err(error) => error,
    };
    let newest = disk
        .list()?
        .iter()
        .filter_map(|name| parse_manifest_name(name))
        .max();
    let number = match (read_current(disk), newest) {
        (Ok(current), _) => current.manifest,
        (Err(_), Some(newest)) => newest,
        (Err(_), None) => return Err(error),
    };
    let damage = damage_of(disk, number);
    let nothing_said = |at, what: String| damage(at, format!("{what}. {NO_REPAIR_WITHOUT}"));
    let bytes = match disk.read_all(&manifest_name(number)) {
        Err(error) if error.is_not_found() => {
            return Err(nothing_said(0, "the manifest is missing".to_owned()));
        }
        read => read?,
    };
    let (state, _) = fold(number, &bytes, &nothing_said)?;
    lost(error);
    Ok(state)
}

/// What is told where nothing of the state can be read; the essay of `wip::repair` has the reasons.
const NO_REPAIR_WITHOUT: &str = "only the manifest tells which tables are in use, and to which \
                                 keyspaces they belong, so the store cannot be repaired; restore \
                                 it from a copy or a checkpoint";

/// Makes errors of a manifest's damage: at an offset, and what does not hold.
pub(super) fn damage_of(disk: &Disk, number: u64) -> impl Fn(u64, String) -> Error {
    let file = disk.path_of(&manifest_name(number));
    move |offset, what| Error::Corruption {
        file: file.clone(),
        offset,
        what,
    }
}

/// Whether a manifest is the one that `CURRENT` names.
pub(super) fn names_manifest(disk: &Disk, number: u64) -> bool {
    read_current(disk).is_ok_and(|current| current.manifest == number)
}

/// What the first `len` bytes of a manifest say, which are whole groups.
pub(super) fn read_first(disk: &Disk, number: u64, len: u64) -> Result<ManifestState> {
    let bytes = disk.read_all(&manifest_name(number))?;
    let corrupt = damage_of(disk, number);
    let (state, end) = fold(number, &bytes, &corrupt)?;
    match end as u64 == len && end == bytes.len() {
        true => Ok(state),
        false => {
            let what = format!("only {end} of the {len} bytes of the manifest are valid");
            Err(corrupt(end as u64, what))
        }
    }
}

/// Applies the manifest's groups; returns the state and where the valid frames end.
fn fold(
    number: u64,
    bytes: &[u8],
    corrupt: &dyn Fn(u64, String) -> Error,
) -> Result<(ManifestState, usize)> {
    let mut state = ManifestState::default();
    let (groups, at) = fold_onto(&mut state, number, bytes, HEADER_BYTES, corrupt)?;
    if groups == 0 {
        // CURRENT named this manifest only after its snapshot was durable.
        return Err(corrupt(
            at as u64,
            "the snapshot of the store's state is damaged".to_owned(),
        ));
    }
    Ok((state, at))
}

/// Applies the manifest's groups from an offset on; returns their count and where the valid frames
/// end.
pub(super) fn fold_onto(
    state: &mut ManifestState,
    number: u64,
    bytes: &[u8],
    from: usize,
    corrupt: &dyn Fn(u64, String) -> Error,
) -> Result<(usize, usize)> {
    let place = FrameSeed::new(&MANIFEST_MAGIC, number);
    let (mut groups, mut at) = (0, from);
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match place.parse(at as u64, rest) {
            ParsedFrame::Record(payload) => {
                let payload_at = (at + crate::log::frame::FRAME_HEADER_BYTES) as u64;
                let edits = decode_group(payload).map_err(|malformed| {
                    corrupt(payload_at + malformed.at as u64, malformed.what.to_owned())
                })?;
                for edit in &edits {
                    state.apply(edit).map_err(|what| corrupt(at as u64, what))?;
                }
                groups += 1;
                at += crate::log::frame::FRAME_HEADER_BYTES + payload.len();
            }
            ParsedFrame::Mark(_) => at += MARK_BYTES,
            ParsedFrame::Blank | ParsedFrame::Short(_) | ParsedFrame::Invalid => {
                return Ok((groups, at));
            }
        }
    }
}

/// An error when a manifest whose valid frames end at `at` was durable beyond that.
pub(super) fn refuse_cut(
    number: u64,
    bytes: &[u8],
    at: usize,
    corrupt: &dyn Fn(u64, String) -> Error,
) -> Result<()> {
    let place = FrameSeed::new(&MANIFEST_MAGIC, number);
    let rest = bytes.get(at..).unwrap_or_default();
    let durable = marks(place, at as u64, rest).max().unwrap_or(0);
    if durable > at as u64 {
        let what = format!(
            "the bytes are not a valid edit, but the manifest was durable up to offset {durable}"
        );
        return Err(corrupt(at as u64, what));
    }
    Ok(())
}

/// Fails unless CURRENT is a store's.
pub(crate) fn check_root(disk: &Disk) -> Result<()> {
    read_current(disk).map(drop)
}

pub(super) fn read_current(disk: &Disk) -> Result<Header> {
    let bytes = disk.read_all(CURRENT)?;
    let corrupt = |what: String| {
        let file = disk.path_of(CURRENT);
        Err(Error::Corruption {
            file,
            offset: 0,
            what,
        })
    };
    let Ok(bytes) = <&[u8; HEADER_BYTES]>::try_from(&bytes[..]) else {
        if bytes.first_chunk() == Some(&CURRENT_MAGIC) {
            return corrupt(format!(
                "the file has {} bytes instead of {HEADER_BYTES}",
                bytes.len()
            ));
        }
        return Err(Error::NotAStore {
            path: disk.path().to_path_buf(),
            why: format!("the file {CURRENT} was not written by Gabion"),
        });
    };
    match Header::decode(bytes, CURRENT_MAGIC) {
        HeaderState::Valid(header) => Ok(header),
        HeaderState::Newer(found) => Err(Error::NewerFormat {
            file: disk.path_of(CURRENT),
            found,
            supported: VERSION,
        }),
        HeaderState::Foreign => corrupt("the magic number is not Gabion's".to_owned()),
        HeaderState::Invalid => corrupt("the checksum does not match".to_owned()),
    }
}
