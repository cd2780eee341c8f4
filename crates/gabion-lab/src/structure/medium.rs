//! What the model of the medium counts, behind caches that are smaller with what is measured.

use std::borrow::Borrow;
use std::sync::Arc;

use gabion_index::turbo::Options;
use gabion_index::{Item, Result, TurboHash};
use gabion_media::pmem::model::{Costs, Model, Preset};
use gabion_media::pmem::trace::{LINE, Step};
use gabion_media::pmem::{Pool, PoolOptions};
use parking_lot::Mutex;

use super::{Scale, key_of};

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
pub(super) fn accesses(scale: Scale) -> Result<Vec<String>> {
    const LINES: u64 = 1 << 26;
    let groups = scale.of(20_000_000, 1000);
    let mut lines = vec![
        "modelled ns per group of accesses of 8 bytes: random, sequential, their ratio".to_owned(),
        "paper: 4 to 7 for groups of 16".to_owned(),
    ];
    for is_write in [false, true] {
        let what = if is_write {
            "writes, flushed, one fence"
        } else {
            "reads"
        };
        lines.push(what.to_owned());
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
                        model.step(Step::Fence);
                    }
                }
                model.costs().estimated_ns as f64 / groups as f64
            });
            let ratio = random / sequential;
            lines.push(format!(
                "{group:>6}: {random:>7.0} {sequential:>7.0} {ratio:>5.1}"
            ));
        }
    }
    Ok(lines)
}

fn access(model: &mut Model, offset: u64, is_write: bool) {
    if is_write {
        let bytes = &[1; 8];
        model.step(Step::Store { offset, bytes });
        model.step(Step::Flush { offset });
    } else {
        model.step(Step::Load { offset, len: 8 });
    }
}

/// Figure 3.4, right half: bytes that operations read from the media and write to it.
pub(super) fn volumes(scale: Scale) -> Result<Vec<String>> {
    let entries = scale.of(ENTRIES, 1000);
    let mut lines = vec![
        "modelled bytes of the media per operation: read, written; persists (fences)".to_owned(),
        "the paper's text has no numbers for these bars".to_owned(),
    ];
    let word = |number: u64| number;
    measure::<u64, u64>("TURBO16", entries, word, word, &mut lines)?;
    let bytes = |number: u64| [&number.to_le_bytes()[..], &[7; 7]].concat();
    measure::<[u8], [u8]>("TURBO30", entries, bytes, bytes, &mut lines)?;
    Ok(lines)
}

fn measure<K: Item + ?Sized, V: Item + ?Sized>(
    name: &str,
    entries: u64,
    key: fn(u64) -> K::Owned,
    value: fn(u64) -> V::Owned,
    lines: &mut Vec<String>,
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
        lines.push(format!(
            "{name} {phase:>14}: {:>6.0} {:>6.0}; {:.2}",
            bytes(costs.media_reads),
            bytes(costs.media_writes),
            per_operation(costs.fences)
        ));
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
