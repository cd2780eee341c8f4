//! What opening a pool refuses, and that damage of any kind is told or harmless.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use proptest::prelude::*;

use crate::crc32c;

use super::*;

/// A closed pool with a block in it.
fn closed_pool(options: PoolOptions) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = Pool::create(&path, options).unwrap();
    put(&pool, new_root(&pool, 2), 100, 9);
    pool.close().unwrap();
    (dir, path)
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

#[test]
fn other_files_are_refused_each_with_its_reason() {
    let (_dir, path) = closed_pool(options());
    let header = std::fs::read(&path).unwrap()[..128].to_vec();

    overwrite(&path, 8, &2_u32.to_le_bytes());
    let fault = refusal(&path, options());
    assert!(
        matches!(fault, PoolFault::Damaged { what: "header", .. }),
        "the check covers it"
    );
    let mut newer = header.clone();
    newer[8] = 2;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&newer[..12]), &newer[16..]);
    newer[12..16].copy_from_slice(&crc.to_le_bytes());
    overwrite(&path, 0, &newer);
    assert_eq!(
        refusal(&path, options()),
        PoolFault::Version { found: 2, known: 1 }
    );

    let mut swapped = header.clone();
    swapped[16..24].reverse();
    overwrite(&path, 0, &swapped);
    assert_eq!(refusal(&path, options()), PoolFault::ByteOrder);

    overwrite(&path, 0, &[0; 8]);
    assert_eq!(refusal(&path, options()), PoolFault::Incomplete);
    overwrite(&path, 0, b"GABIONLG");
    assert_eq!(refusal(&path, options()), PoolFault::Foreign);

    overwrite(&path, 0, &header);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len((1 << 20) - 1).unwrap();
    let truncated = PoolFault::Truncated {
        len: (1 << 20) - 1,
        size: 1 << 20,
    };
    assert_eq!(refusal(&path, options()), truncated);
    file.set_len(5).unwrap();
    assert!(matches!(
        refusal(&path, options()),
        PoolFault::Truncated { len: 5, .. }
    ));
}

#[test]
fn a_missing_pool_and_an_impossible_shape_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    assert!(Pool::open(&path, options()).unwrap_err().is_not_found());
    for wrong in [
        PoolOptions {
            size: 8192,
            ..options()
        },
        PoolOptions {
            size: 1 << 60,
            ..options()
        },
        PoolOptions {
            heaps: 0,
            ..options()
        },
        PoolOptions {
            chunk_bytes: 5000,
            ..options()
        },
        PoolOptions {
            chunk_bytes: 1 << 33,
            ..options()
        },
    ] {
        let error = Pool::create(&path, wrong).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Pool {
                    fault: PoolFault::Shape { .. },
                    ..
                }
            ),
            "{error}"
        );
        assert!(!path.exists());
    }
}

#[test]
fn a_pool_that_another_boot_left_open_is_refused_unless_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let pool = Pool::create(&path, options()).unwrap();
    let word = new_root(&pool, 1);
    put(&pool, word, 50, 4);
    drop(pool);
    overwrite(&path, 136, &[0x5a; 16]);
    assert_eq!(refusal(&path, options()), PoolFault::Torn);
    assert_eq!(
        refusal(&path, options()),
        PoolFault::Torn,
        "looking changes nothing"
    );
    let salvage = PoolOptions {
        salvage: true,
        ..options()
    };
    let pool = Pool::open(&path, salvage).unwrap();
    assert!(pool.equals(pool.at(word).load(&pool, Ordering::Acquire), &[4; 50]));
    pool.close().unwrap();
    // Closed, it does not matter in which boot.
    overwrite(&path, 136, &[0x5a; 16]);
    Pool::open(&path, options()).unwrap();
}

