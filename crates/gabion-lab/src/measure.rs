//! Costs of a phase, as the operating system counts them, and latencies of its operations.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::result::LatencyPoint;

/// Ticks per second of the times in `/proc/self/stat`, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// The unit of `/proc/diskstats`, whatever the drive's own is.
const SECTOR_BYTES: u64 = 512;
/// The longest latency that a histogram tells from longer ones.
const LATENCY_MAX: Duration = Duration::from_secs(3600);
/// Decimal digits to which latencies are kept.
const LATENCY_DIGITS: u8 = 3;

/// Parts of the latencies at which their distribution is kept, besides the longest.
const CURVE: [f64; 20] = [
    0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998,
    0.9999, 0.99995, 0.99998, 0.99999, 1.0,
];

/// Latencies of one thread or, merged, of a phase.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// Percentiles of latency in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// 95 of 100 are at most as long.
    pub p95: f64,
    /// 99 of 100 are at most as long.
    pub p99: f64,
    /// 999 of 1000 are at most as long.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

impl Latencies {
    /// No latencies yet.
    pub fn new() -> Latencies {
        let max = u64::try_from(LATENCY_MAX.as_nanos()).expect("an hour in nanoseconds");
        Latencies(Histogram::new_with_bounds(1, max, LATENCY_DIGITS).expect("fixed valid bounds"))
    }

    /// Adds one latency.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.record_many(latency, 1);
    }

    /// Adds `count` operations that each took `latency`.
    #[inline]
    pub fn record_many(&mut self, latency: Duration, count: u64) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record_n(nanos.max(1), count);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// How many latencies there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The distribution at useful points; empty without latencies.
    pub fn curve(&self) -> Vec<LatencyPoint> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let point = |quantile| LatencyPoint {
            quantile,
            micros: self.0.value_at_quantile(quantile) as f64 / 1000.0,
        };
        CURVE.into_iter().map(point).collect()
    }

    /// The percentiles; all zero without latencies.
    pub fn percentiles(&self) -> Percentiles {
        if self.0.is_empty() {
            return Percentiles::default();
        }
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        Percentiles {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max() as f64 / 1000.0,
        }
    }
}

/// The process' use of the machine since it started.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUse {
    /// Processor time in user mode, all threads.
    pub cpu_user_s: f64,
    /// Processor time in the kernel, all threads.
    pub cpu_sys_s: f64,
    /// Bytes that the process caused to be written to storage; `None` where the system does not
    /// say.
    pub bytes_written: Option<u64>,
    /// Bytes that the process caused to be read from storage, where the system says so.
    pub bytes_read: Option<u64>,
    /// Largest resident memory since the start or the last [`reset_rss_max`].
    pub rss_bytes_max: Option<u64>,
}

impl ProcessUse {
    /// The figures of now.
    pub fn now() -> ProcessUse {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).ok();
        let (cpu_user_s, cpu_sys_s) = read("stat")
            .and_then(|text| cpu_times(&text))
            .unwrap_or_default();
        ProcessUse {
            cpu_user_s,
            cpu_sys_s,
            bytes_written: gabion_media::process_written_bytes(),
            bytes_read: read("io").and_then(|text| field(&text, "read_bytes:")),
            rss_bytes_max: read("status")
                .and_then(|text| field(&text, "VmHWM:"))
                .map(|kib| kib * 1024),
        }
    }
}

/// Lets the largest resident memory be counted from now on. Where the system refuses, it goes on
/// counting from the start of the process.
pub fn reset_rss_max() {
    let file = fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/clear_refs");
    if let Ok(mut file) = file {
        // Refused without the kernel's page monitor; the figure is then that of the whole run.
        let _ = file.write_all(b"5");
    }
}

/// Bytes that were written to the drive that holds `dir` since the system started, by whomever;
/// `None` where the system does not count them: on file systems in memory or over a network, and on
/// those that are not on one drive.
pub fn drive_bytes_written(dir: &Path) -> Option<u64> {
    let device = rustix::fs::stat(dir).ok()?.st_dev;
    let place = (rustix::fs::major(device), rustix::fs::minor(device));
    sectors_written(&fs::read_to_string("/proc/diskstats").ok()?, place)?.checked_mul(SECTOR_BYTES)
}

/// Sectors written to the device with these numbers, from `/proc/diskstats`.
fn sectors_written(stats: &str, (major, minor): (u32, u32)) -> Option<u64> {
    stats.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let is_its =
            |field: Option<&str>, wanted: u32| field?.parse().ok().filter(|n: &u32| *n == wanted);
        is_its(fields.next(), major)?;
        is_its(fields.next(), minor)?;
        // The name, four figures of reads, and writes done and merged.
        fields.nth(7)?.parse().ok()
    })
}

/// Bytes of the blocks that the system counts for a file, whatever those of the file system.
const BLOCK_BYTES: u64 = 512;

/// What the files of a directory take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What all files take: a hole takes nothing, what is kept ready for a file is a part of it.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
}

