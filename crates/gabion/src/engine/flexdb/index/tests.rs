//! The index beside a sorted list.

use super::*;
use gabion_media::seeded::SeededRng;

use crate::engine::flexdb::interval::{PairEdit, parse, put_pair};
use crate::slabs::Slabs;
use crate::types::Kind;

/// The naive twin: intervals in order.
type Twin = Vec<(Vec<u8>, u64)>;

fn new(key: &[u8], len: u64) -> NewInterval {
    NewInterval {
        key: key.to_vec(),
        len,
        extents: 1,
        interval: None,
    }
}

fn index(intervals: &[(Vec<u8>, u64)]) -> IntervalIndex {
    let intervals: Vec<NewInterval> = intervals.iter().map(|(key, len)| new(key, *len)).collect();
    IntervalIndex::new(&intervals, CachedBytes::new(0))
}

fn form(key: &[u8]) -> Arc<Interval> {
    let mut bytes = Vec::new();
    put_pair(&mut bytes, Kind::Put, key, b"value");
    let pairs = parse(&bytes).unwrap();
    Arc::new(Interval::new(Slabs::new(0).copy(&bytes), &pairs, 0).unwrap())
}

/// Number of intervals.
fn count(index: &IntervalIndex) -> usize {
    let nodes = index.top.load();
    let nodes = nodes.branches.iter().map(|branch| branch.node.load_full());
    nodes
        .flat_map(|node| node.leaves.clone())
        .map(|leaf| leaf.count())
        .sum()
}

/// Number of leaves.
fn leaves(index: &IntervalIndex) -> usize {
    let top = index.top.load();
    let sizes = top.branches.iter().map(|own| own.node.load().leaves.len());
    sizes.sum()
}

fn assert_equal(index: &IntervalIndex, twin: &Twin, random: &mut SeededRng) {
    assert_eq!(count(index), twin.len());
    let probes = if twin.len() < 200 { 10 } else { 40 };
    let _share = index.share();
    for probe in 0..probes {
        let key = match probe % 2 {
            0 => twin[random.index(twin.len())].0.clone(),
            _ => random.below(1 << 30).to_string().into_bytes(),
        };
        let at = twin.partition_point(|(own, _)| *own <= key) - 1;
        check(index, SeekTarget::At(&key), twin, at);
        if let Some(below) = twin.partition_point(|(own, _)| *own < key).checked_sub(1) {
            check(index, SeekTarget::Below(&key), twin, below);
        }
    }
    check(index, SeekTarget::Last, twin, twin.len() - 1);
}

fn check(index: &IntervalIndex, seek: SeekTarget<'_>, twin: &Twin, at: usize) {
    let (place, offset) = index.locate(seek);
    assert_eq!(place.lower(), &*twin[at].0, "{seek:?}");
    let upper = twin.get(at + 1).map(|(key, _)| &key[..]);
    assert_eq!(place.upper(), upper, "{seek:?}");
    assert_eq!(offset, twin[..at].iter().map(|(_, len)| len).sum::<u64>());
    assert_eq!(place.len(), twin[at].1);
    let found = index.find(seek);
    assert_eq!((found.lower(), found.upper()), (place.lower(), upper));
}

