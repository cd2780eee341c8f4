//! Tables of equals: stores that hold the same records, asked the same questions.
//!
//! A store that took a third of the puts in the time that a fill was given has a third of the
//! records to search, and all of them in its cache. So here every store is given all puts, however
//! long they take, and comes to rest before it is read. Its read phases come at once, when its
//! structure and its caches are as the fill has left them, and once more after a rest. At the end
//! all records are counted, so that no store is compared that does not hold what it was given.
//!
//! [`EqualsOptions`] is what can be chosen, [`workloads`] what is always done, and [`page`] writes
//! what came of it: the caches beside the data, and what each store may lose, stand there too.

pub mod page;

use crate::Error;
use crate::run::Settings;
use crate::targets::Registry;

/// The phase that fills the stores.
pub const FILL: &str = "fillrandom";

/// The phases that only read, which are done twice. The first comes at once in the strict sense.
pub const READS: [&str; 5] = ["scan50", "readrandom", "readmissing", "ycsb-c", "readseq"];

/// The phases that read and write.
pub const MIXES: [&str; 5] = ["ycsb-a", "ycsb-b", "ycsb-d", "ycsb-e", "ycsb-f"];

/// What lies between the two times, and what comes at the end.
const REST: &str = "rest";
const COUNT: &str = "count";

/// What can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EqualsOptions {
    /// Puts of the fill.
    pub num: u64,
    /// Size of every key.
    pub key_bytes: usize,
    /// Size of every value.
    pub value_bytes: usize,
    /// Where all random numbers start.
    pub seed: u64,
    /// Threads of all phases but the fill, which has one.
    pub threads: usize,
    /// Operations of each phase but the fill, at most.
    pub reads: u64,
    /// Seconds of each phase but the fill, at most.
    pub seconds: u64,
    /// Seconds of the rest.
    pub rest_seconds: u64,
    /// The fill's speed is told for so many seconds from its beginning, beside that of all of it.
    pub first_seconds: u64,
}

impl Default for EqualsOptions {
    fn default() -> EqualsOptions {
        EqualsOptions {
            num: 20_000_000,
            key_bytes: 16,
            value_bytes: 100,
            seed: 1,
            threads: 2,
            reads: 1_000_000_000,
            seconds: 5,
            rest_seconds: 30,
            first_seconds: 30,
        }
    }
}

impl EqualsOptions {
    /// What all phases share.
    ///
    /// # Errors
    /// [`Error::Request`] if a phase would have no time.
    pub fn settings(&self) -> Result<Settings, Error> {
        if self.seconds == 0 || self.first_seconds == 0 {
            let sentence = "a phase and the beginning of the fill must last at least a second";
            return Err(Error::Request(sentence.to_owned()));
        }
        Ok(Settings {
            num: self.num,
            reads: self.reads,
            writers: 1,
            threads: self.threads,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            seed: self.seed,
            seconds_max: Some(self.seconds),
            whole_fills: true,
            rest_seconds: self.rest_seconds,
            ..Settings::default()
        })
    }
}

/// The phases in their order.
pub fn workloads() -> Vec<String> {
    let names = [FILL]
        .into_iter()
        .chain(READS)
        .chain([REST])
        .chain(READS)
        .chain(MIXES)
        .chain([COUNT]);
    names.map(str::to_owned).collect()
}

/// The stores that are compared unless others are named: Gabion's for an SSD, and all peers that
/// the program was built with.
pub fn targets(registry: &Registry) -> Vec<String> {
    let names = ["wip", "flex"].into_iter().chain(registry.peers());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn every_read_phase_comes_at_once_and_after_the_rest() {
        let workloads = workloads();
        let rest = workloads.iter().position(|name| name == REST).unwrap();
        for phase in READS {
            let places = workloads.iter().enumerate();
            let places: Vec<_> = places.filter(|(_, name)| *name == phase).collect();
            assert_eq!(places.len(), 2, "{phase}");
            assert!(places[0].0 < rest && rest < places[1].0, "{phase}");
            let workload = Workload::named(phase).unwrap();
            let changes = |(operation, _): &(crate::workload::Operation, u32)| {
                operation.changes_drawn() || operation.name() == "insert"
            };
            assert!(!workload.mix.iter().any(changes), "{phase} writes");
        }
        assert_eq!(workloads.first().unwrap(), FILL);
        assert_eq!(workloads.last().unwrap(), COUNT);
        assert!(workloads.iter().all(|name| Workload::named(name).is_some()));
    }

    #[test]
    fn only_the_fill_is_not_ended_by_its_time() {
        let terms = EqualsOptions::default();
        let settings = terms.settings().unwrap();
        assert_eq!(settings.seconds_max, Some(5));
        assert!(settings.whole_fills && settings.warm_up == 0);
        let hurried = EqualsOptions {
            seconds: 0,
            ..terms
        };
        assert!(hurried.settings().is_err());
    }

    #[test]
    fn without_peers_gabion_s_own_are_compared() {
        assert_eq!(targets(&Registry::new(&[])), ["wip", "flex"]);
    }
}
