//! What a service manager is told, and the file of parameters.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use gabion_server::{Config, NotifyConfig, ServeError, serve};

use super::support::{Server, check, write_file};

#[test]
fn a_manager_is_told_of_the_start_of_life_and_of_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("manager");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let next = || {
        let mut bytes = [0; 100];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let server = Server::start_with(dir.path(), |config| {
        config.notify = Some(NotifyConfig {
            socket: path.clone().into(),
            watchdog: Some(Duration::from_millis(20)),
        });
    });
    assert_eq!(next(), "READY=1");
    assert_eq!([next(), next(), next()], ["WATCHDOG=1"; 3]);
    server.stop();
    let mut last = next();
    while last == "WATCHDOG=1" {
        last = next();
    }
    assert_eq!(last, "STOPPING=1");
}

#[test]
#[cfg(target_os = "linux")]
fn a_manager_may_be_in_no_directory() {
    use std::os::linux::net::SocketAddrExt;
    let dir = tempfile::tempdir().unwrap();
    let name = format!("gabion-test-{}", dir.path().display());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let server = Server::start_with(dir.path(), |config| {
        config.notify = Some(NotifyConfig {
            socket: format!("@{name}").into(),
            watchdog: None,
        });
    });
    let mut bytes = [0; 100];
    let length = manager.recv(&mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"READY=1");
    server.stop();
    let length = manager.recv(&mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"STOPPING=1");
}

#[test]
fn what_was_changed_is_written_into_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gabion.toml");
    let before = "# The quarry's.\ntimeout = 100 # seconds\nport = 0\n";
    write_file(&file, before);
    let start = || {
        Server::start_with(dir.path(), |config| {
            config.file = Some(file.clone());
            config.timeout_seconds = 100;
            config.parameters = vec![("slowlog-max-len".to_owned(), "7".to_owned())];
        })
    };
    let server = start();
    let mut client = server.connect();
    check(
        &mut client,
        &[
            ("config get slowlog-max-len", "[\"slowlog-max-len\" \"7\"]"),
            ("config rewrite", "OK"),
        ],
    );
    // Nothing was changed.
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    check(
        &mut client,
        &[
            ("config set timeout 200 notify-keyspace-events KEA", "OK"),
            ("config rewrite", "OK"),
        ],
    );
    let after = before.replace("100", "200") + "notify-keyspace-events = \"AKE\"\n";
    assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
    write_file(&file, "timeout = = 1");
    let refused = client.say("config rewrite");
    assert!(
        refused.starts_with("-ERR Rewriting config file: "),
        "{refused}"
    );
    assert!(client.say("info server").contains("config_file:/"));
    server.stop();
}

#[test]
fn a_server_without_a_file_rewrites_none() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let refusal = "-ERR The server is running without a config file";
    check(&mut server.connect(), &[("config rewrite", refusal)]);
    server.stop();
    let mut config = Config::new(dir.path().join("store"));
    config.port = Some(0);
    config.parameters = vec![("timeout".to_owned(), "soon".to_owned())];
    let error = serve(config, |_| unreachable!("it does not start")).unwrap_err();
    assert!(matches!(error, ServeError::Store(_)));
    assert!(error.to_string().contains("'timeout'"), "{error}");
}
