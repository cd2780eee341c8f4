//! Decodes a file to UTF-8 text: decompresses gzip and Zstandard, converts UTF-16, and skips a byte
//! order mark.
//!
//! All of that is told by the first bytes, not by the name. Only a name that promises packed bytes
//! which are not there is an error: an empty or damaged file would pass for a text of no records.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// First bytes that are looked at.
const HEAD_BYTES: u64 = 16;

/// Bytes by which packed files are known that this program does not read, with the program that
/// unpacks them.
const OTHERS: [(&[u8], &str, &str); 7] = [
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"\xfd7zXZ\0", "xz", "xz -dc"),
    (b"\x04\x22\x4d\x18", "LZ4", "lz4 -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x -so"),
    (b"\x1f\x9d", "compress", "uncompress -c"),
    (b"LZIP", "lzip", "lzip -dc"),
];

/// How a file may be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packed {
    /// By gzip, which may stand in a file several times.
    Gzip,
    /// By Zstandard, likewise.
    Zstd,
}

impl Packed {
    const GZIP: &[u8] = b"\x1f\x8b";
    const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

    /// What the ending of a file's name promises.
    pub(super) fn by_ending(ending: &str) -> Option<Packed> {
        match ending.to_ascii_lowercase().as_str() {
            "gz" => Some(Packed::Gzip),
            "zst" => Some(Packed::Zstd),
            _ => None,
        }
    }

    fn of(head: &[u8]) -> Option<Packed> {
        match head {
            head if head.starts_with(Packed::GZIP) => Some(Packed::Gzip),
            head if head.starts_with(Packed::ZSTD) => Some(Packed::Zstd),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Packed::Gzip => "gzip",
            Packed::Zstd => "Zstandard",
        }
    }
}

/// The text in `bytes`, whose name promises `named`.
pub(super) fn text(
    bytes: impl BufRead + 'static,
    named: Option<Packed>,
) -> io::Result<Box<dyn BufRead>> {
    let (head, bytes) = peek(bytes)?;
    let packed = Packed::of(&head);
    if let Some(named) = named
        && packed != Some(named)
    {
        return Err(wrong(format!(
            "the file is named like {}, but does not begin like it; it is damaged, or use --raw to \
             load it as it is",
            named.name()
        )));
    }
    match packed {
        None => {
            refuse_others(&head)?;
            decoded(head, bytes)
        }
        Some(Packed::Gzip) => unpacked(MultiGzDecoder::new(bytes)),
        Some(Packed::Zstd) => unpacked_by_zstd(bytes),
    }
}

#[cfg(feature = "zstd")]
fn unpacked_by_zstd(bytes: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
    unpacked(zstd::stream::read::Decoder::with_buffer(bytes)?)
}

#[cfg(not(feature = "zstd"))]
fn unpacked_by_zstd(_: impl BufRead) -> io::Result<Box<dyn BufRead>> {
    Err(wrong(
        "the file is compressed by Zstandard, and this program was built without the feature zstd; \
         use `zstd -dc FILE | gabion load - --format ...`, or build with --features full"
            .to_owned(),
    ))
}

fn unpacked(decoder: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let bytes = BufReader::with_capacity(READ_BYTES, Unpacked(decoder));
    let (head, bytes) = peek(bytes)?;
    decoded(head, bytes)
}

/// The first bytes of `bytes`, and all of them.
fn peek(mut bytes: impl BufRead) -> io::Result<(Vec<u8>, impl BufRead)> {
    let mut head = Vec::new();
    bytes.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok((head.clone(), Cursor::new(head).chain(bytes)))
}

fn refuse_others(head: &[u8]) -> io::Result<()> {
    let found = OTHERS.iter().find(|(magic, ..)| head.starts_with(magic));
    // Three letters may begin a text. What bzip2 wrote has a digit and pi behind them.
    let is_text = head.starts_with(b"BZh") && head.get(4..10) != Some(b"1AY&SY");
    match found {
        Some((_, name, command)) if !is_text => Err(wrong(format!(
            "the file is compressed by {name}, which this program does not read; use `{command} \
             FILE | gabion load - --format ...`, or --raw if it is not compressed"
        ))),
        _ => Ok(()),
    }
}

