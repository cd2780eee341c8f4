//! The targets that every build of the lab has, and the registry of all targets of a program.
//!
//! | target | what it shows |
//! |---|---|
//! | [`mod@empty`] | what the lab itself costs: it does nothing |
//! | [`btreemap`] | the floor of an ordered store: one tree in memory behind one lock |
//! | [`gabion_store`] | Gabion's WipDB engine, also with one form of MemTables forced |
//! | [`flex`] | Gabion's FlexDB engine |
//! | [`sptree`] | Gabion's SPTree engine |
//! | [`scmkv`] | Gabion's SCMKV: the engine, and the store alone in memory, in four ways |
//! | [`turbohash`] | Gabion's TurboHash: in memory, in a mapped file, on the model of a medium |

pub mod btreemap;
pub mod empty;
pub mod flex;
pub mod gabion_store;
pub mod scmkv;
pub mod sptree;
pub mod turbohash;

use crate::Error;
use crate::target::Target;

/// The targets that need nothing but this crate.
pub const OWN: &[Target] = &[
    gabion_store::TARGET,
    flex::TARGET,
    gabion_store::COUNTERS,
    flex::COUNTERS,
    empty::TARGET,
    btreemap::TARGET,
    gabion_store::HASH,
    gabion_store::ORDERED,
    gabion_store::UNAWARE,
    turbohash::MEMORY,
    turbohash::FILE,
    turbohash::MODEL,
    scmkv::TARGET,
    sptree::TARGET,
    scmkv::RELAXED,
    scmkv::RELAXED_NOFLUSH,
    scmkv::STRICT,
    scmkv::STRICT_NOFLUSH,
];

/// Peers that a program may be built with.
const PEERS: [&str; 9] = [
    "rocksdb", "leveldb", "lmdb", "redb", "fjall", "sled", "sqlite", "tidesdb", "bf-tree",
];

/// The feature that the program must be built with to have a peer.
pub fn peer_feature(peer: &str) -> &'static str {
    match peer {
        // They need no compiler but Rust's.
        "redb" | "fjall" | "sled" | "bf-tree" => "rust-peers",
        // Its library has to be built first, which the build says.
        "tidesdb" => "tidesdb",
        _ => "peers",
    }
}

/// All targets of a program.
#[derive(Clone, Debug)]
pub struct Registry {
    targets: Vec<Target>,
}

impl Registry {
    /// The lab's own targets and those that the program brings.
    pub fn new(others: &[Target]) -> Registry {
        Registry {
            targets: OWN.iter().chain(others).copied().collect(),
        }
    }

