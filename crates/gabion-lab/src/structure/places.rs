//! Maps the study's lines to places in the source.
//!
//! Each line that reaches the queue is put down to the place in the source that flushed it, and so
//! is each line of the media, to the place whose line in the queue began it: lines that join one
//! that still waits to be written cost the media nothing more. A line that leaves the cache without
//! a flush has no such place and is counted as evicted.
//!
//! The pool is one that has to survive the loss of power, so the allocator notes what is under way
//! (`pmem/alloc`), which it need not do for the pools of the other figures. What a place has
//! flushed of that, and of the states of blocks, has a row of its own, for the allocator reports
//! its caller's place as its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_index::Result;
use gabion_index::registry::INDEXES;
use gabion_media::pmem::model::{Model, Preset};
use gabion_media::pmem::trace::{LINE, TraceEvent, TraceStep, Watcher};
use gabion_media::pmem::{Pool, PoolOptions, Region};
use parking_lot::Mutex;

use super::Shown;
use super::study::{MIXES, PoolBench, Subject, model};
use crate::rows::{Column, Table, column};
use crate::scale::Scale;

/// Rows of less than so many lines for an insert, in every workload, are left out.
const LINES_MIN: f64 = 0.01;

/// Units of 64 bytes of a line of the media, in which the study counts.
const UNITS: u64 = Preset::OPTANE.media_line_bytes / LINE;

/// Why a line reached the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// It was flushed there, or stored past the cache.
    Source {
        file: &'static str,
        line: u32,
        /// It is what the allocator notes.
        is_note: bool,
    },
    /// It had to leave the cache.
    Evicted,
}

/// Lines of 64 bytes in the queue, and lines of the media that they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    queued: u64,
    begun: u64,
}

/// The model, and what each place has cost on it.
struct Ledger(Mutex<Entries>);

struct Entries {
    model: Model,
    /// What lies before is the allocator's.
    blocks_at: u64,
    places: BTreeMap<Place, Counts>,
}

impl Place {
    fn is_note(&self) -> bool {
        matches!(self, Place::Source { is_note: true, .. })
    }
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.queued += other.queued;
        self.begun += other.begun;
    }
}

impl Entries {
    /// All that has reached the queue so far, and all lines of the media that were begun.
    fn total(&self) -> Counts {
        let costs = self.model.costs();
        Counts {
            queued: costs.wpq_inserts(),
            begun: costs.media_writes + self.model.lines_waiting(),
        }
    }

    /// Does something to the model, and puts what comes of it down to a place.
    fn put_down(&mut self, place: Place, work: impl FnOnce(&mut Model)) {
        let before = self.total();
        work(&mut self.model);
        let after = self.total();
        if after != before {
            self.places.entry(place).or_default().add(Counts {
                queued: after.queued - before.queued,
                begun: after.begun - before.begun,
            });
        }
    }

    /// What each place has cost since this was asked last, with nothing left in the cache.
    fn take(&mut self) -> BTreeMap<Place, Counts> {
        self.put_down(Place::Evicted, Model::drain_all);
        std::mem::take(&mut self.places)
    }
}

impl Watcher for Ledger {
    fn event(&self, event: TraceEvent<'_>) {
        let mut entries = self.0.lock();
        let source = |offset: u64| Place::Source {
            file: event.site.file(),
            line: event.site.line(),
            is_note: offset < entries.blocks_at,
        };
        let place = match event.step {
            TraceStep::Flush { offset } | TraceStep::NtStore { offset, .. } => source(offset),
            TraceStep::Fence => source(u64::MAX),
            TraceStep::Store { .. }
            | TraceStep::Load { .. }
            | TraceStep::Begin { .. }
            | TraceStep::End { .. } => Place::Evicted,
        };
        entries.put_down(place, |model| model.step(event.step));
    }
}

/// The places of all indexes.
pub(crate) fn places(scale: Scale) -> Shown {
    let about = "lines in the queue and lines of the media, in units of 64 bytes, for an insert";
    let each = [column("queue", "", 2), column("media", "", 2)];
    let columns = Column::grouped(&["load", "A", "B"], &each);
    let mut table = Table::new(about, &["index", "place"], columns).headings(1);
    for index in INDEXES {
        rows(
            index.title,
            &measure(&Subject::of(index), scale)?,
            &mut table,
        );
    }
    Ok(vec![table])
}

/// What a workload cost at each place, and how many inserts it had.
struct Part {
    places: BTreeMap<Place, Counts>,
    inserts: u64,
}

impl Part {
    fn sum(&self, is_meant: impl Fn(&Place) -> bool) -> Counts {
        let mut sum = Counts::default();
        let meant = self.places.iter().filter(|(place, _)| is_meant(place));
        meant.for_each(|(_, counts)| sum.add(*counts));
        sum
    }
}

/// Load, A and B, the last two on what a load has left.
fn measure(subject: &Subject, scale: Scale) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for workloads in [[0, 1], [0, 2]] {
        let ledger = Arc::new(Ledger(Mutex::new(Entries {
            model: model(scale),
            blocks_at: 0,
            places: BTreeMap::new(),
        })));
        let mut bed = PoolBench::new(subject.makers, scale, ledger.clone(), in_region)?;
        ledger.0.lock().blocks_at = bed.pool.blocks_at();
        ledger.0.lock().take();
        for workload in workloads {
            let loaded = bed.next;
            for operation in 0..bed.entries {
                bed.step(&MIXES[workload], operation, loaded)?;
            }
            parts.push(Part {
                places: ledger.0.lock().take(),
                inserts: bed.next - loaded,
            });
        }
    }
    // The second load is the first one again.
    parts.remove(2);
    Ok(parts)
}

