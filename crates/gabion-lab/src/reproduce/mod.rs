//! Every figure and table that the lab can make, in one go, with what the papers claim.
//!
//! [`ENTRIES`] lists the figures in the order of the papers, each with the part of the paper's size
//! at which it is made, and with its [`Claim`]s: what the paper's text gives as numbers, and the
//! rule by which ours holds beside it. How a figure is made stands where figures are:
//! [`crate::figure`], [`crate::structure`] and [`crate::files`]. What comes of one is an
//! [`Outcome`], and a directory of those is [`Kept`]: a reproduction takes up to an hour, and
//! whatever ends it, the next one goes on behind the last figure that was kept.
//! [`crate::page::reproduction`] shows them.
//!
//! To add a figure: a row in the table of its kind, and a row in [`ENTRIES`].

mod claim;
mod curves;
mod kept;
mod list;
mod phases;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::figure::{Beside, Figure, Measure};
use crate::files::FileFigure;
use crate::result::PhaseResult;
use crate::structure::StructureFigure;
use crate::text::Unit;

pub use claim::{Cell, Claim, Ours, Rule, Verdict};
pub use curves::{Curve, Line};
pub use kept::{Kept, Terms};
pub use list::ENTRIES;

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// X. Zhao's dissertation: `WipDB`, `TurboHash`, `SPTree`.
    Dissertation,
    /// The study of the write amplification of indexes on persistent memory.
    Study,
    /// The paper about `FlexSpace` and `FlexDB`.
    FlexSpace,
    /// The slides about Level hashing.
    LevelHashing,
    /// The paper about SCMKV.
    Scmkv,
}

/// A figure of a reproduction.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name, as `gabion lab figure` has it.
    pub figure: &'static str,
    /// Tables that the paper makes of the same runs.
    pub tables: &'static [&'static str],
    /// Where it comes from.
    pub source: Source,
    /// The part of the paper's size at which a reproduction of scale 1 makes it.
    pub part: f64,
    /// What the paper claims, besides the numbers that the figure itself has.
    pub claims: &'static [Claim],
    /// What a reader must know to judge the numbers.
    pub about: &'static str,
    /// What can be drawn as curves.
    pub curves: fn(&Outcome) -> Vec<Curve>,
}

/// What came of a figure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The figure's name.
    pub figure: String,
    /// The part of the paper's size at which it was made.
    pub part: f64,
    /// How long that took.
    pub seconds: f64,
    /// What a figure about one structure shows.
    pub lines: Vec<String>,
    /// Results of the phases of a figure about stores.
    pub results: Vec<PhaseResult>,
}

/// How a figure is made.
#[derive(Clone, Copy, Debug)]
pub enum Making {
    /// By phases on stores.
    Stores(&'static Figure),
    /// By the figure itself.
    Structure(&'static StructureFigure),
    /// By the figure itself, in files.
    Files(&'static FileFigure),
}

impl Source {
    /// Author and title.
    pub fn title(self) -> &'static str {
        match self {
            Source::Dissertation => {
                "X. Zhao: dissertation on key-value stores for SSDs and persistent memory \
                 (WipDB, TurboHash, SPTree)"
            }
            Source::Study => {
                "Woo, Kim, Jung, Seo: Analysis and Optimization of Persistent Memory Index \
                 Structures' Write Amplification"
            }
            Source::FlexSpace => "FlexSpace and FlexDB: sorted data in a flexible address space",
            Source::LevelHashing => {
                "Zuo, Hua, Wu: Write-optimized and high-performance hashing index scheme for \
                 persistent memory (Level hashing)"
            }
            Source::Scmkv => {
                "Wang, Huang, Zhu: SCMKV, a lightweight log-structured key-value store on storage \
                 class memory"
            }
        }
    }
}

impl Entry {
    /// The entry of the figure or table with that name.
    ///
    /// # Errors
    /// [`Error::Request`] if there is none.
    pub fn named(name: &str) -> Result<&'static Entry, Error> {
        let is_named = |entry: &&Entry| entry.figure == name || entry.tables.contains(&name);
        ENTRIES.iter().find(is_named).ok_or_else(|| {
            let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.figure).collect();
            Error::Request(format!(
                "no figure to reproduce is named {name}; there are {}",
                names.join(", ")
            ))
        })
    }

