//! Numbers of figures about stores, computed from the results of their phases.

use crate::result::{PhaseResult, TimelinePoint};
use crate::summary::Spread;

/// Part of a region behind its beginning in which throughput counts as that of the change.
const CHANGE: f64 = 0.125;
/// Regions of the phase whose regions change.
const REGIONS: f64 = 4.0;
/// Part of a phase at each of its ends that is compared.
const END: f64 = 0.2;

fn median(results: &[PhaseResult], figure: impl Fn(&PhaseResult) -> Option<f64>) -> Option<f64> {
    Some(Spread::of(results.iter().filter_map(figure))?.median)
}

/// Operations per second of a target in a phase, where there were most records.
fn rate(results: &[PhaseResult], target: &str, workload: &str) -> Option<f64> {
    let is_meant = |result: &&PhaseResult| result.target == target && result.workload == workload;
    let records = results
        .iter()
        .filter(is_meant)
        .map(|result| result.records)
        .max()?;
    median(results, |result| {
        (is_meant(&result) && result.records == records).then_some(result.ops_per_s)
    })
}

fn over(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.zip(other).map(|(one, other)| one / other)
}

/// Figure 2.3: puts into hash tables over puts into ordered tables.
pub(super) fn hashed_over_ordered(results: &[PhaseResult]) -> Option<f64> {
    let of = |target| rate(results, target, "overwrite uniform");
    over(of("wip-hash"), of("wip-ordered"))
}

/// Figure 2.7: mean throughput behind changes of the distribution over that of all else.
pub(super) fn mean_at_changes(results: &[PhaseResult]) -> Option<f64> {
    let result = results.iter().find(|result| result.phase == "regions")?;
    let (mut at_changes, mut elsewhere) = ((0.0, 0.0), (0.0, 0.0));
    for (done, rate) in by_operations(result) {
        let (region, within) = ((done * REGIONS).floor(), (done * REGIONS).fract());
        let (sum, count) = match region > 0.0 && within < CHANGE {
            true => &mut at_changes,
            false => &mut elsewhere,
        };
        *sum += rate;
        *count += 1.0;
    }
    let mean = |(sum, count): (f64, f64)| (count > 0.0).then(|| sum / count);
    over(mean(at_changes), mean(elsewhere))
}

/// Throughput by the part of the operations that was done at the middle of each stretch.
fn by_operations(result: &PhaseResult) -> Vec<(f64, f64)> {
    let (mut before, mut done) = (0.0, 0.0);
    let mut places = Vec::new();
    for &TimelinePoint { seconds, ops_per_s } in &result.throughput {
        let operations = ops_per_s * (seconds - before);
        places.push((done + operations / 2.0, ops_per_s));
        (before, done) = (seconds, done + operations);
    }
    places
        .into_iter()
        .map(|(at, rate)| (at / done, rate))
        .collect()
}

/// Figure 2.8: throughput at the end of the phase over that at its beginning.
pub(super) fn recovered(results: &[PhaseResult]) -> Option<f64> {
    let is_meant =
        |result: &&PhaseResult| result.target == "wip" && result.workload == "mixed uniform";
    let result = results.iter().find(is_meant)?;
    let moments = &result.throughput;
    let end = moments.last()?.seconds;
    let mean = |is_within: &dyn Fn(f64) -> bool| {
        let within = moments
            .iter()
            .filter(|moment| is_within(moment.seconds / end));
        let rates: Vec<f64> = within.map(|moment| moment.ops_per_s).collect();
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    };
    over(
        mean(&|place| place > 1.0 - END),
        mean(&|place| place <= END).or(moments.first().map(|moment| moment.ops_per_s)),
    )
}

/// Figure 2.8: reads with locality over reads without.
pub(super) fn exponential_over_uniform(results: &[PhaseResult]) -> Option<f64> {
    let of = |workload| rate(results, "wip", workload);
    over(of("mixed exponential"), of("mixed uniform"))
}

