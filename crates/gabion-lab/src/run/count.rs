//! Counts the records of a store, to check that it holds all that were written.

use super::Runner;
use crate::Error;
use crate::target::Session;
use crate::text::{count_text, counted};

/// Records that are counted at once.
const STEPS: usize = 4096;

impl Runner<'_> {
    /// How many records there are, by stepping over all of them.
    ///
    /// # Errors
    /// [`Error::Meaningless`] if there are others than the phases before have left, where that is
    /// known, and what the store says.
    pub(super) fn count_records(&self, session: &mut dyn Session) -> Result<u64, Error> {
        let wanted = self.records_live();
        let count = count(session, wanted)?;
        match wanted {
            Some(wanted) if wanted != count => Err(Error::Meaningless(format!(
                "the store was given {} and {}",
                counted(wanted, "record", "records"),
                match count > wanted {
                    true => "holds more".to_owned(),
                    false => format!("holds {}", count_text(count)),
                }
            ))),
            _ => Ok(count),
        }
    }
}

/// Counts the records of a store. Gives up behind `most`, where there is such a number: then there
/// are more.
pub(super) fn count(session: &mut dyn Session, most: Option<u64>) -> Result<u64, Error> {
    // Below all keys that workloads make.
    let mut steps = session.steps(b"\0")?;
    let mut count = 0;
    loop {
        let more = steps(STEPS)?;
        count += more as u64;
        if more < STEPS || most.is_some_and(|most| count > most) {
            return Ok(count);
        }
    }
}
