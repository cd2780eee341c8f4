//! Keys of several parts whose bytes have the order of the parts.
//!
//! A store orders keys by their bytes. Numbers as text, or two strings with a dash in between, have
//! another order as bytes than what they mean: `"10"` comes before `"9"`. [`of`] makes a key of a
//! tuple so that keys have the order of the tuples, and [`parse`] the tuple of a key.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let db = gabion::Db::open(dir.path())?;
//! use gabion::key;
//!
//! db.put(key::of(&("berlin", 2026_u16, -7_i32)), "snow")?;
//! db.put(key::of(&("berlin", 2026_u16, 21_i32)), "sun")?;
//! db.put(key::of(&("berlinchen", 2026_u16, 3_i32)), "rain")?;
//! // The keys that begin with some of the parts:
//! let mut degrees = Vec::new();
//! for pair in db.prefix(key::of(&("berlin", 2026_u16))) {
//!     let (key, _) = pair?;
//!     let parts: Option<(String, u16, i32)> = key::parse(&key);
//!     degrees.extend(parts.map(|(_, _, degrees)| degrees));
//! }
//! assert_eq!(degrees, [-7, 21]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//! The parts stand one after the other. No encoded part begins another one, so a key is the same
//! whatever follows a part.
//!
//! | part | bytes |
//! |---|---|
//! | `u8` to `u128` | most significant byte first |
//! | `i8` to `i128` | the same, with the highest bit turned over |
//! | `bool` | 0 or 1 |
//! | `f32`, `f64` | their bits as a signed integer, of negative ones with all others turned over |
//! | strings, bytes | a zero as 0, 255; at the end 0, 1 |
//! | `Option` | 0 for `None`, 1 in front of the part |
//! | [`Reverse`] | the part with all bits turned over |
//!
//! Floats have the order of `total_cmp`. The layout never changes: stores have it in their keys.

use std::cmp::Reverse;

/// A part of a key.
pub trait Part {
    /// Appends the bytes of the part.
    fn append_to(&self, key: &mut Vec<u8>);
}

/// A part that can be made of its bytes again.
pub trait ParsePart: Part + Sized {
    /// Takes the part from the front of `key`; `None` if its bytes are not there.
    fn take_from(key: &mut &[u8]) -> Option<Self>;
}

/// The key of a tuple, or of a single part.
pub fn of<P: Part + ?Sized>(parts: &P) -> Vec<u8> {
    let mut key = Vec::new();
    parts.append_to(&mut key);
    key
}

/// The tuple, or the single part, of a key; `None` if the key is not one of such parts.
pub fn parse<P: ParsePart>(mut key: &[u8]) -> Option<P> {
    let parts = P::take_from(&mut key)?;
    key.is_empty().then_some(parts)
}

impl<P: Part + ?Sized> Part for &P {
    fn append_to(&self, key: &mut Vec<u8>) {
        (**self).append_to(key);
    }
}

macro_rules! unsigned {
    ($($unsigned:ty),*) => {$(
        impl Part for $unsigned {
            fn append_to(&self, key: &mut Vec<u8>) {
                key.extend_from_slice(&self.swap_bytes().to_le_bytes());
            }
        }

        impl ParsePart for $unsigned {
            fn take_from(key: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = key.split_first_chunk()?;
                *key = rest;
                Some(<$unsigned>::from_le_bytes(*bytes).swap_bytes())
            }
        }
    )*};
}

