//! `space`: huge files that are edited in place.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gabion_flex::{CheckReport, FlexSpace, Options};
use gabion_lab::text::{bytes_text, count_text};
use serde_json::json;

use crate::args::space::{
    Place, SpaceArguments, SpaceCommand, SpaceCutArguments, SpaceFiguresArguments,
    SpaceFileArguments, SpaceInsertArguments, SpaceReadArguments,
};
use crate::failure::Failure;
use crate::output::Output;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Runs a command on a space.
pub(crate) fn run(arguments: &SpaceArguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.command {
        SpaceCommand::Insert(arguments) => insert(arguments),
        SpaceCommand::Cut(arguments) => cut(arguments),
        SpaceCommand::Read(arguments) => read(arguments, output),
        SpaceCommand::Import(arguments) => import(arguments),
        SpaceCommand::Export(arguments) => export(arguments, output),
        SpaceCommand::Stats(arguments) => stats(arguments, output),
        SpaceCommand::Check(arguments) => check(arguments, output),
    }
}

/// Opens a space that must exist: commands that read make nothing.
fn open(dir: &Path) -> Result<FlexSpace, Failure> {
    if !dir.is_dir() {
        return Err(Failure::new(format!(
            "there is no space at {}; `gabion space import` and `gabion space insert` make one",
            dir.display()
        )));
    }
    Ok(FlexSpace::open(dir, Options::default().create(false))?)
}

fn insert(arguments: &SpaceInsertArguments) -> Result<(), Failure> {
    let data = match &arguments.text {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let mut data = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut data);
            read.map_err(|error| Failure::file("read", Path::new("standard input"), &error))?;
            data
        }
    };
    let space = FlexSpace::open(&arguments.dir.space, Options::default())?;
    let offset = match arguments.offset {
        Place::At(offset) => offset,
        Place::End => space.len(),
    };
    space.insert_range(offset, &data)?;
    Ok(space.sync()?)
}

fn cut(arguments: &SpaceCutArguments) -> Result<(), Failure> {
    let space = open(&arguments.dir.space)?;
    space.collapse_range(arguments.offset, arguments.len)?;
    Ok(space.sync()?)
}

fn read(arguments: &SpaceReadArguments, output: &mut Output) -> Result<(), Failure> {
    let space = open(&arguments.dir.space)?;
    let len = arguments.len.unwrap_or(u64::MAX);
    copy_out(&space, arguments.offset, len, |bytes| output.bytes(bytes))
}

/// Hands a range of a space over, part by part.
fn copy_out(
    space: &FlexSpace,
    offset: u64,
    len: u64,
    mut write: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut file = space.file();
    file.seek(SeekFrom::Start(offset))
        .map_err(|error| Failure::new(error.to_string()))?;
    let mut rest = file.take(len);
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let read = rest.read(&mut buffer);
        match read.map_err(|error| Failure::new(error.to_string()))? {
            0 => return Ok(()),
            count => write(&buffer[..count])?,
        }
    }
}

fn import(arguments: &SpaceFileArguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let mut input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(|error| Failure::file("open", path, &error))?)
    };
    let space = FlexSpace::open(&arguments.dir.space, Options::default())?;
    if space.len() > 0 {
        return Err(Failure::new(format!(
            "the space {} has {} bytes already; import makes a new one",
            arguments.dir.space.display(),
            space.len()
        )));
    }
    let mut buffer = vec![0; COPY_BYTES];
    let copied = loop {
        match input.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(count) => {
                if let Err(error) = space.append(&buffer[..count]) {
                    break Err(error.into());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(Failure::file("read", path, &error)),
        }
    };
    if copied.is_err() {
        // A part of a file is of no use; the space is empty again. The first error is to be told.
        let _ = space.set_len(0).and_then(|()| space.checkpoint());
        return copied;
    }
    Ok(space.checkpoint()?)
}

