//! Bits and sketches: dialogues, and random commands compared with a plain vector of bits.

use proptest::prelude::*;

use crate::support::{Client, Server, Value, check};

#[test]
fn bits_and_fields() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let wrong_type = "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
                      supported but i64 is.";
    check(
        &mut server.connect(),
        &[
            ("setbit k 7 1", "0"),
            ("setbit k 7 1", "1"),
            ("get k", "\"\\x01\""),
            ("getbit k 7", "1"),
            ("getbit k 1000", "0"),
            (
                "setbit k x 1",
                "-ERR bit offset is not an integer or out of range",
            ),
            (
                "setbit k 4294967296 1",
                "-ERR bit offset is not an integer or out of range",
            ),
            ("setbit k 1 2", "-ERR bit is not an integer or out of range"),
            ("set k foobar", "OK"),
            ("bitcount k", "26"),
            ("bitcount k 1 1", "6"),
            ("bitcount k 5 30 bit", "17"),
            ("bitcount k 1", "-ERR syntax error"),
            ("bitcount k 0 1 word", "-ERR syntax error"),
            ("bitpos k 1", "1"),
            ("bitpos k 0 0 -1 bit", "0"),
            ("bitpos k 2", "-ERR The bit argument must be 1 or 0."),
            ("bitpos none 0", "0"),
            ("bitpos none 1", "-1"),
            ("set a abc", "OK"),
            ("set b a", "OK"),
            ("bitop and d a b", "3"),
            ("get d", "\"a\\x00\\x00\""),
            ("bitop xor d b", "1"),
            ("get d", "\"a\""),
            ("bitop not d b", "1"),
            ("get d", "\"\\x9e\""),
            (
                "bitop not d a b",
                "-ERR BITOP NOT must be called with a single source key.",
            ),
            ("bitop or d none", "0"),
            ("exists d", "0"),
            (
                "bitfield f set u8 0 255 get u8 0 incrby u8 0 10",
                "[0 255 9]",
            ),
            ("bitfield f overflow sat incrby u8 0 1000", "[255]"),
            ("bitfield f overflow fail incrby u8 0 1", "[nil]"),
            ("bitfield f set i5 #1 -3 get i5 5", "[-4 -3]"),
            ("bitfield f get u64 0", wrong_type),
            (
                "bitfield f overflow what",
                "-ERR Invalid OVERFLOW type specified",
            ),
            ("bitfield f get u8", "-ERR syntax error"),
            ("bitfield_ro f get u8 0", "[255]"),
            (
                "bitfield_ro f set u8 0 1",
                "-ERR BITFIELD_RO only supports the GET subcommand",
            ),
            ("bitfield new get u8 0", "[0]"),
            ("exists new", "0"),
        ],
    );
}

#[test]
fn sketches() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    check(
        &mut server.connect(),
        &[
            ("pfadd h", "1"),
            ("pfcount h", "0"),
            ("pfadd h a b c", "1"),
            ("pfadd h a b c", "0"),
            ("pfcount h", "3"),
            ("expire h 100", "1"),
            ("pfadd other c d", "1"),
            ("pfcount h other none", "4"),
            ("pfmerge h other none", "OK"),
            ("pfcount h", "4"),
            ("ttl h", "100"),
            ("pfdebug encoding h", "sparse"),
            ("pfdebug todense h", "1"),
            ("pfdebug encoding h", "dense"),
            ("pfcount h", "4"),
            ("strlen h", "12304"),
            ("pfmerge copy h", "OK"),
            ("pfdebug encoding copy", "dense"),
            ("set s x", "OK"),
            (
                "pfadd s x",
                "-WRONGTYPE Key is not a valid HyperLogLog string value.",
            ),
            ("append other tail", "28"),
            ("pfcount other", "-INVALIDOBJ Corrupted HLL object detected"),
            ("pfselftest", "OK"),
        ],
    );
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u16, bool),
    Get(u8, u16),
    Count(u8, i8, i8),
    Find(u8, bool, i8, i8),
    Combine(u8, u8, u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..3_u8;
    let step = prop_oneof![
        (key(), 0..100_u16, any::<bool>()).prop_map(|(key, at, bit)| Step::Set(key, at, bit)),
        (key(), 0..120_u16).prop_map(|(key, at)| Step::Get(key, at)),
        (key(), any::<i8>(), any::<i8>()).prop_map(|(key, from, to)| Step::Count(key, from, to)),
        (key(), any::<bool>(), any::<i8>(), any::<i8>())
            .prop_map(|(key, bit, from, to)| Step::Find(key, bit, from, to)),
        (0..3_u8, key(), key(), key()).prop_map(|(op, to, a, b)| Step::Combine(op, to, a, b)),
    ];
    prop::collection::vec(step, 1..50)
}

