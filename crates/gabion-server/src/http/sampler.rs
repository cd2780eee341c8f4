//! Samples of statistics for the dashboard, taken once a second while somebody watches.
//!
//! All who look share one sample, as the store's figures are a look at each of its tables. A
//! sample has totals, of which the page makes rates; percentiles are those of the calls of the
//! last [`WINDOW`] samples, as differences of histograms.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gabion::{BucketStats, KeyspaceStats, Stats};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Http, ServerPhase};
use crate::clients::now_ms;
use crate::histogram::HistogramSnapshot;
use crate::server::{Server, counted};
use crate::table;

/// Between two samples.
const PAUSE: Duration = Duration::from_secs(1);

/// Samples between which percentiles are taken.
const WINDOW: usize = 10;

/// Rows of slow commands and of clients, and columns of buckets.
const SLOW_MAX: usize = 10;
const CLIENTS_MAX: usize = 10;
const COLUMNS_MAX: usize = 96;

/// The last sample, as JSON; nothing before the first.
#[derive(Debug)]
pub(super) struct Sampler(watch::Sender<Arc<str>>);

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler(watch::Sender::new(Arc::from("")))
    }
}

impl Sampler {
    /// Takes part in what is sampled.
    pub(super) fn follow(&self) -> watch::Receiver<Arc<str>> {
        self.0.subscribe()
    }
}

/// The counts of each command that was called, at the last moments.
type History = VecDeque<BTreeMap<usize, HistogramSnapshot>>;

/// Takes samples while anybody looks, until the server ends.
pub(super) async fn run(http: Arc<Http>) {
    let mut history = History::new();
    let mut phase = http.phase.subscribe();
    let mut ticks = tokio::time::interval(PAUSE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = phase.changed() => {}
        }
        if *phase.borrow_and_update() == ServerPhase::Closed {
            return;
        }
        if http.sampler.0.receiver_count() == 0 {
            // What was long ago is shown to nobody.
            history.clear();
            http.sampler.0.send_replace(Arc::from(""));
            continue;
        }
        let asked = Arc::clone(&http);
        let taken = tokio::task::spawn_blocking(move || {
            let sample = sample(&asked, &mut history);
            (sample, history)
        });
        let Ok((sample, returned)) = taken.await else {
            return;
        };
        history = returned;
        http.sampler.0.send_replace(Arc::from(sample.to_string()));
    }
}

fn sample(http: &Http, history: &mut History) -> Value {
    let reason = http.why_not_ready();
    let Some(server) = http.server.get() else {
        return json!({ "now_ms": now_ms(), "reason": reason });
    };
    let stats = server.store.db.stats();
    json!({
        "now_ms": now_ms(),
        "reason": reason,
        "server": {
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": server.started.elapsed().as_secs(),
            "port": server.port,
            "process": std::process::id(),
            "fsync": server.settings.text("appendfsync"),
        },
        "totals": totals(server),
        "commands": commands(server, history),
        "databases": databases(server),
        "store": store(&stats),
        "keyspaces": keyspaces(&stats),
        "slow": slow(server),
        "clients": clients(server),
    })
}

fn totals(server: &Server) -> Value {
    let counts = &server.counts;
    json!({
        "commands": counted(&counts.commands),
        "errors": counted(&counts.errors),
        "bytes_in": counted(&counts.bytes_in),
        "bytes_out": counted(&counts.bytes_out),
        "hits": counted(&counts.hits),
        "misses": counted(&counts.misses),
        "expired": counted(&counts.expired),
        "refused": counted(&counts.refused),
    })
}

/// The commands that were called, with percentiles in microseconds of the calls within the window;
/// none if there were none, or the window has just begun.
fn commands(server: &Server, history: &mut History) -> Value {
    let commands = table::commands();
    let mut now = BTreeMap::new();
    let mut rows = Vec::new();
    for (number, called) in server.calls.called(commands.names()) {
        let counts = server.calls.counts_of(number);
        let window = counts.as_ref().zip(history.front()).map(|(counts, then)| {
            let earlier = then.get(&number);
            earlier.map_or_else(|| counts.clone(), |earlier| counts.since(earlier))
        });
        let window = window.filter(|window| window.total() > 0);
        let percentile = |percent| {
            let nanos = window.as_ref().map(|window| window.percentile(percent));
            nanos.map(|nanos| nanos as f64 / 1000.0)
        };
        rows.push(json!({
            "name": called.name,
            "calls": called.calls,
            "failed": called.failed + called.rejected,
            "p50": percentile(50.0),
            "p99": percentile(99.0),
            "p999": percentile(99.9),
        }));
        if let Some(counts) = counts {
            now.insert(number, counts);
        }
    }
    history.push_back(now);
    if history.len() > WINDOW {
        history.pop_front();
    }
    Value::Array(rows)
}

