//! Keys for tests of tables with a directory.

use std::sync::LazyLock;

use crate::Seed;

/// Keys of which every other one has a hash that begins with the same six bits: they make the
/// directory large while other segments are still shallow, so that their entries fill many lines.
pub(crate) fn uneven_key(number: u64) -> u64 {
    static KEYS: LazyLock<Vec<u64>> = LazyLock::new(|| {
        let seed = Seed::new(7);
        let mut alike = (0..).filter(|key| seed.hash_u64(*key) >> 58 == 0x2a);
        let mut others = 1 << 40..;
        let mut key = |number| match number % 2 {
            0 => alike.next(),
            _ => others.next(),
        };
        (0..1000).filter_map(&mut key).collect()
    });
    KEYS[usize::try_from(number).expect("a number of a history")]
}
