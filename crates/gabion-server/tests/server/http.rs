//! Metrics, health and the dashboard: what each path answers, and what is refused.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use gabion_server::{Config, HttpConfig, ServeError, serve};

use super::support::{Server, check};

/// Longer than any machine takes for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with HTTP, and where that is.
fn start(dir: &std::path::Path, change: impl FnOnce(&mut HttpConfig)) -> (Server, SocketAddr) {
    let mut http = HttpConfig::new("0");
    change(&mut http);
    let server = Server::start_with(dir, |config| config.http = Some(http));
    let address = server.addresses().http.expect("it listens");
    (server, address)
}

fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What comes until the other side ends the connection.
fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // Who is disconnected with bytes on the way sees an error in place of the end.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

/// The status and the body of an answer.
fn ask(address: SocketAddr, method: &str, path: &str, host: &str) -> (u16, String, String) {
    let mut stream = open(address);
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let answer = rest(stream);
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, _, body) = ask(address, "GET", path, &address.to_string());
    (status, body)
}

#[test]
fn each_path_answers() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = start(dir.path(), |_| {});
    assert_eq!(get(address, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(address, "/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(get(address, "/nothing").0, 404);
    let (status, head, page) = ask(address, "GET", "/", "localhost");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/html") && head.contains("default-src 'none'"));
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    // It loads nothing from elsewhere.
    for mark in ["http://", "https://", "src=", "@import", "url("] {
        let mark_of_shapes = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!mark_of_shapes.contains(mark), "{mark}");
    }
    assert_eq!(ask(address, "POST", "/metrics", "localhost").0, 405);
    let (status, _, body) = ask(address, "HEAD", "/healthz", "localhost");
    assert_eq!((status, body.as_str()), (200, ""));
    server.stop();
}

#[test]
fn names_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = start(dir.path(), |_| {});
    // A page of another site whose name leads to this machine must not read keys here.
    assert_eq!(ask(address, "GET", "/metrics", "evil.example").0, 421);
    assert_eq!(ask(address, "GET", "/metrics", "localhost:80").0, 200);
    let (_, head, _) = ask(address, "GET", "/metrics", "localhost");
    assert!(!head.contains("access-control"));
    server.stop();
}

/// A sample: name, labels and value.
type Sample<'t> = (&'t str, Vec<(&'t str, &'t str)>, f64);

/// Reads a sample as Prometheus does.
fn parse(line: &str) -> Sample<'_> {
    let end = line.find(['{', ' ']).expect("a name ends");
    let (name, mut rest) = line.split_at(end);
    let is_name = |name: &str| {
        let mut letters = name.bytes();
        letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.starts_with(|letter: char| letter.is_ascii_digit())
    };
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, behind) = rest.split_once("=\"").expect("a label has a value");
            assert!(is_name(label), "{line}");
            let mut end = 0;
            while !behind[end..].starts_with('"') {
                end += if behind[end..].starts_with('\\') {
                    2
                } else {
                    1
                };
            }
            labels.push((label, &behind[..end]));
            rest = &behind[end + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect("labels end");
    }
    let value = rest.strip_prefix(' ').expect("a value follows");
    (name, labels, value.parse().expect("a value is a number"))
}

#[test]
fn metrics_are_in_prometheus_form_and_tell_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = start(dir.path(), |_| {});
    let mut client = server.connect();
    check(
        &mut client,
        &[
            ("set a 1", "OK"),
            ("set b 2 ex 1000", "OK"),
            ("get a", "\"1\""),
            ("get none", "nil"),
            (
                "lpush a x",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("client id", "1"),
        ],
    );
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200);
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    let mut family = "";
    let mut samples = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').expect("help has a text").0;
            assert!(families.insert(family), "{family} comes twice");
            let kind = lines.next().unwrap();
            let kind = kind
                .strip_prefix("# TYPE ")
                .unwrap()
                .strip_prefix(family)
                .unwrap();
            assert!(
                [" counter", " gauge", " histogram", " summary"].contains(&kind),
                "{line}"
            );
            assert_eq!(kind == " counter", family.ends_with("_total"), "{family}");
            continue;
        }
        let sample = parse(line);
        let ending = sample
            .0
            .strip_prefix(family)
            .expect("samples follow their family");
        assert!(
            ["", "_bucket", "_sum", "_count"].contains(&ending),
            "{line}"
        );
        assert!(
            series.insert((sample.0, sample.1.clone())),
            "{line} comes twice"
        );
        samples.push(sample);
    }
    let value = |name: &str, labels: &[(&str, &str)]| {
        let fits = |sample: &&Sample<'_>| sample.0 == name && sample.1 == labels;
        samples
            .iter()
            .find(fits)
            .unwrap_or_else(|| panic!("{name} {labels:?}"))
            .2
    };
    for (name, labels, expected) in [
        ("redis_up", &[][..], 1.0),
        ("gabion_ready", &[], 1.0),
        ("redis_connected_clients", &[], 1.0),
        ("redis_db_keys", &[("db", "db0")], 2.0),
        ("redis_db_keys_expiring", &[("db", "db0")], 1.0),
        ("redis_commands_total", &[("cmd", "set")], 2.0),
        ("redis_commands_total", &[("cmd", "client|id")], 1.0),
        (
            "redis_commands_failed_calls_total",
            &[("cmd", "lpush")],
            1.0,
        ),
        ("redis_errors_total", &[("err", "WRONGTYPE")], 1.0),
        ("redis_keyspace_hits_total", &[], 1.0),
        ("redis_keyspace_misses_total", &[], 1.0),
        (
            "redis_commands_latencies_usec_count",
            &[("cmd", "set")],
            2.0,
        ),
        (
            "redis_commands_latencies_usec_bucket",
            &[("cmd", "get"), ("le", "+Inf")],
            2.0,
        ),
        (
            "redis_latency_percentiles_usec_count",
            &[("cmd", "get")],
            2.0,
        ),
        (
            "gabion_written_bytes_total",
            &[("purpose", "compaction")],
            0.0,
        ),
    ] {
        assert!(
            value(name, labels) == expected,
            "{name} is {}",
            value(name, labels)
        );
    }
    assert!(value("gabion_written_bytes_total", &[("purpose", "log")]) > 0.0);
    assert!(value("redis_memory_max_bytes", &[]) >= value("redis_memory_used_bytes", &[]));
    // Counts below bounds grow with them.
    for command in ["set", "get"] {
        let of = |sample: &&Sample<'_>| {
            sample.0 == "redis_commands_latencies_usec_bucket" && sample.1[0].1 == command
        };
        let bounds: Vec<f64> = samples.iter().filter(of).map(|sample| sample.2).collect();
        assert!(bounds.is_sorted() && bounds.len() > 1, "{bounds:?}");
    }
    server.stop();
}

