//! Access of commands to keys and channels, as permissions restrict it.

use super::rights::KeyAccess;
use crate::args::Args;
use crate::command::{Command, READONLY, WRITE};

/// What a command, by its full name, does with its first key and with all others.
pub(crate) fn of_keys(command: &Command, name: &str, args: Args<'_>) -> (KeyAccess, KeyAccess) {
    use KeyAccess as A;
    let both = |access| (access, access);
    match name {
        "exists" | "hexists" | "hlen" | "hstrlen" | "llen" | "scard" | "sismember" | "strlen"
        | "touch" | "type" | "watch" | "xlen" | "zcard" | "memory|usage" | "object|encoding"
        | "object|freq" | "object|idletime" | "object|refcount" => both(A::NONE),
        "bitop" | "geosearchstore" | "sdiffstore" | "sinterstore" | "sunionstore"
        | "zdiffstore" | "zinterstore" | "zrangestore" | "zunionstore" => (A::WRITE, A::READ),
        "copy" | "georadius" | "georadiusbymember" | "sort" => (A::READ, A::WRITE),
        "blmove" | "brpoplpush" | "lmove" | "rename" | "renamenx" | "rpoplpush" | "smove" => {
            (A::BOTH, A::WRITE)
        }
        "pfmerge" => (A::BOTH, A::READ),
        "xreadgroup" => both(A::READ),
        "blmpop" | "blpop" | "brpop" | "bzmpop" | "bzpopmax" | "bzpopmin" | "decr" | "decrby"
        | "getdel" | "getex" | "getset" | "hincrby" | "hincrbyfloat" | "incr" | "incrby"
        | "incrbyfloat" | "lmpop" | "lpop" | "migrate" | "move" | "rpop" | "setbit" | "spop"
        | "zincrby" | "zmpop" | "zpopmax" | "zpopmin" => both(A::BOTH),
        "set" => {
            let returns_old = |word: &[u8]| word.eq_ignore_ascii_case(b"get");
            match args.from(3).iter().any(returns_old) {
                true => both(A::BOTH),
                false => both(A::WRITE),
            }
        }
        "bitfield" if only_gets(args.from(2)) => both(A::READ),
        "bitfield" => both(A::BOTH),
        _ if command.has(WRITE) => both(A::WRITE),
        _ if command.has(READONLY) => both(A::READ),
        _ => both(A::BOTH),
    }
}

/// Whether the operations of `BITFIELD` change nothing.
fn only_gets(mut operations: Args<'_>) -> bool {
    while let Some(word) = operations.get(0) {
        let words = match word.to_ascii_lowercase().as_slice() {
            b"get" => 3,
            b"overflow" => 2,
            _ => return false,
        };
        operations = operations.from(words);
    }
    true
}

/// The places of channels among the arguments of a command, and whether they are patterns.
pub(crate) fn channels(name: &str, args: Args<'_>) -> (std::ops::Range<usize>, bool) {
    match name {
        "publish" | "spublish" => (1..2, false),
        "subscribe" | "ssubscribe" => (1..args.len(), false),
        "psubscribe" => (1..args.len(), true),
        _ => (0..0, false),
    }
}