/// Figure 2.8: reads with locality, without compactions that follow them over with them.
pub(super) fn unaware_over_aware(results: &[PhaseResult]) -> Option<f64> {
    let of = |target| rate(results, target, "mixed exponential");
    over(of("wip-unaware"), of("wip"))
}

/// Figure 2.9: gigabytes of log and seconds of each restart, from small to large.
pub(super) fn restarts(results: &[PhaseResult]) -> Vec<(f64, f64)> {
    let restarts = results.iter().filter(|result| result.phase == "restart");
    let mut restarts: Vec<(f64, f64)> = restarts
        .filter_map(|result| Some((result.restart_log_bytes? as f64 / 1e9, result.seconds)))
        .collect();
    restarts.sort_by(|one, other| one.0.total_cmp(&other.0));
    restarts
}

/// Figure 2.9: seconds per gigabyte of the largest log.
pub(super) fn restart_of_a_gigabyte(results: &[PhaseResult]) -> Option<f64> {
    let (bytes, seconds) = restarts(results).last().copied()?;
    Some(seconds / bytes)
}

/// Figure 2.9: seconds per byte of the largest log over those of the smallest.
pub(super) fn restart_growth(results: &[PhaseResult]) -> Option<f64> {
    let restarts = restarts(results);
    let per_byte = |at: Option<&(f64, f64)>| at.map(|(bytes, seconds)| seconds / bytes);
    over(per_byte(restarts.last()), per_byte(restarts.first()))
}

/// Table 2.2: 99th percentile of short ranges over that of single reads.
pub(super) fn ranges_over_reads(results: &[PhaseResult]) -> Option<f64> {
    let p99 = |workload: &str, operation: &str| {
        median(results, |result| {
            let latency = result.latency_us_by_operation.get(operation)?;
            let is_meant = result.target == "wip" && result.workload == workload;
            is_meant.then_some(latency.latency_us.p99)
        })
    };
    over(p99("ycsb-e zipfian", "scan"), p99("ycsb-c zipfian", "read"))
}

/// Operations per second of FlexDB over RocksDB's.
pub(super) fn flexdb_over_rocksdb(results: &[PhaseResult], workload: &str) -> Option<f64> {
    let of = |target| rate(results, target, workload);
    over(of("flex"), of("rocksdb"))
}

