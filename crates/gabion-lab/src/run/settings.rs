//! What all phases of a run share.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::workload::keys::KeyShape;
use crate::workload::{Distribution, ValueSizes};

/// What all phases of a run share.
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
    /// Puts the records of a fill that ended early afterwards, unmeasured, so that the phases after
    /// it find the same records in every store.
    pub complete_fills: bool,
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
            complete_fills: false,
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
        if self.num == 0 {
            let why = "a run needs at least one record";
            return Err(Error::Request(why.to_owned()));
        }
        if self.rate == Some(0) {
            let why = "an open loop needs a rate of at least one operation per second";
            return Err(Error::Request(why.to_owned()));
        }
        KeyShape::new(self.key_bytes, self.num).map_err(Error::Request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_with_a_reason() {
        let defaults = Settings::default();
        defaults.check().unwrap();
        for (settings, word) in [
            (
                Settings {
                    num: 0,
                    ..defaults.clone()
                },
                "record",
            ),
            (
                Settings {
                    rate: Some(0),
                    ..defaults.clone()
                },
                "rate",
            ),
            (
                Settings {
                    key_bytes: 7,
                    ..defaults
                },
                "at least 8",
            ),
        ] {
            assert!(settings.check().unwrap_err().to_string().contains(word));
        }
    }
}
