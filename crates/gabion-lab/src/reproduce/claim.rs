//! What a paper claims, where our number for it is found, and when the claim counts as held.
//!
//! A claim about one structure is read off the lines that its figure shows, as a reader would do
//! it: so the overview can say nothing that the figure does not. A claim about a store is computed
//! from the results of its phases.

use crate::result::PhaseResult;
use crate::text::Unit;

use super::Outcome;

/// One number of a paper, and ours for it.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// What is claimed; claims with the same words share a plot.
    pub says: &'static str,
    /// Of what: a row of the plot.
    pub case: &'static str,
    /// What the number counts.
    pub unit: Unit,
    /// The paper's number.
    pub paper: f64,
    /// Ours.
    pub ours: Ours,
    /// When the claim holds.
    pub rule: Rule,
    /// Why it does not hold, where a measurement has told; empty otherwise.
    pub why: &'static str,
}

/// Where our number is.
#[derive(Clone, Copy, Debug)]
pub enum Ours {
    /// In the lines of a figure.
    Cell(Cell),
    /// One number of the lines over another.
    Ratio(Cell, Cell),
    /// A change in per cent in the lines, as the factor that it is.
    Change(Cell),
    /// Computed from the results of phases.
    Phases(fn(&[PhaseResult]) -> Option<f64>),
    /// The same, where one of the phases is of a store that not every program is built with.
    Beside(&'static str, fn(&[PhaseResult]) -> Option<f64>),
    /// One number of the lines over another that is there only where the system can do what it
    /// measures, with what is said where it cannot.
    RatioIfThere(Cell, Cell, &'static str),
}

/// A number in the lines of a figure: the one at `place` of those that follow the words of a row.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Words of the line from which on the row is looked for; empty for the first line.
    pub below: &'static str,
    /// The words of the row, with one space where the line has any number of them.
    pub row: &'static str,
    /// Which of the numbers behind them, from 0.
    pub place: usize,
    /// It is the last such row, not the first one.
    pub is_last: bool,
}

/// When a claim holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Ours is the paper's up to this part of it, more or less.
    Near(f64),
    /// Ours is not above the paper's.
    AtMost,
    /// Ours is not below the paper's.
    AtLeast,
    /// Ours is on the same side of 1 as the paper's: what grows there grows here.
    SameWay,
}

/// A claim with our number.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The claim.
    pub claim: Claim,
    /// Our number; none that is finite if the run was too short to tell, or if it was not run.
    pub ours: f64,
    /// Why it was not run; `None` if it was.
    pub not_run: Option<&'static str>,
}

/// Why nothing stands beside a store that is not there.
const WITHOUT_PEERS: &str = "The program was built without the peer that the paper compares with.";

impl Claim {
    /// Our number for this claim in what came of its figure; `None` if its lines do not have it.
    pub fn verdict(&self, outcome: &Outcome) -> Option<Verdict> {
        let cell = |cell: &Cell| cell.read(&outcome.lines);
        let is_run = |target: &str| outcome.results.iter().any(|result| result.target == target);
        let mut not_run = None;
        let ours = match &self.ours {
            Ours::Cell(one) => cell(one)?,
            Ours::Ratio(one, other) => cell(one)? / cell(other)?,
            Ours::RatioIfThere(one, other, why) => {
                let (one, other) = (cell(one)?, cell(other));
                not_run = other.is_none().then_some(*why);
                other.map_or(f64::NAN, |other| one / other)
            }
            Ours::Change(percent) => 1.0 + cell(percent)? / 100.0,
            Ours::Phases(compute) | Ours::Beside(_, compute) => {
                compute(&outcome.results).unwrap_or(f64::NAN)
            }
        };
        if let Ours::Beside(peer, _) = self.ours
            && !is_run(peer)
        {
            not_run = Some(WITHOUT_PEERS);
        }
        Some(Verdict {
            claim: *self,
            ours,
            not_run,
        })
    }

    /// The paper's number with what the rule makes of it.
    pub fn paper_text(&self) -> String {
        let number = self.unit.text(self.paper);
        match self.rule {
            Rule::Near(_) => number,
            Rule::AtMost => format!("at most {number}"),
            Rule::AtLeast => format!("at least {number}"),
            Rule::SameWay if self.paper < 1.0 => format!("{number}, less"),
            Rule::SameWay => format!("{number}, more"),
        }
    }
}

impl Verdict {
    /// Whether there is a number: a phase may have been too short for one.
    pub fn is_told(&self) -> bool {
        self.ours.is_finite()
    }

