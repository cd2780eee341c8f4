//! Fuzzes the log of WipDB.

#![no_main]

gabion_fuzz::fuzz!("log");
