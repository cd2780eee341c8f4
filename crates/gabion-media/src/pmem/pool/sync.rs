//! Syncing a pool on an ordinary file: its checkpoints, and who waits for whom.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::super::checkpoint::{Checkpoint, PAGE_BYTES, Page};
use super::super::checkpoint_gate::{CheckpointGate, WriteGuard};
use super::super::dirty::{DirtyPages, PAGE};
use super::super::file::PoolFile;
use super::super::layout::PoolGeometry;
use super::super::medium::Medium;
use super::super::options::PoolOptions;
use super::super::page_witness::PageWitness;
use super::super::region::Region;
use crate::disk::Disk;
use crate::{Error, Result};

/// What a pool of class `PowerBySync` has besides its memory.
pub(super) struct SyncState {
    gate: CheckpointGate,
    dirty: Arc<DirtyPages>,
    state: Mutex<State>,
    told: Told,
}

/// What is told of the checkpoint. Apart from `state`, which a sync holds while it waits for the
/// gate: who is within may ask.
#[derive(Default)]
struct Told {
    file_bytes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

// ORDER: Relaxed throughout: numbers that stand for themselves.
impl Told {
    fn update(&self, checkpoint: &Checkpoint) {
        let (written_bytes, syncs) = checkpoint.costs();
        self.file_bytes.store(checkpoint.len(), Ordering::Relaxed);
        self.written_bytes.store(written_bytes, Ordering::Relaxed);
        self.syncs.store(syncs, Ordering::Relaxed);
    }
}

struct State {
    checkpoint: Checkpoint,
    /// Whether it is not known which pages changed since the last checkpoint.
    needs_image: bool,
    /// What tells by the next opening that the checkpoint is not ahead of the pool.
    witness: Option<PageWitness>,
}

impl State {
    /// Says that there may be a next checkpoint from here on.
    fn announce(&self) -> Result<()> {
        let next = self.checkpoint.sequence() + 1;
        self.witness
            .as_ref()
            .map_or(Ok(()), |witness| witness.mark(next))
    }
}

impl SyncState {
    pub(super) fn new(checkpoint: Checkpoint, dirty: Arc<DirtyPages>) -> SyncState {
        let told = Told::default();
        told.update(&checkpoint);
        let state = Mutex::new(State {
            checkpoint,
            needs_image: true,
            witness: None,
        });
        SyncState {
            gate: CheckpointGate::default(),
            dirty,
            state,
            told,
        }
    }

    pub(super) fn pass(&self) -> WriteGuard<'_> {
        self.gate.pass()
    }

    /// Says that the pool's content is that of its last checkpoint, but for the pages noted since.
    pub(super) fn continue_from_checkpoint(&self) {
        self.state.lock().needs_image = false;
    }

    /// Lets the pages behind the pool go with its checkpoints.
    pub(super) fn set_witness(&self, witness: Option<PageWitness>) {
        self.state.lock().witness = witness;
    }

    /// Whether a sync of the pool's file promises as much as one of the checkpoint.
    pub(super) fn is_as_lasting(&self, file: &PoolFile) -> Result<bool> {
        self.state.lock().checkpoint.shares_file_system(file.file())
    }

    /// Number of the last checkpoint.
    pub(super) fn sequence(&self) -> u64 {
        self.state.lock().checkpoint.sequence()
    }

    /// Bytes that were written to checkpoints since the pool was opened, and syncs of them.
    pub(super) fn costs(&self) -> (u64, u64) {
        let Told {
            written_bytes,
            syncs,
            ..
        } = &self.told;
        // ORDER: Relaxed, see the type.
        (
            written_bytes.load(Ordering::Relaxed),
            syncs.load(Ordering::Relaxed),
        )
    }

    /// Bytes of the checkpoint file.
    pub(super) fn file_bytes(&self) -> u64 {
        // ORDER: Relaxed, see the type.
        self.told.file_bytes.load(Ordering::Relaxed)
    }

    /// Makes a checkpoint of what has happened before the call.
    pub(super) fn sync(
        &self,
        medium: &Medium,
        geometry: &PoolGeometry,
        reserved: impl FnOnce() -> u64,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let synced = self.sync_locked(&mut state, medium, geometry, reserved);
        self.told.update(&state.checkpoint);
        synced
    }

    fn sync_locked(
        &self,
        state: &mut State,
        medium: &Medium,
        geometry: &PoolGeometry,
        reserved: impl FnOnce() -> u64,
    ) -> Result<()> {
        state.checkpoint.check()?;
        state.announce()?;
        let State {
            checkpoint,
            needs_image,
            ..
        } = state;
        let region = medium.region();
        let read = |page: u64, bytes: &mut Page| {
            region.read(place(page), bytes);
            Ok(())
        };
        let closed = self.gate.close();
        let dirty = self.dirty.take();
        let written = if *needs_image {
            let pages = pages_in_use(geometry, reserved());
            let pages = pages.filter(|page| !is_zero(region, *page));
            checkpoint.write(pages, true, read)
        } else if dirty.is_empty() {
            return Ok(());
        } else {
            checkpoint.write(dirty.iter().copied(), false, read)
        };
        drop(closed);
        let synced = written.and_then(|()| checkpoint.commit());
        if let Err(error) = synced {
            self.dirty.put_back(&dirty);
            return Err(error);
        }
        *needs_image = false;
        if state.checkpoint.wants_image() {
            // The checkpoint is durable; a smaller file only saves space, and the next sync tries
            // again. If the file could not be put in order, the next sync says so.
            let _ = state.announce().and_then(|()| state.checkpoint.compact());
        }
        Ok(())
    }
}

/// Numbers of the pages that may hold something.
fn pages_in_use(geometry: &PoolGeometry, reserved: u64) -> impl Iterator<Item = u64> + use<> {
    let ranges = [
        0..geometry.states_at,
        geometry.states_at..geometry.states_of(reserved),
        geometry.chunks_at..geometry.chunk_at(reserved),
    ];
    ranges
        .into_iter()
        .flat_map(|range| range.start / PAGE..range.end.div_ceil(PAGE))
}

fn is_zero(region: &Region, page: u64) -> bool {
    region.equals(place(page), &[0; PAGE_BYTES])
}

/// Where a page lies in its region.
fn place(page: u64) -> usize {
    usize::try_from(page * PAGE).unwrap_or(usize::MAX)
}

/// The disk and the name of the checkpoint file, if there is one.
pub(super) fn disk_of(options: &PoolOptions) -> Result<Option<(Disk, String)>> {
    let Some(path) = &options.checkpoint else {
        return Ok(None);
    };
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| {
            let path = path.clone();
            Error::InvalidName {
                name: path.to_string_lossy().into_owned(),
                path,
            }
        })?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let disk = match &options.checkpoint_disk {
        Some(disk) => disk.clone(),
        None => Disk::system(parent.unwrap_or(Path::new(".")))?,
    };
    Ok(Some((disk, name.to_owned())))
}
