//! Steps on which it rests what a failure leaves. Tests leave each of them out, and something must
//! show it; elsewhere they are always taken.

/// Declares the steps of a structure: the enum `Step`, and `is_taken`, which tells whether a step
/// is taken. Tests have `Step::ALL` and `leave_out` besides.
macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident,)+) => {
        /// A step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Step {
            $($(#[$doc])* $step,)+
        }

        /// Whether a step is taken: always, but in a test that leaves it out.
        #[cfg(not(test))]
        #[inline(always)]
        pub(super) const fn is_taken(_: Step) -> bool {
            true
        }

        #[cfg(test)]
        pub(super) use left_out::{is_taken, leave_out};

        #[cfg(test)]
        mod left_out {
            use super::Step;
            use std::cell::Cell;

            thread_local! {
                static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
            }

            impl Step {
                pub(crate) const ALL: [Step; [$(Step::$step),+].len()] = [$(Step::$step),+];
            }

            pub(crate) fn is_taken(step: Step) -> bool {
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
    };
}

pub(crate) use steps;
