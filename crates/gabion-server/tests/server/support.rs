//! A server in a thread of the test, and a client that shows replies as they came.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use gabion_server::{Addresses, Config, ServeError, serve};

/// Longer than any machine takes for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server. It ends when it is dropped.
pub(crate) struct Server {
    addresses: Addresses,
    password: Option<String>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Server {
    /// A server over the store in a directory.
    pub(crate) fn start(dir: &Path) -> Server {
        Server::start_with(dir, |_| {})
    }

    /// The same, with another configuration.
    pub(crate) fn start_with(dir: &Path, change: impl FnOnce(&mut Config)) -> Server {
        let mut config = Config::new(dir.join("store"));
        config.port = Some(0);
        change(&mut config);
        let password = config.password.clone();
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            serve(config, |addresses| sender.send(addresses.clone()).unwrap())
        });
        Server {
            password,
            addresses: receiver.recv().expect("the server starts"),
            thread: Some(thread),
        }
    }

    /// A connection.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addresses.tcp[0])
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.addresses.tcp[0].port()
    }

    /// All that it listens on.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Ends the server, and waits until its store is closed.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    /// The same for a server that wants a password.
    pub(crate) fn stop_as(mut self, password: &str) {
        self.password = Some(password.to_owned());
        self.end();
    }

    /// Waits until a server that ends has closed its store.
    pub(crate) fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            let mut client = self.connect();
            if let Some(password) = &self.password {
                client.ask(&["auth", password]);
            }
            client.send(&["shutdown"]);
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// A reply.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Integer(i64),
    Simple(String),
    Error(String),
    Bulk(Vec<u8>),
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Push(Vec<Value>),
}

/// As `redis-cli` would write it in one line.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, items: &[Value]| {
            for (index, item) in items.iter().enumerate() {
                let gap = if index == 0 { "" } else { " " };
                write!(f, "{gap}{item:?}")?;
            }
            Ok(())
        };
        match self {
            Value::Null => f.write_str("nil"),
            Value::Integer(number) => write!(f, "{number}"),
            Value::Simple(line) => f.write_str(line),
            Value::Error(line) => write!(f, "-{line}"),
            Value::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Value::Array(items) => {
                f.write_str("[")?;
                list(f, items)?;
                f.write_str("]")
            }
            Value::Push(items) => {
                f.write_str(">[")?;
                list(f, items)?;
                f.write_str("]")
            }
            Value::Map(pairs) => {
                f.write_str("{")?;
                for (key, value) in pairs {
                    write!(f, "{key:?}:{value:?},")?;
                }
                f.write_str("}")
            }
        }
    }
}

/// A connection.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    /// To the server at an address.
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(BufReader::new(stream))
    }

    /// Sends a request.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        self.send_raw(&request(arguments));
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.try_send_raw(bytes).unwrap();
    }

    /// The same to a server that may die.
    pub(crate) fn try_send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Sends a request and returns the reply.
    pub(crate) fn ask<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Value {
        self.send(arguments);
        self.read()
    }

    /// The reply to a line of words, as it is shown.
    pub(crate) fn say(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        format!("{:?}", self.ask(&words))
    }

    /// The next reply.
    pub(crate) fn read(&mut self) -> Value {
        self.try_read().expect("the connection goes on")
    }

    /// The same from a server that may die.
    pub(crate) fn try_read(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n");
        let line = line.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (mark, rest) = line.split_at(1);
        let count = || rest.parse::<usize>().ok();
        Ok(match mark {
            "+" => Value::Simple(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Integer(rest.parse().unwrap()),
            "," => Value::Simple(rest.to_owned()),
            "_" => Value::Null,
            "$" | "=" => match count() {
                None => Value::Null,
                Some(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.0.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Value::Bulk(bytes)
                }
            },
            "*" | "~" => match count() {
                None => Value::Null,
                Some(count) => Value::Array(self.try_read_all(count)?),
            },
            ">" => Value::Push(self.try_read_all(count().unwrap())?),
            "%" => {
                let mut pairs = Vec::new();
                for _ in 0..count().unwrap() {
                    pairs.push((self.try_read()?, self.try_read()?));
                }
                Value::Map(pairs)
            }
            _ => panic!("{line:?} is no reply"),
        })
    }

    fn try_read_all(&mut self, count: usize) -> io::Result<Vec<Value>> {
        (0..count).map(|_| self.try_read()).collect()
    }

    /// Whether the server has ended the connection, after what it still had to say.
    pub(crate) fn is_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).is_ok()
    }
}

/// The bytes of a request.
pub(crate) fn request<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Gives a file a text.
pub(crate) fn write_file(path: &Path, text: &str) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Says lines to a client, and compares the replies.
pub(crate) fn check(client: &mut Client, dialogue: &[(&str, &str)]) {
    for (line, expected) in dialogue {
        assert_eq!(client.say(line), *expected, "{line}");
    }
}