fn databases(server: &Server) -> Value {
    let store = &server.store;
    let sizes = (0..store.databases()).map(|database| {
        let size = store.sizes.of(store.space(database));
        (database, size)
    });
    let used = sizes.filter(|(_, size)| size.keys > 0);
    used.map(|(database, size)| {
        json!({ "database": database, "keys": size.keys, "expiring": size.expiring })
    })
    .collect()
}

fn store(stats: &Stats) -> Value {
    json!({
        "user_bytes": stats.user_bytes,
        "written": stats.written,
        "amplification": stats.write_amplification_without_log,
        "amplification_with_log": stats.write_amplification_with_log,
        "amplification_bound": stats.write_amplification_bound,
        "memory": stats.memory,
        "cache": stats.cache,
        "stalls": stats.stalls,
        "stall_ns": stats.stall_ns,
        "slowdown_ns": stats.slowdown_ns,
        "slowdown_ns_max": stats.slowdown_ns_max,
        "space_bytes": stats.space_bytes,
        "live_bytes": stats.live_bytes,
        "log_file_bytes": stats.log_file_bytes,
        "space_amplification": stats.space_amplification,
        "tables": stats.tables,
    })
}

/// The keyspaces with anything in them, and their buckets in the order of their keys.
fn keyspaces(stats: &Stats) -> Value {
    let has_data = |keyspace: &&KeyspaceStats| {
        let mut buckets = keyspace.buckets.iter();
        keyspace.buckets.len() > 1 || buckets.any(|bucket| bytes_of(bucket) > 0)
    };
    let shown = stats.keyspaces.iter().filter(has_data);
    shown
        .map(|keyspace| {
            let buckets = &keyspace.buckets;
            // Neighbours share a column where there are more than columns.
            let each = buckets.len().div_ceil(COLUMNS_MAX).max(1);
            let columns: Vec<Value> = buckets.chunks(each).map(column).collect();
            json!({ "name": keyspace.name, "buckets": buckets.len(), "columns": columns })
        })
        .collect()
}

fn bytes_of(bucket: &BucketStats) -> u64 {
    bucket.memtable_bytes + bucket.levels.iter().flatten().sum::<u64>()
}

fn column(buckets: &[BucketStats]) -> Value {
    let deepest = buckets.iter().map(|bucket| bucket.levels.len()).max();
    let of_level = |level: usize| -> u64 {
        let levels = buckets.iter().filter_map(|bucket| bucket.levels.get(level));
        levels.flatten().sum()
    };
    let levels: Vec<u64> = (0..deepest.unwrap_or(0)).map(of_level).collect();
    json!({
        "lower": buckets.first().map(|bucket| &bucket.lower),
        "buckets": buckets.len(),
        "memtable": buckets.iter().map(|bucket| bucket.memtable_bytes).sum::<u64>(),
        "levels": levels,
    })
}

fn slow(server: &Server) -> Value {
    let rows = server.monitor.slow(SLOW_MAX).into_iter();
    rows.map(|slow| {
        let words = slow.arguments.iter();
        let words: Vec<String> = words.map(|word| word.escape_ascii().to_string()).collect();
        json!({
            "at": slow.at,
            "micros": slow.micros,
            "command": words.join(" "),
            "address": slow.address,
            "name": slow.name,
        })
    })
    .collect()
}

fn clients(server: &Server) -> Value {
    let now = now_ms();
    let all = server.clients.all();
    let rows: Vec<Value> = all
        .iter()
        .take(CLIENTS_MAX)
        .map(|client| {
            // ORDER: Relaxed; what a list shows is of no moment in particular.
            let active = client.active_ms.load(std::sync::atomic::Ordering::Relaxed);
            let idle_ms = now.saturating_sub(active);
            json!({
                "id": client.id,
                "address": client.address,
                "name": client.names.lock().name,
                "user": client.user.lock().shown(),
                "command": *client.command.lock(),
                "age_s": now.saturating_sub(client.since_ms) / 1000,
                "idle_s": idle_ms / 1000,
            })
        })
        .collect();
    json!({
        "connected": server.clients.count(),
        "blocked": server.blocking.count(),
        "most": server.clients_max(),
        "rows": rows,
    })
}
