//! The figures in the order of the papers, and what the papers claim about them.
//!
//! Parts of the papers' sizes are chosen so that all figures together take up to an hour on two
//! processors, and so that what a figure is about is still there: a log as long as the paper's, an
//! index that does not fit into its model's cache.

/// Rows of a plot: cases of the same claim, with the paper's numbers and where ours are.
macro_rules! claims {
    (@why) => {
        ""
    };
    (@why $why:expr) => {
        $why
    };
    ($($says:literal $unit:ident $rule:expr => [
        $($case:literal $paper:literal $ours:expr $(, $why:expr)?;)+
    ])+) => {
        &[$($($crate::figure::Claim {
            says: $says,
            case: $case,
            unit: $crate::text::Unit::$unit,
            paper: $paper,
            ours: $ours,
            rule: $rule,
            why: claims!(@why $($why)?),
        },)+)+]
    };
}

mod flex;
mod level;
mod scmkv;
mod sptree;
mod study;
mod turbohash;
mod wip;

use super::{Figure, Paper};
use crate::Error;

/// All papers with their figures.
pub static PAPERS: &[Paper] = &[
    wip::PAPER,
    turbohash::PAPER,
    sptree::PAPER,
    study::PAPER,
    flex::PAPER,
    level::PAPER,
    scmkv::PAPER,
];

/// All figures, in the order of the papers.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    PAPERS.iter().flat_map(|paper| paper.figures)
}

/// The figure that has that name, or a table of that name.
///
/// # Errors
/// [`Error::Request`] if there is none.
pub fn named(name: &str) -> Result<&'static Figure, Error> {
    let is_named = |figure: &&Figure| figure.name == name || figure.tables.contains(&name);
    figures().find(is_named).ok_or_else(|| {
        let names: Vec<&str> = figures().map(|figure| figure.name).collect();
        Error::Request(format!(
            "there is no figure {name}; choose from: {}",
            names.join(", ")
        ))
    })
}