/// Numbers that are ordered as unsigned ones once their bits are mapped.
macro_rules! mapped {
    ($($number:ty as $unsigned:ty: $to:expr, $from:expr;)*) => {$(
        impl Part for $number {
            fn append_to(&self, key: &mut Vec<u8>) {
                let to: fn($number) -> $unsigned = $to;
                to(*self).append_to(key);
            }
        }

        impl ParsePart for $number {
            fn take_from(key: &mut &[u8]) -> Option<Self> {
                let from: fn($unsigned) -> $number = $from;
                <$unsigned>::take_from(key).map(from)
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, u128);

mapped! {
    i8 as u8: |own| own.cast_unsigned() ^ 1 << 7, |bits| (bits ^ 1 << 7).cast_signed();
    i16 as u16: |own| own.cast_unsigned() ^ 1 << 15, |bits| (bits ^ 1 << 15).cast_signed();
    i32 as u32: |own| own.cast_unsigned() ^ 1 << 31, |bits| (bits ^ 1 << 31).cast_signed();
    i64 as u64: |own| own.cast_unsigned() ^ 1 << 63, |bits| (bits ^ 1 << 63).cast_signed();
    i128 as u128: |own| own.cast_unsigned() ^ 1 << 127, |bits| (bits ^ 1 << 127).cast_signed();
    f32 as i32: |own| ordered_32(own.to_bits().cast_signed()),
        |bits| f32::from_bits(ordered_32(bits).cast_unsigned());
    f64 as i64: |own| ordered_64(own.to_bits().cast_signed()),
        |bits| f64::from_bits(ordered_64(bits).cast_unsigned());
}

/// The bits of a number as a signed integer that has its place in the order; and back.
fn ordered_32(bits: i32) -> i32 {
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}

/// As [`ordered_32`].
fn ordered_64(bits: i64) -> i64 {
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

impl Part for bool {
    fn append_to(&self, key: &mut Vec<u8>) {
        u8::from(*self).append_to(key);
    }
}

impl ParsePart for bool {
    fn take_from(key: &mut &[u8]) -> Option<Self> {
        match u8::take_from(key)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Part for [u8] {
    fn append_to(&self, key: &mut Vec<u8>) {
        for byte in self {
            key.push(*byte);
            if *byte == 0 {
                key.push(255);
            }
        }
        key.extend_from_slice(&[0, 1]);
    }
}

impl Part for str {
    fn append_to(&self, key: &mut Vec<u8>) {
        self.as_bytes().append_to(key);
    }
}

impl<const N: usize> Part for [u8; N] {
    fn append_to(&self, key: &mut Vec<u8>) {
        self[..].append_to(key);
    }
}

impl Part for Vec<u8> {
    fn append_to(&self, key: &mut Vec<u8>) {
        self[..].append_to(key);
    }
}

impl ParsePart for Vec<u8> {
    fn take_from(key: &mut &[u8]) -> Option<Self> {
        let mut part = Vec::new();
        loop {
            let zero = key.iter().position(|byte| *byte == 0)?;
            part.extend_from_slice(&key[..zero]);
            let (mark, rest) = key[zero + 1..].split_first()?;
            *key = rest;
            match mark {
                255 => part.push(0),
                1 => return Some(part),
                _ => return None,
            }
        }
    }
}

impl Part for String {
    fn append_to(&self, key: &mut Vec<u8>) {
        self.as_bytes().append_to(key);
    }
}

impl ParsePart for String {
    fn take_from(key: &mut &[u8]) -> Option<Self> {
        String::from_utf8(Vec::take_from(key)?).ok()
    }
}

impl<P: Part> Part for Option<P> {
    fn append_to(&self, key: &mut Vec<u8>) {
        self.is_some().append_to(key);
        if let Some(part) = self {
            part.append_to(key);
        }
    }
}

impl<P: ParsePart> ParsePart for Option<P> {
    fn take_from(key: &mut &[u8]) -> Option<Self> {
        match bool::take_from(key)? {
            true => Some(Some(P::take_from(key)?)),
            false => Some(None),
        }
    }
}

impl<P: Part> Part for Reverse<P> {
    fn append_to(&self, key: &mut Vec<u8>) {
        let begin = key.len();
        self.0.append_to(key);
        key[begin..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

impl<P: ParsePart> ParsePart for Reverse<P> {
    fn take_from(key: &mut &[u8]) -> Option<Self> {
        let turned: Vec<u8> = key.iter().map(|byte| !*byte).collect();
        let mut rest = &turned[..];
        let part = P::take_from(&mut rest)?;
        *key = &key[key.len() - rest.len()..];
        Some(Reverse(part))
    }
}

macro_rules! tuples {
    ($(($($part:ident)+))*) => {$(
        impl<$($part: Part),+> Part for ($($part,)+) {
            fn append_to(&self, key: &mut Vec<u8>) {
                #[expect(non_snake_case, reason = "a part has the name of its type")]
                let ($($part,)+) = self;
                $($part.append_to(key);)+
            }
        }

        impl<$($part: ParsePart),+> ParsePart for ($($part,)+) {
            fn take_from(key: &mut &[u8]) -> Option<Self> {
                Some(($($part::take_from(key)?,)+))
            }
        }
    )*};
}

tuples! {
    (A)
    (A B)
    (A B C)
    (A B C D)
    (A B C D E)
    (A B C D E F)
    (A B C D E F G)
    (A B C D E F G H)
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::*;

    /// Keys have the order of what they are made of, and it comes back.
    fn assert_ordered<P: ParsePart + PartialOrd + Debug>(
        a: &P,
        b: &P,
    ) -> Result<(), TestCaseError> {
        let (key_a, key_b) = (of(a), of(b));
        prop_assert_eq!(
            Some(key_a.cmp(&key_b)),
            a.partial_cmp(b),
            "{:?}, {:?}",
            a,
            b
        );
        for (part, key) in [(a, &key_a), (b, &key_b)] {
            prop_assert!(parse::<P>(key).as_ref() == Some(part));
        }
        // No key begins another one.
        prop_assert!(key_a == key_b || !key_a.starts_with(&key_b));
        Ok(())
    }

    /// Short, of few bytes, among them those that mean something.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0, 1, 2, 254, 255]), 0..5)
    }

    proptest! {
        #[test]
        fn numbers_and_strings_have_their_order(
            a in (any::<i8>(), bytes(), any::<u16>(), "[a-c\0]{0,3}"),
            b in (any::<i8>(), bytes(), any::<u16>(), "[a-c\0]{0,3}"),
            same in 0..4u8,
        ) {
            let mut b = b;
            if same > 0 {
                b.0 = a.0;
            }
            if same > 1 {
                b.1.clone_from(&a.1);
            }
            if same > 2 {
                b.2 = a.2;
            }
            assert_ordered(&a, &b)?;
        }

        #[test]
        fn options_and_reversed_parts_have_their_order(
            a in (prop::option::of(bytes()), any::<bool>(), any::<i64>()),
            b in (prop::option::of(bytes()), any::<bool>(), any::<i64>()),
        ) {
            assert_ordered(&a, &b)?;
            let reversed = |(first, second, third): &(Option<Vec<u8>>, bool, i64)| {
                (*second, Reverse(first.clone()), Reverse(*third))
            };
            assert_ordered(&reversed(&a), &reversed(&b))?;
        }

        #[test]
        fn large_numbers_have_their_order(a: (u128, i128, u64, i32), b: (u128, i128, u64, i32)) {
            assert_ordered(&a, &b)?;
            assert_ordered(&a.1, &b.1)?;
            assert_ordered(&(a.2, a.3), &(b.2, b.3))?;
        }

        #[test]
        fn floats_have_the_total_order(a: f64, b: f64, c: f32, d: f32) {
            prop_assert_eq!(of(&a).cmp(&of(&b)), a.total_cmp(&b));
            prop_assert_eq!(of(&c).cmp(&of(&d)), c.total_cmp(&d));
            let bits = |(a, c): (f64, f32)| (a.to_bits(), c.to_bits());
            prop_assert_eq!(parse(&of(&(a, c))).map(bits), Some(bits((a, c))));
        }

        #[test]
        fn other_bytes_are_no_key_or_the_one_that_is_made_of_what_they_say(key in bytes()) {
            if let Some(parts) = parse::<(Vec<u8>, bool)>(&key) {
                prop_assert_eq!(of(&parts), key);
            }
            else if let Some(parts) = parse::<Option<Reverse<String>>>(&key) {
                prop_assert_eq!(of(&parts), key);
            }
        }
    }

    #[test]
    fn special_floats_are_where_they_belong() {
        let ascending = [
            f64::NEG_INFINITY,
            -1.5,
            -0.0,
            0.0,
            f64::MIN_POSITIVE,
            1.5,
            f64::INFINITY,
        ];
        for pair in ascending.windows(2) {
            assert_eq!(of(&pair[0]).cmp(&of(&pair[1])), Ordering::Less, "{pair:?}");
        }
    }

    /// Stores have them: these bytes stay as they are.
    #[test]
    fn the_layout_is_what_it_was() {
        assert_eq!(of(&(1_u16, -2_i16, true)), [0, 1, 0x7f, 0xfe, 1]);
        assert_eq!(of(&("a\0b", [0_u8])), b"a\0\xffb\0\x01\0\xff\0\x01");
        assert_eq!(
            of(&(1.0_f32, -1.0_f32)),
            [0xbf, 0x80, 0, 0, 0x40, 0x7f, 0xff, 0xff]
        );
        assert_eq!(
            of(&(Some(3_u8), None::<u8>, Reverse(3_u8))),
            [1, 3, 0, 0xfc]
        );
        assert_eq!(parse::<(u8, u8)>(&[1]), None);
        assert_eq!(parse::<u8>(&[1, 2]), None);
    }
}
