//! `gabion serve` and `gabion cli` as their users meet them: flags, environment, files, replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use tempfile::TempDir;

/// A server of its own process; killed when it is dropped.
struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    port: String,
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gabion"));
    command.env_remove("NOTIFY_SOCKET");
    command
}

impl Server {
    /// Starts it, and waits until clients can come.
    fn start(change: impl FnOnce(&mut Command)) -> Server {
        let mut command = program();
        command.arg("serve");
        change(&mut command);
        Server::of(command)
    }

    fn of(mut command: Command) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let (_, port) = line.trim_end().rsplit_once(':').expect(&line);
        let port = port.to_owned();
        Server {
            child,
            stderr,
            port,
        }
    }

    /// Where its dashboard is, as it says.
    fn dashboard(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("gabion: dashboard on http://");
        let address = address.and_then(|address| address.strip_suffix('/'));
        address.expect(&line).to_owned()
    }

    /// The client with these arguments and this standard input.
    fn cli(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = program()
            .args(["cli", "--port", &self.port])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Who has a command on its command line does not read.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    /// The same, which must succeed; its standard output.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.cli(arguments, "");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends it as a service manager does; its status.
    fn end(&mut self) -> Option<i32> {
        let process = self.child.id().to_string();
        let told = Command::new("kill").arg(process).status().unwrap();
        assert!(told.success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_file(path: &Path, text: &str) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    (dir, db)
}

fn on(db: &Path) -> Server {
    Server::start(|command| {
        command.args(["--port", "0", "--db"]).arg(db);
    })
}

#[test]
fn replies_are_raw_or_json_and_an_error_is_a_status() {
    let (_dir, db) = place();
    let mut server = on(&db);
    assert_eq!(server.ok(&["set", "stone", "granite"]), "OK\n");
    assert_eq!(server.ok(&["get", "stone"]), "granite\n");
    assert_eq!(server.ok(&["--json", "get", "none"]), "null\n");
    server.ok(&["hset", "quarry", "depth", "12"]);
    assert_eq!(
        server.ok(&["--json", "hgetall", "quarry"]),
        "{\"depth\":\"12\"}\n"
    );
    assert_eq!(
        server.ok(&["--resp2", "--json", "hgetall", "quarry"]),
        "[\"depth\",\"12\"]\n"
    );
    assert_eq!(server.ok(&["-n", "3", "dbsize"]), "0\n");
    // An argument that looks like a flag is the command's.
    assert_eq!(server.ok(&["set", "sign", "--json"]), "OK\n");
    assert_eq!(server.ok(&["get", "sign"]), "--json\n");
    let wrong = server.cli(&["lpush", "stone", "x"], "");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(wrong.stdout.starts_with(b"WRONGTYPE "), "{wrong:?}");
    assert_eq!(server.end(), Some(0));
    // Nothing was lost by the end.
    assert_eq!(on(&db).ok(&["get", "stone"]), "granite\n");
}

#[test]
fn commands_are_read_a_line_each() {
    let (_dir, db) = place();
    let server = on(&db);
    let output = server.cli(
        &[],
        "# first\nset a 'one two'\n\nget a\nselect 2\nget a\nincr n",
    );
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"OK\none two\nOK\n\n1\n");
    let output = server.cli(&["--json"], "incr n\nnothing\nincr n\n");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (3, "1", "2"));
    assert!(
        lines[1].starts_with("{\"error\":\"ERR unknown command"),
        "{text}"
    );
    let output = server.cli(&[], "set a 'x\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "gabion: standard input, line 1: a quote is not closed\n"
    );
}

