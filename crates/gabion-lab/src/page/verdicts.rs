//! The opening of a reproduction's page: how many claims hold, and those that do not, each with its
//! reason and the command that shows it.

use std::fmt::{self, Write};

use super::format::escaped;
use crate::Error;
use crate::figure::{Claim, ClaimResult, Figure, Outcome, Verdict, figures, named};

/// A figure with what came of it and what that says about the claims.
pub(super) struct Shown<'a> {
    pub(super) figure: &'static Figure,
    pub(super) outcome: &'a Outcome,
    pub(super) verdicts: Vec<Verdict>,
}

/// How many claims have each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score([usize; ClaimResult::ALL.len()]);

impl Score {
    pub(super) fn of(shown: &[Shown<'_>]) -> Score {
        let verdicts = || shown.iter().flat_map(|shown| &shown.verdicts);
        let count = |answer| {
            verdicts()
                .filter(|verdict| verdict.answer() == answer)
                .count()
        };
        Score(ClaimResult::ALL.map(count))
    }

    /// Claims with this answer.
    pub fn count(&self, answer: ClaimResult) -> usize {
        let counts = self.counts();
        counts
            .filter(|(one, _)| *one == answer)
            .map(|(_, count)| count)
            .sum()
    }

    /// All claims.
    pub fn claims(&self) -> usize {
        self.0.iter().sum()
    }

    /// The answers that some claim has, with their counts.
    pub fn text(&self) -> String {
        let told = self.counts().filter(|(_, count)| *count > 0);
        let told: Vec<String> = told
            .map(|(answer, count)| format!("{}: {count}", answer.name()))
            .collect();
        told.join("; ")
    }

    fn counts(&self) -> impl Iterator<Item = (ClaimResult, usize)> {
        ClaimResult::ALL.into_iter().zip(self.0)
    }
}

/// Counts the claims of those figures that are there.
///
/// # Errors
/// As [`super::reproduction::page`].
pub fn score(outcomes: &[Outcome]) -> Result<Score, Error> {
    Ok(Score::of(&shown(outcomes)?))
}

/// The figures that are there, in the order of the papers.
pub(super) fn shown(outcomes: &[Outcome]) -> Result<Vec<Shown<'_>>, Error> {
    for outcome in outcomes {
        named(&outcome.figure)?;
    }
    let found = figures().filter_map(|figure| {
        let mut outcomes = outcomes.iter();
        let outcome = outcomes.find(|outcome| outcome.figure == figure.name)?;
        Some((figure, outcome))
    });
    let judged = |(figure, outcome): (&'static Figure, _)| {
        Ok(Shown {
            figure,
            outcome,
            verdicts: figure.verdicts(outcome)?,
        })
    };
    found.map(judged).collect()
}

/// The class of a claim with this answer.
pub(super) fn class(answer: ClaimResult) -> &'static str {
    match answer {
        ClaimResult::Holds | ClaimResult::HoldsBetter => "held",
        ClaimResult::DoesNotHold => "broken",
        ClaimResult::NotComparable | ClaimResult::TooShort | ClaimResult::NotRun => "absent",
    }
}

/// Claims by verdict, then those that do not hold.
pub(super) fn write(out: &mut String, shown: &[Shown<'_>]) -> fmt::Result {
    let score = Score::of(shown);
    writeln!(
        out,
        "<section id=\"verdicts\"><h2>Claims by verdict</h2>\n<div class=\"card\"><table \
         class=\"claims\">\n<tbody>"
    )?;
    for (answer, count) in score.counts() {
        // What all programs can run is run mostly, and long enough.
        let is_rare = matches!(answer, ClaimResult::TooShort | ClaimResult::NotRun);
        if count > 0 || !is_rare {
            writeln!(
                out,
                "<tr class=\"{}\"><th scope=\"row\" class=\"verdict\">{}</th><td>{count}</td></tr>",
                class(answer),
                answer.name()
            )?;
        }
    }
    writeln!(out, "</tbody></table></div></section>")?;
    if score.count(ClaimResult::DoesNotHold) > 0 {
        broken(out, shown)?;
    }
    Ok(())
}

/// Claims that do not hold.
fn broken(out: &mut String, shown: &[Shown<'_>]) -> fmt::Result {
    writeln!(
        out,
        "<section id=\"broken\"><h2>What does not hold</h2>\n<div class=\"card\"><div \
         class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Claims that do not hold\">\
         <table class=\"claims\">\n<thead><tr><th scope=\"col\">Claim</th><th scope=\"col\">Paper\
         </th><th scope=\"col\">Here</th><th scope=\"col\">Why, and what shows it</th></tr></thead>\
         \n<tbody>"
    )?;
    for one in shown {
        let command = one.figure.command(one.outcome.part);
        let verdicts = one.verdicts.iter();
        for verdict in verdicts.filter(|verdict| verdict.answer() == ClaimResult::DoesNotHold) {
            let Claim {
                says, case, unit, ..
            } = verdict.claim;
            writeln!(
                out,
                "<tr class=\"failed\"><th scope=\"row\">{} <small>{}</small></th><td>{}</td>\
                 <td>{}</td><td class=\"reason\">{} <code>{}</code></td></tr>",
                escaped(says),
                escaped(case),
                escaped(&verdict.claim.paper_text()),
                escaped(&unit.text(verdict.ours)),
                escaped(reason(verdict)),
                escaped(&command),
            )?;
        }
    }
    writeln!(out, "</tbody></table></div></div></section>")
}

/// Why a claim does not hold or was not judged.
pub(super) fn reason(verdict: &Verdict) -> &str {
    match verdict.why() {
        "" => "Why was not traced.",
        why => why,
    }
}
