//! Trees with a wrong bit in a node.

use gabion_media::pmem::Pool;

use super::FastFair;
use super::layout::node_bytes;
use crate::blink::Checks;
use crate::suite::damage::{FlippedBit, ask_all, may_be};
use crate::{OrderedIndex, Result};

/// Keys of a tree: ten apart, in three levels of nodes.
const KEYS: u64 = 40;

impl<const N: usize> FastFair<N> {
    /// A small tree in order.
    fn small(pool: &Pool) -> Self {
        let tree = FastFair::create(pool).expect("a tree");
        for number in 0..KEYS {
            tree.insert(10 * (number * 7 % KEYS), number)
                .expect("space");
        }
        tree
    }

    /// The words of all nodes.
    pub(crate) fn words(&self) -> Vec<u64> {
        let mut words = Vec::new();
        let counted = self.check_levels(&mut |node| {
            words.extend((node.at..node.at + node_bytes(N)).step_by(8));
            Ok(())
        });
        assert!(counted.expect("sound") > 10);
        words
    }
}

/// Asks for everything that can be asked of a tree.
fn ask<const N: usize>(wrong: FlippedBit, tree: &FastFair<N>) {
    may_be(wrong, tree.scan(&0, 1000, &mut Vec::new()));
    for key in (0..10 * KEYS).step_by(10) {
        may_be(wrong, tree.get(key));
    }
    for key in (1..10 * KEYS).step_by(21) {
        may_be(wrong, tree.insert(key, key));
        may_be(wrong, tree.end_of_leaf(key));
    }
    for key in (2..10 * KEYS).step_by(47) {
        let batch = [0, 1, 2, 3].map(|behind| (key + behind, behind));
        may_be(wrong, tree.insert_all(&batch));
    }
    for key in (0..10 * KEYS).step_by(10).chain([1, 22, 43, 64]) {
        may_be(wrong, tree.remove(key));
    }
    may_be(wrong, tree.compact());
    may_be(wrong, tree.check());
}

fn ask_damaged<const N: usize>(keep: fn(FastFair<N>) -> Result<FastFair<N>>) {
    ask_all(
        FastFair::<N>::pool_options,
        |pool| FastFair::<N>::small(pool).words(),
        move |wrong, pool| match FastFair::open(pool).and_then(keep) {
            Ok(tree) => ask(wrong, &tree),
            Err(error) => may_be::<()>(wrong, Err(error)),
        },
    );
}

/// A search came to a leaf that had been given up, or lay behind its key, again and again, or went
/// round in a ring of links, for ever; an insert and a delete went beyond the slots of a node.
#[test]
fn a_wrong_bit_keeps_nobody_for_ever() {
    ask_damaged::<5>(Ok);
}

/// As above, where searches begin at leaves.
#[test]
fn a_wrong_bit_beside_ways_in_dram_keeps_nobody_for_ever() {
    ask_damaged::<5>(FastFair::cached);
}

/// As above, where slots come behind padding.
#[test]
fn a_wrong_bit_beside_padding_keeps_nobody_for_ever() {
    ask_damaged::<4>(Ok);
}
