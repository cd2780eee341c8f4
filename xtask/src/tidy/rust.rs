//! Rules for Rust sources: where `unsafe` may stand, how media are reached, how layouts are proved,
//! and which shortcuts are not taken.

use super::source::{Line, Source, find_word};
use super::tree::Tree;
use super::{Finding, Rule};

/// The only places that may contain `unsafe`, and why they need it.
const UNSAFE_PLACES: &[(&str, &str)] = &[
    (
        "crates/gabion-media/src/forked.rs",
        "forks children for tests, which nothing safe does",
    ),
    (
        "crates/gabion-media/src/owner.rs",
        "asks the system's library to be called back in forked children",
    ),
    (
        "crates/gabion-media/src/disk/mapping.rs",
        "maps files into memory",
    ),
    (
        "crates/gabion-index/src/tags.rs",
        "calls functions that are compiled for vectors which not every processor has",
    ),
    (
        "crates/gabion-media/src/pmem/atomic.rs",
        "vouches that types on media are atomics without gaps",
    ),
    (
        "crates/gabion-media/src/pmem/cpu.rs",
        "calls flushes, fences and stores past the cache",
    ),
    (
        "crates/gabion-media/src/pmem/epoch.rs",
        "hands blocks to the collector as pointers",
    ),
    (
        "crates/gabion-media/src/pmem/medium.rs",
        "lends what lies at an offset, bounds checked",
    ),
    (
        "crates/gabion-media/src/pmem/region.rs",
        "maps and allocates the memory of pools",
    ),
    (
        "crates/gabion-media/src/disk/file_map.rs",
        "maps files into memory, and lends their bytes",
    ),
    (
        "crates/gabion-media/src/disk/log_file.rs",
        "gives out parts of a mapping, each to one writer",
    ),
    (
        "crates/gabion-media/src/disk/writeback.rs",
        "calls the system to begin to write a range of a file",
    ),
    (
        "crates/gabion-media/src/system_memory.rs",
        "maps memory, and asks for large pages by address",
    ),
    (
        "crates/gabion-media/src/prefetch.rs",
        "calls the prefetch intrinsic",
    ),
    (
        "crates/gabion/src/engine/memtable/arena/mod.rs",
        "walks the records of chunks, and lends them as long as the arena is held",
    ),
    (
        "crates/gabion/src/engine/memtable/arena/pool.rs",
        "allocates the chunks",
    ),
    (
        "crates/gabion/src/engine/memtable/arena/record.rs",
        "records behind packed pointers",
    ),
    (
        "crates/gabion/src/engine/memtable/directory.rs",
        "lock-free hash directory",
    ),
    (
        "crates/gabion/src/engine/memtable/key_tree/cursor.rs",
        "holds on to nodes and records, together with their memory",
    ),
    (
        "crates/gabion/src/engine/memtable/key_tree/mod.rs",
        "reaches the first node of the tree",
    ),
    (
        "crates/gabion/src/engine/memtable/key_tree/node.rs",
        "nodes and records behind pointers that readers follow without locks",
    ),
    (
        "crates/gabion/src/slabs.rs",
        "cuts pages into slots, and lends what lies in them as long as it is shared",
    ),
    (
        "bindings/shared/src/ingest.rs",
        "holds what borrows the keyspace beside it",
    ),
    (
        "bindings/c/leveldb/src/batch.rs",
        "functions of LevelDB's C interface, with pointers",
    ),
    (
        "bindings/c/leveldb/src/db.rs",
        "functions of LevelDB's C interface, with pointers",
    ),
    (
        "bindings/c/leveldb/src/iterator.rs",
        "functions of LevelDB's C interface, with pointers",
    ),
    (
        "bindings/c/leveldb/src/lib.rs",
        "functions of LevelDB's C interface, with pointers",
    ),
    (
        "bindings/c/leveldb/src/options.rs",
        "functions of LevelDB's C interface, with pointers",
    ),
    (
        "bindings/c/leveldb/src/parts.rs",
        "functions of LevelDB's C interface, with pointers",
    ),
    (
        "bindings/c/leveldb/src/raw.rs",
        "functions of LevelDB's C interface, with pointers",
    ),
    (
        "bindings/java/native/src/border.rs",
        "copies bytes from and to memory that the VM lends",
    ),
    (
        "bindings/java/native/src/pages.rs",
        "natives of Java, which the VM finds by name",
    ),
    (
        "bindings/java/native/src/read.rs",
        "natives of Java, which the VM finds by name",
    ),
    (
        "bindings/java/native/src/store.rs",
        "natives of Java, which the VM finds by name",
    ),
    (
        "bindings/java/native/src/transaction.rs",
        "natives of Java, which the VM finds by name",
    ),
    (
        "bindings/java/native/src/write.rs",
        "natives of Java, which the VM finds by name",
    ),
    (
        "bindings/c/src/batch.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/backup.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/changes.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/consumer.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/ingest.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/error.rs",
        "functions that C calls, with pointers",
    ),
    ("bindings/c/src/handle.rs", "boxes whose pointers C holds"),
    (
        "bindings/c/src/iterator.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/keyspace.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/lib.rs",
        "the crate of functions that C calls",
    ),
    (
        "bindings/c/src/options.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/raw.rs",
        "bytes, text and places for results of C",
    ),
    (
        "bindings/c/src/read.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/store.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/transaction.rs",
        "functions that C calls, with pointers",
    ),
    (
        "bindings/c/src/write.rs",
        "functions that C calls, with pointers",
    ),
    ("bindings/c/src/tests/mod.rs", "calls functions as C does"),
    (
        "bindings/c/src/tests/threads.rs",
        "calls functions as C does",
    ),
    (
        "bindings/c/src/tests/wrong_order.rs",
        "calls functions as C does, in any order",
    ),
    (
        "crates/gabion-peers/src/leveldb/ffi.rs",
        "calls LevelDB's C interface",
    ),
    (
        "crates/gabion-peers/src/lmdb.rs",
        "LMDB maps a file, and its syncs are switched",
    ),
    (
        "crates/gabion-peers/src/tidesdb/ffi.rs",
        "calls TidesDB's C interface",
    ),
];

