//! Servers on free ports and in temporary directories, spoken to by a small client.

mod bits;
mod commands;
mod connections;
mod model;
mod restart;
mod scripts;
mod support;
mod transactions;
