//! Figure 10 of the write-amplification study: what each of its optimisations is worth.
//!
//! The registry has forms of indexes with and without them. Each form loads and then runs workload
//! A, on the model as in figure 8, and in DRAM with flushes and fences, by all of the machine's
//! threads up to the study's 28. In DRAM the forms take turns and each is shown with its median, as
//! a rate of the threads' processor time, which other work on the machine disturbs little.
//!
//! A gain is what comes of the form before, in per cent; the study's gains are those of its text.
//! How far ours are apart from them is told in per cent of the figure that the study's gain would
//! have led to.
//!
//! Source: Woo, Kim, Jung, Seo: Analysis and Optimization of Persistent Memory Index Structures'
//! Write Amplification, section IV.

use std::thread;
use std::time::Instant;

use gabion_index::Result;
use gabion_index::registry::{self, Registered};
use gabion_index::{Index, IndexPlan};
use gabion_media::pmem::{Pool, PoolOptions};

use super::study::{ENTRIES, Subject, study};
use super::{Shown, key_of};
use crate::rows::{Column, Table, column};
use crate::scale::Scale;

/// Threads of the study's figure.
const THREADS_MAX: usize = 28;

/// Turns of each form in DRAM.
const TURNS: usize = 5;

/// A form after another, and what the study has gained by the step.
struct Step {
    before: &'static str,
    after: &'static str,
    what: &'static str,
    /// Changes in per cent: lines in the queue, media writes, throughput.
    paper: [Option<f64>; 3],
}

const fn step(
    what: &'static str,
    before: &'static str,
    after: &'static str,
    paper: [Option<f64>; 3],
) -> Step {
    Step {
        before,
        after,
        what,
        paper,
    }
}

const PUBLISHED: &str = "p-clht-published";
const COALESCED: &str = "p-clht-fc";
const EVICTING: &str = "p-clht-fc-ve";
const ALL: &str = "p-clht-fc-ve-xs";

/// All steps of the study, and what locks in DRAM make of P-CLHT instead.
const STEPS: [Step; 9] = [
    step(
        "RB",
        "level-padded",
        "level",
        [Some(-31.3), Some(-11.2), Some(6.9)],
    ),
    step(
        "RB",
        "fastfair-padded",
        "fastfair",
        [Some(-27.4), Some(-2.0), Some(27.5)],
    ),
    step(
        "XS",
        "fastfair",
        "fastfair-256",
        [Some(-10.5), Some(-7.6), Some(-7.1)],
    ),
    step("FC", PUBLISHED, COALESCED, [Some(-30.8), None, Some(31.8)]),
    step(
        "VE",
        COALESCED,
        EVICTING,
        [Some(5.7), Some(-41.6), Some(23.7)],
    ),
    step("XS", EVICTING, ALL, [Some(-10.4), Some(-15.1), None]),
    step(
        "FC, VE, XS",
        PUBLISHED,
        ALL,
        [None, Some(-49.5), Some(35.7)],
    ),
    step("FC, locks in DRAM", PUBLISHED, "p-clht", [None; 3]),
    step("XS", "p-clht", "p-clht-wide", [None; 3]),
];

/// What a form costs for an insert of workload A, and what it does in a microsecond.
struct Cost {
    wpq_inserts: f64,
    media_writes: f64,
    modelled: f64,
    native: f64,
}

/// Figure 10: the costs of all forms, and the gains of all steps.
pub(crate) fn gains(scale: Scale) -> Shown {
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
    let forms = forms();
    let natives = native(&forms, scale, threads)?;
    let about = format!("workload A; in DRAM {threads} threads, median of {TURNS} turns");
    let columns = [
        column("WPQ inserts", "per insert", 2),
        column("media writes", "per insert", 2),
        column("modelled", "M/s", 2),
        column("in DRAM", "M/s", 2),
    ];
    let mut costs = Vec::new();
    let mut of_forms = Table::new(about, &["index"], columns).named("costs");
    for (form, native) in forms.iter().zip(natives) {
        let cost = modelled(form, scale, native)?;
        of_forms.row(&[form.title], cost.all());
        costs.push((form.name, cost));
    }
    let quantities = [
        "WPQ inserts",
        "media writes",
        "throughput",
        "throughput in DRAM",
    ];
    let each = [
        column("paper", "%", 1).signed(),
        column("ours", "%", 1).signed(),
        column("apart", "%", 0).signed(),
    ];
    let columns = Column::grouped(&quantities, &each);
    let axes = &["optimisation", "index"];
    let mut of_steps = Table::new("changes; throughput is modelled", axes, columns);
    of_steps.name = "changes".into();
    for step in &STEPS {
        let find = |name| costs.iter().find(|(form, _)| *form == name);
        let (Some((_, before)), Some((_, after))) = (find(step.before), find(step.after)) else {
            unreachable!("the forms are those of the steps");
        };
        let [wpq, media, throughput] = step.paper;
        let papers = [wpq, media, throughput, throughput].into_iter();
        let ours = before.all().into_iter().zip(after.all());
        let values = papers
            .zip(ours)
            .flat_map(|(paper, (before, after))| beside(paper, before, after));
        of_steps.row(&[step.what, title(step.after)], values);
    }
    Ok(vec![of_forms, of_steps])
}

impl Cost {
    fn all(&self) -> [f64; 4] {
        [
            self.wpq_inserts,
            self.media_writes,
            self.modelled,
            self.native,
        ]
    }
}

