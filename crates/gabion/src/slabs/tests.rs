//! Slabs against what their buffers are to hold, and their sums against walks over all pages.

use gabion_media::seeded::SeededRng;

use super::*;

#[test]
fn sizes_come_in_eight_steps_for_each_doubling() {
    let mut last = (0, 0);
    for bytes in 1..if cfg!(miri) { 3_000 } else { 300_000 } {
        let slot = slot_bytes(bytes);
        assert!(slot >= bytes && slot.is_multiple_of(SLOT_ALIGN));
        assert!(
            slot <= SLOT_BYTES_MIN || (slot - bytes) * 9 < slot,
            "{bytes}: {slot}"
        );
        let class = class_of(slot);
        // One class for each size, without gaps.
        match slot == last.0 {
            true => assert_eq!(class, last.1),
            false => assert_eq!(class, if last.0 == 0 { 0 } else { last.1 + 1 }),
        }
        last = (slot, class);
        assert_eq!(
            slot_bytes(full_len(bytes) + HEAD_BYTES),
            full_len(bytes) + HEAD_BYTES
        );
    }
    let slabs = Slabs::new(64 << 20);
    for class in 0..slabs.classes.len() {
        let slots = slabs.slots_of(class);
        assert!(slots >= SLOTS_MIN);
        let slot = slabs.page_bytes / slots;
        assert!(slots == slabs.page_bytes / slot);
    }
}

/// A buffer, and what it is to hold.
struct Held(Buffer, u8, usize);

impl Held {
    fn check(&self) {
        assert_eq!(self.0.len(), self.2);
        assert!(self.0.iter().all(|byte| *byte == self.1));
    }
}

fn random_len(random: &mut SeededRng) -> usize {
    match random.below(10) {
        0 => random.index(100),
        9 => random.index(100_000),
        _ => random.index(4_000),
    }
}

/// Buffers against what they are to hold, and the sums against a walk over all pages.
#[test]
fn buffers_keep_what_they_hold_and_all_is_counted() {
    for cache_bytes in [0, 8 << 20, 1 << 30] {
        let slabs = Slabs::new(cache_bytes);
        let mut random = SeededRng::new(cache_bytes + 1);
        let mut held: Vec<Held> = Vec::new();
        let (steps, least) = if cfg!(miri) { (300, 50) } else { (20_000, 500) };
        for step in 0..steps {
            if held.len() < least || random.one_in(2) {
                let len = random_len(&mut random);
                let byte = u8::try_from(random.below(256)).unwrap();
                let mut buffer = slabs.take(len);
                buffer.own().fill(byte);
                held.push(Held(buffer, byte, len));
            } else {
                let at = random.index(held.len());
                let Held(buffer, byte, len) = held.swap_remove(at);
                let mut other = buffer.clone();
                assert!(other.get_mut().is_none());
                drop(buffer);
                other.own().fill(byte.wrapping_add(1));
                let own = Held(other, byte.wrapping_add(1), len);
                own.check();
            }
            if step % (steps / 20) == 0 {
                held.iter().for_each(Held::check);
                assert_counted(&slabs, &held);
                slabs.give_up_spare(0);
                assert_counted(&slabs, &held);
            }
        }
        assert_eq!(slabs.slack_bytes() > 0, cache_bytes > 0);
        // They outlive who made them.
        drop(slabs);
        held.iter().for_each(Held::check);
    }
}

fn assert_counted(slabs: &Slabs, held: &[Held]) {
    let (mut free, mut used, mut pages) = (0, 0, slabs.spare.lock().len());
    for (at, class) in slabs.classes.iter().enumerate() {
        let class = class.lock();
        let slots = slabs.slots_of(at);
        let mut free_slots = 0;
        for entry in class.entries.iter().flatten() {
            pages += 1;
            free_slots += entry.free.len();
            let is_open = entry.open_at.is_some();
            // ORDER: Relaxed; nobody else is there.
            let is_drained = entry.page.is_drained.load(Ordering::Relaxed);
            assert_eq!(is_open, !is_drained && !entry.free.is_empty(), "S3");
            let place = entry.open_at.map(|at| class.open[at]);
            assert!(place.is_none_or(|place| place == entry.page.number));
        }
        assert_eq!(class.free, free_slots);
        let slot = (0..).map(slot_bytes).find(|slot| class_of(*slot) == at);
        free += free_slots * slot.unwrap();
        let all = class.entries.iter().flatten().count() * slots;
        used += (all - free_slots) * slot.unwrap();
    }
    assert_eq!(slabs.free_bytes(), free as u64);
    assert_eq!(
        slabs.slack_bytes(),
        (pages * slabs.page_bytes - used) as u64
    );
    let in_pages = held.iter().filter(|own| own.0.page().is_some());
    assert_eq!(
        used,
        in_pages.map(|own| own.0.memory_bytes()).sum::<usize>()
    );
}

