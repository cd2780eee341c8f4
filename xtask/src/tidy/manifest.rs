//! Rules for Cargo's files and README.md: the floors of the crates, one place for versions and
//! lints, one registry, and the commands that a new reader runs.

use super::tree::{File, Tree};
use super::{Finding, Rule};
use crate::readme;

/// The floor of each package. A package may use only packages of lower floors, and name itself to
/// test with more features; those on floor 0 stand beside the house and use none of it.
const FLOORS: &[(&str, u32)] = &[
    ("xtask", 0),
    ("gabion-media", 1),
    ("gabion-index", 2),
    ("gabion-flex", 2),
    ("gabion", 3),
    ("gabion-lab", 4),
    ("gabion-bindings", 4),
    ("gabion-peers", 5),
    ("gabion-c", 5),
    ("gabion-leveldb", 5),
    ("gabion-node", 5),
    ("gabion-jni", 5),
    ("gabion-python", 5),
    ("gabion-server", 5),
    ("gabion-kvdb", 5),
    ("gabion-opendal", 5),
    ("gabion-openraft", 5),
    ("gabion-cli", 6),
];

/// A workspace of its own beside the house, of which nothing in the house makes use.
const APART: &str = "fuzz/";

/// The only source of packages from outside that Cargo.lock may name.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "floors",
        says: "a crate depends only on crates of lower floors",
        check: floors,
    },
    Rule {
        name: "members",
        says: "every crate takes versions and lints from the workspace",
        check: members,
    },
    Rule {
        name: "registry",
        says: "all packages come from crates.io",
        check: registry,
    },
    Rule {
        name: "readme",
        says: "README.md marks its first command and its test command",
        check: readme_marks,
    },
];

/// One line `key = value` of a manifest, with the section that it stands in.
struct Entry<'a> {
    line: usize,
    section: &'a str,
    key: &'a str,
    value: &'a str,
}

/// The entries of a manifest. Values over several lines keep their first line only, which is all
/// that the rules look at.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    let mut section = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.trim();
        } else if let Some((key, value)) = line.split_once('=')
            && !line.starts_with('#')
        {
            entries.push(Entry {
                line: index + 1,
                section,
                key: key.trim(),
                value: value.trim(),
            });
        }
    }
    entries
}

/// One dependency of a manifest.
struct Dependency {
    line: usize,
    /// The package's own name, even where the manifest gives it another.
    package: String,
    takes_workspace_version: bool,
}

/// The dependencies of all kinds: for the library, for tests and for the build, on any target.
fn dependencies(text: &str) -> Vec<Dependency> {
    let mut dependencies: Vec<Dependency> = Vec::new();
    let mut table = "";
    for entry in entries(text) {
        let Some((_, rest)) = entry.section.split_once("dependencies") else {
            continue;
        };
        let (name, value) = if let Some(name) = rest.strip_prefix('.') {
            // [dependencies.name]: each key of the section says something about one dependency.
            if table == entry.section {
                let last = dependencies.last_mut().expect("the section began with one");
                describe(last, entry.key, entry.value);
                continue;
            }
            table = entry.section;
            (name, (entry.key, entry.value))
        } else {
            match entry.key.split_once('.') {
                Some((name, key)) => (name, (key, entry.value)),
                None => (entry.key, ("", entry.value)),
            }
        };
        let mut dependency = Dependency {
            line: entry.line,
            package: name.trim_matches('"').to_owned(),
            takes_workspace_version: false,
        };
        describe(&mut dependency, value.0, value.1);
        dependencies.push(dependency);
    }
    dependencies
}

/// Takes note of `key = value`, or of the inline table `value` where the key is empty.
fn describe(dependency: &mut Dependency, key: &str, value: &str) {
    let pairs = if key.is_empty() {
        value.trim_matches(['{', '}']).to_owned()
    } else {
        format!("{key} = {value}")
    };
    for pair in pairs.split(',') {
        match pair.split_once('=').map(|(k, v)| (k.trim(), v.trim())) {
            Some(("workspace", "true")) => dependency.takes_workspace_version = true,
            Some(("package", name)) => name.trim_matches('"').clone_into(&mut dependency.package),
            _ => {}
        }
    }
}

/// The manifests of the house's packages: file, text and the package's name.
fn packages(tree: &Tree) -> impl Iterator<Item = (&File, &str, &str)> {
    tree.texts().filter_map(|(file, text)| {
        if file.name() != "Cargo.toml" || file.path.starts_with(APART) {
            return None;
        }
        let is_name = |entry: &Entry| entry.section == "package" && entry.key == "name";
        let name = entries(text)
            .into_iter()
            .find(is_name)?
            .value
            .trim_matches('"');
        Some((file, text, name))
    })
}

fn floor_of(package: &str) -> Option<u32> {
    let (_, floor) = FLOORS.iter().find(|(name, _)| *name == package)?;
    Some(*floor)
}

fn floors(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text, name) in packages(tree) {
        let Some(floor) = floor_of(name) else {
            let message =
                format!("{name} has no floor; add it to FLOORS of xtask/src/tidy/manifest.rs");
            found.push(Finding::new(&file.path, 1, message));
            continue;
        };
        for dependency in dependencies(text) {
            let package = &dependency.package;
            if package == name {
                continue;
            }
            if let Some(below) = floor_of(package).filter(|below| *below >= floor) {
                let message =
                    format!("{name} (floor {floor}) may not use {package} (floor {below})");
                found.push(Finding::new(&file.path, dependency.line, message));
            }
        }
    }
    found
}

