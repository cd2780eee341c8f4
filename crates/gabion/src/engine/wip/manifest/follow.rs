//! Reading the manifest of a store that somebody else writes, as it grows.
//!
//! # Idea
//! A group is one frame that is appended, so what is valid of the file is whole groups, and what is
//! not valid yet is read again later. `CURRENT` is replaced as a whole, and names a manifest only
//! when that has all that the one before said; so a look at `CURRENT` comes first, and a manifest
//! that has gone by then has a successor.
//!
//! # Invariant
//! - What was read is the state at some moment between the call and its return: all groups that
//!   were durable before the call are in it.

use gabion_media::Disk;

use super::layout::Header;
use super::recovery::{damage_of, fold_onto, read_current, read_named, refuse_cut};
use super::state::ManifestState;
use crate::names::manifest_name;
use crate::{Error, Result};

/// So often a file is looked for that goes while it is looked for, or seems damaged while it is
/// written.
const TRIES: usize = 10;

/// Applies to `state` what the manifest in force says behind what was read: of the manifest of that
/// number, up to that offset. Returns how far it was read now, and whether that is further.
pub(super) fn advance(
    disk: &Disk,
    read: (u64, u64),
    state: &mut ManifestState,
) -> Result<(u64, u64, bool)> {
    let mut tried = try_advance(disk, read, state);
    for _ in 1..TRIES {
        match &tried {
            Err(Error::Media(error)) if error.is_not_found() => {}
            Err(Error::Corruption { .. }) => {}
            _ => break,
        }
        // Of a state that edits were applied to nothing is known.
        tried = try_advance(disk, (0, 0), state);
    }
    tried
}

fn try_advance(
    disk: &Disk,
    (number, end): (u64, u64),
    state: &mut ManifestState,
) -> Result<(u64, u64, bool)> {
    let current = read_current(disk)?;
    let corrupt = damage_of(disk, current.manifest);
    if current.manifest != number {
        let (whole, end, _) = read_named(disk, &current)?;
        refuse_unclean(&current, end, &corrupt)?;
        *state = whole;
        return Ok((current.manifest, end, true));
    }
    let name = manifest_name(number);
    if disk.len_of(&name)? == end {
        return Ok((number, end, false));
    }
    let bytes = disk.read_all(&name)?;
    let from = usize::try_from(end).unwrap_or(usize::MAX);
    if from > bytes.len() {
        let what = "the manifest is shorter than it was".to_owned();
        return Err(corrupt(bytes.len() as u64, what));
    }
    let (groups, end) = fold_onto(state, number, &bytes, from, &corrupt)?;
    refuse_cut(number, &bytes, end, &corrupt)?;
    refuse_unclean(&current, end as u64, &corrupt)?;
    Ok((number, end as u64, groups > 0))
}

/// An error where a manifest that ends at `end` had more when the store was closed.
fn refuse_unclean(
    current: &Header,
    end: u64,
    corrupt: &dyn Fn(u64, String) -> Error,
) -> Result<()> {
    match current.clean_len > 0 && current.clean_len != end {
        true => Err(corrupt(end, "the bytes are not a valid edit".to_owned())),
        false => Ok(()),
    }
}
