//! Finds TidesDB's library, where a build asks for it: in `target/tidesdb`, where the script
//! `tidesdb` beside this file puts it, or in the directory that `GABION_TIDESDB_DIR` names.

use std::env;
use std::fs;
use std::path::PathBuf;

/// The release whose structures the adapter has.
const VERSION: &str = "9.3.14";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=GABION_TIDESDB_DIR");
    if env::var_os("CARGO_FEATURE_TIDESDB").is_none() {
        return;
    }
    let dir = match env::var_os("GABION_TIDESDB_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let manifest = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
            PathBuf::from(manifest).join("../../target/tidesdb")
        }
    };
    let header = dir.join("include/tidesdb/tidesdb_version.h");
    println!("cargo::rerun-if-changed={}", header.display());
    let text = fs::read_to_string(&header).unwrap_or_default();
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("#define TIDESDB_VERSION "));
    let remedy = "build it by `crates/gabion-peers/tidesdb`, which needs git, cmake and a C \
                  compiler, or leave out the feature `tidesdb`";
    match version.map(|version| version.trim().trim_matches('"')) {
        Some(VERSION) => {
            println!(
                "cargo::rustc-link-search=native={}",
                dir.join("lib").display()
            );
        }
        Some(other) => println!(
            "cargo::error=the TidesDB in {} is {other}, and {VERSION} is needed: {remedy}",
            dir.display()
        ),
        None => println!(
            "cargo::error=there is no library of TidesDB {VERSION} in {}: {remedy}",
            dir.display()
        ),
    }
}