/// The bits from one index to another, which may count from the end, with their places.
fn part(bits: &[bool], from: i8, to: i8) -> Vec<(usize, bool)> {
    let length = i64::try_from(bits.len()).unwrap();
    let place = |index: i8| match index < 0 {
        true => (i64::from(index) + length).max(0),
        false => i64::from(index),
    };
    let (from, to) = (place(from), place(to));
    let inside = |(at, _): &(usize, bool)| (from..=to).contains(&i64::try_from(*at).unwrap());
    bits.iter().copied().enumerate().filter(inside).collect()
}

fn integer(number: usize) -> Value {
    Value::Integer(i64::try_from(number).unwrap())
}

fn run(client: &mut Client, steps: &[Step]) {
    client.say("flushall");
    let mut model: [Vec<bool>; 3] = Default::default();
    for step in steps {
        let (request, expected) = match step {
            Step::Set(key, at, bit) => {
                let bits = &mut model[usize::from(*key)];
                let at = usize::from(*at);
                bits.resize(bits.len().max((at + 1).next_multiple_of(8)), false);
                let old = std::mem::replace(&mut bits[at], *bit);
                let bit = u8::from(*bit);
                (
                    format!("setbit k{key} {at} {bit}"),
                    integer(usize::from(old)),
                )
            }
            Step::Get(key, at) => {
                let bits = &model[usize::from(*key)];
                let bit = bits.get(usize::from(*at)).copied().unwrap_or_default();
                (format!("getbit k{key} {at}"), integer(usize::from(bit)))
            }
            Step::Count(key, from, to) => {
                let part = part(&model[usize::from(*key)], *from, *to);
                let count = part.iter().filter(|(_, bit)| *bit).count();
                (format!("bitcount k{key} {from} {to} bit"), integer(count))
            }
            Step::Find(key, wanted, from, to) => {
                let bits = &model[usize::from(*key)];
                let found = part(bits, *from, *to)
                    .into_iter()
                    .find(|(_, bit)| bit == wanted);
                let expected = match found {
                    Some((at, _)) => integer(at),
                    None if bits.is_empty() && !wanted => integer(0),
                    None => Value::Integer(-1),
                };
                let bit = u8::from(*wanted);
                (format!("bitpos k{key} {bit} {from} {to} bit"), expected)
            }
            Step::Combine(op, to, a, b) => {
                let (a_bits, b_bits) = (&model[usize::from(*a)], &model[usize::from(*b)]);
                let length = a_bits.len().max(b_bits.len());
                let bit = |bits: &[bool], at: usize| bits.get(at).copied().unwrap_or_default();
                let (name, combine): (_, fn(bool, bool) -> bool) = match op {
                    0 => ("and", |a, b| a & b),
                    1 => ("or", |a, b| a | b),
                    _ => ("xor", |a, b| a ^ b),
                };
                let all = (0..length).map(|at| combine(bit(a_bits, at), bit(b_bits, at)));
                model[usize::from(*to)] = all.collect();
                let request = format!("bitop {name} k{to} k{a} k{b}");
                (request, integer(length / 8))
            }
        };
        let words: Vec<&str> = request.split(' ').collect();
        assert_eq!(client.ask(&words), expected, "{request}");
    }
}

#[test]
fn random_commands_do_what_a_vector_does() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = std::cell::RefCell::new(server.connect());
    proptest!(ProptestConfig::with_cases(100), |(steps in steps())| {
        run(&mut client.borrow_mut(), &steps);
    });
}
