//! `space`: huge files that are edited in place.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gabion::text::{bytes_text, count_text};
use gabion_flex::{CheckReport, DurablePoint, FlexSpace, Options};
use serde_json::json;

use crate::args::space::{
    Place, SpaceArguments, SpaceCommand, SpaceCutArguments, SpaceDirArguments,
    SpaceFiguresArguments, SpaceFileArguments, SpaceInsertArguments, SpaceReadArguments,
};
use crate::failure::Failure;
use crate::new_file::NewFile;
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

/// Options of a space that the arguments name.
fn options(dir: &SpaceDirArguments) -> Options {
    Options::default().reached(dir.reached.unwrap_or_default())
}

/// Opens a space that must exist: for reading only nothing of it is changed.
fn open(dir: &SpaceDirArguments, read_only: bool) -> Result<FlexSpace, Failure> {
    if !dir.space.is_dir() {
        return Err(Failure::new(format!(
            "there is no space at {}; create one with `gabion space import` or `gabion space \
             insert`",
            dir.space.display()
        )));
    }
    Ok(FlexSpace::open(
        &dir.space,
        options(dir).create(false).read_only(read_only),
    )?)
}

/// Changes a space, and makes one where there is none. Of one that was made for a change that
/// fails, nothing is left.
fn change(
    dir: &SpaceDirArguments,
    options: Options,
    change: impl FnOnce(&FlexSpace) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (is_dir, is_there) = (dir.space.exists(), gabion_flex::exists(&dir.space)?);
    let changed = FlexSpace::open(&dir.space, options)
        .map_err(Failure::from)
        .and_then(|space| {
            change(&space).inspect_err(|_| space.close())?;
            // Opening is quick after it, and what the space does not need goes back.
            Ok(space.checkpoint()?)
        });
    let Err(failure) = changed else {
        return Ok(());
    };
    // A directory in which none was made has something else.
    let is_own = match is_dir {
        true => !is_there && gabion_flex::exists(&dir.space).unwrap_or(false),
        false => dir.space.exists(),
    };
    if !is_own {
        return Err(failure);
    }
    let removed = gabion_flex::remove(&dir.space).map_err(Failure::from);
    let removed = removed.and_then(|()| match is_dir {
        true => Ok(()),
        false => std::fs::remove_dir(&dir.space)
            .map_err(|error| Failure::file("remove", &dir.space, &error)),
    });
    Err(match removed {
        Ok(()) => failure,
        Err(other) => Failure::new(format!(
            "{failure}; the unfinished space at {} could not be removed: {other}",
            dir.space.display()
        )),
    })
}

fn insert(arguments: &SpaceInsertArguments) -> Result<(), Failure> {
    let dir = &arguments.dir;
    if let Place::At(offset @ 1..) = arguments.offset
        && !gabion_flex::exists(&dir.space)?
    {
        return Err(Failure::new(format!(
            "there is no space at {}, so nothing can be inserted at offset {offset}; create a \
             space with `gabion space insert 0`",
            dir.space.display()
        )));
    }
    let data = match &arguments.text {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let mut data = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut data);
            read.map_err(|error| Failure::file("read", Path::new("standard input"), &error))?;
            data
        }
    };
    change(dir, options(dir), |space| {
        let offset = match arguments.offset {
            Place::At(offset) => offset,
            Place::End => space.len(),
        };
        Ok(space.insert_range(offset, &data)?)
    })
}

fn cut(arguments: &SpaceCutArguments) -> Result<(), Failure> {
    let space = open(&arguments.dir, false)?;
    space.collapse_range(arguments.offset, arguments.len)?;
    Ok(space.checkpoint()?)
}