#[test]
fn who_is_not_there_or_wants_a_password_is_told_in_a_sentence() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port().to_string();
    drop(nobody);
    let output = program()
        .args(["cli", "--port", &port, "ping"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with(&format!("gabion: 127.0.0.1:{port}: ")),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1);

    let (_dir, db) = place();
    let server = Server::start(|command| {
        command
            .args(["--port", "0", "--requirepass", "secret", "--db"])
            .arg(&db);
    });
    let output = server.cli(&["--pass", "wrong", "ping"], "");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("WRONGPASS"), "{said}");
    assert_eq!(server.ok(&["-a", "secret", "ping"]), "PONG\n");
    assert_eq!(server.ok(&["-a", "secret", "--resp2", "ping"]), "PONG\n");
    let by_environment = program()
        .args(["cli", "--port", &server.port, "ping"])
        .env("GABION_PASSWORD", "secret")
        .output();
    assert_eq!(by_environment.unwrap().stdout, b"PONG\n");
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_file() {
    let (dir, db) = place();
    let file = dir.path().join("gabion.toml");
    let text = format!(
        "db = {db:?}\nport = 0\ntimeout = 100\nmaxclients = 200\ndatabases = 4\n\
         slowlog-max-len = 5\nbind = ['127.0.0.1']\nappendfsync = 'no'\n"
    );
    write_file(&file, &text);
    let mut server = Server::start(|command| {
        command
            .arg("--config")
            .arg(&file)
            .args(["--timeout", "300"]);
        command
            .env("GABION_TIMEOUT", "200")
            .env("GABION_MAXCLIENTS", "201");
    });
    let parameters = [
        "timeout",
        "maxclients",
        "databases",
        "slowlog-max-len",
        "appendfsync",
    ];
    let expected = ["300", "201", "4", "5", "no"];
    for (name, value) in parameters.into_iter().zip(expected) {
        assert_eq!(
            server.ok(&["config", "get", name]),
            format!("{name}\n{value}\n")
        );
    }
    server.ok(&[
        "config",
        "set",
        "slowlog-max-len",
        "6",
        "appendfsync",
        "always",
    ]);
    assert_eq!(server.ok(&["config", "rewrite"]), "OK\n");
    assert_eq!(server.end(), Some(0));
    let server = Server::start(|command| {
        command.arg("--config").arg(&file);
    });
    for (name, value) in [
        ("slowlog-max-len", "6"),
        ("appendfsync", "always"),
        ("timeout", "100"),
    ] {
        assert_eq!(
            server.ok(&["config", "get", name]),
            format!("{name}\n{value}\n")
        );
    }
}

