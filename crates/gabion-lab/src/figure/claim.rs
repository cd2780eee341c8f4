//! Claims of a paper: each with the place of our number for it, and the verdict.
//!
//! A claim about one structure names a number among the rows of its figure, so the overview can say
//! nothing that the figure does not. A claim about a store is computed from the results of its
//! phases.
//!
//! A rule is as wide as the claim. What is good is bounded on one side: ours may be better, and
//! where it is twice as good or more the verdict says so, for then something else than the paper's
//! cause may be at work. A gain must be a good part of the paper's. What does not measure the same
//! here is not judged at all.

use super::outcome::Outcome;
use crate::Error;
use crate::result::PhaseResult;
use crate::rows::Cell;
use crate::text::{Unit, percent};

/// One number of a paper, and ours for it.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// What is claimed; claims with the same words share a plot.
    pub says: &'static str,
    /// Of what: a row of the plot.
    pub case: &'static str,
    /// What the number counts.
    pub unit: Unit,
    /// The paper's number; 1 or 0 where the paper has an order and no number.
    pub paper: f64,
    /// Ours.
    pub ours: Ours,
    /// When the claim holds.
    pub rule: Rule,
    /// Why it does not hold or is not comparable, where that is known; empty otherwise.
    pub why: &'static str,
}

/// Where our number is.
#[derive(Clone, Copy, Debug)]
pub enum Ours {
    /// In a row of the figure.
    Cell(Cell),
    /// One number of the figure over another.
    Ratio(Cell, Cell),
    /// A change in per cent, as the factor that it is.
    Change(Cell),
    /// Computed from the results of phases.
    Phases(fn(&[PhaseResult]) -> Option<f64>),
    /// The same, where one of the phases is of a store that not every program is built with.
    Beside(&'static str, fn(&[PhaseResult]) -> Option<f64>),
}

/// When a claim holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// It says how something is: ours is the paper's up to this part of it, more or less.
    Near(f64),
    /// Less is better: ours is above the paper's by this part of it at most.
    AtMost(f64),
    /// More is better: ours is below the paper's by this part of it at most.
    AtLeast(f64),
    /// The paper's is a change, away from 1: ours goes the same way, by [`Rule::SHARE_MIN`] of the
    /// paper's and by more than [`Rule::DEAD_BAND`].
    Change,
    /// The two do not measure the same, and are not judged.
    Incomparable,
}

/// A claim with our number.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The claim.
    pub claim: Claim,
    /// Our number; none that is finite if the run was too short to tell, or if it was not run.
    pub ours: f64,
    /// Why it was not run; `None` if it was.
    pub not_run: Option<String>,
}

/// What is said of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// It holds.
    Holds,
    /// It holds, and ours is better than the paper's by a factor of [`Rule::MUCH`] or more.
    HoldsBetter,
    /// The paper's number and ours do not measure the same.
    NotComparable,
    /// It does not hold.
    DoesNotHold,
    /// The run ended before there was a number.
    TooShort,
    /// This program or this system cannot run it.
    NotRun,
}

/// Why nothing stands beside a store that is not there.
const WITHOUT_PEERS: &str = "The program was built without the peer that the paper compares with.";

impl Rule {
    /// The least part of a paper's change that ours must have.
    pub const SHARE_MIN: f64 = 0.5;
    /// A change by so little is none, whatever the paper's is.
    pub const DEAD_BAND: f64 = 0.02;
    /// A number or a change that is better than the paper's by this factor is much better.
    pub const MUCH: f64 = 2.0;

    /// What is said of these two numbers.
    fn judge(self, paper: f64, ours: f64) -> ClaimResult {
        let is_order = paper == 1.0 || paper == 0.0;
        let (holds, is_much) = match self {
            Rule::Near(part) => ((ours - paper).abs() <= part * paper.abs(), false),
            Rule::AtMost(part) => (ours <= paper * (1.0 + part), ours * Rule::MUCH <= paper),
            Rule::AtLeast(part) => (ours >= paper * (1.0 - part), ours >= paper * Rule::MUCH),
            Rule::Change => {
                // Towards the paper's side, so that a change the other way is below 0.
                let change = (ours - 1.0) * (paper - 1.0).signum();
                let claimed = (paper - 1.0).abs();
                let is_change = change > Rule::DEAD_BAND && change >= Rule::SHARE_MIN * claimed;
                (is_change, change >= Rule::MUCH * claimed)
            }
            Rule::Incomparable => return ClaimResult::NotComparable,
        };
        match holds {
            true if is_much && !is_order => ClaimResult::HoldsBetter,
            true => ClaimResult::Holds,
            false => ClaimResult::DoesNotHold,
        }
    }

