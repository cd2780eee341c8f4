//! Memory: in a control group with a small limit, which counts the page cache as well, a store that
//! is told nothing, or only how much memory it may use, takes what suits it. It is never killed,
//! and all that was written is read back.
//!
//! Who may not make such a group is told so, and nothing is tested. `GABION_MEMORY_MB` sets how
//! much is written; 200 MB unless it is set.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{Place, names};

const MIB: u64 = 1 << 20;

/// The system's number for file systems in memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Bytes of a value.
const VALUE_BYTES: u64 = 400;

/// A group of processes below the one of this process, with a limit.
struct Group {
    dir: PathBuf,
}

impl Group {
    /// Makes a group that may use so much, or says aloud why there is none. The files that it
    /// writes to `place` must not be in memory themselves.
    fn with_limit(bytes: u64, place: &Place) -> Option<Group> {
        let files = rustix::fs::statfs(place.db().parent().unwrap()).unwrap();
        if files.f_type == TMPFS {
            println!("NOT TESTED: the files of the build, and of this test, are in memory");
            return None;
        }
        let mut refused = "the system has no control group for memory".to_owned();
        for above in gabion_media::memory_groups() {
            // The limit of memory and swap together, of the first version, is none below it.
            let (limit, swap) = match above.is_unified {
                true => ("memory.max", ("memory.swap.max", 0)),
                false => ("memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", 1)),
            };
            // Names of a run that was killed are not met again.
            let dir = above
                .dir
                .join(format!("gabion-test-{}-{bytes}", std::process::id()));
            match std::fs::create_dir(&dir) {
                Ok(()) => {}
                Err(error) => {
                    refused = format!("{}: {error}", dir.display());
                    continue;
                }
            }
            let group = Group { dir };
            match write_to(&group.dir.join(limit), &bytes.to_string()) {
                Ok(()) => {
                    // Not everywhere is there swap, or a limit of it.
                    let _ = write_to(&group.dir.join(swap.0), &(swap.1 * bytes).to_string());
                    return Some(group);
                }
                Err(error) => refused = format!("{}: {error}", group.dir.display()),
            }
        }
        println!("NOT TESTED: this process may not limit the memory of a group: {refused}");
        None
    }

    /// Starts the command in the group.
    fn start(&self, command: &Command) -> Child {
        let mut inside = Command::new("sh");
        inside
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.dir.join("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(dir) = command.get_current_dir() {
            inside.current_dir(dir);
        }
        inside.spawn().unwrap()
    }

    /// Runs the command in the group, which must succeed, and gives its standard output.
    fn ok(&self, command: &Command) -> String {
        let output = self.start(command).wait_with_output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group goes when its last process is gone, which the system may notice a little later.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        println!("{} is left behind", self.dir.display());
    }
}

fn write_to(file: &Path, text: &str) -> std::io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).open(file)?;
    file.write_all(text.as_bytes())
}

fn bytes_written() -> u64 {
    let mb = std::env::var("GABION_MEMORY_MB").map_or(200, |mb| mb.parse().unwrap());
    mb * 1_000_000
}

