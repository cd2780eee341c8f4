//! Files that the process may open: clients leave some of them to the store.

use crate::process::{Process, serve_if_asked};
use crate::support::Value;

/// Connections took the last files that the process may open, and then the store lacked them.
#[test]
fn clients_leave_files_to_the_store() {
    serve_if_asked();
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(
        "open_files::clients_leave_files_to_the_store",
        dir.path(),
        "everysec",
        "ulimit -n 200;",
    );
    let mut client = server.connect();
    let mut others = Vec::new();
    for _ in 0..200 {
        let mut other = server.connect();
        // Who is refused may find the connection ended before the request has left.
        let _ = other.try_send_raw(b"PING\r\n");
        match other.try_read() {
            Ok(Value::Simple(_)) => others.push(other),
            Ok(refusal) => assert_eq!(format!("{refusal:?}"), "-ERR max number of clients reached"),
            Err(_) => {}
        }
    }
    assert_eq!(
        others.len(),
        149,
        "with the first client a hundred and fifty"
    );
    let shown = client.say("info clients");
    assert!(shown.contains("maxclients:150\\r\\n"), "{shown}");
    let value = "x".repeat(20 << 10);
    for number in 0..1000 {
        let reply = client.ask(&["SET", &format!("key{number}"), &value]);
        assert_eq!(reply, Value::Simple("OK".to_owned()));
    }
}
