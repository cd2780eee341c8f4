//! Invented results for the tests of the report: shaped like real ones, the same every time.

use std::collections::BTreeMap;

use crate::measure::Percentiles;
use crate::result::{BytesWritten, LatencyPoint, OperationLatency, PhaseResult, TimelinePoint};

/// Names, and how fast and how write-hungry each is.
const TARGETS: [(&str, f64, f64); 8] = [
    ("wip", 1.0, 3.2),
    ("rocksdb", 0.62, 11.0),
    ("leveldb", 0.31, 14.5),
    ("lmdb", 0.18, 31.0),
    ("redb", 0.12, 38.0),
    ("fjall", 0.55, 9.0),
    ("sled", 0.21, 17.0),
    ("sqlite", 0.05, 44.0),
];

/// Names, operations per second of the fastest, and the part of operations that write.
const PHASES: [(&str, f64, f64); 8] = [
    ("fillrandom uniform", 1.3e6, 1.0),
    ("overwrite zipfian", 9.4e5, 1.0),
    ("readrandom uniform", 6.1e5, 0.0),
    ("readrandom zipfian", 1.9e6, 0.0),
    ("seekrandom uniform", 2.7e5, 0.0),
    ("ycsb-a zipfian", 8.8e5, 0.5),
    ("ycsb-d latest", 1.1e6, 0.05),
    ("mixed uniform", 4.0e5, 0.3),
];

/// A result in which nothing was measured.
pub(crate) fn empty() -> PhaseResult {
    PhaseResult {
        target: "wip".to_owned(),
        workload: "fillrandom uniform".to_owned(),
        phase: "fillrandom".to_owned(),
        records: 0,
        operations: 0,
        threads: 1,
        key_bytes: 16,
        value_bytes: 100,
        seed: 1,
        seconds: 0.0,
        ops_per_s: 0.0,
        latency_us: Percentiles::default(),
        cpu_user_s: 0.0,
        cpu_sys_s: 0.0,
        rss_bytes_max: None,
        memory_bytes: None,
        bytes_user: 0,
        bytes_written: None,
        bytes_written_drive: None,
        bytes_written_process: None,
        wa_without_log: None,
        wa_with_log: None,
        wa_process: None,
        space_bytes: 0,
        stall_s: None,
        slowdown_s: None,
        settle_s: 0.0,
        found: 0,
        conflicts: None,
        latency_us_by_operation: BTreeMap::new(),
        repetition: 0,
        rate_per_s: None,
        bytes_read_process: None,
        space_amplification: None,
        files: 0,
        records_live: None,
        restart_log_bytes: None,
        throughput: Vec::new(),
        borders: Vec::new(),
        latency_curve: Vec::new(),
        pm: None,
        settings: serde_json::Value::Null,
        version: "0.1.0".to_owned(),
        machine: "8 x Invented CPU at 3.0 GHz, 64 GiB, linux 6.1 x86_64".to_owned(),
        notes: Vec::new(),
    }
}

/// Results of so many targets, phases and repetitions, interleaved as a run does it.
pub(crate) fn results(targets: usize, phases: usize, repetitions: u32) -> Vec<PhaseResult> {
    let mut results = Vec::new();
    for repetition in 0..repetitions {
        for target in 0..targets {
            results.extend((0..phases).map(|phase| one(target, phase, repetition)));
        }
    }
    results
}

/// Numbers from 0 to 1 that look random.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(self.0 >> 8) / f64::from(1u32 << 24)
    }
}