    /// The part of the paper's size at which a reproduction of this scale makes the figure.
    pub fn part_at(&self, scale: f64) -> f64 {
        (self.part * scale).min(1.0)
    }

    /// How it is made.
    ///
    /// # Errors
    /// [`Error::Request`] if there is no such figure.
    pub fn making(&self) -> Result<Making, Error> {
        let structure = StructureFigure::named(self.figure).map(Making::Structure);
        match structure.or_else(|| FileFigure::named(self.figure).map(Making::Files)) {
            Some(making) => Ok(making),
            None => Figure::named(self.figure).map(Making::Stores),
        }
    }

    /// One line about the figure.
    pub fn title(&self) -> &'static str {
        match self.making() {
            Ok(Making::Stores(figure)) => figure.about,
            Ok(Making::Structure(figure)) => figure.about,
            Ok(Making::Files(figure)) => figure.about,
            Err(_) => "",
        }
    }

    /// What the paper says besides its numbers.
    pub fn says(&self) -> &'static str {
        match self.making() {
            Ok(Making::Stores(figure)) => figure.says,
            _ => "",
        }
    }

    /// The claims with our numbers.
    ///
    /// # Errors
    /// [`Error::Meaningless`] if the lines of the outcome have no number for one of them: a claim
    /// is never left out in silence.
    pub fn verdicts(&self, outcome: &Outcome) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = self.by_figures(outcome);
        for claim in self.claims {
            let verdict = claim.verdict(outcome).ok_or_else(|| {
                Error::Meaningless(format!(
                    "figure {} has no number for \"{}, {}\"",
                    self.figure, claim.says, claim.case
                ))
            })?;
            verdicts.push(verdict);
        }
        Ok(verdicts)
    }

    /// Numbers that the figures themselves have from the paper, of targets of ours.
    fn by_figures(&self, outcome: &Outcome) -> Vec<Verdict> {
        let names = std::iter::once(self.figure).chain(self.tables.iter().copied());
        let figures = names.filter_map(|name| Figure::named(name).ok());
        let besides = figures.flat_map(|figure| {
            let is_ours = move |beside: &Beside| figure.targets.contains(&beside.paper.target);
            figure.beside(&outcome.results).into_iter().filter(is_ours)
        });
        let verdict = |beside: Beside| {
            let (unit, rule) = match beside.paper.measure {
                Measure::OpsPerS => (Unit::PerSecond, Rule::AtLeast),
                Measure::WaWithoutLog => (Unit::Times, Rule::AtMost),
                Measure::ReadP99 => (Unit::Micros, Rule::AtMost),
            };
            let claim = Claim {
                says: beside.paper.measure.says(),
                case: beside.paper.workload,
                unit,
                paper: beside.paper.value,
                // It is in the verdict already.
                ours: Ours::Phases(|_| None),
                rule,
                why: "",
            };
            // Nothing is that fast or writes nothing: the run ended before there was something.
            let median = beside.ours.median;
            let ours = if median > 0.0 { median } else { f64::NAN };
            let not_run = None;
            Verdict {
                claim,
                ours,
                not_run,
            }
        };
        besides.map(verdict).collect()
    }
}

