//! Settings that all phases of a run share.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::workload::keys::KeyShape;
use crate::workload::{Distribution, ValueSizes};

/// The longest value, that of Gabion's engines which take the longest ones.
const VALUE_BYTES_MAX: usize = 1 << 30;

/// Settings that all phases of a run share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Records in the data set, and operations of phases that only write.
    pub num: u64,
    /// Operations of the phases that read.
    pub reads: u64,
    /// Threads of the phases that only write.
    pub writers: usize,
    /// Threads of all other phases.
    pub threads: usize,
    /// Records per write, in the phases that only write.
    pub batch: u64,
    /// Size of every key.
    pub key_bytes: usize,
    /// Size of every value, or of the mean one.
    pub value_bytes: usize,
    /// How the sizes of values are spread.
    pub value_sizes: ValueSizes,
    /// Replaces the phases' own distributions where they allow it.
    pub distribution: Option<Distribution>,
    /// Where all random numbers start.
    pub seed: u64,
    /// Puts per second of the paced writer.
    pub write_rate: u64,
    /// Operations per second of all threads together in an open loop; `None` for a closed one.
    pub rate: Option<u64>,
    /// Operations before the measuring starts, in phases that do not only write.
    pub warm_up: u64,
    /// Seconds after which a phase ends with what it has done; `None` for as long as it takes.
    pub seconds_max: Option<u64>,
    /// The same for phases that only write; `None` for `seconds_max`.
    pub fill_seconds_max: Option<u64>,
    /// Phases that only write go to their end, whatever the limits are.
    pub whole_fills: bool,
    /// Puts the records of a fill that ended early afterwards, unmeasured, so that the phases after
    /// it find the same records in every store.
    pub complete_fills: bool,
    /// Seconds of the phase in which nothing is done.
    pub rest_seconds: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            num: 1_000_000,
            reads: 1_000_000,
            writers: 1,
            threads: 1,
            batch: 1,
            key_bytes: 16,
            value_bytes: 100,
            value_sizes: ValueSizes::Fixed,
            distribution: None,
            seed: 1,
            write_rate: 20_000,
            rate: None,
            warm_up: 0,
            seconds_max: None,
            fill_seconds_max: None,
            whole_fills: false,
            complete_fills: false,
            rest_seconds: 30,
        }
    }
}

impl Settings {
    /// Bytes of a key and a value, or of the mean one.
    pub fn record_bytes(&self) -> u64 {
        (self.key_bytes + self.value_bytes) as u64
    }

    /// Whether a run can have these settings.
    ///
    /// # Errors
    /// [`Error::Request`] with the reason why it cannot.
    pub fn check(&self) -> Result<(), Error> {
        self.key_shape().map(drop)
    }

    /// The form of the keys.
    pub(super) fn key_shape(&self) -> Result<KeyShape, Error> {
        let value_bytes = self.value_bytes;
        let why = if self.num == 0 {
            "a run needs at least one record".to_owned()
        } else if self.batch == 0 {
            "a write needs at least one record".to_owned()
        } else if self.rate == Some(0) {
            "an open loop needs a rate of at least one operation per second".to_owned()
        } else if self.write_rate == 0 {
            "a writer at a pace needs a rate of at least one put per second".to_owned()
        } else if value_bytes > VALUE_BYTES_MAX {
            format!("values of {value_bytes} bytes are too long; use at most {VALUE_BYTES_MAX}")
        } else {
            return KeyShape::new(self.key_bytes, self.num).map_err(Error::Request);
        };
        Err(Error::Request(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_with_a_reason() {
        let defaults = Settings::default();
        defaults.check().unwrap();
        let refused = |change: fn(&mut Settings)| {
            let mut settings = defaults.clone();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        for (sentence, words) in [
            (refused(|run| run.num = 0), "one record"),
            (refused(|run| run.batch = 0), "one record"),
            (refused(|run| run.rate = Some(0)), "an open loop"),
            (refused(|run| run.write_rate = 0), "one put"),
            (refused(|run| run.key_bytes = 7), "at least 8"),
            (refused(|run| run.key_bytes = 1 << 16), "at most 65535"),
            (refused(|run| run.key_bytes = usize::MAX), "at most 65535"),
            // Its lowest 32 bits are 0, and so were the sizes of the values that were put.
            (
                refused(|run| run.value_bytes = 1 << 32),
                "at most 1073741824",
            ),
        ] {
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
