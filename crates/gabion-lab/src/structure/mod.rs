//! Figures about one structure: its shape, its times in DRAM, what the model of a medium counts.
//!
//! They need no store, no process of their own and no report: each computes a few lines, which say
//! the paper's numbers beside ours. Figures of the shape do not depend on the machine, those on a
//! medium are those of the model, and times are those of this machine's DRAM.
//!
//! Sources: X. Zhao, dissertation, chapters 3 and 4; the write-amplification study, section III;
//! the FlexSpace paper, section 6.1; Level hashing, OSDI 2018; SCMKV, NPC 2017.

mod flextree;
mod gains;
mod hashes;
mod layers;
mod level;
mod medium;
mod places;
mod scmkv;
mod shape;
mod spoton;
mod study;

use gabion_index::turbo::Options;
use gabion_index::{Result, TurboHash};
use gabion_media::pmem::{Pool, PoolOptions};

use crate::Error;
use crate::figure::check_scale;

/// A figure about one structure.
#[derive(Clone, Copy, Debug)]
pub struct StructureFigure {
    /// The name on the command line: the paper's number.
    pub name: &'static str,
    /// One line of help.
    pub about: &'static str,
    lines: fn(Scale) -> Result<Vec<String>>,
}

/// All of them.
pub static STRUCTURE_FIGURES: &[StructureFigure] = &[
    StructureFigure {
        name: "3.1",
        about: "load and probe distance before a rehash, by the scope of linear probing",
        lines: shape::scopes,
    },
    StructureFigure {
        name: "3.2",
        about: "random and sequential accesses of 8 bytes, on the model of a medium",
        lines: medium::accesses,
    },
    StructureFigure {
        name: "3.4",
        about: "bytes that TurboHash reads from a medium and writes to it, on the model",
        lines: medium::volumes,
    },
    StructureFigure {
        name: "3.5",
        about: "latency, throughput and volumes of hash tables on the model (3.4 and 3.6, too)",
        lines: hashes::operations,
    },
    StructureFigure {
        name: "3.7",
        about: "hash tables under the mixes of YCSB, on the model and in DRAM",
        lines: hashes::mixes,
    },
    StructureFigure {
        name: "3.8",
        about: "TurboHash's load factor while it grows",
        lines: shape::load_factors,
    },
    StructureFigure {
        name: "3.9",
        about: "TurboHash's probe distances by load, before and after garbage collection",
        lines: shape::probe_distances,
    },
    StructureFigure {
        name: "3.10",
        about: "TurboHash's lookup latency before and after garbage collection, in DRAM",
        lines: shape::latencies,
    },
    StructureFigure {
        name: "3.11",
        about: "the time in which TurboHash builds a shard anew, in DRAM",
        lines: shape::build_times,
    },
    StructureFigure {
        name: "4.2",
        about: "bytes that indexes write to a medium, with write buffers and without, on the model",
        lines: layers::written,
    },
    StructureFigure {
        name: "4.3",
        about: "what inserts read and write with one layer of Spot-On more each time, on the model",
        lines: layers::layered,
    },
    StructureFigure {
        name: "4.4",
        about: "latencies of indexes whose ways to leaves are in DRAM, and of others, on the model",
        lines: layers::cached,
    },
    StructureFigure {
        name: "4.6",
        about: "SPTree beside FAST&FAIR: volumes and times of operations on the model (4.7, too)",
        lines: spoton::volumes,
    },
    StructureFigure {
        name: "4.8",
        about: "the time in which SPTree is found again, by its size, in DRAM: first answer, all",
        lines: spoton::recoveries,
    },
    StructureFigure {
        name: "fig8",
        about: "the write-amplification study's hash tables: queue and media writes per insert",
        lines: study::hashes,
    },
    StructureFigure {
        name: "fig9",
        about: "the same of trees, tries and lists",
        lines: study::ordered,
    },
    StructureFigure {
        name: "fig10",
        about: "what each of the study's optimisations is worth, on the model and in DRAM",
        lines: gains::gains,
    },
    StructureFigure {
        name: "flextree",
        about: "FlexTree beside a B+-tree without shifts and a sorted array (FlexSpace's table 1)",
        lines: flextree::operations,
    },
    StructureFigure {
        name: "level",
        about: "Level hashing beside BCH, PFHT and path hashing: movements and modelled times",
        lines: level::baselines,
    },
    StructureFigure {
        name: "places",
        about: "where in the source the lines in the queue and the media writes come from",
        lines: places::places,
    },
    StructureFigure {
        name: "scmkv",
        about: "SCMKV beside a Masstree: writes and reads in DRAM (its figures 8 to 10)",
        lines: scmkv::throughput,
    },
    StructureFigure {
        name: "table2",
        about: "media writes per write in the queue, of all indexes",
        lines: study::table_2,
    },
];

impl StructureFigure {
    /// The figure of that name, if it is one of these.
    pub fn named(name: &str) -> Option<&'static StructureFigure> {
        STRUCTURE_FIGURES.iter().find(|figure| figure.name == name)
    }

    /// What it shows at `scale` times the paper's size, as lines to print.
    ///
    /// # Errors
    /// [`Error::Request`] unless `scale` is above 0 and at most 1, [`Error::Structure`] if memory
    /// does not suffice.
    pub fn lines(&self, scale: f64) -> std::result::Result<Vec<String>, Error> {
        check_scale(scale)?;
        Ok((self.lines)(Scale(scale))?)
    }
}

/// Part of the paper's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale(pub(crate) f64);

impl Scale {
    /// So much of the paper's `count`, and at least `least`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number is smaller than the number"
    )]
    pub(crate) fn of(self, count: u64, least: u64) -> u64 {
        ((count as f64 * self.0) as u64).max(least)
    }
}

/// A table from words to words.
type Table = TurboHash<u64, u64>;

/// A permutation of the words, to make keys of numbers.
fn key_of(number: u64) -> u64 {
    let mut key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key ^= key >> 32;
    key = key.wrapping_mul(0xd6e8_feb8_6659_fd93);
    key ^ (key >> 29)
}

/// An empty table in DRAM with space for `entries`.
fn table(entries: u64, options: &Options) -> Result<Table> {
    let pool = Pool::anonymous(PoolOptions {
        size: entries * 100 + (64 << 20),
        chunk_bytes: 1 << 20,
        ..Table::pool_options()
    })?;
    Table::create(&pool, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_lines_at_a_small_scale() {
        for figure in STRUCTURE_FIGURES {
            let lines = figure.lines(0.000_1).unwrap();
            assert!(lines.len() > 2, "{} {lines:?}", figure.name);
            assert_eq!(
                StructureFigure::named(figure.name).unwrap().name,
                figure.name
            );
        }
        assert!(StructureFigure::named("2.3").is_none());
    }

    #[test]
    fn a_scale_that_is_none_is_refused() {
        for scale in [0.0, -1.0, 1.5, f64::NAN] {
            let refused = STRUCTURE_FIGURES[0].lines(scale);
            assert!(matches!(refused, Err(Error::Request(_))), "{scale}");
        }
    }
}
