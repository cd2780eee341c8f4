//! Merges: the calls of a keyspace.

use crate::engine::EngineHandle;
use crate::limits::check_limits;
use crate::types::Kind;
use crate::{Durability, Error, Keyspace, Result};

impl Keyspace {
    /// Merges `operand` into the value of `key` by the operator of the keyspace
    /// ([`KeyspaceOptions::merge`](crate::KeyspaceOptions::merge)), without conflicting with other
    /// merges into the same key. At the store's durability.
    ///
    /// [`Engine::Wip`](crate::Engine::Wip) reads only memory: if the value is in a table, it writes
    /// the operand, and merges it when somebody reads the key or the store rewrites its table. If
    /// anything in the keyspace may [expire](Keyspace::put_expiring), and always with
    /// [`Engine::Flex`](crate::Engine::Flex), the merge reads the value and rewrites it. A merge
    /// keeps the expiry of the value that it changes; once that value has expired, merges start
    /// from nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = gabion::Db::open(dir.path())?;
    /// use gabion::{AddI64, KeyspaceOptions};
    ///
    /// let visits = db.keyspace_with("visits", &KeyspaceOptions::default().merge(AddI64))?;
    /// visits.merge("today", 1i64.to_le_bytes())?;
    /// visits.merge("today", 41i64.to_le_bytes())?;
    /// let sum = 42i64.to_le_bytes();
    /// assert_eq!(visits.get("today")?.as_deref(), Some(&sum[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::put`]; [`Error::NoMergeOperator`]; [`Error::OperandRefused`] for an operand
    /// that the operator [refuses](crate::Merge::check); [`Error::MergeFailed`] where it fails with
    /// [`Engine::Flex`](crate::Engine::Flex); [`Error::Unsupported`] of engines without
    /// [merges](crate::Capabilities::merges).
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_with(key, operand, self.durability())
    }

    /// As [`Keyspace::merge`], at the given durability.
    ///
    /// # Errors
    /// Those of [`Keyspace::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.check_operand(key, operand)?;
        self.write_one(Kind::Operand, key, operand, durability)
    }

    /// An error if an operand cannot be merged into a key.
    pub(crate) fn check_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        check_limits(key, operand)?;
        match self.inner().merge_operator() {
            Some(operator) => {
                let checked = operator.check(operand);
                checked.map_err(|why| Error::OperandRefused {
                    operator: operator.name().to_owned(),
                    why: why.to_string(),
                })
            }
            None => Err(self.merges_nothing()),
        }
    }

    #[cold]
    fn merges_nothing(&self) -> Error {
        let engine = EngineHandle::engine(self.handle());
        match engine.capabilities().merges {
            true => Error::NoMergeOperator {
                keyspace: self.name().to_owned(),
            },
            false => Error::Unsupported {
                engine: engine.name(),
                operation: "merges; use updates",
            },
        }
    }
}
