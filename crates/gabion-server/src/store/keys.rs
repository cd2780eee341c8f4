//! The keys of the store's keyspaces. Numbers in them are big-endian, so that they have their
//! order.

/// Bytes of a database's number in front of a key.
pub(crate) const SPACE_BYTES: usize = 2;

/// Bytes in front of an element: the database and the number of its collection.
pub(crate) const PREFIX_BYTES: usize = SPACE_BYTES + size_of::<u64>();

/// The longest key of a user, in bytes: with a moment in front it is a key of the store.
pub(crate) const KEY_BYTES_MAX: usize = u16::MAX as usize - PREFIX_BYTES;

/// The bytes of a number, the highest first.
pub(crate) fn ordered(number: u64) -> [u8; 8] {
    let mut bytes = number.to_le_bytes();
    bytes.reverse();
    bytes
}

/// The number of such bytes.
pub(crate) fn from_ordered(mut bytes: [u8; 8]) -> u64 {
    bytes.reverse();
    u64::from_le_bytes(bytes)
}

/// The bytes of a database's number.
pub(crate) fn space_bytes(space: u16) -> [u8; SPACE_BYTES] {
    let [low, high] = space.to_le_bytes();
    [high, low]
}

/// Writes the key of a record into `key`.
pub(crate) fn meta_key(space: u16, user_key: &[u8], key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(&space_bytes(space));
    key.extend_from_slice(user_key);
}

/// What the keys of a collection's elements begin with.
pub(crate) fn prefix(space: u16, elements: u64) -> [u8; PREFIX_BYTES] {
    let mut key = [0; PREFIX_BYTES];
    key[..SPACE_BYTES].copy_from_slice(&space_bytes(space));
    key[SPACE_BYTES..].copy_from_slice(&ordered(elements));
    key
}

/// The first key behind all that begin with `prefix`; `None` if there is no such key.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The key in the index of moments of a user's key that expires.
pub(crate) fn expiry_key(moment: u64, space: u16, user_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(PREFIX_BYTES + user_key.len());
    key.extend_from_slice(&ordered(moment));
    key.extend_from_slice(&space_bytes(space));
    key.extend_from_slice(user_key);
    key
}

/// The moment, the database and the user's key of such a key.
pub(crate) fn split_expiry_key(key: &[u8]) -> Option<(u64, u16, &[u8])> {
    let (moment, rest) = key.split_first_chunk()?;
    let ([high, low], user_key) = rest.split_first_chunk()?;
    let space = u16::from_le_bytes([*low, *high]);
    Some((from_ordered(*moment), space, user_key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_their_numbers() {
        let key = |moment, space| expiry_key(moment, space, b"k");
        assert!(key(255, 9) < key(256, 1));
        assert!(key(7, 255) < key(7, 256));
        assert_eq!(
            split_expiry_key(&key(300, 258)),
            Some((300, 258, &b"k"[..]))
        );
        assert!(prefix(1, 255) < prefix(1, 256));
        assert_eq!(split_expiry_key(b"short"), None);
    }

    #[test]
    fn the_end_of_a_prefix_is_right_behind_it() {
        assert_eq!(after_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"\xff\xff"), None);
    }
}
