//! The files that the rules check: those that git tracks or would track.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::source::Source;

/// One file of the workspace.
pub(super) struct File {
    /// Path relative to the workspace, with `/` between its parts.
    pub(super) path: String,
    /// Length in bytes.
    pub(super) len: u64,
    /// Its content, or `None` where it is not UTF-8 text.
    pub(super) text: Option<String>,
    /// Its lines told apart into code and comments, where it is a Rust source.
    pub(super) source: Option<Source>,
}

impl File {
    fn new(path: String, bytes: Vec<u8>) -> File {
        let len = bytes.len() as u64;
        let text = String::from_utf8(bytes).ok().filter(|t| !t.contains('\0'));
        let source = match &text {
            Some(text) if path.ends_with(".rs") => Some(Source::parse(text)),
            _ => None,
        };
        File {
            path,
            len,
            text,
            source,
        }
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// All files of the workspace, ordered by path.
pub(super) struct Tree {
    pub(super) files: Vec<File>,
}

impl Tree {
    /// Reads the files below `root` that git tracks or, where a file is new, would track. Outside
    /// of a git checkout it reads all files but those of `target`.
    pub(super) fn read(root: &Path) -> Result<Tree, String> {
        let paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => {
                let mut paths = BTreeSet::new();
                walk(root, "", &mut paths)?;
                paths
            }
        };
        let mut files = Vec::new();
        for path in paths {
            let full = root.join(&path);
            // A file that was removed but is still in git's index, or a link, has no text to check.
            if !fs::symlink_metadata(&full).is_ok_and(|metadata| metadata.is_file()) {
                continue;
            }
            let bytes = fs::read(&full).map_err(|e| format!("cannot read {path}: {e}"))?;
            files.push(File::new(path, bytes));
        }
        Ok(Tree::new(files))
    }

    fn new(files: Vec<File>) -> Tree {
        let mut tree = Tree { files };
        tree.mark_test_modules();
        tree
    }

    /// A tree of given paths and texts, for the tests of rules.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        let file =
            |(path, text): &(&str, &str)| File::new((*path).to_owned(), text.as_bytes().to_vec());
        Tree::new(files.iter().map(file).collect())
    }

    /// The Rust sources of the tree.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files
            .iter()
            .filter_map(|file| file.source.as_ref().map(|source| (file, source)))
    }

    /// The text files of the tree.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&File, &str)> {
        self.files
            .iter()
            .filter_map(|file| file.text.as_deref().map(|text| (file, text)))
    }

    /// Marks as tests the files that are compiled for tests only: those of `tests` and `benches`
    /// directories, and the modules that a parent declares under `#[cfg(test)]`.
    fn mark_test_modules(&mut self) {
        let mut prefixes = Vec::new();
        for (file, source) in self.sources() {
            let dir = module_dir(&file.path);
            for name in source.test_modules() {
                prefixes.push(format!("{dir}{name}.rs"));
                prefixes.push(format!("{dir}{name}/"));
            }
        }
        for file in &mut self.files {
            let in_test_dir = file
                .path
                .split('/')
                .any(|part| part == "tests" || part == "benches");
            if (in_test_dir || prefixes.iter().any(|prefix| file.path.starts_with(prefix)))
                && let Some(source) = &mut file.source
            {
                source.mark_all_as_tests();
            }
        }
    }
}

/// The directory, with its final `/`, in which the child modules of a source file are looked for.
fn module_dir(path: &str) -> String {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let dir = if dir.is_empty() {
        String::new()
    } else {
        format!("{dir}/")
    };
    match name {
        "mod.rs" | "lib.rs" | "main.rs" => dir,
        _ => format!("{dir}{}/", name.trim_end_matches(".rs")),
    }
}

/// The files that git lists, or `None` where there is no git or no checkout.
fn listed_by_git(root: &Path) -> Option<BTreeSet<String>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ])
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let names = String::from_utf8(output.stdout).ok()?;
    let paths = names.split('\0').filter(|name| !name.is_empty());
    Some(paths.map(str::to_owned).collect())
}

fn walk(root: &Path, dir: &str, paths: &mut BTreeSet<String>) -> Result<(), String> {
    let full = root.join(dir);
    let fail = |e| format!("cannot list {}: {e}", full.display());
    for entry in fs::read_dir(&full).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if dir.is_empty() {
            name.clone()
        } else {
            format!("{dir}/{name}")
        };
        if !entry.file_type().map_err(fail)?.is_dir() {
            paths.insert(path);
        } else if name != "target" && name != ".git" {
            walk(root, &path, paths)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_test(tree: &Tree, path: &str) -> bool {
        let (_, source) = tree.sources().find(|(file, _)| file.path == path).unwrap();
        source.lines.iter().all(|line| line.is_test)
    }

    #[test]
    fn a_module_declared_for_tests_is_a_test_with_all_below_it() {
        let tree = Tree::of(&[
            ("c/src/lib.rs", "mod a;\n#[cfg(test)]\nmod twin;\n"),
            ("c/src/a.rs", "fn f() {}\n#[cfg(test)]\nmod model;\n"),
            ("c/src/a/model.rs", "fn f() {}\n"),
            ("c/src/twin/mod.rs", "fn f() {}\n"),
            ("c/src/model.rs", "fn f() {}\n"),
            ("c/tests/it.rs", "fn f() {}\n"),
        ]);
        for path in ["c/src/a/model.rs", "c/src/twin/mod.rs", "c/tests/it.rs"] {
            assert!(is_test(&tree, path), "{path}");
        }
        for path in ["c/src/model.rs", "c/src/a.rs", "c/src/lib.rs"] {
            assert!(!is_test(&tree, path), "{path}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_have_no_text() {
        assert!(File::new("a.bin".into(), vec![0xFF, 0xFE]).text.is_none());
        assert!(File::new("a.bin".into(), vec![b'a', 0]).text.is_none());
        assert!(File::new("a.txt".into(), vec![b'a']).text.is_some());
    }

    #[test]
    fn git_and_the_walk_agree_on_this_crate() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut walked = BTreeSet::new();
        walk(root, "", &mut walked).unwrap();
        assert!(walked.contains("src/tidy/tree.rs"));
        if let Some(listed) = listed_by_git(root) {
            assert!(listed.is_subset(&walked), "{listed:?} {walked:?}");
        }
    }
}
