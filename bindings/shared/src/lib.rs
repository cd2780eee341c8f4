//! The common part of the bindings to other languages.
//!
//! A binding turns the facade of [`gabion`] into what another language is used to. What each of
//! them needs and the facade has not is here, so that it is written and tested once:
//!
//! | module | what |
//! |---|---|
//! | [`options`] | options by name and value, both of them text |
//! | [`Failure`], [`Code`] | an error as a number that stays, a name and a sentence |
//! | [`expiry`](expiry()) | when something expires, in milliseconds |
//! | [`SharedTransaction`] | a transaction that its iterators outlive without harm |
//! | [`FlatChange`] | a change whose operations all have the same fields, and its bytes |
//! | [`OwnedIngest`] | an ingest that borrows nothing |
//! | [`json`] | what is told of stores and backups, as JSON |
//! | [`Walk`] | an iterator that goes both ways, seeks, and hands out pages |
//! | [`Pages`] | a walk in one direction, a page at a time |
//! | [`packed`] | texts and numbers in one piece of bytes |
//! | [`range`] | ranges that other languages give as two optional keys, and prefixes |
//!
//! # Invariants
//! - Nothing here panics for what a caller passes: what cannot be is a [`Failure`].
//! - Everything keeps alive what it needs. After a close of the store it fails with
//!   [`Code::Closed`], whatever the order in which the rest is dropped.

mod changes;
mod expiry;
mod failure;
#[expect(unsafe_code, reason = "an ingest borrows the keyspace beside it")]
mod ingest;
pub mod json;
pub mod options;
pub mod packed;
mod pages;
pub mod range;
mod transaction;
mod walk;

pub use changes::{ActionKind, FlatChange, FlatOperation, position};
pub use expiry::{expiry, unix_millis};
pub use failure::{Code, Failure, Result, guard};
pub use ingest::OwnedIngest;
pub use pages::Pages;
pub use transaction::SharedTransaction;
pub use walk::{Reader, Walk};
