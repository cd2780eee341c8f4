//! Each flush and each fence of the path of writes is left out in turn, and some image must show
//! it. A flush that only one durability needs shows only there.

use gabion_media::pmem::explore::{Explorer, History, Limits, Mutant, Run};

use super::crash::{Small, few, histories, strict};
use super::relaxed::{Tail, relaxed};

type Content = std::collections::BTreeMap<u64, u64>;

/// The histories that write without cleaning.
const HISTORIES: [&str; 3] = ["life", "chain growth", "chain shrinking"];

fn is_of_writes(mutant: &Mutant) -> bool {
    match mutant {
        Mutant::Place(place, _) => place.file().ends_with("scmkv/writepath.rs"),
        Mutant::Number(..) => false,
    }
}

/// Of the mutants in the path of writes, those that a durability's runs give away, and all.
fn caught(subject: &Small, runs: &[&dyn History<Content>]) -> (Vec<Mutant>, Vec<Mutant>) {
    // A single failure is enough, and costs a tenth of two.
    let limits = Limits { depth: 1, ..few() };
    let mut explorer = Explorer::new(subject, limits);
    for run in runs {
        let report = explorer.explore(*run);
        assert!(report.is_clean(), "{report}");
    }
    let all: Vec<Mutant> = explorer.places().into_iter().filter(is_of_writes).collect();
    let is_caught = |mutant: &&Mutant| {
        let tried = explorer.try_mutant((*mutant).clone(), runs);
        if let Some(violation) = &tried.caught {
            println!("without {mutant}: {}", violation.message);
        }
        tried.caught.is_some()
    };
    let caught = all.iter().filter(is_caught).cloned().collect();
    (caught, all)
}

#[test]
fn a_write_without_one_of_its_flushes_or_fences_is_caught() {
    let (strict, relaxed) = (strict(), relaxed());
    let all = histories().into_iter();
    let few: Vec<_> = all.filter(|(name, ..)| HISTORIES.contains(name)).collect();
    assert_eq!(few.len(), HISTORIES.len());
    let runs: Vec<Run<Small>> = few
        .iter()
        .map(|(name, setup, acts)| Run::record(&strict, name, setup, acts).expect(name))
        .collect();
    let runs: Vec<&dyn History<Content>> = runs.iter().map(|run| run as _).collect();
    let tails: Vec<Tail> = few
        .iter()
        .map(|history| Tail::record(&relaxed, history))
        .collect();
    let tails: Vec<&dyn History<Content>> = tails.iter().map(|tail| tail as _).collect();
    let (caught_strict, mut all) = caught(&strict, &runs);
    let (caught_relaxed, others) = caught(&relaxed, &tails);
    for mutant in others {
        if !all.contains(&mutant) {
            all.push(mutant);
        }
    }
    assert!(all.len() >= 5, "{all:?}");
    for mutant in all {
        let is_caught = caught_strict.contains(&mutant) || caught_relaxed.contains(&mutant);
        assert!(is_caught, "{mutant} survives");
    }
}