/// Bytes that RocksDB wrote for each of the user's over FlexDB's, by the system's count.
pub(super) fn written_by_rocksdb(results: &[PhaseResult], workload: &str) -> Option<f64> {
    let of = |target| {
        median(results, |result| {
            let is_meant = result.target == target && result.workload == workload;
            result.wa_process.filter(|_| is_meant)
        })
    };
    over(of("rocksdb"), of("flex"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::sample;

    fn result(target: &str, workload: &str, ops_per_s: f64) -> PhaseResult {
        PhaseResult {
            target: target.to_owned(),
            workload: workload.to_owned(),
            phase: workload.split(' ').next().unwrap_or_default().to_owned(),
            ops_per_s,
            ..sample::empty()
        }
    }

    fn is_near(ours: Option<f64>, expected: f64) {
        let ours = ours.unwrap();
        assert!((ours - expected).abs() < 1e-9, "{ours} is not {expected}");
    }

    /// Moments of a second each.
    fn moments(rates: &[f64]) -> Vec<TimelinePoint> {
        let moment = |(at, rate): (usize, &f64)| TimelinePoint {
            seconds: at as f64 + 1.0,
            ops_per_s: *rate,
        };
        rates.iter().enumerate().map(moment).collect()
    }

    #[test]
    fn rates_are_those_of_the_most_records() {
        let of = |target, records, rate| PhaseResult {
            records,
            ..result(target, "overwrite uniform", rate)
        };
        let results = [
            of("wip-hash", 10, 9.0),
            of("wip-hash", 100, 4.0),
            of("wip-ordered", 10, 1.0),
            of("wip-ordered", 100, 2.0),
        ];
        is_near(hashed_over_ordered(&results), 2.0);
        assert_eq!(hashed_over_ordered(&results[..2]), None);
    }

    #[test]
    fn changes_are_told_from_what_lies_between() {
        let mut regions = result("wip", "regions", 1.0);
        // 32 stretches of about equal operations: those of a change are 8, 16 and 24.
        let mut rates = [100.0; 32];
        (rates[4], rates[16]) = (80.0, 40.0);
        regions.throughput = moments(&rates);
        is_near(
            mean_at_changes(std::slice::from_ref(&regions)),
            80.0 / (2880.0 / 29.0),
        );
        (rates[4], rates[16]) = (0.0, 100.0);
        regions.throughput = moments(&rates);
        is_near(mean_at_changes(&[regions]), 29.0 / 28.0);
        assert_eq!(mean_at_changes(&[]), None);
    }

    #[test]
    fn the_end_of_a_phase_is_compared_with_its_beginning() {
        let mut mixed = result("wip", "mixed uniform", 1.0);
        mixed.throughput = moments(&[2.0, 2.0, 9.0, 1.0, 9.0, 9.0, 9.0, 9.0, 3.0, 5.0]);
        is_near(recovered(std::slice::from_ref(&mixed)), 2.0);
        mixed.throughput = moments(&[2.0]);
        is_near(recovered(&[mixed]), 1.0);
        assert_eq!(recovered(&[]), None);
    }

    #[test]
    fn locality_and_order_of_compactions_are_ratios() {
        let results = [
            result("wip", "mixed uniform", 2.0),
            result("wip", "mixed exponential", 5.0),
            result("wip-unaware", "mixed exponential", 4.0),
        ];
        is_near(exponential_over_uniform(&results), 2.5);
        is_near(unaware_over_aware(&results), 0.8);
    }

    #[test]
    fn restarts_are_sorted_by_their_logs() {
        let of = |bytes, seconds| PhaseResult {
            restart_log_bytes: Some(bytes),
            seconds,
            ..result("wip", "restart uniform", 1.0)
        };
        let results = [of(2_000_000_000, 6.0), of(1_000_000_000, 2.0)];
        assert_eq!(restarts(&results), [(1.0, 2.0), (2.0, 6.0)]);
        is_near(restart_of_a_gigabyte(&results), 3.0);
        is_near(restart_growth(&results), 1.5);
    }

    #[test]
    fn flexdb_is_compared_with_rocksdb() {
        let of = |target, wa_process, ops_per_s| PhaseResult {
            wa_process: Some(wa_process),
            ..result(target, "fillseq sequential", ops_per_s)
        };
        let results = [of("flex", 2.0, 9.0), of("rocksdb", 5.0, 3.0)];
        is_near(flexdb_over_rocksdb(&results, "fillseq sequential"), 3.0);
        is_near(written_by_rocksdb(&results, "fillseq sequential"), 2.5);
        assert_eq!(flexdb_over_rocksdb(&results, "ycsb-a zipfian"), None);
        assert_eq!(
            written_by_rocksdb(&results[..1], "fillseq sequential"),
            None
        );
    }

    #[test]
    fn ranges_are_compared_with_reads() {
        let of = |workload, operation: &str, p99| {
            let mut result = result("wip", workload, 1.0);
            let mut latency_us = result.latency_us;
            latency_us.p99 = p99;
            let latency = crate::result::OperationLatency {
                calls: 1,
                latency_us,
            };
            result.latency_us_by_operation = [(operation.to_owned(), latency)].into();
            result
        };
        let results = [
            of("ycsb-e zipfian", "scan", 30.0),
            of("ycsb-c zipfian", "read", 10.0),
        ];
        is_near(ranges_over_reads(&results), 3.0);
    }
}
