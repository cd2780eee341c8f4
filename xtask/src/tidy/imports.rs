//! Rules for imports: circles of files are small, and some modules import nothing from around them.
//!
//! A circle of files can only be read, tested and changed as a whole. So the files of a crate form
//! a graph by what they import, and no circle in it may have more than [`CIRCLE_MAX`] files. What a
//! module hands on by `pub use` counts as an import of the file that it is from, so that a facade
//! costs nothing.
//!
//! Paths are resolved as far as files go: `crate::a::b::Item` means the deepest file on the way.
//! Within nested modules and functions only paths that begin with `crate` are looked at.

use std::collections::BTreeMap;

use super::source::{Source, find_word};
use super::tree::Tree;
use super::{Finding, Rule};

/// Most files of a circle.
const CIRCLE_MAX: usize = 3;

/// A larger circle: one of its files, how many they are, and why.
type Known = (&'static str, usize, &'static str);

/// All larger circles.
const CIRCLES: &[Known] = &[
    (
        "crates/gabion-media/src/pmem/alloc/central.rs",
        5,
        "the recovery of the lists of free memory makes what it recovers",
    ),
    (
        "crates/gabion-media/src/pmem/explore/walk.rs",
        5,
        "what is recorded is checked while it is recorded",
    ),
    (
        "crates/gabion-flex/src/tree/mod.rs",
        4,
        "a node and the tree that it is saved with",
    ),
    (
        "crates/gabion-flex/src/space/mod.rs",
        6,
        "the state of a space stands with the module",
    ),
    (
        "crates/gabion-index/src/art/node.rs",
        6,
        "a node's form, its changes and its recovery know each other",
    ),
    (
        "crates/gabion-index/src/scmkv/mod.rs",
        4,
        "the state of a store stands with the module",
    ),
    (
        "crates/gabion-index/src/sptree/mod.rs",
        4,
        "the state of a tree stands with the module",
    ),
    (
        "crates/gabion-index/src/clevel/mod.rs",
        4,
        "the state of a table stands with the module",
    ),
    (
        "crates/gabion-lab/src/run/mod.rs",
        6,
        "the phases of a run stand with the module",
    ),
];

/// Rooms whose files import nothing of the room around them: both folders, and why.
const APART: &[(&str, &str, &str)] = &[(
    "crates/gabion/src/engine/wip/policy/",
    "crates/gabion/src/engine/wip/",
    "what comes next is decided over facts, so that rules are tested without a store",
)];

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "circles",
        says: "the files of a crate import each other in circles of three at most",
        check: circles,
    },
    Rule {
        name: "apart",
        says: "rooms that one table names import nothing of what is around them",
        check: apart,
    },
];

/// The files of a crate by their modules, and what they import.
struct Crate<'t> {
    files: BTreeMap<Vec<String>, (&'t str, &'t Source)>,
    /// What modules hand on: the item, by module and name.
    handed_on: BTreeMap<(Vec<String>, String), Vec<String>>,
}

/// The crate of a file, and its module; `None` for what is no part of a library or program.
fn module_of(path: &str) -> Option<(&str, Vec<String>)> {
    let at = path.find("src/").filter(|at| path[..*at].ends_with('/'))?;
    let (of, file) = (&path[..at], path[at + "src/".len()..].strip_suffix(".rs")?);
    let mut module: Vec<String> = file.split('/').map(str::to_owned).collect();
    module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    Some((of, module))
}

/// The paths of a tree of imports, each with all of its parts.
fn paths_of(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let (head, inner) = match tree.split_once('{') {
        Some((head, inner)) => (head, inner.rsplit_once('}').map(|(inner, _)| inner)),
        None => (tree.split(" as ").next().unwrap_or(tree), None),
    };
    let parts = head.split("::").map(str::trim);
    let parts = parts.filter(|part| !part.is_empty()).map(str::to_owned);
    let path: Vec<String> = before.iter().cloned().chain(parts).collect();
    let Some(inner) = inner else {
        found.push(path);
        return;
    };
    let (mut depth, mut from) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                paths_of(&inner[from..at], &path, found);
                from = at + 1;
            }
            _ => {}
        }
    }
    if !inner[from..].trim().is_empty() {
        paths_of(&inner[from..], &path, found);
    }
}

/// An import, or a path in the code.
struct Import {
    path: Vec<String>,
    is_handed_on: bool,
    is_nested: bool,
}

