//! House rules.
fn main() {}
