//! Results side by side: medians over repetitions, and ratios to the first target within them.
//!
//! [`Summary::of`] sorts results into cases, which are what was asked of every target, and cells,
//! which are all repetitions of one case on one target. Targets and cases keep the order in which
//! they first appear. The report is made of it, and so is any other table.

use crate::result::PhaseResult;

/// One figure over all repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; between the two in the middle if their count is even.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are, at least one.
    pub count: usize,
}

impl Spread {
    /// The spread of those `values` that are finite; `None` when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let count = values.len();
        let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        Some(Spread {
            median,
            min,
            max,
            count,
        })
    }

    /// The distance from the smallest to the largest as a part of the median, 0 for a median of 0.
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.max - self.min) / self.median.abs()
    }
}

/// All repetitions of one case on one target.
#[derive(Clone, Debug)]
pub struct Cell<'a> {
    /// The results, at least one, in the order in which they were given.
    pub results: Vec<&'a PhaseResult>,
    /// Operations per second; `None` when no repetition has a finite figure.
    pub ops_per_s: Option<Spread>,
    /// Operations per second as a multiple of the first target's, as [`Cell::ratio_to`] has it;
    /// `None` where the first target has none.
    pub ratio: Option<f64>,
}

impl<'a> Cell<'a> {
    /// One figure over the repetitions that have it.
    pub fn spread(&self, figure: impl Fn(&PhaseResult) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.results.iter().filter_map(|result| figure(result)))
    }

    /// A figure as a multiple of `first`'s: the median of the ratios of those repetitions that both
    /// have. Such two ran after one another, so that slow changes of the machine's speed cancel.
    /// Without a common repetition it is the ratio of the medians.
    pub fn ratio_to(
        &self,
        first: &Cell<'_>,
        figure: impl Fn(&PhaseResult) -> Option<f64>,
    ) -> Option<f64> {
        let positive = |result: &PhaseResult| figure(result).filter(|figure| *figure > 0.0);
        let pairs = self.results.iter().filter_map(|result| {
            let mut others = first.results.iter();
            let other = others.find(|other| other.repetition == result.repetition)?;
            Some(figure(result)? / positive(other)?)
        });
        let paired = Spread::of(pairs).map(|ratios| ratios.median);
        paired.or_else(|| {
            let median = |cell: &Cell<'_>| Some(cell.spread(&figure)?.median);
            Some(median(self)? / median(first).filter(|first| *first > 0.0)?)
        })
    }

    /// The repetition whose throughput is nearest to the median, to show what has no median
    /// itself, such as a curve. The earliest of several.
    pub fn typical(&self) -> &'a PhaseResult {
        let median = self.ops_per_s.map_or(0.0, |spread| spread.median);
        let distance = |result: &&PhaseResult| (result.ops_per_s - median).abs();
        self.results
            .iter()
            .copied()
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .expect("a cell has a result")
    }
}

/// What was asked of every target: one workload under one set of parameters.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The workload, with what distinguishes this case from others of the same workload.
    pub label: String,
    /// Any one result of the case, for what all of them have in common.
    pub example: &'a PhaseResult,
    /// One cell for each target, in the order of [`Summary::targets`]; `None` where the target did
    /// not run the case.
    pub cells: Vec<Option<Cell<'a>>>,
    /// The target with the highest median; `None` unless two targets have one.
    pub best: Option<usize>,
}

/// All results in order.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// Names of the targets; the first is the one to which others are compared.
    pub targets: Vec<&'a str>,
    /// The cases.
    pub cases: Vec<Case<'a>>,
}

/// What must be equal for results to be repetitions of one another, or results of several targets
/// to be comparable. The last field tells apart phases that a run repeats on purpose, such as
/// reads before and after an overwrite.
#[derive(PartialEq)]
struct Key<'a> {
    workload: &'a str,
    records: u64,
    threads: usize,
    key_bytes: usize,
    value_bytes: usize,
    rate_bits: Option<u64>,
    occurrence: usize,
}

