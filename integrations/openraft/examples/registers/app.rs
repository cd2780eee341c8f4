//! Registers by name: what the nodes agree on, and what they are asked.

use gabion::{Keyspace, Transaction};
use openraft::raft::{AppendEntriesRequest, InstallSnapshotRequest, VoteRequest};
use serde::{Deserialize, Serialize};

/// Gives a register a value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Swap {
    pub(crate) name: String,
    pub(crate) value: String,
}

openraft::declare_raft_types!(
    /// A swap is answered the value that the register had.
    pub(crate) Types: D = Swap, R = Option<String>, SnapshotData = tokio::fs::File,
);

/// The registers are the pairs of the state.
pub(crate) struct Registers;

impl gabion_openraft::Application for Registers {
    type Request = Swap;
    type Response = Option<String>;

    fn apply(
        &self,
        transaction: &mut Transaction,
        state: &Keyspace,
        swap: Swap,
    ) -> gabion::Result<Option<String>> {
        let before = transaction.get(state, &swap.name)?;
        transaction.put(state, &swap.name, &swap.value)?;
        Ok(before.map(|value| text(&value)))
    }
}

/// A name or a value as it was given.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a client or another node asks: one line of JSON. Clients get an [`Answer`] as a line, nodes
/// what openraft returns.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Ask {
    /// Gives a register a value, and tells the one before.
    Swap(Swap),
    /// The value of a register.
    Get {
        name: String,
    },
    /// How far the node is, and all registers that it has by then. Not linearizable.
    Status,
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Install(InstallSnapshotRequest<Types>),
}

/// What a client is answered.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Answer {
    /// The value that the register has, or had before the swap.
    Value(Option<String>),
    /// Another node leads, or none: nothing was done.
    NotLeader,
    /// It is not known whether a swap was done, or will be.
    Unknown(String),
    Status(Status),
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Status {
    /// Index of the last entry of the log.
    pub(crate) last: Option<u64>,
    pub(crate) applied: Option<u64>,
    /// Index of the last entry that is in the log no more.
    pub(crate) purged: Option<u64>,
    /// The keyspace of the state, which another one follows at each install of a snapshot.
    pub(crate) keyspace: String,
    pub(crate) registers: Vec<(String, String)>,
}
