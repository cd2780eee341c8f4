//! The versions that the targets name are those that are built.

use std::path::Path;

/// The version of `package` in Cargo.lock.
fn locked_version(package: &str) -> String {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap();
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines.nth(1).unwrap_or_default();
    let version = version.strip_prefix("version = ").unwrap_or_default();
    version.trim_matches('"').to_owned()
}

fn about(name: &str) -> &'static str {
    let target = gabion_peers::targets().iter().find(|t| t.name == name);
    target.unwrap().about
}

#[test]
fn targets_name_the_versions_of_cargo_lock() {
    for (target, package) in [
        #[cfg(feature = "lmdb")]
        ("lmdb", "heed"),
        ("redb", "redb"),
        ("fjall", "fjall"),
        ("sled", "sled"),
        ("bf-tree", "bf-tree"),
        #[cfg(feature = "sqlite")]
        ("sqlite", "rusqlite"),
    ] {
        let version = locked_version(package);
        assert!(!version.is_empty(), "{package} is not in Cargo.lock");
        assert!(
            about(target).contains(&version),
            "{target}: {version} is built"
        );
    }
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_names_the_version_that_its_package_contains() {
    // The package's own version, a plus sign, and that of the RocksDB in it.
    let version = locked_version("librocksdb-sys");
    let (_, version) = version.split_once('+').unwrap();
    assert!(about("rocksdb").contains(version), "{version} is built");
}

#[cfg(feature = "tidesdb")]
#[test]
fn tidesdb_names_the_release_that_its_script_builds() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tidesdb");
    let script = std::fs::read_to_string(script).unwrap();
    let mut lines = script.lines();
    let version = lines.find_map(|line| line.strip_prefix("version="));
    assert!(about("tidesdb").contains(version.unwrap()));
}

#[test]
fn targets_name_the_versions_that_the_libraries_tell() {
    super::for_each_target(|target, dir| {
        let settings = super::create(target, dir).settings();
        if let Some(version) = settings["version"].as_str() {
            assert!(
                target.about.contains(version),
                "{}: {version} is linked",
                target.name
            );
        }
    });
}
