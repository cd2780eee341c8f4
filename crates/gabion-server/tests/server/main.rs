//! Servers on free ports and in temporary directories, spoken to by a small client.

mod bits;
mod blocking;
mod collections;
mod collections_model;
mod commands;
mod connections;
mod http;
mod kills;
mod latency;
mod malformed;
mod migrate;
mod model;
mod open_files;
mod process;
mod rdb;
mod restart;
mod scripts;
mod service;
mod streams;
mod support;
mod tls;
mod tracking;
mod transactions;
mod users;