/// Bytes without a byte order mark, in UTF-8 if the mark says that they are in UTF-16.
fn decoded(head: Vec<u8>, mut bytes: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
    match head.as_slice() {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Err(wrong(
            "the file begins like UTF-32 text, which this program does not read; convert it with \
             `iconv -f UTF-32 -t UTF-8`, or use --raw if it is not"
                .to_owned(),
        )),
        [0xef, 0xbb, 0xbf, ..] => {
            skip(&mut bytes, 3)?;
            Ok(Box::new(bytes))
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            let from_bytes = match head[0] {
                0xff => u16::from_le_bytes,
                _ => big_endian,
            };
            skip(&mut bytes, 2)?;
            let text = Utf16 {
                bytes,
                from_bytes,
                at: 2,
                raw: Vec::new(),
                text: Vec::new(),
                taken: 0,
                failure: None,
            };
            Ok(Box::new(BufReader::with_capacity(READ_BYTES, text)))
        }
        _ => Ok(Box::new(bytes)),
    }
}

/// The code unit that two bytes are with the higher one first.
fn big_endian([high, low]: [u8; 2]) -> u16 {
    u16::from(high) << 8 | u16::from(low)
}

fn skip(bytes: &mut impl BufRead, count: u64) -> io::Result<()> {
    io::copy(&mut bytes.take(count), &mut io::sink()).map(|_| ())
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What a decoder gives, its errors in words.
struct Unpacked<R>(R);

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| {
            let is_packed = error.raw_os_error().is_none();
            match error.kind() {
                io::ErrorKind::Interrupted => error,
                io::ErrorKind::UnexpectedEof => {
                    wrong("the file is cut off: the compressed data does not end".to_owned())
                }
                _ if is_packed => wrong(format!(
                    "the compressed data of the file is damaged: {error}"
                )),
                _ => error,
            }
        })
    }
}

/// UTF-16 as UTF-8.
struct Utf16<R> {
    bytes: R,
    from_bytes: fn([u8; 2]) -> u16,
    /// Bytes of the text before `raw`.
    at: u64,
    /// Bytes that are no whole character yet.
    raw: Vec<u8>,
    text: Vec<u8>,
    /// Bytes of `text` that were handed out.
    taken: usize,
    /// What comes after `text`.
    failure: Option<io::Error>,
}

impl<R: BufRead> Utf16<R> {
    /// Makes text of the next bytes; none at the end.
    fn advance(&mut self) -> io::Result<()> {
        self.taken = 0;
        self.text.clear();
        while self.text.is_empty() {
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            let bytes = self.bytes.fill_buf()?;
            let count = bytes.len();
            self.raw.extend_from_slice(bytes);
            self.bytes.consume(count);
            let is_end = count == 0;
            if is_end && self.raw.is_empty() {
                return Ok(());
            }
            self.decode(is_end);
        }
        Ok(())
    }

    fn decode(&mut self, is_end: bool) {
        let from_bytes = self.from_bytes;
        let mut units: Vec<u16> = self
            .raw
            .chunks_exact(2)
            .map(|pair| from_bytes([pair[0], pair[1]]))
            .collect();
        if !is_end
            && units
                .last()
                .is_some_and(|unit| (0xd800..0xdc00).contains(unit))
        {
            units.pop();
        }
        let mut done = 0;
        for character in char::decode_utf16(units) {
            let Ok(character) = character else {
                self.fail("has half a surrogate pair", done);
                return;
            };
            done += 2 * character.len_utf16();
            let mut buffer = [0; 4];
            self.text
                .extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
        }
        self.raw.drain(..done);
        self.at += done as u64;
        if is_end && !self.raw.is_empty() {
            self.fail("ends inside a character, so the file is cut off,", 0);
        }
    }

    fn fail(&mut self, what: &str, done: usize) {
        let at = self.at + done as u64;
        self.raw.clear();
        self.failure = Some(wrong(format!(
            "the UTF-16 text of the file {what} at byte {at}"
        )));
    }
}

impl<R: BufRead> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.text.len() {
            self.advance()?;
        }
        let read = (&self.text[self.taken..]).read(buffer)?;
        self.taken += read;
        Ok(read)
    }
}
