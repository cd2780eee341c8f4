//! Counts of the model of the medium, behind caches scaled down with the measured structure.

use std::borrow::Borrow;
use std::sync::Arc;

use gabion_index::turbo::Options;
use gabion_index::{Item, Result, TurboHash};
use gabion_media::pmem::model::{Costs, Model, Preset};
use gabion_media::pmem::trace::{LINE, TraceStep};
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::{Shown, key_of};
use crate::rows::{Table, column};
use crate::scale::Scale;

/// The last-level cache of the dissertation's processor.
const CACHE_BYTES: f64 = 28_835_840.0;
/// Pairs of figure 3.4.
const ENTRIES: u64 = 100_000_000;

/// A medium behind a cache of about `bytes`: the number of its sets is a power of two.
pub(super) fn behind(preset: Preset, bytes: f64) -> Preset {
    let set_bytes = preset.cache_ways as u64 * LINE;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a small number"
    )]
    let sets = (bytes / set_bytes as f64).max(1.0) as u64;
    preset.with_cache(sets.next_power_of_two() * set_bytes)
}

/// The model of the dissertation's medium for a structure of this part of its size: behind a cache
/// that is as much smaller than the dissertation's.
pub(super) fn dissertation_model(part: f64) -> Arc<Mutex<Model>> {
    let preset = behind(Preset::OPTANE, CACHE_BYTES * part);
    Arc::new(Mutex::new(Model::new(preset)))
}

/// Figure 3.2: groups of accesses of 8 bytes to lines that lie at random or one behind the other.
pub(crate) fn accesses(scale: Scale) -> Shown {
    const LINES: u64 = 1 << 26;
    let groups = scale.of(20_000_000, 1000);
    let about = "modelled times of groups of accesses of 8 bytes; writes are flushed, with a fence \
                 for each group";
    let columns = [
        column("random", "ns", 0),
        column("sequential", "ns", 0),
        column("ratio", "", 1),
    ];
    let mut table = Table::new(about, &["access", "group of"], columns).headings(1);
    for (access_name, is_write) in [("reads", false), ("writes", true)] {
        for group in [1_u64, 2, 4, 8, 16, 32] {
            let [random, sequential] = [false, true].map(|is_sequential| {
                let mut model = Model::new(Preset::OPTANE);
                for first in 0..groups {
                    for step in 0..group {
                        let number = if is_sequential {
                            first
                        } else {
                            first * group + step
                        };
                        let line = key_of(number) % LINES + if is_sequential { step } else { 0 };
                        access(&mut model, line * 64, is_write);
                    }
                    if is_write {
                        model.step(TraceStep::Fence);
                    }
                }
                model.costs().estimated_ns as f64 / groups as f64
            });
            let values = [random, sequential, random / sequential];
            table.row(&[access_name, &group.to_string()], values);
        }
    }
    Ok(vec![table.note("paper: 4 to 7 for groups of 16")])
}

fn access(model: &mut Model, offset: u64, is_write: bool) {
    if is_write {
        let bytes = &[1; 8];
        model.step(TraceStep::Store { offset, bytes });
        model.step(TraceStep::Flush { offset });
    } else {
        model.step(TraceStep::Load { offset, len: 8 });
    }
}

/// Figure 3.4, right half: bytes that operations read from the media and write to it.
pub(crate) fn volumes(scale: Scale) -> Shown {
    let entries = scale.of(ENTRIES, 1000);
    let columns = [
        column("read", "bytes", 0),
        column("written", "bytes", 0),
        column("persists", "fences", 2),
    ];
    let about = "modelled, per operation";
    let mut table = Table::new(about, &["table", "operation"], columns);
    let word = |number: u64| number;
    measure::<u64, u64>("TURBO16", entries, word, word, &mut table)?;
    let bytes = |number: u64| [&number.to_le_bytes()[..], &[7; 7]].concat();
    measure::<[u8], [u8]>("TURBO30", entries, bytes, bytes, &mut table)?;
    Ok(vec![
        table.note("the paper's text has no numbers for these bars"),
    ])
}

fn measure<K: Item + ?Sized, V: Item + ?Sized>(
    name: &str,
    entries: u64,
    key: fn(u64) -> K::Owned,
    value: fn(u64) -> V::Owned,
    shown: &mut Table,
) -> Result<()> {
    let model = dissertation_model(entries as f64 / ENTRIES as f64);
    let pool = Pool::anonymous(PoolOptions {
        size: (64 << 20) + entries * 512,
        watcher: Some(model.clone()),
        ..TurboHash::<K, V>::pool_options()
    })?;
    let options = Options {
        capacity: entries / 10,
        seed: Some(1),
        ..Options::default()
    };
    let table: TurboHash<K, V> = TurboHash::create(&pool, &options)?;
    let mut phase = |phase: &str, operation: &dyn Fn(u64) -> Result<()>| -> Result<()> {
        let before = counted(&model);
        for number in 0..entries {
            operation(key_of(number))?;
        }
        let costs = counted(&model) - before;
        let per_operation = |count: u64| count as f64 / entries as f64;
        let bytes = |lines: u64| per_operation(lines * costs.media_line_bytes);
        let [read, written] = [costs.media_reads, costs.media_writes].map(bytes);
        shown.row(&[name, phase], [read, written, per_operation(costs.fences)]);
        Ok(())
    };
    let put = |word: u64| {
        table
            .put(key(word).borrow(), value(word).borrow())
            .map(drop)
    };
    phase("insert", &put)?;
    phase("positive read", &|word| {
        table.get(key(word).borrow()).map(drop)
    })?;
    phase("negative read", &|word| {
        table.get(key(!word).borrow()).map(drop)
    })?;
    phase("update", &put)?;
    phase("delete", &|word| table.remove(key(word).borrow()).map(drop))
}

/// The counts with nothing left in the buffers.
pub(super) fn counted(model: &Mutex<Model>) -> Costs {
    let mut model = model.lock();
    model.drain_all();
    model.costs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cache of figure 3.4 was the same at every scale.
    #[test]
    fn caches_shrink_with_what_is_measured() {
        let bytes = |part: f64| behind(Preset::OPTANE, CACHE_BYTES * part).cache_bytes;
        for part in [1.0, 0.3, 0.02, 0.004, 0.000_1] {
            let times = bytes(part) as f64 / (CACHE_BYTES * part);
            assert!((0.5..=2.0).contains(&times), "{part} {times}");
        }
        let set_bytes = Preset::OPTANE.cache_ways as u64 * LINE;
        assert_eq!(bytes(0.0), set_bytes, "a set is the least");
    }
}
