//! Indexes that live in persistent memory, and what they share.
//!
//! The shared parts: [`Item`], what keys and values are; [`Seed`], hashing; [`tags`], vectors of
//! one-byte tags; [`lock`], locks that stay in DRAM.

pub mod hash;
mod item;
pub mod lock;
pub mod tags;

pub use hash::Seed;
pub use item::Item;