#[test]
fn events_have_what_the_page_shows() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = start(dir.path(), |_| {});
    let mut client = server.connect();
    client.say("config set slowlog-log-slower-than 0");
    client.say("set stone granite");
    let mut stream = open(address);
    stream
        .write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 64 << 10];
    while seen.matches("data: {").count() < 2 {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    for part in [
        "text/event-stream",
        "\"reason\":null",
        "\"name\":\"set\"",
        "\"command\":\"set stone granite\"",
        "\"keys\":1",
        "\"columns\":[",
    ] {
        assert!(seen.contains(part), "{part} in {seen}");
    }
    // The end of the server is the end of the events.
    server.stop();
    assert!(rest(stream).ends_with("\r\n0\r\n\r\n") || open_fails(address));
}

fn open_fails(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err()
}

#[test]
fn dashboards_leave_places_for_probes() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = start(dir.path(), |http| http.connections_max = 4);
    let follow = || {
        let mut stream = open(address);
        stream
            .write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).unwrap();
        (stream, begin)
    };
    let both = [follow(), follow()];
    assert!(both.iter().all(|(_, begin)| begin == b"HTTP/1.1 200"));
    assert_eq!(
        get(address, "/events"),
        (503, "too many dashboards are open; close one\n".to_owned())
    );
    assert_eq!(get(address, "/readyz").0, 200);
    drop(both);
    server.stop();
}

#[test]
fn too_many_connections_are_told_so_and_the_next_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = start(dir.path(), |http| http.connections_max = 2);
    let held = [open(address), open(address)];
    // A connection that was answered has its place.
    let places: Vec<TcpStream> = held
        .into_iter()
        .map(|mut stream| {
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .unwrap();
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).unwrap();
            assert_eq!(&begin, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let (status, body) = get(address, "/healthz");
    assert_eq!(
        (status, body.as_str()),
        (503, "all connections are in use\n")
    );
    drop(places);
    // The server notices in its own time that they have gone.
    let mut answers = std::iter::repeat_with(|| get(address, "/healthz").0);
    assert!(answers.by_ref().take(10_000).any(|status| status == 200));
    server.stop();
}

#[test]
fn slow_and_huge_heads_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = start(dir.path(), |http| {
        http.head_time = Duration::from_millis(200);
    });
    let mut slow = open(address);
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc")
        .unwrap();
    assert!(!rest(slow).contains("200 OK"));
    let silent = open(address);
    assert_eq!(rest(silent), "");
    let mut huge = open(address);
    let line = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    // The server may end the connection before all of it is sent.
    let _ = huge.write_all(line.as_bytes());
    let answer = rest(huge);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let mut many = open(address);
    let lines = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(65));
    let _ = many.write_all(lines.as_bytes());
    let answer = rest(many);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    assert_eq!(get(address, "/healthz").0, 200);
    server.stop();
}

#[test]
fn a_stopped_server_answers_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = start(dir.path(), |_| {});
    let mut kept = open(address);
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut begin = [0; 12];
    kept.read_exact(&mut begin).unwrap();
    server.stop();
    assert!(rest(kept).ends_with("ok\n"));
    assert!(open_fails(address));
}

#[test]
fn a_port_that_is_taken_is_said_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut config = Config::new(dir.path().join("store"));
    config.port = Some(0);
    config.http = Some(HttpConfig::new(port.to_string()));
    let error = serve(config, |_| unreachable!("it does not start")).unwrap_err();
    assert!(matches!(error, ServeError::Listen { .. }));
    let expected = format!(
        "cannot listen on {port}: another program uses the port; end that program, or choose \
         another port"
    );
    assert_eq!(error.to_string(), expected);
}

/// What a dashboard shows must be measured.
#[test]
fn grafana_asks_for_metrics_that_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = start(dir.path(), |_| {});
    server.connect().say("set stone granite");
    let (_, text) = get(address, "/metrics");
    let names: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../grafana.json")).unwrap();
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let words =
                expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            for word in
                words.filter(|word| word.starts_with("redis_") || word.starts_with("gabion_"))
            {
                let family = word.strip_suffix("_bucket").unwrap_or(word);
                // A store that was just made may have no bound yet.
                let may_be_absent = family == "gabion_write_amplification_bound";
                assert!(names.contains(family) || may_be_absent, "{word}");
                asked += 1;
            }
        }
    }
    assert!(asked > 40, "{asked}");
    server.stop();
}
