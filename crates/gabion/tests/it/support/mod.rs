//! What the tests share: random choices, the twin of a store, option sets, workloads.

mod options;
mod random;
mod subject;
mod twin;
mod workload;

pub(crate) use options::{option_sets, small_options};
pub(crate) use random::Random;
pub(crate) use subject::{
    KEYSPACES, Subject, Totals, assert_sound, assert_twin, log_number, read_all,
};
pub(crate) use twin::{Bounds, Change, Operation, Pairs, Twin, bytes_of};
pub(crate) use workload::{Step, Workload};

/// A number from the environment, or its default.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// Where all random choices begin.
pub(crate) fn base_seed() -> u64 {
    setting("GABION_SEED", 1)
}

/// Says where a test was when it panicked: its words are printed only then.
pub(crate) struct Context<F: Fn() -> String>(pub(crate) F);

impl<F: Fn() -> String> Drop for Context<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while: {}", (self.0)());
        }
    }
}
