//! Servers on free ports and in temporary directories, spoken to by a small client.

mod commands;
mod connections;
mod model;
mod restart;
mod support;
mod transactions;
