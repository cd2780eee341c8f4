//! The result of a comparison of equals, as a page of Markdown.
//!
//! The page says what was done in words that hold on every machine, then where it was done, then
//! what each store is: its caches beside the data, and what it may lose. Figures are medians over
//! the repetitions, with the lowest and the highest where there are several; the best is bold.

use std::fmt::{self, Write};

use super::{COUNT, EqualsOptions, FILL, MIXES, READS, REST};
use crate::plan::without_label;
use crate::result::{PhaseResult, TimelinePoint};
use crate::summary::{Case, Cell, Summary};
use crate::target::{Cache, Target};
use crate::targets::Registry;
use crate::text::{bytes_text, count_text, counted, digits, percent, rounded_text};

/// What a page is made of, beside its results.
pub struct Page<'a> {
    /// What was chosen.
    pub terms: &'a EqualsOptions,
    /// Size of every store's cache, in bytes.
    pub cache_bytes: u64,
    /// Memory that the processes of a store could use, where that was limited.
    pub memory_limit_bytes: Option<u64>,
    /// How often each store went through all phases.
    pub repetitions: u32,
    /// Where the targets are described.
    pub registry: &'a Registry,
    /// The command that made it.
    pub command: &'a str,
    /// Trials that ended early.
    pub notes: &'a [String],
}

/// A row of a table: what it tells, how it is taken from a result, and how it is shown.
struct Row {
    name: String,
    phase: &'static str,
    /// Which time that the phase was done, from 0.
    pass: usize,
    figure: fn(&PhaseResult) -> Option<f64>,
    shown: fn(f64) -> String,
    best: Best,
}

/// Which of a row's figures is the best one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Best {
    Highest,
    Lowest,
    /// There is none.
    Untold,
}

