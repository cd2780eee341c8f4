//! Tests of spaces as their users see them.
//!
//! The random tests are sized for a minute; these variables make them longer:
//!
//! | variable | meaning |
//! |---|---|
//! | `GABION_FLEX_SEED` | first seed of all |
//! | `GABION_FLEX_STEPS` | steps of the model test |
//! | `GABION_FLEX_CRASH_POINTS` | images of crashes that are opened |
//! | `GABION_FLEX_FAULT_WORKLOADS` | workloads of which every operation is struck |
//! | `GABION_FLEX_FULL_WORKLOADS` | workloads whose disk is full wherever it can be |
//! | `GABION_FLEX_FLIPS` | bits that are flipped in each file |
//! | `GABION_FLEX_FORGERIES` | logs that lie under right checksums, in `space::recovery` |
//! | `GABION_FLEX_CONCURRENT_GROUPS` | groups of edits beside readers |

mod concurrent;
mod corruption;
mod crash;
mod examples;
mod faults;
mod frozen;
mod full;
mod handle;
mod leaves;
mod limits;
mod marks;
mod model;
mod read_only;
mod reads;
mod space_back;
mod support;
mod unwinding;
