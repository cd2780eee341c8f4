//! Writes what the fuzzer begins with, to `corpus/TARGET`: the files of sound stores, and small
//! files of Redis.

use std::io::Result;
use std::path::Path;

use gabion_fuzz::TARGETS;

/// Parts of files of Redis: keys in some forms, and what stands between them.
const RDB_PARTS: [&[u8]; 9] = [
    b"\xfa\x01a\x01b\xfe\x03\xfb\x01\x00",
    b"\xfc\0\0\0\0\0\0\x04\0\x00\x06string\x05value",
    b"\x00\x06packed\xc3\x05\x08\x01ab\x80\x01",
    b"\x04\x04hash\x01\x05field\xc0\x07",
    b"\x05\x04zset\x01\x06member\0\0\0\0\0\0\xf0\x3f",
    b"\x0b\x06intset\x0c\x02\0\0\0\x02\0\0\0\xff\xff\x07\0",
    b"\x12\x09quicklist\x01\x02\x0b\x0b\0\0\0\x01\0\x82ab\x03\xff",
    b"\x09\x06zipmap\x09\x01\x01f\x01\x02v..\xff",
    b"\x13\x06stream\x00\x00\x05\x01\x00\x00\x04\x00\x02\x01\x05group\x05\x00\x01\x00\x01\x03one\
      \0\0\0\0\0\0\0\0\x00",
];

fn main() -> Result<()> {
    for target in &TARGETS {
        write(target.name, target.seeds())?;
    }
    let rdb = RDB_PARTS.map(|part| [b"REDIS0011", part, b"\xff\0\0\0\0\0\0\0\0"].concat());
    write("rdb", rdb)
}

fn write(target: &str, seeds: impl IntoIterator<Item = Vec<u8>>) -> Result<()> {
    let dir = Path::new("corpus").join(target);
    std::fs::create_dir_all(&dir)?;
    for (number, bytes) in seeds.into_iter().enumerate() {
        std::fs::write(dir.join(format!("seed-{number}")), bytes)?;
    }
    Ok(())
}
