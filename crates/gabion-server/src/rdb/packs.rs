//! The packed forms of small collections, as Redis has them in memory and writes them down: items
//! in a row, which are read one by one.

use std::borrow::Cow;

use super::piece::{Refused, Result};
use super::read::Bytes;

/// What ends a row of items.
const END: u8 = 0xff;

const BROKEN: Refused = Refused::Broken("a packed value is damaged");

/// An item: bytes of the row, or a number in decimal digits.
pub(super) type Item<'a> = Cow<'a, [u8]>;

/// The next item, `Some(None)` at the end, `None` where the row is damaged. Every second item is
/// odd: of a zipmap it is a value.
type Step<'a> = fn(&mut Bytes<'a>, is_odd: bool) -> Option<Option<Item<'a>>>;

/// The items of a row.
#[derive(Debug)]
pub(super) struct Items<'a> {
    bytes: Bytes<'a>,
    step: Step<'a>,
    is_odd: bool,
    has_ended: bool,
}

impl<'a> Items<'a> {
    /// Those behind a head of so many bytes.
    fn behind(bytes: &'a [u8], head_bytes: usize, step: Step<'a>) -> Items<'a> {
        // What is shorter than its head has no end behind it either.
        let bytes = bytes.get(head_bytes..).unwrap_or_default();
        Items {
            bytes: Bytes(bytes),
            step,
            is_odd: false,
            has_ended: false,
        }
    }

    /// The next item, which has to be there.
    pub(super) fn one(&mut self) -> Result<Item<'a>> {
        self.next().unwrap_or(Err(BROKEN))
    }

    /// The next item, which has to be a whole number.
    pub(super) fn number(&mut self) -> Result<i64> {
        crate::args::integer(&self.one()?).ok_or(BROKEN)
    }

    /// The next item, which has to be a whole number that is not negative.
    pub(super) fn unsigned(&mut self) -> Result<u64> {
        u64::try_from(self.number()?).map_err(|_| BROKEN)
    }

    /// Gives away the items in pairs; returns how many pairs there were.
    pub(super) fn pairs(mut self, mut take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<u64> {
        let mut count = 0;
        while let Some(first) = self.next() {
            take(&first?, &self.one()?)?;
            count += 1;
        }
        Ok(count)
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>>;

    fn next(&mut self) -> Option<Result<Item<'a>>> {
        if self.has_ended {
            return None;
        }
        let found = (self.step)(&mut self.bytes, self.is_odd);
        self.is_odd = !self.is_odd;
        match found {
            Some(Some(item)) => Some(Ok(item)),
            // Nothing stands behind the end.
            Some(None) if self.bytes.0.is_empty() => {
                self.has_ended = true;
                None
            }
            _ => {
                self.has_ended = true;
                Some(Err(BROKEN))
            }
        }
    }
}

fn decimal<'a>(number: i64) -> Item<'a> {
    Cow::Owned(number.to_string().into_bytes())
}

fn string<'a>(bytes: &mut Bytes<'a>, length: u64) -> Option<Item<'a>> {
    let length = usize::try_from(length).ok()?;
    bytes.take(length).map(Cow::Borrowed)
}

/// The items of a listpack: a length (4), a count (2), and items, each with its own length behind.
pub(super) fn listpack(bytes: &[u8]) -> Items<'_> {
    Items::behind(bytes, 6, listpack_item)
}

fn listpack_item<'a>(bytes: &mut Bytes<'a>, _: bool) -> Option<Option<Item<'a>>> {
    let before = bytes.0.len();
    let first = bytes.byte()?;
    let item = match first {
        END => return Some(None),
        0..0x80 => decimal(i64::from(first)),
        0x80..0xc0 => string(bytes, u64::from(first & 0x3f))?,
        0xc0..0xe0 => {
            // Thirteen bits with a sign.
            let number = i64::from(first & 0x1f) << 8 | i64::from(bytes.byte()?);
            decimal(match number >= 1 << 12 {
                true => number - (1 << 13),
                false => number,
            })
        }
        0xe0..0xf0 => {
            let length = u64::from(first & 0xf) << 8 | u64::from(bytes.byte()?);
            string(bytes, length)?
        }
        0xf0 => {
            let length = bytes.unsigned(4)?;
            string(bytes, length)?
        }
        0xf1..=0xf4 => decimal(bytes.signed([2, 3, 4, 8][usize::from(first - 0xf1)])?),
        _ => return None,
    };
    bytes.take(back_bytes(before - bytes.0.len()))?;
    Some(Some(item))
}

