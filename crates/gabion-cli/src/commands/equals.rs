//! `lab equals`: compares stores that hold equal records, and writes the table of them.

use std::io::Write;

use gabion_lab::equals::page::{DataSize, Page, held};
use gabion_lab::equals::{self, EqualsOptions};

use super::lab::{MIB, carry_out, create, finish, plan, registry, write_to};
use crate::args::lab::LabEqualsArguments;
use crate::failure::Failure;
use crate::output::{Output, tell};

/// Does what the arguments say.
pub(super) fn run(arguments: &LabEqualsArguments, output: &mut Output) -> Result<(), Failure> {
    let trials = &arguments.trials;
    if trials.turns.is_some() || trials.hold_flushes {
        return Err(Failure::usage(
            "a comparison of equals takes no --turns and no --hold-flushes, as the stores could \
             not rest; leave them out",
        ));
    }
    let terms = EqualsOptions {
        num: arguments.num,
        key_bytes: arguments.key_size,
        value_bytes: arguments.value_size,
        seed: arguments.seed,
        threads: arguments.threads,
        reads: arguments.reads,
        seconds: arguments.seconds,
        rest_seconds: arguments.rest_seconds,
        first_seconds: arguments.first_seconds,
    };
    let registry = registry();
    let targets = match &*arguments.target {
        [] => equals::targets(&registry),
        named => named.to_vec(),
    };
    let plan = plan(trials, &targets, equals::workloads(), terms.settings()?)?;
    plan.prepare(&registry)?;
    if let Some(path) = &arguments.page {
        // Before the run, so that it is not refused after it.
        create(path)?;
    }
    let plans = [plan];
    let (report, reports) = carry_out(&plans, trials)?;
    let plan = &plans[0];
    let page = Page {
        terms: &terms,
        cache_bytes: plan.resources.cache_bytes,
        memory_limit_bytes: plan.memory_limit_bytes,
        repetitions: plan.repetitions,
        registry: &registry,
        command: &command(arguments, &plan.targets),
        notes: &report.notes,
    };
    let text = page.text(&report.results);
    if let Some(path) = &arguments.page {
        write_to(path, |out| out.write_all(text.as_bytes()))?;
        tell(&format!("the page is {}", path.display()));
    }
    let shown = output.bytes(text.as_bytes()).and_then(|()| output.flush());
    finish(&report, &reports)?;
    if let DataSize::Unequal(all) = held(&report.results) {
        return Err(Failure::new(format!(
            "the stores do not hold equally many records: {}",
            all.join(", ")
        )));
    }
    shown
}

/// The command that makes the same page elsewhere.
fn command(arguments: &LabEqualsArguments, targets: &[String]) -> String {
    let trials = &arguments.trials;
    let mut command = format!("gabion lab equals --target {}", targets.join(","));
    let mut add = |name: &str, value: String| command.push_str(&format!(" --{name} {value}"));
    add("num", arguments.num.to_string());
    add("key-size", arguments.key_size.to_string());
    add("value-size", arguments.value_size.to_string());
    add("threads", arguments.threads.to_string());
    if arguments.reads != EqualsOptions::default().reads {
        add("reads", arguments.reads.to_string());
    }
    add("seconds", arguments.seconds.to_string());
    add("rest-seconds", arguments.rest_seconds.to_string());
    add("first-seconds", arguments.first_seconds.to_string());
    add("seed", arguments.seed.to_string());
    add("repeat", trials.repeat.to_string());
    add("cache-mb", trials.cache_mb.to_string());
    if let Some(mib) = trials.write_buffer_mb {
        add("write-buffer-mb", mib.to_string());
    }
    add("background-threads", trials.background_threads.to_string());
    if let Some(bytes) = trials.memory_limit {
        match bytes % MIB {
            0 => add("memory-limit", format!("{}MiB", bytes / MIB)),
            _ => add("memory-limit", bytes.to_string()),
        }
    }
    add("dir", "lab".to_owned());
    command
}
