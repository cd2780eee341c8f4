//! Fuzzes the log of a space.

#![no_main]

gabion_fuzz::fuzz!("flex_log");
