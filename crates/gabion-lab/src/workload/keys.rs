//! Keys and values of the measured data set.
//!
//! A record has a *number* in `0..num`, which gives its place in key order, and a *generation*:
//! 0 for the records that fills write, 1 and up for those that a workload inserts later, so that
//! inserted keys are new and yet fall between the old ones. A key is
//!
//! ```text
//! zeros to the left | digits of the number, fixed width | one byte for the generation
//! ```
//!
//! The digits are decimal when they fit, otherwise to base 64 in ASCII order, so that keys of eight
//! bytes can still number 4.4 * 10^12 records. Byte order of keys is order of (number, generation).
//! The byte before the first generation is used by no record: with it a key is absent, but inside
//! the range of those present.
//!
//! Values are windows of a buffer of random bytes, so no compressor can shorten them.

use super::rng::{Rng, below};
use super::sizes::ValueSizes;
use crate::text::counted;

/// The shortest key that holds the digits of any sensible number of records.
const KEY_BYTES_MIN: usize = 8;
/// The longest key, that of Gabion's engines.
const KEY_BYTES_MAX: usize = 65_535;
/// The byte of generation 0.
const GENERATION_FIRST: u8 = b'0';
/// The last byte of keys that no record has. It sorts before every generation.
const GENERATION_ABSENT: u8 = GENERATION_FIRST - 1;
/// The largest generation: more would leave printable ASCII.
pub(crate) const GENERATION_MAX: u64 = 78;
/// Digits to base 64 start here and end at `o`.
const DIGIT_FIRST: u8 = b'0';
const TEN_MILLION: u64 = 10_000_000;
const HUNDRED_MILLION: u64 = 100_000_000;
/// The random bytes that values are cut from: more than the caches near the core hold.
const VALUE_POOL_BYTES: usize = 4 << 20;

/// Which record a request is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KeyId {
    /// Place in key order, below the number of records.
    pub(crate) number: u64,
    /// 0 for records of a fill.
    pub(crate) generation: u64,
}

/// The form of all keys of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyShape {
    bytes: usize,
    digits: Digits,
}

/// How the number of a record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digits {
    /// Seven decimal digits.
    Seven,
    /// Eight decimal digits.
    Eight,
    /// Decimal digits, as many as there is room for.
    Decimal,
    /// Digits to base 64, as many as there is room for.
    Base64,
}

impl KeyShape {
    /// Keys of `bytes` bytes for `num` records, or a sentence that says why that cannot be.
    pub(crate) fn new(bytes: usize, num: u64) -> Result<KeyShape, String> {
        if bytes < KEY_BYTES_MIN {
            return Err(format!(
                "keys of {} cannot be numbered; use at least {KEY_BYTES_MIN}",
                counted(bytes as u64, "byte", "bytes")
            ));
        }
        if bytes > KEY_BYTES_MAX {
            return Err(format!(
                "keys of {bytes} bytes are too long; use at most {KEY_BYTES_MAX}"
            ));
        }
        let fits = |radix: u64| {
            let digits = u32::try_from(bytes - 1).unwrap_or(u32::MAX);
            radix.checked_pow(digits).is_none_or(|limit| num <= limit)
        };
        let digits = match num {
            0..=TEN_MILLION => Digits::Seven,
            0..=HUNDRED_MILLION if bytes > 8 => Digits::Eight,
            _ if fits(10) => Digits::Decimal,
            _ if fits(64) => Digits::Base64,
            _ => {
                return Err(format!(
                    "keys of {bytes} bytes cannot number {num} records; use longer keys"
                ));
            }
        };
        Ok(KeyShape { bytes, digits })
    }

    /// Bytes of a key.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Room for `keys` keys, zeros in front of all their digits.
    pub(crate) fn buffer(&self, keys: usize) -> Vec<u8> {
        vec![DIGIT_FIRST; keys * self.bytes]
    }

    /// Writes the key of `id` into `key`, which lies in what [`KeyShape::buffer`] made.
    #[inline]
    pub(crate) fn write(&self, id: KeyId, key: &mut [u8]) {
        self.write_all(&[id], false, key);
    }

    /// How many of `num` records have keys of generation 0 below `border`.
    pub(crate) fn records_below(&self, border: &[u8], num: u64) -> u64 {
        let mut key = self.buffer(1);
        let (mut low, mut high) = (0, num);
        while low < high {
            let number = low.midpoint(high);
            let generation = 0;
            self.write(KeyId { number, generation }, &mut key);
            match *key < *border {
                true => low = number + 1,
                false => high = number,
            }
        }
        low
    }

