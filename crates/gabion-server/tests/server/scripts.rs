//! Scripts and functions.

use std::time::Duration;

use crate::support::{Client, Server, Value, check};

/// The reply to a script without keys.
fn eval(client: &mut Client, script: &str) -> String {
    format!("{:?}", client.ask(&["eval", script, "0"]))
}

/// BullMQ asked for ten thousand jobs in one script, and was given none: what was returned, and
/// what was encoded, was first gathered in 8,000 places that Lua has, and ended where they did.
#[test]
fn tables_of_any_length_are_returned_and_encoded() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    let list = "local t = {} for i = 1, 20000 do t[i] = 'v' .. i end ";
    let map = "local t = {} for i = 1, 20000 do t['k' .. i] = 'v' .. i end ";
    let count = "local n = 0 for k,v in pairs(d) do assert(v == 'v' .. string.sub(k, 2)) n = n + 1 \
                 end return n";
    for (table, back) in [
        (list, "return {t, 'end'}"),
        (list, "return {cjson.decode(cjson.encode(t)), 'end'}"),
        (list, "return {cmsgpack.unpack(cmsgpack.pack(t)), 'end'}"),
    ] {
        let Value::Array(parts) = client.ask(&["eval", &[table, back].concat(), "0"]) else {
            panic!("no array");
        };
        let expected = (1..=20_000).map(|number| Value::Bulk(format!("v{number}").into_bytes()));
        assert!(parts[0] == Value::Array(expected.collect()), "{back}");
        assert_eq!(format!("{:?}", parts[1]), "\"end\"", "{back}");
    }
    for back in [
        "local d = cjson.decode(cjson.encode(t)) ",
        "local d = cmsgpack.unpack(cmsgpack.pack(t)) ",
    ] {
        assert_eq!(
            eval(client, &[map, back, count].concat()),
            "20000",
            "{back}"
        );
    }
    client.say("hello 3");
    eval(
        client,
        &[
            map,
            "for k in pairs(t) do redis.call('hset', 'h', k, 1) end",
        ]
        .concat(),
    );
    eval(
        client,
        &[map, "for k in pairs(t) do redis.call('sadd', 's', k) end"].concat(),
    );
    let script =
        "redis.setresp(3) return {redis.call('hgetall', 'h'), redis.call('smembers', 's')}";
    let Value::Array(parts) = client.ask(&["eval", script, "0"]) else {
        panic!("no array");
    };
    let lengths = parts.iter().map(|part| match part {
        Value::Map(pairs) => pairs.len(),
        Value::Array(items) => items.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [20_000, 20_000]);
}

#[test]
fn values_go_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    for (script, expected) in [
        (
            "return {1, 'a', 2.9, true, {nil, 1}, false}",
            "[1 \"a\" 2 1 [] nil]",
        ),
        ("return {ok='fine'}", "fine"),
        ("return {err='MY fault'}", "-MY fault"),
        ("return redis.status_reply('fine')", "fine"),
        ("return redis.error_reply('word')", "-ERR word"),
        ("return redis.call('set', 'k', 1.5)", "OK"),
        ("return redis.call('get', 'k')", "\"1.5\""),
        ("return type(redis.call('get', 'none'))", "\"boolean\""),
        ("return redis.call('mget', 'k', 'none')", "[\"1.5\" nil]"),
        (
            "redis.setresp(3); return type(redis.call('get', 'none'))",
            "\"nil\"",
        ),
        (
            "return redis.pcall('incr', 'k').err",
            "\"ERR value is not an integer or out of range\"",
        ),
        (
            "return redis.sha1hex('')",
            "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\"",
        ),
        ("return cjson.encode({a={1, 2}, })", "\"{\\\"a\\\":[1,2]}\""),
        ("return cjson.decode('{\"a\":[1,\"x\"]}').a", "[1 \"x\"]"),
        (
            "return {cmsgpack.unpack(cmsgpack.pack(1, 'a', {2}))}",
            "[1 \"a\" [2]]",
        ),
        ("return bit.tohex(bit.band(-1, 0xff00))", "\"0000ff00\""),
        (
            "return {struct.unpack('>h', struct.pack('>h', -2))}",
            "[-2 3]",
        ),
    ] {
        assert_eq!(eval(client, script), expected, "{script}");
    }
}

