//! Mutants: media that leave out a flush or a fence, which the explorer must catch.
//!
//! Flushes and fences change nothing that a running program sees, so a run in which one is left
//! out is the same run with that event taken out of its trace. A mutant takes out all flushes, or
//! all fences, of one place in the source, or those with one number within each operation of a
//! kind.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::path::Path;

use super::report::Violation;
use crate::pmem::trace::{TraceEvent, TraceStep};

/// What is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The flushes, or the fences, of a place in the source.
    Place(Location<'static>, Barrier),
    /// The flush, or the fence, with this number in each operation of a kind, counted from 0.
    Number(&'static str, usize, Barrier),
}

/// What a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Barrier {
    /// A flush of a line.
    Flush,
    /// A fence.
    Fence,
}

impl Barrier {
    /// What a step is, if it is either.
    pub(super) fn of(step: TraceStep<'_>) -> Option<Barrier> {
        match step {
            TraceStep::Flush { .. } => Some(Barrier::Flush),
            TraceStep::Fence => Some(Barrier::Fence),
            _ => None,
        }
    }
}

/// Flushes and fences since the operation began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BarrierCount {
    flushes: usize,
    fences: usize,
}

impl BarrierCount {
    /// Follows an event, and numbers it if it is a flush or a fence.
    pub(super) fn number(&mut self, step: TraceStep<'_>) -> Option<usize> {
        if let TraceStep::Begin { .. } = step {
            *self = BarrierCount::default();
        }
        let count = match Barrier::of(step)? {
            Barrier::Flush => &mut self.flushes,
            Barrier::Fence => &mut self.fences,
        };
        *count += 1;
        Some(*count - 1)
    }
}

impl Mutant {
    /// Whether this event of the run (level 0) or of a recovery from it is left out; `kind` is
    /// that of the operation, and `count` has followed the events before.
    pub(super) fn removes(
        &self,
        event: &TraceEvent<'_>,
        level: u32,
        kind: &str,
        count: &mut BarrierCount,
    ) -> bool {
        let number = count.number(event.step);
        match self {
            Mutant::Place(place, barrier) => {
                Barrier::of(event.step) == Some(*barrier) && event.site == place
            }
            Mutant::Number(name, nth, barrier) => {
                level == 0
                    && Barrier::of(event.step) == Some(*barrier)
                    && *name == kind
                    && number == Some(*nth)
            }
        }
    }
}

impl Mutant {
    /// What is left out, by file, function and text of the line instead of by numbers, which change
    /// with every edit: for lists that are checked in. The sources are looked for below `root`.
    pub fn in_source(&self, root: &Path) -> String {
        let Mutant::Place(place, barrier) = self else {
            return self.to_string();
        };
        let Ok(source) = std::fs::read_to_string(root.join(place.file())) else {
            return self.to_string();
        };
        let lines: Vec<&str> = source
            .lines()
            .take(place.line() as usize)
            .map(str::trim)
            .collect();
        let function = lines
            .iter()
            .rposition(|line| name_of_function(line).is_some());
        let from = function.unwrap_or(0);
        let name = name_of_function(lines.get(from).unwrap_or(&"")).unwrap_or("");
        let text = lines.last().unwrap_or(&"");
        let file = place.file().split_once("src/").map_or("", |(_, file)| file);
        let same = lines[from..].iter().filter(|line| *line == text).count();
        let number = if same > 1 {
            format!(", number {same}")
        } else {
            String::new()
        };
        format!("{barrier} in {name} of {file}: {text}{number}")
    }
}

/// The name of the function that a line of source begins to declare.
fn name_of_function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_declaration = before.split(' ').all(|word| {
        word.is_empty() || word == "const" || word == "unsafe" || word.starts_with("pub")
    });
    let end = rest.find(['(', '<'])?;
    is_declaration.then(|| &rest[..end])
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Barrier::Flush => "flush",
            Barrier::Fence => "fence",
        })
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mutant::Place(place, barrier) => {
                let (file, line, column) = (place.file(), place.line(), place.column());
                write!(f, "{barrier} at {file}:{line}:{column}")
            }
            Mutant::Number(kind, number, barrier) => write!(f, "{barrier} {number} of {kind}"),
        }
    }
}

/// A mutant and how it fared.
#[derive(Clone, Debug)]
pub struct MutantOutcome {
    /// The mutant.
    pub mutant: Mutant,
    /// The first image that gave it away; `None` if it survived.
    pub caught: Option<Violation>,
    /// Images that were checked for it.
    pub images: u64,
}

/// All mutants of some runs.
#[derive(Clone, Debug, Default)]
pub struct MutantReport {
    /// Each of them.
    pub tried: Vec<MutantOutcome>,
}

impl MutantReport {
    /// Those that no image gave away.
    pub fn survivors(&self) -> impl Iterator<Item = &Mutant> {
        let survived = self.tried.iter().filter(|tried| tried.caught.is_none());
        survived.map(|tried| &tried.mutant)
    }

    /// Compares the survivors with a list of those that are known: each by its name
    /// ([`Mutant::in_source`]) and with the reason why nothing gives it away.
    ///
    /// # Errors
    /// Tells of survivors that are not in the list, and of names in the list that did not survive.
    pub fn compare_survivors(&self, root: &Path, known: &[(&str, &str)]) -> Result<(), String> {
        let survivors: BTreeSet<String> = self
            .survivors()
            .map(|mutant| mutant.in_source(root))
            .collect();
        let known: BTreeSet<String> = known.iter().map(|(name, _)| (*name).to_owned()).collect();
        if survivors == known {
            return Ok(());
        }
        let mut text = String::from("the survivors are not those that are known:\n");
        for survivor in survivors.difference(&known) {
            text.push_str(&format!("  survived, and is not known to: {survivor}\n"));
        }
        for missing in known.difference(&survivors) {
            text.push_str(&format!("  is known to survive, and did not: {missing}\n"));
        }
        Err(text)
    }

    /// How many were given away.
    pub fn caught(&self) -> usize {
        self.tried.len() - self.survivors().count()
    }
}

impl fmt::Display for MutantReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} of {} mutants caught",
            self.caught(),
            self.tried.len()
        )?;
        for tried in &self.tried {
            let (mutant, images) = (&tried.mutant, tried.images);
            match &tried.caught {
                Some(violation) => {
                    let why: String = violation.message.chars().take(60).collect();
                    writeln!(f, "  caught    {mutant}, {images} images: {why}")?;
                }
                None => writeln!(f, "  SURVIVED  {mutant}, {images} images")?,
            }
        }
        Ok(())
    }
}
