//! TLS, by rustls: certificates, and the clients that may connect.
//!
//! TLS is the one part of this crate that draws randomness by itself; its time comes from the clock
//! that the caller hands in.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use zonal::Clock;

use crate::{Error, Result};

/// Whether clients need TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    /// A client uses it if it likes.
    Offered,
    /// Without it a client learns nothing.
    Required,
}

/// The files of TLS, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of the server, and the certificates that lead to its authority.
    pub certificate: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
    /// The authorities whose clients may connect. Without them all clients may.
    pub client_authorities: Option<PathBuf>,
}

/// How connections use TLS.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    policy: TlsPolicy,
}

impl Tls {
    /// Reads the files.
    pub fn load(files: &TlsFiles, policy: TlsPolicy, clock: Arc<dyn Clock>) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let certificates = certificates(&files.certificate)?;
        let key = private_key(&files.key)?;
        let builder =
            ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(WallTime(clock)));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.expect("the provider has the ciphers of TLS 1.2 and 1.3");
        let builder = match &files.client_authorities {
            Some(path) => builder.with_client_cert_verifier(verifier(path, provider)?),
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(certificates, key);
        let config = Arc::new(config.map_err(|error| failed(&files.certificate, error))?);
        Ok(Self { config, policy })
    }

    /// Whether clients need it.
    pub(super) fn policy(&self) -> TlsPolicy {
        self.policy
    }

    /// The server's side of a connection.
    pub(super) fn connection(&self) -> Result<ServerConnection, rustls::Error> {
        let mut connection = ServerConnection::new(Arc::clone(&self.config))?;
        // Sends encrypted bytes at once.
        connection.set_buffer_limit(None);
        Ok(connection)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.policy)
    }
}

/// Checks the certificates of clients.
fn verifier(path: &Path, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| failed(path, error))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.build().map_err(|error| failed(path, error))
}

/// The certificates of a file, of which there is at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| failed(path, error))?;
    let certificates: Result<Vec<_>, _> = certificates.collect();
    let certificates = certificates.map_err(|error| failed(path, error))?;
    if certificates.is_empty() {
        return Err(failed(path, "it holds no certificate"));
    }
    Ok(certificates)
}

/// The first private key of a file.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let text = fs::read(path).map_err(|error| failed(path, error))?;
    // PKCS #8 says it in the first line of a key, older formats in the next one.
    let has = |words: &[u8]| text.windows(words.len()).any(|part| part == words);
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
        return Err(failed(
            path,
            "the key is encrypted, and a server cannot ask for its password: \
             `openssl pkey -in KEY -out FILE` writes it in clear",
        ));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => failed(path, "it holds no private key in PEM"),
        error => failed(path, error),
    })
}

fn failed(path: &Path, why: impl fmt::Display) -> Error {
    Error::Tls { path: path.to_owned(), why: why.to_string() }
}

/// The wall clock by which certificates are valid.
struct WallTime(Arc<dyn Clock>);

impl fmt::Debug for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallTime")
    }
}

impl TimeProvider for WallTime {
    fn current_time(&self) -> Option<UnixTime> {
        let wall_ns = u64::try_from(self.0.wall_ns()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(wall_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_that_cannot_be_used_is_refused_with_reason() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("key.pem");
        let key = |label: &str, head: &str| {
            format!("-----BEGIN {label}-----\n{head}AAAA\n-----END {label}-----\n")
        };
        for (text, why) in [
            (key("ENCRYPTED PRIVATE KEY", ""), "the key is encrypted"),
            (key("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\n\n"), "the key is encrypted"),
            (key("CERTIFICATE", ""), "it holds no private key in PEM"),
            (String::new(), "it holds no private key in PEM"),
        ] {
            fs::write(&path, text).expect("written");
            let error = private_key(&path).expect_err(why).to_string();
            assert!(error.contains("key.pem") && error.contains(why), "{error}");
        }
        fs::write(&path, key("PRIVATE KEY", "")).expect("written");
        private_key(&path).expect("its bytes are looked at later");
    }
}
