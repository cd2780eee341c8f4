//! Tests of spaces as their users see them.
//!
//! The random tests are sized for a few minutes; these variables make them longer:
//! `GABION_FLEX_SEED` is the first seed, `GABION_FLEX_STEPS` the steps of the model test,
//! `GABION_FLEX_CRASH_POINTS` the images of crashes that are opened
//! the workloads of which every operation is struck.

mod crash;
mod model;
mod support;
