//! A file of Redis or Valkey, into the store of a server.

use std::io::{self, Read};
use std::time::Instant;

use gabion::Compression;
use gabion::text::{bytes_text, count_text, counted, rounded_text};
use gabion_server::{Config, LoadError, Loaded, check_rdb, load_rdb};
use indicatif::ProgressBar;
use serde_json::json;

use super::input::{Input, Text};
use crate::args::LoadArguments;
use crate::bar;
use crate::failure::Failure;
use crate::output::{Output, tell};

/// The file's bytes, which move a progress bar.
struct Bytes<'a> {
    text: &'a mut Text,
    bar: &'a ProgressBar,
}

impl Read for Bytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.text.fill()?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.text.consume(count)?;
        self.bar.set_position(self.text.read());
        Ok(count)
    }
}

/// Loads the file and prints what it had. What can be read twice is read to its end first, so that
/// nothing is loaded of a file that is damaged.
pub(super) fn run(
    input: &Input,
    arguments: &LoadArguments,
    output: &mut Output,
) -> Result<(), Failure> {
    refuse_others(arguments)?;
    let mut config = Config::new(&arguments.store.db);
    config.databases = arguments.databases.unwrap_or(config.databases);
    if input.canonical().is_some() {
        let bar = bar::new(input.length());
        let mut text = input.text()?;
        let bytes = Bytes {
            text: &mut text,
            bar: &bar,
        };
        let checked = check_rdb(&config, bytes, &mut |_| bar.set_message("checked"));
        bar.finish_and_clear();
        checked.map_err(|error| wrong(input, &error, "nothing of it was loaded"))?;
    }
    let begin = Instant::now();
    let bar = bar::new(input.length());
    let mut text = input.text()?;
    let bytes = Bytes {
        text: &mut text,
        bar: &bar,
    };
    let durability = arguments.durability.durability;
    let loaded = load_rdb(&config, durability, bytes, &mut |loaded| {
        bar.set_message(counted(loaded.keys, "key", "keys"));
    });
    bar.finish_and_clear();
    let loaded =
        loaded.map_err(|error| wrong(input, &error, "keys before it may be in the store"))?;
    for module in &loaded.modules {
        tell(&format!(
            "gabion: the data of the module {module} were left out: the server has no modules"
        ));
    }
    let seconds = begin.elapsed().as_secs_f64();
    print(arguments, &loaded, (seconds, text.read()), output)
}

/// Flags that mean nothing here are not passed over.
fn refuse_others(arguments: &LoadArguments) -> Result<(), Failure> {
    let is_given = [
        arguments.store.keyspace.is_some(),
        arguments.key.is_some(),
        arguments.value.is_some(),
        arguments.header,
        arguments.no_header,
        arguments.delimiter.is_some(),
        arguments.ttl.ttl().is_some(),
        arguments.flush,
        arguments.compression != Compression::default(),
        !arguments.make.is_default(),
    ];
    match is_given.contains(&true) {
        false => Ok(()),
        true => Err(Failure::usage(
            "an RDB file says itself what it holds, and goes into the store of a server: give \
             --db, --databases, --durability, --raw and --json alone",
        )),
    }
}

fn wrong(input: &Input, error: &LoadError, so: &str) -> Failure {
    match error {
        // It is the store that is wrong.
        LoadError::Store(_) => Failure::new(error.to_string()),
        _ => Failure::new(format!("{}: {error}; {so}", input.name())),
    }
}

fn print(
    arguments: &LoadArguments,
    loaded: &Loaded,
    (seconds, bytes): (f64, u64),
    output: &mut Output,
) -> Result<(), Failure> {
    let (file, db) = (arguments.file.display(), arguments.store.db.display());
    let keys_per_s = loaded.keys as f64 / seconds.max(1e-9);
    if arguments.json {
        return output.json(&json!({
            "file": file.to_string(),
            "db": db.to_string(),
            "keys": loaded.keys,
            "keys_left_out": loaded.left_out,
            "libraries": loaded.libraries,
            "modules_left_out": loaded.modules,
            "seconds": seconds,
            "keys_per_s": keys_per_s,
            "bytes_in": bytes,
        }));
    }
    let mut what = counted(loaded.keys, "key", "keys");
    if loaded.libraries > 0 {
        let libraries = counted(loaded.libraries, "library", "libraries");
        what += &format!(" and {libraries} of functions");
    }
    if loaded.left_out > 0 {
        let left_out = count_text(loaded.left_out);
        what += &format!(" (not {left_out} that had expired or were empty)");
    }
    output.line(&format!(
        "loaded {what} from {file} into {db}: {} in {seconds:.3} s, {} keys/s",
        bytes_text(bytes),
        rounded_text(keys_per_s)
    ))
}
