//! Classes of keyspace events, as `notify-keyspace-events` names them by letters.

/// A set of classes of keyspace events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events(u32);

/// Letters and bits, in the order in which they are shown.
const LETTERS: &[(char, Events)] = &[
    ('g', Events::GENERIC),
    ('$', Events::STRING),
    ('l', Events::LIST),
    ('s', Events::SET),
    ('h', Events::HASH),
    ('z', Events::SORTED_SET),
    ('x', Events::EXPIRED),
    ('e', Events::EVICTED),
    ('t', Events::STREAM),
    ('d', Events::MODULE),
    ('K', Events::KEYSPACE),
    ('E', Events::KEYEVENT),
    ('m', Events::MISSED),
    ('n', Events::NEW),
];

impl Events {
    /// Published by the name of the key.
    pub(crate) const KEYSPACE: Events = Events(1);
    /// Published by the name of the event.
    pub(crate) const KEYEVENT: Events = Events(1 << 1);
    /// Commands for keys of any type.
    pub(crate) const GENERIC: Events = Events(1 << 2);
    /// Strings.
    pub(crate) const STRING: Events = Events(1 << 3);
    /// Lists.
    pub(crate) const LIST: Events = Events(1 << 4);
    /// Sets.
    pub(crate) const SET: Events = Events(1 << 5);
    /// Hashes.
    pub(crate) const HASH: Events = Events(1 << 6);
    /// Sorted sets.
    pub(crate) const SORTED_SET: Events = Events(1 << 7);
    /// Keys that have expired.
    pub(crate) const EXPIRED: Events = Events(1 << 8);
    const EVICTED: Events = Events(1 << 9);
    /// Streams.
    pub(crate) const STREAM: Events = Events(1 << 10);
    const MISSED: Events = Events(1 << 11);
    const MODULE: Events = Events(1 << 13);
    /// Keys that were not there before.
    pub(crate) const NEW: Events = Events(1 << 14);

    /// What `A` stands for.
    const ALL: Events = Events(
        Events::GENERIC.0
            | Events::STRING.0
            | Events::LIST.0
            | Events::SET.0
            | Events::HASH.0
            | Events::SORTED_SET.0
            | Events::EXPIRED.0
            | Events::EVICTED.0
            | Events::STREAM.0
            | Events::MODULE.0,
    );

    /// As a number.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Of such a number.
    pub(crate) fn from_bits(bits: u32) -> Events {
        Events(bits)
    }

    /// Whether a class of `other` is in it.
    pub(crate) fn has(self, other: Events) -> bool {
        self.0 & other.0 != 0
    }

    /// Of letters; `None` if one is unknown.
    pub(crate) fn parse(text: &str) -> Option<Events> {
        let mut events = Events::default();
        for letter in text.chars() {
            events.0 |= match letter {
                'A' => Events::ALL.0,
                _ => LETTERS.iter().find(|(known, _)| *known == letter)?.1.0,
            };
        }
        Some(events)
    }

    /// As letters.
    pub(crate) fn text(self) -> String {
        let is_all = self.0 & Events::ALL.0 == Events::ALL.0;
        let mut text = String::from(if is_all { "A" } else { "" });
        for (letter, class) in LETTERS {
            if self.has(*class) && !(is_all && Events::ALL.has(*class)) {
                text.push(*letter);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_shown_as_redis_shows_them() {
        for (set, shown) in [
            ("KEA", "AKE"),
            ("AKE", "AKE"),
            ("$lK", "$lK"),
            ("", ""),
            ("g$lshzxeKtd", "AK"),
        ] {
            assert_eq!(Events::parse(set).unwrap().text(), shown);
        }
        assert_eq!(Events::parse("Q"), None);
    }
}
