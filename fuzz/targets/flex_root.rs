//! Fuzzes the root of FlexDB.

#![no_main]

gabion_fuzz::fuzz!("flex_root");