    /// Writes the keys of `ids` into `keys`, which [`KeyShape::buffer`] made, or keys that no
    /// record has, next to those.
    #[inline]
    pub(crate) fn write_all(&self, ids: &[KeyId], are_absent: bool, keys: &mut [u8]) {
        let last = |id: &KeyId| match are_absent {
            true => GENERATION_ABSENT,
            false => GENERATION_FIRST + id.generation.min(GENERATION_MAX) as u8,
        };
        let keys = keys.chunks_exact_mut(self.bytes).zip(ids);
        match self.digits {
            Digits::Seven => {
                for (key, id) in keys {
                    let (_, tail) = ends(key);
                    *tail = seven_digits_and(id.number, last(id));
                }
            }
            Digits::Eight => {
                for (key, id) in keys {
                    let (head, tail) = ends(key);
                    *tail = seven_digits_and(id.number % TEN_MILLION, last(id));
                    if let Some(first) = head.last_mut() {
                        *first = DIGIT_FIRST + (id.number / TEN_MILLION % 10) as u8;
                    }
                }
            }
            Digits::Decimal => {
                for (key, id) in keys {
                    let (head, tail) = ends(key);
                    *tail = seven_digits_and(id.number % TEN_MILLION, last(id));
                    write_decimal(id.number / TEN_MILLION, head);
                }
            }
            Digits::Base64 => keys.for_each(|(key, id)| write_base_64(id.number, last(id), key)),
        }
    }
}

/// The last eight bytes of a key, and those before them.
#[inline]
fn ends(key: &mut [u8]) -> (&mut [u8], &mut [u8; 8]) {
    key.split_last_chunk_mut()
        .expect("keys have at least eight bytes")
}

/// Seven decimal digits and `last`: the end of a decimal key as one word.
#[inline]
fn seven_digits_and(number: u64, last: u8) -> [u8; 8] {
    // The first of eight digits is a zero, which makes room for `last`.
    ((eight_digits(number) >> 8) | (u64::from(last) << 56)).to_le_bytes()
}

/// Writes the decimal digits of `number`, zeros to their left, eight at a time.
fn write_decimal(mut number: u64, digits: &mut [u8]) {
    for chunk in digits.rchunks_mut(8) {
        let bytes = eight_digits(number % HUNDRED_MILLION).to_le_bytes();
        number /= HUNDRED_MILLION;
        let used = &bytes[bytes.len() - chunk.len()..];
        chunk.copy_from_slice(used);
    }
}

/// The eight decimal digits of a number below 10^8, the first in the lowest byte.
///
/// Every request pays for its key, so all digits are found at once: the number is cut into halves
/// of four digits, those into pairs, those into digits, each in a lane of its own. 10,486 / 2^20
/// and 103 / 2^10 are a hundredth and a tenth closely enough for four and two digits.
#[inline]
fn eight_digits(number: u64) -> u64 {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let pairs = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000F_000F_000F_000F;
    let digits = tens | ((pairs - 10 * tens) << 8);
    digits + 0x0101_0101_0101_0101 * u64::from(DIGIT_FIRST)
}

/// Writes the digits of `number` to base 64, zeros to their left, and `last` after them.
#[inline]
fn write_base_64(mut number: u64, last: u8, key: &mut [u8]) {
    let (end, digits) = key.split_last_mut().expect("keys are not empty");
    *end = last;
    for digit in digits.iter_mut().rev() {
        *digit = DIGIT_FIRST + (number % 64) as u8;
        number /= 64;
    }
}

/// Whether `key` is one of those that no record has.
pub(crate) fn is_absent(key: &[u8]) -> bool {
    key.last() == Some(&GENERATION_ABSENT)
}

/// Incompressible values.
#[derive(Debug)]
pub(crate) struct ValuePool {
    bytes: Vec<u8>,
    /// Sizes that are equally likely, a power of two of them.
    sizes: Vec<u32>,
}

/// Sizes that values are drawn from: few enough to stay in a cache near the core.
const VALUE_SIZES: usize = 1 << 13;

impl ValuePool {
    /// A pool for values of `value_bytes` bytes, or of other sizes that have this mean.
    pub(crate) fn new(sizes: ValueSizes, value_bytes: usize, seed: u64) -> ValuePool {
        let count = match sizes {
            ValueSizes::Fixed => 1,
            ValueSizes::Etc => VALUE_SIZES,
        };
        let sizes = sizes.quantiles(count, value_bytes);
        let longest = sizes.iter().copied().max().unwrap_or(0) as usize;
        ValuePool {
            bytes: Rng::new(seed, u64::MAX).bytes(VALUE_POOL_BYTES + longest),
            sizes,
        }
    }