    /// How far ours may be from the paper's, in a few words; empty if not at all.
    pub fn band(self) -> String {
        match self {
            Rule::Near(part) => format!("± {}", percent(part)),
            Rule::AtMost(part) if part > 0.0 => format!("+ {}", percent(part)),
            Rule::AtLeast(part) if part > 0.0 => format!("− {}", percent(part)),
            Rule::Change => format!("{} of the change", percent(Rule::SHARE_MIN)),
            Rule::AtMost(_) | Rule::AtLeast(_) | Rule::Incomparable => String::new(),
        }
    }
}

impl ClaimResult {
    /// All of them, in the order in which they are counted.
    pub const ALL: [ClaimResult; 6] = [
        ClaimResult::Holds,
        ClaimResult::HoldsBetter,
        ClaimResult::NotComparable,
        ClaimResult::DoesNotHold,
        ClaimResult::TooShort,
        ClaimResult::NotRun,
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            ClaimResult::Holds => "holds",
            ClaimResult::HoldsBetter => "holds better",
            ClaimResult::NotComparable => "not comparable here",
            ClaimResult::DoesNotHold => "does not hold",
            ClaimResult::TooShort => "too short to tell",
            ClaimResult::NotRun => "not run",
        }
    }

    /// Whether the claim holds.
    pub fn holds(self) -> bool {
        matches!(self, ClaimResult::Holds | ClaimResult::HoldsBetter)
    }
}

impl Claim {
    /// Our number for this claim in what came of its figure.
    ///
    /// # Errors
    /// [`Error::Meaningless`] if the figure has no row or column of that name.
    pub fn verdict(&self, outcome: &Outcome) -> Result<Verdict, Error> {
        let mut not_run = None;
        let mut cell = |cell: Cell| -> Result<f64, Error> {
            let (row, number) = cell.find(&outcome.tables)?;
            if number.is_none() {
                not_run = Some(row.note.clone());
            }
            Ok(number.unwrap_or(f64::NAN))
        };
        let is_run = |target: &str| outcome.results.iter().any(|result| result.target == target);
        let ours = match self.ours {
            Ours::Cell(one) => cell(one)?,
            Ours::Ratio(one, other) => cell(one)? / cell(other)?,
            Ours::Change(percent) => 1.0 + cell(percent)? / 100.0,
            Ours::Phases(compute) | Ours::Beside(_, compute) => {
                compute(&outcome.results).unwrap_or(f64::NAN)
            }
        };
        if let Ours::Beside(peer, _) = self.ours
            && !is_run(peer)
        {
            not_run = Some(WITHOUT_PEERS.to_owned());
        }
        Ok(Verdict {
            claim: *self,
            ours,
            not_run,
        })
    }

    /// The paper's number with what the rule makes of it.
    pub fn paper_text(&self) -> String {
        let number = self.unit.text(self.paper);
        match self.rule {
            Rule::Near(_) | Rule::Change | Rule::Incomparable => number,
            Rule::AtMost(_) => format!("at most {number}"),
            Rule::AtLeast(_) => format!("at least {number}"),
        }
    }
}

impl Verdict {
    /// What is said of the claim.
    pub fn answer(&self) -> ClaimResult {
        match &self.not_run {
            Some(_) => ClaimResult::NotRun,
            None if !self.ours.is_finite() => ClaimResult::TooShort,
            None => self.claim.rule.judge(self.claim.paper, self.ours),
        }
    }

    /// Why it was not judged, or does not hold; empty if it holds, or if nobody knows.
    pub fn why(&self) -> &str {
        match (self.answer(), &self.not_run) {
            (_, Some(why)) => why,
            (ClaimResult::TooShort, _) => "The run was too short to tell.",
            (ClaimResult::NotComparable | ClaimResult::DoesNotHold, _) => self.claim.why,
            (ClaimResult::Holds | ClaimResult::HoldsBetter | ClaimResult::NotRun, _) => "",
        }
    }