/// Whether a scale is one.
///
/// # Errors
/// [`Error::Request`] unless it is a number above 0.
pub fn check_scale(scale: f64) -> Result<(), Error> {
    if scale > 0.0 && scale.is_finite() {
        return Ok(());
    }
    let sentence = format!("a scale of {scale} is not above 0");
    Err(Error::Request(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each claim about a structure or files finds its number in the figure as it is.
    #[test]
    fn every_claim_about_a_structure_has_its_number() {
        let dir = tempfile::tempdir().unwrap();
        for entry in ENTRIES {
            let lines = match entry.making().unwrap() {
                Making::Structure(figure) => figure.lines(0.000_1).unwrap(),
                Making::Files(figure) => figure.lines(0.000_1, dir.path()).unwrap(),
                Making::Stores(_) => continue,
            };
            let outcome = Outcome {
                lines,
                ..Outcome::default()
            };
            let verdicts = entry.verdicts(&outcome).unwrap();
            assert_eq!(verdicts.len(), entry.claims.len(), "{}", entry.figure);
            for curve in (entry.curves)(&outcome) {
                let is_drawn = |line: &Line| line.points.len() > 1;
                assert!(curve.lines.iter().all(is_drawn), "{}", curve.title);
            }
        }
    }

    #[test]
    fn every_figure_is_listed_once_in_the_order_of_the_papers() {
        let mut names: Vec<&str> = Vec::new();
        let mut sources: Vec<Source> = Vec::new();
        for entry in ENTRIES {
            names.extend([entry.figure].iter().chain(entry.tables));
            if sources.last() != Some(&entry.source) {
                assert!(
                    !sources.contains(&entry.source),
                    "{} is apart",
                    entry.figure
                );
                sources.push(entry.source);
            }
            assert!(entry.part > 0.0 && entry.part <= 1.0);
            assert!(!entry.title().is_empty() && !entry.about.is_empty());
        }
        let figures = crate::figure::FIGURES.iter().map(|figure| figure.name);
        let structures = crate::structure::STRUCTURE_FIGURES
            .iter()
            .map(|figure| figure.name);
        let files = crate::files::FILE_FIGURES.iter().map(|figure| figure.name);
        for name in figures.chain(structures).chain(files) {
            let count = names.iter().filter(|listed| **listed == name).count();
            assert_eq!(count, 1, "{name}");
        }
    }

    /// A table made of a figure's runs is one whose runs are no others.
    #[test]
    fn tables_need_no_runs_of_their_own() {
        for entry in ENTRIES {
            for table in entry.tables {
                let (table, figure) = (Figure::named(table).unwrap(), entry.making().unwrap());
                let Making::Stores(figure) = figure else {
                    panic!("{} has no runs", entry.figure);
                };
                assert!(std::ptr::eq(table.parts, figure.parts), "{}", entry.figure);
                let is_run = |target: &&'static str| figure.targets.contains(target);
                assert!(table.targets.iter().all(is_run));
            }
        }
    }

    #[test]
    fn a_name_leads_to_its_entry_and_a_scale_to_its_part() {
        assert_eq!(Entry::named("table-2.1").unwrap().figure, "2.8");
        let sentence = Entry::named("7").unwrap_err().to_string();
        assert!(
            sentence.contains("named 7; there are 2.3, 2.6"),
            "{sentence}"
        );
        let entry = Entry::named("2.8").unwrap();
        assert!((entry.part_at(0.5) - entry.part / 2.0).abs() < 1e-12);
        assert!((entry.part_at(1e9) - 1.0).abs() < 1e-12);
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(check_scale(scale).is_err(), "{scale}");
        }
    }

    /// A store that flushed nothing has written nothing, which is no amplification to boast of.
    #[test]
    fn a_bound_does_not_hold_by_what_was_not_measured() {
        let entry = Entry::named("2.6").unwrap();
        let told = |wa_without_log| {
            let result = crate::result::PhaseResult {
                target: "wip".to_owned(),
                workload: "fillrandom uniform".to_owned(),
                wa_without_log: Some(wa_without_log),
                ..crate::page::sample::empty()
            };
            let outcome = Outcome {
                results: vec![result],
                ..Outcome::default()
            };
            let verdicts = entry.verdicts(&outcome).unwrap();
            let is_meant = |verdict: &&Verdict| verdict.claim.rule == Rule::AtMost;
            verdicts.iter().find(is_meant).unwrap().answer()
        };
        assert_eq!(
            [0.0, 1.0, 9.0].map(told),
            ["too short to tell", "yes", "no"]
        );
    }

    /// What the paper has for a peer is no claim about ours, though the peer was run.
    #[test]
    fn numbers_of_peers_are_no_claims() {
        let of = |target: &str| crate::result::PhaseResult {
            target: target.to_owned(),
            workload: "fillrandom zipfian".to_owned(),
            ops_per_s: 1e6,
            ..crate::page::sample::empty()
        };
        let entry = Entry::named("flexdb").unwrap();
        let claims = |results| {
            let outcome = Outcome {
                results,
                ..Outcome::default()
            };
            entry.verdicts(&outcome).unwrap().len() - entry.claims.len()
        };
        assert_eq!(claims(vec![of("flex")]), 1);
        assert_eq!(claims(vec![of("flex"), of("rocksdb")]), 1);
    }

    #[test]
    fn a_claim_without_a_number_is_an_error() {
        let entry = Entry::named("3.1").unwrap();
        let sentence = entry.verdicts(&Outcome::default()).unwrap_err().to_string();
        assert!(
            sentence.contains("figure 3.1 has no number for"),
            "{sentence}"
        );
    }
}