#[test]
fn scripts_change_nothing_of_the_interpreter() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    for (script, expected) in [
        ("x = 1", "Attempt to modify a readonly table"),
        ("redis.call = nil", "Attempt to modify a readonly table"),
        ("string.rep = nil", "Attempt to modify a readonly table"),
        ("rawset(_G, 'x', 1)", "Attempt to modify a readonly table"),
        (
            "rawset(string, 'x', 1)",
            "Attempt to modify a readonly table",
        ),
        ("setmetatable(_G, {})", "Attempt to modify a readonly table"),
        (
            "getmetatable(_G).__index = {}",
            "Attempt to modify a readonly table",
        ),
        (
            "getmetatable('').__index = {}",
            "Attempt to modify a readonly table",
        ),
        ("return x", "nonexistent global variable 'x'"),
        ("print(1)", "nonexistent global variable 'print'"),
        ("return io", "nonexistent global variable 'io'"),
        ("return debug", "nonexistent global variable 'debug'"),
        ("return require", "nonexistent global variable 'require'"),
        ("return setfenv", "nonexistent global variable 'setfenv'"),
        ("return os.exit()", "attempt to call field 'exit'"),
        (
            "loadstring(string.dump(function() end))()",
            "attempt to call",
        ),
        (
            "loadstring('x = 1')()",
            "Attempt to modify a readonly table",
        ),
        ("redis.call()", "at least one argument"),
        ("redis.call('get', {})", "must be strings or integers"),
        ("redis.call('eval', '', 0)", "not allowed from script"),
        ("redis.call('what')", "Unknown Redis command"),
        ("redis.call('get')", "Wrong number of args"),
        ("this is no script", "Error compiling script"),
        ("#!py\nreturn 1", "Unexpected engine"),
        (
            "#!lua flags=no-writes\nreturn redis.call('set', 'k', 1)",
            "read-only scripts",
        ),
    ] {
        let reply = eval(client, script);
        assert!(
            reply.starts_with("-ERR") && reply.contains(expected),
            "{script}: {reply}"
        );
    }
    assert_eq!(
        eval(client, "return ('a'):rep(3) .. type(redis.call)"),
        "\"aaafunction\""
    );
}

#[test]
fn scripts_are_known_by_their_hash_and_whole() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    let script = "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incr', KEYS[1])";
    let Value::Bulk(hash) = client.ask(&["script", "load", script]) else {
        panic!("no hash");
    };
    let hash = String::from_utf8(hash).unwrap();
    let upper = hash.to_ascii_uppercase();
    check(
        client,
        &[
            (&format!("evalsha {hash} 1 k 5"), "6"),
            (&format!("evalsha {upper} 1 k 7"), "8"),
            (&format!("script exists {hash} 0000"), "[1 0]"),
            (
                &format!("evalsha_ro {hash} 1 k 7"),
                &format!(
                    "-ERR Write commands are not allowed from read-only scripts. script: {hash}, \
                     on @user_script:1."
                ),
            ),
            (
                &format!("evalsha {hash} 3 k 7"),
                "-ERR Number of keys can't be greater than number of args",
            ),
            (
                &format!("evalsha {hash} -1 k"),
                "-ERR Number of keys can't be negative",
            ),
            (
                &format!("command getkeys evalsha {hash} 2 a b c"),
                "[\"a\" \"b\"]",
            ),
            ("script flush", "OK"),
            (
                &format!("evalsha {hash} 1 k 5"),
                "-NOSCRIPT No matching script. Please use EVAL.",
            ),
            ("script kill", "-NOTBUSY No scripts in execution right now."),
            ("watch k", "OK"),
        ],
    );
    // What a script has written before an error stays, as one change.
    let reply = eval(
        &mut server.connect(),
        "redis.call('set', 'k', 'x'); error('no')",
    );
    assert!(
        reply.starts_with("-ERR user_script:1: no script: "),
        "{reply}"
    );
    check(
        client,
        &[
            ("multi", "OK"),
            ("get k", "QUEUED"),
            ("exec", "nil"),
            ("get k", "\"x\""),
        ],
    );
    assert_eq!(
        eval(client, "redis.call('select', 3); redis.call('set', 'a', 1)"),
        "nil"
    );
    check(
        client,
        &[("exists a", "0"), ("select 3", "OK"), ("exists a", "1")],
    );
}

