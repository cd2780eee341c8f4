//! Steps on which it rests what a failure leaves. Tests leave each one out, and some image must
//! show it. Elsewhere they are always taken.

use super::Volume;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
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

#[cfg(test)]
impl Step {
    /// All of them.
    pub(super) const ALL: [Step; 9] = [
        Step::NameOld,
        Step::PersistBeforeDelete,
        Step::PersistCopies,
        Step::PersistBeforeRelease,
        Step::CloseLast,
        Step::Reopen,
        Step::LoseTail,
        Step::RollBack,
        Step::CloseRecovered,
    ];
}

impl Volume {
    /// Whether a step is taken.
    #[cfg(test)]
    pub(super) fn takes(&self, step: Step) -> bool {
        self.left_out != Some(step)
    }

    /// Whether a step is taken: it is.
    #[cfg(not(test))]
    #[inline(always)]
    #[expect(clippy::unused_self, reason = "tests have a step in it")]
    pub(super) fn takes(&self, _step: Step) -> bool {
        true
    }
}