impl<'a> Key<'a> {
    fn of(result: &'a PhaseResult) -> Key<'a> {
        Key {
            workload: &result.workload,
            records: result.records,
            threads: result.threads,
            key_bytes: result.key_bytes,
            value_bytes: result.value_bytes,
            rate_bits: result.rate_per_s.map(f64::to_bits),
            occurrence: 0,
        }
    }
}

impl<'a> Summary<'a> {
    /// Sorts `results` into cases and cells.
    pub fn of(results: &'a [PhaseResult]) -> Summary<'a> {
        let mut targets: Vec<&str> = Vec::new();
        let mut groups: Vec<(Key, Vec<&PhaseResult>)> = Vec::new();
        for result in results {
            if !targets.contains(&result.target.as_str()) {
                targets.push(&result.target);
            }
            let mut key = Key::of(result);
            loop {
                let Some((_, group)) = groups.iter_mut().find(|(known, _)| *known == key) else {
                    groups.push((key, vec![result]));
                    break;
                };
                let is_there = |other: &&PhaseResult| {
                    other.target == result.target && other.repetition == result.repetition
                };
                if !group.iter().any(is_there) {
                    group.push(result);
                    break;
                }
                key.occurrence += 1;
            }
        }
        let cases = groups.iter().map(|(key, group)| Case {
            label: label(key, &groups),
            example: group[0],
            cells: cells(&targets, group),
            best: None,
        });
        let mut cases: Vec<Case> = cases.collect();
        for case in &mut cases {
            case.best = best(&case.cells);
        }
        Summary { targets, cases }
    }
}

/// One cell for each target.
fn cells<'a>(targets: &[&str], group: &[&'a PhaseResult]) -> Vec<Option<Cell<'a>>> {
    let cell = |target: &&str| {
        let of_target = |result: &&&PhaseResult| result.target == **target;
        let results: Vec<&PhaseResult> = group.iter().filter(of_target).copied().collect();
        (!results.is_empty()).then(|| Cell {
            ops_per_s: Spread::of(results.iter().map(|result| result.ops_per_s)),
            results,
            ratio: None,
        })
    };
    let mut cells: Vec<Option<Cell>> = targets.iter().map(cell).collect();
    let ops_per_s = |result: &PhaseResult| Some(result.ops_per_s);
    let ratio = |cell: &Option<Cell>| {
        let first = cells.first()?.as_ref()?;
        cell.as_ref()?.ratio_to(first, ops_per_s)
    };
    let ratios: Vec<Option<f64>> = cells.iter().map(ratio).collect();
    for (cell, ratio) in cells.iter_mut().zip(ratios) {
        if let Some(cell) = cell {
            cell.ratio = ratio;
        }
    }
    cells
}

/// The target with the highest median, if there are two to choose from.
fn best(cells: &[Option<Cell>]) -> Option<usize> {
    let median = |cell: &Option<Cell>| Some(cell.as_ref()?.ops_per_s?.median);
    let medians = cells.iter().enumerate();
    let medians: Vec<_> = medians.filter_map(|(i, c)| Some((i, median(c)?))).collect();
    if medians.len() < 2 {
        return None;
    }
    let best = medians.iter().rev().max_by(|a, b| a.1.total_cmp(&b.1));
    best.map(|(index, _)| *index)
}