/// What the code that is not for tests imports.
fn imports_of(source: &Source) -> Vec<Import> {
    let kept = |line: &super::source::Line| match line.is_test {
        true => String::new(),
        false => line.code.clone(),
    };
    let lines: Vec<String> = source.lines.iter().map(kept).collect();
    let code = lines.join("\n");
    let (mut found, mut at) = (Vec::new(), 0);
    // The code without its imports.
    let mut others = String::new();
    while let Some(next) = find_word(&code[at..], "use") {
        let begin = at + next;
        let line = &code[..begin];
        let line = &line[line.rfind('\n').map_or(0, |at| at + 1)..];
        let is_import = line.trim().is_empty() || line.trim_start().starts_with("pub");
        let end = code[begin..].find(';').filter(|_| is_import);
        let end = begin + end.unwrap_or("use".len());
        others += &code[at..begin];
        if is_import {
            let mut paths = Vec::new();
            paths_of(&code[begin + "use".len()..end], &[], &mut paths);
            found.extend(paths.into_iter().map(|path| Import {
                path,
                is_handed_on: !line.trim().is_empty(),
                is_nested: line.starts_with(' '),
            }));
        }
        at = end;
    }
    others += &code[at..];
    for (at, _) in others.match_indices("crate::") {
        // Who may see an item.
        if others[..at].ends_with("(in ") {
            continue;
        }
        let path = others[at..].split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let parts = path.take(1).flat_map(|path| path.split("::"));
        found.push(Import {
            path: parts
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect(),
            is_handed_on: false,
            is_nested: true,
        });
    }
    found
}

impl<'t> Crate<'t> {
    fn new(files: BTreeMap<Vec<String>, (&'t str, &'t Source)>) -> Crate<'t> {
        let mut own = Crate {
            files,
            handed_on: BTreeMap::new(),
        };
        let mut handed_on = BTreeMap::new();
        for (module, (_, source)) in &own.files {
            for import in imports_of(source) {
                if import.is_handed_on
                    && let Some(path) = own.absolute(module, &import)
                    && let Some(name) = path.last()
                {
                    handed_on.insert((module.clone(), name.clone()), path.clone());
                }
            }
        }
        own.handed_on = handed_on;
        own
    }

    /// The path from the crate's root on; `None` for one into another crate.
    fn absolute(&self, module: &[String], import: &Import) -> Option<Vec<String>> {
        let (first, rest) = import.path.split_first()?;
        let within = |module: &[String], rest: &[String]| Some([module, rest].concat());
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            _ if import.is_nested => None,
            "self" => within(module, rest),
            "super" => {
                let ups = import.path.iter().take_while(|part| *part == "super");
                let ups = ups.count();
                within(
                    &module[..module.len().checked_sub(ups)?],
                    &import.path[ups..],
                )
            }
            _ => {
                let child = [module, std::slice::from_ref(first)].concat();
                let is_child = self.files.contains_key(&child);
                is_child.then(|| within(module, &import.path))?
            }
        }
    }

    /// The module of the file in which a path ends.
    fn file_of(&self, path: &[String], depth: usize) -> Option<&Vec<String>> {
        let known = (0..=path.len()).rev();
        let (module, (len, _)) = known
            .filter_map(|len| Some((len, self.files.get_key_value(&path[..len])?)))
            .map(|(len, (module, file))| (module, (len, file)))
            .next()?;
        let item = path
            .get(len)
            .map(|name| (module.clone(), name.clone()))
            .and_then(|item| self.handed_on.get(&item))
            .filter(|item| depth < 8 && item.as_slice() != path);
        match item {
            Some(item) => self.file_of(&[item, &path[len + 1..]].concat(), depth + 1),
            None => Some(module),
        }
    }

    /// What each file imports.
    fn edges(&self) -> BTreeMap<&Vec<String>, Vec<&Vec<String>>> {
        let edges_of = |module: &Vec<String>, source: &Source| {
            let mut edges: Vec<&Vec<String>> = imports_of(source)
                .iter()
                .filter(|import| !import.is_handed_on)
                .filter_map(|import| self.file_of(&self.absolute(module, import)?, 0))
                .filter(|to| *to != module)
                .collect();
            edges.sort();
            edges.dedup();
            edges
        };
        let files = self.files.iter();
        files
            .map(|(module, (_, source))| (module, edges_of(module, source)))
            .collect()
    }

    /// The circles: files, each with those of the circle that it imports.
    fn circles(&self) -> Vec<Circle<'t>> {
        let edges = self.edges();
        let reached_from = |from: &Vec<String>| {
            let (mut reached, mut next) = (Vec::new(), vec![from]);
            while let Some(module) = next.pop() {
                for to in &edges[module] {
                    if !reached.contains(to) {
                        reached.push(*to);
                        next.push(*to);
                    }
                }
            }
            reached
        };
        let reached: BTreeMap<_, _> = edges
            .keys()
            .map(|module| (*module, reached_from(module)))
            .collect();
        let mut circles = Vec::new();
        let mut seen: Vec<&Vec<String>> = Vec::new();
        for (module, to) in &reached {
            if seen.contains(module) || !to.contains(module) {
                continue;
            }
            let around = to.iter().filter(|other| reached[*other].contains(module));
            let around: Vec<&Vec<String>> = around.copied().collect();
            let path = |module: &Vec<String>| self.files[module].0;
            let imports = |module: &Vec<String>| {
                let to = edges[module].iter().filter(|to| around.contains(to));
                to.map(|to| path(to)).collect()
            };
            let with_imports = |module: &&Vec<String>| (path(module), imports(module));
            circles.push(around.iter().map(with_imports).collect());
            seen.extend(around);
        }
        circles
    }
}

