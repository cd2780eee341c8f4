//! Each flush and each fence, of the pool and of those that its protocol asks of the user, is left
//! out in turn; what nothing misses is listed with the reason.

use std::path::Path;

use super::super::super::{ExploreLimits, Explorer, History, MutantReport, Run};
use super::histories::all;
use super::small;

/// Where the sources are.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The mutants that survive.
const SURVIVORS: &[(&str, &str)] = &[
    (
        "flush in close of pmem/pool/mod.rs: .store_persist(&self.medium, seal(STATE_CLOSED), \
         Ordering::Relaxed);",
        CLOSED,
    ),
    (
        "fence in close of pmem/pool/mod.rs: .store_persist(&self.medium, seal(STATE_CLOSED), \
         Ordering::Relaxed);",
        CLOSED,
    ),
];

const CLOSED: &str =
    "a pool that is not known to be closed is recovered, which finds nothing to do";

/// Published bugs of pools and allocators that are a flush or a fence left out, and where it is
/// here. All of them are caught.
const PUBLISHED: &[(&str, &str)] = &[
    (
        "flush in initialize of pmem/pool/open.rs: medium.persist_range(0, 256);",
        "crash during the creation of pools; CCEH, P-ART, P-BwTree: constructor unflushed",
    ),
    (
        "fence in initialize of pmem/pool/open.rs: medium.persist_range(0, 256);",
        "crash during the creation of pools: taken for created before it is",
    ),
    (
        "flush in initialize of pmem/pool/open.rs: medium.persist_range(0, 8);",
        "crash during the creation of pools: lost after it has returned",
    ),
    (
        "flush in add_slab of pmem/alloc/central.rs: chunks.set_descriptor(chunk, \
         Descriptor::Slab { class });",
        "P-BwTree: chunk metadata unflushed",
    ),
    (
        "flush in reserve of pmem/explore/tests/pool/mod.rs: pool.alloc(size, hint)",
        "P-BwTree: the allocator's tail unflushed, a leak",
    ),
    (
        "flush in done of pmem/explore/tests/pool/mod.rs: block.commit::<u8>();",
        "P-BwTree: the allocator's tail unflushed, a block with two owners",
    ),
    (
        "flush in announce of pmem/explore/tests/pool/mod.rs: pool.retire(POff::<u8>::new(block), \
         hint)",
        "P-CLHT: the list of old tables unpersisted",
    ),
    (
        "flush in free_now of pmem/explore/tests/pool/mod.rs: block.commit_now();",
        "P-CLHT: an old table freed twice",
    ),
    (
        "flush in fill of pmem/explore/tests/pool/mod.rs: pool.flush_range(at, 24);",
        "P-CLHT: the overflow bucket's content unflushed",
    ),
    (
        "fence in put of pmem/explore/tests/pool/mod.rs: pool.fence();, number 2",
        "P-HOT: published without a fence",
    ),
    (
        "flush in put of pmem/explore/tests/pool/mod.rs: pool.persist(word);",
        "P-CLHT: the chain's pointer unflushed",
    ),
    (
        "flush in move_root of pmem/explore/tests/pool/mod.rs: pool.flush_range(\
         new.offset::<u8>().raw(), bytes);",
        "CCEH: a directory that is published before it is persistent",
    ),
    (
        "flush in recover of pmem/pool/open.rs: medium.persist(line);",
        "a pool that is taken for closed while operations are in flight",
    ),
];

fn mutants() -> MutantReport {
    let subject = small();
    let limits = ExploreLimits {
        all: 512,
        sample: 64,
        nested_all: 16,
        nested_sample: 4,
        ..ExploreLimits::default()
    };
    let mut explorer = Explorer::new(&subject, limits);
    let runs: Vec<_> = all()
        .into_iter()
        .map(|(name, acts)| Run::record(&subject, name, &[], &acts).unwrap())
        .collect();
    for run in &runs {
        let report = explorer.explore(run);
        assert!(report.is_clean(), "{report}");
    }
    let runs: Vec<&dyn History<_>> = runs.iter().map(|run| run as &dyn History<_>).collect();
    explorer.mutants(&runs)
}

#[test]
fn every_flush_and_fence_is_needed_or_known_not_to_be() {
    let root = Path::new(ROOT);
    let report = mutants();
    for tried in &report.tried {
        let is_caught = tried.caught.is_some();
        println!(
            "{is_caught:<5} {:>6} {}",
            tried.images,
            tried.mutant.in_source(root)
        );
    }
    println!("{} of {} are caught", report.caught(), report.tried.len());
    let compared = report.compare_survivors(root, SURVIVORS);
    compared.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.caught() * 100 >= report.tried.len() * 95, "{report}");
    for (name, bug) in PUBLISHED {
        let mut tried = report.tried.iter();
        let tried = tried.find(|tried| tried.mutant.in_source(root) == *name);
        let is_caught = tried.is_some_and(|tried| tried.caught.is_some());
        assert!(is_caught, "{bug}: not caught, or gone: {name}");
    }
}
