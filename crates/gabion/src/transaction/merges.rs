//! What a transaction has merged, before its commit.
//!
//! An own write of a key is a record of operands as long as the transaction has said nothing else
//! of it; its commit hands them in as they were. On top of an own put or delete they are merged at
//! once.

use crate::Result;
use crate::Slice;
use crate::expiry::{StoredRecord, UnixMillis};
use crate::merge::MergeOperator;
use crate::operands::{MergeContext, Operands, malformed_in_memory};
use crate::types::Kind;

/// How the operator of a keyspace is asked about a key. A default expiry counts from the commit on.
pub(super) fn asked<'a>(
    operator: &'a Option<MergeOperator>,
    key: &'a [u8],
    moment: UnixMillis,
) -> MergeContext<'a> {
    MergeContext {
        key,
        operator: operator.as_ref(),
        moment,
        expires: None,
    }
}

/// The operands of an own record, if it is one of a merge.
pub(super) fn operands_of(own: &StoredRecord) -> Result<Option<Operands>> {
    match own.parts() {
        (Kind::Merge, stored) => {
            let operands = Operands::decode(stored).map_err(malformed_in_memory)?;
            Ok(Some(operands))
        }
        _ => Ok(None),
    }
}

/// Whether they are merged into what the store has.
pub(super) fn is_open(operands: &Operands) -> bool {
    operands.below(1).is_some()
}

/// Puts operands on top of what the store has.
pub(super) fn set_base(operands: &mut Operands, base: Option<&StoredRecord>) -> Result<()> {
    match base.map(StoredRecord::parts) {
        Some((kind, stored)) => {
            let put = operands.set_base(0, kind, stored);
            put.map_err(malformed_in_memory)
        }
        None => {
            operands.set_no_base();
            Ok(())
        }
    }
}

/// The own record of a key once an operand is merged into it; `write_set` is what the transaction
/// has said of it, if anything.
pub(super) fn onto_own(
    own: Option<Option<&StoredRecord>>,
    operand: &[u8],
    asked: MergeContext<'_>,
) -> Result<Option<StoredRecord>> {
    let mut operands = Operands::one(operand);
    if let Some(own) = own {
        set_base(&mut operands, own)?;
    }
    let (kind, stored) = operands.settled(asked);
    Ok((kind != Kind::Delete).then(|| StoredRecord::new(kind, Slice::new(&stored))))
}
