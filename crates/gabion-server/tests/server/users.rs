//! Users: what each may do, and where they are kept.

use std::path::Path;

use crate::support::{Client, Server, check, write_file};

/// A connection that is a user already.
fn as_user(server: &Server, name: &str, password: &str) -> Client {
    let mut client = server.connect();
    assert_eq!(client.say(&format!("auth {name} {password}")), "OK");
    client
}

const DENIED_KEY: &str =
    "-NOPERM this user has no permissions to access one of the keys used as arguments";
const DENIED_CHANNEL: &str =
    "-NOPERM this user has no permissions to access one of the channels used as arguments";

#[test]
fn a_user_may_do_what_its_rules_say() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut admin = server.connect();
    check(
        &mut admin,
        &[
            ("acl whoami", "\"default\""),
            (
                "acl setuser ann on >pw +@read +set +config|get +select|3 %R~r:* %W~w:* ~b:* &c:*",
                "OK",
            ),
            ("mset r:1 x b:1 y", "OK"),
        ],
    );
    let mut ann = as_user(&server, "ann", "pw");
    check(
        &mut ann,
        &[
            ("get r:1", "\"x\""),
            ("get w:1", DENIED_KEY),
            ("mget b:1 r:1", "[\"y\" \"x\"]"),
            ("mget b:1 w:1", DENIED_KEY),
            ("set w:1 v", "OK"),
            ("set w:1 v get", DENIED_KEY),
            ("set b:1 z get", "\"y\""),
            ("set r:1 v", DENIED_KEY),
            ("exists w:1", "1"),
            ("exists other", DENIED_KEY),
            ("config get hz", "[\"hz\" \"10\"]"),
            (
                "config set hz 1",
                "-NOPERM this user has no permissions to run the 'config|set' command",
            ),
            (
                "config nothing",
                "-NOPERM this user has no permissions to run the 'config' command",
            ),
            ("select 3", "OK"),
            (
                "select 0",
                "-NOPERM this user has no permissions to run the 'select' command",
            ),
            (
                "ping",
                "-NOPERM this user has no permissions to run the 'ping' command",
            ),
        ],
    );
    admin.say("acl setuser ann +@pubsub");
    check(
        &mut ann,
        &[
            ("publish c:1 x", "0"),
            ("publish d:1 x", DENIED_CHANNEL),
            ("psubscribe c:1*", DENIED_CHANNEL),
            ("psubscribe c:*", "[\"psubscribe\" \"c:*\" 1]"),
        ],
    );
}

#[test]
fn passwords_are_kept_as_hashes_only() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut admin = server.connect();
    let hash = "8eab681395c31327bcb5161f4a5a2f62d2c04adb561a77a96cc77ce430887254";
    check(
        &mut admin,
        &[
            ("acl setuser ann on >granite-under-moss", "OK"),
            ("acl setuser ann >granite-under-moss", "OK"),
            (
                "acl setuser ann <other",
                "-ERR Error in ACL SETUSER modifier '<other': The password you are trying to \
                 remove from the user does not exist",
            ),
            (
                "auth ann wrong",
                "-WRONGPASS invalid username-password pair or user is disabled.",
            ),
            (
                "auth nobody pw",
                "-WRONGPASS invalid username-password pair or user is disabled.",
            ),
            ("acl whoami", "\"default\""),
        ],
    );
    let line = format!("user ann on #{hash} resetchannels -@all");
    assert!(
        admin.say("acl list").contains(&line),
        "{}",
        admin.say("acl list")
    );
    check(
        &mut admin,
        &[
            ("acl setuser ann <granite-under-moss", "OK"),
            (
                "auth ann granite-under-moss",
                "-WRONGPASS invalid username-password pair or user is disabled.",
            ),
            (&format!("acl setuser ann #{hash} off"), "OK"),
            (
                "auth ann granite-under-moss",
                "-WRONGPASS invalid username-password pair or user is disabled.",
            ),
            ("acl setuser ann on", "OK"),
            (
                "hello 3 auth ann wrong",
                "-WRONGPASS invalid username-password pair or user is disabled.",
            ),
            ("auth ann granite-under-moss", "OK"),
        ],
    );
    server.stop();
    // Nothing of the store has the password itself.
    let (mut has_hash, mut folders) = (false, vec![dir.path().join("store")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let has = |text: &str| {
                bytes
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
            };
            assert!(!has("granite-under-moss"), "{}", path.display());
            has_hash |= has(hash);
        }
    }
    assert!(has_hash);
}

