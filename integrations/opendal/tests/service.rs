//! The service behind an operator, with the readers and writers of OpenDAL's testkit.

use std::collections::BTreeMap;

use gabion::{Db, Engine, Options};
use gabion_media::seeded::SeededRng;
use gabion_opendal::{GABION_SCHEME, GabionBuilder};
use opendal_core::{EntryMode, Error, ErrorKind, Operator, OperatorRegistry, Result};
use opendal_testkit::{ReadAction, ReadChecker, WriteChecker};
use tempfile::TempDir;

/// An operator on a new store, which lives as long as the directory.
fn operator(engine: Engine) -> (TempDir, Operator) {
    let dir = TempDir::new().unwrap();
    let db = Options::default().engine(engine).open(dir.path()).unwrap();
    let builder = GabionBuilder::default().db(&db).root("/of some/root");
    (dir, Operator::new(builder).unwrap())
}

async fn paths(files: &Operator, path: &str, is_recursive: bool) -> Vec<String> {
    let listed = files.list_with(path).recursive(is_recursive).await;
    let listed = listed.unwrap().into_iter();
    listed.map(|entry| entry.path().to_owned()).collect()
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error: Error| error.kind())
}

#[tokio::test]
async fn ranges_of_a_file_are_read() {
    for engine in [Engine::Wip, Engine::Flex] {
        let (_dir, files) = operator(engine);
        // Inline, in a block of others, in a block of its own.
        for size in [0, 10, 1_000, 100_000] {
            let mut checker = ReadChecker::new(size);
            files.write("file", checker.data()).await.unwrap();
            assert_eq!(
                files.stat("file").await.unwrap().content_length(),
                size as u64
            );
            assert_eq!(files.read("file").await.unwrap().to_bytes(), checker.data());
            let half = size / 2;
            let actions = [(0, size), (0, half), (half, size - half), (half / 2, half)];
            let actions = actions.map(|(offset, size)| ReadAction::Read(offset, size));
            let reader = files.reader("file").await.unwrap();
            checker.check(reader, &actions).await;
        }
    }
}

#[tokio::test]
async fn a_file_is_written_in_parts_and_is_there_when_it_is_closed() {
    let (_dir, files) = operator(Engine::Wip);
    let checker = WriteChecker::new(vec![0, 1, 100, 70_000, 3]);
    let mut writer = files.writer("file").await.unwrap();
    for chunk in checker.chunks() {
        writer.write(chunk.clone()).await.unwrap();
        assert!(!files.exists("file").await.unwrap());
    }
    let metadata = writer.close().await.unwrap();
    assert_eq!(metadata.content_length(), 70_104);
    checker.check(&files.read("file").await.unwrap().to_bytes());

    let mut writer = files.writer("file").await.unwrap();
    writer.write("something else").await.unwrap();
    writer.abort().await.unwrap();
    checker.check(&files.read("file").await.unwrap().to_bytes());
}