/// Bytes that the length of an item behind it takes.
pub(super) fn back_bytes(length: usize) -> usize {
    // The largest number of so many bytes is written with one more.
    match length {
        ..0x80 => 1,
        0x80..0x3fff => 2,
        0x3fff..0x1f_ffff => 3,
        0x1f_ffff..0xfff_ffff => 4,
        _ => 5,
    }
}

/// The items of a ziplist: a length (4), the place of the last item (4), a count (2), and items,
/// each with the length of the one before it in front.
pub(super) fn ziplist(bytes: &[u8]) -> Items<'_> {
    Items::behind(bytes, 10, ziplist_item)
}

fn ziplist_item<'a>(bytes: &mut Bytes<'a>, _: bool) -> Option<Option<Item<'a>>> {
    match bytes.byte()? {
        END => return Some(None),
        0xfe => {
            bytes.take(4)?;
        }
        _ => {}
    }
    let first = bytes.byte()?;
    let low = u64::from(first & 0x3f);
    Some(Some(match first {
        0..0x40 => string(bytes, low)?,
        0x40..0x80 => {
            let length = low << 8 | u64::from(bytes.byte()?);
            string(bytes, length)?
        }
        0x80 => {
            let length = bytes.turned(4)?;
            string(bytes, length)?
        }
        0xc0 => decimal(bytes.signed(2)?),
        0xd0 => decimal(bytes.signed(4)?),
        0xe0 => decimal(bytes.signed(8)?),
        0xf0 => decimal(bytes.signed(3)?),
        0xfe => decimal(bytes.signed(1)?),
        0xf1..=0xfd => decimal(i64::from(first & 0xf) - 1),
        _ => return None,
    }))
}

/// The members of an intset: the bytes of each (4), a count (4), and the members.
pub(super) fn intset(bytes: &[u8]) -> Result<Items<'_>> {
    let mut head = Bytes(bytes);
    let (width, count) = (head.unsigned(4), head.unsigned(4));
    let (Some(width), Some(count)) = (width, count) else {
        return Err(BROKEN);
    };
    let step: Step<'_> = match width {
        2 => |bytes, _| member(bytes, 2),
        4 => |bytes, _| member(bytes, 4),
        8 => |bytes, _| member(bytes, 8),
        _ => return Err(BROKEN),
    };
    match head.0.len() as u64 == width * count {
        true => Ok(Items::behind(bytes, 8, step)),
        false => Err(BROKEN),
    }
}

fn member<'a>(bytes: &mut Bytes<'a>, width: usize) -> Option<Option<Item<'a>>> {
    match bytes.0.is_empty() {
        true => Some(None),
        false => Some(Some(decimal(bytes.signed(width)?))),
    }
}

/// Fields and values of a zipmap: a count, and lengths in front of each; values have unused bytes
/// behind them.
pub(super) fn zipmap(bytes: &[u8]) -> Items<'_> {
    Items::behind(bytes, 1, zipmap_item)
}

fn zipmap_item<'a>(bytes: &mut Bytes<'a>, is_value: bool) -> Option<Option<Item<'a>>> {
    let length = match bytes.byte()? {
        END if is_value => return None,
        END => return Some(None),
        0xfe => bytes.unsigned(4)?,
        length => u64::from(length),
    };
    let unused = if is_value { bytes.byte()? } else { 0 };
    let item = string(bytes, length)?;
    bytes.take(usize::from(unused))?;
    Some(Some(item))
}

/// A listpack that is written.
#[derive(Debug, Default)]
pub(super) struct Listpack {
    items: Vec<u8>,
    count: u64,
}

impl Listpack {
    /// Bytes of the items.
    pub(super) fn bytes(&self) -> usize {
        self.items.len()
    }

