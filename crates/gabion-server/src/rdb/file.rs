//! Files of Redis and Valkey (RDB), from front to back.
//!
//! # Layout
//! ```text
//! file     = magic part* 255 [sum]
//! magic    = "REDIS" and four digits, or "VALKEY" and three: the version
//! part     = 254 database           what follows is of that database
//!          | 253 moment (4)         the next key expires: in seconds since 1970
//!          | 252 moment (8)         the same in milliseconds
//!          | 251 keys expiring      how many follow
//!          | 250 name value         who wrote the file, and when: not needed here
//!          | 249 uses (1) | 248 seconds      of the next key: not kept here
//!          | 247 module 2 when item* 0       what a module has besides keys
//!          | 245 program            a library of functions
//!          | 244 slot keys expiring of a cluster: not needed here
//!          | form key value         any other byte is the form of a value
//! sum      = checksum of all before it, 0 if there is none; from version 5 on
//! ```
//! Numbers are lengths, names strings ([`super::read`]), unless bytes are given, which are
//! little-endian.

use std::io::Read;

use super::libraries::LIBRARY;
use super::piece::{HASH_2, MODULE_2, Refused, Result, Take};
use super::read::{Reader, Summed};
use super::value;
use crate::store::meta::KeyType;

const END: u8 = 255;
const DATABASE: u8 = 254;
const EXPIRES_S: u8 = 253;
const EXPIRES_MS: u8 = 252;
const SIZES: u8 = 251;
const NOTE: u8 = 250;
const USES: u8 = 249;
const IDLE: u8 = 248;
const OF_MODULE: u8 = 247;
const LIBRARY_OF_A_PREVIEW: u8 = 246;
const SLOT: u8 = 244;
/// Forms of values are lower numbers.
const FORMS: std::ops::Range<u8> = 0..100;

/// The versions that are read.
const REDIS_VERSIONS: std::ops::RangeInclusive<u32> = 1..=12;
const VALKEY_VERSION: u32 = 80;

/// The first version with a checksum.
const SUMMED_FROM: u32 = 5;

/// What the parts of a module's data are.
const MODULE_END: u64 = 0;
const MODULE_SIGNED: u64 = 1;
const MODULE_UNSIGNED: u64 = 2;
const MODULE_FLOAT: u64 = 3;
const MODULE_DOUBLE: u64 = 4;
const MODULE_STRING: u64 = 5;

/// What a file has next.
#[derive(Debug)]
pub(crate) enum Part {
    /// A key, whose value comes behind it.
    Key(Key),
    /// The program of a library of functions.
    Library(Vec<u8>),
    /// Data of a module, by its name, which were passed over.
    Module(String),
}

/// A key.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// Its database.
    pub(crate) database: u64,
    /// When it expires, in milliseconds since 1970.
    pub(crate) expires_ms: Option<u64>,
    /// Its type.
    pub(crate) kind: KeyType,
    form: u8,
}

/// A file that is read.
#[derive(Debug)]
pub(crate) struct File<R> {
    reader: Reader<Summed<R>>,
    version: u32,
    is_of_valkey: bool,
    database: u64,
}