#[tokio::test]
async fn a_reader_goes_on_with_what_it_was_opened_on() {
    let (_dir, files) = operator(Engine::Wip);
    files.write("file", "granite").await.unwrap();
    let read = files.read("file").await.unwrap();
    files.write("file", "slate").await.unwrap();
    files.delete("file").await.unwrap();
    assert_eq!(read.to_vec(), b"granite");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let (_dir, files) = operator(Engine::Wip);
    files.write("dir/file", "").await.unwrap();
    assert_eq!(kind(files.read("dir/fil").await), Some(ErrorKind::NotFound));
    assert_eq!(kind(files.stat("dir/fil").await), Some(ErrorKind::NotFound));
    assert_eq!(kind(files.stat("dir").await), Some(ErrorKind::NotFound));
    assert_eq!(kind(files.stat("di/").await), Some(ErrorKind::NotFound));
    assert_eq!(files.stat("dir/").await.unwrap().mode(), EntryMode::DIR);
    assert_eq!(files.stat("/").await.unwrap().mode(), EntryMode::DIR);
    assert_eq!(
        files.stat("dir/file").await.unwrap().mode(),
        EntryMode::FILE
    );
    let renamed = files.rename("dir/fil", "dir/new").await;
    assert_eq!(kind(renamed), Some(ErrorKind::NotFound));
    files.delete("dir/fil").await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_there_is_not_replaced_if_that_was_asked() {
    let (_dir, files) = operator(Engine::Wip);
    let write = |content: &'static str| files.write_with("file", content).if_not_exists(true);
    write("granite").await.unwrap();
    assert_eq!(
        kind(write("slate").await),
        Some(ErrorKind::ConditionNotMatch)
    );
    files.write("other", "basalt").await.unwrap();
    let renamed = files.rename_with("other", "file").if_not_exists(true).await;
    assert_eq!(kind(renamed), Some(ErrorKind::ConditionNotMatch));
    assert_eq!(files.read("file").await.unwrap().to_vec(), b"granite");
    files.rename("other", "file").await.unwrap();
    assert_eq!(files.read("file").await.unwrap().to_vec(), b"basalt");
    assert!(!files.exists("other").await.unwrap());
}

#[tokio::test]
async fn directories_are_listed_with_what_is_in_them() {
    let (_dir, files) = operator(Engine::Wip);
    for path in ["a", "b/1", "b/2/x", "b/2/y", "b/3", "b-", "b0", "c/d/e"] {
        files.write(path, path).await.unwrap();
    }
    files.create_dir("b/2/empty/").await.unwrap();
    files.create_dir("c/").await.unwrap();
    assert_eq!(
        paths(&files, "/", false).await,
        ["a", "b-", "b/", "b0", "c/"]
    );
    assert_eq!(paths(&files, "b/", false).await, ["b/1", "b/2/", "b/3"]);
    assert_eq!(paths(&files, "b", false).await, ["b-", "b/", "b0"]);
    assert_eq!(paths(&files, "c/", false).await, ["c/", "c/d/"]);
    let below = ["b/2/empty/", "b/2/x", "b/2/y"];
    assert_eq!(paths(&files, "b/2/", true).await, below);
    assert_eq!(paths(&files, "none/", false).await, [""; 0]);

    let behind = |path: &'static str| files.list_with("b/").start_after(path);
    assert_eq!(behind("b/2/").await.unwrap()[0].path(), "b/3");
    assert_eq!(behind("b/2/x").await.unwrap()[0].path(), "b/3");
    assert_eq!(behind("b/1").await.unwrap()[0].path(), "b/2/");
    assert_eq!(behind("a").await.unwrap()[0].path(), "b/1");
    assert!(behind("b/3").await.unwrap().is_empty());
    let entry = &files.list("a").await.unwrap()[0];
    assert_eq!(entry.metadata().content_length(), 1);

    files.delete_with("b/").recursive(true).await.unwrap();
    assert_eq!(paths(&files, "/", false).await, ["a", "b-", "b0", "c/"]);
}

/// A list by the book: all paths, and those that are deeper cut after their directory.
fn list(all: &BTreeMap<String, usize>, dir: &str, is_recursive: bool) -> Vec<String> {
    let below = all.keys().filter_map(|path| path.strip_prefix(dir));
    let cut = |below: &str| match below.find('/') {
        Some(slash) if !is_recursive => format!("{dir}{}", &below[..=slash]),
        _ => format!("{dir}{below}"),
    };
    let mut listed: Vec<String> = below.map(cut).collect();
    listed.dedup();
    listed
}

#[tokio::test]
async fn drawn_trees_are_listed_as_by_the_book() {
    for seed in 0..20 {
        let (_dir, files) = operator(Engine::Wip);
        let mut rng = SeededRng::new(seed);
        let mut all = BTreeMap::new();
        for size in 0..60 {
            let depth = 1 + rng.index(4);
            let names: Vec<_> = (0..depth)
                .map(|_| ["a", "b", "ä", "a-"][rng.index(4)])
                .collect();
            // A file and a directory may share a name.
            let path = names.join("/");
            files.write(&path, vec![7_u8; size]).await.unwrap();
            all.insert(path, size);
        }
        for dir in ["", "a/", "ä/", "a-/b/", "b/b/b/"] {
            for is_recursive in [false, true] {
                let path = if dir.is_empty() { "/" } else { dir };
                let listed = paths(&files, path, is_recursive).await;
                assert_eq!(
                    listed,
                    list(&all, dir, is_recursive),
                    "seed {seed}, {dir:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn operators_share_a_store_and_keep_to_their_keyspaces_and_roots() {
    let dir = TempDir::new().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let of = |keyspace: &str, root: &str| {
        let builder = GabionBuilder::default().db(&db).keyspace(keyspace);
        Operator::new(builder.root(root)).unwrap()
    };
    of("x", "/").write("dir/file", "1").await.unwrap();
    assert_eq!(of("x", "/dir").read("file").await.unwrap().to_vec(), b"1");
    assert_eq!(paths(&of("x", "/dir/"), "/", true).await, ["file"]);
    assert!(!of("y", "/").exists("dir/file").await.unwrap());
    let value = db.keyspace("x").unwrap().get("dir/file").unwrap();
    assert_eq!(value.as_deref(), Some(&b"1"[..]));
}

#[tokio::test]
async fn an_operator_is_made_of_text_and_finds_its_files_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store").to_str().unwrap().to_owned();
    OperatorRegistry::get().register::<GabionBuilder>(GABION_SCHEME);
    for round in 0..3_u8 {
        let options = [
            ("path", path.as_str()),
            ("keyspace", "files"),
            ("root", "/r"),
        ];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let files = Operator::via_iter(GABION_SCHEME, options).unwrap();
        assert_eq!(files.info().name(), "files");
        assert_eq!(files.list("/").await.unwrap().len(), usize::from(round));
        files.write(&round.to_string(), vec![round]).await.unwrap();
    }
    let missing = Operator::via_iter(GABION_SCHEME, []);
    assert_eq!(kind(missing), Some(ErrorKind::ConfigInvalid));
}