impl Page<'_> {
    /// The page.
    pub fn text(&self, results: &[PhaseResult]) -> String {
        let mut out = String::new();
        self.write(results, &mut out)
            .expect("a string takes all that is written");
        out
    }

    fn write(&self, results: &[PhaseResult], out: &mut String) -> fmt::Result {
        let summary = Summary::of(results);
        writeln!(out, "# Stores that hold equal records\n")?;
        self.terms_told(results, out)?;
        for note in self.notes {
            writeln!(out, "**Not complete:** {note}.\n")?;
        }
        writeln!(out, "```sh\n{}\n```\n", self.command)?;
        if let Some(result) = results.first() {
            let (machine, version) = (&result.machine, &result.version);
            writeln!(out, "Machine: {machine}. Gabion {version}.\n")?;
        }
        self.stores(&summary, out)?;
        self.fill(&summary, out)?;
        self.phases(&summary, out)
    }

    /// What was done, whatever the machine.
    fn terms_told(&self, results: &[PhaseResult], out: &mut String) -> fmt::Result {
        let terms = self.terms;
        writeln!(
            out,
            "Each store is given the same {} of {} + {} bytes in the same random order by one \
             writer, all of them, however long it takes. Then it makes them durable, as far as it \
             can, and ends its work in the background.",
            counted(terms.num, "put", "puts"),
            terms.key_bytes,
            terms.value_bytes
        )?;
        match held(results) {
            DataSize::Equal(records) => writeln!(
                out,
                "All stores then hold the same {}, {} of keys and values.\n",
                counted(records, "record", "records"),
                bytes_text(records * self.record_bytes())
            )?,
            DataSize::Unknown => writeln!(out)?,
            DataSize::Unequal(all) => writeln!(
                out,
                "\n\n**The stores do not hold equally many records, so their figures cannot be \
                 compared:** {}.\n",
                all.join(", ")
            )?,
        }
        writeln!(
            out,
            "{} then {} through the phases that read, {} s each, without a warm-up, one phase \
             right after the other: at once, and again, with other random keys, after {} s in \
             which nobody asks for anything. The phases that also write follow, and at the end all \
             records are counted: there must be as many as were put. Nothing is compressed, and no \
             put is synced. Each store has a process of its own in each of {}; the stores \
             take turns, forwards and backwards.\n",
            counted(terms.threads as u64, "reader", "readers"),
            if terms.threads == 1 { "goes" } else { "go" },
            terms.seconds,
            terms.rest_seconds,
            counted(self.repetitions.into(), "repetition", "repetitions"),
        )
    }

    fn record_bytes(&self) -> u64 {
        (self.terms.key_bytes + self.terms.value_bytes) as u64
    }

    fn target(&self, name: &str) -> Option<&Target> {
        let name = without_label(name).unwrap_or(name);
        self.registry.named(name).ok()
    }

    /// What each store is, how much of the data its caches hold, and what it may lose.
    fn stores(&self, summary: &Summary, out: &mut String) -> fmt::Result {
        writeln!(out, "## The stores\n")?;
        match self.memory_limit_bytes {
            Some(limit) => writeln!(
                out,
                "A store's process and the system's cache of its files have {} together.\n",
                bytes_text(limit)
            )?,
            None => writeln!(
                out,
                "Beside its own cache a store has the system's cache of files, as large as the \
                 machine's memory.\n"
            )?,
        }
        writeln!(
            out,
            "| | what it is | its own cache | part of the data that fits into it | files after \
             the fill | part of the files that fits into memory | lost of the puts that have \
             returned |\n|---|---|---|---|---|---|---|"
        )?;
        for (at, name) in summary.targets.iter().enumerate() {
            let Some(target) = self.target(name) else {
                continue;
            };
            let filled = case(summary, FILL, 0).and_then(|case| case.cells[at].as_ref());
            let filled = filled.map(Cell::typical);
            let of = |part: u64, whole: Option<u64>| match whole.filter(|whole| *whole > 0) {
                Some(whole) => percent((part as f64 / whole as f64).min(1.0)),
                None => "–".to_owned(),
            };
            let data = filled.and_then(|result| Some(result.records_live? * self.record_bytes()));
            let (cache, fits) = match target.cache {
                Cache::Own => (bytes_text(self.cache_bytes), of(self.cache_bytes, data)),
                Cache::Page => ("none".to_owned(), "–".to_owned()),
                Cache::Memory => ("all in memory".to_owned(), percent(1.0)),
            };
            let files = filled.map(|result| result.space_bytes);
            let files = files.filter(|_| target.abilities.files);
            let memory = filled.and_then(|result| result.memory_bytes);
            writeln!(
                out,
                "| {name} | {} | {cache} | {fits} | {} | {} | {} |",
                target.about,
                files.map_or("–".to_owned(), bytes_text),
                memory.map_or("–".to_owned(), |memory| of(memory, files)),
                target.loses
            )?;
        }
        writeln!(out)
    }

    /// The fill, and what was left to do after it.
    fn fill(&self, summary: &Summary, out: &mut String) -> fmt::Result {
        writeln!(out, "## The fill\n")?;
        head(summary, out)?;
        self.first_seconds(summary, out)?;
        let row = |name: &str, figure, shown, best| Row {
            name: name.to_owned(),
            phase: FILL,
            pass: 0,
            figure,
            shown,
            best,
        };
        let rows = [
            row(
                "thousand puts per second, all of it",
                thousands,
                digits,
                Best::Highest,
            ),
            row("seconds", |r| Some(r.seconds), digits, Best::Lowest),
            row(
                "seconds more until nothing was left to do",
                |r| Some(r.settle_s),
                digits,
                Best::Untold,
            ),
            row(
                "bytes written per byte put, by the system, that work included",
                |r| r.wa_process,
                digits,
                Best::Lowest,
            ),
            row(
                "99.9 % of puts within, µs",
                |r| Some(r.latency_us.p999),
                digits,
                Best::Lowest,
            ),
            row(
                "longest put, ms",
                |r| Some(r.latency_us.max / 1000.0),
                digits,
                Best::Lowest,
            ),
            row(
                "memory of the process, MiB",
                |r| Some(r.rss_bytes_max? as f64 / (1 << 20) as f64),
                digits,
                Best::Untold,
            ),
            row(
                "bytes of files per byte of records",
                |r| r.space_amplification,
                digits,
                Best::Lowest,
            ),
        ];
        for row in &rows {
            row.write(summary, out)?;
        }
        let rest = |name: &str, figure| Row {
            name: name.to_owned(),
            phase: REST,
            pass: 0,
            figure,
            shown: digits,
            best: Best::Untold,
        };
        let rows = [
            rest("seconds of processors in the rest", |r: &PhaseResult| {
                Some(r.cpu_user_s + r.cpu_sys_s)
            }),
            rest("MiB written in the rest", |r: &PhaseResult| {
                Some(r.bytes_written_process? as f64 / (1 << 20) as f64)
            }),
            Row {
                phase: COUNT,
                shown: rounded_text,
                ..rest("records counted at the end", |r| Some(r.found as f64))
            },
        ];
        for row in &rows {
            row.write(summary, out)?;
        }
        writeln!(
            out,
            "\nThe mixes insert records too, more of them the faster a store is.\n"
        )
    }

    /// The speed of the fill's beginning, which is no figure of its own in the results.
    fn first_seconds(&self, summary: &Summary, out: &mut String) -> fmt::Result {
        let seconds = self.terms.first_seconds as f64;
        let row = Row {
            name: format!("thousand puts per second, first {seconds:.0} s"),
            phase: FILL,
            pass: 0,
            figure: thousands,
            shown: digits,
            best: Best::Highest,
        };
        let figure = |result: &PhaseResult| Some(within(&result.throughput, seconds)? / 1e3);
        row.write_with(figure, summary, out)
    }

    /// The phases that read, twice, and those that also write.
    fn phases(&self, summary: &Summary, out: &mut String) -> fmt::Result {
        let row = |phase: &'static str, pass: usize, figure, best| Row {
            name: match (READS.contains(&phase), pass) {
                (false, _) => phase.to_owned(),
                (true, 0) => format!("{phase}, at once"),
                (true, _) => format!("{phase}, after the rest"),
            },
            phase,
            pass,
            figure,
            shown: digits,
            best,
        };
        let all = || {
            let reads = READS.into_iter().flat_map(|phase| [(phase, 0), (phase, 1)]);
            reads.chain(MIXES.into_iter().map(|phase| (phase, 0)))
        };
        writeln!(out, "## Thousand operations per second\n")?;
        head(summary, out)?;
        for (phase, pass) in all() {
            row(phase, pass, thousands, Best::Highest).write(summary, out)?;
        }
        writeln!(out, "\n## 99 % of the operations within, µs\n")?;
        head(summary, out)?;
        for (phase, pass) in all() {
            let within = |result: &PhaseResult| Some(result.latency_us.p99);
            row(phase, pass, within, Best::Lowest).write(summary, out)?;
        }
        let results = summary.cases.iter().flat_map(|case| &case.cells).flatten();
        let mut results = results.flat_map(|cell| &cell.results);
        let is_read = |phase: &str| READS.contains(&phase) || MIXES.contains(&phase);
        if !results.any(|result| is_read(&result.phase) && drive_reads(result) >= Some(0.01)) {
            return Ok(());
        }
        writeln!(
            out,
            "\n## Pages of 4 KiB read from the drive, per operation\n"
        )?;
        head(summary, out)?;
        for (phase, pass) in all() {
            row(phase, pass, drive_reads, Best::Lowest).write(summary, out)?;
        }
        Ok(())
    }
}

