//! What the special tests of several indexes of strings do alike.

use std::collections::BTreeMap;

use crate::OrderedIndex;

/// Keys of which each is the beginning of all longer ones, so that they part nowhere but at their
/// ends, and keys with long common beginnings; with an empty index and its twin.
pub(crate) fn keys_within_keys(index: &dyn OrderedIndex<[u8]>) {
    let keys: Vec<Vec<u8>> = (0..300)
        .map(|length| vec![7; length])
        .chain((1..300).map(|length| vec![0; length]))
        .chain((0..50).map(|byte| [vec![7; 100], vec![byte], vec![9; 30]].concat()))
        .chain((0..50).map(|byte| [vec![8; 90], vec![byte; 20]].concat()))
        .collect();
    let mut twin = BTreeMap::new();
    for (number, key) in (0..).zip(keys.iter().rev().step_by(2).chain(keys.iter().step_by(2))) {
        assert_eq!(
            index.insert(key, number).expect("space"),
            twin.insert(key, number)
        );
    }
    for key in &keys {
        let mut found = Vec::new();
        index.scan(key, 5, &mut found).expect("sound");
        let expected = twin.range::<&Vec<u8>, _>(key..).take(5);
        assert!(
            expected
                .map(|(key, value)| (*key, value))
                .eq(found.iter().map(|(key, value)| (key, value)))
        );
        assert_eq!(index.get(key).expect("sound"), twin.get(key).copied());
    }
    super::check(index).expect("sound");
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(index.remove(key).expect("sound"), twin.remove(key));
        if number % 100 == 99 {
            index.compact().expect("space");
            super::check(index).expect("sound");
        }
    }
    super::check(index).expect("sound");
    assert!(index.is_empty().expect("sound"));
}
