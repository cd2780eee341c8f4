//! Fuzzes a table of WipDB.

#![no_main]

gabion_fuzz::fuzz!("table");