impl Row {
    fn write(&self, summary: &Summary, out: &mut String) -> fmt::Result {
        self.write_with(self.figure, summary, out)
    }

    /// The row with `figure` in place of its own.
    fn write_with(
        &self,
        figure: impl Fn(&PhaseResult) -> Option<f64>,
        summary: &Summary,
        out: &mut String,
    ) -> fmt::Result {
        write!(out, "| {} |", self.name)?;
        let Some(case) = case(summary, self.phase, self.pass) else {
            return writeln!(out, "{}", " – |".repeat(summary.targets.len()));
        };
        let spreads = case.cells.iter();
        let spreads: Vec<_> = spreads.map(|cell| cell.as_ref()?.spread(&figure)).collect();
        let medians = || spreads.iter().flatten().map(|spread| spread.median);
        let best = match self.best {
            _ if medians().count() < 2 => None,
            Best::Highest => medians().max_by(f64::total_cmp),
            Best::Lowest => medians().min_by(f64::total_cmp),
            Best::Untold => None,
        };
        for spread in &spreads {
            let Some(spread) = spread else {
                write!(out, " – |")?;
                continue;
            };
            let median = (self.shown)(spread.median);
            match best == Some(spread.median) {
                true => write!(out, " **{median}**")?,
                false => write!(out, " {median}")?,
            }
            if spread.count > 1 {
                let (min, max) = ((self.shown)(spread.min), (self.shown)(spread.max));
                write!(out, " ({min} to {max})")?;
            }
            write!(out, " |")?;
        }
        writeln!(out)
    }
}

