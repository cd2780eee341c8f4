//! Merge operators: changes of values that are written without a read.
//!
//! # Idea
//! To read, change and write a counter costs a read for each change, and a conflict if two threads
//! do it at once. A *merge* writes only the change, the *operand*; the store computes the value
//! when somebody reads it, or when it rewrites the data anyway. The operator of the keyspace
//! ([`KeyspaceOptions::merge`](crate::KeyspaceOptions::merge)) defines what an operand means. The
//! store records its name, since with another operator the same operands would mean something else.
//!
//! Source: RocksDB's merge operators, under the names that are usual there.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::{Error, Result};

/// The most bytes of the name of an operator.
const NAME_BYTES_MAX: usize = 64;

/// A merge operator: what the operands of a keyspace mean.
///
/// An operator must give the same result for the same arguments, in any process, and must not use
/// the store. The store may call it while a write waits, so it should be short. If it panics, that
/// counts as a failure.
///
/// One of [`Merge::full_merge`] and [`Merge::partial_merge`] is enough: an associative operator,
/// whose values and operands have the same form, needs only the second.
///
/// ```
/// use gabion::{Db, KeyspaceOptions, Merge};
///
/// /// Keeps the longest text.
/// struct Longest;
///
/// impl Merge for Longest {
///     fn name(&self) -> &str {
///         "longest"
///     }
///
///     fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
///         let longer = if right.len() > left.len() { right } else { left };
///         Some(longer.to_vec())
///     }
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path())?;
/// let texts = db.keyspace_with("texts", &KeyspaceOptions::default().merge(Longest))?;
/// texts.merge("stone", "granite")?;
/// texts.merge("stone", "slate")?;
/// assert_eq!(texts.get("stone")?.as_deref(), Some(&b"granite"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Merge: Send + Sync + 'static {
    /// The operator's name, which the store records: 1 to 64 bytes. Change it when the meaning of
    /// operands changes.
    fn name(&self) -> &str;

    /// Checks an operand. If this fails, the merge fails before it writes anything.
    ///
    /// # Errors
    /// The reason why the operand is invalid.
    fn check(&self, operand: &[u8]) -> Result<(), MergeError> {
        let _ = operand;
        Ok(())
    }

    /// Merges `operands`, at least one, in order, into the value of `key`, and returns the new
    /// value. `base` is the old value, if any. A result of `None` deletes the key.
    ///
    /// By default, applies [`Merge::partial_merge`] to base and operands.
    ///
    /// # Errors
    /// The reason why there is no result. Then reads of the key fail
    /// ([`Error::MergeFailed`](crate::Error::MergeFailed)); no operand is lost, and nothing else
    /// stops.
    fn full_merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        let mut merged = base.map(Cow::Borrowed);
        for operand in operands {
            merged = Some(match merged {
                None => Cow::Borrowed(*operand),
                Some(left) => match self.partial_merge(key, &left, operand) {
                    Some(both) => Cow::Owned(both),
                    None => return Err("two operands cannot be combined".into()),
                },
            });
        }
        Ok(merged.map(Cow::into_owned))
    }

    /// Combines `left` and then `right` into one operand, if possible, so that the store keeps
    /// less. If this returns `None`, it keeps both.
    fn partial_merge(&self, key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        let _ = (key, left, right);
        None
    }
}

/// Why an operator has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeError(Cow<'static, str>);

impl From<&'static str> for MergeError {
    fn from(why: &'static str) -> MergeError {
        MergeError(Cow::Borrowed(why))
    }
}

impl From<String> for MergeError {
    fn from(why: String) -> MergeError {
        MergeError(Cow::Owned(why))
    }
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MergeError {}

/// The operator of a keyspace: a custom one, or a built-in one by its name.
///
/// Two are equal if they have the same name.
#[derive(Clone)]
pub struct MergeOperator {
    name: Arc<str>,
    /// None where a store says the name, and the program has not said what it stands for.
    own: Option<Arc<dyn Merge>>,
}

impl MergeOperator {
    /// A custom operator.
    pub fn new(operator: impl Merge) -> MergeOperator {
        MergeOperator {
            name: operator.name().into(),
            own: Some(Arc::new(operator)),
        }
    }

