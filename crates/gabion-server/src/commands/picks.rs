//! The arguments of commands that return random members: `[count [WITHVALUES]]`.

use crate::command::parse_integer;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::random;
use crate::store::members::{MemberPair, Members};
use crate::store::work::Work;

/// How many random members to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RandomPicks {
    /// One member, not in an array.
    One,
    /// Different ones.
    Many {
        /// At most so many.
        count: u64,
        /// Whether what belongs to them is returned, too.
        has_more: bool,
    },
    /// Any, some perhaps several times.
    Repeated {
        /// So many.
        count: u64,
        /// Whether what belongs to them is returned, too.
        has_more: bool,
    },
}

/// Of the arguments from the second on; `word` asks for what belongs to members.
///
/// # Errors
/// What Redis says of other arguments.
pub(crate) fn picks(execution: &Execution<'_>, word: &str) -> Result<RandomPicks> {
    let args = execution.args;
    let Some(count) = args.get(2) else {
        return Ok(RandomPicks::One);
    };
    let count = parse_integer(count)?;
    let has_more = match args.get(3) {
        None => false,
        Some(said) if said.eq_ignore_ascii_case(word.as_bytes()) && args.len() == 4 => true,
        Some(_) => return Err(Fault::SYNTAX),
    };
    let is_too_much = count < -(i64::MAX / 2) || (has_more && count > i64::MAX / 2);
    if is_too_much {
        return Err(Fault::line("ERR value is out of range"));
    }
    let size = count.unsigned_abs();
    Ok(match count < 0 {
        true => RandomPicks::Repeated {
            count: size,
            has_more,
        },
        false => RandomPicks::Many {
            count: size,
            has_more,
        },
    })
}

impl RandomPicks {
    /// Picks members.
    ///
    /// # Errors
    /// Of the store.
    pub(crate) fn choose(self, work: &mut Work, members: &Members) -> Result<Vec<MemberPair>> {
        match self {
            RandomPicks::One => Ok(members.random(work)?.into_iter().collect()),
            RandomPicks::Many { count, .. } => members.sample(work, count),
            RandomPicks::Repeated { .. } if members.is_empty() => Ok(Vec::new()),
            RandomPicks::Repeated { count, .. } if members.count() <= count.max(KEPT_COUNT_MAX) => {
                let all = members.all(work)?;
                let one = |_| {
                    let nth = usize::try_from(random::below(all.len() as u64));
                    all[nth.unwrap_or_default()].clone()
                };
                Ok((0..count).map(one).collect())
            }
            RandomPicks::Repeated { count, .. } => {
                let mut chosen = Vec::new();
                for _ in 0..count {
                    chosen.extend(members.random(work)?);
                }
                Ok(chosen)
            }
        }
    }
}

/// Collections up to this size are read whole.
const KEPT_COUNT_MAX: u64 = 256;