impl Space {
    /// The files in `dir` and below. Files that vanish while they are counted are left out.
    ///
    /// # Errors
    /// When a directory cannot be listed.
    pub fn of(dir: &Path) -> io::Result<Space> {
        let mut space = Space::default();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let below = match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => Space::of(&entry.path()),
                Ok(metadata) => Ok(Space {
                    bytes: metadata.blocks() * BLOCK_BYTES,
                    files: 1,
                }),
                Err(error) => Err(error),
            };
            match below {
                Ok(below) => {
                    space.bytes += below.bytes;
                    space.files += below.files;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(space)
    }
}

/// The first number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and kernel time in seconds from `/proc/self/stat`.
fn cpu_times(stat: &str) -> Option<(f64, f64)> {
    // The second field is the program's name in parentheses, which may contain spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut seconds =
        || -> Option<f64> { Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND) };
    Some((seconds()?, seconds()?))
}

/// A line that describes the machine: processors, memory, kernel.
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("processor unknown", |(_, model)| model.trim());
    let gib = field(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0) as f64 / (1 << 20) as f64;
    let kernel = read("/proc/sys/kernel/osrelease");
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    format!(
        "{cpus} x {model}, {gib:.0} GiB, {os} {} {arch}",
        kernel.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_recorded_latencies() {
        let mut latencies = Latencies::new();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        let p = latencies.percentiles();
        for (got, want) in [
            (p.p50, 500.0),
            (p.p95, 950.0),
            (p.p99, 990.0),
            (p.p999, 999.0),
            (p.max, 1000.0),
        ] {
            assert!((got - want).abs() <= want / 500.0, "{got} for {want}");
        }
    }

    #[test]
    fn the_curve_rises_from_the_shortest_latency_to_the_longest() {
        assert!(Latencies::new().curve().is_empty());
        let mut latencies = Latencies::new();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        let curve = latencies.curve();
        assert!(curve.is_sorted_by(|a, b| a.quantile < b.quantile && a.micros <= b.micros));
        let near = |got: f64, want: f64| (got - want).abs() <= want / 500.0;
        assert!(near(curve[0].micros, 1.0) && near(curve[curve.len() - 1].micros, 1000.0));
    }

    #[test]
    fn space_is_that_of_all_files_below() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        let mut taken = 0;
        for (name, bytes) in [("a", 100_000), ("below/b", 5)] {
            let mut file = fs::File::create(dir.path().join(name)).unwrap();
            file.write_all(&vec![1; bytes]).unwrap();
            // Nothing is behind what was written.
            file.set_len(1 << 40).unwrap();
            file.sync_all().unwrap();
            taken += file.metadata().unwrap().blocks() * BLOCK_BYTES;
        }
        let space = Space::of(dir.path()).unwrap();
        assert_eq!((space.bytes, space.files), (taken, 2));
        assert!(space.bytes < 1 << 30);
        assert!(Space::of(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn merged_latencies_count_both_sides() {
        let (mut a, mut b) = (Latencies::new(), Latencies::new());
        a.record_many(Duration::from_micros(1), 10);
        b.record(Duration::from_micros(100));
        a.merge(&b);
        assert_eq!(a.count(), 11);
        assert!(a.percentiles().max > 99.0);
    }

    #[test]
    fn no_latencies_have_no_percentiles() {
        assert_eq!(Latencies::new().percentiles().max.to_bits(), 0);
    }

    #[test]
    fn fields_of_proc_files_are_found() {
        let io = "rchar: 1\nwrite_bytes: 4096\ncancelled_write_bytes: 7\n";
        assert_eq!(field(io, "write_bytes:"), Some(4096));
        assert_eq!(field("VmHWM:\t    1234 kB\n", "VmHWM:"), Some(1234));
        assert_eq!(field(io, "absent:"), None);
    }

    #[test]
    fn sectors_written_are_those_of_the_device() {
        let stats = "   8  0 sda 10 0 100 7 20 0 4444 9 0 0 0\n   \
                     8  1 sda1 10 0 100 7 20 0 222 9 0 0 0 0\n 259  0 nvme0n1 1 2\n";
        assert_eq!(sectors_written(stats, (8, 0)), Some(4444));
        assert_eq!(sectors_written(stats, (8, 1)), Some(222));
        assert_eq!(sectors_written(stats, (8, 2)), None);
        assert_eq!(sectors_written(stats, (259, 0)), None);
    }

    #[test]
    fn cpu_times_survive_a_program_name_with_spaces_and_parentheses() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        assert_eq!(cpu_times(stat), Some((2.5, 0.5)));
        assert_eq!(cpu_times("7 (a) S 1"), None);
    }

    #[test]
    fn processor_time_of_this_process_grows() {
        let before = ProcessUse::now();
        let mut x = 0u64;
        while ProcessUse::now().cpu_user_s + ProcessUse::now().cpu_sys_s
            <= before.cpu_user_s + before.cpu_sys_s
        {
            x = std::hint::black_box(x.wrapping_add(1));
        }
        assert!(
            ProcessUse::now()
                .rss_bytes_max
                .is_some_and(|bytes| bytes > 1 << 16)
        );
    }
}
