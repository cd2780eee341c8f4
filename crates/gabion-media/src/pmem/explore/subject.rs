//! How a structure plugs into the explorer.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use crate::pmem::medium::{FlushMode, Medium};
use crate::pmem::region::Region;
use crate::pmem::trace::Watcher;

/// What an operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpOutcome {
    /// It took effect.
    Done,
    /// The structure refused it, out of space for instance, and must be as before.
    Refused,
}

/// A structure under exploration, and what is demanded of it.
///
/// The explorer runs a history of operations and, for each moment at which the power may fail,
/// gives the structure every image of the medium that may be left. Each one must open and hold
/// what [`Subject::expect`] says of the operations that had returned, with the one under way
/// either whole or absent.
///
/// All that a subject does must be determined by the medium: the same bytes, the same steps.
pub trait Subject: Sync {
    /// An operation. Values that it carries should differ between operations, so that no two
    /// states look alike.
    type Op: Clone + Debug + Sync;
    /// The structure, open.
    type Structure: Sync;
    /// All that a user can see of the structure.
    type Content: Clone + Debug + Eq + Hash;

    /// Bytes of the medium, which are rounded up to whole pages. Images are explored faster on
    /// small media.
    fn bytes(&self) -> u64;

    /// Makes a new structure on a medium of zeros, or on what a crash during `create` left.
    ///
    /// # Errors
    /// A sentence; none is expected.
    fn create(&self, stage: &SubjectMedium) -> Result<Self::Structure, String>;

    /// Opens the structure after a crash or after it was closed. `None` says that its creation had
    /// not come to its end.
    ///
    /// # Errors
    /// A sentence; none is expected.
    fn open(&self, stage: &SubjectMedium) -> Result<Option<Self::Structure>, String>;

    /// Closes the structure. By default it is dropped.
    ///
    /// # Errors
    /// A sentence; none is expected.
    fn close(&self, structure: Self::Structure) -> Result<(), String> {
        drop(structure);
        Ok(())
    }

    /// Runs an operation.
    ///
    /// # Errors
    /// A sentence; none is expected.
    fn apply(&self, structure: &Self::Structure, op: &Self::Op) -> Result<OpOutcome, String>;

    /// Everything that the structure holds, read through its public operations.
    ///
    /// This is also the place to check the structure's invariants, and that the space in use is
    /// exactly that which can be reached.
    ///
    /// # Errors
    /// A sentence that says which invariant does not hold.
    fn content(&self, structure: &Self::Structure) -> Result<Self::Content, String>;

    /// The content of a new structure.
    fn empty(&self) -> Self::Content;

    /// What an operation that is done makes of a content: the naive twin.
    fn expect(&self, content: &mut Self::Content, op: &Self::Op);

    /// The kind of an operation, for reports: `insert`, say.
    fn name(&self, op: &Self::Op) -> &'static str;

    /// Operations that a recovered structure must still take.
    fn probes(&self) -> Vec<Self::Op> {
        Vec::new()
    }

    /// Whether every load that recovery, content and probes depend on is reported to the watcher.
    /// Then lines that they do not read need not be varied.
    fn reports_loads(&self) -> bool {
        false
    }
}

/// The medium that a subject's structure is made on and opened on.
#[derive(Clone)]
pub struct SubjectMedium {
    region: Arc<Region>,
    watcher: Arc<dyn Watcher>,
}

impl SubjectMedium {
    /// The memory, and who is told of what is done to it.
    pub(super) fn new(region: Arc<Region>, watcher: Arc<dyn Watcher>) -> SubjectMedium {
        SubjectMedium { region, watcher }
    }

    /// The memory, for pools that are opened on it.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Who must be told of each step, for pools that are opened on the memory.
    pub fn watcher(&self) -> &Arc<dyn Watcher> {
        &self.watcher
    }

    /// The medium alone, for structures that stand on it without a pool.
    pub fn medium(&self) -> Medium {
        let (region, watcher) = (self.region.clone(), self.watcher.clone());
        Medium::new(region, FlushMode::Report, false, Some(watcher))
    }
}
