//! `/metrics`: figures as Prometheus reads them.
//!
//! What Redis has too carries the name that the common exporter of Redis gives it, so that its
//! dashboards and alarms work; what only this store has begins with `gabion_`. Times are in
//! seconds and sizes in bytes, but for names of the exporter that say otherwise.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use gabion::{KeyspaceStats, Stats};

use super::Http;
use super::text::Kind::{Counter, Gauge, Histogram, Summary};
use super::text::Text;
use crate::commands::info::REDIS_VERSION;
use crate::pubsub::Topic;
use crate::server::{Server, counted};
use crate::table;

const FORM: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn answer(State(http): State<Arc<Http>>) -> Response {
    let text = tokio::task::spawn_blocking(move || write(&http)).await;
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, FORM)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn write(http: &Http) -> String {
    let mut text = Text::default();
    let reason = http.why_not_ready();
    let Some(server) = http.server.get() else {
        text.one("redis_up", Gauge, "Whether clients are served.", 0);
        text.one(
            "redis_loading_dump_file",
            Gauge,
            "Whether the store is being opened.",
            1,
        );
        return text.finish();
    };
    let stats = server.store.db.stats();
    text.one("redis_up", Gauge, "Whether clients are served.", 1);
    text.one(
        "redis_loading_dump_file",
        Gauge,
        "Whether the store is being opened.",
        0,
    );
    text.one(
        "gabion_ready",
        Gauge,
        "Whether clients should come, as /readyz says.",
        u8::from(reason.is_none()),
    );
    about_server(&mut text, server);
    about_clients(&mut text, server);
    about_memory(&mut text, server, &stats);
    about_keys(&mut text, server);
    about_commands(&mut text, server);
    about_latency(&mut text, server);
    about_writes(&mut text, &stats);
    about_space(&mut text, &stats);
    about_jobs(&mut text, &stats);
    about_levels(&mut text, &stats.keyspaces);
    text.finish()
}

