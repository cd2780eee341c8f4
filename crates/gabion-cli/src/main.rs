//! The gabion program.
fn main() {}