/// The key of a record: those of neighbouring numbers are far apart.
fn key_of(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A line of a record, which tells from its key what its value is.
fn line_of(key: u64) -> String {
    let value = format!("{:016x}", key.rotate_left(17));
    let times = usize::try_from(VALUE_BYTES / 16).unwrap();
    format!("{key:016x}\t{}", value.repeat(times))
}

/// The figures of the store, as a process in the group has them.
fn stats_in(group: &Group, place: &Place) -> Value {
    serde_json::from_str(&group.ok(&place.command(&["stats", "--json"]))).unwrap()
}

#[test]
fn a_store_that_is_told_nothing_fits_into_a_small_group() {
    const LIMIT: u64 = 96 * MIB;
    let place = Place::on_a_drive();
    let Some(group) = Group::with_limit(LIMIT, &place) else {
        return;
    };
    let records = bytes_written() / VALUE_BYTES;
    let load = place.command(&["load", "-", "--format", "tsv", "--no-header"]);
    let mut loading = group.start(&load);
    let mut input = loading.stdin.take().unwrap();
    for number in 0..records {
        writeln!(input, "{}", line_of(key_of(number))).unwrap();
    }
    drop(input);
    let loaded = loading.wait_with_output().unwrap();
    assert!(loaded.status.success(), "{}", loaded.status);

    // An eighth for each of MemTables, cache and open tables: the rest is the page cache's.
    let memory = &stats_in(&group, &place)["memory"];
    assert_eq!(memory["bytes_max"], LIMIT * 3 / 8, "{memory}");
    assert_eq!(memory["memtables_max"], LIMIT / 8, "{memory}");
    assert!(memory["bytes"].as_u64() <= memory["bytes_max"].as_u64());

    let mut dumping = group.start(&place.command(&["dump", "-"]));
    let output = BufReader::new(dumping.stdout.take().unwrap());
    let lines = output.lines().map(Result::unwrap);
    let mut keys = lines
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let key = u64::from_str_radix(&line[..16], 16).unwrap();
            assert_eq!(line, line_of(key));
            key
        })
        .collect::<Vec<_>>();
    assert!(dumping.wait().unwrap().success());
    let mut expected = (0..records).map(key_of).collect::<Vec<_>>();
    expected.sort_unstable();
    // Keys are of one length, so that they are in the order of their numbers.
    assert!(keys.is_sorted());
    keys.dedup();
    assert!(keys == expected, "{} of {records} records", keys.len());
}

#[test]
fn sizes_follow_from_the_engine_of_the_store() {
    const LIMIT: u64 = 256 * MIB;
    let place = Place::on_a_drive();
    let Some(group) = Group::with_limit(LIMIT, &place) else {
        return;
    };
    place.ok(&["put", "stone", "granite", "--engine", "flex"]);
    let stats = stats_in(&group, &place);
    // Half for all; its MemTables have half of their budget more, at which writers stop.
    assert_eq!(stats["memory"]["bytes_max"], LIMIT / 2, "{stats}");
    assert_eq!(
        stats["memory"]["memtables_max"],
        LIMIT / 8 * 3 / 2,
        "{stats}"
    );
    assert_eq!(stats["cache"]["bytes_max"], LIMIT / 4, "{stats}");
    let text = group.ok(&place.command(&["stats"]));
    let all = text.lines().find(|line| line.contains("all memory"));
    names(
        all.unwrap(),
        &[
            "of 128 MiB",
            "MemTables up to 48.0 MiB",
            "cache up to 64.0 MiB",
        ],
    );
}

#[test]
fn a_store_keeps_to_the_ceiling_that_it_is_told() {
    const CEILING_MIB: u64 = 64;
    let place = Place::on_a_drive();
    let Some(group) = Group::with_limit(CEILING_MIB * MIB * 5 / 4, &place) else {
        return;
    };
    let records = (bytes_written() / VALUE_BYTES).to_string();
    let (ceiling, value_bytes) = (CEILING_MIB.to_string(), VALUE_BYTES.to_string());
    for (table_reads, memtables) in [("mapped", CEILING_MIB / 2), ("cached", CEILING_MIB / 4)] {
        let mut arguments = vec![
            "bench",
            "fillrandom,readrandom,readseq",
            "--json",
            "--fresh",
        ];
        arguments.extend(["--num", &records, "--value-size", &value_bytes]);
        arguments.extend(["--reads", "20000", "--batch", "100"]);
        arguments.extend(["--memory-mb", &ceiling, "--table-reads", table_reads]);
        let results = group.ok(&place.command(&arguments));
        let results: Value = serde_json::from_str(&results).unwrap();
        let settings = &results[0]["settings"]["store"];
        assert_eq!(settings["memory_mb"], CEILING_MIB, "{settings}");
        assert_eq!(settings["memtable_mb"], memtables, "{settings}");
        assert_eq!(settings["cache_mb"], CEILING_MIB - memtables, "{settings}");
        let mut dumping = group.start(&place.command(&["dump", "-"]));
        let output = BufReader::new(dumping.stdout.take().unwrap());
        let lines = output
            .lines()
            .filter(|line| !line.as_ref().unwrap().starts_with('#'));
        assert_eq!(results[0]["records_live"], lines.count(), "{table_reads}");
        assert!(dumping.wait().unwrap().success());
    }
}