#[test]
fn damaged_words_are_told_with_their_place() {
    for (offset, what) in [
        (128, "state"),
        (152, "number of reserved chunks"),
        (192, "root offset"),
        (8192, "descriptor of a chunk"),
    ] {
        let (_dir, path) = closed_pool(options());
        overwrite(&path, offset, &[0xa5; 8]);
        let told = PoolFault::Damaged { what, offset };
        assert_eq!(refusal(&path, options()), told);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any damage is an error, or the pool opens and can be looked at and used without a panic.
    #[test]
    fn arbitrary_damage_never_panics(
        damage in prop::collection::vec((0..40_000_usize, any::<u64>()), 1..6),
    ) {
        let region = Region::new(1 << 20);
        let pool = Pool::create_in(&region, options()).unwrap();
        let word = new_root(&pool, 2);
        put(&pool, word, 100, 9);
        put(&pool, word.element(1), 5000, 8);
        drop(pool);
        for (offset, bytes) in damage {
            region.write(offset, &bytes.to_le_bytes());
        }
        if let Ok(pool) = Pool::open_in(&region, options()) {
            pool.stats();
            if let Ok(block) = pool.alloc(100, 0) {
                pool.write(block.offset::<u8>().raw(), &[1; 100]);
            }
            let root = pool.root::<PAtomicU64>();
            if let Some(word) = pool.try_at(root) {
                let block = POff::<u8>::new(word.load(&pool, Ordering::Acquire));
                if let Ok(old) = pool.retire(block, 0) {
                    old.commit_now();
                }
            }
            pool.collect();
        }
    }
}

#[test]
fn a_foreign_file_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes");
    let content = vec![b'x'; 5000];
    File::create(&path)
        .unwrap()
        .write_all_at(&content, 0)
        .unwrap();
    assert_eq!(refusal(&path, options()), PoolFault::Foreign);
    assert!(matches!(
        Pool::create(&path, options()),
        Err(Error::AlreadyExists { .. })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), content);
}

/// What a user reads: the file, what is wrong with it in numbers, and what to do.
#[test]
fn refusals_are_sentences_with_file_reason_and_remedy() {
    let (_dir, path) = closed_pool(options());
    let header = std::fs::read(&path).unwrap()[..160].to_vec();
    let says = |error: Error, parts: &[&str]| {
        let sentence = error.to_string();
        let name = path.display().to_string();
        for part in parts.iter().copied().chain([name.as_str()]) {
            assert!(
                sentence.contains(part),
                "{part:?} is missing in: {sentence}"
            );
        }
    };
    let refused = |options: PoolOptions| Pool::open(&path, options).unwrap_err();

    let other = PoolOptions {
        layout: 0xabc,
        ..options()
    };
    says(refused(other), &["0xabc", "open it as that structure"]);

    let mut newer = header.clone();
    newer[8] = 7;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&newer[..12]), &newer[16..128]);
    newer[12..16].copy_from_slice(&crc.to_le_bytes());
    overwrite(&path, 0, &newer);
    says(
        refused(options()),
        &["version 7", "versions up to 1", "use a newer version"],
    );

    overwrite(&path, 0, &header);
    overwrite(&path, 192, &[0xa5; 8]);
    let parts = ["root offset at offset 192", "restore the pool"];
    says(refused(options()), &parts);

    let (_dir, path) = closed_pool(options());
    let pool = Pool::open(&path, options()).unwrap();
    let in_use = Pool::open(&path, options()).unwrap_err().to_string();
    let process = format!("process {}", std::process::id());
    let is_told = in_use.contains(&path.display().to_string()) && in_use.contains(&process);
    assert!(is_told, "{in_use}");
    let no_space = pool.alloc(1 << 20, 0).unwrap_err().to_string();
    for part in [
        "no block of 1048576 bytes",
        "bytes are free",
        "delete something",
    ] {
        assert!(no_space.contains(part), "{no_space}");
    }
    // It stays usable.
    take(&pool, pool.root::<PAtomicU64>());
    put(&pool, pool.root::<PAtomicU64>(), 100, 8);
    drop(pool);

    overwrite(&path, 136, &[0x5a; 16]);
    let torn = Pool::open(&path, options()).unwrap_err().to_string();
    assert!(torn.contains("restarted while the pool was open") && torn.contains("`salvage`"));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 19).unwrap();
    let truncated = Pool::open(&path, options()).unwrap_err().to_string();
    let parts = ["524288 bytes, and the pool needs 1048576", "restore a copy"];
    assert!(
        parts.iter().all(|part| truncated.contains(part)),
        "{truncated}"
    );
}
