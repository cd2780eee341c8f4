//! What comes next: jobs, stalls, and when a store has leisure.

mod aging;
#[cfg(test)]
mod bound_tests;
pub(super) mod demand;
pub(super) mod due;
pub(super) mod gentle;
pub(super) mod idleness;
pub(super) mod priority;
pub(super) mod reads;
pub(super) mod space;
pub(super) mod throttle;
pub(super) mod width;