fn read(arguments: &SpaceReadArguments, output: &mut Output) -> Result<(), Failure> {
    let space = open(&arguments.dir, true)?;
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
    let mut buffer = vec![0; COPY_BYTES];
    // Nothing is made of what cannot be read at all.
    let mut count = read_some(&mut input, &mut buffer, path)?;
    let dir = &arguments.dir;
    // All of it is committed at the end: a command that is ended leaves no part of a file.
    change(dir, options(dir).commit_bytes(usize::MAX), |space| {
        if space.len() > 0 {
            return Err(Failure::new(format!(
                "the space {} already has {} bytes; import into a new directory",
                dir.space.display(),
                space.len()
            )));
        }
        let mut fill = || -> Result<(), Failure> {
            while count > 0 {
                space.append(&buffer[..count])?;
                count = read_some(&mut input, &mut buffer, path)?;
            }
            Ok(())
        };
        // A part of a file is of no use: an empty space is empty again, and takes no room.
        fill().map_err(
            |failure| match space.set_len(0).and_then(|()| space.checkpoint()) {
                Ok(()) => failure,
                Err(other) => Failure::new(format!(
                    "{failure}; the unfinished import could not be removed: {other}"
                )),
            },
        )
    })
}

/// Reads into a buffer, and returns how many bytes: 0 at the end.
fn read_some(input: &mut dyn Read, buffer: &mut [u8], path: &Path) -> Result<usize, Failure> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(|error| Failure::file("read", path, &error)),
        }
    }
}

fn export(arguments: &SpaceFileArguments, output: &mut Output) -> Result<(), Failure> {
    let space = open(&arguments.dir, true)?;
    let path = &arguments.file;
    if path.as_os_str() == "-" {
        return copy_out(&space, 0, u64::MAX, |bytes| output.bytes(bytes));
    }
    let mut file = NewFile::create_unmarked(path)?;
    copy_out(&space, 0, u64::MAX, |bytes| file.write(bytes))?;
    file.finish()
}

/// A moment, as the command line takes it.
fn point_text(point: DurablePoint) -> String {
    format!("{}:{}", point.tree_version, point.log_offset)
}

/// A number of things, whose name is that of one of them.
fn counted(count: u64, name: &str) -> String {
    match count {
        1 => format!("1 {name}"),
        _ => format!("{} {name}s", count_text(count)),
    }
}

fn stats(arguments: &SpaceFiguresArguments, output: &mut Output) -> Result<(), Failure> {
    let space = open(&arguments.dir, true)?;
    let stats = space.stats();
    let reached = point_text(space.durable_point());
    if arguments.json {
        return output.json(&json!({
            "len": stats.len,
            "live_bytes": stats.live_bytes,
            "extents": stats.extents,
            "segments": stats.segments,
            "segments_free": stats.segments_free,
            "segment_bytes": stats.segment_bytes,
            "data_file_bytes": stats.data_file_bytes,
            "tree_nodes": stats.tree_nodes,
            "tree_nodes_absent": stats.tree_nodes_absent,
            "tree_leaves_dirty": stats.tree_leaves_dirty,
            "tree_leaves_fetched": stats.tree_leaves_fetched,
            "tree_memory_bytes": stats.tree_memory_bytes,
            "tree_memory_bytes_max": stats.tree_memory_bytes_max,
            "memory_bytes": stats.memory_bytes,
            "tree_file_bytes": stats.tree_file_bytes,
            "repeated_operations": stats.repeated_operations,
            "reached": reached,
        }));
    }
    output.figures(&[
        ("bytes", count_text(stats.len)),
        ("of them in holes", count_text(stats.len - stats.live_bytes)),
        ("extents", count_text(stats.extents)),
        ("data file", bytes_text(stats.data_file_bytes)),
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
        ("reached", reached),
    ])
}

fn check(arguments: &SpaceFiguresArguments, output: &mut Output) -> Result<(), Failure> {
    let reached = arguments.dir.reached.unwrap_or_default();
    let report = gabion_flex::check_reached(&arguments.dir.space, reached)?;
    let shown = show_check(&report, arguments, output);
    // The verdict counts for more than whether somebody read it to its end.
    match report.problems.len() {
        0 => shown,
        1 => Err(Failure::new(
            "the space has a damaged part; restore the file from a copy",
        )),
        many => Err(Failure::new(format!(
            "the space has {many} damaged parts; restore the files from a copy"
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
            "reached": point_text(report.reached),
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
            "checked: {} in {}, {} of data in {}, {} in the log; reached {}",
            counted(report.len, "byte"),
            counted(report.extents, "extent"),
            bytes_text(report.data_bytes),
            counted(report.segments, "segment"),
            counted(report.log_operations, "operation"),
            point_text(report.reached)
        ))?;
    }
    output.flush()
}
