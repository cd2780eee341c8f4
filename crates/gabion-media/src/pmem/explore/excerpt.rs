//! The steps before a crash, with the fate of each store.

use std::collections::HashMap;
use std::fmt::Write;

use crate::pmem::trace::{Trace, TraceStep};

/// Steps shown at most.
const SHOWN: usize = 60;

/// The steps before `index`, from the begin of the operation under way, as text. `fates` has, for
/// each event whose store was not certain, how many of its parts arrived, and of how many.
pub(super) fn excerpt(
    trace: &Trace,
    index: usize,
    fates: &HashMap<usize, (usize, usize)>,
    name: &dyn Fn(u32) -> String,
) -> String {
    let events = || trace.iter().enumerate().take(index);
    let is_begin = |step: TraceStep<'_>| matches!(step, TraceStep::Begin { .. });
    let begins = events().filter(|(_, event)| is_begin(event.step));
    let begin = begins.map(|(at, _)| at).last().unwrap_or(0);
    // What was left open by earlier operations matters too.
    let open = fates.keys().copied().min().unwrap_or(begin);
    let first = begin.min(open).max(index.saturating_sub(SHOWN));
    let mut text = String::new();
    if first > 0 {
        let _ = writeln!(text, "  {first} steps before");
    }
    for (at, event) in events().skip(first) {
        let fate = match (event.step, fates.get(&at)) {
            (TraceStep::Store { .. } | TraceStep::NtStore { .. }, None) => "certain",
            (_, Some((0, _))) => "LOST",
            (_, Some((arrived, all))) if arrived == all => "arrived",
            (_, Some(_)) => "TORN",
            (_, None) => "",
        };
        let _ = write!(text, "  {at:>6} {fate:<8} {event}");
        if let TraceStep::Begin { op } = event.step {
            let _ = write!(text, ": {}", name(op));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "  {index:>6} POWER FAILS");
    text
}