#[test]
fn drained_pages_go_once_their_buffers_have_moved() {
    let slabs = Slabs::new(64 << 20);
    let take = |len: usize| Held(slabs.take(len), 0, len);
    let mut held: Vec<Held> = (0..20_000).map(|_| take(1_000)).collect();
    // Three of four go, so that no page is empty.
    let mut number = 0;
    held.retain(|_| {
        number += 1;
        number % 4 == 0
    });
    slabs.give_up_spare(0);
    let before = slabs.pages.load(Ordering::Relaxed);
    assert!(slabs.free_bytes() > before / 2);
    assert!(slabs.begin_drain(u64::MAX));
    assert!(
        !slabs.begin_drain(u64::MAX),
        "as many as can be are drained"
    );
    assert_counted(&slabs, &held);
    let drained = held.iter_mut().filter(|own| own.0.is_drained());
    let mut count = 0;
    for own in drained {
        own.0 = slabs.take(own.2);
        assert!(!own.0.is_drained());
        count += 1;
    }
    assert!((1..5_000).contains(&count));
    slabs.give_up_spare(0);
    assert_counted(&slabs, &held);
    let after = slabs.pages.load(Ordering::Relaxed);
    assert!(after < before / 3, "{after} of {before}");
    assert!(slabs.free_bytes() <= 2 * slabs.page_bytes as u64);
    // A page whose buffers stay gives out slots again.
    held.truncate(2_000);
    assert!(slabs.begin_drain(1));
    slabs.end_drain();
    assert_counted(&slabs, &held);
    assert!(held.iter().all(|own| !own.0.is_drained()));
    drop(held);
    slabs.give_up_spare(0);
    assert_eq!(slabs.slack_bytes(), 0);
    assert_eq!(Arc::strong_count(&slabs), 1);
}

/// Threads pass buffers on, share and free them.
#[test]
fn threads_share_the_slots() {
    let slabs = Slabs::new(8 << 20);
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Held>(100);
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (slabs, sender) = (&slabs, sender.clone());
            scope.spawn(move || {
                let mut random = SeededRng::new(seed);
                for _ in 0..if cfg!(miri) { 50 } else { 5_000 } {
                    let len = random.index(3_000);
                    let byte = u8::try_from(random.below(256)).unwrap();
                    let mut buffer = slabs.take(len);
                    buffer.own().fill(byte);
                    let kept = buffer.clone();
                    sender.send(Held(buffer, byte, len)).unwrap();
                    Held(kept, byte, len).check();
                }
            });
        }
        drop(sender);
        let receiver = &receiver;
        for seed in 3..5 {
            scope.spawn(move || {
                let mut random = SeededRng::new(seed);
                let mut held = Vec::new();
                loop {
                    let received = receiver.lock().recv();
                    let Ok(own) = received else {
                        break;
                    };
                    own.check();
                    held.push(own);
                    if held.len() > 200 {
                        held.swap_remove(random.index(200)).check();
                    }
                }
                held.iter().for_each(Held::check);
            });
        }
        let slabs = &slabs;
        scope.spawn(move || {
            for _ in 0..if cfg!(miri) { 10 } else { 200 } {
                slabs.begin_drain(1 << 20);
                slabs.give_up_spare(0);
                slabs.end_drain();
            }
        });
    });
    assert_counted(&slabs, &[]);
    slabs.give_up_spare(0);
    assert_eq!((slabs.slack_bytes(), slabs.free_bytes()), (0, 0));
    assert_eq!(Arc::strong_count(&slabs), 1);
}