fn in_region(options: PoolOptions) -> std::result::Result<Pool, gabion_media::Error> {
    let bytes = usize::try_from(options.size).unwrap_or(usize::MAX);
    Pool::create_in(&Region::new(bytes), options)
}

/// The rows of an index: those of its own code, of the allocator, of the cache, and sums.
fn rows(index: &str, parts: &[Part], table: &mut Table) {
    let mut places: Vec<Place> = parts
        .iter()
        .flat_map(|part| part.places.keys())
        .copied()
        .collect();
    places.sort_unstable();
    places.dedup();
    let at = |place: &Place| {
        let found = |part: &Part| part.places.get(place).copied().unwrap_or_default();
        parts.iter().map(found).collect::<Vec<Counts>>()
    };
    let sum = |is_meant: fn(&Place) -> bool| {
        let of_part = |part: &Part| part.sum(is_meant);
        parts.iter().map(of_part).collect::<Vec<Counts>>()
    };
    let is_shown = |counts: &Vec<Counts>| {
        let part = |(counts, part): (&Counts, &Part)| counts.queued as f64 / part.inserts as f64;
        counts
            .iter()
            .zip(parts)
            .map(part)
            .any(|lines| lines >= LINES_MIN)
    };
    let mut row = |name: &str, counts: &[Counts]| {
        let of_part = |(counts, part): (&Counts, &Part)| {
            let each = |count: u64| count as f64 / part.inserts as f64;
            [each(counts.queued), each(UNITS * counts.begun)]
        };
        table.row(&[index, name], counts.iter().zip(parts).flat_map(of_part));
    };
    for place in &places {
        let counts = at(place);
        if is_shown(&counts) {
            row(&name(place), &counts);
        }
    }
    row("the allocator's notes in all", &sum(Place::is_note));
    row("all", &sum(|_| true));
}

/// The place as a reader looks for it: the file below `src`, and the line.
fn name(place: &Place) -> String {
    match place {
        Place::Evicted => "evicted from the cache".to_owned(),
        Place::Source {
            file,
            line,
            is_note,
        } => {
            let file = file.rsplit_once("src/").map_or(*file, |(_, file)| file);
            let note = if *is_note { ", a note" } else { "" };
            format!("{file}:{line}{note}")
        }
    }
}

#[cfg(test)]
mod tests {
    use gabion_index::registry;

    use super::*;

    const SCALE: Scale = Scale(0.000_1);

    fn measured(name: &str) -> Vec<Part> {
        let index = registry::by_name(name).expect("an index");
        measure(&Subject::of(index), SCALE).unwrap()
    }

    /// Nothing is counted twice, and nothing is left out: a persist of a line in its place each.
    #[test]
    fn places_have_all_that_the_model_counts() {
        let ledger = Ledger(Mutex::new(Entries {
            model: model(SCALE),
            blocks_at: 4096,
            places: BTreeMap::new(),
        }));
        let step = |step| {
            ledger.event(TraceEvent {
                step,
                site: std::panic::Location::caller(),
                thread: 0,
            });
        };
        let bytes = &[1; 8];
        for line in 0..5000_u64 {
            let offset = line * 320;
            step(TraceStep::Store { offset, bytes });
            if line % 3 > 0 {
                step(TraceStep::Flush { offset });
            }
            step(TraceStep::Fence);
        }
        let mut entries = ledger.0.into_inner();
        let places = entries.take();
        let part = Part { places, inserts: 1 };
        assert_eq!(part.sum(|_| true), entries.total());
        assert_eq!(entries.total().queued, 5000);
        assert_eq!(entries.model.costs().media_writes, entries.total().begun);
        let evicted = part.sum(|place| *place == Place::Evicted);
        assert_eq!(evicted.queued, 5000_u64.div_ceil(3));
        // Lines 0 to 12 lie before the blocks, and eight of them were flushed.
        assert_eq!(part.sum(Place::is_note).queued, 8);
    }

    /// An insert of P-ART takes a block: one note that this is under way, and one that it is done.
    /// Its leaf is a line in the queue.
    #[test]
    fn an_insert_into_p_art_writes_its_leaf_and_two_notes() {
        for part in &measured("p-art")[1..] {
            let each = |is_meant: fn(&Place) -> bool| {
                part.sum(is_meant).queued as f64 / part.inserts as f64
            };
            let notes = each(Place::is_note);
            assert!((2.0..2.6).contains(&notes), "{notes}");
            let leaves = each(|place| match place {
                Place::Source { file, is_note, .. } => !is_note && file.ends_with("leaf.rs"),
                Place::Evicted => false,
            });
            assert!((1.0..1.1).contains(&leaves), "{leaves}");
        }
        let parts = measured("p-clht");
        let notes = parts[1].sum(Place::is_note).queued;
        assert!(notes * 5 < parts[1].inserts, "few inserts take a block");
    }

    #[test]
    fn rows_name_the_places_and_end_with_sums() {
        let each = [column("queue", "", 2), column("media", "", 2)];
        let columns = Column::grouped(&["load", "A", "B"], &each);
        let mut table = Table::new("", &["index", "place"], columns);
        rows("P-BwTree", &measured("p-bwtree"), &mut table);
        let places: Vec<&str> = table.rows.iter().map(|row| &*row.at[1]).collect();
        for file in ["bwtree/writepath.rs:", "bwtree/shape.rs:"] {
            assert!(
                places.iter().any(|place| place.contains(file)),
                "{places:?}"
            );
        }
        assert_eq!(places.last(), Some(&"all"));
    }
}