    /// The built-in operator of this name, if there is one:
    ///
    /// | name | values and operands | result |
    /// |---|---|---|
    /// | `add_i64` | 8 bytes, a signed number, little-endian | [the sum](AddI64) |
    /// | `add_u64` | 8 bytes, an unsigned number, little-endian | [the sum](AddU64) |
    /// | `max_bytes`, `min_bytes` | any | the [larger](MaxBytes) or [smaller](MinBytes) one |
    /// | `bit_or` | any | [all bits of both](BitOr) |
    /// | `append:` and a separator | any | [one behind the other](Append) |
    pub fn built_in(name: &str) -> Option<MergeOperator> {
        match name {
            "add_i64" => Some(MergeOperator::new(AddI64)),
            "add_u64" => Some(MergeOperator::new(AddU64)),
            "max_bytes" => Some(MergeOperator::new(MaxBytes)),
            "min_bytes" => Some(MergeOperator::new(MinBytes)),
            "bit_or" => Some(MergeOperator::new(BitOr)),
            _ => {
                let separator = name.strip_prefix(APPEND)?;
                Some(MergeOperator::new(Append::new(separator)))
            }
        }
    }

    /// The operator of a name that a store keeps.
    pub(crate) fn named(name: &str) -> MergeOperator {
        MergeOperator::built_in(name).unwrap_or_else(|| MergeOperator {
            name: name.into(),
            own: None,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is more than a name.
    pub(crate) fn is_known(&self) -> bool {
        self.own.is_some()
    }

    /// An error for a name that no store could keep.
    pub(crate) fn check_name(&self) -> Result<()> {
        match self.name.len() {
            1..=NAME_BYTES_MAX => Ok(()),
            _ => Err(Error::InvalidOption {
                option: "merge",
                why: format!("the name of a merge operator must have 1 to {NAME_BYTES_MAX} bytes"),
            }),
        }
    }

    fn operator(&self) -> Result<&dyn Merge, MergeError> {
        let unknown =
            || MergeError::from("the program has named the operator, but not given its function");
        self.own.as_deref().ok_or_else(unknown)
    }

    /// [`Merge::check`].
    pub(crate) fn check(&self, operand: &[u8]) -> Result<(), MergeError> {
        let operator = self.operator()?;
        caught(|| operator.check(operand))?
    }

    /// [`Merge::full_merge`].
    pub(crate) fn full_merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        let operator = self.operator()?;
        caught(|| operator.full_merge(key, base, operands))?
    }

    /// [`Merge::partial_merge`]; none of an operator that is not known.
    pub(crate) fn partial_merge(&self, key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        let operator = self.own.as_deref()?;
        caught(|| operator.partial_merge(key, left, right)).ok()?
    }

    /// The error of a read of a key.
    pub(crate) fn failed(&self, key: &[u8], why: &MergeError) -> Error {
        Error::MergeFailed {
            operator: self.name.to_string(),
            key: key.to_vec(),
            why: why.to_string(),
        }
    }
}

/// What a call of an operator returns, unless it panics.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, MergeError> {
    // Nothing of the store's is changed while an operator runs.
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| "the operator panicked".into())
}

impl<M: Merge> From<M> for MergeOperator {
    fn from(operator: M) -> MergeOperator {
        MergeOperator::new(operator)
    }
}

impl PartialEq for MergeOperator {
    fn eq(&self, other: &MergeOperator) -> bool {
        self.name == other.name
    }
}

impl Eq for MergeOperator {}

impl fmt::Debug for MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MergeOperator").field(&self.name).finish()
    }
}