    /// A value, chosen by a random number: by its high bits the place, by its low ones the size.
    #[inline]
    pub(crate) fn value(&self, random: u64) -> &[u8] {
        #[expect(clippy::cast_possible_truncation, reason = "below the pool's length")]
        let start = below(random, VALUE_POOL_BYTES as u64) as usize;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "only the low bits are wanted"
        )]
        let size = self.sizes[random as usize & (self.sizes.len() - 1)] as usize;
        &self.bytes[start..start + size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(shape: &KeyShape, number: u64, generation: u64) -> Vec<u8> {
        let mut key = shape.buffer(1);
        shape.write(KeyId { number, generation }, &mut key);
        key
    }

    #[test]
    fn keys_order_as_numbers_and_generations_do() {
        for (bytes, num) in [
            (8, 5_000_000),
            (8, 20_000_000),
            (16, 20_000_000),
            (40, 1 << 60),
        ] {
            let shape = KeyShape::new(bytes, num).unwrap();
            let mut rng = Rng::new(4, 0);
            for _ in 0..2_000 {
                let mut draw = || (rng.below(num), rng.below(GENERATION_MAX + 1));
                let (a, b) = (draw(), draw());
                let (key_a, key_b) = (key(&shape, a.0, a.1), key(&shape, b.0, b.1));
                assert_eq!(key_a.len(), bytes);
                assert_eq!(a.cmp(&b), key_a.cmp(&key_b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn borders_are_found_among_the_records() {
        let num = 20_000_000;
        for bytes in [8, 16] {
            let shape = KeyShape::new(bytes, num).unwrap();
            for number in [0, 1, 9, 12_345, 10_000_000, 19_999_999] {
                let border = key(&shape, number, 0);
                assert_eq!(shape.records_below(&border, num), number);
                // Cut off, as a store may, it lies before all keys that it begins.
                let short = &border[..bytes - 1];
                assert_eq!(shape.records_below(short, num), number);
                assert_eq!(
                    shape.records_below(&key(&shape, number, 1), num),
                    number + 1
                );
            }
            assert_eq!(shape.records_below(b"", num), 0);
            assert_eq!(shape.records_below(b"~", num), num);
        }
    }

    #[test]
    fn keys_are_decimal_where_they_fit() {
        let shape = KeyShape::new(16, 20_000_000).unwrap();
        assert_eq!(key(&shape, 1_234_567, 0), b"0000000012345670");
        let mut reused = key(&shape, 19_999_999, 5);
        shape.write(
            KeyId {
                number: 7,
                generation: 0,
            },
            &mut reused,
        );
        assert_eq!(reused, b"0000000000000070");
        let many = KeyShape::new(16, 100_000_001).unwrap();
        assert_eq!(key(&many, 100_000_000, 0), b"0000001000000000");
        let odd = KeyShape::new(9, 100_000_000).unwrap();
        assert_eq!(key(&odd, 12_345_678, 0), b"123456780");
        let even = KeyShape::new(8, 10_000_000).unwrap();
        assert_eq!(key(&even, 7_654_321, 0), b"76543210");
    }

    #[test]
    fn digits_are_those_that_formatting_gives() {
        for number in (0..100_000_000)
            .step_by(9_973)
            .chain([9, 10, 99, 100, 99_999_999])
        {
            assert_eq!(
                eight_digits(number).to_le_bytes(),
                *format!("{number:08}").as_bytes()
            );
        }
        for bytes in [21, 22, 31] {
            let shape = KeyShape::new(bytes, u64::MAX).unwrap();
            for number in [0, 10_000_000, 12_345_678_901_234, u64::MAX - 1] {
                let want = format!("{number:0width$}0", width = bytes - 1);
                assert_eq!(key(&shape, number, 0), want.as_bytes());
            }
        }
    }

    #[test]
    fn an_absent_key_is_no_record_but_lies_between_records() {
        let shape = KeyShape::new(16, 1000).unwrap();
        let mut absent = shape.buffer(1);
        let id = KeyId {
            number: 500,
            generation: 0,
        };
        shape.write_all(&[id], true, &mut absent);
        assert!(absent > key(&shape, 499, GENERATION_MAX));
        assert!(absent < key(&shape, 500, 0));
        assert!(is_absent(&absent) && !is_absent(&key(&shape, 500, 0)));
    }

    #[test]
    fn keys_too_short_for_the_records_are_refused() {
        assert!(KeyShape::new(7, 1).is_err());
        assert!(KeyShape::new(8, 1 << 43).is_err());
        assert!(KeyShape::new(8, 1 << 42).is_ok());
    }

    #[test]
    fn values_of_many_sizes_have_their_mean() {
        let pool = ValuePool::new(ValueSizes::Etc, 194, 1);
        let mut rng = Rng::new(1, 1);
        let drawn = 200_000;
        let bytes: usize = (0..drawn).map(|_| pool.value(rng.next_u64()).len()).sum();
        let mean = bytes as f64 / f64::from(drawn);
        assert!((mean / 194.0 - 1.0).abs() < 0.03, "{mean}");
    }

    #[test]
    fn values_have_their_size_and_differ() {
        let pool = ValuePool::new(ValueSizes::Fixed, 100, 1);
        let mut rng = Rng::new(1, 1);
        let first = pool.value(rng.next_u64()).to_vec();
        assert_eq!(first.len(), 100);
        assert_ne!(first, pool.value(rng.next_u64()));
        assert_eq!(
            ValuePool::new(ValueSizes::Fixed, 0, 1).value(rng.next_u64()),
            b""
        );
    }
}