    /// How much more ours is than the paper's, as a part of the paper's.
    pub fn apart(&self) -> f64 {
        self.ours / self.claim.paper - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Table, cell, column};

    fn outcome() -> Outcome {
        let columns = [column("written", "", 0), column("change", "%", 1)];
        let mut table = Table::new("", &["index", "workload"], columns);
        table.row(&["P-CLHT", "load"], [100.0, -30.5]);
        table.row(&["P-CLHT", "A"], [50.0, 6.0]);
        let note = "no way".to_owned();
        table.row_with(&["file", "A"], [f64::NAN, f64::INFINITY], note);
        Outcome {
            tables: vec![table],
            ..Outcome::default()
        }
    }

    fn claim(paper: f64, rule: Rule, ours: Ours) -> Claim {
        Claim {
            says: "says",
            case: "case",
            unit: Unit::Count,
            paper,
            ours,
            rule,
            why: "for this",
        }
    }

    const LOAD: Cell = cell(&["P-CLHT", "load"], "written");
    const A: Cell = cell(&["P-CLHT", "A"], "written");
    const ABSENT: Cell = cell(&["file", "A"], "written");

    /// Each rule at its borders.
    #[test]
    fn a_claim_holds_by_its_rule() {
        use ClaimResult::{DoesNotHold, Holds, HoldsBetter, NotComparable};
        for (paper, rule, ours, answer) in [
            (2.0, Rule::Near(0.15), 2.29, Holds),
            (2.0, Rule::Near(0.15), 2.31, DoesNotHold),
            (2.0, Rule::Near(0.15), 1.71, Holds),
            (2.0, Rule::Near(0.15), 1.69, DoesNotHold),
            (2.0, Rule::AtMost(0.0), 2.0, Holds),
            (2.0, Rule::AtMost(0.0), 2.001, DoesNotHold),
            (2.0, Rule::AtMost(0.15), 2.299, Holds),
            (2.0, Rule::AtMost(0.15), 2.301, DoesNotHold),
            (2.0, Rule::AtMost(0.15), 1.001, Holds),
            (2.0, Rule::AtMost(0.15), 1.0, HoldsBetter),
            (2.0, Rule::AtLeast(0.0), 2.0, Holds),
            (2.0, Rule::AtLeast(0.0), 1.999, DoesNotHold),
            (2.0, Rule::AtLeast(0.15), 1.701, Holds),
            (2.0, Rule::AtLeast(0.15), 1.699, DoesNotHold),
            (4.3, Rule::AtLeast(0.0), 8.59, Holds),
            (4.3, Rule::AtLeast(0.0), 8.6, HoldsBetter),
            (4.3, Rule::AtLeast(0.0), 38.0, HoldsBetter),
            // An order has no number that could be exceeded.
            (1.0, Rule::AtLeast(0.0), 38.0, Holds),
            (1.0, Rule::AtMost(0.0), 0.01, Holds),
            (0.0, Rule::AtMost(0.0), 0.0, Holds),
            (1.24, Rule::Change, 1.001, DoesNotHold),
            (1.24, Rule::Change, 1.119, DoesNotHold),
            (1.24, Rule::Change, 1.121, Holds),
            (1.24, Rule::Change, 1.479, Holds),
            (1.24, Rule::Change, 1.481, HoldsBetter),
            (1.24, Rule::Change, 0.7, DoesNotHold),
            (0.7, Rule::Change, 0.851, DoesNotHold),
            (0.7, Rule::Change, 0.849, Holds),
            (0.7, Rule::Change, 0.399, HoldsBetter),
            (0.7, Rule::Change, 1.3, DoesNotHold),
            // Half of a small change would be within what is none.
            (0.98, Rule::Change, 0.981, DoesNotHold),
            (0.98, Rule::Change, 0.979, Holds),
            (365.0, Rule::Incomparable, 1.0, NotComparable),
        ] {
            let verdict = Verdict {
                claim: claim(paper, rule, Ours::Cell(LOAD)),
                ours,
                not_run: None,
            };
            assert_eq!(verdict.answer(), answer, "{paper} {rule:?} {ours}");
            let is_told = !answer.holds();
            assert_eq!(
                verdict.why() == "for this",
                is_told,
                "{paper} {rule:?} {ours}"
            );
        }
        let verdict = Verdict {
            claim: claim(2.0, Rule::AtMost(0.0), Ours::Cell(LOAD)),
            ours: 3.0,
            not_run: None,
        };
        assert!((verdict.apart() - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_verdict_needs_its_number() {
        let ours = |ours| {
            let verdict = claim(1.0, Rule::AtMost(0.0), ours).verdict(&outcome());
            verdict.map(|verdict| verdict.ours).ok()
        };
        assert_eq!(ours(Ours::Ratio(LOAD, A)), Some(2.0));
        let change = ours(Ours::Change(cell(&["P-CLHT", "load"], "change"))).unwrap();
        assert!((change - 0.695).abs() < 1e-9, "{change}");
        assert_eq!(ours(Ours::Cell(cell(&["P-CLHT", "B"], "written"))), None);
        assert_eq!(
            ours(Ours::Ratio(LOAD, cell(&["P-CLHT", "A"], "read"))),
            None
        );
        let count = ours(Ours::Phases(|results| Some(results.len() as f64)));
        assert_eq!(count, Some(0.0));
        // Phases may be too short; that does not hold, and is told as what it is.
        for too_short in [
            Ours::Phases(|_| None),
            Ours::Phases(|_| Some(f64::INFINITY)),
        ] {
            let verdict = claim(1.2, Rule::Change, too_short).verdict(&outcome());
            let verdict = verdict.unwrap();
            assert_eq!(verdict.answer(), ClaimResult::TooShort);
            assert!(verdict.why().contains("too short"));
        }
    }

    /// What a program or a system cannot do is told as that, and not as a claim that fails.
    #[test]
    fn what_was_not_run_is_neither_held_nor_broken() {
        let of = |target: &str, ops_per_s| PhaseResult {
            target: target.to_owned(),
            ops_per_s,
            ..crate::page::sample::empty()
        };
        let both = vec![of("flex", 6.0), of("rocksdb", 2.0)];
        let compute = |results: &[PhaseResult]| {
            let [one, other] = results else { return None };
            Some(one.ops_per_s / other.ops_per_s)
        };
        let told = |results: &[PhaseResult]| {
            let outcome = Outcome {
                results: results.to_vec(),
                ..Outcome::default()
            };
            let ours = Ours::Beside("rocksdb", compute);
            let claim = claim(2.0, Rule::AtLeast(0.0), ours);
            claim.verdict(&outcome).unwrap()
        };
        assert_eq!(told(&both).answer(), ClaimResult::Holds);
        let absent = told(&both[..1]);
        assert_eq!(absent.answer(), ClaimResult::NotRun);
        assert!(absent.why().contains("built without"), "{}", absent.why());
        // It was run, but too shortly.
        assert_eq!(told(&both[1..]).answer(), ClaimResult::TooShort);

        let claim = claim(1.0, Rule::AtLeast(0.0), Ours::Ratio(LOAD, ABSENT));
        let absent = claim.verdict(&outcome()).unwrap();
        assert_eq!(
            (absent.answer(), absent.why()),
            (ClaimResult::NotRun, "no way")
        );
    }

    #[test]
    fn the_paper_s_number_says_how_it_is_meant() {
        let text = |paper, rule| {
            let claim = claim(paper, rule, Ours::Cell(LOAD));
            (claim.paper_text(), rule.band())
        };
        let told = |number: &str, band: &str| (number.to_owned(), band.to_owned());
        assert_eq!(text(2.5, Rule::Near(0.1)), told("2.50", "± 10 %"));
        assert_eq!(text(2.5, Rule::AtMost(0.0)), told("at most 2.50", ""));
        assert_eq!(
            text(2.5, Rule::AtLeast(0.15)),
            told("at least 2.50", "− 15 %")
        );
        assert_eq!(text(0.5, Rule::Change), told("0.50", "50 % of the change"));
    }
}
