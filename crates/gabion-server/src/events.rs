//! Classes of keyspace events, as `notify-keyspace-events` names them by letters.

/// A set of classes of keyspace events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventClasses(u32);

/// Letters and bits, in the order in which they are shown.
const LETTERS: &[(char, EventClasses)] = &[
    ('g', EventClasses::GENERIC),
    ('$', EventClasses::STRING),
    ('l', EventClasses::LIST),
    ('s', EventClasses::SET),
    ('h', EventClasses::HASH),
    ('z', EventClasses::SORTED_SET),
    ('x', EventClasses::EXPIRED),
    ('e', EventClasses::EVICTED),
    ('t', EventClasses::STREAM),
    ('d', EventClasses::MODULE),
    ('K', EventClasses::KEYSPACE),
    ('E', EventClasses::KEYEVENT),
    ('m', EventClasses::MISSED),
    ('n', EventClasses::NEW),
];

impl EventClasses {
    /// Published by the name of the key.
    pub(crate) const KEYSPACE: EventClasses = EventClasses(1);
    /// Published by the name of the event.
    pub(crate) const KEYEVENT: EventClasses = EventClasses(1 << 1);
    /// Commands for keys of any type.
    pub(crate) const GENERIC: EventClasses = EventClasses(1 << 2);
    /// Strings.
    pub(crate) const STRING: EventClasses = EventClasses(1 << 3);
    /// Lists.
    pub(crate) const LIST: EventClasses = EventClasses(1 << 4);
    /// Sets.
    pub(crate) const SET: EventClasses = EventClasses(1 << 5);
    /// Hashes.
    pub(crate) const HASH: EventClasses = EventClasses(1 << 6);
    /// Sorted sets.
    pub(crate) const SORTED_SET: EventClasses = EventClasses(1 << 7);
    /// Keys that have expired.
    pub(crate) const EXPIRED: EventClasses = EventClasses(1 << 8);
    const EVICTED: EventClasses = EventClasses(1 << 9);
    /// Streams.
    pub(crate) const STREAM: EventClasses = EventClasses(1 << 10);
    const MISSED: EventClasses = EventClasses(1 << 11);
    const MODULE: EventClasses = EventClasses(1 << 13);
    /// Keys that were not there before.
    pub(crate) const NEW: EventClasses = EventClasses(1 << 14);

    /// What `A` stands for.
    const ALL: EventClasses = EventClasses(
        EventClasses::GENERIC.0
            | EventClasses::STRING.0
            | EventClasses::LIST.0
            | EventClasses::SET.0
            | EventClasses::HASH.0
            | EventClasses::SORTED_SET.0
            | EventClasses::EXPIRED.0
            | EventClasses::EVICTED.0
            | EventClasses::STREAM.0
            | EventClasses::MODULE.0,
    );

    /// As a number.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Of such a number.
    pub(crate) fn from_bits(bits: u32) -> EventClasses {
        EventClasses(bits)
    }

    /// Whether a class of `other` is in it.
    pub(crate) fn has(self, other: EventClasses) -> bool {
        self.0 & other.0 != 0
    }

    /// Of letters; `None` if one is unknown.
    pub(crate) fn parse(text: &str) -> Option<EventClasses> {
        let mut events = EventClasses::default();
        for letter in text.chars() {
            events.0 |= match letter {
                'A' => EventClasses::ALL.0,
                _ => LETTERS.iter().find(|(known, _)| *known == letter)?.1.0,
            };
        }
        Some(events)
    }

    /// As letters.
    pub(crate) fn text(self) -> String {
        let is_all = self.0 & EventClasses::ALL.0 == EventClasses::ALL.0;
        let mut text = String::from(if is_all { "A" } else { "" });
        for (letter, class) in LETTERS {
            if self.has(*class) && !(is_all && EventClasses::ALL.has(*class)) {
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
            assert_eq!(EventClasses::parse(set).unwrap().text(), shown);
        }
        assert_eq!(EventClasses::parse("Q"), None);
    }
}
