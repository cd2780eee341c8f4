//! Two accounts with an undo log: what recovery itself stores, and crashes of it.

use super::super::{ExploreLimits, OpOutcome, Subject, SubjectMedium};
use super::{Words, assert_caught, assert_clean, explore};

/// What is wrong with the accounts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    Nothing,
    /// Recovery forgets the log before what it has put back is durable: only a second crash shows.
    LogForgottenEarly,
    /// Recovery does not wait for what it has put back, and lets the next log overwrite it.
    PutBackNotFlushed,
    /// Recovery does nothing.
    NoRecovery,
    /// Recovery waits for a lock that nobody will release.
    LockLeft,
    /// Recovery trusts what it reads.
    Panics,
}

struct Accounts(Bug);

const MAGIC: u64 = 0x7374_6e63;
const FIRST: u64 = 64;
const SECOND: u64 = 128;
/// Whether the log is valid, and both balances before.
const LOG: u64 = 192;
const LOCK: u64 = 256;

impl Accounts {
    fn recover(&self, words: &Words) {
        if self.0 == Bug::LockLeft {
            while words.get(LOCK) != 0 {}
        }
        if words.get(LOG) == 0 || self.0 == Bug::NoRecovery {
            return;
        }
        words.set(FIRST, words.get(LOG + 8));
        words.set(SECOND, words.get(LOG + 16));
        if self.0 == Bug::Panics {
            assert_eq!(words.get(FIRST) + words.get(SECOND), 200, "the sum");
            assert!(words.get(FIRST) >= 100, "a balance that surprises");
        }
        if self.0 != Bug::PutBackNotFlushed {
            words.flush(FIRST);
            words.flush(SECOND);
        }
        if self.0 != Bug::LogForgottenEarly {
            words.fence();
        }
        words.set(LOG, 0);
        words.persist(LOG);
    }
}

impl Subject for Accounts {
    type Op = u64;
    type Structure = Words;
    type Content = (u64, u64);

    fn bytes(&self) -> u64 {
        4096
    }

    fn create(&self, stage: &SubjectMedium) -> Result<Words, String> {
        let words = Words(stage.medium());
        for (offset, value) in [(FIRST, 100), (SECOND, 100), (LOG, 0), (LOCK, 0)] {
            words.set(offset, value);
            words.flush(offset);
        }
        words.fence();
        words.set(0, MAGIC);
        words.persist(0);
        Ok(words)
    }

    fn open(&self, stage: &SubjectMedium) -> Result<Option<Words>, String> {
        let words = Words(stage.medium());
        if words.get(0) != MAGIC {
            return Ok(None);
        }
        self.recover(&words);
        Ok(Some(words))
    }

    fn apply(&self, words: &Words, amount: &u64) -> Result<OpOutcome, String> {
        let (first, second) = (words.get(FIRST), words.get(SECOND));
        if *amount > first {
            return Ok(OpOutcome::Refused);
        }
        words.set(LOCK, 1);
        words.set(LOG + 8, first);
        words.set(LOG + 16, second);
        words.persist(LOG);
        words.set(LOG, 1);
        words.persist(LOG);
        words.set(FIRST, first - amount);
        words.set(SECOND, second + amount);
        words.flush(FIRST);
        words.flush(SECOND);
        words.fence();
        words.set(LOG, 0);
        words.persist(LOG);
        words.set(LOCK, 0);
        Ok(OpOutcome::Done)
    }

    fn content(&self, words: &Words) -> Result<(u64, u64), String> {
        let (first, second) = (words.get(FIRST), words.get(SECOND));
        if first + second == 200 {
            Ok((first, second))
        } else {
            Err(format!("{first} and {second} are not 200"))
        }
    }

    fn empty(&self) -> (u64, u64) {
        (100, 100)
    }

    fn expect(&self, content: &mut (u64, u64), amount: &u64) {
        content.0 -= amount;
        content.1 += amount;
    }

    fn name(&self, _: &u64) -> &'static str {
        "transfer"
    }

    fn probes(&self) -> Vec<u64> {
        vec![1, 2]
    }

    fn reports_loads(&self) -> bool {
        true
    }
}

const OPS: [u64; 4] = [30, 5, 900, 7];

#[test]
fn correct_accounts_are_clean_also_when_recovery_crashes() {
    let report = assert_clean(&Accounts(Bug::Nothing), &OPS);
    assert!(report.total().nested > 0, "{report}");
    let deep = ExploreLimits {
        depth: 3,
        ..ExploreLimits::default()
    };
    let deeper = explore(&Accounts(Bug::Nothing), &OPS, deep);
    assert!(deeper.is_clean(), "{deeper}");
    assert!(deeper.total().nested >= report.total().nested);
}

#[test]
fn a_recovery_that_forgets_its_log_early_needs_a_second_crash_to_be_caught() {
    let accounts = Accounts(Bug::LogForgottenEarly);
    let once = ExploreLimits {
        depth: 1,
        ..ExploreLimits::default()
    };
    assert!(explore(&accounts, &OPS, once).is_clean());
    assert_caught(&accounts, &OPS, "are not 200");
    let report = explore(&accounts, &OPS, ExploreLimits::default());
    let text = report.to_string();
    assert!(text.contains("recovery from a failure"), "{text}");
    assert!(text.contains("The recovery was that from"), "{text}");
}

#[test]
fn bugs_of_recovery_are_caught() {
    assert_caught(&Accounts(Bug::PutBackNotFlushed), &OPS, "are not 200");
    assert_caught(&Accounts(Bug::NoRecovery), &OPS, "are not 200");
    assert_caught(&Accounts(Bug::LockLeft), &OPS, "does not come to an end");
    assert_caught(&Accounts(Bug::Panics), &[30, 5], "it panics");
}

#[test]
fn every_combination_is_tried_when_loads_are_not_reported_and_the_outcome_is_the_same() {
    struct Blind(Accounts);
    impl Subject for Blind {
        type Op = u64;
        type Structure = Words;
        type Content = (u64, u64);

        fn bytes(&self) -> u64 {
            self.0.bytes()
        }
        fn create(&self, stage: &SubjectMedium) -> Result<Words, String> {
            self.0.create(stage)
        }
        fn open(&self, stage: &SubjectMedium) -> Result<Option<Words>, String> {
            self.0.open(stage)
        }
        fn apply(&self, words: &Words, amount: &u64) -> Result<OpOutcome, String> {
            self.0.apply(words, amount)
        }
        fn content(&self, words: &Words) -> Result<(u64, u64), String> {
            self.0.content(words)
        }
        fn empty(&self) -> (u64, u64) {
            self.0.empty()
        }
        fn expect(&self, content: &mut (u64, u64), amount: &u64) {
            self.0.expect(content, amount);
        }
        fn name(&self, amount: &u64) -> &'static str {
            self.0.name(amount)
        }
        fn probes(&self) -> Vec<u64> {
            self.0.probes()
        }
    }
    let seeing = assert_clean(&Accounts(Bug::Nothing), &OPS);
    let blind = assert_clean(&Blind(Accounts(Bug::Nothing)), &OPS);
    assert!(blind.images() > seeing.images(), "{blind}{seeing}");
    for bug in [
        Bug::LogForgottenEarly,
        Bug::PutBackNotFlushed,
        Bug::NoRecovery,
    ] {
        assert!(!explore(&Blind(Accounts(bug)), &OPS, ExploreLimits::default()).is_clean());
    }
}
