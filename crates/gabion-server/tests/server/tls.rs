//! TLS: who is let in with which certificates, and what goes through.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gabion_server::{
    AuthClients, ClientTls, Config, Connection, Reply, ServeError, ServerAddress, TlsConfig, serve,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::support::{Server, write_file};

/// An authority and what it has signed, as files.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let dir = tempfile::tempdir().unwrap();
        for authority in ["ours", "others"] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
                .distinguished_name
                .push(DnType::CommonName, authority);
            let key = KeyPair::generate().unwrap();
            let own = params.self_signed(&key).unwrap();
            let issuer = Issuer::new(params, key);
            let write = |name: &str, text: &str| {
                let path = dir.path().join(format!("{authority}-{name}.pem"));
                write_file(&path, text);
            };
            write("ca", &own.pem());
            for holder in ["server", "client"] {
                let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
                let mut params = CertificateParams::new(names).unwrap();
                // A name that is the authority's own would be taken for a signature of itself.
                params.distinguished_name.push(DnType::CommonName, holder);
                let key = KeyPair::generate().unwrap();
                let signed = params.signed_by(&key, &issuer).unwrap();
                write(holder, &signed.pem());
                write(&format!("{holder}-key"), &key.serialize_pem());
            }
        }
        Files { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.pem"))
    }

    fn config(&self, auth_clients: AuthClients) -> TlsConfig {
        TlsConfig {
            port: 0,
            cert_file: self.path("ours-server"),
            key_file: self.path("ours-server-key"),
            ca_cert_file: Some(self.path("ours-ca")),
            auth_clients,
            handshake_time: Duration::from_secs(60),
        }
    }

    fn start(&self, dir: &Path, auth_clients: AuthClients) -> Server {
        Server::start_with(dir, |config| config.tls = Some(self.config(auth_clients)))
    }

    /// Connects with the certificate of a client, or with none, and asks for a sign of life.
    fn try_ping(&self, server: &Server, own: Option<&str>, ca: &str) -> std::io::Result<Reply> {
        let tls = ClientTls {
            ca_cert_file: self.path(ca),
            own: own.map(|own| (self.path(own), self.path(&format!("{own}-key")))),
            name: Some("localhost".to_owned()),
        };
        let address = server.addresses().tls[0];
        let target = ServerAddress::Tcp {
            host: address.ip().to_string(),
            port: address.port(),
            tls: Some(tls),
        };
        Connection::open(&target)?.ask(&["ping"], |_| {})
    }

    fn connect(&self, server: &Server) -> Connection {
        let address = server.addresses().tls[0];
        let tls = ClientTls {
            ca_cert_file: self.path("ours-ca"),
            own: None,
            name: None,
        };
        Connection::open(&ServerAddress::Tcp {
            host: "127.0.0.1".to_owned(),
            port: address.port(),
            tls: Some(tls),
        })
        .unwrap()
    }
}

fn say(connection: &mut Connection, line: &str) -> Reply {
    let words: Vec<&str> = line.split(' ').collect();
    connection.ask(&words, |_| {}).unwrap()
}

fn simple(line: &str) -> Reply {
    Reply::Simple(line.to_owned())
}

#[test]
fn certificates_of_clients_are_asked_for_as_told() {
    let files = Files::new();
    let (ours, others) = (Some("ours-client"), Some("others-client"));
    for (auth, accepted, refused) in [
        (AuthClients::Yes, vec![ours], vec![None, others]),
        (AuthClients::Optional, vec![ours, None], vec![others]),
        (AuthClients::No, vec![ours, None, others], vec![]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let server = files.start(dir.path(), auth);
        for own in accepted {
            let reply = files.try_ping(&server, own, "ours-ca");
            assert_eq!(reply.unwrap(), simple("PONG"), "{auth:?} {own:?}");
        }
        for own in refused {
            assert!(
                files.try_ping(&server, own, "ours-ca").is_err(),
                "{auth:?} {own:?}"
            );
        }
        // A client takes no server of an authority that it does not know.
        assert!(files.try_ping(&server, ours, "others-ca").is_err());
        server.stop();
    }
}

#[test]
fn big_pipelines_go_through_whole() {
    let (files, dir) = (Files::new(), tempfile::tempdir().unwrap());
    let server = files.start(dir.path(), AuthClients::No);
    let mut writer = files.connect(&server);
    // Values of several records of TLS, and replies of more than all buffers together.
    let value = "v".repeat(100_000);
    let reader = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for index in 0..200 {
                writer
                    .send(&["set", &format!("k{}", index % 10), &value])
                    .unwrap();
                assert_eq!(writer.read().unwrap(), simple("OK"));
            }
            for index in 0..100 {
                writer.send(&["get", &format!("k{}", index % 10)]).unwrap();
            }
            for _ in 0..100 {
                assert_eq!(
                    writer.read().unwrap(),
                    Reply::Bulk(value.clone().into_bytes())
                );
            }
        });
        reader.join()
    });
    reader.unwrap();
    server.stop();
}

