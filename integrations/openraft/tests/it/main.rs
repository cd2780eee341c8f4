//! Tests of the storage, and of nodes that use it.

#[path = "../../examples/registers/app.rs"]
mod app;
mod checker;
mod kills;
mod storage;
