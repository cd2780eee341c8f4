//! Stand-ins for the mapped engines in a build without the feature `pm`.
//!
//! The names are those of `mapped`, `scmkv` and `sptree`, so that the dispatcher is the same in
//! both builds. A store of these engines is never open: opening one is an error that names the
//! feature, and every other function takes a value that cannot exist.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;

use gabion_media::Disk;

use crate::engine::keyspaces::{KeyspaceId, KeyspaceTable};
use crate::engine::open_store::OpenStore;
use crate::engine::write::{self, Update};
use crate::engine::{CheckReport, health::Health};
use crate::expiry::{ReadPoint, StoredRecord};
use crate::options::{Durability, Options};
use crate::{Engine, Error, Result, Slice, Stats};

/// The cargo feature that has the engines.
const FEATURE: &str = "pm";

/// A structure that the build leaves out.
pub(crate) trait Structure {
    const ENGINE: Engine;

    /// The error for a store of the engine that is there.
    fn missing(disk: &Disk) -> Error {
        Error::MissingFeature {
            file: disk.path().join(Self::ENGINE.root_name()),
            feature: FEATURE,
        }
    }
}

/// An engine of one of them.
pub(crate) struct Mapped<S> {
    never: Infallible,
    structure: PhantomData<S>,
    pub(super) keyspaces: KeyspaceTable<MappedKeyspace>,
    pub(super) health: Health,
}

/// A keyspace of one of them.
pub(crate) struct MappedKeyspace {
    never: Infallible,
}

impl KeyspaceId for MappedKeyspace {
    fn id(&self) -> u32 {
        match self.never {}
    }

    fn name(&self) -> &str {
        match self.never {}
    }
}

/// A write to one of them.
type Write<'w> = write::Write<'w, MappedKeyspace>;

impl<S: Structure> Mapped<S> {
    pub(crate) fn open(disk: Disk, _options: Options) -> Result<Arc<Self>> {
        if !disk.exists(S::ENGINE.root_name())? {
            S::ENGINE.check_built()?;
        }
        Err(S::missing(&disk))
    }

    pub(super) fn unsupported(operation: &'static str) -> Error {
        Error::Unsupported {
            engine: S::ENGINE.name(),
            operation,
        }
    }
}

/// Methods of an engine that cannot exist.
macro_rules! methods {
    ($($name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;)*) => {
        #[expect(unused_variables, reason = "nothing can call these")]
        impl<S> Mapped<S> {
            $(pub(crate) fn $name(&self $(, $argument: $kind)*) -> $result {
                match self.never {}
            })*
        }
    };
}

methods! {
    close() -> Result<()>;
    create_keyspace(name: &str) -> Result<Arc<MappedKeyspace>>;
    write(write: Write<'_>, user_bytes: u64, sync: bool) -> Result<()>;
    update(
        keyspace: &MappedKeyspace,
        key: &[u8],
        how: Update<'_>,
        sync: bool,
    ) -> Result<Option<StoredRecord>>;
    get(
        keyspace: &MappedKeyspace,
        key: &[u8],
        snapshot: Option<ReadPoint>,
    ) -> Result<Option<Slice>>;
    begin_snapshot() -> ReadPoint;
    share_snapshot(point: ReadPoint) -> ();
    end_snapshot(point: ReadPoint) -> ();
    flush() -> Result<()>;
    persist(durability: Durability) -> Result<()>;
    wait_idle() -> Result<()>;
    promise(durability: Durability) -> ();
    is_read_only() -> bool;
    stats() -> Stats;
    compact_range(keyspace: &MappedKeyspace, lower: &[u8], upper: Option<&[u8]>) -> Result<()>;
}

#[expect(unused_variables, reason = "nothing can call these")]
impl<S> Mapped<S> {
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &MappedKeyspace,
        keys: &[K],
        snapshot: ReadPoint,
    ) -> Result<Vec<Option<Slice>>> {
        match self.never {}
    }

    pub(crate) fn multi_get_now<K: AsRef<[u8]>>(
        &self,
        keyspace: &MappedKeyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Slice>>> {
        match self.never {}
    }
}

/// All pairs of a keyspace.
pub(crate) struct Walk {
    never: Infallible,
}

impl Walk {
    pub(crate) fn new(
        store: Arc<dyn OpenStore<scmkv::ScmStore>>,
        _keyspace: &MappedKeyspace,
    ) -> Walk {
        match store.engine().never {}
    }

    pub(crate) fn next(&mut self) -> Result<Option<(Slice, Slice)>> {
        match self.never {}
    }
}

/// As `engine::mapped`.
pub(crate) mod mapped {
    use super::{CheckReport, Disk, Result, Structure};

    pub(crate) use super::MappedKeyspace;

    pub(crate) fn check_disk<S: Structure>(disk: &Disk) -> Result<CheckReport> {
        Err(S::missing(disk))
    }

    pub(crate) fn remove_pool<S: Structure>(disk: &Disk) -> Result<()> {
        Err(S::missing(disk))
    }

    pub(crate) fn is_own_file(_name: &str) -> bool {
        false
    }
}

/// As `engine::scmkv`.
pub(crate) mod scmkv {
    use crate::Engine;

    pub(crate) use super::Walk;

    pub(crate) struct Scmkv;

    impl super::Structure for Scmkv {
        const ENGINE: Engine = Engine::Scmkv;
    }

    pub(crate) type ScmStore = super::Mapped<Scmkv>;
}

/// As `engine::sptree`.
pub(crate) mod sptree {
    use std::convert::Infallible;
    use std::sync::Arc;

    use crate::engine::mapped::MappedKeyspace;
    use crate::engine::open_store::OpenStore;
    use crate::{Engine, Result, Slice};

    pub(crate) struct TreeStore;

    impl super::Structure for TreeStore {
        const ENGINE: Engine = Engine::Sptree;
    }

    pub(crate) type SpStore = super::Mapped<TreeStore>;

    pub(crate) struct TreeScan {
        never: Infallible,
    }

    impl TreeScan {
        pub(crate) fn new(
            store: Arc<dyn OpenStore<SpStore>>,
            _keyspace: &MappedKeyspace,
            _range: Option<(Vec<u8>, Option<Vec<u8>>)>,
        ) -> TreeScan {
            match store.engine().never {}
        }

        pub(crate) fn advance(&mut self) -> Result<bool> {
            match self.never {}
        }

        pub(crate) fn next_back(&mut self) -> Result<Option<(Slice, Slice)>> {
            match self.never {}
        }

        pub(crate) fn key(&self) -> &[u8] {
            match self.never {}
        }

        pub(crate) fn value(&self) -> Slice {
            match self.never {}
        }

        pub(crate) fn value_bytes(&self) -> &[u8] {
            match self.never {}
        }
    }
}
