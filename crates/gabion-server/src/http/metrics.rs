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
use super::text::MetricType::{Counter, Gauge, Histogram, Summary};
use super::text::MetricsText;
use crate::commands::info::REDIS_VERSION;
use crate::pubsub::SubscriptionKind;
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
    let mut text = MetricsText::default();
    let reason = http.why_not_ready();
    let Some(server) = http.server.get() else {
        text.one("redis_up", Gauge, "Whether the server accepts clients.", 0);
        text.one(
            "redis_loading_dump_file",
            Gauge,
            "Whether the store is being opened.",
            1,
        );
        return text.finish();
    };
    let stats = server.store.db.stats();
    text.one("redis_up", Gauge, "Whether the server accepts clients.", 1);
    text.one(
        "redis_loading_dump_file",
        Gauge,
        "Whether the store is being opened.",
        0,
    );
    text.one(
        "gabion_ready",
        Gauge,
        "Whether the server is ready for clients, as /readyz reports.",
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
fn ones(
    text: &mut MetricsText,
    kind: super::text::MetricType,
    families: &[(&'static str, &str, u64)],
) {
    for (name, help, value) in families {
        text.one(name, kind, help, value);
    }
}

fn about_server(text: &mut MetricsText, server: &Server) {
    let port = server.port.to_string();
    let process = std::process::id().to_string();
    text.family(
        "redis_instance_info",
        Gauge,
        "Version and identity of the server.",
    )
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
                "Seconds since the server started.",
                server.started.elapsed().as_secs(),
            ),
            (
                "redis_rdb_changes_since_last_save",
                "Changes since the last successful SAVE or BGSAVE.",
                saves.changes_since(&server.counts),
            ),
            (
                "redis_rdb_last_save_timestamp_seconds",
                "When the last successful SAVE or BGSAVE began, in seconds since 1970.",
                saves.last(),
            ),
            (
                "redis_rdb_bgsave_in_progress",
                "Whether a BGSAVE is running.",
                saves.is_running().into(),
            ),
            (
                "redis_aof_enabled",
                "Whether writes are logged; always 1.",
                1,
            ),
        ],
    );
}

fn about_clients(text: &mut MetricsText, server: &Server) {
    let counts = &server.counts;
    ones(
        text,
        Gauge,
        &[
            (
                "redis_connected_clients",
                "Connected clients.",
                server.clients.count() as u64,
            ),
            (
                "redis_blocked_clients",
                "Clients blocked in a command that waits for a key.",
                server.blocking.count() as u64,
            ),
            (
                "redis_tracking_clients",
                "Clients with key tracking turned on.",
                server.tracking.sizes().followers as u64,
            ),
            (
                "redis_max_clients",
                "Limit of connected clients.",
                server.clients_max(),
            ),
            (
                "redis_pubsub_channels",
                "Channels with subscribers.",
                server.pubsub.count_names(SubscriptionKind::Channel) as u64,
            ),
            (
                "redis_pubsub_patterns",
                "Patterns with subscribers.",
                server.pubsub.count_names(SubscriptionKind::Pattern) as u64,
            ),
        ],
    );
    ones(
        text,
        Counter,
        &[
            (
                "redis_connections_received_total",
                "Connections accepted since the start.",
                server.clients.count_ever(),
            ),
            (
                "redis_rejected_connections_total",
                "Connections refused since the start.",
                counted(&counts.refused),
            ),
            (
                "redis_net_input_bytes_total",
                "Bytes received from clients.",
                counted(&counts.bytes_in),
            ),
            (
                "redis_net_output_bytes_total",
                "Bytes sent to clients.",
                counted(&counts.bytes_out),
            ),
        ],
    );
}

fn about_memory(text: &mut MetricsText, server: &Server, stats: &Stats) {
    let memory = &stats.memory;
    let (lua_bytes, scripts) = server.scripts.sizes();
    ones(
        text,
        Gauge,
        &[
            (
                "redis_memory_used_bytes",
                "Bytes of memory that count towards the store's limit.",
                memory.bytes,
            ),
            (
                "redis_memory_max_bytes",
                "Limit of the store's memory in bytes.",
                memory.bytes_max,
            ),
            (
                "redis_memory_used_lua_bytes",
                "Bytes of memory that scripts use.",
                lua_bytes as u64,
            ),
            (
                "redis_number_of_cached_scripts",
                "Scripts cached for EVALSHA.",
                scripts as u64,
            ),
        ],
    );
    if let Some(bytes) = resident_bytes() {
        text.one(
            "redis_memory_used_rss_bytes",
            Gauge,
            "Resident memory of the process in bytes, as the system counts it.",
            bytes,
        );
    }
    text.family(
        "gabion_memory_bytes",
        Gauge,
        "Bytes of the store's memory, by use.",
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
                "Bytes that MemTables may use at present.",
                memory.memtables_max,
            ),
            (
                "gabion_cache_max_bytes",
                "Bytes that the block cache may use at present.",
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

fn about_keys(text: &mut MetricsText, server: &Server) {
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
    text.family("redis_db_keys_expiring", Gauge, "Keys with an expiry.");
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
                "Lookups that found the key.",
                counted(&counts.hits),
            ),
            (
                "redis_keyspace_misses_total",
                "Lookups that did not find the key.",
                counted(&counts.misses),
            ),
            (
                "redis_expired_keys_total",
                "Keys removed because they expired.",
                counted(&counts.expired),
            ),
            ("redis_evicted_keys_total", "Keys evicted; always 0.", 0),
        ],
    );
}

