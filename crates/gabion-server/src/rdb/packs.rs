//! The packed forms of small collections, as Redis has them in memory and writes them down.

use super::read::Reader;

/// What ends a row of items.
const END: u8 = 0xff;

fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The items of a listpack: a length (4), a count (2), and items, each with its own length behind.
pub(super) fn listpack(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut reader = Reader::new(bytes);
    reader.take(6)?;
    let mut items = Vec::new();
    loop {
        let first = reader.byte()?;
        let small = u64::from(first & 0x1f);
        let (head, body, item) = match first {
            END => return Some(items),
            0..0x80 => (1, 0, decimal(i64::from(first))),
            0x80..0xc0 => string(&mut reader, 1, u64::from(first & 0x3f))?,
            0xc0..0xe0 => {
                let number = small << 8 | u64::from(reader.byte()?);
                // Thirteen bits with a sign.
                let number = i64::try_from(number).ok()?;
                let number = if number >= 1 << 12 {
                    number - (1 << 13)
                } else {
                    number
                };
                (2, 0, decimal(number))
            }
            0xe0..0xf0 => {
                let length = u64::from(first & 0xf) << 8 | u64::from(reader.byte()?);
                string(&mut reader, 2, length)?
            }
            0xf0 => {
                let length = reader.unsigned(4)?;
                string(&mut reader, 5, length)?
            }
            0xf1..=0xf4 => {
                let count = [2, 3, 4, 8][usize::from(first - 0xf1)];
                (1, count, decimal(reader.signed(count)?))
            }
            _ => return None,
        };
        let back = match head + body {
            ..0x80 => 1,
            0x80..0x4000 => 2,
            0x4000..0x20_0000 => 3,
            0x20_0000..0x1000_0000 => 4,
            _ => 5,
        };
        reader.take(back)?;
        items.push(item);
    }
}

fn string(reader: &mut Reader<'_>, head: usize, length: u64) -> Option<(usize, usize, Vec<u8>)> {
    let length = usize::try_from(length).ok()?;
    Some((head, length, reader.take(length)?.to_vec()))
}

/// The items of a ziplist: a length (4), the place of the last item (4), a count (2), and items,
/// each with the length of the one before it in front.
pub(super) fn ziplist(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut reader = Reader::new(bytes);
    reader.take(10)?;
    let mut items = Vec::new();
    loop {
        match reader.byte()? {
            END => return Some(items),
            0xfe => {
                reader.take(4)?;
            }
            _ => {}
        }
        let first = reader.byte()?;
        let low = u64::from(first & 0x3f);
        let item = match first {
            0..0x40 => string(&mut reader, 0, low)?.2,
            0x40..0x80 => {
                let length = low << 8 | u64::from(reader.byte()?);
                string(&mut reader, 0, length)?.2
            }
            0x80 => {
                let length = reader.turned(4)?;
                string(&mut reader, 0, length)?.2
            }
            0xc0 => decimal(reader.signed(2)?),
            0xd0 => decimal(reader.signed(4)?),
            0xe0 => decimal(reader.signed(8)?),
            0xf0 => decimal(reader.signed(3)?),
            0xfe => decimal(reader.signed(1)?),
            0xf1..=0xfd => decimal(i64::from(first & 0xf) - 1),
            _ => return None,
        };
        items.push(item);
    }
}

/// The members of an intset: the bytes of each (4), a count (4), and the members.
pub(super) fn intset(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut reader = Reader::new(bytes);
    let width = usize::try_from(reader.unsigned(4)?).ok()?;
    let count = reader.unsigned(4)?;
    if !matches!(width, 2 | 4 | 8) {
        return None;
    }
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(decimal(reader.signed(width)?));
    }
    reader.is_empty().then_some(items)
}

/// Fields and values of a zipmap: a count, and lengths in front of each; values have unused bytes
/// behind them.
pub(super) fn zipmap(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut reader = Reader::new(bytes);
    reader.byte()?;
    let mut items = Vec::new();
    loop {
        for is_value in [false, true] {
            let length = match reader.byte()? {
                END if !is_value => return Some(items),
                0xfe => usize::try_from(reader.unsigned(4)?).ok()?,
                length => usize::from(length),
            };
            let unused = if is_value { reader.byte()? } else { 0 };
            items.push(reader.take(length)?.to_vec());
            reader.take(usize::from(unused))?;
        }
    }
}
