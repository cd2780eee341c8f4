//! Steps that a test leaves out, to show that somebody misses them.

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
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

/// Whether a step is made: always, but in a test that leaves it out.
#[cfg(not(test))]
#[inline]
pub(super) const fn is_made(_: Step) -> bool {
    true
}

#[cfg(test)]
pub(super) use left_out::{is_made, leave_out};

#[cfg(test)]
mod left_out {
    use super::Step;
    use std::cell::Cell;

    thread_local! {
        static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
    }

    impl Step {
        pub(crate) const ALL: [Step; 15] = [
            Step::Hkey,
            Step::Next,
            Step::Merged,
            Step::FlushBeforeSplit,
            Step::FlushBeforeMerge,
            Step::Inherit,
            Step::Forget,
            Step::DeleteRecord,
            Step::DeleteOlder,
            Step::Reclaim,
            Step::Mend,
            Step::Run,
            Step::Border,
            Step::Replay,
            Step::LastOfKey,
        ];
    }

    pub(crate) fn is_made(step: Step) -> bool {
        LEFT_OUT.get() != Some(step)
    }

    /// Until this is dropped, this thread leaves a step out.
    pub(crate) struct LeftOut(());

    pub(crate) fn leave_out(step: Step) -> LeftOut {
        LEFT_OUT.set(Some(step));
        LeftOut(())
    }

    impl Drop for LeftOut {
        fn drop(&mut self) {
            LEFT_OUT.set(None);
        }
    }
}