#[test]
fn a_file_that_is_wrong_is_said_with_what_is_wrong() {
    let (dir, _) = place();
    let file = dir.path().join("gabion.toml");
    for (text, said) in [
        ("prot = 1\n", "prot is neither a flag nor a parameter"),
        (
            "port = 70000\n",
            "invalid value '70000' for '--port <PORT>'",
        ),
        ("db = \n", "line 1: "),
        ("set = 'a=b'\n", "set is allowed on the command line only"),
        ("timeout = 1\n", "no store is named"),
        (
            "db = 'x'\ntls-port = 0\n",
            "TLS needs a certificate and a key",
        ),
    ] {
        write_file(&file, text);
        let output = program()
            .args(["serve", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let sentence = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && sentence.contains(said),
            "{text}: {sentence}"
        );
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
}

#[test]
fn the_dashboard_is_announced_and_answers() {
    let (_dir, db) = place();
    let mut server = Server::start(|command| {
        command
            .args(["--port", "0", "--http", "0", "--db"])
            .arg(&db);
    });
    let address = server.dashboard();
    let answer = ready(&address);
    assert!(
        answer.contains(" 200 OK\r\n") && answer.ends_with("ready\n"),
        "{answer}"
    );
    assert_eq!(server.end(), Some(0));
}

/// A store that can write no longer must not be sent clients, though it still answers reads.
#[test]
fn a_store_that_takes_no_writes_is_not_ready() {
    let (_dir, db) = place();
    // What exceeds the limit of a file's size is an error, and no signal.
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_gabion"))
        .args([
            "serve",
            "--port",
            "0",
            "--http",
            "0",
            "--maxmemory",
            "64MiB",
            "--db",
        ])
        .arg(&db);
    let mut server = Server::of(command);
    let address = server.dashboard();
    assert!(ready(&address).contains(" 200 OK\r\n"));
    server.ok(&["set", "stone", "granite"]);
    let process = server.child.id().to_string();
    let limited = Command::new("prlimit")
        .args(["--pid", &process, "--fsize=4096"])
        .status();
    if !limited.is_ok_and(|status| status.success()) {
        eprintln!("prlimit is not there: not tried");
        return;
    }
    let line = format!("set key {}\n", "x".repeat(1 << 20));
    let mut refused = false;
    for _ in 0..100 {
        let output = server.cli(&[], &line.repeat(8));
        refused |= String::from_utf8_lossy(&output.stdout).contains("MISCONF");
        if refused {
            break;
        }
    }
    assert!(refused, "writes go on though files cannot grow");
    let answer = ready(&address);
    assert!(answer.contains(" 503 Service Unavailable\r\n"), "{answer}");
    assert_eq!(server.ok(&["get", "stone"]), "granite\n");
}

/// What `/readyz` answers.
fn ready(address: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A file of Redis with so many keys, without a checksum.
fn rdb(keys: u32) -> Vec<u8> {
    let mut file = b"REDIS0009".to_vec();
    for number in 0..keys {
        file.extend_from_slice(&[0, 11]);
        file.extend_from_slice(format!("key {number:07}").as_bytes());
        // 200 bytes, of which the first are the number.
        file.extend_from_slice(&[0x40, 200]);
        file.extend_from_slice(format!("{number:<200}").as_bytes());
    }
    file.extend_from_slice(&[255, 0, 0, 0, 0, 0, 0, 0, 0]);
    file
}

fn write_bytes(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(bytes).unwrap();
}

fn load(file: &Path, db: &Path, more: &[&str]) -> Output {
    let mut command = program();
    command.arg("load").arg(file).arg("--db").arg(db).args(more);
    command.output().unwrap()
}

#[test]
fn a_file_of_redis_is_served_once_it_is_loaded() {
    let (dir, db) = place();
    let file = dir.path().join("dump.rdb");
    write_bytes(&file, &rdb(1_000));
    let loaded = load(&file, &db, &[]);
    assert!(loaded.status.success(), "{loaded:?}");
    let said = String::from_utf8(loaded.stdout).unwrap();
    assert!(said.starts_with("loaded 1,000 keys from "), "{said}");
    assert_eq!(said.lines().count(), 1);
    let mut server = on(&db);
    assert_eq!(server.ok(&["dbsize"]), "1000\n");
    assert_eq!(
        server.ok(&["get", "key 0000999"]),
        format!("{:<200}\n", 999)
    );
    // Its store is the server's alone.
    let refused = load(&file, &db, &[]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    server.ok(&["set", "key 0000999", "another"]);
    server.ok(&["set", "mine", "stays"]);
    assert_eq!(server.end(), Some(0));
    // By its first bytes, without a name that says so.
    let unnamed = dir.path().join("dump");
    write_bytes(&unnamed, &rdb(1_000));
    let loaded = load(&unnamed, &db, &["--json"]);
    let said = String::from_utf8(loaded.stdout).unwrap();
    assert!(said.contains("\"keys\": 1000,"), "{said}");
    let server = on(&db);
    assert_eq!(server.ok(&["dbsize"]), "1001\n");
    assert_eq!(
        server.ok(&["get", "key 0000999"]),
        format!("{:<200}\n", 999)
    );
}

#[test]
fn a_file_that_is_not_of_redis_or_is_damaged_is_left_alone() {
    let (dir, db) = place();
    let file = dir.path().join("dump.rdb");
    let whole = rdb(10_000);
    let other_database = [&b"REDIS0009\xfe\x10"[..], &whole[9..]].concat();
    let cases: [(&[u8], &[&str], i32, &str); 6] = [
        (
            &b"a,b\n1,2\n3,4\n"[..],
            &[][..],
            1,
            "does not begin as a file of Redis",
        ),
        (
            &whole[..1_000_000],
            &[],
            1,
            "it ends too soon (at byte 1000000)",
        ),
        (&other_database[..], &[], 1, "a key of database 16"),
        (&whole[..], &["--key", "2"], 2, "--databases"),
        (&whole[..], &["--engine", "flex"], 2, "--databases"),
        (&whole[..], &["--databases", "0"], 2, "--databases"),
    ];
    for (bytes, more, status, said) in cases {
        write_bytes(&file, bytes);
        let refused = load(&file, &db, more);
        assert_eq!(refused.status.code(), Some(status), "{refused:?}");
        let sentence = String::from_utf8(refused.stderr).unwrap();
        assert!(sentence.contains(said), "{sentence}");
        assert!(!db.exists(), "a store was made");
    }
    write_bytes(&file, &other_database);
    assert!(load(&file, &db, &["--databases", "17"]).status.success());
    let refused = load(
        Path::new("Cargo.toml"),
        &db,
        &["--format", "csv", "--databases", "17"],
    );
    assert_eq!(refused.status.code(), Some(2));
}

/// What a killed load leaves is a store, and the next load makes all of it what the file says.
#[test]
fn a_load_that_was_killed_is_begun_anew() {
    const KEYS: u32 = 30_000;
    let (dir, db) = place();
    let file = dir.path().join("dump.rdb");
    let bytes = rdb(KEYS);
    write_bytes(&file, &bytes);
    for part in [1, 3, 6] {
        let mut child = program()
            .args(["load", "-", "--format", "rdb", "--db"])
            .arg(&db)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes[..bytes.len() / 7 * part]).unwrap();
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        let server = on(&db);
        let size: u32 = server.ok(&["dbsize"]).trim_end().parse().unwrap();
        assert!(size < KEYS, "{size}");
        if size > 0 {
            // What came last is whole, too.
            let last = format!("key {:07}", size - 1);
            let value = format!("{:<200}\n", size - 1);
            assert_eq!(server.ok(&["get", &last]), value);
        }
    }
    assert!(load(&file, &db, &[]).status.success());
    let server = on(&db);
    assert_eq!(server.ok(&["dbsize"]), format!("{KEYS}\n"));
    for number in [0, KEYS / 2, KEYS - 1] {
        let value = server.ok(&["get", &format!("key {number:07}")]);
        assert_eq!(value, format!("{number:<200}\n"));
    }
}
