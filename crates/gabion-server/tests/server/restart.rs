//! What a server finds when it is started again.

use gabion_server::AppendFsync;

use crate::support::{Server, check};

#[test]
fn everything_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    for fsync in [
        AppendFsync::EverySecond,
        AppendFsync::Always,
        AppendFsync::No,
    ] {
        let server = Server::start_with(dir.path(), |config| config.fsync = fsync);
        check(
            &mut server.connect(),
            &[
                ("flushall", "OK"),
                ("mset a 1 b 2", "OK"),
                ("expire b 1000", "1"),
                ("set gone 1 px 1", "OK"),
                ("select 5", "OK"),
                ("set c 3", "OK"),
                ("select 0", "OK"),
                ("swapdb 5 7", "OK"),
            ],
        );
        server.stop();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let server = Server::start(dir.path());
        let mut client = server.connect();
        check(
            &mut client,
            &[
                ("get a", "\"1\""),
                ("exists gone", "0"),
                ("select 7", "OK"),
                ("dbsize", "1"),
                ("get c", "\"3\""),
                ("swapdb 5 7", "OK"),
                ("select 0", "OK"),
            ],
        );
        while client.say("dbsize") != "2" {
            std::thread::yield_now();
        }
        let info = client.say("info keyspace");
        assert!(info.contains("db0:keys=2,expires=1"), "{info}");
        server.stop();
    }
}

/// Without the note of a clean close the keys are counted.
#[test]
fn keys_are_counted_where_nobody_has_noted_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    check(
        &mut server.connect(),
        &[("mset a 1 b 2 c 3", "OK"), ("expire b 1000", "1")],
    );
    server.stop();
    let db = gabion::Db::open(dir.path().join("store")).unwrap();
    db.keyspace("server").unwrap().delete("sizes").unwrap();
    db.close().unwrap();
    let server = Server::start(dir.path());
    let mut client = server.connect();
    client.say("set d 4");
    assert_eq!(client.say("dbsize"), "4");
    assert!(client.say("info keyspace").contains("keys=4,expires=1"));
}