fn about_commands(text: &mut MetricsText, server: &Server) {
    text.one(
        "redis_commands_processed_total",
        Counter,
        "Commands executed.",
        counted(&server.counts.commands),
    );
    let called: Vec<_> = server.calls.called(table::commands().names()).collect();
    text.family("redis_commands_total", Counter, "Calls, by command.");
    for (_, called) in &called {
        text.sample(&[("cmd", called.name)], called.calls);
    }
    text.family(
        "redis_commands_duration_seconds_total",
        Counter,
        "Seconds spent in calls, by command.",
    );
    for (_, called) in &called {
        text.sample(&[("cmd", called.name)], seconds(called.nanos));
    }
    text.family(
        "redis_commands_rejected_calls_total",
        Counter,
        "Calls rejected before execution, by command.",
    );
    for (_, called) in &called {
        text.sample(&[("cmd", called.name)], called.rejected);
    }
    text.family(
        "redis_commands_failed_calls_total",
        Counter,
        "Calls that failed during execution, by command.",
    );
    for (_, called) in &called {
        text.sample(&[("cmd", called.name)], called.failed);
    }
    text.family(
        "redis_errors_total",
        Counter,
        "Error replies, by the first word of the error.",
    );
    for (kind, times) in server.calls.errors() {
        text.sample(&[("err", &kind)], times);
    }
}

fn about_latency(text: &mut MetricsText, server: &Server) {
    let called = server.calls.called(table::commands().names());
    let counts: Vec<_> = called
        .filter_map(|(number, called)| Some((called, server.calls.counts_of(number)?)))
        .collect();
    let micros = |nanos: u64| seconds(nanos) * 1e6;
    text.family(
        "redis_commands_latencies_usec",
        Histogram,
        "Duration of calls in microseconds, by command.",
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
        "Percentiles of the duration of calls in microseconds, by command.",
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
        "When an event last took latency-monitor-threshold or longer, in seconds since 1970.",
    );
    for (name, kind) in &kinds {
        let last = kind.samples.back().map_or(0, |last| last.at);
        text.sample(&[("event_name", name)], last);
    }
    text.family(
        "redis_latency_spike_duration_seconds",
        Gauge,
        "Duration of the last event that took latency-monitor-threshold or longer.",
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
                "Entries in SLOWLOG.",
                server.monitor.slow_count() as u64,
            ),
            (
                "redis_slowlog_last_id",
                "Id of the last entry in SLOWLOG.",
                last_id,
            ),
        ],
    );
    text.one(
        "redis_last_slow_execution_duration_seconds",
        Gauge,
        "Duration of the last command in SLOWLOG.",
        seconds(slow.first().map_or(0, |slow| slow.micros * 1000)),
    );
}

fn about_writes(text: &mut MetricsText, stats: &Stats) {
    ones(
        text,
        Counter,
        &[
            (
                "gabion_user_bytes_total",
                "Bytes of keys and values written to the store.",
                stats.user_bytes,
            ),
            (
                "gabion_writes_total",
                "Writes to the store; a batch counts as one.",
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
        "Write amplification: bytes written, without the log, per byte of keys and values.",
        stats.write_amplification_without_log,
    );
    text.one(
        "gabion_write_amplification_with_log",
        Gauge,
        "Write amplification with the log: bytes written per byte of keys and values.",
        stats.write_amplification_with_log,
    );
    if let Some(bound) = stats.write_amplification_bound {
        text.one(
            "gabion_write_amplification_bound",
            Gauge,
            "Upper bound of the write amplification, without the log, while the store is filled.",
            bound,
        );
    }
    text.one(
        "gabion_stalls_total",
        Counter,
        "Times that a writer was stopped.",
        stats.stalls,
    );
    for (name, help, nanos) in [
        (
            "gabion_stall_seconds_total",
            "Seconds that writers were stopped.",
            stats.stall_ns,
        ),
        (
            "gabion_slowdown_seconds_total",
            "Seconds that writers were slowed down or stopped.",
            stats.slowdown_ns,
        ),
        (
            "gabion_background_wait_seconds_total",
            "Seconds that background jobs waited for the limit on background writes.",
            stats.background_wait_ns,
        ),
    ] {
        text.one(name, Counter, help, seconds(nanos));
    }
    text.one(
        "gabion_slowdown_max_seconds",
        Gauge,
        "Longest delay of a single write.",
        seconds(stats.slowdown_ns_max),
    );
}

fn about_space(text: &mut MetricsText, stats: &Stats) {
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
                "Estimated bytes of tables that current readers can see.",
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
                "Open snapshots, transactions and iterators.",
                stats.snapshots,
            ),
        ],
    );
    text.one(
        "gabion_space_amplification",
        Gauge,
        "Space amplification: bytes of tables per live byte.",
        stats.space_amplification,
    );
    let garbage = &stats.garbage;
    text.family(
        "gabion_garbage_bytes",
        Gauge,
        "Estimated bytes of tables that no reader can see, by kind.",
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

fn about_jobs(text: &mut MetricsText, stats: &Stats) {
    ones(
        text,
        Counter,
        &[
            (
                "gabion_flushes_total",
                "MemTables flushed to tables.",
                stats.flushes,
            ),
            (
                "gabion_compactions_total",
                "Compactions.",
                stats.compactions,
            ),
            ("gabion_splits_total", "Bucket splits.", stats.splits),
            ("gabion_joins_total", "Bucket joins.", stats.joins),
        ],
    );
}

fn about_levels(text: &mut MetricsText, keyspaces: &[KeyspaceStats]) {
    text.family("gabion_buckets", Gauge, "Buckets, by keyspace.");
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
        "Bytes of tables, by keyspace and level.",
        |sublevels| sublevels.iter().sum(),
    );
    each(
        "gabion_level_runs",
        "Runs of all buckets, by keyspace and level.",
        |sublevels| sublevels.len() as u64,
    );
}
