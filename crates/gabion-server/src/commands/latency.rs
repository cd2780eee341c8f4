//! `LATENCY`: how long commands take, and what took long.

use crate::calls::CommandStat;
use crate::command::{ADMIN, Command, CommandGroup, LOADING, NOSCRIPT, STALE, command};
use crate::commands::{container, help};
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::histogram::HistogramSnapshot;
use crate::latency_monitor::{KINDS, LatencySeries};
use crate::resp::reply::ReplyBuffer;

const OF_LATENCY: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

/// Columns and rows of a picture.
const COLUMNS: usize = 80;
const ROWS: u64 = 4;

pub(crate) const COMMANDS: &[Command] = &[command("latency", -2, container)
    .with(SUBCOMMANDS)
    .about(CommandGroup::Server, "2.8.13", "Shows latencies.")];

const SUBCOMMANDS: &[Command] = &[
    command("doctor", 2, doctor).flags(OF_LATENCY).about(
        CommandGroup::Server,
        "2.8.13",
        "Reports slow events, and what helps.",
    ),
    command("graph", 3, graph).flags(OF_LATENCY).about(
        CommandGroup::Server,
        "2.8.13",
        "Draws a graph of the events of a kind.",
    ),
    command("help", 2, show_help).flags(LOADING | STALE).about(
        CommandGroup::Server,
        "2.8.13",
        "Lists the subcommands.",
    ),
    command("histogram", -2, histogram).flags(OF_LATENCY).about(
        CommandGroup::Server,
        "7.0.0",
        "Returns how many calls of commands took less than so long.",
    ),
    command("history", 3, history).flags(OF_LATENCY).about(
        CommandGroup::Server,
        "2.8.13",
        "Returns the events of a kind.",
    ),
    command("latest", 2, latest).flags(OF_LATENCY).about(
        CommandGroup::Server,
        "2.8.13",
        "Returns the last event of each kind.",
    ),
    command("reset", -2, reset).flags(OF_LATENCY).about(
        CommandGroup::Server,
        "2.8.13",
        "Clears events, of all kinds or of some.",
    ),
];

fn histogram(execution: &mut Execution<'_>) -> Result<()> {
    let (server, commands) = (execution.server, execution.commands);
    execution.session.calling.add_up(&server.calls);
    let asked = execution.args.from(2);
    // A command stands for all its subcommands.
    let is_asked = |name: &str| {
        let container = name.split('|').next().unwrap_or_default();
        let fits = |word: &[u8]| {
            let is = |name: &str| name.as_bytes().eq_ignore_ascii_case(word);
            is(name) || is(container)
        };
        asked.len() == 0 || asked.iter().any(fits)
    };
    let found: Vec<(&str, HistogramSnapshot)> = server
        .calls
        .called(commands.names())
        .filter(|(_, called)| is_asked(called.name))
        .filter_map(|(number, CommandStat { name, .. })| {
            Some((name, server.calls.counts_of(number)?))
        })
        .collect();
    execution.reply.map(found.len());
    for (name, counts) in found {
        execution.reply.bulk(name);
        write_counts(execution.reply, &counts);
    }
    Ok(())
}

/// Counts by powers of two, each as far as more calls come with it.
fn write_counts(reply: &mut ReplyBuffer, counts: &HistogramSnapshot) {
    reply.map(2);
    reply.bulk("calls");
    reply.unsigned(counts.total());
    reply.bulk("histogram_usec");
    let mut seen = 0;
    let mut pairs = counts.by_powers_of_two();
    pairs.retain(|(_, below)| std::mem::replace(&mut seen, *below) < *below);
    reply.map(pairs.len());
    for (nanos, below) in pairs {
        reply.unsigned((nanos - 1) / 1000);
        reply.unsigned(below);
    }
}

fn history(execution: &mut Execution<'_>) -> Result<()> {
    let kind = execution.server.spikes.of(execution.arg(2));
    let samples = kind.unwrap_or_default().samples;
    execution.reply.array(samples.len());
    for sample in samples {
        execution.reply.array(2);
        execution.reply.unsigned(sample.at);
        execution.reply.unsigned(sample.ms);
    }
    Ok(())
}

fn latest(execution: &mut Execution<'_>) -> Result<()> {
    let kinds = execution.server.spikes.all();
    execution.reply.array(kinds.len());
    for (name, kind) in kinds {
        let last = kind.samples.back().copied();
        execution.reply.array(4);
        execution.reply.bulk(name);
        execution.reply.unsigned(last.map_or(0, |last| last.at));
        execution.reply.unsigned(last.map_or(0, |last| last.ms));
        execution.reply.unsigned(kind.ms_max);
    }
    Ok(())
}

