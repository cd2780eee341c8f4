//! TLS for clients of Redis' protocol.
//!
//! The certificate, its key and the authorities of clients are read from PEM files when the server
//! starts, so a wrong file is an error then and not at the first client. TLS 1.2 and 1.3 are
//! spoken, with the ciphers of rustls.
//!
//! A handshake is bounded: it takes [`TlsConfig::handshake_time`] at most, and [`HANDSHAKES_MAX`]
//! are under way at once.
//! Who comes beyond that waits in the system's queue of connections. A connection whose handshake
//! is done is one as all others.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// Handshakes that are under way at once.
const HANDSHAKES_MAX: usize = 256;

/// Whether clients must show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthClients {
    /// They need none, and are asked for none.
    No,
    /// Every client must have one of the authorities.
    #[default]
    Yes,
    /// A client may have none, but none that is wrong.
    Optional,
}

impl AuthClients {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            AuthClients::No => "no",
            AuthClients::Yes => "yes",
            AuthClients::Optional => "optional",
        }
    }
}

impl std::str::FromStr for AuthClients {
    type Err = String;

    fn from_str(text: &str) -> Result<AuthClients, String> {
        let all = [AuthClients::No, AuthClients::Yes, AuthClients::Optional];
        let found = all.into_iter().find(|one| one.word() == text);
        found.ok_or_else(|| format!("{text:?} is not one of yes, no and optional"))
    }
}

/// Where TLS is spoken, and with which files.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// The port; 0 for any that is free.
    pub port: u16,
    /// The certificate, and those between it and an authority, as PEM.
    pub cert_file: PathBuf,
    /// Its key, as PEM.
    pub key_file: PathBuf,
    /// The authorities of clients, as PEM.
    pub ca_cert_file: Option<PathBuf>,
    /// Whether clients must show certificates.
    pub auth_clients: AuthClients,
    /// How long a handshake may take; 10 s are usual.
    pub handshake_time: Duration,
}

/// A file that cannot be used for TLS, or files that do not fit each other.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, or is no PEM of its kind.
    #[error("cannot use {path} for TLS: {cause}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// Certificates of clients are wanted, and no authority is named.
    #[error(
        "TLS asks clients for certificates, and no certificate authority is named; use \
         --tls-ca-cert-file, or --tls-auth-clients no"
    )]
    NoAuthority,
    /// The certificate and its key do not fit, or the like.
    #[error("cannot use these files for TLS: {0}")]
    Files(String),
}

/// The certificates of a PEM file.
///
/// # Errors
/// When there are none.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |cause: String| TlsError::File {
        path: path.to_owned(),
        cause,
    };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|error| failed(error.to_string()))?
        .collect();
    let found = found.map_err(|error| failed(error.to_string()))?;
    match found.is_empty() {
        true => Err(failed("the file has no certificate".to_owned())),
        false => Ok(found),
    }
}

/// The key of a PEM file.
///
/// # Errors
/// When there is none.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::File {
        path: path.to_owned(),
        cause: error.to_string(),
    })
}

/// The authorities of a PEM file.
///
/// # Errors
/// When there are none.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TlsError::File {
            path: path.to_owned(),
            cause: error.to_string(),
        })?;
    }
    Ok(roots)
}

/// What accepts clients by TLS.
#[derive(Clone)]
pub(crate) struct Acceptor {
    acceptor: TlsAcceptor,
    time: Duration,
    handshakes: Arc<Semaphore>,
}

impl Acceptor {
    /// With the files of a configuration.
    ///
    /// # Errors
    /// When they cannot be used.
    pub(crate) fn new(config: &TlsConfig) -> Result<Acceptor, TlsError> {
        let failed = |error: &dyn std::fmt::Display| TlsError::Files(error.to_string());
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?;
        let builder = match (config.auth_clients, &config.ca_cert_file) {
            (AuthClients::No, _) => builder.with_no_client_auth(),
            (_, None) => return Err(TlsError::NoAuthority),
            (auth, Some(path)) => {
                let roots = Arc::new(authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match auth {
                    AuthClients::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| failed(&error))?)
            }
        };
        let chain = certificates(&config.cert_file)?;
        let own = builder
            .with_single_cert(chain, key(&config.key_file)?)
            .map_err(|error| failed(&error))?;
        Ok(Acceptor {
            acceptor: TlsAcceptor::from(Arc::new(own)),
            time: config.handshake_time,
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
        })
    }

    /// Waits for the right to begin a handshake.
    pub(crate) async fn turn(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        Arc::clone(&self.handshakes).acquire_owned().await.ok()
    }

    /// Shakes hands with a client.
    ///
    /// # Errors
    /// When it speaks no TLS, has no certificate that is wanted, or takes too long.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepted = tokio::time::timeout(self.time, self.acceptor.accept(stream)).await;
        accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
