//! Opens a pool for inspection, without changing the medium.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::checkpoint::Checkpoint;
use super::super::cpu::FlushInstruction;
use super::super::dirty::PAGE;
use super::super::file::PoolFile;
use super::super::layout::{FIXED_BYTES, PoolHeader, STATE_OFFSET, STATE_OPEN, StateLine, unseal};
use super::super::medium::Medium;
use super::super::off::POff;
use super::super::options::{PoolClass, PoolOptions};
use super::super::region::Region;
use super::open::{PoolSource, checked_header, needs_checkpoint};
use super::{Pool, sync};
use crate::{Error, PoolFault, Result};

impl Pool {
    /// Opens the pool in a file as it is, or, if the system went down while it was open, as its
    /// last checkpoint has it. Neither file changes: whatever is stored, by recovery too, stays in
    /// the memory of this process, so the pool's class is [`PoolClass::None`]. Every page of the
    /// checkpoint is read and checked.
    ///
    /// Refused as by [`Pool::open`].
    pub fn inspect(path: &Path, options: PoolOptions) -> Result<Pool> {
        let checkpoint = match sync::disk_of(&options)? {
            Some((disk, name)) => Checkpoint::look(disk.read_only(), &name)?,
            None => None,
        };
        let opened = match options.shares {
            true => PoolFile::open_shared(path),
            false => PoolFile::open(path),
        };
        let file = match opened {
            Err(error) if error.is_not_found() && checkpoint.is_some() => None,
            opened => Some(Arc::new(opened?)),
        };
        let stand_in = match (&file, &checkpoint) {
            (Some(file), Some(checkpoint)) => needs_checkpoint(file, checkpoint)?,
            _ => file.is_none(),
        };
        let failed = |source| Error::io("map", path, None, source);
        let region = match (&file, &checkpoint) {
            (_, Some(checkpoint)) if stand_in => restored(path, checkpoint)?,
            (Some(file), checkpoint) => {
                if let Some(checkpoint) = checkpoint {
                    checkpoint.restore(|_, _| Ok(()))?;
                }
                let header = checked_header(path, &file.read_header()?, options.layout)?;
                check_file(file, &header, &options)?;
                let of_another = |known: &Checkpoint| known.uuid() != header.uuid;
                if header.is_checkpointed && checkpoint.as_ref().is_some_and(of_another) {
                    return Err(refused(path, PoolFault::CheckpointOfAnother));
                }
                Region::copy_of_file(file.file(), len_of(path, header.size)?).map_err(failed)?
            }
            (None, _) => return Err(failed(std::io::ErrorKind::NotFound.into())),
        };
        let source = PoolSource {
            region: Arc::new(region),
            class: PoolClass::None,
            file: None,
            looked_at: file,
            path: path.into(),
        };
        let medium = source.medium(&options, None);
        let mut bytes = [0; FIXED_BYTES];
        medium.read(0, &mut bytes);
        let header = checked_header(path, &bytes, options.layout)?;
        let last = checkpoint.as_ref().map(Checkpoint::sequence);
        if !stand_in && !options.salvage && is_torn(&source, &medium, &header, last) {
            return Err(source.fault(PoolFault::Torn));
        }
        Pool::recover(source, medium, header, &options, None)
    }
}

fn refused(path: &Path, fault: PoolFault) -> Error {
    let path = path.into();
    Error::Pool { path, fault }
}

fn len_of(path: &Path, size: u64) -> Result<usize> {
    let too_large = |_| Error::io("map", path, None, std::io::ErrorKind::FileTooLarge);
    usize::try_from(size).map_err(too_large)
}

/// What the last checkpoint holds.
fn restored(path: &Path, checkpoint: &Checkpoint) -> Result<Region> {
    let region = Region::anonymous(len_of(path, checkpoint.size())?);
    let region = region.map_err(|source| Error::io("map", path, None, source))?;
    checkpoint.restore(|page, bytes| {
        region.write(len_of(path, page * PAGE)?, bytes);
        Ok(())
    })?;
    Ok(region)
}

fn check_file(file: &PoolFile, header: &PoolHeader, options: &PoolOptions) -> Result<()> {
    let (len, size) = (file.len()?, header.size);
    if len < size {
        return Err(refused(file.path(), PoolFault::Truncated { len, size }));
    }
    match (header.is_checkpointed, &options.checkpoint) {
        (true, None) => Err(refused(file.path(), PoolFault::CheckpointNeeded)),
        _ => Ok(()),
    }
}

/// Whether the system or the drive went down while a pool was open that does not survive that.
fn is_torn(source: &PoolSource, medium: &Medium, header: &PoolHeader, last: Option<u64>) -> bool {
    let line: &StateLine = medium.at(POff::new(STATE_OFFSET));
    // ORDER: Relaxed: one thread has the pool while it is opened.
    let state = unseal(line.state.load(medium, Ordering::Relaxed));
    if state != Some(STATE_OPEN) || source.is_held(medium, header.size, last) {
        return false;
    }
    // A mapping of persistent memory itself survives.
    let is_direct = |file: &PoolFile| {
        let len = usize::try_from(header.size).unwrap_or(usize::MAX);
        FlushInstruction::detect().is_some() && Region::of_file(file.file(), len, true).is_ok()
    };
    header.is_checkpointed || !source.looked_at.as_deref().is_some_and(is_direct)
}