#[test]
fn messages_come_by_tls() {
    let (files, dir) = (Files::new(), tempfile::tempdir().unwrap());
    let server = files.start(dir.path(), AuthClients::No);
    let (mut listener, mut speaker) = (files.connect(&server), files.connect(&server));
    say(&mut listener, "hello 3");
    listener.send(&["subscribe", "news"]).unwrap();
    assert!(matches!(listener.read().unwrap(), Reply::Push(_)));
    for round in 0..100 {
        let text = round.to_string();
        assert_eq!(
            speaker.ask(&["publish", "news", &text], |_| {}).unwrap(),
            Reply::Integer(1)
        );
        let Reply::Push(message) = listener.read().unwrap() else {
            panic!("a message");
        };
        assert_eq!(message[2], Reply::Bulk(text.into_bytes()));
    }
    // A command that waits is woken too.
    listener.send(&["blpop", "queue", "0"]).unwrap();
    assert_eq!(say(&mut speaker, "lpush queue x"), Reply::Integer(1));
    assert!(matches!(listener.read().unwrap(), Reply::Array(_)));
    let info = say(&mut speaker, "config get tls-auth-clients");
    assert!(format!("{info:?}").contains("[110, 111]"), "{info:?}");
    server.stop();
}

#[test]
fn a_quit_ends_the_session_and_not_only_the_connection() {
    let (files, dir) = (Files::new(), tempfile::tempdir().unwrap());
    let server = files.start(dir.path(), AuthClients::No);
    let mut connection = files.connect(&server);
    assert_eq!(say(&mut connection, "quit"), simple("OK"));
    // An end without a goodbye would be an error of another kind: somebody may have cut it off.
    let error = connection.read().unwrap_err();
    assert_eq!(error.to_string(), "the server closed the connection");
    server.stop();
}

#[test]
fn who_speaks_no_tls_is_disconnected_and_others_are_served() {
    let (files, dir) = (Files::new(), tempfile::tempdir().unwrap());
    let server = files.start(dir.path(), AuthClients::No);
    let address = server.addresses().tls[0];
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest);
    // At most an alert, which is no reply.
    assert!(!rest.starts_with(b"+"));
    // Those who shake no hands hold nobody up.
    let silent: Vec<TcpStream> = (0..50)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    assert_eq!(
        files.try_ping(&server, None, "ours-ca").unwrap(),
        simple("PONG")
    );
    drop(silent);
    server.stop();
}

#[test]
fn slow_handshakes_end_and_cannot_keep_the_door_shut() {
    let (files, dir) = (Files::new(), tempfile::tempdir().unwrap());
    let server = Server::start_with(dir.path(), |config| {
        let mut tls = files.config(AuthClients::No);
        tls.handshake_time = Duration::from_millis(300);
        config.tls = Some(tls);
    });
    let address = server.addresses().tls[0];
    // More than may shake hands at once, all of them silent.
    let silent: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // A machine under load may be too slow for the bound itself.
    let mut pings = std::iter::repeat_with(|| files.try_ping(&server, None, "ours-ca"));
    let pong = pings.by_ref().take(1000).find_map(Result::ok);
    assert_eq!(pong, Some(simple("PONG")));
    for mut stream in silent {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }
    server.stop();
}

#[test]
fn files_that_do_not_fit_are_said_at_the_start() {
    let files = Files::new();
    let said = |change: &dyn Fn(&mut TlsConfig)| {
        let dir = tempfile::tempdir().unwrap();
        let mut tls = files.config(AuthClients::Yes);
        change(&mut tls);
        let mut config = Config::new(dir.path().join("store"));
        (config.port, config.tls) = (None, Some(tls));
        match serve(config, |_| unreachable!("it does not start")) {
            Err(ServeError::Tls(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let none = said(&|tls| tls.cert_file = files.path("none"));
    assert!(
        none.starts_with("cannot use ") && none.contains("none.pem for TLS: "),
        "{none}"
    );
    let key_as_cert = said(&|tls| tls.cert_file = files.path("ours-client-key"));
    assert!(
        key_as_cert.ends_with("the file has no certificate"),
        "{key_as_cert}"
    );
    let other_key = said(&|tls| tls.key_file = files.path("others-server-key"));
    assert!(
        other_key.starts_with("cannot use these files for TLS"),
        "{other_key}"
    );
    let nobody = said(&|tls| tls.ca_cert_file = None);
    assert!(
        nobody.contains("no certificate authority is named"),
        "{nobody}"
    );
}

/// What Debian's client says to a server, if it is there and speaks TLS.
#[test]
fn redis_cli_speaks_tls_with_it() {
    let (files, dir) = (Files::new(), tempfile::tempdir().unwrap());
    let has_tls = std::process::Command::new("redis-cli")
        .arg("--help")
        .output();
    let has_tls = has_tls.is_ok_and(|help| {
        let text = [help.stdout, help.stderr].concat();
        String::from_utf8_lossy(&text).contains("--tls")
    });
    if !has_tls {
        eprintln!("redis-cli is not there, or has no TLS: not tried");
        return;
    }
    let server = files.start(dir.path(), AuthClients::Yes);
    let mut client = std::process::Command::new("redis-cli")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &server.addresses().tls[0].port().to_string(),
            "--tls",
        ])
        .arg("--cacert")
        .arg(files.path("ours-ca"))
        .arg("--cert")
        .arg(files.path("ours-client"))
        .arg("--key")
        .arg(files.path("ours-client-key"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(b"set stone granite\nget stone\n").unwrap();
    drop(stdin);
    let output = client.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "OK\ngranite\n");
    server.stop();
}
