//! A scan of malformed requests: the server answers or ends the connection, lives, goes on to serve
//! others, and its memory does not grow.
//!
//! `GABION_MALFORMED_REQUESTS` sets the number of requests, 3,000 unless it is set;
//! `GABION_MALFORMED_SEED` what they follow from.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use gabion_server::command_names;
use socket2::SockRef;

use crate::process::{Numbers, Process, number_of, serve_if_asked};
use crate::support::request;

/// Commands that are not malformed but change what the scan looks at: whether the server lives, and
/// takes clients.
const LEFT_OUT: [&str; 7] = [
    "acl",
    "client",
    "config",
    "debug",
    "replicaof",
    "shutdown",
    "slaveof",
];

/// How much more memory the server may have at the end than after the first tenth.
const GROWTH_BYTES_MAX: u64 = 48 << 20;

/// Words of requests: sensible, extreme, and wrong.
const WORDS: &str = "k l 0 1 -1 9223372036854775807 -9223372036854775808 18446744073709551616 \
                     1e400 nan inf -inf (1 [a + - * $ COUNT LIMIT WITHSCORES BLOCK STREAMS ID";

/// Beginnings that are no request of this protocol, or state what does not come.
const OPENINGS: [&[u8]; 16] = [
    b"*1000000000\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2147483648\r\n$3\r\nGET\r\n",
    b"*1\r\n$536870912\r\nx",
    b"*1\r\n$536870913\r\nx",
    b"*1\r\n$-1\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000000\r\nshort",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nFLUSHALL\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\0\0\0\0\r\n",
    b"\xff\xfe\r\n\r\n\r\n",
    b"set \"k 'l\r\n",
    b"HELLO 3 AUTH\r\nHELLO 9\r\n",
    b"*2\r\n$4\r\nPING\r\n:1\r\n",
];

/// What one connection sends.
fn malformed(numbers: &mut Numbers, names: &[&str], words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + numbers.below(4) {
        let mut said = vec![*numbers.one_of(names)];
        said.extend((0..numbers.below(7)).map(|_| *numbers.one_of(words)));
        match numbers.below(6) {
            0 => {
                let opening: &&[u8] = numbers.one_of(&OPENINGS);
                bytes.extend_from_slice(opening);
            }
            1 => {
                let length = numbers.below(200);
                bytes.extend((0..length).map(|_| u8::try_from(numbers.below(256)).unwrap()));
            }
            2 => bytes.extend_from_slice(format!("{}\r\n", said.join(" ")).as_bytes()),
            _ => bytes.extend(request(&said)),
        }
    }
    // Damage, as a bad cable or a bad client does.
    for _ in 0..numbers.below(3) {
        let at = numbers.below(bytes.len().max(1));
        match numbers.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), b'\n'),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << numbers.below(8);
                }
            }
        }
    }
    bytes
}

/// Sends bytes, says that no more come, and waits for the end of the connection.
fn send(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    // So that none of the many connections keeps its port when it is over.
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    // The server may have ended the connection already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    if let Err(error) = stream.read_to_end(&mut Vec::new()) {
        let is_late = matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        );
        assert!(
            !is_late,
            "no answer and no end: {:?}",
            bytes.escape_ascii().to_string()
        );
    }
}

#[test]
fn a_scan_of_malformed_requests_leaves_the_server_as_it_was() {
    serve_if_asked();
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(
        "malformed::a_scan_of_malformed_requests_leaves_the_server_as_it_was",
        dir.path(),
        "no",
        "",
    );
    // An empty word, too.
    let words: Vec<&str> = WORDS.split(' ').chain([""]).collect();
    let names: Vec<&str> = command_names()
        .filter(|name| !LEFT_OUT.contains(name))
        .collect();
    let seed = number_of("GABION_MALFORMED_SEED", 1);
    let count = number_of("GABION_MALFORMED_REQUESTS", 3_000);
    let (mut numbers, mut first) = (Numbers(seed), None);
    let mut other = server.connect();
    for sent in 0..count {
        send(server.address(), &malformed(&mut numbers, &names, &words));
        if sent % 100 == 0 {
            assert_eq!(other.say("ping"), "PONG", "seed {seed}, request {sent}");
        }
        if sent == count / 10 {
            first = server.own_bytes();
        }
    }
    assert_eq!(other.say("ping"), "PONG", "seed {seed}");
    if let (Some(first), Some(last)) = (first, server.own_bytes()) {
        println!("memory: {first} bytes after a tenth, {last} at the end");
        assert!(
            last <= first + GROWTH_BYTES_MAX,
            "seed {seed}: {first} {last}"
        );
    }
}