fn reset(execution: &mut Execution<'_>) -> Result<()> {
    let asked = execution.args.from(2);
    let fits = |name: &str| {
        let is = |word: &[u8]| word == name.as_bytes();
        asked.len() == 0 || asked.iter().any(is)
    };
    execution.reply.count(execution.server.spikes.reset(fits));
    Ok(())
}

fn doctor(execution: &mut Execution<'_>) -> Result<()> {
    let server = execution.server;
    let (least, kinds) = (server.settings.spike_ms(), server.spikes.all());
    let text = match (least, kinds.is_empty()) {
        (0, true) => "The latency monitor is off, as latency-monitor-threshold is 0. CONFIG SET \
                      latency-monitor-threshold 100 records events of 100 ms or longer.\n"
            .to_owned(),
        (_, true) => format!("Nothing took {least} ms or longer. All is well.\n"),
        _ => kinds
            .iter()
            .map(|(name, kind)| advice(name, kind))
            .collect(),
    };
    execution.reply.verbatim(&text);
    Ok(())
}

/// A paragraph about the events of a kind.
fn advice(name: &str, kind: &LatencySeries) -> String {
    let (count, longest) = (kind.samples.len(), kind.ms_max);
    let sum: u64 = kind.samples.iter().map(|sample| sample.ms).sum();
    let mean = sum / (count as u64).max(1);
    let help = KINDS.iter().find(|(known, _)| *known == name);
    let help = help.map_or("", |(_, help)| help);
    format!("{name}: {count} events, {mean} ms on average, {longest} ms at most. Likely {help}.\n")
}

fn graph(execution: &mut Execution<'_>) -> Result<()> {
    let event = execution.arg(2);
    let Some(kind) = execution.server.spikes.of(event) else {
        return Err(Fault::new(format!(
            "ERR No samples available for event '{}'",
            String::from_utf8_lossy(event)
        )));
    };
    let picture = picture(
        &String::from_utf8_lossy(event),
        &kind,
        execution.now_ms() / 1000,
    );
    execution.reply.verbatim(&picture);
    Ok(())
}

/// The last events as columns, and below each how long ago it was.
fn picture(event: &str, kind: &LatencySeries, now: u64) -> String {
    let shown = kind.samples.len().min(COLUMNS);
    let samples: Vec<_> = kind
        .samples
        .iter()
        .skip(kind.samples.len() - shown)
        .collect();
    let high = samples.iter().map(|sample| sample.ms).max().unwrap_or(0);
    let low = samples.iter().map(|sample| sample.ms).min().unwrap_or(0);
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        kind.ms_max,
        "-".repeat(COLUMNS)
    );
    for row in (0..ROWS).rev() {
        for sample in &samples {
            let height = match high - low {
                0 => ROWS - 1,
                range => (sample.ms - low) * (ROWS - 1) / range,
            };
            text.push(if height == row {
                '#'
            } else if height > row {
                '|'
            } else {
                ' '
            });
        }
        text.push('\n');
    }
    let ages: Vec<Vec<u8>> = samples
        .iter()
        .map(|sample| age(now.saturating_sub(sample.at)).into_bytes())
        .collect();
    let longest = ages.iter().map(Vec::len).max().unwrap_or(0);
    text.push('\n');
    for place in 0..longest {
        let letter = |age: &Vec<u8>| char::from(age.get(place).copied().unwrap_or(b' '));
        text.extend(ages.iter().map(letter));
        text.push('\n');
    }
    text
}

/// A time in its largest whole unit.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn show_help(execution: &mut Execution<'_>) -> Result<()> {
    help(
        execution,
        &[
            "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "DOCTOR",
            "    Report slow events, and what helps.",
            "GRAPH <event>",
            "    Draw a graph of the events of a kind.",
            "HISTOGRAM [<command> ...]",
            "    Return how many calls of commands took less than so many microseconds.",
            "HISTORY <event>",
            "    Return the events of a kind, with seconds since 1970 and milliseconds.",
            "LATEST",
            "    Return the last event of each kind.",
            "RESET [<event> ...]",
            "    Clear events, of all kinds or of some.",
        ],
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency_monitor::LatencySample;

    #[test]
    fn a_picture_has_a_column_for_each_event() {
        let kind = LatencySeries {
            samples: [(100, 10), (4000, 40), (4059, 20)]
                .map(|(at, ms)| LatencySample { at, ms })
                .into(),
            ms_max: 99,
        };
        let drawn = [
            "command - high 40 ms, low 10 ms (all time high 99 ms)",
            &"-".repeat(COLUMNS),
            " # ",
            " | ",
            " |#",
            "#||",
            "",
            "111",
            "hms",
            "",
        ];
        assert_eq!(picture("command", &kind, 4060), drawn.join("\n"));
    }
}
