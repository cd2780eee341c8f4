//! A client of Redis' protocol, for `gabion cli`: one connection, one thread, any server.
//!
//! A request goes out as an array of bulk strings, and [`Connection::read`] waits for what comes:
//! a reply, or a message that nobody asked for ([`Reply::Push`]).

mod reply;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

pub use reply::Reply;

use crate::tls::{TlsError, authorities, certificates, key};

/// Replies in replies that are followed, and bytes of one, at most.
const DEPTH_MAX: usize = 64;
const BULK_BYTES_MAX: usize = 1 << 30;

/// TLS settings of a client.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The authorities that the server's certificate may be of, as PEM.
    pub ca_cert_file: PathBuf,
    /// The client's own certificate and its key, as PEM, if the server wants one.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have; that of the host if there is none.
    pub name: Option<String>,
}

/// The address of a server.
#[derive(Clone, Debug)]
pub enum ServerAddress {
    /// At a host and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// How TLS is spoken, if it is.
        tls: Option<ClientTls>,
    },
    /// At a socket of this machine.
    Unix(PathBuf),
}

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// A connection.
pub struct Connection(BufReader<Box<dyn Stream>>);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there; when TLS cannot be spoken.
    pub fn open(target: &ServerAddress) -> io::Result<Connection> {
        let stream: Box<dyn Stream> = match target {
            ServerAddress::Unix(path) => Box::new(UnixStream::connect(path)?),
            ServerAddress::Tcp { host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Box::new(stream),
                    Some(tls) => {
                        let name = tls.name.as_ref().unwrap_or(host).clone();
                        let name = ServerName::try_from(name).map_err(io::Error::other)?;
                        let config = Arc::new(client_config(tls).map_err(io::Error::other)?);
                        let session =
                            ClientConnection::new(config, name).map_err(io::Error::other)?;
                        Box::new(StreamOwned::new(session, stream))
                    }
                }
            }
        };
        Ok(Connection(BufReader::new(stream)))
    }

    /// Sends a request and waits for its reply. Messages that come before it go to `push`.
    ///
    /// # Errors
    /// When the connection ends, or what comes is no reply.
    pub fn ask<A: AsRef<[u8]>>(
        &mut self,
        arguments: &[A],
        mut push: impl FnMut(Reply),
    ) -> io::Result<Reply> {
        self.send(arguments)?;
        loop {
            match self.read()? {
                message @ Reply::Push(_) => push(message),
                reply => return Ok(reply),
            }
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            let argument = argument.as_ref();
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        let stream = self.0.get_mut();
        stream.write_all(&bytes)?;
        stream.flush()
    }

    /// The next reply or message.
    ///
    /// # Errors
    /// When the connection ends, or what comes is no reply.
    pub fn read(&mut self) -> io::Result<Reply> {
        read(&mut self.0, 0)
    }
}

