//! The store as its users meet it: against a model, under concurrency, through crashes, faults and
//! damage.
//!
//! Every test prints its seed and its counts (`cargo test -p gabion --test it -- --nocapture`).
//! The defaults suit a run of a few minutes on two cores; variables make runs longer:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `GABION_SEED` | where all random choices begin | 1 |
//! | `GABION_CASES` | sequences of operations per option set, in `model` | 20 |
//! | `GABION_WRITES` | writes per writer, in `concurrent` | 3000 |
//! | `GABION_LIVENESS` | option sets of each engine, in `liveness` | 4, mapped ones 2 |
//! | `GABION_HISTORIES` | histories of each engine and isolation, in `transactions` | 150 |
//! | `GABION_COMMITTER_RUNS` | stores that several committers merge into, in `committers` | 6 |
//! | `GABION_CHANGES_CASES` | histories that are followed, for each engine, in `changes` | 12 |
//! | `GABION_CHANGES_IMAGES` | disk images of each of them after a power cut, in `changes` | 25 |
//! | `GABION_FOLLOWER_CASES` | histories that are followed, in `followers` | 12 |
//! | `GABION_FOLLOWER_IMAGES` | disk images of each of them, in `followers` | 40 |
//! | `GABION_FOLLOWER_WRITES` | writes beside followers, in `followers` | 4000 |
//! | `GABION_REPLICA_KILLS` | kills of a store's writer, or of who copies it, in `followers` | 6 |
//! | `GABION_MERGE_CASES` | machines of 400 steps for each engine, in `merges` | 15 |
//! | `GABION_RESTORES` | restores of random histories, in `backup` | 300 |
//! | `GABION_LOG_RESTORES` | restores to positions of archived logs, by engine, in `backup` | 60 |
//! | `GABION_LOG_IMAGES` | interruptions of such a restore, by engine, in `backup` | 60 |
//! | `GABION_CRASH_POINTS` | disk images reopened, in `crash` | 20000 |
//! | `GABION_FAULT_WORKLOADS` | workloads with a fault at every operation, in `faults` | 36 |
//! | `GABION_HELD_TABLES` | tables whose creation is held up, each in its turn, in `held` | 60 |
//! | `GABION_REPAIR_STRIDE` | a wrong byte at every n-th, in `repair` | 13, FlexDB 2401 |
//! | `GABION_DAMAGE_STRIDE` | flip every n-th byte, in `corruption` | 1, FlexDB 31 |
//! | `GABION_KEYSPACES` | keyspaces of one store, in `extremes` | 1000 |
//! | `GABION_SNAPSHOTS` | snapshots at the same time, in `extremes` | 120 |
//! | `GABION_VALUE_BYTES` | the largest value, in `extremes` | 8 MiB |
//! | `GABION_PM_KILLS` | kills of a process that writes to a table in a file, in `examples` | 5 |

mod aging;
mod backup;
mod changes;
mod checkpoint;
mod closing;
mod cold_scans;
mod committers;
mod compact;
mod compaction_filter;
mod concurrent;
mod corruption;
mod crash;
mod damage;
mod delete_range;
mod destroy;
mod drop_keyspace;
mod durability;
mod examples;
mod expiry;
mod extremes;
mod faults;
mod followers;
mod full_deletes;
mod full_disk;
mod full_pool;
mod held;
mod hidden;
mod ingest;
mod keyspace_options;
mod limits;
mod listener;
mod liveness;
mod mapped;
mod merges;
mod model;
mod multi_get;
mod odd_options;
mod pace;
mod read_only;
mod reopen;
mod repair;
mod shortage;
mod space;
mod support;
mod transactions;
mod unfinished;