/// Files that import each other in a circle, each with those that it imports.
type Circle<'t> = BTreeMap<&'t str, Vec<&'t str>>;

/// All crates, without files of tests.
fn crates_of(tree: &Tree) -> impl Iterator<Item = Crate<'_>> {
    let mut crates: BTreeMap<&str, BTreeMap<_, _>> = BTreeMap::new();
    for (file, source) in tree.sources() {
        if let Some((of, module)) = module_of(&file.path)
            && !source.lines.iter().all(|line| line.is_test)
        {
            let files = crates.entry(of).or_default();
            files.insert(module, (file.path.as_str(), source));
        }
    }
    crates.into_values().map(Crate::new)
}

/// All circles of all crates.
fn all_circles(tree: &Tree) -> Vec<Circle<'_>> {
    crates_of(tree).flat_map(|own| own.circles()).collect()
}

/// The number of files in each circle, and one of the files.
pub(super) fn sizes(tree: &Tree) -> Vec<(usize, String)> {
    let size = |circle: &Circle<'_>| {
        let (first, _) = circle.first_key_value()?;
        Some((circle.len(), (*first).to_owned()))
    };
    all_circles(tree).iter().filter_map(size).collect()
}

fn circles(tree: &Tree) -> Vec<Finding> {
    circles_beside(tree, CIRCLES)
}

/// Circles that are larger than what is known of them, and what is known of circles that have
/// become smaller.
fn circles_beside(tree: &Tree, known: &[Known]) -> Vec<Finding> {
    let mut found = Vec::new();
    let circles = all_circles(tree);
    for circle in &circles {
        let known = known.iter().find(|(file, ..)| circle.contains_key(file));
        let most = known.map_or(CIRCLE_MAX, |(_, most, _)| *most);
        let Some((first, _)) = circle.first_key_value().filter(|_| circle.len() > most) else {
            continue;
        };
        let mut message = format!("one of {} files that import each other:", circle.len());
        for (file, imports) in circle {
            message += &format!("\n  {file} imports {}", imports.join(", "));
        }
        found.push(Finding::new(first, 1, message));
    }
    for (file, most, _) in known {
        let circle = circles.iter().find(|circle| circle.contains_key(file));
        let files = circle.map_or(0, Circle::len);
        if files < *most && tree.sources().any(|(source, _)| source.path == *file) {
            let message = format!(
                "its circle has {files} files, and its exception allows {most}: lower it, or \
                 remove it where {CIRCLE_MAX} are enough"
            );
            found.push(Finding::new(file, 1, message));
        }
    }
    found
}

