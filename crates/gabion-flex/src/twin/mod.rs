//! Two plain extent indexes with the operations of [`FlexTree`](crate::FlexTree): the oracles of
//! its tests and its rivals in measurements.
//!
//! [`SortedArray`] is as simple as can be. [`PlainTree`] is a B+-tree of the same nodes and the
//! same search without shifts, so that the difference to a FlexTree is the shifts, and that its
//! nodes lie in one vector of each kind.

mod array;
mod plain;

pub use array::SortedArray;
pub use plain::PlainTree;
