//! Followers of what a crash has left, and of who goes on there.

use gabion::{Db, Options};
use gabion_media::{Disk, SimDisk, Tear};

use super::{assert_was, content, follow};
use crate::changes::machine::Machine;
use crate::support::{PanicContext, SeededRng, base_seed, setting, small_options};

fn open(sim: &SimDisk, options: &Options) -> Db {
    Db::open_on(Disk::simulated(sim), options.clone()).unwrap()
}

/// The writer ends, or the power fails, at any operation of its disk. A follower of what is left
/// has what an opening finds, and writes nothing; then somebody opens the store and goes on, and
/// the follower with him.
#[test]
fn a_follower_of_what_a_crash_has_left_goes_on_with_the_next_writer() {
    let mut images = 0;
    for number in 0..setting("GABION_FOLLOWER_CASES", 12) {
        let seed = base_seed() ^ (0xf3_0000 + number);
        let sim = SimDisk::recording();
        let options = small_options();
        let mut machine = Machine::new(&sim, options.clone(), seed);
        let first = sim.ops();
        for _ in 0..120 {
            machine.act();
        }
        let (written, last) = (machine.written.clone(), sim.ops());
        drop(machine);
        let mut random = SeededRng::new(seed);
        for at in 0..setting("GABION_FOLLOWER_IMAGES", 40) {
            let operation = first + random.below(last - first);
            let style = Tear::ALL[random.index(Tear::ALL.len())];
            let cut = random.word();
            let _context = PanicContext(|| format!("seed {seed}, {operation}, {style:?}, {cut}"));
            let image = match at % 2 {
                0 => sim.process_kill(operation),
                _ => sim.power_cut(operation, cut, style),
            };
            let before = image.ops();
            let follower = follow(&image, &options);
            assert_was(&follower, &written, true);
            assert_eq!(image.ops(), before, "a follower writes nothing");
            let copy = image.process_kill(image.ops());
            let expected = content(&open(&copy, &options));
            assert_eq!(content(&follower), expected, "beside an opening");

            // Whoever recovers the store and writes to it is followed.
            let db = open(&image, &options);
            assert_eq!(content(&db), expected);
            follower.catch_up().unwrap();
            assert_eq!(content(&follower), expected, "beside the recovery");
            for round in 0..3u64 {
                for number in 0..20u64 {
                    let key = format!("key {:02}", random.below(40));
                    db.put(key, [number.to_le_bytes(), round.to_le_bytes()].concat())
                        .unwrap();
                }
                match random.below(3) {
                    0 => db.flush().unwrap(),
                    1 => db.default_keyspace().compact::<&[u8]>(..).unwrap(),
                    _ => {}
                }
                follower.catch_up().unwrap();
                assert_eq!(content(&follower), content(&db), "round {round}");
                assert_eq!(follower.stats().visible_seq, db.stats().visible_seq);
            }
            db.close().unwrap();
            follower.catch_up().unwrap();
            let db = open(&image, &options);
            db.put("after", "all").unwrap();
            follower.catch_up().unwrap();
            assert_eq!(content(&follower), content(&db), "after a close");
            images += 1;
        }
    }
    println!("{images} images");
}
