//! Crash images: what a medium may hold after a power loss.
//!
//! # Idea
//! The system writes the dirty pages of a file back whenever it likes. So each sector of a file
//! holds its bytes as they were at *some* moment between the last sync and the crash: the sector
//! chooses how many of the unsynced writes that touch it have reached it, in their order, and
//! sectors choose independently. The length chooses a moment for itself. A sector behind the
//! length is cut off; one before it that nothing reached reads as zeros.
//!
//! A store into a mapping may be caught half done by a write-back at the same time, so of the
//! first write that is missing in a sector a first part may be there, in steps of eight bytes.
//!
//! The unsynced changes of the directory survive as a first part in their order, as journaling file
//! systems keep them, or as any subset, which is all that the interface promises. A rename is
//! never half done.
//!
//! All choices come from the seed, so a crash can be repeated.

use std::collections::BTreeMap;

use super::content::FileContent;
use super::state::{DiskState, FileChange, FileNames, SimInode};
use crate::seeded::SeededRng;

/// What becomes of unsynced changes at the loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tear {
    /// All are lost.
    DropAll,
    /// All survive.
    KeepAll,
    /// Each sector of 512 bytes decides for itself.
    Random512,
    /// Each sector of 4096 bytes decides for itself.
    Random4096,
}

impl Tear {
    /// All styles.
    pub const ALL: [Tear; 4] = [
        Tear::DropAll,
        Tear::KeepAll,
        Tear::Random512,
        Tear::Random4096,
    ];
}

/// Stores into a mapping reach the medium whole in units of this many bytes.
const MAPPED_UNIT: u64 = 8;

/// The disk after the loss of power.
pub(super) fn after_power_cut(state: &DiskState, seed: u64, style: Tear) -> DiskState {
    let mut random = SeededRng::new(seed);
    let names = surviving_names(state, &mut random, style);
    let mut files = BTreeMap::new();
    for &inode in names.values() {
        if let Some(file) = state.file(inode) {
            let mut random = SeededRng::new(seed ^ inode.wrapping_add(1).rotate_left(32));
            let live = surviving_content(file, &mut random, style);
            files.insert(inode, SimInode::settled(live));
        }
    }
    DiskState::settled(state.new_inode(), files, names)
}

fn surviving_names(state: &DiskState, random: &mut SeededRng, style: Tear) -> FileNames {
    let mut names = state.durable_names.clone();
    let changes = &state.pending_names;
    let in_order = random.one_in(2);
    let prefix = extreme_or_between(random, changes.len());
    for (index, change) in changes.iter().enumerate() {
        let survives = match style {
            Tear::DropAll => false,
            Tear::KeepAll => true,
            Tear::Random512 | Tear::Random4096 if in_order => index < prefix,
            Tear::Random512 | Tear::Random4096 => random.one_in(2),
        };
        if survives {
            change.apply(&mut names);
        }
    }
    names
}

/// What a file is on the medium when any part of its unsynced changes has reached it.
pub(super) fn part_of_content(file: &SimInode, seed: u64) -> FileContent {
    surviving_content(file, &mut SeededRng::new(seed), Tear::Random512)
}

/// As [`part_of_content`], of the directory.
pub(super) fn part_of_names(state: &DiskState, seed: u64) -> FileNames {
    surviving_names(state, &mut SeededRng::new(seed), Tear::Random512)
}

fn surviving_content(file: &SimInode, random: &mut SeededRng, style: Tear) -> FileContent {
    if file.pending.is_empty() {
        return file.durable.clone();
    }
    match style {
        Tear::DropAll => file.durable.clone(),
        Tear::KeepAll if !file.forgotten => file.live.clone(),
        Tear::KeepAll => {
            let mut content = file.durable.clone();
            file.pending
                .iter()
                .for_each(|change| change.apply(&mut content));
            content
        }
        Tear::Random512 => torn_content(file, random, 512),
        Tear::Random4096 => torn_content(file, random, 4096),
    }
}

/// The part of one write that lies in one sector.
struct Piece {
    sector: u64,
    change: usize,
    offset: u64,
    size: u64,
    /// How many of its first bytes reached the medium.
    kept: u64,
}

fn torn_content(file: &SimInode, random: &mut SeededRng, sector_bytes: u64) -> FileContent {
    let mut pieces = pieces_of(&file.pending, sector_bytes);
    choose(&mut pieces, &file.pending, random);

    // Lengths change in order: those of the first `moment` changes happened.
    let moment = extreme_or_between(random, file.pending.len());
    let mut len = file.durable.len();
    let mut content = file.durable.clone();
    let mut pieces = pieces.into_iter().peekable();
    for (index, change) in file.pending.iter().enumerate() {
        if index < moment {
            len = change.len_after(len);
        }
        match change {
            FileChange::SetLen(len) if index < moment => content.set_len(*len),
            FileChange::Reserve { .. } if index < moment => change.apply(&mut content),
            FileChange::SetLen(_) | FileChange::Reserve { .. } => {}
            FileChange::GiveBack { .. } => change.apply(&mut content),
            FileChange::Write { offset, bytes, .. } => {
                while let Some(piece) = pieces.next_if(|piece| piece.change == index) {
                    let start = to_usize(piece.offset - offset);
                    let kept = &bytes[start..start + to_usize(piece.kept)];
                    content.write(piece.offset, kept);
                }
            }
        }
    }
    content.set_len(len);
    content
}

/// All writes cut at sectors, in the order of the writes.
fn pieces_of(changes: &[FileChange], sector_bytes: u64) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(changes.len());
    for (change, written) in changes.iter().enumerate() {
        let FileChange::Write { offset, bytes, .. } = written else {
            continue;
        };
        let end = offset + bytes.len() as u64;
        let mut at = *offset;
        while at < end {
            let sector = at / sector_bytes;
            let size = ((sector + 1) * sector_bytes).min(end) - at;
            pieces.push(Piece {
                sector,
                change,
                offset: at,
                size,
                kept: 0,
            });
            at += size;
        }
    }
    pieces
}

/// Lets each sector choose how many of its pieces it has.
fn choose(pieces: &mut [Piece], changes: &[FileChange], random: &mut SeededRng) {
    let by_sector = |(index, piece): (usize, &Piece)| (piece.sector, index);
    let mut order: Vec<(u64, usize)> = pieces.iter().enumerate().map(by_sector).collect();
    order.sort_unstable();
    // Some crashes lose nearly nothing and some nearly everything: a single sector that is
    // missing, or there, finds other mistakes than a file half of whose sectors are.
    let bias = random.below(4);
    for group in order.chunk_by(|a, b| a.0 == b.0) {
        let there = match bias {
            0 if !random.one_in(8) => group.len(),
            1 if !random.one_in(8) => 0,
            _ => extreme_or_between(random, group.len()),
        };
        for &(_, index) in &group[..there] {
            pieces[index].kept = pieces[index].size;
        }
        let Some(&(_, missing)) = group.get(there) else {
            continue;
        };
        let piece = &mut pieces[missing];
        let mapped = matches!(
            changes[piece.change],
            FileChange::Write { mapped: true, .. }
        );
        if mapped && random.one_in(4) {
            let cut = piece.offset + random.below(piece.size + 1);
            let aligned = cut - cut % MAPPED_UNIT;
            piece.kept = aligned.saturating_sub(piece.offset);
        }
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).expect("a simulated file fits into memory")
}

/// None, all or, as often as each of these, something between of `count` things.
fn extreme_or_between(random: &mut SeededRng, count: usize) -> usize {
    match random.below(3) {
        0 => 0,
        1 => count,
        _ => random.index(count + 1),
    }
}
