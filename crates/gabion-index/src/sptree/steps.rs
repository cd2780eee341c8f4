//! Steps of the tree that tests leave out, see [`crate::steps`].

crate::steps::steps! {
    /// The new end of a leaf that was split or merged.
    Hkey,
    /// The link past a new leaf, or past one that goes.
    Next,
    /// The number of the last change that a leaf has.
    Merged,
    /// The flush of the buffer before a split.
    FlushBeforeSplit,
    /// The flush of the buffers before a merge.
    FlushBeforeMerge,
    /// The new leaf goes on from the number of the old one.
    Inherit,
    /// The backup forgets a leaf before it goes.
    Forget,
    /// The record of a delete.
    DeleteRecord,
    /// The older value goes from the leaf when the newer one goes from the buffer.
    DeleteOlder,
    /// Leaves take the changes of a page before it is filled again.
    Reclaim,
    /// Recovery ends a split and takes back a merge.
    Mend,
    /// Who comes to a run that is not recovered recovers it first.
    Run,
    /// Runs meet where nothing is to be mended.
    Border,
    /// Recovery brings the logs into the leaves.
    Replay,
    /// Of several records of a key, it is the last one that counts.
    LastOfKey,
}