#[test]
fn a_script_that_never_ends_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    client.say("config set busy-reply-threshold 20");
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(redis.call, 'ping') end",
    ] {
        let (mut other, mut third) = (server.connect(), server.connect());
        check(&mut third, &[("multi", "OK"), ("set k 1", "QUEUED")]);
        other.send(&["eval", script, "0"]);
        while !client.say("ping").starts_with("-BUSY") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(client.say("get k").starts_with("-BUSY"));
        // No half of a transaction is queued, and its end is refused as a whole.
        assert!(third.say("set k 2").starts_with("-BUSY"));
        let refused = "-EXECABORT Transaction discarded because of: BUSY";
        assert!(third.say("exec").starts_with(refused));
        assert!(client.say("function kill").starts_with("-BUSY"));
        assert_eq!(client.say("script kill"), "OK");
        let reply = format!("{:?}", other.read());
        assert!(reply.contains("Script killed by user"), "{reply}");
        assert_eq!(client.say("ping"), "PONG");
        let ended = [("exec", "-ERR EXEC without MULTI"), ("exists k", "0")];
        check(&mut third, &ended);
    }
    // One that has written cannot be killed; the end of the server takes it back.
    let mut other = server.connect();
    other.send(&["eval", "redis.call('set', 'k', 1); while true do end", "0"]);
    while !client.say("ping").starts_with("-BUSY") {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(client.say("script kill").starts_with("-UNKILLABLE"));
    assert!(client.say("shutdown").starts_with("-BUSY"));
    client.send(&["shutdown", "nosave"]);
    assert!(client.is_ended());
    server.join();
    let server = Server::start(dir.path());
    assert_eq!(server.connect().say("exists k"), "0");
}

#[test]
fn libraries_of_functions_stay() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = &mut server.connect();
    let code = "#!lua name=lib\nlocal function one() return 1 end\n\
                redis.register_function('plus', function(keys, args)\n\
                return redis.call('incrby', keys[1], args[1] + one()) end)\n\
                redis.register_function{function_name='read', callback=function(keys)\n\
                return redis.call('get', keys[1]) end, flags={'no-writes'}}";
    assert_eq!(
        format!("{:?}", client.ask(&["function", "load", code])),
        "\"lib\""
    );
    let again = format!("{:?}", client.ask(&["function", "load", code]));
    assert_eq!(again, "-ERR Library 'lib' already exists");
    for (code, expected) in [
        ("return 1", "Missing library metadata"),
        ("#!lua name=a\nreturn 1", "No functions registered"),
        ("#!lua name=a\nx = 1", "Attempt to modify a readonly table"),
        (
            "#!lua name=a\nredis.call('ping')",
            "nonexistent global variable 'call'",
        ),
        ("#!lua name=a\nwhile true do end", "FUNCTION LOAD timeout"),
        (
            "#!lua name=a\nredis.register_function('plus', function() end)",
            "Function plus already exists",
        ),
    ] {
        let reply = format!("{:?}", client.ask(&["function", "load", code]));
        assert!(reply.contains(expected), "{code}: {reply}");
    }
    check(
        client,
        &[
            ("fcall plus 1 k 4", "5"),
            ("fcall PLUS 1 k 4", "10"),
            ("fcall_ro read 1 k", "\"10\""),
            (
                "fcall_ro plus 1 k 1",
                "-ERR Can not execute a script with write flag using *_ro command.",
            ),
            ("fcall none 0", "-ERR Function not found"),
        ],
    );
    server.stop();
    let server = Server::start(dir.path());
    check(
        &mut server.connect(),
        &[
            (
                "function stats",
                "[\"running_script\" nil \"engines\" [\"LUA\" [\"libraries_count\" 1 \
                 \"functions_count\" 2]]]",
            ),
            ("fcall plus 1 k 1", "12"),
            ("function delete lib", "OK"),
            ("function delete lib", "-ERR Library not found"),
            ("fcall plus 1 k 1", "-ERR Function not found"),
            ("function list", "[]"),
        ],
    );
}