/// The head of a table with a column for each store.
fn head(summary: &Summary, out: &mut String) -> fmt::Result {
    let (names, columns) = (summary.targets.join(" | "), summary.targets.len());
    writeln!(out, "| | {names} |\n|---|{}", "---|".repeat(columns))
}

/// What came of the phase of that name when it was done for that time.
fn case<'s, 'r>(summary: &'s Summary<'r>, phase: &str, pass: usize) -> Option<&'s Case<'r>> {
    let mut cases = summary.cases.iter();
    cases
        .by_ref()
        .filter(|case| case.example.phase == phase)
        .nth(pass)
}

fn thousands(result: &PhaseResult) -> Option<f64> {
    Some(result.ops_per_s / 1e3)
}

fn drive_reads(result: &PhaseResult) -> Option<f64> {
    let bytes = result.bytes_read_process? as f64;
    (result.operations > 0).then(|| bytes / 4096.0 / result.operations as f64)
}

/// Operations per second from the beginning of a phase until `seconds`, or until its end.
fn within(throughput: &[TimelinePoint], seconds: f64) -> Option<f64> {
    let (mut from, mut operations) = (0.0, 0.0);
    for moment in throughput {
        let to = moment.seconds.min(seconds);
        operations += moment.ops_per_s * (to - from);
        from = to;
        if moment.seconds >= seconds {
            break;
        }
    }
    (from > 0.0).then(|| operations / from)
}

/// How many records the stores held after the fill.
#[derive(Debug, PartialEq, Eq)]
pub enum DataSize {
    /// So many, all of them.
    Equal(u64),
    /// No store came to the end of its fill.
    Unknown,
    /// Not equally many: each store with its number.
    Unequal(Vec<String>),
}