/// Macros that stop a program because it is not written yet, or print what only its author reads.
const MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];

/// What reaches a medium behind the back of `gabion-media`.
const MEDIA_WORDS: [&str; 5] = ["std::fs", "rustix", "libc", "memmap2", "nix"];

/// The crates that live above the media and reach them through `gabion-media` alone.
const MEDIA_USERS: [&str; 3] = [
    "crates/gabion/src/",
    "crates/gabion-index/src/",
    "crates/gabion-flex/src/",
];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "essay",
        says: "every Rust source opens with //! and says what it is",
        check: essay,
    },
    Rule {
        name: "macros",
        says: "no macros of unfinished or debugged code",
        check: macros,
    },
    Rule {
        name: "ignore",
        says: "no test is switched off",
        check: ignore,
    },
    Rule {
        name: "dead-code",
        says: "unused code is removed; its warning must not be allowed",
        check: dead_code,
    },
    Rule {
        name: "unsafe",
        says: "unsafe code is only in the places that one table names",
        check: unsafe_places,
    },
    Rule {
        name: "media",
        says: "only gabion-media touches files and mappings",
        check: media,
    },
    Rule {
        name: "layout",
        says: "every layout.rs proves its sizes and offsets at compile time",
        check: layout,
    },
];

/// Findings on the lines of all sources for which `says` has a message.
fn on_lines(tree: &Tree, says: impl Fn(&str, &Line) -> Option<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, source) in tree.sources() {
        for (index, line) in source.lines.iter().enumerate() {
            if let Some(message) = says(&file.path, line) {
                found.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

fn essay(tree: &Tree) -> Vec<Finding> {
    tree.texts()
        .filter(|(file, text)| file.path.ends_with(".rs") && !text.starts_with("//!"))
        .map(|(file, _)| Finding::new(&file.path, 1, "the file does not open with //!"))
        .collect()
}

fn macros(tree: &Tree) -> Vec<Finding> {
    on_lines(tree, |_, line| {
        let is_called = |name: &&str| {
            find_word(&line.code, name)
                .is_some_and(|at| line.code[at + name.len()..].starts_with('!'))
        };
        let name = MACROS.iter().copied().find(is_called)?;
        Some(format!("the macro {name}! has no place in finished code"))
    })
}

fn ignore(tree: &Tree) -> Vec<Finding> {
    on_lines(tree, |_, line| {
        let code: String = line.code.split_whitespace().collect();
        let is_ignored = code.starts_with("#[ignore") || code.contains(",ignore)]");
        is_ignored.then(|| {
            "a test that is switched off: make it pass, or give it a smaller size by default and \
             a variable GABION_* for the long run"
                .to_owned()
        })
    })
}

fn dead_code(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, source) in tree.sources() {
        let code = source.code();
        for (at, _) in code.match_indices("allow(") {
            let list = code[at + "allow(".len()..].split(')').next().unwrap_or("");
            for lint in list.split(',').map(str::trim) {
                if lint == "dead_code" || lint.starts_with("unused") {
                    let line = code[..at].matches('\n').count() + 1;
                    let message = format!("allow({lint}): remove what is unused");
                    found.push(Finding::new(&file.path, line, message));
                }
            }
        }
    }
    found
}

fn unsafe_places(tree: &Tree) -> Vec<Finding> {
    let is_listed = |path: &str| UNSAFE_PLACES.iter().any(|(place, _)| path == *place);
    let mut found = on_lines(tree, |path, line| {
        (!is_listed(path) && line.has_word("unsafe")).then(|| {
            "unsafe outside of the places that may have it: use safe code, or argue for the file \
             in the table UNSAFE_PLACES of xtask/src/tidy/rust.rs"
                .to_owned()
        })
    });
    for (file, source) in tree.sources().filter(|(file, _)| is_listed(&file.path)) {
        if !source.lines.iter().any(|line| line.has_word("unsafe")) {
            let message = "no unsafe any more: take the file out of the table UNSAFE_PLACES";
            found.push(Finding::new(&file.path, 1, message));
        }
    }
    found
}

fn media(tree: &Tree) -> Vec<Finding> {
    on_lines(tree, |path, line| {
        let is_user = MEDIA_USERS.iter().any(|user| path.starts_with(user));
        if !is_user || line.is_test {
            return None;
        }
        let is_use = find_word(&line.code, "use").is_some();
        let word = MEDIA_WORDS
            .into_iter()
            .chain(is_use.then_some("fs"))
            .find(|word| find_word(&line.code, word).is_some())?;
        Some(format!(
            "{word}: files and mappings are reached through gabion-media"
        ))
    })
}

fn layout(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, source) in tree.sources() {
        if file.name() != "layout.rs" {
            continue;
        }
        let asserts = const_asserts(source);
        if asserts.is_empty() {
            let message = "no compile-time assert: prove sizes and offsets with `const _: () = \
                           assert!(..)`";
            found.push(Finding::new(&file.path, 1, message));
        }
        for (line, name) in repr_c_types(source) {
            let proof = format!("size_of::<{name}");
            if !asserts.contains(&proof) {
                let message = format!("no compile-time assert of {proof}>()");
                found.push(Finding::new(&file.path, line, message));
            }
        }
    }
    found
}

/// The code of all `const _: () = ...` items with an assert, outside of tests.
fn const_asserts(source: &Source) -> String {
    let mut code = String::new();
    for line in source.lines.iter().filter(|line| !line.is_test) {
        code.push_str(&line.code);
        code.push('\n');
    }
    let mut asserts = String::new();
    for item in code.split("const _: () =").skip(1) {
        // A block ends at a brace in the first column, as rustfmt sets it; a single assert at `;`.
        let end = if item.trim_start().starts_with('{') {
            item.find("\n}")
        } else {
            item.find(';')
        };
        let item = &item[..end.unwrap_or(item.len())];
        if item.contains("assert!(") {
            asserts.push_str(item);
        }
    }
    asserts
}

/// The types with `#[repr(C..)]` outside of tests: line number and name.
fn repr_c_types(source: &Source) -> Vec<(usize, String)> {
    let mut types = Vec::new();
    let mut is_repr = false;
    for (index, line) in source.lines.iter().enumerate() {
        if line.is_test {
            continue;
        }
        is_repr |= line.code.contains("repr(C");
        for keyword in ["struct", "union"] {
            if let Some(at) = find_word(&line.code, keyword).filter(|_| is_repr) {
                let rest = line.code[at + keyword.len()..].trim_start();
                let name = rest
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next();
                types.push((index + 1, name.unwrap_or("").to_owned()));
                is_repr = false;
            }
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found as check_at;
    use super::*;

    fn check(rule: fn(&Tree) -> Vec<Finding>, text: &str) -> Vec<usize> {
        check_at(rule, "crates/gabion/src/a.rs", text)
    }

    #[test]
    fn a_source_opens_with_its_essay() {
        assert!(check(essay, "//! A.\n").is_empty());
        assert_eq!(check(essay, "// A.\n"), [1]);
        assert_eq!(check(essay, ""), [1]);
        assert!(check_at(essay, "a.md", "A\n").is_empty());
    }

    #[test]
    fn macros_of_unfinished_code_are_found() {
        for name in MACROS {
            assert_eq!(check(macros, &format!("\nlet x = {name}!(y);")), [2]);
            assert!(check(macros, &format!("// {name}!()\nlet {name} = \"{name}!\";")).is_empty());
        }
    }

    #[test]
    fn tests_that_are_switched_off_are_found() {
        assert_eq!(check(ignore, "#[test]\n#[ignore]\nfn a() {}"), [2]);
        assert_eq!(check(ignore, "#[ignore = \"slow\"]"), [1]);
        assert_eq!(check(ignore, "#[cfg_attr(miri, ignore)]"), [1]);
        assert!(check(ignore, "// #[ignore]\nlet ignore = 1;").is_empty());
    }

    #[test]
    fn allowed_dead_code_is_found() {
        assert_eq!(check(dead_code, "\n#[allow(dead_code)]"), [2]);
        assert_eq!(
            check(
                dead_code,
                "#![allow(\n    clippy::x,\n    unused_variables\n)]"
            ),
            [1]
        );
        assert_eq!(check(dead_code, "#[cfg_attr(x, allow(unused))]"), [1]);
        assert!(
            check(
                dead_code,
                "#[allow(clippy::too_many_lines)]\n// allow(unused)"
            )
            .is_empty()
        );
    }

    #[test]
    fn unsafe_code_is_found_outside_of_the_table() {
        assert_eq!(check(unsafe_places, "\nunsafe { x() }"), [2]);
        assert_eq!(check(unsafe_places, "unsafe impl Send for X {}"), [1]);
        assert!(check(unsafe_places, "#![forbid(unsafe_code)]\n// unsafe").is_empty());
        for (place, _) in UNSAFE_PLACES {
            assert!(check_at(unsafe_places, place, "unsafe { x() }").is_empty());
            assert_eq!(check_at(unsafe_places, place, "\nx()"), [1]);
            let other = format!("x/{place}");
            assert_eq!(check_at(unsafe_places, &other, "unsafe {}"), [1]);
        }
    }

    #[test]
    fn files_are_reached_through_the_media_crate() {
        assert_eq!(check(media, "use std::fs;"), [1]);
        assert_eq!(check(media, "\nlet x = std::fs::read(y);"), [2]);
        assert_eq!(check(media, "use std::{fs, io};"), [1]);
        assert_eq!(check(media, "use rustix::mm;"), [1]);
        assert!(check(media, "#[cfg(test)]\nmod tests {\n    use std::fs;\n}").is_empty());
        assert!(check_at(media, "crates/gabion-media/src/a.rs", "use std::fs;").is_empty());
        assert!(check_at(media, "crates/gabion/tests/a.rs", "use std::fs;").is_empty());
    }

    #[test]
    fn a_layout_proves_itself_at_compile_time() {
        let path = "crates/gabion/src/log/layout.rs";
        let header = "#[repr(C)]\n#[derive(Clone)]\npub(crate) struct Header {\n    a: u32,\n}\n";
        let proof = "const _: () = assert!(size_of::<Header>() == 4);\n";
        let block = "const _: () = {\n    assert!(size_of::<Header>() == 4);\n};\n";
        assert!(check_at(layout, path, &format!("{header}{proof}")).is_empty());
        assert!(check_at(layout, path, &format!("{header}{block}")).is_empty());
        assert_eq!(check_at(layout, path, "const A: u32 = 1;\n"), [1]);
        assert_eq!(check_at(layout, path, header), [1, 3]);
        let other = "const _: () = assert!(A == 4);\n";
        assert_eq!(check_at(layout, path, &format!("{header}{other}")), [3]);
        let in_test = format!("{header}#[cfg(test)]\nmod tests {{\n{proof}}}\n");
        assert_eq!(check_at(layout, path, &in_test), [1, 3]);
        assert!(check_at(layout, "crates/gabion/src/a.rs", header).is_empty());
    }
}