    /// Appends a number.
    pub(super) fn push_number(&mut self, number: i64) {
        match u8::try_from(number) {
            Ok(byte) if byte < 0x80 => self.push_parts(&[byte], &[]),
            _ => self.push_parts(&[0xf4], &number.to_le_bytes()),
        }
    }

    /// Appends a string.
    pub(super) fn push(&mut self, string: &[u8]) {
        let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
        let [low, high, ..] = length.to_le_bytes();
        match length {
            ..0x40 => self.push_parts(&[0x80 | low], string),
            0x40..0x1000 => self.push_parts(&[0xe0 | high, low], string),
            _ => {
                let mut head = [0xf0; 5];
                head[1..].copy_from_slice(&length.to_le_bytes());
                self.push_parts(&head, string);
            }
        }
    }

    fn push_parts(&mut self, head: &[u8], body: &[u8]) {
        self.items.extend_from_slice(head);
        self.items.extend_from_slice(body);
        self.count += 1;
        // Its length behind it, seven bits to a byte, to be read from the end.
        let length = head.len() + body.len();
        let more = back_bytes(length) - 1;
        for place in (0..=more).rev() {
            let [low, ..] = (length >> (7 * place)).to_le_bytes();
            let is_first = place == more;
            self.items
                .push(if is_first { low & 0x7f } else { low | 0x80 });
        }
    }

    /// Appends the items of another one.
    pub(super) fn append(&mut self, other: &Listpack) {
        self.items.extend_from_slice(&other.items);
        self.count += other.count;
    }

    /// All of it.
    pub(super) fn finish(self) -> Vec<u8> {
        let total = u32::try_from(self.items.len() + 7).unwrap_or(u32::MAX);
        // More than it can say is written as its largest number.
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        let mut bytes = total.to_le_bytes().to_vec();
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&self.items);
        bytes.push(END);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length behind an item of 16,383 bytes was taken to have two bytes, as its bits would
    /// fit; Redis writes three.
    #[test]
    fn a_listpack_is_read_as_it_was_written() {
        let mut pack = Listpack::default();
        let lengths = [
            0, 63, 64, 125, 126, 4095, 4096, 16_377, 16_378, 16_379, 16_380, 2_097_145, 2_097_146,
            2_097_147,
        ];
        for length in lengths {
            pack.push(&vec![b'x'; length]);
        }
        let numbers = [0, 127, 128, -1, i64::MIN, i64::MAX];
        for number in numbers {
            pack.push_number(number);
        }
        let bytes = pack.finish();
        let mut items = listpack(&bytes);
        for length in lengths {
            assert_eq!(items.one().unwrap().len(), length);
        }
        for number in numbers {
            assert_eq!(items.number().unwrap(), number);
        }
        assert!(items.next().is_none());
        assert!(matches!(items.one(), Err(Refused::Broken(_))));
    }

    #[test]
    fn what_stands_behind_the_end_is_refused() {
        let mut pack = Listpack::default();
        pack.push(b"a");
        let mut bytes = pack.finish();
        bytes.push(0);
        let all: Result<Vec<_>> = listpack(&bytes).collect();
        assert!(matches!(all, Err(Refused::Broken(_))));
    }

    #[test]
    fn maps_and_sets_of_numbers_end_where_they_say() {
        let map = b"\x02\x01a\x01\x00b\x02cc\x02\x01dd!\xff";
        let mut found = Vec::new();
        let pairs = zipmap(map).pairs(|field, value| {
            found.push((field.to_vec(), value.to_vec()));
            Ok(())
        });
        assert_eq!(pairs.unwrap(), 2);
        let pair = |field: &[u8], value: &[u8]| (field.to_vec(), value.to_vec());
        assert_eq!(found, [pair(b"a", b"b"), pair(b"cc", b"dd")]);
        for cut in 0..map.len() {
            assert!(zipmap(&map[..cut]).pairs(|_, _| Ok(())).is_err(), "{cut}");
        }
        let set = b"\x02\0\0\0\x02\0\0\0\xff\xff\x07\0";
        let members: Result<Vec<_>> = intset(set).unwrap().collect();
        assert_eq!(members.unwrap(), [&b"-1"[..], b"7"]);
        for cut in 0..set.len() {
            assert!(intset(&set[..cut]).is_err(), "{cut}");
        }
    }
}
