//! Gabion for Java: the native library of `io.gabion:gabion`.
//!
//! # Idea
//! Java's objects hold numbers. Each call looks its numbers up in one [`table`] and counts as a
//! user of what it found, so a close ends an object for later calls and frees it after the last
//! one under way: no order of calls, from any number of threads, touches freed memory. What a call
//! is for is done by the facade and by `gabion-bindings`; functions here only carry bytes.
//!
//! | module | what |
//! |---|---|
//! | [`table`] | numbers, and what is behind them |
//! | [`border`] | failures as exceptions; bytes and text across the border |
//! | [`store`] | stores and keyspaces |
//! | [`read`] | reads, by a keyspace, a snapshot or a transaction |
//! | [`mod@write`] | writes, alone, in batches or in a transaction |
//! | [`transaction`] | begin and end of transactions |
//! | [`pages`] | iterators, which hand out pages of pairs |
//!
//! The functions are the natives of `io.gabion.Native`, in which their parameters are documented.
//!
//! # Invariants
//! - J1. A number is never used twice, so a stale one finds nothing.
//! - J2. Bytes of Java are copied before they are used: other threads may change them meanwhile.
//! - J3. No panic reaches Java: [`border::call`] stands around every function.

#![expect(
    unsafe_code,
    reason = "the VM finds natives by their unmangled names, and lends memory"
)]

pub mod border;
pub mod pages;
pub mod read;
pub mod store;
pub mod table;
pub mod transaction;
pub mod write;