impl fmt::Display for MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Adds signed numbers of eight bytes, little-endian ([`i64::to_le_bytes`]). A sum that does not
/// fit is the largest number, or the smallest. A key without a value counts as 0.
///
/// Where a sum does not fit, it depends on the order in which the store adds: operands may have
/// been added to each other before they are added to a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddI64;

/// Adds unsigned numbers of eight bytes, little-endian ([`u64::to_le_bytes`]). A sum that does not
/// fit is the largest number. A key without a value counts as 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddU64;

/// Keeps the larger of value and operand, in byte order.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxBytes;

/// Keeps the smaller of value and operand, in byte order.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinBytes;

/// Sets the bits of the operand in the value, byte by byte from the front; pads the shorter one
/// with zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct BitOr;

/// Appends the operand to the value, with a separator in between unless the key has no value.
///
/// A merge rewrites what was appended to its key since the key's last flush, so it suits lists of
/// some kilobytes. For longer lists, separate keys are cheaper.
#[derive(Clone, Debug, Default)]
pub struct Append {
    name: String,
    separator: Vec<u8>,
}

/// How the names of its operators begin.
const APPEND: &str = "append:";

impl Append {
    /// With this text in between, of at most 57 bytes.
    pub fn new(separator: &str) -> Append {
        Append {
            name: format!("{APPEND}{separator}"),
            separator: separator.as_bytes().to_vec(),
        }
    }
}

/// The number of a value or an operand; an error says which it is.
fn number(bytes: &[u8], which: &str) -> Result<[u8; 8], MergeError> {
    let number = bytes.first_chunk().filter(|_| bytes.len() == 8);
    let error = || MergeError::from(format!("{which} has {} bytes instead of 8", bytes.len()));
    number.copied().ok_or_else(error)
}

/// The sum of numbers of eight bytes, 0 to begin with.
fn sum<N: Default>(
    base: Option<&[u8]>,
    operands: &[&[u8]],
    from: fn([u8; 8]) -> N,
    add: fn(N, N) -> N,
) -> Result<N, MergeError> {
    let base = base.map(|base| number(base, "the value")).transpose()?;
    let mut sum = base.map_or_else(N::default, from);
    for operand in operands {
        sum = add(sum, from(number(operand, "an operand")?));
    }
    Ok(sum)
}

impl Merge for AddI64 {
    fn name(&self) -> &str {
        "add_i64"
    }

    fn check(&self, operand: &[u8]) -> Result<(), MergeError> {
        number(operand, "the operand").map(drop)
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        let sum = sum(base, operands, i64::from_le_bytes, i64::saturating_add)?;
        Ok(Some(sum.to_le_bytes().to_vec()))
    }

    fn partial_merge(&self, key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        self.full_merge(key, Some(left), &[right]).ok()?
    }
}

impl Merge for AddU64 {
    fn name(&self) -> &str {
        "add_u64"
    }

    fn check(&self, operand: &[u8]) -> Result<(), MergeError> {
        number(operand, "the operand").map(drop)
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, MergeError> {
        let sum = sum(base, operands, u64::from_le_bytes, u64::saturating_add)?;
        Ok(Some(sum.to_le_bytes().to_vec()))
    }

    fn partial_merge(&self, key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        self.full_merge(key, Some(left), &[right]).ok()?
    }
}

impl Merge for MaxBytes {
    fn name(&self) -> &str {
        "max_bytes"
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        Some(left.max(right).to_vec())
    }
}

impl Merge for MinBytes {
    fn name(&self) -> &str {
        "min_bytes"
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        Some(left.min(right).to_vec())
    }
}

impl Merge for BitOr {
    fn name(&self) -> &str {
        "bit_or"
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        let (mut longer, shorter) = match left.len() < right.len() {
            true => (right.to_vec(), left),
            false => (left.to_vec(), right),
        };
        for (to, from) in longer.iter_mut().zip(shorter) {
            *to |= from;
        }
        Some(longer)
    }
}

impl Merge for Append {
    fn name(&self) -> &str {
        &self.name
    }