/// How many records the stores of these results held after the fill.
pub fn held(results: &[PhaseResult]) -> DataSize {
    let mut all: Vec<(&str, u64)> = Vec::new();
    for result in results.iter().filter(|result| result.phase == FILL) {
        let held = (&*result.target, result.records_live.unwrap_or(0));
        if !all.contains(&held) {
            all.push(held);
        }
    }
    match all.first() {
        None => DataSize::Unknown,
        Some((_, first)) if all.iter().all(|(_, records)| records == first) => {
            DataSize::Equal(*first)
        }
        Some(_) => {
            let each = |(name, records): &(&str, u64)| format!("{name} {}", count_text(*records));
            DataSize::Unequal(all.iter().map(each).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::sample;

    fn result(target: &str, phase: &str, repetition: u32, ops_per_s: f64) -> PhaseResult {
        PhaseResult {
            target: target.to_owned(),
            workload: phase.to_owned(),
            phase: phase.to_owned(),
            records: 1000,
            records_live: Some(632),
            operations: 1000,
            repetition,
            ops_per_s,
            seconds: 10.0,
            memory_bytes: Some(1 << 20),
            space_bytes: 2 << 20,
            bytes_read_process: Some(0),
            throughput: vec![
                TimelinePoint {
                    seconds: 4.0,
                    ops_per_s: 2.0 * ops_per_s,
                },
                TimelinePoint {
                    seconds: 10.0,
                    ops_per_s: ops_per_s / 3.0,
                },
            ],
            ..sample::empty()
        }
    }

    fn page(results: &[PhaseResult], notes: &[String]) -> String {
        let terms = EqualsOptions {
            num: 1000,
            first_seconds: 4,
            ..EqualsOptions::default()
        };
        let page = Page {
            terms: &terms,
            cache_bytes: 18328,
            memory_limit_bytes: None,
            repetitions: 2,
            registry: &Registry::new(&[]),
            command: "gabion lab equals",
            notes,
        };
        page.text(results)
    }

    fn row<'a>(page: &'a str, name: &str) -> &'a str {
        let begin = format!("| {name} |");
        let mut lines = page.lines();
        lines.find(|line| line.starts_with(&begin)).unwrap()
    }

    #[test]
    fn a_page_tells_terms_caches_losses_and_both_times() {
        let mut results = Vec::new();
        for (target, speed) in [("wip", 2000.0), ("flex", 1000.0)] {
            for repetition in 0..2 {
                let speed = speed + 200.0 * f64::from(repetition);
                for phase in crate::equals::workloads() {
                    results.push(result(target, &phase, repetition, speed));
                }
            }
        }
        // The second scans of the first target are slower than the first ones.
        let again = results.iter_mut().filter(|r| r.phase == "scan50").nth(1);
        again.unwrap().ops_per_s = 500.0;
        let page = page(&results, &[]);
        for words in [
            "the same 1,000 puts of 16 + 100 bytes",
            "hold the same 632 records, 71.6 KiB of keys and values",
            "after 30 s in which nobody asks",
            "2 readers then go through",
            "Machine: 8 x Invented",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(!page.contains("**Not complete") && !page.contains("do not hold"));
        let wip = row(&page, "wip");
        assert!(
            wip.contains("| none | – | 2.00 MiB | 50 % | by a power loss"),
            "{wip}"
        );
        let flex = row(&page, "flex");
        assert!(
            flex.contains("| 17.9 KiB | 25 % | 2.00 MiB | 50 % | by"),
            "{flex}"
        );
        assert_eq!(
            row(&page, "thousand puts per second, first 4 s"),
            "| thousand puts per second, first 4 s | **4.20** (4.00 to 4.40) | 2.20 \
             (2.00 to 2.40) |"
        );
        assert_eq!(
            row(&page, "scan50, at once"),
            "| scan50, at once | **2.10** (2.00 to 2.20) | 1.10 (1.00 to 1.20) |"
        );
        assert!(row(&page, "scan50, after the rest").contains("(0.50 to 2.20)"));
        assert!(row(&page, "ycsb-a").contains("**2.10**"));
        assert!(!page.contains("read from the drive"), "nothing was");
    }

    #[test]
    fn what_is_not_equal_or_not_there_is_said() {
        let mut results = vec![
            result("wip", FILL, 0, 2.0),
            result("flex", FILL, 0, 1.0),
            result("flex", "scan50", 0, 1.0),
        ];
        results[1].records_live = Some(600);
        results[2].bytes_read_process = Some(4096 * 3000);
        let note = "wip, repetition 1, ended early in scan50: it was killed".to_owned();
        let page = page(&results, &[note]);
        assert!(page.contains("do not hold equally many records"), "{page}");
        assert!(page.contains("wip 632, flex 600"), "{page}");
        assert!(
            page.contains("**Not complete:** wip, repetition 1"),
            "{page}"
        );
        assert_eq!(row(&page, "ycsb-a"), "| ycsb-a | – | – |");
        let scans: Vec<_> = page
            .lines()
            .filter(|l| l.starts_with("| scan50, at"))
            .collect();
        assert_eq!(scans.len(), 3);
        assert_eq!(scans[2], "| scan50, at once | – | 3.00 |");
    }

    #[test]
    fn records_are_compared_over_all_repetitions() {
        assert_eq!(held(&[]), DataSize::Unknown);
        let mut results = vec![result("wip", FILL, 0, 1.0), result("wip", FILL, 1, 1.0)];
        assert_eq!(held(&results), DataSize::Equal(632));
        results[1].records_live = Some(631);
        assert_eq!(
            held(&results),
            DataSize::Unequal(vec!["wip 632".to_owned(), "wip 631".to_owned()])
        );
    }

    #[test]
    fn the_beginning_of_a_phase_has_a_speed_of_its_own() {
        let moments = result("wip", FILL, 0, 3.0).throughput;
        let near = |seconds: f64, wanted: f64| {
            let got = within(&moments, seconds).unwrap();
            assert!((got - wanted).abs() < 1e-9, "{seconds}: {got}");
        };
        near(2.0, 6.0);
        near(4.0, 6.0);
        near(5.0, 5.0);
        near(10.0, 3.0);
        near(99.0, 3.0);
        assert_eq!(within(&[], 5.0), None);
    }
}
