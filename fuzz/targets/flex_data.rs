//! Fuzzes the data of a space.

#![no_main]

gabion_fuzz::fuzz!("flex_data");