#[expect(clippy::cast_precision_loss, reason = "a time for people")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Families of one number each.
fn ones(text: &mut Text, kind: super::text::Kind, families: &[(&'static str, &str, u64)]) {
    for (name, help, value) in families {
        text.one(name, kind, help, value);
    }
}

fn about_server(text: &mut Text, server: &Server) {
    let port = server.port.to_string();
    let process = std::process::id().to_string();
    text.family("redis_instance_info", Gauge, "What the server is.")
        .sample(
            &[
                ("role", "master"),
                ("redis_version", REDIS_VERSION),
                ("redis_mode", "standalone"),
                ("os", std::env::consts::OS),
                ("tcp_port", &port),
                ("run_id", &server.run_id),
                ("process_id", &process),
                ("gabion_version", env!("CARGO_PKG_VERSION")),
            ],
            1,
        );
    let saves = &server.saves;
    ones(
        text,
        Gauge,
        &[
            (
                "redis_uptime_in_seconds",
                "Time since the start.",
                server.started.elapsed().as_secs(),
            ),
            (
                "redis_rdb_changes_since_last_save",
                "Changes since the last SAVE or BGSAVE that succeeded.",
                saves.changes_since(&server.counts),
            ),
            (
                "redis_rdb_last_save_timestamp_seconds",
                "When that began.",
                saves.last(),
            ),
            (
                "redis_rdb_bgsave_in_progress",
                "Whether one runs.",
                saves.is_running().into(),
            ),
            (
                "redis_aof_enabled",
                "Whether writes are logged, which they always are.",
                1,
            ),
        ],
    );
}

fn about_clients(text: &mut Text, server: &Server) {
    let counts = &server.counts;
    ones(
        text,
        Gauge,
        &[
            (
                "redis_connected_clients",
                "Clients.",
                server.clients.count() as u64,
            ),
            (
                "redis_blocked_clients",
                "Clients whose command waits for a key.",
                server.blocking.count() as u64,
            ),
            (
                "redis_tracking_clients",
                "Clients that track keys.",
                server.tracking.sizes().followers as u64,
            ),
            (
                "redis_max_clients",
                "The most clients.",
                server.clients_max(),
            ),
            (
                "redis_pubsub_channels",
                "Channels with listeners.",
                server.pubsub.count_names(Topic::Channel) as u64,
            ),
            (
                "redis_pubsub_patterns",
                "Patterns with listeners.",
                server.pubsub.count_names(Topic::Pattern) as u64,
            ),
        ],
    );
    ones(
        text,
        Counter,
        &[
            (
                "redis_connections_received_total",
                "Clients that have come.",
                server.clients.count_ever(),
            ),
            (
                "redis_rejected_connections_total",
                "Clients that were refused.",
                counted(&counts.refused),
            ),
            (
                "redis_net_input_bytes_total",
                "Bytes of requests.",
                counted(&counts.bytes_in),
            ),
            (
                "redis_net_output_bytes_total",
                "Bytes of replies.",
                counted(&counts.bytes_out),
            ),
        ],
    );
}

fn about_memory(text: &mut Text, server: &Server, stats: &Stats) {
    let memory = &stats.memory;
    let (lua_bytes, scripts) = server.scripts.sizes();
    ones(
        text,
        Gauge,
        &[
            (
                "redis_memory_used_bytes",
                "Memory that counts towards the ceiling.",
                memory.bytes,
            ),
            (
                "redis_memory_max_bytes",
                "The ceiling of the store's memory.",
                memory.bytes_max,
            ),
            (
                "redis_memory_used_lua_bytes",
                "Memory of scripts.",
                lua_bytes as u64,
            ),
            (
                "redis_number_of_cached_scripts",
                "Scripts that EVALSHA knows.",
                scripts as u64,
            ),
        ],
    );
    if let Some(bytes) = resident_bytes() {
        text.one(
            "redis_memory_used_rss_bytes",
            Gauge,
            "Memory of the process, as the system counts it.",
            bytes,
        );
    }
    text.family(
        "gabion_memory_bytes",
        Gauge,
        "Memory of the store, by who has it.",
    );
    for (part, bytes) in [
        ("tables", memory.tables),
        ("memtables", memory.memtables),
        ("recycled", memory.recycled),
        ("cache", memory.cache),
    ] {
        text.sample(&[("part", part)], bytes);
    }
    let cache = &stats.cache;
    ones(
        text,
        Gauge,
        &[
            (
                "gabion_memtables_max_bytes",
                "What MemTables may use now.",
                memory.memtables_max,
            ),
            (
                "gabion_cache_max_bytes",
                "What the block cache may use now.",
                cache.bytes_max,
            ),
        ],
    );
    ones(
        text,
        Counter,
        &[
            (
                "gabion_cache_hits_total",
                "Blocks found in the cache.",
                cache.hits,
            ),
            (
                "gabion_cache_misses_total",
                "Blocks read from the drive.",
                cache.misses,
            ),
        ],
    );
}

/// Memory of the process by the system's count, where that can be read.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

fn about_keys(text: &mut Text, server: &Server) {
    let store = &server.store;
    let sizes: Vec<_> = (0..store.databases())
        .map(|database| {
            (
                format!("db{database}"),
                store.sizes.of(store.space(database)),
            )
        })
        .filter(|(_, size)| size.keys > 0)
        .collect();
    text.family("redis_db_keys", Gauge, "Keys.");
    for (name, size) in &sizes {
        text.sample(&[("db", name)], size.keys);
    }
    text.family("redis_db_keys_expiring", Gauge, "Keys that expire.");
    for (name, size) in &sizes {
        text.sample(&[("db", name)], size.expiring);
    }
    let counts = &server.counts;
    ones(
        text,
        Counter,
        &[
            (
                "redis_keyspace_hits_total",
                "Keys that were looked for and found.",
                counted(&counts.hits),
            ),
            (
                "redis_keyspace_misses_total",
                "Keys that were looked for and not found.",
                counted(&counts.misses),
            ),
            (
                "redis_expired_keys_total",
                "Keys that have expired.",
                counted(&counts.expired),
            ),
            (
                "redis_evicted_keys_total",
                "Keys that were evicted: none.",
                0,
            ),
        ],
    );
}

fn about_commands(text: &mut Text, server: &Server) {
    text.one(
        "redis_commands_processed_total",
        Counter,
        "Commands that ran.",
        counted(&server.counts.commands),
    );
    let called: Vec<_> = server.calls.called(table::commands().names()).collect();
    text.family("redis_commands_total", Counter, "Calls by command.");
    for (_, called) in &called {
        text.sample(&[("cmd", called.name)], called.calls);
    }
    text.family(
        "redis_commands_duration_seconds_total",
        Counter,
        "Time of calls by command.",
    );
    for (_, called) in &called {
        text.sample(&[("cmd", called.name)], seconds(called.nanos));
    }
    text.family(
        "redis_commands_rejected_calls_total",
        Counter,
        "Calls by command that were refused before they ran.",
    );
    for (_, called) in &called {
        text.sample(&[("cmd", called.name)], called.rejected);
    }
    text.family(
        "redis_commands_failed_calls_total",
        Counter,
        "Calls by command that failed.",
    );
    for (_, called) in &called {
        text.sample(&[("cmd", called.name)], called.failed);
    }
    text.family("redis_errors_total", Counter, "Errors by their first word.");
    for (kind, times) in server.calls.errors() {
        text.sample(&[("err", &kind)], times);
    }
}

fn about_latency(text: &mut Text, server: &Server) {
    let called = server.calls.called(table::commands().names());
    let counts: Vec<_> = called
        .filter_map(|(number, called)| Some((called, server.calls.counts_of(number)?)))
        .collect();
    let micros = |nanos: u64| seconds(nanos) * 1e6;
    text.family(
        "redis_commands_latencies_usec",
        Histogram,
        "Microseconds of calls by command.",
    );
    for (called, counts) in &counts {
        for (nanos, below) in counts.by_powers_of_two() {
            let bound = micros(nanos).to_string();
            text.part("_bucket", &[("cmd", called.name), ("le", &bound)], below);
        }
        let total = counts.total();
        text.part("_bucket", &[("cmd", called.name), ("le", "+Inf")], total);
        text.part("_sum", &[("cmd", called.name)], micros(called.nanos));
        text.part("_count", &[("cmd", called.name)], total);
    }
    text.family(
        "redis_latency_percentiles_usec",
        Summary,
        "Microseconds that a part of the calls did not exceed, by command.",
    );
    for (called, counts) in &counts {
        for (quantile, percent) in [("0.5", 50.0), ("0.99", 99.0), ("0.999", 99.9)] {
            let labels = [("cmd", called.name), ("quantile", quantile)];
            text.sample(&labels, micros(counts.percentile(percent)));
        }
        text.part("_sum", &[("cmd", called.name)], micros(called.nanos));
        text.part("_count", &[("cmd", called.name)], counts.total());
    }
    let kinds = server.spikes.all();
    text.family(
        "redis_latency_spike_last",
        Gauge,
        "When an event last took latency-monitor-threshold or longer.",
    );
    for (name, kind) in &kinds {
        let last = kind.samples.back().map_or(0, |last| last.at);
        text.sample(&[("event_name", name)], last);
    }
    text.family(
        "redis_latency_spike_duration_seconds",
        Gauge,
        "How long that event took.",
    );
    for (name, kind) in &kinds {
        let last = kind.samples.back().map_or(0, |last| last.ms);
        text.sample(&[("event_name", name)], seconds(last * 1_000_000));
    }
    let slow = server.monitor.slow(1);
    let last_id = slow.first().map_or(0, |slow| slow.id);
    ones(
        text,
        Gauge,
        &[
            (
                "redis_slowlog_length",
                "Slow commands that SLOWLOG has.",
                server.monitor.slow_count() as u64,
            ),
            (
                "redis_slowlog_last_id",
                "The number of the last one.",
                last_id,
            ),
        ],
    );
    text.one(
        "redis_last_slow_execution_duration_seconds",
        Gauge,
        "How long that took.",
        seconds(slow.first().map_or(0, |slow| slow.micros * 1000)),
    );
}

fn about_writes(text: &mut Text, stats: &Stats) {
    ones(
        text,
        Counter,
        &[
            (
                "gabion_user_bytes_total",
                "Bytes of keys and values that were written into the store.",
                stats.user_bytes,
            ),
            (
                "gabion_writes_total",
                "Writes, a batch being one.",
                stats.writes,
            ),
            (
                "gabion_syncs_total",
                "Syncs of files and directories.",
                stats.syncs,
            ),
        ],
    );
    let written = &stats.written;
    text.family(
        "gabion_written_bytes_total",
        Counter,
        "Bytes written to the drive, by purpose.",
    );
    for (purpose, bytes) in [
        ("log", written.log),
        ("flush", written.flush),
        ("compaction", written.compaction),
        ("split", written.split),
        ("merge", written.merge),
        ("gc", written.gc),
        ("checkpoint", written.checkpoint),
        ("metadata", written.metadata),
    ] {
        text.sample(&[("purpose", purpose)], bytes);
    }
    text.one(
        "gabion_write_amplification",
        Gauge,
        "Bytes written without the log for each byte of the user.",
        stats.write_amplification_without_log,
    );
    text.one(
        "gabion_write_amplification_with_log",
        Gauge,
        "The same with the log.",
        stats.write_amplification_with_log,
    );
    if let Some(bound) = stats.write_amplification_bound {
        text.one(
            "gabion_write_amplification_bound",
            Gauge,
            "What the amplification without the log is at most while the store is filled.",
            bound,
        );
    }
    text.one(
        "gabion_stalls_total",
        Counter,
        "How often a writer was stopped.",
        stats.stalls,
    );
    for (name, help, nanos) in [
        (
            "gabion_stall_seconds_total",
            "Time that writers were stopped.",
            stats.stall_ns,
        ),
        (
            "gabion_slowdown_seconds_total",
            "Time that writers were slowed down or stopped.",
            stats.slowdown_ns,
        ),
        (
            "gabion_background_wait_seconds_total",
            "Time that jobs waited for the limit on background writes.",
            stats.background_wait_ns,
        ),
    ] {
        text.one(name, Counter, help, seconds(nanos));
    }
    text.one(
        "gabion_slowdown_max_seconds",
        Gauge,
        "The longest time that a write was held back.",
        seconds(stats.slowdown_ns_max),
    );
}

fn about_space(text: &mut Text, stats: &Stats) {
    ones(
        text,
        Gauge,
        &[
            (
                "gabion_space_bytes",
                "Bytes of all files of the store.",
                stats.space_bytes,
            ),
            ("gabion_table_bytes", "Bytes of tables.", stats.table_bytes),
            (
                "gabion_live_bytes",
                "Bytes of tables that readers of now can see, estimated.",
                stats.live_bytes,
            ),
            (
                "gabion_log_file_bytes",
                "Bytes of the log's files.",
                stats.log_file_bytes,
            ),
            (
                "gabion_log_bytes",
                "Bytes of the log that a recovery would read.",
                stats.log_bytes,
            ),
            (
                "gabion_log_kept_for_consumers_bytes",
                "Bytes of the log that only consumers of changes need.",
                stats.log_bytes_kept_for_consumers,
            ),
            (
                "gabion_snapshots",
                "Snapshots, transactions and iterators that are open.",
                stats.snapshots,
            ),
        ],
    );
    text.one(
        "gabion_space_amplification",
        Gauge,
        "Bytes of tables for each that is live.",
        stats.space_amplification,
    );
    let garbage = &stats.garbage;
    text.family(
        "gabion_garbage_bytes",
        Gauge,
        "Bytes of tables that nobody sees, by kind, estimated.",
    );
    for (kind, bytes) in [
        ("old_versions", garbage.old_version_bytes),
        ("deleted_ranges", garbage.deleted_range_bytes),
        ("shared", garbage.shared_bytes),
        ("expired", garbage.expired_bytes),
    ] {
        text.sample(&[("kind", kind)], bytes);
    }
}

fn about_jobs(text: &mut Text, stats: &Stats) {
    ones(
        text,
        Counter,
        &[
            (
                "gabion_flushes_total",
                "MemTables that became tables.",
                stats.flushes,
            ),
            (
                "gabion_compactions_total",
                "Compactions.",
                stats.compactions,
            ),
            (
                "gabion_splits_total",
                "Buckets that were split.",
                stats.splits,
            ),
            (
                "gabion_joins_total",
                "Buckets that were joined with a neighbour.",
                stats.joins,
            ),
        ],
    );
}

fn about_levels(text: &mut Text, keyspaces: &[KeyspaceStats]) {
    text.family("gabion_buckets", Gauge, "Buckets by keyspace.");
    for keyspace in keyspaces {
        text.sample(&[("keyspace", &keyspace.name)], keyspace.buckets.len());
    }
    let deepest = |keyspace: &KeyspaceStats| {
        let levels = keyspace.buckets.iter().map(|bucket| bucket.levels.len());
        levels.max().unwrap_or(0)
    };
    let mut each = |name, help, value: fn(&[u64]) -> u64| {
        text.family(name, Gauge, help);
        for keyspace in keyspaces {
            for level in 0..deepest(keyspace) {
                let buckets = keyspace.buckets.iter();
                let levels = buckets.filter_map(|bucket| bucket.levels.get(level));
                let sum: u64 = levels.map(|sublevels| value(sublevels)).sum();
                let level = level.to_string();
                text.sample(&[("keyspace", &keyspace.name), ("level", &level)], sum);
            }
        }
    };
    each(
        "gabion_level_bytes",
        "Bytes of tables by keyspace and level.",
        |sublevels| sublevels.iter().sum(),
    );
    each(
        "gabion_level_runs",
        "Runs by keyspace and level, of all buckets.",
        |sublevels| sublevels.len() as u64,
    );
}
