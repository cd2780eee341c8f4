//! Lists of files.

use std::ops::Bound;

use gabion::{Iter, Slice, Snapshot};
use opendal_core::raw::oio;
use opendal_core::{Error, ErrorKind, MetadataBuilder, Result};
use parking_lot::Mutex;

use crate::failed;
use crate::service::{Files, file_metadata};

/// The files and directories below a directory, in the order of their paths; of the deeper ones
/// either all, or the directories that they are in. Then one seek skips all that is in one.
pub(crate) struct GabionLister {
    files: Files,
    view: Snapshot,
    /// Behind the last key.
    end: Bound<Vec<u8>>,
    /// In a mutex that nobody waits for, as an iterator is not `Sync` and a lister must be.
    pairs: Mutex<Iter>,
    /// The length of the key of the directory.
    base: usize,
    is_recursive: bool,
}

impl GabionLister {
    /// The list of what begins with `path`, behind `start_after` if there is one.
    pub(crate) fn new(
        files: Files,
        path: &str,
        start_after: Option<&str>,
        is_recursive: bool,
    ) -> GabionLister {
        let prefix = files.key(path);
        let base = prefix.rfind('/').map_or(0, |slash| slash + 1);
        let mut start = Bound::Included(prefix.clone().into_bytes());
        if let Some(after) = start_after.map(|path| files.key(path))
            && after >= prefix
        {
            let below = after.strip_prefix(&prefix[..base]).unwrap_or_default();
            start = match below.find('/') {
                // All that is in a directory is behind what precedes it, as it stands for it.
                Some(slash) if !is_recursive => Bound::Included(behind(&after[..=base + slash])),
                _ => Bound::Excluded(after.into_bytes()),
            };
        }
        let end = match prefix.is_empty() {
            true => Bound::Unbounded,
            false => Bound::Excluded(behind(&prefix)),
        };
        let view = files.snapshot();
        let pairs = view.range(&files.keyspace, (start, end.clone()));
        GabionLister {
            files,
            view,
            end,
            pairs: Mutex::new(pairs),
            base,
            is_recursive,
        }
    }

    fn entry(&mut self, key: &Slice, value: &Slice) -> Result<oio::Entry> {
        let path = std::str::from_utf8(key).map_err(|error| {
            let what = "the keyspace has a key that is no path";
            Error::new(ErrorKind::Unexpected, what).set_source(error)
        })?;
        let slash = path[self.base..].find('/').filter(|_| !self.is_recursive);
        let path = match slash {
            Some(slash) => {
                let dir = &path[..=self.base + slash];
                let rest = (Bound::Included(behind(dir)), self.end.clone());
                *self.pairs.get_mut() = self.view.range(&self.files.keyspace, rest);
                dir
            }
            None => path,
        };
        // The root has a slash at its front, which keys do not have.
        let path = &path[self.files.root.len() - 1..];
        let metadata = match path.is_empty() || path.ends_with('/') {
            true => MetadataBuilder::dir().build(),
            false => file_metadata(value.len()),
        };
        Ok(oio::Entry::new(path, metadata))
    }
}

impl oio::List for GabionLister {
    async fn next(&mut self) -> Result<Option<oio::Entry>> {
        let pair = self.pairs.get_mut().next().transpose();
        match pair.map_err(failed)? {
            Some((key, value)) => self.entry(&key, &value).map(Some),
            None => Ok(None),
        }
    }
}

/// The first key behind all that begin with a path, which is not empty. It is UTF-8, so its last
/// byte can be raised.
fn behind(path: &str) -> Vec<u8> {
    let mut key = path.as_bytes().to_vec();
    *key.last_mut().expect("a path has bytes") += 1;
    key
}