fn export(arguments: &SpaceFileArguments, output: &mut Output) -> Result<(), Failure> {
    let space = open(&arguments.dir.space)?;
    let path = &arguments.file;
    if path.as_os_str() == "-" {
        return copy_out(&space, 0, u64::MAX, |bytes| output.bytes(bytes));
    }
    let failed = |error: io::Error| Failure::file("write", path, &error);
    let mut file = File::create_new(path).map_err(failed)?;
    let copied = copy_out(&space, 0, u64::MAX, |bytes| {
        file.write_all(bytes).map_err(failed)
    });
    let copied = copied.and_then(|()| file.sync_all().map_err(failed));
    copied.inspect_err(|_| {
        // A part of it is of no use. The first error is the one to tell.
        let _ = std::fs::remove_file(path);
    })
}

fn stats(arguments: &SpaceFiguresArguments, output: &mut Output) -> Result<(), Failure> {
    let stats = open(&arguments.dir.space)?.stats();
    let disk = u64::from(stats.segments) * stats.segment_bytes;
    if arguments.json {
        return output.json(&json!({
            "len": stats.len,
            "live_bytes": stats.live_bytes,
            "extents": stats.extents,
            "segments": stats.segments,
            "segments_free": stats.segments_free,
            "segment_bytes": stats.segment_bytes,
            "tree_nodes": stats.tree_nodes,
            "tree_nodes_absent": stats.tree_nodes_absent,
            "tree_leaves_dirty": stats.tree_leaves_dirty,
            "tree_leaves_fetched": stats.tree_leaves_fetched,
            "tree_memory_bytes": stats.tree_memory_bytes,
            "tree_memory_bytes_max": stats.tree_memory_bytes_max,
            "memory_bytes": stats.memory_bytes,
            "tree_file_bytes": stats.tree_file_bytes,
            "repeated_operations": stats.repeated_operations,
        }));
    }
    output.figures(&[
        ("bytes", count_text(stats.len)),
        ("of them in holes", count_text(stats.len - stats.live_bytes)),
        ("extents", count_text(stats.extents)),
        ("data file", bytes_text(disk)),
        ("segments", count_text(stats.segments.into())),
        ("of them free", count_text(stats.segments_free.into())),
        ("tree file", bytes_text(stats.tree_file_bytes)),
        ("nodes of the tree", count_text(stats.tree_nodes)),
        ("of them not in memory", count_text(stats.tree_nodes_absent)),
        ("of them changed", count_text(stats.tree_leaves_dirty)),
        ("read since opened", count_text(stats.tree_leaves_fetched)),
        ("tree in memory", bytes_text(stats.tree_memory_bytes)),
        (
            "at most",
            stats
                .tree_memory_bytes_max
                .map_or_else(|| "no limit".to_owned(), bytes_text),
        ),
        ("memory in all", bytes_text(stats.memory_bytes)),
        (
            "repeated from the log",
            count_text(stats.repeated_operations),
        ),
    ])
}

fn check(arguments: &SpaceFiguresArguments, output: &mut Output) -> Result<(), Failure> {
    let report = gabion_flex::check(&arguments.dir.space)?;
    let shown = show_check(&report, arguments, output);
    // The verdict counts for more than whether somebody read it to its end.
    match report.problems.len() {
        0 => shown,
        1 => Err(Failure::new(
            "the space has a damaged part; restore its file from a copy",
        )),
        many => Err(Failure::new(format!(
            "the space has {many} damaged parts; restore their files from a copy"
        ))),
    }
}

fn show_check(
    report: &CheckReport,
    arguments: &SpaceFiguresArguments,
    output: &mut Output,
) -> Result<(), Failure> {
    if arguments.json {
        let problem = |problem: &gabion_flex::Problem| {
            json!({
                "file": problem.file.display().to_string(),
                "offset": problem.offset,
                "what": problem.what,
            })
        };
        output.json(&json!({
            "len": report.len,
            "extents": report.extents,
            "log_operations": report.log_operations,
            "segments": report.segments,
            "data_bytes": report.data_bytes,
            "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
        }))?;
    } else {
        for problem in &report.problems {
            let file = problem.file.display();
            output.line(&format!(
                "{file}, offset {}: {}",
                problem.offset, problem.what
            ))?;
        }
        output.line(&format!(
            "checked: {} bytes in {} extents, {} of data in {} segments, {} operations in the log",
            count_text(report.len),
            count_text(report.extents),
            bytes_text(report.data_bytes),
            count_text(report.segments),
            count_text(report.log_operations)
        ))?;
    }
    output.flush()
}
