//! A keyspace of [Gabion](gabion) as a service of [Apache OpenDAL](opendal_core).
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! use gabion_opendal::GabionBuilder;
//! use opendal_core::Operator;
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let db = gabion::Db::open(dir.path())?;
//! let files = Operator::new(GabionBuilder::default().db(&db).keyspace("files"))?;
//! files.write("stones/granite", "grey").await?;
//! assert_eq!(files.read("stones/granite").await?.to_vec(), b"grey");
//! assert_eq!(files.list("stones/").await?.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//! A file is a pair: the key is the root of the operator and the path, without a slash in front;
//! the value is its content. A directory that was made is a key with a slash at its end, and no
//! value.
//!
//! # What holds
//! - A file has its whole content or is not there, for readers and after a crash. The close of the
//!   writer writes it, at the store's durability.
//! - A reader reads the content that the file has when it is opened, without a copy. A lister sees
//!   the keyspace as it was when it was made.
//! - A rename is a transaction. A write with `if_not_exists` replaces nothing.
//! - Files have at most 1 GiB, and are in memory while they are written. There are no times, types
//!   or versions of files.
//! - Calls block their thread as long as the store does: a write at
//!   [`Durability::Sync`](gabion::Durability::Sync) waits for the medium.
//!
//! The engine must have snapshots and transactions: WipDB, the default, or FlexDB.

mod lister;
mod service;

use gabion::{DEFAULT_KEYSPACE, Db};
use opendal_core::raw::{Service, normalize_root};
use opendal_core::{Builder, Configurator, Error, ErrorKind, OperatorUri, Result};
use serde::{Deserialize, Serialize};

use service::GabionService;

/// The name of the service, for `opendal_core::OperatorRegistry::register`.
pub const GABION_SCHEME: &str = "gabion";

/// How an operator is made of text.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GabionConfig {
    /// The directory of the store, which is made if it is missing.
    pub path: Option<String>,
    /// The keyspace, which is made if it is missing. Default: [`DEFAULT_KEYSPACE`].
    pub keyspace: Option<String>,
    /// What paths begin with. Default: nothing.
    pub root: Option<String>,
}

impl Configurator for GabionConfig {
    type Builder = GabionBuilder;

    fn from_uri(uri: &OperatorUri) -> Result<GabionConfig> {
        GabionConfig::from_iter(uri.options().clone())
    }

    fn into_builder(self) -> GabionBuilder {
        GabionBuilder {
            config: self,
            db: None,
        }
    }
}

/// Makes a service for `opendal_core::Operator::new`, of an open store or of one that it opens.
#[derive(Clone, Debug, Default)]
pub struct GabionBuilder {
    config: GabionConfig,
    db: Option<Db>,
}

impl GabionBuilder {
    /// An open store. A store is open once, so operators that share one are given it.
    #[must_use]
    pub fn db(mut self, db: &Db) -> GabionBuilder {
        self.db = Some(db.clone());
        self
    }

    /// Sets [`GabionConfig::path`], for a store that is not open and gets the default options.
    #[must_use]
    pub fn path(mut self, path: &str) -> GabionBuilder {
        self.config.path = Some(path.to_owned());
        self
    }

    /// Sets [`GabionConfig::keyspace`].
    #[must_use]
    pub fn keyspace(mut self, name: &str) -> GabionBuilder {
        self.config.keyspace = Some(name.to_owned());
        self
    }

    /// Sets [`GabionConfig::root`].
    #[must_use]
    pub fn root(mut self, root: &str) -> GabionBuilder {
        self.config.root = Some(root.to_owned());
        self
    }
}

impl Builder for GabionBuilder {
    type Config = GabionConfig;

    fn build(self) -> Result<impl Service> {
        let db = match (self.db, self.config.path) {
            (Some(db), _) => db,
            (None, Some(path)) => Db::open(path).map_err(failed)?,
            (None, None) => {
                let why = "a store is needed, or the path of one";
                return Err(Error::new(ErrorKind::ConfigInvalid, why));
            }
        };
        let name = self.config.keyspace;
        let keyspace = db.keyspace(name.as_deref().unwrap_or(DEFAULT_KEYSPACE));
        let root = normalize_root(self.config.root.as_deref().unwrap_or_default());
        Ok(GabionService::new(db, keyspace.map_err(failed)?, root))
    }
}

/// An error of the store.
fn failed(error: gabion::Error) -> Error {
    let kind = match error {
        gabion::Error::Unsupported { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::Unexpected,
    };
    Error::new(kind, "the store failed").set_source(error)
}
