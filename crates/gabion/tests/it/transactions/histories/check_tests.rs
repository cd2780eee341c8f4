//! The checker on small histories: each anomaly is found, and what has none passes.
//!
//! A transaction is written as when it began and when it committed, and what it did: `ra=1` read
//! the number 1 of the register `a`, and `ra=` nothing; `qa=1` read it by a range, and `ua=1` for
//! update; `wa=2` and `da=3` wrote and deleted it; `wl=1.2` appended 2 to the list `l`, which was
//! read as 1, and `ml=2` appended it to whatever was there.

use gabion::Isolation::{Serializable, Snapshot};

use super::check::{Anomaly, worst};
use super::record::{By, History, Interval, Key, Read, Record, Write};

/// When it began and committed, and what it did.
type Case<'c> = (u64, u64, &'c str);

const LETTERS: &str = "lmabcde";

/// A committed transaction.
fn transaction(begin: u64, end: u64, operations: &str) -> Record {
    let during = |at: u64| Interval {
        call: 10 * at,
        end: 10 * at + 1,
    };
    let mut record = Record {
        begin: during(begin),
        end: during(end),
        is_committed: true,
        ..Record::default()
    };
    for operation in operations.split_whitespace() {
        let (what, value) = operation.split_once('=').unwrap();
        let mut letters = what.chars();
        let (what, letter) = (letters.next().unwrap(), letters.next().unwrap());
        let key: Key = LETTERS.find(letter).unwrap();
        let numbers = value.split('.').filter(|number| !number.is_empty());
        let value: Vec<u64> = numbers.map(|number| number.parse().unwrap()).collect();
        match what {
            'r' | 'u' | 'q' => record.reads.push(Read {
                key,
                value,
                by: match what {
                    'r' => By::Key,
                    'u' => By::Update,
                    _ => By::Range,
                },
            }),
            _ => record.writes.push(Write {
                key,
                number: *value.last().unwrap(),
                value: match what {
                    'd' => Some(Vec::new()),
                    'm' => None,
                    _ => Some(value),
                },
            }),
        }
    }
    record
}

