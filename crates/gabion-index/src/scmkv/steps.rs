//! Steps of the store that tests leave out, see [`crate::steps`].

crate::steps::steps! {
    /// A record names the one that it replaces.
    NameOld,
    /// A delete makes its log durable first.
    PersistBeforeDelete,
    /// The cleaner's copies are durable before the table refers to them (G1).
    PersistCopies,
    /// All logs are durable before a page is released (G2).
    PersistBeforeRelease,
    /// A store is closed when all else is written, not before.
    CloseLast,
    /// A store that is open is not closed any more.
    Reopen,
    /// What is behind a lost record is lost (S3).
    LoseTail,
    /// The table is taken back to before what was lost.
    RollBack,
    /// The pages that were open become full.
    CloseRecovered,
}
