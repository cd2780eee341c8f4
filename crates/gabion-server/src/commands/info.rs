//! `INFO`: what goes on, in sections of lines that tools read.

use std::fmt::Write;
use std::path::Path;

use crate::command::{Command, CommandGroup, LOADING, STALE, command};
use crate::execution::Execution;
use crate::fault::Result;
use crate::pubsub::SubscriptionKind;
use crate::server::counted;

/// The version of Redis whose commands these are, which clients look at.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

pub(crate) const COMMANDS: &[Command] = &[command("info", -1, info).flags(LOADING | STALE).about(
    CommandGroup::Server,
    "1.0.0",
    "Shows statistics of the server.",
)];

type Section = fn(&Execution<'_>, &mut String) -> std::fmt::Result;

const SECTIONS: &[(&str, &str, Section)] = &[
    ("server", "Server", server),
    ("clients", "Clients", clients),
    ("memory", "Memory", memory),
    ("persistence", "Persistence", persistence),
    ("stats", "Stats", stats),
    ("errorstats", "Errorstats", errorstats),
    ("commandstats", "Commandstats", commandstats),
    ("latencystats", "Latencystats", latencystats),
    ("replication", "Replication", replication),
    ("cluster", "Cluster", cluster),
    ("keyspace", "Keyspace", keyspace),
];

fn info(execution: &mut Execution<'_>) -> Result<()> {
    let asked: Vec<Vec<u8>> = execution
        .args
        .from(1)
        .iter()
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    let is_any = |words: &[&[u8]]| asked.iter().any(|word| words.contains(&&word[..]));
    let shows_all = is_any(&[b"all", b"everything"]);
    let shows_default = shows_all || asked.is_empty() || is_any(&[b"default"]);
    let session = &mut *execution.session;
    session.calling.add_up(&execution.server.calls);
    let mut text = String::new();
    for (name, title, write) in SECTIONS {
        let is_shown = match *name {
            // Long.
            "commandstats" | "latencystats" => shows_all,
            _ => shows_default,
        };
        if !is_shown && !is_any(&[name.as_bytes()]) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing to a string does not fail.
        let _ = write!(text, "# {title}\r\n");
        let _ = write(execution, &mut text);
    }
    execution.reply.verbatim(&text);
    Ok(())
}

macro_rules! lines {
    ($text:ident, $($name:literal: $value:expr),* $(,)?) => {
        $(write!($text, "{}:{}\r\n", $name, $value)?;)*
    };
}

fn server(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    let server = execution.server;
    let uptime = server.started.elapsed().as_secs();
    lines!(
        text,
        "redis_version": REDIS_VERSION,
        "redis_mode": "standalone",
        "gabion_version": env!("CARGO_PKG_VERSION"),
        "os": std::env::consts::OS,
        "arch_bits": usize::BITS,
        "multiplexing_api": "epoll",
        "process_id": std::process::id(),
        "run_id": server.run_id,
        "tcp_port": server.port,
        "server_time_usec": execution.now_ms() * 1000,
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime / 86_400,
        "config_file": server.config.file.as_deref().unwrap_or(Path::new("")).display(),
    );
    Ok(())
}

fn clients(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    let server = execution.server;
    lines!(
        text,
        "connected_clients": server.clients.count(),
        "cluster_connections": 0,
        "maxclients": server.clients_max(),
        "tracking_clients": server.tracking.sizes().followers,
        "blocked_clients": server.blocking.count(),
    );
    Ok(())
}

fn memory(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    let memory = execution.server.store.db.stats().memory;
    let (lua_bytes, scripts) = execution.server.scripts.sizes();
    lines!(
        text,
        "used_memory": memory.bytes,
        "used_memory_lua": lua_bytes,
        "used_memory_vm_eval": lua_bytes,
        "number_of_cached_scripts": scripts,
        "maxmemory": execution.server.settings.text("maxmemory"),
        "maxmemory_policy": "noeviction",
        "mem_fragmentation_ratio": "1.00",
    );
    Ok(())
}

fn persistence(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    let saves = &execution.server.saves;
    lines!(
        text,
        "loading": 0,
        "async_loading": 0,
        "rdb_changes_since_last_save": saves.changes_since(&execution.server.counts),
        "rdb_bgsave_in_progress": u8::from(saves.is_running()),
        "rdb_last_save_time": saves.last(),
        "rdb_last_bgsave_status": if saves.has_failed() { "err" } else { "ok" },
        "aof_enabled": 1,
        "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0,
        "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": "ok",
    );
    Ok(())
}

fn stats(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    let (server, counts) = (execution.server, &execution.server.counts);
    let tracked = server.tracking.sizes();
    lines!(
        text,
        "total_connections_received": server.clients.count_ever(),
        "total_commands_processed": counted(&counts.commands) + execution.work.commands,
        "total_net_input_bytes": counted(&counts.bytes_in),
        "total_net_output_bytes": counted(&counts.bytes_out),
        "rejected_connections": counted(&counts.refused),
        "expired_keys": counted(&counts.expired),
        "evicted_keys": 0,
        "keyspace_hits": counted(&counts.hits) + execution.work.hits,
        "keyspace_misses": counted(&counts.misses) + execution.work.misses,
        "pubsub_channels": server.pubsub.count_names(SubscriptionKind::Channel),
        "pubsub_patterns": server.pubsub.count_names(SubscriptionKind::Pattern),
        "pubsubshard_channels": server.pubsub.count_names(SubscriptionKind::Shard),
        "tracking_total_keys": tracked.keys,
        "tracking_total_items": tracked.items,
        "tracking_total_prefixes": tracked.prefixes,
        "total_error_replies": counted(&counts.errors),
    );
    Ok(())
}

fn errorstats(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    text.push_str(&execution.server.calls.error_lines());
    Ok(())
}

fn commandstats(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    let calls = &execution.server.calls;
    text.push_str(&calls.command_lines(execution.commands.names()));
    Ok(())
}

fn latencystats(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    let server = execution.server;
    let names = execution.commands.names();
    let percents = server.settings.percents();
    text.push_str(&server.calls.percentile_lines(names, &percents));
    Ok(())
}

fn replication(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    lines!(
        text,
        "role": "master",
        "connected_slaves": 0,
        "master_replid": execution.server.run_id,
        "master_repl_offset": 0,
        "repl_backlog_active": 0,
    );
    Ok(())
}

fn cluster(_: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    lines!(text, "cluster_enabled": 0);
    Ok(())
}

fn keyspace(execution: &Execution<'_>, text: &mut String) -> std::fmt::Result {
    let store = &execution.server.store;
    for database in 0..store.databases() {
        let size = store.sizes.of(store.space(database));
        if size.keys > 0 {
            let (keys, expires) = (size.keys, size.expiring);
            write!(
                text,
                "db{database}:keys={keys},expires={expires},avg_ttl=0\r\n"
            )?;
        }
    }
    Ok(())
}