impl<R: Read> File<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// When it is no such file, or of a version that is not read.
    pub(crate) fn open(input: R) -> Result<File<R>> {
        let mut reader = Reader::new(Summed::new(input));
        let magic: [u8; 9] = reader.chunk().map_err(|refused| match refused {
            Refused::Cut => Refused::Broken(NO_FILE),
            other => other,
        })?;
        let (is_of_valkey, digits) = match &magic {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => (false, &digits[..]),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => (true, &digits[..]),
            _ => return Err(Refused::Broken(NO_FILE)),
        };
        let version = std::str::from_utf8(digits).ok();
        let version = version.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let version = version.and_then(|text| text.parse().ok());
        let version: u32 = version.ok_or(Refused::Broken(NO_FILE))?;
        let is_known = match is_of_valkey {
            true => version == VALKEY_VERSION,
            false => REDIS_VERSIONS.contains(&version),
        };
        if !is_known {
            return Err(Refused::Unknown(format!(
                "version {version} of the format, which this server does not know"
            )));
        }
        Ok(File {
            reader,
            version,
            is_of_valkey,
            database: 0,
        })
    }

    /// Bytes that were read.
    pub(crate) fn offset(&self) -> u64 {
        self.reader.input.offset
    }

    /// The next part. Of a key the value must be read before the next one.
    ///
    /// # Errors
    /// When the file is damaged, or its checksum is of other bytes.
    pub(crate) fn next(&mut self) -> Result<Option<Part>> {
        let mut expires_ms = None;
        loop {
            let reader = &mut self.reader;
            match reader.byte()? {
                END => {
                    self.foot()?;
                    return Ok(None);
                }
                DATABASE => self.database = reader.length()?,
                EXPIRES_S => {
                    let seconds = i32::from_le_bytes(reader.chunk()?);
                    let seconds = u64::try_from(seconds).unwrap_or_default();
                    expires_ms = Some(seconds * 1000);
                }
                EXPIRES_MS => expires_ms = Some(reader.moment()?),
                SIZES => {
                    reader.length()?;
                    reader.length()?;
                }
                NOTE => {
                    reader.string()?;
                    reader.string()?;
                }
                USES => {
                    reader.byte()?;
                }
                IDLE => {
                    reader.length()?;
                }
                OF_MODULE => return Ok(Some(Part::Module(self.pass_module()?))),
                LIBRARY => return Ok(Some(Part::Library(reader.string()?))),
                LIBRARY_OF_A_PREVIEW => {
                    return Err(Refused::Unknown(
                        "functions of a preview of Redis 7.0".to_owned(),
                    ));
                }
                SLOT => {
                    for _ in 0..3 {
                        reader.length()?;
                    }
                }
                form if FORMS.contains(&form) => {
                    return self.key(form, expires_ms).map(|key| Some(Part::Key(key)));
                }
                other => {
                    return Err(Refused::Unknown(format!(
                        "a part of type {other}, which this server does not know"
                    )));
                }
            }
        }
    }

    fn key(&mut self, form: u8, expires_ms: Option<u64>) -> Result<Key> {
        let name = self.reader.string()?;
        let kind = match form {
            // A preview of Redis 7.4 had another form of that number.
            HASH_2 if !self.is_of_valkey => Err(Refused::Unknown(
                "a hash of a preview of Redis 7.4".to_owned(),
            )),
            MODULE_2 => {
                let module = module_name(self.reader.length()?);
                Err(Refused::Unknown(format!("a value of the module {module}")))
            }
            _ => value::kind(form),
        };
        let kind = kind.map_err(|refused| match refused {
            Refused::Unknown(what) => {
                let shown = name.get(..64).unwrap_or(&name).escape_ascii();
                Refused::Unknown(format!("the key \"{shown}\" is {what}"))
            }
            other => other,
        });
        Ok(Key {
            kind: kind?,
            name,
            database: self.database,
            expires_ms,
            form,
        })
    }

    /// Gives away the pieces of the value of the key that was read last.
    ///
    /// # Errors
    /// When the value is damaged; and what `take` says.
    pub(crate) fn value(&mut self, key: &Key, take: Take<'_>) -> Result<()> {
        value::read(&mut self.reader, key.form, take)
    }

    /// Passes over the data of a module; returns its name.
    fn pass_module(&mut self) -> Result<String> {
        let reader = &mut self.reader;
        let name = module_name(reader.length()?);
        // When the module wants them: as a number like any other.
        loop {
            match reader.length()? {
                MODULE_END => return Ok(name),
                MODULE_SIGNED | MODULE_UNSIGNED => {
                    reader.length()?;
                }
                MODULE_FLOAT => {
                    reader.chunk::<4>()?;
                }
                MODULE_DOUBLE => {
                    reader.chunk::<8>()?;
                }
                MODULE_STRING => {
                    reader.string()?;
                }
                _ => return Err(Refused::Broken("data of a module are in no known form")),
            }
        }
    }

    fn foot(&mut self) -> Result<()> {
        if self.version < SUMMED_FROM {
            return Ok(());
        }
        let sum = self.reader.input.sum;
        let stated = self.reader.number()?;
        match stated == 0 || stated == sum {
            true => Ok(()),
            false => Err(Refused::Foot),
        }
    }

    /// An error unless the input ends where the file does.
    ///
    /// # Errors
    /// For bytes behind it.
    pub(crate) fn expect_end(&mut self) -> Result<()> {
        match self.reader.byte() {
            Err(Refused::Cut) => Ok(()),
            Ok(_) => Err(Refused::Broken(
                "bytes stand behind its end, as in an append-only file, whose commands would be \
                 lost",
            )),
            Err(refused) => Err(refused),
        }
    }
}

const NO_FILE: &str = "it does not begin as a file of Redis or Valkey does";