fn client_config(tls: &ClientTls) -> Result<ClientConfig, TlsError> {
    let failed = |error: &dyn std::fmt::Display| TlsError::Files(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(authorities(&tls.ca_cert_file)?);
    match &tls.own {
        None => Ok(builder.with_no_client_auth()),
        Some((own, own_key)) => builder
            .with_client_auth_cert(certificates(own)?, key(own_key)?)
            .map_err(|error| failed(&error)),
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the server sent an invalid reply: {what}"),
    )
}

fn read(source: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    if depth > DEPTH_MAX {
        return Err(malformed("replies are nested too deeply"));
    }
    let mut line = Vec::new();
    source.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the server closed the connection",
        ));
    }
    let text = line
        .strip_suffix(b"\r\n")
        .ok_or_else(|| malformed("a line does not end"))?;
    let (mark, rest) = text
        .split_first()
        .ok_or_else(|| malformed("a line is empty"))?;
    let rest_text = || String::from_utf8_lossy(rest).into_owned();
    let number = || {
        let text = std::str::from_utf8(rest).ok();
        let number = text.and_then(|text| text.parse::<i64>().ok());
        number.ok_or_else(|| malformed("a number is invalid"))
    };
    let mut list = |each: usize| -> io::Result<Option<Vec<Reply>>> {
        let Ok(count) = usize::try_from(number()?) else {
            return Ok(None);
        };
        let mut items = Vec::new();
        for _ in 0..count.saturating_mul(each) {
            items.push(read(source, depth + 1)?);
        }
        Ok(Some(items))
    };
    Ok(match mark {
        b'+' => Reply::Simple(rest_text()),
        b'-' => Reply::Error(rest_text()),
        b':' => Reply::Integer(number()?),
        b'_' => Reply::Null,
        b'#' => Reply::Boolean(rest == b"t"),
        b',' => Reply::Double(rest_text()),
        b'(' => Reply::BigNumber(rest_text()),
        b'*' => list(1)?.map_or(Reply::Null, Reply::Array),
        b'~' => list(1)?.map_or(Reply::Null, Reply::Set),
        b'>' => list(1)?.map_or(Reply::Null, Reply::Push),
        b'%' => list(2)?.map_or(Reply::Null, |items| {
            let mut items = items.into_iter();
            let pairs = std::iter::from_fn(|| Some((items.next()?, items.next()?)));
            Reply::Map(pairs.collect())
        }),
        b'$' | b'=' | b'!' => match usize::try_from(number()?) {
            Err(_) => Reply::Null,
            Ok(length) if length > BULK_BYTES_MAX => return Err(malformed("it is too long")),
            Ok(length) => {
                let mut bytes = Vec::new();
                let wanted = length as u64 + 2;
                source.take(wanted).read_to_end(&mut bytes)?;
                if bytes.len() as u64 != wanted {
                    return Err(malformed("it is cut off"));
                }
                bytes.truncate(length);
                match mark {
                    b'$' => Reply::Bulk(bytes),
                    b'!' => Reply::Error(String::from_utf8_lossy(&bytes).into_owned()),
                    _ => Reply::Verbatim(bytes.split_off(bytes.len().min(4))),
                }
            }
        },
        _ => return Err(malformed("the type of a reply is unknown")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_replies_are_read() {
        let all =
            b"*13\r\n+OK\r\n-ERR no\r\n:-5\r\n_\r\n#t\r\n,1.5\r\n(123\r\n$2\r\na\n\r\n$-1\r\n\
                    =7\r\ntxt:abc\r\n!5\r\nERR x\r\n~1\r\n:1\r\n%1\r\n+k\r\n*0\r\n>1\r\n+p\r\n";
        let mut source = &all[..];
        let reply = read(&mut source, 0).unwrap();
        let Reply::Array(items) = reply else {
            panic!("a list");
        };
        let expected = vec![
            Reply::Simple("OK".to_owned()),
            Reply::Error("ERR no".to_owned()),
            Reply::Integer(-5),
            Reply::Null,
            Reply::Boolean(true),
            Reply::Double("1.5".to_owned()),
            Reply::BigNumber("123".to_owned()),
            Reply::Bulk(b"a\n".to_vec()),
            Reply::Null,
            Reply::Verbatim(b"abc".to_vec()),
            Reply::Error("ERR x".to_owned()),
            Reply::Set(vec![Reply::Integer(1)]),
            Reply::Map(vec![(
                Reply::Simple("k".to_owned()),
                Reply::Array(Vec::new()),
            )]),
        ];
        assert_eq!(items, expected);
        let push = Reply::Push(vec![Reply::Simple("p".to_owned())]);
        assert_eq!(read(&mut source, 0).unwrap(), push);
        assert!(source.is_empty());
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        let deep = "*1\r\n".repeat(100);
        for wrong in [
            "",
            "+OK",
            "x\r\n",
            "\r\n",
            ":x\r\n",
            "$5\r\nab\r\n",
            "*2\r\n:1\r\n",
            &deep,
        ] {
            assert!(read(&mut wrong.as_bytes(), 0).is_err(), "{wrong:?}");
        }
        assert!(read(&mut &b"$99999999999\r\n"[..], 0).is_err());
    }
}
