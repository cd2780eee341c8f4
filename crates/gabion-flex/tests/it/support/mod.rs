//! Random steps on a space and on its naive twin, a vector of bytes.

use gabion_flex::{Edit, FlexSpace, GcRound, Options, Result};

pub(crate) use gabion_media::seeded::{PanicContext, SeededRng, each_seed, setting};

/// The first seed of random tests.
pub(crate) fn base_seed() -> u64 {
    setting("GABION_FLEX_SEED", 1)
}

/// Bytes that tell where they came from.
pub(crate) fn bytes_of(number: u64, len: usize) -> Vec<u8> {
    let mut random = SeededRng::new(number);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| random.word().to_le_bytes())
        .collect();
    bytes.truncate(len);
    bytes
}

/// An edit with its own bytes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Insert(u64, Vec<u8>),
    InsertHole(u64, u64),
    Collapse(u64, u64),
    Write(u64, Vec<u8>),
    Punch(u64, u64),
}

impl Change {
    pub(crate) fn edit(&self) -> Edit<'_> {
        match self {
            Change::Insert(offset, data) => Edit::Insert {
                offset: *offset,
                data,
            },
            Change::InsertHole(offset, len) => Edit::InsertHole {
                offset: *offset,
                len: *len,
            },
            Change::Collapse(offset, len) => Edit::Collapse {
                offset: *offset,
                len: *len,
            },
            Change::Write(offset, data) => Edit::Write {
                offset: *offset,
                data,
            },
            Change::Punch(offset, len) => Edit::Punch {
                offset: *offset,
                len: *len,
            },
        }
    }

    pub(crate) fn apply_to(&self, twin: &mut Vec<u8>) {
        let at = |offset: u64| usize::try_from(offset).unwrap();
        match self {
            Change::Insert(offset, data) => {
                twin.splice(at(*offset)..at(*offset), data.iter().copied());
            }
            Change::InsertHole(offset, len) => {
                twin.splice(at(*offset)..at(*offset), vec![0; at(*len)]);
            }
            Change::Collapse(offset, len) => {
                twin.drain(at(*offset)..at(offset + len));
            }
            Change::Write(offset, data) => {
                let end = at(*offset) + data.len();
                if !data.is_empty() && twin.len() < end {
                    twin.resize(end, 0);
                }
                if !data.is_empty() {
                    twin[at(*offset)..end].copy_from_slice(data);
                }
            }
            Change::Punch(offset, len) => twin[at(*offset)..at(offset + len)].fill(0),
        }
    }
}

/// What a workload does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A group of changes.
    Apply(Vec<Change>),
    Sync,
    Checkpoint,
    Defrag(u64, u64),
    Collect,
    CollectSome(GcRound),
    /// Close and open again, after a sync.
    Reopen,
}

/// How a workload's spaces are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The space is kept at about this length.
    pub(crate) len: u64,
    /// Longest data of a change, most are shorter.
    pub(crate) data_max: usize,
    /// Of so many steps one is a sync.
    pub(crate) sync_in: u64,
}

/// The next step for a space of `len` bytes.
pub(crate) fn next_step(random: &mut SeededRng, shape: &Shape, len: u64) -> Step {
    if random.one_in(shape.sync_in) {
        return match random.below(16) {
            0 | 1 => Step::Checkpoint,
            2 => Step::Collect,
            3 => Step::Reopen,
            4 => Step::Defrag(random.below(len), random.below(len)),
            5 => Step::CollectSome(GcRound {
                segments: u32::try_from(1 + random.below(4)).unwrap(),
                garbage_parts: u32::try_from(1 + random.below(12)).unwrap(),
            }),
            _ => Step::Sync,
        };
    }
    let mut len = len;
    let mut changes = Vec::new();
    let count = if random.one_in(5) {
        1 + random.below(4)
    } else {
        1
    };
    for _ in 0..count {
        let (change, after) = next_change(random, shape, len);
        changes.push(change);
        len = after;
    }
    Step::Apply(changes)
}

fn next_change(random: &mut SeededRng, shape: &Shape, len: u64) -> (Change, u64) {
    let most = if random.one_in(12) {
        shape.data_max
    } else {
        shape.data_max / 20 + 1
    };
    let data = |random: &mut SeededRng| bytes_of(random.word(), random.clone().index(most + 1));
    let offset = random.below(len + 1);
    let short = random.below(most as u64 + 1).min(len - offset);
    let grow = len < shape.len;
    match random.below(10) {
        0..=3 if grow || random.one_in(4) => {
            let data = data(random);
            let after = len + data.len() as u64;
            (Change::Insert(offset, data), after)
        }
        4 if grow => {
            let data = data(random);
            let after = len + data.len() as u64;
            (Change::Insert(len, data), after)
        }
        5 if grow => (Change::InsertHole(offset, short), len + short),
        6 => (Change::Punch(offset, short), len),
        7 | 8 => {
            let data = data(random);
            let beyond = if random.one_in(8) {
                random.below(500)
            } else {
                0
            };
            let offset = if beyond > 0 { len + beyond } else { offset };
            let end = if data.is_empty() {
                len
            } else {
                offset + data.len() as u64
            };
            (Change::Write(offset, data), len.max(end))
        }
        _ if !grow => {
            let much = random.below(len / 3 + 1).min(len - offset);
            let len_removed = if random.one_in(6) { much } else { short };
            (Change::Collapse(offset, len_removed), len - len_removed)
        }
        _ => {
            let data = data(random);
            let after = len + data.len() as u64;
            (Change::Insert(offset, data), after)
        }
    }
}

/// Groups of insertions that make many extents, each of some bytes: so a tree has many leaves.
pub(crate) fn scattered(random: &mut SeededRng, groups: u64, each: u64) -> Vec<Vec<Change>> {
    let mut len = 0;
    let group = |_| {
        let change = |_| {
            let data = bytes_of(random.word(), 1 + random.index(4));
            let offset = random.below(len + 1);
            len += data.len() as u64;
            Change::Insert(offset, data)
        };
        (0..each).map(change).collect()
    };
    (0..groups).map(group).collect()
}

/// Applies a group.
pub(crate) fn apply(space: &FlexSpace, changes: &[Change]) -> Result<()> {
    let edits: Vec<Edit<'_>> = changes.iter().map(Change::edit).collect();
    space.apply(&edits)
}

/// All bytes of a space.
pub(crate) fn read_all(space: &FlexSpace) -> Result<Vec<u8>> {
    let mut bytes = vec![0xee; usize::try_from(space.len()).unwrap()];
    let len = space.read_at(0, &mut bytes)?;
    assert_eq!(len, bytes.len(), "a space has as many bytes as it says");
    Ok(bytes)
}

/// Tells in few words how two contents differ.
pub(crate) fn difference(found: &[u8], expected: &[u8]) -> String {
    let at = found
        .iter()
        .zip(expected)
        .position(|(found, expected)| found != expected);
    format!(
        "{} bytes, not {}; the first other byte: {at:?}",
        found.len(),
        expected.len()
    )
}

/// Options as small as they can be, so that everything happens often.
pub(crate) fn small_options(random: &mut SeededRng) -> Options {
    Options::default()
        .segment_bytes([4 << 10, 8 << 10][random.index(2)])
        .block_bytes([256, 512][random.index(2)])
        .log_bytes([4 << 10, 8 << 10][random.index(2)])
        .commit_bytes([200, 1000, 5000][random.index(3)])
        .index_bytes([None, Some(1), Some(6 << 10)][random.index(3)])
}