#[test]
fn what_is_no_rule_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut admin = server.connect();
    admin.say("acl setuser ann on allkeys allchannels");
    let before = admin.say("acl list");
    for (rule, why) in [
        ("nothing", "Syntax error"),
        ("+nothing", "Unknown command or category name in ACL"),
        ("+@nothing", "Unknown command or category name in ACL"),
        ("-config|nothing", "Unknown command or category name in ACL"),
        ("-select|1", "Unknown command or category name in ACL"),
        (
            "+config|get|x",
            "Allowing first-arg of a subcommand is not supported",
        ),
        ("%X~a", "Syntax error"),
        ("%R", "Syntax error"),
        (
            "~a",
            "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does \
                not have any effect. Try 'resetkeys' to start with an empty list of patterns",
        ),
        (
            "&a",
            "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and \
                does not have any effect. Try 'resetchannels' to start with an empty list of \
                channels",
        ),
        (
            "#abc",
            "The password hash must be exactly 64 characters and contain only lowercase \
                  hexadecimal characters",
        ),
        ("(+nothing)", "Unknown command or category name in ACL"),
    ] {
        assert_eq!(
            admin.say(&format!("acl setuser ann off {rule}")),
            format!("-ERR Error in ACL SETUSER modifier '{rule}': {why}"),
        );
        assert_eq!(admin.say("acl list"), before, "{rule}");
    }
    check(
        &mut admin,
        &[
            (
                "acl setuser ann (+get",
                "-ERR Unmatched parenthesis in acl selector starting at '(+get'.",
            ),
            (
                "acl deluser default",
                "-ERR The 'default' user cannot be removed",
            ),
            ("acl deluser nobody", "0"),
            ("acl getuser nobody", "nil"),
            ("acl dryrun nobody get a", "-ERR User 'nobody' not found"),
            (
                "acl dryrun ann get",
                "-ERR wrong number of arguments for 'get' command",
            ),
        ],
    );
    let refused = admin.ask(&["acl", "setuser", "a b"]);
    let line = "-ERR Usernames can't contain spaces or null characters";
    assert_eq!(format!("{refused:?}"), line);
    assert_eq!(admin.say("acl list"), before);
}

#[test]
fn rules_are_shown_without_those_that_others_overrule() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut admin = server.connect();
    for (rules, shown) in [
        ("+get -get", "-@all"),
        ("+@string -get +get", "-@all +@string"),
        ("+get +@string", "-@all +@string"),
        ("+config|get +config", "-@all +config"),
        ("+config -config|set -config", "-@all"),
        ("+@all +get", "+@all"),
        ("+@all -config +config|get", "+@all -config +config|get"),
        ("+select|1 +select|1 +select|2", "-@all +select|1 +select|2"),
        ("+select|1 +select", "-@all +select"),
        ("+@all -@all", "-@all"),
    ] {
        admin.say(&format!("acl setuser ann reset {rules}"));
        let found = admin.say("acl getuser ann");
        let expected = format!("\"commands\" \"{shown}\" ");
        assert!(found.contains(&expected), "{rules}: {found}");
    }
}

#[test]
fn rights_are_asked_where_a_command_runs_at_last() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut admin = server.connect();
    admin.say("acl setuser ann on >pw +@all -flushall ~k*");
    let mut ann = as_user(&server, "ann", "pw");
    // Between MULTI and EXEC.
    check(
        &mut ann,
        &[
            ("multi", "OK"),
            ("set k1 x", "QUEUED"),
            ("incr k2", "QUEUED"),
        ],
    );
    admin.say("acl setuser ann -incr");
    assert_eq!(
        ann.say("exec"),
        "[OK -NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
         EXEC call. This command is no longer allowed for the following reason: can't run this \
         command or subcommand]"
    );
    check(
        &mut ann,
        &[
            ("multi", "OK"),
            ("set other x", DENIED_KEY),
            (
                "exec",
                "-EXECABORT Transaction discarded because of previous errors.",
            ),
        ],
    );
    // In a script.
    let script = |code: &str| {
        let mut client = as_user(&server, "ann", "pw");
        format!("{:?}", client.ask(&["eval", code, "0"]))
    };
    assert!(script("return redis.call('flushall')").contains("can't run this command"));
    assert!(script("return redis.call('get', 'other')").contains("at least one of the keys"));
    assert_eq!(script("return redis.call('get', 'k1')"), "\"x\"");
    assert_eq!(script("return redis.acl_check_cmd('incr', 'k1')"), "nil");
    assert_eq!(script("return redis.acl_check_cmd('get', 'k1')"), "1");
    // Where a client that has waited is served.
    ann.send(&["blpop", "klist", "0"]);
    while !admin.say("info clients").contains("blocked_clients:1") {
        std::thread::yield_now();
    }
    admin.say("acl setuser ann -blpop");
    assert_eq!(admin.say("rpush klist x"), "1");
    assert_eq!(
        format!("{:?}", ann.read()),
        "-NOPERM this user has no permissions to run the 'blpop' command"
    );
    assert_eq!(admin.say("llen klist"), "1");
    let log = admin.say("acl log");
    for part in [
        "\"toplevel\"",
        "\"multi\"",
        "\"lua\"",
        "\"blpop\"",
        "\"other\"",
    ] {
        assert!(log.contains(part), "{log}");
    }
}

#[test]
fn connections_end_with_their_user() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut admin = server.connect();
    admin.say("acl setuser ann on >pw +@all ~* &*");
    let (mut one, mut other) = (as_user(&server, "ann", "pw"), as_user(&server, "ann", "pw"));
    assert_eq!(other.say("subscribe news"), "[\"subscribe\" \"news\" 1]");
    admin.say("acl setuser ann resetchannels &new*");
    assert_eq!(one.say("publish news 1"), "1");
    assert_eq!(
        format!("{:?}", other.read()),
        "[\"message\" \"news\" \"1\"]"
    );
    admin.say("acl setuser ann resetchannels &olds");
    assert!(other.is_ended());
    assert_eq!(one.say("acl deluser ann"), "1");
    assert!(one.is_ended());
    assert!(!admin.say("client list").contains("user=ann"));
}

