//! Fuzzes the tree of a space.

#![no_main]

gabion_fuzz::fuzz!("flex_tree");