    /// Whether the claim holds here.
    pub fn holds(&self) -> bool {
        let (ours, paper) = (self.ours, self.claim.paper);
        if !self.is_told() {
            return false;
        }
        match self.claim.rule {
            Rule::Near(part) => (ours - paper).abs() <= part * paper.abs(),
            Rule::AtMost => ours <= paper,
            Rule::AtLeast => ours >= paper,
            Rule::SameWay => ours.total_cmp(&1.0) == paper.total_cmp(&1.0),
        }
    }

    /// The answer in a word or two.
    pub fn answer(&self) -> &'static str {
        match (self.not_run, self.holds()) {
            (Some(_), _) => "not run",
            (None, true) => "yes",
            (None, false) if self.is_told() => "no",
            (None, false) => "too short to tell",
        }
    }

    /// Why it does not hold, or was not run; empty if nobody knows.
    pub fn why(&self) -> &'static str {
        match self.not_run {
            Some(why) => why,
            None if self.is_told() => self.claim.why,
            None => "The run was too short to tell.",
        }
    }

    /// How much more ours is than the paper's, as a part of the paper's.
    pub fn apart(&self) -> f64 {
        self.ours / self.claim.paper - 1.0
    }
}

impl Cell {
    fn read(&self, lines: &[String]) -> Option<f64> {
        let numbers = self.numbers(lines)?;
        numbers.get(self.place).copied()
    }

    /// All numbers behind the words of the row.
    pub fn numbers(&self, lines: &[String]) -> Option<Vec<f64>> {
        let lines: Vec<String> = lines
            .iter()
            .flat_map(|line| line.lines())
            .map(plain)
            .collect();
        let first = lines.iter().position(|line| line.contains(self.below))?;
        let mut rows = lines[first..]
            .iter()
            .filter_map(|line| behind(line, self.row));
        let row = match self.is_last {
            true => rows.next_back(),
            false => rows.next(),
        };
        row.map(numbers)
    }
}

/// `line` with one space between its words.
fn plain(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What follows `row` in `line`, if it stands there as words of its own.
fn behind<'a>(line: &'a str, row: &str) -> Option<&'a str> {
    let ends_word = row.ends_with(|last: char| last.is_alphanumeric());
    line.match_indices(row).find_map(|(at, _)| {
        let (before, rest) = (&line[..at], &line[at + row.len()..]);
        let begins = before.is_empty() || before.ends_with(' ');
        let ends = rest.is_empty() || rest.starts_with(' ') || !ends_word;
        (begins && ends).then_some(rest)
    })
}