#[test]
fn users_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), |config| config.password = Some("first".into()));
    let mut admin = as_user(&server, "default", "first");
    check(
        &mut admin,
        &[
            ("acl setuser ann on >pw +get ~a* (+set %W~b*)", "OK"),
            ("acl setuser bob on nopass", "OK"),
            ("acl setuser eve on nopass", "OK"),
            ("acl deluser eve", "1"),
            ("multi", "OK"),
            ("acl setuser tom on nopass +@all", "QUEUED"),
            ("set k v", "QUEUED"),
            ("exec", "[OK OK]"),
        ],
    );
    let before = admin.say("acl list");
    server.stop();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    check(
        &mut client,
        &[
            ("ping", "-NOAUTH Authentication required."),
            ("auth first", "OK"),
            ("acl users", "[\"ann\" \"bob\" \"default\" \"tom\"]"),
            ("config set requirepass second", "OK"),
            (
                "auth first",
                "-WRONGPASS invalid username-password pair or user is disabled.",
            ),
        ],
    );
    let after = client.say("acl list");
    let hash_of = |list: &str| list.split("user default").nth(1).unwrap()[..80].to_owned();
    assert_ne!(hash_of(&after), hash_of(&before));
    assert_eq!(
        after.split("user default").next(),
        before.split("user default").next()
    );
    server.stop_as("second");
    let server = Server::start(dir.path());
    let mut client = as_user(&server, "default", "second");
    check(
        &mut client,
        &[
            (
                "config set requirepass ",
                "-ERR wrong number of arguments for 'config|set' command",
            ),
            ("acl setuser default nopass", "OK"),
        ],
    );
    server.stop();
    let server = Server::start(dir.path());
    assert_eq!(server.connect().say("ping"), "PONG");
}

#[test]
fn a_file_of_users_is_read_and_written_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    let text = "user ann on nopass +@all ~* (+get %R~x)\n\nuser bob off\n";
    write_file(&path, text);
    let server = Server::start_with(dir.path(), |config| config.acl_file = Some(path.clone()));
    let mut admin = server.connect();
    let mut ann = as_user(&server, "ann", "x");
    check(
        &mut admin,
        &[
            ("acl users", "[\"ann\" \"bob\" \"default\"]"),
            ("acl setuser bob on nopass +get ~b", "OK"),
            ("acl save", "OK"),
            ("acl setuser bob off", "OK"),
            ("acl load", "OK"),
        ],
    );
    // The user is another one now, even if it has the same rights.
    assert!(ann.is_ended());
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "user ann on nopass ~* resetchannels +@all (%R~x resetchannels -@all +get)\n\
         user bob on nopass ~b resetchannels -@all +get\n\
         user default on nopass ~* &* +@all\n"
    );
    assert_eq!(as_user(&server, "bob", "x").say("get b"), "nil");
    let before = admin.say("acl list");
    for (line, why) in [
        (
            "user ann on\nuser ann off",
            "Duplicate user 'ann' found on line 2",
        ),
        (
            "user ann +nothing",
            "Error in applying operation '+nothing'",
        ),
        ("user ann (+get", "Unmatched parenthesis"),
        ("# words", "should start with user keyword"),
        ("user ann ~a ~* ~b", "Adding a pattern after the * pattern"),
    ] {
        write_file(&path, line);
        let said = admin.say("acl load");
        assert!(said.contains(why) && said.contains("no change"), "{said}");
        assert_eq!(admin.say("acl list"), before);
    }
    server.stop();
    write_file(&path, "user default on >pw +@all ~*");
    let server = Server::start_with(dir.path(), |config| config.acl_file = Some(path.clone()));
    assert_eq!(
        server.connect().say("ping"),
        "-NOAUTH Authentication required."
    );
    as_user(&server, "default", "pw");
    // The store has none of them.
    let mut admin = as_user(&server, "default", "pw");
    admin.say("acl setuser tom on");
    server.stop_as("pw");
    let server = Server::start(dir.path());
    assert_eq!(server.connect().say("acl users"), "[\"default\"]");
}

/// What the death of a process leaves are its files as they are.
#[test]
fn users_are_there_after_a_process_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    for number in 0..20 {
        let line = format!("acl setuser u{number} on >pw +get ~a*");
        assert_eq!(client.say(&line), "OK");
    }
    assert_eq!(client.say("acl deluser u3"), "1");
    assert_eq!(client.say("acl setuser u4 off (+set %W~b)"), "OK");
    let before = client.say("acl list");
    let copy = tempfile::tempdir().unwrap();
    copy_files(&dir.path().join("store"), &copy.path().join("store"));
    let other = Server::start(copy.path());
    assert_eq!(other.connect().say("acl list"), before);
    as_user(&other, "u5", "pw");
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_files(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}