/// The name of a module: nine letters of six bits, and its version in ten.
fn module_name(number: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |place: u32| {
        let [low, ..] = (number >> (10 + 6 * place)).to_le_bytes();
        char::from(LETTERS[usize::from(low & 0x3f)])
    };
    (0..9).rev().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::super::write::{push_length, push_string};
    use super::*;

    /// Writes files as all versions had them.
    struct Writer(Vec<u8>);

    impl Writer {
        fn new(magic: &str) -> Writer {
            Writer(magic.as_bytes().to_vec())
        }

        fn bytes(mut self, bytes: &[u8]) -> Writer {
            self.0.extend_from_slice(bytes);
            self
        }

        fn length(mut self, length: u64) -> Writer {
            push_length(&mut self.0, length);
            self
        }

        fn string(mut self, string: &[u8]) -> Writer {
            push_string(&mut self.0, string);
            self
        }

        /// A key whose value is one string.
        fn key(self, form: u8, name: &str, value: &[u8]) -> Writer {
            self.bytes(&[form]).string(name.as_bytes()).string(value)
        }

        /// The file, with a checksum.
        fn end(mut self) -> Vec<u8> {
            self.0.push(END);
            let sum = super::super::checksum::add(0, &self.0);
            self.0.extend_from_slice(&sum.to_le_bytes());
            self.0
        }
    }

    /// What a file has, a word for each part.
    fn parts(bytes: &[u8]) -> Result<Vec<String>> {
        let mut file = File::open(bytes)?;
        let mut parts = Vec::new();
        while let Some(part) = file.next()? {
            parts.push(match part {
                Part::Module(name) => format!("module {name}"),
                Part::Library(program) => format!("library {}", program.escape_ascii()),
                Part::Key(key) => {
                    let mut pieces = 0;
                    let read = file.value(&key, &mut |_| {
                        pieces += 1;
                        Ok(())
                    });
                    match read {
                        Err(Refused::Empty) => {}
                        other => other?,
                    }
                    format!(
                        "{} {} {} {:?} {pieces}",
                        key.database,
                        key.name.escape_ascii(),
                        key.kind.name(),
                        key.expires_ms
                    )
                }
            });
        }
        file.expect_end()?;
        Ok(parts)
    }

    #[test]
    fn all_parts_are_read_or_passed_over() {
        // Its first letter stands in the highest bits.
        let id = 1 << 58 | 2 << 52 | 3;
        let file = Writer::new("REDIS0011")
            .bytes(&[NOTE])
            .string(b"redis-ver")
            .string(b"7.2.4")
            .bytes(&[OF_MODULE])
            .length(id)
            .bytes(&[2, 1, 1, 5, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 5, 2])
            .bytes(b"ab\0")
            .bytes(&[LIBRARY])
            .string(b"#!lua name=l\n")
            .bytes(&[SLOT, 1, 2, 0, DATABASE, 0, SIZES, 2, 1])
            .bytes(&[EXPIRES_MS, 0xe8, 3, 0, 0, 0, 0, 0, 0, IDLE, 7])
            .key(0, "a", b"1")
            .bytes(&[EXPIRES_S, 2, 0, 0, 0, USES, 200])
            .key(0, "b", b"2")
            .bytes(&[EXPIRES_MS, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
            .key(0, "before all time", b"2")
            .bytes(&[DATABASE, 9])
            .bytes(&[2, 1, b's', 0])
            .key(0, "c", b"3")
            .end();
        assert_eq!(
            parts(&file).unwrap(),
            [
                "module BCAAAAAAA",
                "library #!lua name=l\\n",
                "0 a string Some(1000) 1",
                "0 b string Some(2000) 1",
                "0 before all time string Some(0) 1",
                "9 s set None 0",
                "9 c string None 1",
            ]
        );
        // Nothing is believed without its end, and no other byte passes the checksum.
        for cut in 0..file.len() {
            assert!(parts(&file[..cut]).is_err(), "{cut}");
        }
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            assert!(parts(&damaged).is_err(), "{at}");
        }
    }

    #[test]
    fn other_files_are_refused_with_what_they_are() {
        let refused = |bytes: &[u8]| match parts(bytes) {
            Err(Refused::Broken(what)) => what.to_owned(),
            Err(Refused::Unknown(what)) => what,
            other => panic!("{other:?}"),
        };
        for bytes in [
            &b""[..],
            b"REDIS",
            b"REDISOOII",
            b"a,b\n1,2\n3,4\n",
            b"VALKEY+80",
        ] {
            assert_eq!(refused(bytes), NO_FILE);
        }
        assert!(refused(b"REDIS0099").contains("version 99"));
        assert!(refused(b"VALKEY081").contains("version 81"));
        let of = |form: u8| Writer::new("REDIS0012").key(form, "k\n", b"").end();
        for (form, what) in [
            (HASH_2, "the key \"k\\n\" is a hash of a preview"),
            (
                MODULE_2,
                "the key \"k\\n\" is a value of the module AAAAAAAAA",
            ),
            (99, "the key \"k\\n\" is a value of type 99"),
            (200, "a part of type 200"),
            (LIBRARY_OF_A_PREVIEW, "functions of a preview"),
        ] {
            let said = refused(&of(form));
            assert!(said.contains(what), "{said}");
        }
        let mut file = Writer::new("REDIS0009").end();
        file.extend_from_slice(b"*1\r\n");
        assert!(refused(&file).contains("append-only"));
    }

    #[test]
    fn a_checksum_may_be_off_or_not_there_yet() {
        let mut file = Writer::new("REDIS0007").key(0, "a", b"1").bytes(&[END]);
        file = file.bytes(&[0; 8]);
        assert_eq!(parts(&file.0).unwrap().len(), 1);
        let map = b"\x01\x01f\x01\x00v\xff";
        let file = Writer::new("REDIS0004").key(9, "h", map).bytes(&[END]);
        assert_eq!(parts(&file.0).unwrap(), ["0 h hash None 1"]);
        // A hash of Valkey 9, one of whose two fields expires.
        let file = Writer::new("VALKEY080")
            .bytes(&[HASH_2])
            .string(b"h")
            .length(2)
            .string(b"f")
            .string(b"v")
            .bytes(&[1, 0, 0, 0, 0, 0, 0, 0])
            .string(b"g")
            .string(b"w")
            .bytes(&[0xff; 8])
            .end();
        assert_eq!(parts(&file).unwrap(), ["0 h hash None 2"]);
    }
}