/// The workload of `key`, with those of its parameters in which the groups of this workload differ.
fn label(key: &Key, groups: &[(Key, Vec<&PhaseResult>)]) -> String {
    let peers: Vec<&Key> = groups.iter().map(|(key, _)| key).collect();
    let differs = |same: fn(&Key, &Key) -> bool| {
        let mut of_workload = peers.iter().filter(|peer| peer.workload == key.workload);
        of_workload.any(|peer| !same(peer, key))
    };
    let mut label = key.workload.to_owned();
    if differs(|a, b| a.records == b.records) {
        let plural = if key.records == 1 { "" } else { "s" };
        label += &format!(", {} record{plural}", key.records);
    }
    if differs(|a, b| a.threads == b.threads) {
        let plural = if key.threads == 1 { "" } else { "s" };
        label += &format!(", {} thread{plural}", key.threads);
    }
    if differs(|a, b| (a.key_bytes, a.value_bytes) == (b.key_bytes, b.value_bytes)) {
        label += &format!(", {}+{} B", key.key_bytes, key.value_bytes);
    }
    if differs(|a, b| a.rate_bits == b.rate_bits) {
        match key.rate_bits {
            Some(bits) => label += &format!(", {:.0}/s due", f64::from_bits(bits)),
            None => label += ", closed loop",
        }
    }
    if key.occurrence > 0 {
        label += &format!(", pass {}", key.occurrence + 1);
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::sample;

    fn result(target: &str, workload: &str, repetition: u32, ops_per_s: f64) -> PhaseResult {
        PhaseResult {
            target: target.to_owned(),
            workload: workload.to_owned(),
            repetition,
            ops_per_s,
            ..sample::empty()
        }
    }

    #[test]
    fn a_spread_has_the_middle_and_both_ends() {
        let odd = Spread::of([5.0, 1.0, 3.0]).unwrap();
        assert_eq!(
            (odd.min, odd.median, odd.max, odd.count),
            (1.0, 3.0, 5.0, 3)
        );
        let even = Spread::of([4.0, 1.0, 2.0, f64::NAN, 8.0]).unwrap();
        assert_eq!((even.median, even.count), (3.0, 4));
        assert!((even.relative() - 7.0 / 3.0).abs() < 1e-12);
        assert_eq!(Spread::of([f64::INFINITY]), None);
        assert_eq!(Spread::of([0.0]).unwrap().relative().to_bits(), 0);
    }

    #[test]
    fn interleaved_repetitions_meet_in_their_cells() {
        let results = [
            result("a", "fill", 0, 10.0),
            result("b", "fill", 0, 30.0),
            result("a", "read", 0, 7.0),
            result("a", "fill", 1, 20.0),
            result("b", "fill", 1, 30.0),
            result("a", "fill", 2, 90.0),
        ];
        let summary = Summary::of(&results);
        assert_eq!(summary.targets, ["a", "b"]);
        let labels: Vec<_> = summary.cases.iter().map(|case| &case.label).collect();
        assert_eq!(labels, ["fill", "read"]);
        let fill = &summary.cases[0];
        let a = fill.cells[0].as_ref().unwrap();
        assert_eq!(a.results.len(), 3);
        assert_eq!(a.typical().repetition, 1);
        assert_eq!(a.ratio, Some(1.0));
        // The third repetition of `a` has no partner.
        assert_eq!(fill.cells[1].as_ref().unwrap().ratio, Some(2.25));
        assert_eq!(fill.best, Some(1));
        assert!(summary.cases[1].cells[1].is_none());
        assert_eq!(summary.cases[1].best, None);
    }

    /// The machine became half as fast after the first repetition; the median of one target is of
    /// the fast time, that of the other of the slow one, though they are equally fast.
    #[test]
    fn ratios_are_those_within_repetitions() {
        let mut results = Vec::new();
        for (repetition, speed) in [(0, 100.0), (1, 50.0), (2, 50.0), (3, 100.0)] {
            results.push(result("a", "read", repetition, speed));
            if repetition > 0 {
                results.push(result("b", "read", repetition, 1.01 * speed));
            }
        }
        let summary = Summary::of(&results);
        let cells = &summary.cases[0].cells;
        let ratio = cells[1].as_ref().unwrap().ratio.unwrap();
        assert!((ratio - 1.01).abs() < 1e-9, "{ratio}");
        let results = [
            result("a", "read", 0, 10.0),
            result("b", "read", 1, 5.0),
            result("c", "read", 0, 0.0),
        ];
        let summary = Summary::of(&results);
        let ratio = |at: usize| summary.cases[0].cells[at].as_ref().unwrap().ratio;
        assert_eq!((ratio(1), ratio(2)), (Some(0.5), Some(0.0)));
    }

    #[test]
    fn a_phase_that_runs_twice_is_two_cases() {
        let results = [
            result("a", "read", 0, 1.0),
            result("a", "read", 0, 2.0),
            result("a", "read", 1, 1.0),
            result("a", "read", 1, 2.0),
        ];
        let summary = Summary::of(&results);
        let labels: Vec<_> = summary.cases.iter().map(|case| &case.label).collect();
        assert_eq!(labels, ["read", "read, pass 2"]);
        for (case, median) in summary.cases.iter().zip([1.0, 2.0]) {
            let cell = case.cells[0].as_ref().unwrap();
            assert_eq!(
                cell.ops_per_s.unwrap().median.to_bits(),
                f64::to_bits(median)
            );
            assert_eq!(cell.results.len(), 2);
        }
    }

    #[test]
    fn labels_name_what_differs_and_nothing_else() {
        let mut results = vec![result("a", "read", 0, 1.0), result("a", "read", 0, 2.0)];
        results[0].threads = 1;
        results[1].threads = 4;
        results[1].rate_per_s = Some(1000.0);
        results.push(result("a", "scan", 0, 3.0));
        let summary = Summary::of(&results);
        let labels: Vec<_> = summary.cases.iter().map(|case| &case.label).collect();
        let want = [
            "read, 1 thread, closed loop",
            "read, 4 threads, 1000/s due",
            "scan",
        ];
        assert_eq!(labels, want);
    }

    #[test]
    fn without_the_first_target_there_is_no_ratio() {
        let results = [result("a", "x", 0, 1.0), result("b", "y", 0, 2.0)];
        let summary = Summary::of(&results);
        assert_eq!(summary.cases[1].cells[1].as_ref().unwrap().ratio, None);
    }
}