fn members(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text, name) in packages(tree) {
        let has_lints = entries(text)
            .iter()
            .any(|e| e.section == "lints" && e.key == "workspace" && e.value == "true");
        if !has_lints {
            let message = format!("{name} opts out of the lints: add `[lints] workspace = true`");
            found.push(Finding::new(&file.path, 1, message));
        }
        for dependency in dependencies(text) {
            if !dependency.takes_workspace_version {
                let message = format!(
                    "the version of {} stands here: put it into [workspace.dependencies]",
                    dependency.package
                );
                found.push(Finding::new(&file.path, dependency.line, message));
            }
        }
    }
    found
}

fn registry(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, text) in tree.texts() {
        let is_lock = file.name() == "Cargo.lock";
        let is_config = file.path.ends_with(".cargo/config.toml");
        for (index, line) in text.lines().enumerate() {
            let source = line.strip_prefix("source = ").map(|s| s.trim_matches('"'));
            if let Some(source) = source.filter(|source| is_lock && *source != REGISTRY) {
                let message = format!("a package from {source}: take it from crates.io");
                found.push(Finding::new(&file.path, index + 1, message));
            }
            if is_config && (line.starts_with("[source") || line.starts_with("[registr")) {
                let message = "another registry: packages come from crates.io";
                found.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

fn readme_marks(tree: &Tree) -> Vec<Finding> {
    let Some((_, text)) = tree.texts().find(|(file, _)| file.path == "README.md") else {
        return vec![Finding::new("README.md", 1, "there is no README.md")];
    };
    readme::MARKS
        .iter()
        .filter_map(|mark| readme::command(text, mark).err())
        .map(|why| Finding::new("README.md", 1, why))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found as check;
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{rest}")
    }

    #[test]
    fn dependencies_point_downwards() {
        let check = |name, rest| check(floors, "c/Cargo.toml", &manifest(name, rest));
        assert!(check("gabion", "[dependencies]\ngabion-media.workspace = true\n").is_empty());
        for section in [
            "[dependencies]\ngabion-cli.workspace = true\n",
            "[dev-dependencies]\ngabion-cli = { workspace = true }\n",
            "[build-dependencies]\nx = { workspace = true, package = \"gabion-cli\" }\n",
            "[target.'cfg(unix)'.dependencies]\n\"gabion-cli\" = \"1\"\n",
        ] {
            assert_eq!(check("gabion", section), [6], "{section}");
        }
        let table = "[dependencies.x]\nworkspace = true\npackage = \"gabion-cli\"\n";
        assert_eq!(check("gabion", table), [6]);
        let itself = "[dev-dependencies]\ngabion = { workspace = true, features = [\"pm\"] }\n";
        assert!(check("gabion", itself).is_empty());
        let same_floor = "[dependencies]\ngabion-flex.workspace = true\n";
        assert_eq!(check("gabion-index", same_floor), [6]);
        assert!(!check("xtask", "[dependencies]\ngabion.workspace = true\n").is_empty());
        assert_eq!(check("gabion-attic", ""), [1]);
    }

    #[test]
    fn a_member_takes_versions_and_lints_from_the_workspace() {
        let check = |text: &str| check(members, "c/Cargo.toml", text);
        let fine =
            "[dependencies]\na.workspace = true\nb = { workspace = true, optional = true }\n";
        assert!(check(&manifest("gabion", fine)).is_empty());
        let table = "[dependencies.a]\nworkspace = true\noptional = true\n";
        assert!(check(&manifest("gabion", table)).is_empty());
        assert_eq!(
            check(&manifest("gabion", "[dependencies]\na = \"1\"\n")),
            [6]
        );
        assert_eq!(
            check(&manifest("gabion", "[dependencies.a]\nversion = \"1\"\n")),
            [6]
        );
        assert_eq!(check("[package]\nname = \"gabion\"\n"), [1]);
        assert!(check("[workspace.dependencies]\na = \"1\"\n").is_empty());
    }

    #[test]
    fn packages_come_from_one_registry() {
        let lock = |source: &str| {
            let text = format!("[[package]]\nname = \"a\"\nsource = \"{source}\"\n");
            check(registry, "Cargo.lock", &text)
        };
        assert!(lock(REGISTRY).is_empty());
        assert_eq!(lock("registry+https://mirror.example.org/index"), [3]);
        assert_eq!(lock("git+https://example.org/a.git#abc"), [3]);
        let config = |text| check(registry, ".cargo/config.toml", text);
        assert!(config("[alias]\nxtask = \"run\"\n").is_empty());
        assert_eq!(config("\n[source.crates-io]\n"), [2]);
    }

    #[test]
    fn the_readme_marks_its_commands() {
        let block = |mark| format!("<!-- ci:{mark} -->\n```sh\ncargo x\n```\n");
        let both = format!("{}{}", block("first"), block("test"));
        assert!(check(readme_marks, "README.md", &both).is_empty());
        assert_eq!(check(readme_marks, "README.md", &block("first")), [1]);
        assert_eq!(check(readme_marks, "README.md", &block("test")), [1]);
        assert_eq!(readme_marks(&Tree::of(&[])).len(), 1);
    }
}
