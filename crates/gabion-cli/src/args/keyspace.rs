//! The arguments of `gabion keyspace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gabion::{Compression, MergeOperator};

/// Make keyspaces, list them, and set the options that one has in place of the store's.
///
/// Options hold for what is written from then on; `gabion compact` writes anew what is there. Those
/// of blocks and filters are for stores of WipDB alone.
#[derive(Args, Debug)]
pub(crate) struct KeyspaceArguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: KeyspaceAction,
}

/// What to do with keyspaces.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyspaceAction {
    /// List the keyspaces of a store, with the options that they have of their own.
    List(ListArguments),
    /// Make a keyspace; exit status 1 if it exists.
    Create(SetArguments),
    /// Set options of a keyspace; those that are not given stay as they are. Exit status 1 if the
    /// store has no keyspace of that name.
    Set(SetArguments),
}

/// Which store.
#[derive(Args, Debug)]
pub(crate) struct ListArguments {
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which keyspace, and its options.
#[derive(Args, Debug)]
pub(crate) struct SetArguments {
    /// The keyspace.
    #[arg(value_name = "NAME")]
    pub(crate) keyspace: String,
    /// Directory of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// How blocks are compressed: none, lz4 or zstd:LEVEL.
    #[arg(long, value_name = "HOW")]
    pub(crate) compression: Option<Compression>,
    /// Size of blocks in bytes, before compression.
    #[arg(long, value_name = "BYTES")]
    pub(crate) block_bytes: Option<usize>,
    /// Bits of the filters for each key.
    #[arg(long, value_name = "BITS")]
    pub(crate) filter_bits_per_key: Option<u32>,
    /// Let what is put expire after so many seconds, unless the put says it itself.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) default_ttl: Option<u64>,
    /// What merged operands mean: add_i64, add_u64, max_bytes, min_bytes, bit_or, or append: with a
    /// separator behind it. A keyspace keeps its operator for ever.
    #[arg(long, value_name = "OPERATOR", value_parser = operator)]
    pub(crate) merge: Option<MergeOperator>,
    /// Begin with the store's options: those that are not given are the store's again.
    #[arg(long)]
    pub(crate) reset: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn operator(name: &str) -> Result<MergeOperator, String> {
    MergeOperator::built_in(name).ok_or_else(|| {
        "the operator is unknown; choose from: add_i64, add_u64, max_bytes, min_bytes, bit_or, \
         append:SEPARATOR"
            .to_owned()
    })
}