/// Changes the index; says whether a branch is to be cut.
fn alter<F>(index: &IntervalIndex, altered: Vec<IntervalEdit<'_, F>>) -> bool
where
    F: FnOnce(&mut Option<Arc<Interval>>),
{
    let ahead = index.ahead();
    let ready = index.prepare(&ahead, altered);
    index.make(&mut ahead.alone(), ready).is_large
}

/// A change of the index and of the twin.
fn replace(index: &IntervalIndex, twin: &mut Twin, from: usize, count: usize, list: Twin) {
    let lower = twin[from].0.clone();
    let intervals = list.iter().map(|(key, len)| new(key, *len)).collect();
    let place = index.find(SeekTarget::At(&lower));
    let count = count.min(place.leaf.count() - place.at);
    let is_large = alter(index, vec![IntervalEdit::others(&lower, count, intervals)]);
    // Mostly at once, sometimes only after the next ones.
    if is_large && !twin.len().is_multiple_of(3) {
        index.cut_branch(&lower);
    }
    let (is_empty, is_first) = (list.is_empty(), place.at == 0);
    let is_whole = is_first && count == place.leaf.count();
    twin.splice(from..from + count, list);
    // Without a new interval, a neighbour in the leaf has the keys, if there is one.
    if is_empty && is_whole {
        twin.insert(from, (lower, 0));
    } else if is_empty && is_first {
        twin[from].0 = lower;
    }
}

/// Prunes, and lets the twin be what the index is then: the same intervals that have bytes, of
/// which some begin where empty ones in front of them did.
fn prune(index: &IntervalIndex, twin: &mut Twin) {
    index.prune();
    let mut list = Twin::new();
    let mut next = Some(Vec::new());
    while let Some(lower) = next {
        let place = index.find(SeekTarget::At(&lower));
        assert_eq!(place.lower(), lower);
        next = place.upper().map(<[u8]>::to_vec);
        list.push((lower, place.len()));
    }
    let with_bytes = |list: &Twin| -> Twin {
        let full = list.iter().filter(|(_, len)| *len > 0);
        full.cloned().collect()
    };
    let (before, after) = (with_bytes(twin), with_bytes(&list));
    assert_eq!(before.len(), after.len());
    for ((old, old_len), (new, len)) in before.iter().zip(&after) {
        assert!(new <= old && len == old_len, "{new:?} {old:?}");
    }
    for pair in after.windows(2).zip(before.windows(2)) {
        assert!(pair.1[0].0 < pair.0[1].0, "{pair:?}");
    }
    *twin = list;
}

#[test]
fn equals_a_sorted_list() {
    let mut random = SeededRng::new(7);
    let mut twin: Twin = vec![(Vec::new(), 5)];
    let index = index(&twin);
    for step in 0..20_000 {
        // It grows, shrinks to little or nothing, and grows again; sometimes in ascending order.
        let shrinks = (8_000..14_500).contains(&step);
        let key = match step % 400 < 100 {
            true => format!("9{step:09}").into_bytes(),
            false => random.below(1 << 30).to_string().into_bytes(),
        };
        let from = twin.partition_point(|(own, _)| *own <= key) - 1;
        let count = 1 + random.index(if shrinks { 9 } else { 2 });
        let lower = twin[from].0.clone();
        let upper = twin.get(from + 1).map(|(key, _)| key.clone());
        let mut list = vec![(lower.clone(), random.below(100))];
        if !shrinks && key != lower && upper.as_ref().is_none_or(|upper| key < *upper) {
            list.push((key, random.below(100)));
        }
        if random.one_in(if shrinks { 2 } else { 8 }) {
            list.clear();
        }
        replace(&index, &mut twin, from, count, list);
        if step % 100 == 0 {
            assert_equal(&index, &twin, &mut random);
        }
        if step % 1_000 == 500 {
            prune(&index, &mut twin);
            assert_equal(&index, &twin, &mut random);
            let (leaves, branches) = (leaves(&index), index.top.load().branches.len());
            assert!(leaves <= twin.len() / 6 + branches + 2, "{leaves} leaves");
            assert!(branches <= leaves / 12 + 2, "{branches} for {leaves}");
        }
        if step == 8_000 {
            assert!(index.top.load().branches.len() > 1, "{}", twin.len());
        }
    }
    assert!(twin.len() > 1_000, "{}", twin.len());
    while twin.iter().any(|(_, len)| *len > 0) {
        let from = random.index(twin.len());
        replace(&index, &mut twin, from, 5, Vec::new());
    }
    replace(&index, &mut twin, 0, 1, Vec::new());
    prune(&index, &mut twin);
    assert_equal(&index, &twin, &mut random);
    let top = index.top.load();
    assert_eq!((top.branches.len(), count(&index)), (1, 1));
    assert!(index.memory_bytes() < 2_000);
}

#[test]
fn forms_stay_with_their_intervals_and_are_counted() {
    let keys: Vec<Vec<u8>> = (0..400).map(|at| format!("{at:04}").into_bytes()).collect();
    let mut twin: Twin = vec![(Vec::new(), 1)];
    twin.extend(keys.iter().map(|key| (key.clone(), 1)));
    let index = index(&twin);
    let bytes = form(&keys[0]).memory_bytes();
    for key in &keys {
        let place = index.find(SeekTarget::At(key));
        let version = place.leaf.version();
        index.fill(&place, version + 2, &form(b"what was read before a change"));
        index.fill(&place, version, &form(key));
        index.fill(&place, version, &form(b"another"));
    }
    assert_eq!(index.cached.get(), bytes * 400);
    // Every third interval is cut in two, every fifth one joined with the next one.
    for (at, key) in keys.iter().enumerate() {
        if at % 3 == 0 {
            let second = [&key[..], b"5"].concat();
            let list = [key, &second].map(|key| NewInterval {
                interval: Some(form(key)),
                ..new(key, 2)
            });
            let place = index.find(SeekTarget::At(key));
            alter(&index, vec![IntervalEdit::others(key, 1, list.into())]);
            // The leaf is not the index's any more.
            index.fill(&place, place.leaf.version(), &form(key));
        }
    }
    let of_second = form(b"00005").memory_bytes();
    assert_eq!(index.cached.get(), bytes * 400 + of_second * 134);
    for key in &keys {
        let found = index.with_cached(key, |own| own.key(0).to_vec());
        assert_eq!(found.as_deref(), Some(&key[..]));
    }
    let mut at = Some(Vec::new());
    // All of them were read, so the hand must come by twice.
    for _ in 0..2 {
        while let Some(key) = at {
            at = index.sweep(&key, EvictionStep::Forms, &mut 0);
        }
        at = Some(Vec::new());
    }
    assert_eq!(index.cached.get(), 0);
    assert!(
        keys.iter()
            .all(|key| index.with_cached(key, |_| ()).is_none())
    );
}

/// The cache had a tenth less of the store than it could have: what nobody needs went last.
#[test]
fn room_goes_before_forms_and_stays_known_when_a_leaf_is_made_anew() {
    let key_of = |at: usize| format!("{at:04}").into_bytes();
    let mut twin: Twin = vec![(Vec::new(), 1)];
    twin.extend((1..200).map(|at| (key_of(at), 1)));
    let index = index(&twin);
    let mut bytes = Vec::new();
    put_pair(&mut bytes, Kind::Put, b"9", &[7; 300]);
    let pair = parse(&bytes).unwrap()[0];
    let slabs = Slabs::new(0);
    let grow = |form: &mut Option<Arc<Interval>>| {
        let own = Arc::make_mut(form.as_mut().unwrap());
        let put = Some((&bytes[..], pair));
        let (at, removes) = (own.len(), false);
        own.splice(&PairEdit { at, removes, put }, &slabs, true);
        assert!(own.has_room());
    };
    for at in 1..200 {
        let key = key_of(at);
        let place = index.find(SeekTarget::At(&key));
        index.fill(&place, place.leaf.version(), &form(&key));
        drop(place);
        if at % 2 == 0 {
            let becomes = EditKind::Edited((2, 1), Some(grow));
            let lower = &key[..];
            alter(&index, vec![IntervalEdit { lower, becomes }]);
        }
    }
    // Every leaf is made anew, some are cut.
    for at in (1..200).step_by(5) {
        let list = [key_of(at), [&key_of(at)[..], b"5"].concat()].map(|key| new(&key, 1));
        alter(
            &index,
            vec![IntervalEdit::others(&key_of(at), 1, list.into())],
        );
    }
    let is_cached = |at: usize| {
        let place = index.find(SeekTarget::At(&key_of(at)));
        place.leaf.peek(place.at).is_some()
    };
    let sweep = |taken| {
        let mut at = Some(Vec::new());
        while let Some(key) = at {
            at = index.sweep(&key, taken, &mut 0);
        }
    };
    let grown: Vec<usize> = (2..200).step_by(2).filter(|at| at % 5 != 1).collect();
    let others = (1..200).step_by(2).filter(|at| at % 5 != 1).count();
    let of_grown = |gives_up: bool| {
        let mut own = Some(form(&key_of(2)));
        grow(&mut own);
        let own = Arc::make_mut(own.as_mut().unwrap());
        if gives_up {
            own.give_up_room(&slabs);
        }
        own.memory_bytes() * grown.len() as u64
    };
    let of_others = form(&key_of(1)).memory_bytes() * others as u64;
    assert_eq!(index.cached.get(), of_grown(false) + of_others);
    for _ in 0..2 {
        sweep(EvictionStep::Room);
        assert_eq!(index.cached.get(), of_grown(true) + of_others);
    }
    assert!(of_grown(true) < of_grown(false));
    assert!((1..200).all(|at| is_cached(at) == (at % 5 != 1)));
    sweep(EvictionStep::Forms);
    assert_eq!(index.cached.get(), 0);
}

/// Each interval of a group that was cut made another leaf and another node of 64 leaves, and all
/// of it while readers waited.
#[test]
fn many_changes_at_once_equal_one_after_the_other_and_readers_see_none_before() {
    let mut random = SeededRng::new(21);
    let key_of = |number: usize| format!("{number:06}").into_bytes();
    let mut twin: Twin = vec![(Vec::new(), 3)];
    twin.extend((1..6_000).map(|at| (key_of(at * 100), 1 + at as u64 % 7)));
    let index = index(&twin);
    assert!(index.top.load().branches.len() > 1);
    for (key, _) in &twin {
        index.fill(&index.find(SeekTarget::At(key)), 0, &form(key));
    }
    for round in 0..300_usize {
        let before = twin.clone();
        let mut altered = Vec::new();
        let (mut from, mut keys) = (random.index(twin.len()), Vec::new());
        // Neighbours and others, in several leaves and branches.
        while keys.len() < 24 && from < before.len() {
            keys.push(from);
            from += 1 + random.index(if round % 3 == 0 { 300 } else { 4 });
        }
        for &at in keys.iter().rev() {
            let (lower, len) = (before[at].0.clone(), random.below(9));
            let parts = random.index(4);
            let list: Twin = match parts {
                _ if round % 4 == 0 => vec![(lower, len)],
                0 if at > 0 && index.find(SeekTarget::At(&lower)).at > 0 => Vec::new(),
                parts => {
                    // Above the interval's first key, and below all that it was cut at before.
                    let border = |part| format!("{:03}{part}", 300 - round).into_bytes();
                    let more = (1..parts).map(|part| [&lower[..], &border(part)].concat());
                    let more = more.map(|key| (key, 2));
                    std::iter::once((lower.clone(), len)).chain(more).collect()
                }
            };
            twin.splice(at..=at, list.iter().cloned());
            altered.push((at, list));
        }
        altered.reverse();
        let change = |form_now: &mut Option<Arc<Interval>>| {
            if form_now.is_none() {
                *form_now = Some(form(b"changed"));
            }
        };
        let altered = altered.iter().map(|(at, list)| IntervalEdit {
            lower: &before[*at].0,
            becomes: match &list[..] {
                [(_, len)] if at % 2 == 0 => EditKind::Edited((*len, 1), Some(change)),
                list => EditKind::Others(1, list.iter().map(|(key, len)| new(key, *len)).collect()),
            },
        });
        let altered: Vec<_> = altered.collect();
        let ahead = index.ahead();
        let place = index.find(SeekTarget::At(&before[keys[0]].0));
        let version = place.leaf.version();
        assert!(version.is_multiple_of(2));
        let ready = index.prepare(&ahead, altered);
        assert_equal(&index, &before, &mut random);
        // What is read now is put in neither now nor later.
        let bytes = index.cached.get();
        for version in [version, place.leaf.version()] {
            index.fill(&place, version, &form(b"read meanwhile"));
        }
        assert_eq!(index.cached.get(), bytes);
        let made = index.make(&mut ahead.alone(), ready);
        assert_equal(&index, &twin, &mut random);
        let version = version + 1;
        index.fill(&place, version, &form(b"read meanwhile"));
        assert_eq!(index.cached.get(), bytes);
        if made.is_large {
            keys.iter().for_each(|at| index.cut_branch(&before[*at].0));
        }
        assert_equal(&index, &twin, &mut random);
        assert_eq!(index.cached.get(), forms(&index, &twin));
    }
    assert!(twin.len() > 6_100, "{}", twin.len());
}

/// Bytes of all forms that are in the index.
fn forms(index: &IntervalIndex, twin: &Twin) -> u64 {
    let of = |(key, _): &(Vec<u8>, u64)| {
        let bytes = index.with_cached(key, Interval::memory_bytes);
        bytes.unwrap_or_default()
    };
    twin.iter().map(of).sum()
}