    /// All of them, the lab's own first.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Peers that this program was built with.
    pub fn peers(&self) -> impl Iterator<Item = &'static str> {
        PEERS.into_iter().filter(|name| self.has(name))
    }

    /// Peers that this program was built without.
    pub fn absent_peers(&self) -> impl Iterator<Item = &'static str> {
        PEERS.into_iter().filter(|name| !self.has(name))
    }

    fn has(&self, name: &str) -> bool {
        self.targets.iter().any(|target| target.name == name)
    }

    /// The target of that name.
    ///
    /// # Errors
    /// [`Error::NotBuilt`] for a peer that the program was built without, [`Error::Request`] for
    /// any other name that is no target's.
    pub fn named(&self, name: &str) -> Result<&Target, Error> {
        if let Some(target) = self.targets.iter().find(|target| target.name == name) {
            return Ok(target);
        }
        if let Some(peer) = self.absent_peers().find(|peer| *peer == name) {
            return Err(Error::NotBuilt { peer });
        }
        let names: Vec<_> = self.targets.iter().map(|target| target.name).collect();
        Err(Error::Request(format!(
            "there is no target {name}; choose from: {}",
            names.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Batch, StoreOptions};

    fn options(dir: &std::path::Path) -> StoreOptions {
        StoreOptions {
            dir: dir.to_owned(),
            existing: false,
            cache_bytes: 8 << 20,
            write_buffer_bytes: None,
            hold_flushes: false,
            background_threads: 1,
            sessions: 1,
            records: 100,
            record_bytes: 10,
        }
    }

    #[test]
    fn targets_are_found_by_name_and_peers_told_from_mistakes() {
        let registry = Registry::new(&[]);
        assert_eq!(registry.named("wip").unwrap().name, "wip");
        let sentence = |name| registry.named(name).unwrap_err().to_string();
        assert_eq!(
            sentence("rocksdb"),
            "this program was built without the peer rocksdb; build it with `cargo build --profile \
             measure --features peers`"
        );
        assert!(sentence("redb").ends_with("--features rust-peers`"));
        assert!(sentence("bf-tree").ends_with("--features rust-peers`"));
        assert!(sentence("tidesdb").ends_with("--features tidesdb`"));
        assert!(
            sentence("rocks").contains("there is no target rocks; choose from: wip, flex, wip-c")
        );
        let mut peer = empty::TARGET;
        peer.name = "rocksdb";
        let registry = Registry::new(&[peer]);
        assert_eq!(registry.named("rocksdb").unwrap().name, "rocksdb");
        assert!(registry.absent_peers().all(|name| name != "rocksdb"));
    }

    /// Every target that keeps what it is given answers alike.
    #[test]
    fn stores_agree_on_what_they_hold() {
        for target in OWN.iter().filter(|target| target.name != "empty") {
            let dir = tempfile::tempdir().unwrap();
            let store = (target.open)(&options(dir.path())).unwrap();
            let mut session = store.session().unwrap();
            for key in [&b"b"[..], b"a", b"d"] {
                session.put(key, b"value").unwrap();
            }
            let mut batch = Batch::default();
            batch.put(b"c", b"new");
            batch.put(b"e", b"new");
            batch.delete(b"d");
            session.write(&batch).unwrap();
            session.delete(b"e").unwrap();
            session.delete(b"never there").unwrap();
            let name = target.name;
            for (key, is_there) in [
                (&b"a"[..], true),
                (b"c", true),
                (b"d", false),
                (b"e", false),
            ] {
                assert_eq!(session.get(key).unwrap(), is_there, "{name} {key:?}");
            }
            if target.abilities.ordered {
                assert_eq!(session.scan(b"b", 10).unwrap(), 2, "{name}");
                assert_eq!(session.scan(b"a", 2).unwrap(), 2, "{name}");
                let mut steps = session.steps(b"a").unwrap();
                assert_eq!(
                    [steps(2).unwrap(), steps(2).unwrap(), steps(2).unwrap()],
                    [2, 1, 0]
                );
                drop(steps);
                let mut steps = session.steps_back(b"bb").unwrap();
                assert_eq!([steps(1).unwrap(), steps(2).unwrap()], [1, 1], "{name}");
            } else {
                assert!(session.scan(b"b", 10).is_err(), "{name}");
                assert!(session.steps(b"a").is_err() && session.steps_back(b"a").is_err());
            }
            if target.abilities.synced_writes {
                session.put_synced(b"f", b"synced").unwrap();
                assert!(session.get(b"f").unwrap());
                batch.clear();
                batch.put(b"g", b"synced");
                batch.delete(b"f");
                session.write_synced(&batch).unwrap();
                assert!(session.get(b"g").unwrap() && !session.get(b"f").unwrap());
            } else {
                assert!(session.put_synced(b"f", b"synced").is_err(), "{name}");
                assert!(session.write_synced(&batch).is_err(), "{name}");
            }
            store.compact().unwrap();
            assert!(session.get(b"a").unwrap() && !session.get(b"d").unwrap());
            drop(session);
            store.settle().unwrap();
            if let Some(written) = store.counters().unwrap().written {
                assert!(written.total() > 0, "{name}");
            }
            store.close().unwrap();
            if target.abilities.persistent {
                let mut again = options(dir.path());
                again.existing = true;
                let store = (target.open)(&again).unwrap();
                assert!(store.session().unwrap().get(b"a").unwrap(), "{name}");
                store.close().unwrap();
            }
        }
    }
}