fn one(target: usize, phase: usize, repetition: u32) -> PhaseResult {
    let (name, speed, hunger) = TARGETS[target % TARGETS.len()];
    let (workload, ops_max, writes) = PHASES[phase % PHASES.len()];
    let number = |index: usize| u32::try_from(index).unwrap();
    let mut noise = Noise(number(target) * 7919 + number(phase) * 104_729 + repetition * 31);
    noise.next();
    // Trees that write in place read faster than they write.
    let speed = speed.powf(if writes < 0.2 { 0.45 } else { 1.0 }) * (0.85 + 0.3 * noise.next());
    let ops_per_s = ops_max * speed * (0.97 + 0.06 * noise.next());
    let operations = 20_000_000_u64;
    let seconds = operations as f64 / ops_per_s;
    let p50 = 1.6e6 / ops_per_s;
    let tail = 1.5 + hunger / 20.0;
    let curve = latency_curve(p50, tail, &mut noise);
    let at = |quantile: f64| {
        let point = curve.iter().find(|point| point.quantile >= quantile);
        point.map_or(0.0, |point| point.micros)
    };
    let latency_us = Percentiles {
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: at(1.0),
    };
    let bytes_user = whole(operations as f64 * writes) * 116;
    let counts = target < 3;
    let purpose = |part: f64| whole(bytes_user as f64 * part);
    let mut bytes_written = BytesWritten {
        log: purpose(1.1),
        flush: purpose(1.0),
        compaction: purpose(hunger - 2.1),
        split: purpose(if target == 0 { 0.3 } else { 0.0 }),
        metadata: purpose(if target == 0 { 0.02 } else { 0.0 }),
        ..BytesWritten::default()
    };
    bytes_written.total = bytes_written.log
        + bytes_written.flush
        + bytes_written.compaction
        + bytes_written.split
        + bytes_written.metadata;
    let (without, with) = bytes_written.amplification(bytes_user);
    let process = whole(bytes_user as f64 * hunger * 1.03);
    let mut by_operation = BTreeMap::new();
    for kind in ["get", "put"] {
        if writes > 0.0 && writes < 1.0 {
            let calls = operations / 2;
            by_operation.insert(kind.to_owned(), OperationLatency { calls, latency_us });
        }
    }
    PhaseResult {
        target: name.to_owned(),
        workload: workload.to_owned(),
        phase: workload.split(' ').next().unwrap_or_default().to_owned(),
        records: 20_000_000,
        operations,
        threads: if writes < 1.0 { 4 } else { 1 },
        seconds,
        ops_per_s,
        latency_us,
        cpu_user_s: seconds * (0.8 + 0.8 * noise.next()),
        cpu_sys_s: seconds * 0.4 * noise.next(),
        rss_bytes_max: Some(whole((0.4 + noise.next()) * 1.2e9)),
        bytes_user,
        bytes_written: counts.then_some(bytes_written),
        bytes_written_drive: None,
        bytes_written_process: Some(process),
        wa_without_log: without.filter(|_| counts),
        wa_with_log: with.filter(|_| counts),
        wa_process: (bytes_user > 0).then_some(hunger * 1.03),
        space_bytes: whole(2.32e9 * (1.0 + hunger / 60.0)),
        stall_s: counts.then_some(seconds * 0.02 * noise.next() * writes),
        slowdown_s: counts.then_some(seconds * 0.05 * noise.next() * writes),
        settle_s: writes * 4.0 * noise.next(),
        found: 0,
        conflicts: None,
        latency_us_by_operation: by_operation,
        repetition,
        rate_per_s: None,
        bytes_read_process: Some(whole(4e9 * noise.next())),
        space_amplification: Some(1.0 + hunger / 60.0),
        files: 40 + u64::from(number(target)),
        records_live: Some(20_000_000),
        restart_log_bytes: None,
        throughput: throughput(ops_per_s, seconds, hunger, &mut noise),
        latency_curve: curve,
        settings: settings(target),
        notes: if name == "lmdb" {
            vec!["bound by the page cache, not by the cache size given".to_owned()]
        } else {
            Vec::new()
        },
        ..empty()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "invented figures are small"
)]
fn whole(figure: f64) -> u64 {
    figure.max(0.0) as u64
}

fn settings(target: usize) -> serde_json::Value {
    let page = ["4 KiB", "unaligned"][target % 2];
    serde_json::json!({
        "durability": "flush to the system, no sync",
        "cache_bytes": 256_u64 << 20,
        "compression": "none",
        "store": {
            "write_buffer_bytes": 64_u64 << 20,
            "levels": 4 + target,
            "bits_per_key": if target < 3 { Some(10) } else { None },
            "page": page,
        },
    })
}

fn throughput(ops_per_s: f64, seconds: f64, hunger: f64, noise: &mut Noise) -> Vec<TimelinePoint> {
    let count = 60_u32.max(u32::try_from(whole(seconds)).unwrap());
    let mut moments: Vec<TimelinePoint> = Vec::new();
    for index in 1..=count {
        let part = f64::from(index) / f64::from(count);
        let dip = if noise.next() < 0.01 * hunger {
            0.35
        } else {
            1.0
        };
        let slope = 1.25 - 0.4 * part.sqrt();
        moments.push(TimelinePoint {
            seconds: part * seconds,
            ops_per_s: ops_per_s * slope * dip * (0.93 + 0.14 * noise.next()),
        });
    }
    moments
}

fn latency_curve(p50: f64, tail: f64, noise: &mut Noise) -> Vec<LatencyPoint> {
    let mut points = Vec::new();
    let mut micros = p50 * 0.4;
    for step in 0..=60 {
        let nines = f64::from(step) / 10.0;
        let cliff = if step > 25 {
            1.0 + 0.16 * tail * noise.next()
        } else {
            1.0
        };
        micros *= (1.0 + 0.09 * tail * noise.next()) * cliff;
        points.push(LatencyPoint {
            quantile: 1.0 - 10f64.powf(-nines),
            micros,
        });
    }
    points.push(LatencyPoint {
        quantile: 1.0,
        micros: micros * 1.4,
    });
    points
}
