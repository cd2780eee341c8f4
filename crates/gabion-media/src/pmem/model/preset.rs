//! Presets of the model: buffer sizes, latencies and bandwidths of each kind of medium.
//!
//! Optane: "Characteristics of the write amplification of persistent memory indexes", section II
//! and table 1 (256-byte lines, 16 KiB combining buffer, 1.85 GB/s of writes per module, six
//! modules interleaved, 1.375 MB of last-level cache per core in 11 ways), and the measurements
//! that it builds on (Yang et al., FAST 2020: 305 ns for a random read of the media, 169 ns for
//! a sequential one, 94 ns for a store with its write-back and fence; Xiang et al., EuroSys 2022:
//! a read buffer of 16 KiB). DRAM: 81 ns and 57 ns from the same place. CXL: memory behind a
//! switchless link, about twice the latency of DRAM and a fraction of its bandwidth (Sun et al.,
//! MICRO 2023).

/// Sizes and times of a medium and of the cache before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Name for reports.
    pub name: &'static str,
    /// Bytes of the processor's cache.
    pub cache_bytes: u64,
    /// Lines of a set of the cache.
    pub cache_ways: usize,
    /// Whether a flushed line stays in the cache, as clwb allows.
    pub flush_keeps_line: bool,
    /// Bytes that the media reads or writes at once: a multiple of the cache line, at most 64
    /// lines.
    pub media_line_bytes: u64,
    /// Lines of the media that the write-combining buffer holds; 0 for none.
    pub combining_lines: usize,
    /// Lines of the media that the read buffer holds; 0 for none.
    pub read_lines: usize,
    /// How long things take.
    pub times: Times,
}

/// Latencies as one thread sees them, and the time that the media is busy, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A load or store of a line in the cache.
    pub cache_hit_ps: u64,
    /// A line fetched from one of the medium's buffers.
    pub buffer_read_ps: u64,
    /// A line fetched from the media.
    pub media_read_ps: u64,
    /// From the write-back of a line until the write pending queue has it.
    pub accept_ps: u64,
    /// The media is busy with the write of one of its lines.
    pub media_write_busy_ps: u64,
    /// The media is busy with the read of one of its lines.
    pub media_read_busy_ps: u64,
    /// Work of the media that may wait before write-backs are held up.
    pub backlog_ps: u64,
}

impl Preset {
    /// Optane persistent memory: six modules interleaved, one core's share of the cache times 28.
    pub const OPTANE: Preset = Preset {
        name: "optane",
        cache_bytes: 28 * 1_441_792,
        cache_ways: 11,
        flush_keeps_line: true,
        media_line_bytes: 256,
        combining_lines: 64,
        read_lines: 64,
        times: Times {
            cache_hit_ps: 2_000,
            buffer_read_ps: 124_000,
            media_read_ps: 305_000,
            accept_ps: 92_000,
            // 256 bytes at 6 x 1.85 GB/s, and at 6 x 6.6 GB/s.
            media_write_busy_ps: 23_060,
            media_read_busy_ps: 6_460,
            // The combining buffer full of writes.
            backlog_ps: 64 * 23_060,
        },
    };

    /// Memory behind a CXL link with power-protected buffers.
    pub const CXL: Preset = Preset {
        name: "cxl",
        media_line_bytes: 64,
        combining_lines: 0,
        read_lines: 0,
        times: Times {
            cache_hit_ps: 2_000,
            buffer_read_ps: 200_000,
            media_read_ps: 200_000,
            accept_ps: 130_000,
            // 64 bytes at 20 GB/s.
            media_write_busy_ps: 3_200,
            media_read_busy_ps: 3_200,
            backlog_ps: 100_000,
        },
        ..Preset::OPTANE
    };

    /// DRAM: six channels.
    pub const DRAM: Preset = Preset {
        name: "dram",
        times: Times {
            cache_hit_ps: 2_000,
            buffer_read_ps: 81_000,
            media_read_ps: 81_000,
            accept_ps: 55_000,
            // 64 bytes at 100 GB/s.
            media_write_busy_ps: 640,
            media_read_busy_ps: 640,
            backlog_ps: 40_000,
        },
        ..Preset::CXL
    };

    /// All presets.
    pub const ALL: [Preset; 3] = [Preset::OPTANE, Preset::CXL, Preset::DRAM];

    /// The preset of that name.
    pub fn named(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// The same medium behind a cache of another size, for workloads scaled down.
    pub const fn with_cache(self, bytes: u64) -> Preset {
        Preset {
            cache_bytes: bytes,
            ..self
        }
    }
}
