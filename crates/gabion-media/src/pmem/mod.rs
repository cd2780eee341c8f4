//! Persistent memory: what structures that live in it stand on.
//!
//! [`trace`] says what is done to a medium, step by step; [`model`] tells what the steps cost on
//! one kind of medium.

pub mod model;
pub mod trace;