/// The forms of all steps, in their order, each once.
fn forms() -> Vec<&'static Registered> {
    let mut forms: Vec<&Registered> = Vec::new();
    for name in STEPS.iter().flat_map(|step| [step.before, step.after]) {
        if !forms.iter().any(|form| form.name == name) {
            forms.extend(registry::by_name(name));
        }
    }
    forms
}

fn title(name: &str) -> &'static str {
    registry::by_name(name).map_or("", |form| form.title)
}

/// The study's change beside ours, and how far ours is apart.
fn beside(paper: Option<f64>, before: f64, after: f64) -> [Option<f64>; 3] {
    let ours = (after / before - 1.0) * 100.0;
    let apart = paper.map(|paper| ((100.0 + ours) / (100.0 + paper) - 1.0) * 100.0);
    [paper, Some(ours), apart]
}

/// Workload A on the model.
fn modelled(form: &'static Registered, scale: Scale, native: f64) -> Result<Cost> {
    let runs = study(&Subject::of(form), scale, 2)?;
    let run = &runs[1];
    let each = |count: u64| count as f64 / run.inserts as f64;
    Ok(Cost {
        wpq_inserts: each(run.costs.wpq_inserts()),
        media_writes: each(run.costs.media_writes_64()),
        modelled: run.operations as f64 * 1e3 / run.costs.estimated_ns.max(1) as f64,
        native,
    })
}

/// Operations of workload A per microsecond in DRAM, of each form.
fn native(forms: &[&Registered], scale: Scale, threads: usize) -> Result<Vec<f64>> {
    let mut rates = vec![Vec::new(); forms.len()];
    for _ in 0..TURNS {
        for (form, rates) in forms.iter().zip(&mut rates) {
            rates.push(rate(form, scale.of(ENTRIES, 2000), threads)?);
        }
    }
    let median = |mut rates: Vec<f64>| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[TURNS / 2]
    };
    Ok(rates.into_iter().map(median).collect())
}

fn rate(form: &Registered, entries: u64, threads: usize) -> Result<f64> {
    let pool = Pool::anonymous(PoolOptions {
        size: (64 << 20) + entries * 1024,
        always_flush: true,
        ..(form.words.pool_options)()
    })?;
    let plan = IndexPlan {
        capacity: entries / 64,
        seed: Some(1),
    };
    let index = (form.words.create)(&pool, plan)?;
    for number in 0..entries {
        index.insert(&key_of(number), number)?;
    }
    let worker = |thread: u64| {
        let index = &*index;
        move || -> Result<f64> {
            let (start, before) = (Instant::now(), processor_ns());
            for operation in (thread..entries).step_by(threads) {
                run_one(index, entries, operation)?;
            }
            let spent_ns = processor_ns()
                .zip(before)
                .map(|(after, before)| after - before);
            Ok(spent_ns.unwrap_or_else(|| start.elapsed().as_nanos() as f64))
        }
    };
    let mut spent_ns = 0.0;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|thread| scope.spawn(worker(thread)))
            .collect();
        for worker in workers {
            spent_ns += worker.join().expect("no worker panics")?;
        }
        Ok::<(), gabion_index::Error>(())
    })?;
    Ok(entries as f64 * 1e3 * threads as f64 / spent_ns.max(1.0))
}

/// One operation of workload A: an insert of a key of its own, or a get of one of those loaded.
fn run_one(index: &dyn Index<u64>, loaded: u64, operation: u64) -> Result<()> {
    let random = key_of(operation ^ 0x5DEE_CE66_D1CE_5EED);
    if random.is_multiple_of(2) {
        let number = loaded + operation;
        index.insert(&key_of(number), number)?;
    } else {
        let number = (random >> 8) % loaded;
        let found = index.get(&key_of(number))?;
        assert_eq!(found, Some(number), "the index has lost a key");
    }
    Ok(())
}

/// What this thread has had of a processor, in nanoseconds; none if the system does not tell.
fn processor_ns() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_both_its_forms() {
        let forms = forms();
        assert_eq!(forms.len(), 11);
        for step in &STEPS {
            for name in [step.before, step.after] {
                assert!(forms.iter().any(|form| form.name == name), "{name}");
            }
        }
    }

    #[test]
    fn gains_stand_beside_the_study_s() {
        let [paper, ours, apart] = [Some(-50.0), Some(-25.0), Some(50.0)];
        assert_eq!(beside(paper, 4.0, 3.0), [paper, ours, apart]);
        assert_eq!(beside(None, 4.0, 5.0), [None, Some(25.0), None]);
    }

    /// What does not depend on the machine, in the direction that the study tells: a line less in
    /// the queue for a coalesced flush, media writes less for an evicted lock.
    #[test]
    fn the_model_sees_the_optimisations() {
        let scale = Scale(0.000_2);
        let cost = |name| modelled(registry::by_name(name).unwrap(), scale, 0.0).unwrap();
        let [published, coalesced, evicting] = [PUBLISHED, COALESCED, EVICTING].map(cost);
        assert!(coalesced.wpq_inserts < published.wpq_inserts - 0.5);
        assert!(evicting.media_writes < coalesced.media_writes);
        for (before, after) in [("level-padded", "level"), ("fastfair-padded", "fastfair")] {
            let (before, after) = (cost(before), cost(after));
            assert!(after.wpq_inserts < before.wpq_inserts);
        }
    }
}
