//! Figures and tables of the papers: how each is made, what it shows, and what the paper claims
//! about it.
//!
//! A [`Figure`] is made in one of three ways ([`FigureSource`]): by runs of stores
//! ([`crate::stores`]), or by a function about one structure ([`crate::structure`]), with files or
//! without. What comes of it is an [`Outcome`]: results of phases, or tables of rows, in which a
//! number is named by its table, by a coordinate on each axis, such as an index and a workload, and
//! by its column ([`crate::rows`]). A [`Claim`] is a number of the paper, the name of ours, and the
//! [`Rule`] by which it holds; a claim that names no number is an error, and is found by the test
//! that makes every figure in a small size.
//!
//! [`PAPERS`] is the one list of figures: the program, the reproduction and its page take all names
//! from there. To add a figure: a row in the list of its paper.

mod claim;
mod curves;
mod list;
mod outcome;
mod phases;

use std::path::Path;

pub use claim::{Claim, ClaimResult, Ours, Rule, Verdict};
pub use curves::{Curve, Line};
pub use list::{PAPERS, figures, named};
pub use outcome::Outcome;

use crate::Error;
use crate::rows::Table;
use crate::scale::Scale;
use crate::stores::{Comparison, Measure, Runs};
use crate::structure::Shown;
use crate::text::Unit;

/// A paper, or a chapter of one.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Author and title.
    pub title: &'static str,
    /// Its figures, in its order.
    pub figures: &'static [Figure],
}

/// A figure or table of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The name on the command line: mostly the paper's number.
    pub name: &'static str,
    /// Tables that the paper makes of the same runs: other names of the figure.
    pub tables: &'static [&'static str],
    /// One line of help.
    pub about: &'static str,
    /// How it is made.
    pub making: FigureSource,
    /// The part of the paper's size at which a reproduction of scale 1 makes it.
    pub part: f64,
    /// What the paper claims, besides the numbers that the runs have from it.
    pub claims: &'static [Claim],
    /// What a reader must know to judge the numbers.
    pub caveat: &'static str,
    /// What can be drawn as curves.
    pub curves: fn(&Outcome) -> Vec<Curve>,
}

/// How a figure is made.
#[derive(Clone, Copy, Debug)]
pub enum FigureSource {
    /// By phases on stores.
    Stores(&'static Runs),
    /// By the figure itself.
    Structure(fn(Scale) -> Shown),
    /// By the figure itself, in files below a directory.
    Files(fn(Scale, &Path) -> Result<Vec<Table>, Error>),
}

/// Why latencies and rates of reads are not compared.
const CACHED: &str = "The paper's reads wait for a drive; here the page cache answers them.";
/// Why the amplification of a small store is not compared.
const FEW_LEVELS: &str = "A smaller store has fewer levels, each of which writes an entry once: \
                          only a store of the paper's size compares.";

impl Figure {
    /// What most figures have, for the lists.
    const BASE: Figure = Figure {
        name: "",
        tables: &[],
        about: "",
        making: FigureSource::Structure(|_| Ok(Vec::new())),
        part: 1.0,
        claims: &[],
        caveat: "",
        curves: curves::none,
    };

    /// The part of the paper's size at which a reproduction of this scale makes the figure.
    pub fn part_at(&self, scale: f64) -> f64 {
        (self.part * scale).min(1.0)
    }

    /// The command that shows the figure at this part of the paper's size.
    pub fn command(&self, part: f64) -> String {
        let command = format!("gabion lab figure {} --scale {part}", self.name);
        match self.making {
            FigureSource::Structure(_) => command,
            FigureSource::Stores(runs) if !runs.peers.is_empty() => {
                let targets = [runs.targets, runs.peers].concat().join(",");
                format!("{command} --target {targets} --dir DIR")
            }
            FigureSource::Stores(_) | FigureSource::Files(_) => format!("{command} --dir DIR"),
        }
    }

    /// What the paper says besides its numbers.
    pub fn says(&self) -> &'static str {
        match self.making {
            FigureSource::Stores(runs) => runs.says,
            FigureSource::Structure(_) | FigureSource::Files(_) => "",
        }
    }

    /// The claims with our numbers.
    ///
    /// # Errors
    /// [`Error::Meaningless`] if the outcome does not have the number that a claim names: a claim
    /// is never left out in silence.
    pub fn verdicts(&self, outcome: &Outcome) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = self.of_runs(outcome);
        for claim in self.claims {
            let verdict = claim.verdict(outcome).map_err(|error| {
                let Claim { says, case, .. } = claim;
                Error::Meaningless(format!("figure {}, \"{says}, {case}\": {error}", self.name))
            })?;
            verdicts.push(verdict);
        }
        Ok(verdicts)
    }

    /// Numbers that the runs themselves have from the paper, of targets of ours.
    fn of_runs(&self, outcome: &Outcome) -> Vec<Verdict> {
        let FigureSource::Stores(runs) = self.making else {
            return Vec::new();
        };
        let verdict = |Comparison { paper, ours }: Comparison| {
            let is_fill = paper.workload.starts_with("fill");
            let (unit, rule, why) = match paper.measure {
                Measure::OpsPerS if is_fill => (Unit::PerSecond, Rule::AtLeast(0.0), ""),
                Measure::OpsPerS => (Unit::PerSecond, Rule::Incomparable, CACHED),
                Measure::WaWithoutLog if outcome.part < 1.0 => {
                    (Unit::Times, Rule::Incomparable, FEW_LEVELS)
                }
                Measure::WaWithoutLog => (Unit::Times, Rule::AtMost(0.0), ""),
                Measure::ReadP99 => (Unit::Micros, Rule::Incomparable, CACHED),
            };
            let claim = Claim {
                says: paper.measure.says(),
                case: paper.workload,
                unit,
                paper: paper.value,
                // It is in the verdict already.
                ours: Ours::Phases(|_| None),
                rule,
                why,
            };
            // Nothing is that fast or writes nothing: the run ended before there was something.
            let median = ours.median;
            Verdict {
                claim,
                ours: if median > 0.0 { median } else { f64::NAN },
                not_run: None,
            }
        };
        let besides = runs.beside(&outcome.results).into_iter();
        let is_ours = |beside: &Comparison| runs.targets.contains(&beside.paper.target);
        besides.filter(is_ours).map(verdict).collect()
    }
}

#[cfg(test)]
mod tests;
