//! Fuzzes the manifest of WipDB.

#![no_main]

gabion_fuzz::fuzz!("manifest");