/// The numbers in a text, signs before them included; what else it holds is passed over.
fn numbers(text: &str) -> Vec<f64> {
    let is_part = |c: char| !(c.is_ascii_digit() || ".+-".contains(c));
    let words = text.split(is_part).map(|word| word.trim_end_matches('.'));
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(below: &'static str, row: &'static str, place: usize) -> Cell {
        Cell {
            below,
            row,
            place,
            is_last: false,
        }
    }

    fn lines() -> Vec<String> {
        let text = "title, paper: 9\nreads\n   16:   100   50  2.0\nwrites\n   16:   7  8\n\
                    P-CLHT, FC      load     1.5\nP-CLHT          load     2.5    +6 %\n\
                    (a) loaded 0.60 (0.65): 1.11,  7; [12, 3]\n\
                    (a) loaded 0.74 (0.80): 1.74, 16; [10, 4]\nRB   -  -30.5   -    +1.0 %";
        vec!["heading".to_owned(), text.to_owned()]
    }

    fn claim(paper: f64, rule: Rule, ours: Ours) -> Claim {
        Claim {
            says: "says",
            case: "case",
            unit: Unit::Count,
            paper,
            ours,
            rule,
            why: "",
        }
    }

    #[test]
    fn numbers_are_found_by_the_words_before_them() {
        let lines = lines();
        let read = |below, row, place| cell(below, row, place).read(&lines);
        assert_eq!(read("reads", "16:", 2), Some(2.0));
        assert_eq!(read("writes", "16:", 0), Some(7.0));
        // A row's words are not the beginning of another row's.
        assert_eq!(read("", "P-CLHT load", 0), Some(2.5));
        assert_eq!(read("", "P-CLHT load", 1), Some(6.0));
        assert_eq!(read("", "P-CLHT, FC load", 0), Some(1.5));
        // Dashes stand for numbers that are not there.
        assert_eq!(read("", "RB", 0), Some(-30.5));
        assert_eq!(read("", "RB", 1), Some(1.0));
        assert_eq!(read("", "(a) loaded", 2), Some(1.11));
        let last = Cell {
            is_last: true,
            ..cell("", "(a) loaded", 2)
        };
        assert_eq!(last.read(&lines), Some(1.74));
        for (below, row, place) in [
            ("", "CLHT load", 0),
            ("", "P-CL", 0),
            ("nowhere", "16:", 0),
            ("", "16:", 3),
        ] {
            assert_eq!(read(below, row, place), None, "{below} {row} {place}");
        }
    }

    #[test]
    fn a_claim_holds_by_its_rule() {
        let of = |paper, rule, ours| Verdict {
            claim: claim(paper, rule, Ours::Cell(cell("", "", 0))),
            ours,
            not_run: None,
        };
        for (paper, rule, ours, holds) in [
            (2.0, Rule::Near(0.15), 2.29, true),
            (2.0, Rule::Near(0.15), 2.31, false),
            (2.0, Rule::Near(0.15), 1.71, true),
            (2.0, Rule::Near(0.15), 1.69, false),
            (2.0, Rule::AtMost, 2.0, true),
            (2.0, Rule::AtMost, 2.001, false),
            (2.0, Rule::AtLeast, 2.0, true),
            (2.0, Rule::AtLeast, 1.999, false),
            (0.7, Rule::SameWay, 0.99, true),
            (0.7, Rule::SameWay, 1.01, false),
            (1.3, Rule::SameWay, 5.0, true),
            (1.3, Rule::SameWay, 0.5, false),
        ] {
            let verdict = of(paper, rule, ours);
            assert_eq!(verdict.holds(), holds, "{paper} {rule:?} {ours}");
        }
        assert!((of(2.0, Rule::AtMost, 3.0).apart() - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_verdict_needs_its_number() {
        let outcome = Outcome {
            lines: lines(),
            ..Outcome::default()
        };
        let ours = |ours| {
            let verdict = claim(1.0, Rule::AtMost, ours).verdict(&outcome);
            verdict.map(|verdict| verdict.ours)
        };
        let (one, other) = (cell("reads", "16:", 0), cell("reads", "16:", 1));
        assert_eq!(ours(Ours::Ratio(one, other)), Some(2.0));
        let change = ours(Ours::Change(cell("", "RB", 0))).unwrap();
        assert!((change - 0.695).abs() < 1e-9, "{change}");
        assert_eq!(ours(Ours::Cell(cell("", "absent", 0))), None);
        assert_eq!(ours(Ours::Ratio(one, cell("", "absent", 0))), None);
        let count = ours(Ours::Phases(|results| Some(results.len() as f64)));
        assert_eq!(count, Some(0.0));
        // Phases may be too short; that does not hold, and is told as what it is.
        for too_short in [
            Ours::Phases(|_| None),
            Ours::Phases(|_| Some(f64::INFINITY)),
        ] {
            let verdict = claim(1.0, Rule::SameWay, too_short).verdict(&outcome);
            let verdict = verdict.unwrap();
            assert!(!verdict.is_told() && !verdict.holds());
            assert_eq!(verdict.answer(), "too short to tell");
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
            claim(2.0, Rule::AtLeast, ours).verdict(&outcome).unwrap()
        };
        assert_eq!(told(&both).answer(), "yes");
        let absent = told(&both[..1]);
        assert_eq!(absent.answer(), "not run");
        assert!(absent.why().contains("built without"), "{}", absent.why());
        assert!(!absent.holds() && !absent.is_told());
        // It was run, but too shortly.
        assert_eq!(told(&both[1..]).answer(), "too short to tell");

        let outcome = Outcome {
            lines: vec!["flex 6".to_owned(), "file not possible here".to_owned()],
            ..Outcome::default()
        };
        let ratio = |one, other| {
            let ours = Ours::RatioIfThere(cell("", one, 0), cell("", other, 0), "no way");
            claim(1.0, Rule::AtLeast, ours).verdict(&outcome)
        };
        let absent = ratio("flex", "file").unwrap();
        assert_eq!((absent.answer(), absent.why()), ("not run", "no way"));
        assert_eq!(ratio("flex", "flex").unwrap().answer(), "yes");
        assert!(
            ratio("file", "flex").is_none(),
            "a figure must have its own number"
        );
    }

    #[test]
    fn the_paper_s_number_says_how_it_is_meant() {
        let ours = Ours::Cell(cell("", "", 0));
        let text = |paper, rule| claim(paper, rule, ours).paper_text();
        assert_eq!(text(2.5, Rule::Near(0.1)), "2.50");
        assert_eq!(text(2.5, Rule::AtMost), "at most 2.50");
        assert_eq!(text(0.5, Rule::SameWay), "0.50, less");
    }
}