fn found(isolation: gabion::Isolation, records: &[Case<'_>]) -> Option<Anomaly> {
    let records = records
        .iter()
        .map(|(begin, end, did)| transaction(*begin, *end, did));
    let records = records.collect();
    worst(&History { isolation, records }).map(|(anomaly, _)| anomaly)
}

#[test]
fn each_anomaly_is_found() {
    let cases: [(Anomaly, &[Case<'_>]); 21] = [
        (Anomaly::G1a, &[(1, 1, "wa=1"), (2, 2, "ra=7")]),
        (Anomaly::G1b, &[(1, 2, "wa=1 wa=2"), (1, 3, "ra=1")]),
        (
            Anomaly::LostUpdate,
            &[(1, 2, "rl= wl=1"), (1, 3, "rl= wl=2")],
        ),
        (
            Anomaly::LostUpdate,
            &[(1, 2, "wl=1"), (2, 3, "wl=1.2"), (4, 4, "rl=2")],
        ),
        (Anomaly::G0, &[(1, 2, "wl=1 wm=2.1"), (1, 2, "wl=1.2 wm=2")]),
        (Anomaly::G1c, &[(1, 3, "rb=2 wa=1"), (1, 3, "ra=1 wb=2")]),
        (
            Anomaly::G0,
            &[
                (1, 2, "ml=1 mm=1"),
                (1, 3, "ml=2 mm=2"),
                (4, 4, "rl=1.2 rm=2.1"),
            ],
        ),
        // Who reads and merges depends on what it read.
        (
            Anomaly::GSingle,
            &[(1, 2, "ml=1"), (1, 3, "rl= ml=2"), (4, 4, "rl=1.2")],
        ),
        (
            Anomaly::Stale,
            &[(1, 2, "ml=1"), (3, 4, "ml=2"), (5, 5, "rl=2.1")],
        ),
        // A lost update, half of a transaction, and half of one that deletes.
        (Anomaly::GSingle, &[(1, 2, "ra= wa=1"), (1, 3, "ra= wa=2")]),
        (Anomaly::GSingle, &[(1, 2, "wa=1 wb=2"), (1, 3, "ra= rb=2")]),
        (
            Anomaly::GSingle,
            &[(1, 2, "wa=1 wb=2"), (3, 3, "da=3 wb=4"), (3, 5, "qa= rb=2")],
        ),
        // Two readers see two writes in different orders.
        (
            Anomaly::GNonadjacent,
            &[
                (1, 2, "wa=1"),
                (1, 3, "wb=2"),
                (1, 4, "ra= rb=2"),
                (1, 5, "ra=1 rb="),
            ],
        ),
        (Anomaly::Stale, &[(1, 2, "wa=1"), (3, 4, "ra=")]),
        (
            Anomaly::Stale,
            &[(1, 2, "wa=1"), (3, 4, "da=2"), (5, 6, "ra=1")],
        ),
        (Anomaly::G2Item, &[(1, 3, "ra= wb=1"), (2, 4, "rb= wa=2")]),
        (Anomaly::G2Item, &[(1, 3, "rl= wm=1"), (2, 4, "rm= wl=2")]),
        (
            Anomaly::G2Item,
            &[(1, 2, "ml=1 wa=2"), (1, 3, "ra= ml=3"), (4, 4, "rl=1.3")],
        ),
        // What was deleted before is as absent as what was never there.
        (
            Anomaly::G2Item,
            &[
                (1, 1, "wa=8"),
                (2, 2, "da=9"),
                (3, 5, "ra= wb=1"),
                (4, 6, "rb= wa=2"),
            ],
        ),
        (
            Anomaly::G2,
            &[(1, 3, "qa= qb= wb=1"), (2, 4, "qa= qb= wa=2")],
        ),
        // The reader sees neither of two, of which the one that comes first has ended.
        (
            Anomaly::StaleSkew,
            &[(1, 5, "rb= wa=1"), (2, 2, "wb=2"), (3, 4, "ra=")],
        ),
    ];
    for (anomaly, records) in cases {
        assert_eq!(found(Serializable, records), Some(anomaly), "{records:?}");
        assert_eq!(found(Snapshot, records), Some(anomaly), "{records:?}");
        assert!(!anomaly.is_allowed(Serializable));
        let is_skew = anomaly >= Anomaly::G2Item;
        assert_eq!(anomaly.is_allowed(Snapshot), is_skew);
    }
}

#[test]
fn what_has_an_order_passes() {
    let cases: [&[Case<'_>]; 11] = [
        &[],
        // Nobody reads what is merged side by side.
        &[(1, 3, "ml=1 wa=3"), (1, 2, "ml=2 ml=4"), (4, 4, "rl=2.4.1")],
        &[(1, 3, "rm= ml=1"), (1, 2, "rm= ml=2"), (4, 4, "rl=1.2")],
        &[
            (1, 1, "wa=1"),
            (2, 2, "ra=1 wa=2"),
            (3, 3, "qa=2 da=3"),
            (4, 4, "ra="),
        ],
        // A reader is where it began, a writer where it committed.
        &[(1, 9, "ra= rb="), (2, 3, "wa=1"), (4, 5, "ra=1 wb=2")],
        &[(1, 9, "rc= wc=3"), (2, 3, "wa=1"), (4, 5, "ra=1 wb=2")],
        // Writes that overlap, in an order that only their reader knows.
        &[(1, 2, "wa=1"), (1, 2, "wa=2"), (3, 3, "ra=1")],
        &[(1, 2, "wa=1"), (1, 2, "wa=2"), (3, 3, "ra=2")],
        &[
            (1, 2, "wl=1 wm=1"),
            (1, 2, "wl=1.2 wm=1.2"),
            (3, 3, "rl=1.2 rm=1.2"),
        ],
        // An intermediate write of a list is in what comes after it.
        &[
            (1, 2, "wl=1 wl=1.2"),
            (2, 3, "rl=1.2 wl=1.2.3"),
            (4, 4, "ql=1.2.3"),
        ],
        &[(1, 2, "wa=1 wb=2"), (1, 3, "ra= rb="), (3, 4, "qa=1 qb=2")],
    ];
    for records in cases {
        assert_eq!(found(Serializable, records), None, "{records:?}");
        assert_eq!(found(Snapshot, records), None, "{records:?}");
    }
}

/// Between the read and the commit a key comes and goes. A commit may take that for nothing, but
/// who reads at one moment cannot have read the later one.
#[test]
fn a_key_that_came_and_went_may_be_taken_for_the_same() {
    let records = [(1, 8, "ra= wb=1"), (2, 3, "rb= wa=2"), (4, 5, "da=3")];
    assert_eq!(found(Serializable, &records), None);
    assert_eq!(found(Snapshot, &records), Some(Anomaly::G2Item));
}

/// Of two that read for update what the other one writes, one is refused at any isolation.
#[test]
fn what_is_read_for_update_allows_no_skew() {
    let skew = [(1, 3, "ua= wb=1"), (2, 4, "ub= wa=2")];
    assert_eq!(found(Snapshot, &skew), Some(Anomaly::UpdateSkew));
    // The first one's read still held when it committed.
    let half = [(1, 3, "ua= wb=1"), (2, 4, "rb= wa=2")];
    assert_eq!(found(Snapshot, &half), Some(Anomaly::G2Item));
    // Who writes nothing is where it began.
    let reader = [(1, 9, "ua= ub="), (2, 3, "wa=1"), (4, 5, "ra=1 wb=2")];
    assert_eq!(found(Snapshot, &reader), None);
}

/// Nobody may see what was not committed, and nothing of it counts.
#[test]
fn what_was_not_committed_counts_for_nothing() {
    let mut lost = transaction(1, 3, "ra= wa=1 wb=2");
    lost.is_committed = false;
    let other = transaction(2, 4, "ra= wa=3");
    let mut records = vec![lost, other, transaction(5, 5, "ra=3 rb=")];
    let check = |records: &Vec<Record>| {
        let (isolation, records) = (Serializable, records.clone());
        worst(&History { isolation, records }).map(|(anomaly, _)| anomaly)
    };
    assert_eq!(check(&records), None);
    records[0].refused_by = LETTERS.find('a');
    assert_eq!(check(&records), None);
    // Nobody wrote that.
    records[0].refused_by = LETTERS.find('c');
    assert_eq!(check(&records), Some(Anomaly::Unfounded));
    records[0].refused_by = None;
    records.push(transaction(6, 6, "rb=2"));
    assert_eq!(check(&records), Some(Anomaly::G1a));
}