fn apart(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for own in crates_of(tree) {
        let path = |module: &Vec<String>| own.files[module].0;
        for (from, imports) in own.edges() {
            let from = path(from);
            for (room, around, why) in APART {
                let leaves = |to: &&str| to.starts_with(around) && !to.starts_with(room);
                let imports = imports.iter().map(|to| path(to)).filter(leaves);
                found.extend(
                    imports
                        .filter(|_| from.starts_with(room))
                        .map(|to| Finding::new(from, 1, format!("imports {to}, but {why}"))),
                );
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(files: &[(&str, &str)]) -> usize {
        let sizes = sizes(&Tree::of(files));
        sizes.iter().map(|(files, _)| *files).max().unwrap_or(0)
    }

    #[test]
    fn a_circle_is_found_through_every_kind_of_path() {
        let files = [
            ("crates/x/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n"),
            (
                "crates/x/src/a.rs",
                "use crate::b::{self, B, Other as O};\n",
            ),
            ("crates/x/src/b.rs", "use super::{c::{inner::C, x}, z};\n"),
            ("crates/x/src/c/mod.rs", "mod inner;\n"),
            ("crates/x/src/c/inner.rs", "fn f() { crate::d::g(); }\n"),
            (
                "crates/x/src/d.rs",
                "use std::fmt;\nfn g() {\n    use crate::a::A;\n}\n",
            ),
        ];
        assert_eq!(longest(&files), 4);
        let found = circles(&Tree::of(&files));
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("4 files"), "{}", found[0]);
        // Any of them gone, there is none.
        for gone in [1, 2, 4, 5] {
            let mut files = files.to_vec();
            files[gone].1 = "use std::fmt;\n";
            assert_eq!(longest(&files), 0, "{gone}");
        }
    }

    #[test]
    fn what_a_module_hands_on_is_its_files() {
        let files = [
            (
                "crates/x/src/lib.rs",
                "mod a;\nmod b;\npub use a::A;\npub(crate) use b::{B, b as c};\n",
            ),
            ("crates/x/src/a.rs", "use crate::B;\n"),
            ("crates/x/src/b.rs", "use std::fmt;\n"),
        ];
        assert_eq!(longest(&files), 0);
        let mut back = files;
        back[2].1 = "use crate::A;\n";
        assert_eq!(longest(&back), 2);
    }

    #[test]
    fn tests_and_other_crates_are_no_part_of_a_circle() {
        let files = [
            ("crates/x/src/a.rs", "use crate::b::B;\n"),
            (
                "crates/x/src/b.rs",
                "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
            ("crates/y/src/b.rs", "use crate::a::A;\n"),
            ("crates/x/tests/it.rs", "use crate::a::A;\n"),
        ];
        assert_eq!(longest(&files), 0);
    }

    #[test]
    fn a_room_apart_imports_nothing_around_it() {
        let (room, around, _) = APART[0];
        let file = |folder: &str, name: &str| format!("{folder}{name}.rs");
        let (rule, other, engine) = (file(room, "rule"), file(room, "other"), file(around, "mod"));
        let found = |import: &str| {
            let tree = Tree::of(&[(&rule, import), (&other, ""), (&engine, "mod policy;\n")]);
            apart(&tree).len()
        };
        assert_eq!(found("use super::other::Other;\nuse crate::Options;\n"), 0);
        assert_eq!(found("use crate::engine::wip::Wip;\n"), 1);
        assert_eq!(found("fn f() { crate::engine::wip::g(); }\n"), 1);
        let tested = "#[cfg(test)]\nmod tests {\n    use crate::engine::wip::Wip;\n}\n";
        assert_eq!(found(tested), 0);
    }

    #[test]
    fn circles_that_are_known_may_not_grow() {
        for (file, most, why) in CIRCLES {
            assert!(*most > CIRCLE_MAX && !why.is_empty(), "{file}");
        }
    }

    #[test]
    fn an_exception_is_as_large_as_its_circle() {
        let of = |next: &str| format!("use crate::{next}::X;\n");
        let (b, c, d, e, a) = (of("b"), of("c"), of("d"), of("e"), of("a"));
        let files = [
            ("crates/x/src/a.rs", b.as_str()),
            ("crates/x/src/b.rs", c.as_str()),
            ("crates/x/src/c.rs", d.as_str()),
            ("crates/x/src/d.rs", e.as_str()),
            ("crates/x/src/e.rs", a.as_str()),
        ];
        let found = |files: &[(&str, &str)], most| {
            let known = [("crates/x/src/c.rs", most, "of a test")];
            circles_beside(&Tree::of(files), &known).len()
        };
        assert_eq!([4, 5, 6].map(|most| found(&files, most)), [1, 0, 1]);
        let mut open = files;
        open[4].1 = "use std::fmt;\n";
        assert_eq!(found(&open, 5), 1, "there is no circle any more");
        assert_eq!(found(&files[..2], 5), 0, "there is no such file");
    }
}
