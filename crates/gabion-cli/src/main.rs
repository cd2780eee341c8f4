//! The gabion program: load, query, inspect and measure Gabion stores.
//!
//! [`args`] defines the command line; [`commands`] has one module per command; [`load`] reads
//! files. What `bench` and `lab` measure, and how, is the crate `gabion-lab`.
#![forbid(unsafe_code)]

mod args;
mod bar;
mod commands;
mod dump;
mod escape;
mod failure;
mod load;
mod new_file;
mod output;
mod signals;
mod store;
#[cfg(feature = "lab")]
mod table;
mod text;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::failure::Failure;
use crate::output::Output;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are printed like output; a reader that goes away is no failure.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    let mut output = Output::new();
    match command {
        Command::Load(arguments) => load::run(arguments, &mut output)?,
        Command::Get(arguments) => commands::point::get(arguments, &mut output)?,
        Command::Put(arguments) => commands::point::put(arguments)?,
        Command::Merge(arguments) => commands::point::merge(arguments)?,
        Command::Del(arguments) => commands::point::del(arguments)?,
        Command::Scan(arguments) => commands::scan::run(arguments, &mut output)?,
        Command::Changes(arguments) => commands::changes::run(arguments, &mut output)?,
        Command::Dump(arguments) => commands::dump::run(arguments, &mut output)?,
        Command::Stats(arguments) => commands::stats::run(arguments, &mut output)?,
        Command::Check(arguments) => commands::check::run(arguments, &mut output)?,
        Command::Compact(arguments) => commands::compact::run(arguments, &mut output)?,
        Command::Drop(arguments) => commands::drop::run(arguments, &mut output)?,
        Command::Keyspace(arguments) => commands::keyspace::run(arguments, &mut output)?,
        Command::Backup(arguments) => commands::backup::run(arguments, &mut output)?,
        Command::Repair(arguments) => commands::repair::run(&arguments.stores, &mut output)?,
        Command::Checkpoint(arguments) => {
            commands::checkpoint::run(&arguments.stores, &mut output)?
        }
        #[cfg(feature = "lab")]
        Command::Bench(arguments) => commands::bench::run(arguments, &mut output)?,
        #[cfg(feature = "lab")]
        Command::Lab(arguments) => commands::lab::run(arguments, &mut output)?,
        #[cfg(not(feature = "lab"))]
        Command::Bench(_) | Command::Lab(_) => return Err(Failure::without_the_lab()),
        #[cfg(feature = "server")]
        Command::Serve(arguments) => commands::serve::run(arguments)?,
        #[cfg(feature = "server")]
        Command::Cli(arguments) => commands::cli::run(arguments, &mut output)?,
        #[cfg(not(feature = "server"))]
        Command::Serve(_) | Command::Cli(_) => return Err(Failure::without_the_server()),
        Command::Space(arguments) => commands::space::run(arguments, &mut output)?,
        Command::Version => output.line(concat!("gabion ", env!("CARGO_PKG_VERSION")))?,
    }
    output.flush()
}