    fn partial_merge(&self, _key: &[u8], left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
        Some([left, &self.separator, right].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(name: &str, base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let operator = MergeOperator::built_in(name).unwrap();
        assert_eq!(operator.name(), name);
        // Operands that were merged before say the same.
        let (first, rest) = operands.split_first().unwrap();
        let mut one = first.to_vec();
        for operand in rest {
            one = operator.partial_merge(b"key", &one, operand).unwrap();
        }
        let merged = operator.full_merge(b"key", base, operands).unwrap();
        assert_eq!(operator.full_merge(b"key", base, &[&one]).unwrap(), merged);
        merged
    }

    #[test]
    fn built_in_operators_do_what_their_names_say() {
        let n = |number: i64| number.to_le_bytes();
        let sum = |base: Option<i64>, operands: [i64; 2]| {
            let base = base.map(n);
            let operands = operands.map(n);
            let base = base.as_ref().map(|base| &base[..]);
            merged("add_i64", base, &operands.each_ref().map(|own| &own[..]))
        };
        assert_eq!(sum(Some(40), [5, -3]), Some(n(42).to_vec()));
        assert_eq!(sum(None, [5, -3]), Some(n(2).to_vec()));
        assert_eq!(sum(Some(1), [i64::MAX, 7]), Some(n(i64::MAX).to_vec()));
        let most = u64::MAX.to_le_bytes();
        assert_eq!(
            merged("add_u64", Some(&most), &[&n(3)]),
            Some(most.to_vec())
        );
        assert_eq!(
            merged("max_bytes", Some(b"b"), &[b"a", b"ba"]).unwrap(),
            b"ba"
        );
        assert_eq!(merged("min_bytes", None, &[b"b", b"a"]).unwrap(), b"a");
        assert_eq!(
            merged("bit_or", Some(b"\x01\x80"), &[b"\x02"]).unwrap(),
            b"\x03\x80"
        );
        assert_eq!(merged("append:, ", None, &[b"a", b"b"]).unwrap(), b"a, b");
        assert_eq!(merged("append:", Some(b""), &[b"b"]).unwrap(), b"b");
        assert!(MergeOperator::built_in("add_i32").is_none());
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let add = MergeOperator::new(AddI64);
        assert!(add.check(b"1234567").is_err() && add.check(&[0; 8]).is_ok());
        let why = add
            .full_merge(b"key", Some(b"text"), &[&[0; 8]])
            .unwrap_err();
        assert_eq!(why.to_string(), "the value has 4 bytes instead of 8");
        assert_eq!(add.partial_merge(b"key", b"text", &[0; 8]), None);
    }

    #[test]
    fn a_panic_of_an_operator_is_a_failure() {
        struct Panics;
        impl Merge for Panics {
            fn name(&self) -> &str {
                "panics"
            }

            fn partial_merge(&self, _: &[u8], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
                panic!("on purpose")
            }
        }
        let operator = MergeOperator::new(Panics);
        assert!(operator.full_merge(b"key", Some(b"a"), &[b"b"]).is_err());
        assert_eq!(operator.partial_merge(b"key", b"a", b"b"), None);
        assert_eq!(
            operator.full_merge(b"key", None, &[b"b"]),
            Ok(Some(b"b".to_vec()))
        );
    }

    #[test]
    fn a_name_alone_is_no_operator() {
        let unknown = MergeOperator::named("of another program");
        assert!(!unknown.is_known() && MergeOperator::named("add_u64").is_known());
        assert!(unknown.full_merge(b"key", None, &[b"a"]).is_err());
        assert!(unknown.check_name().is_ok());
        assert!(MergeOperator::named("").check_name().is_err());
        assert!(MergeOperator::named(&"a".repeat(65)).check_name().is_err());
    }
}
