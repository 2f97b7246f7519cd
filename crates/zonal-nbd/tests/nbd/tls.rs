//! TLS: offered, required, and with certificates of clients.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use zonal::{BlockSize, SystemClock};
use zonal_nbd::server::{MEMORY_MAX, TlsFiles, TlsPolicy};
use zonal_nbd::wire::{Command, client_flag, option, reply};
use zonal_nbd::{Address, Tls};

use crate::client::{Client, Reply, Style, query};
use crate::programs::{Reached, has, run};
use crate::{serve_with, settings, small};

/// An authority with a certificate of a server and one of a client, named as libnbd wants them.
struct Certificates(TempDir);

impl Certificates {
    /// `None` without the program that makes them.
    fn make() -> Option<Self> {
        has("openssl").then_some(())?;
        let made = Self(tempfile::tempdir().unwrap());
        let key = |name: &str| made.file(&format!("{name}-key.pem"));
        let cert = |name: &str| made.file(&format!("{name}-cert.pem"));
        let new =
            ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
        let request = |own: &[&str]| run("openssl", &[&["req", "-x509"], &new[..], own].concat());
        let (ca_key, ca_cert) = (text(&key("ca")), text(&cert("ca")));
        request(&["-subj", "/CN=authority", "-keyout", &ca_key, "-out", &ca_cert]);
        for name in ["server", "client"] {
            let subject = format!("/CN={name}");
            let (key, cert) = (text(&key(name)), text(&cert(name)));
            let names = ["-subj", &subject, "-addext", "subjectAltName=DNS:localhost"];
            let signed =
                ["-addext", "basicConstraints=CA:FALSE", "-CA", &ca_cert, "-CAkey", &ca_key];
            request(&[&names[..], &signed, &["-keyout", &key, "-out", &cert]].concat());
        }
        Some(made)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self, policy: TlsPolicy, clients: Clients) -> Tls {
        let files = TlsFiles {
            certificate: self.file("server-cert.pem"),
            key: self.file("server-key.pem"),
            client_authorities: (clients == Clients::Known).then(|| self.file("ca-cert.pem")),
        };
        Tls::load(&files, policy, Arc::new(SystemClock::new())).unwrap()
    }

    /// A client's configuration, with its certificate or without.
    fn client(&self, clients: Clients) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let authority = self.file("ca-cert.pem");
        roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        Arc::new(match clients {
            Clients::All => builder.with_no_client_auth(),
            Clients::Known => {
                let certificate = CertificateDer::from_pem_file(self.file("client-cert.pem"));
                let key = PrivateKeyDer::from_pem_file(self.file("client-key.pem")).unwrap();
                builder.with_client_auth_cert(vec![certificate.unwrap()], key).unwrap()
            }
        })
    }
}

/// The clients that may connect, or the client that connects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clients {
    All,
    Known,
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A client that has started TLS.
fn encrypted(address: &Address, config: Arc<ClientConfig>) -> io::Result<Client> {
    encrypted_after(&[], address, config)
}

/// The same, which has sent these options in clear before.
fn encrypted_after(
    options: &[u32],
    address: &Address,
    config: Arc<ClientConfig>,
) -> io::Result<Client> {
    let Address::Tcp(address) = address else { unreachable!("tests use TCP") };
    let stream = TcpStream::connect(address).unwrap();
    let mut plain = Client::over(Box::new(stream.try_clone().unwrap()));
    plain.answer_greeting(client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES)?;
    for option in options {
        plain.option(*option, &[])?;
    }
    let replies = plain.option(option::START_TLS, &[])?;
    assert_eq!(replies, [Reply { kind: reply::ACK, data: Vec::new() }]);
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    Ok(Client::over(Box::new(tls)))
}

#[test]
fn tls_carries_requests_of_all_sizes() {
    let Some(certificates) = Certificates::make() else { return };
    let tls = certificates.load(TlsPolicy::Required, Clients::All);
    let served = serve_with(small(), settings(MEMORY_MAX, Some(tls)));
    for style in [Style::Simple, Style::Structured] {
        let mut client = encrypted(&served.address, certificates.client(Clients::All)).unwrap();
        client.go("disk", style);
        let data: Vec<u8> = (0..4_u32 << 18).flat_map(u32::to_le_bytes).collect();
        assert_eq!(client.write(0, &data, 0).error, 0);
        assert!(client.read(0, 4 << 20).data == data);
        let cookies: Vec<u64> =
            (0..32).map(|block| client.send(Command::Read, 0, block * 65536, 65536)).collect();
        for _ in &cookies {
            let answer = client.answer().unwrap();
            let block = cookies.iter().position(|cookie| *cookie == answer.cookie).unwrap();
            assert!(answer.data == data[block * 65536..][..65536], "{block}");
        }
    }
}

#[test]
fn tls_required_refuses_options_in_clear() {
    let Some(certificates) = Certificates::make() else { return };
    let tls = certificates.load(TlsPolicy::Required, Clients::All);
    let served = serve_with(small(), settings(MEMORY_MAX, Some(tls)));
    let mut client = Client::greet(&served.address);
    for (option, data) in [
        (option::LIST, Vec::new()),
        (option::INFO, query("disk", &[])),
        (option::GO, query("disk", &[])),
        (77, Vec::new()),
    ] {
        let replies = client.option(option, &data).unwrap();
        assert_eq!(replies[0].kind, reply::TLS_REQUIRED, "{option}");
    }
    assert!(client.option(option::EXPORT_NAME, b"disk").is_err());
}

#[test]
fn tls_offered_serves_in_clear_and_starts_once() {
    let Some(certificates) = Certificates::make() else { return };
    let tls = certificates.load(TlsPolicy::Offered, Clients::All);
    let served = serve_with(small(), settings(MEMORY_MAX, Some(tls)));
    let mut plain = Client::open(&served.address, "disk", Style::Structured);
    assert_eq!(plain.read(0, 4096).error, 0);
    let mut client = encrypted(&served.address, certificates.client(Clients::All)).unwrap();
    assert_eq!(client.option(option::START_TLS, &[]).unwrap()[0].kind, reply::INVALID);
    client.go("disk", Style::Structured);
}

#[test]
fn tls_forgets_what_was_agreed_in_clear() {
    let Some(certificates) = Certificates::make() else { return };
    let tls = certificates.load(TlsPolicy::Offered, Clients::All);
    let served = serve_with(small(), settings(MEMORY_MAX, Some(tls)));
    // Data behind the request for TLS may come from an attacker between client and server.
    let mut client = Client::greet(&served.address);
    let start = b"IHAVEOPT\0\0\0\x05\0\0\0\0";
    let injected = b"IHAVEOPT\0\0\0\x08\0\0\0\0";
    client.stream.write_all(&[&start[..], injected].concat()).unwrap();
    let mut reply = [0; 20];
    client.stream.read_exact(&mut reply).unwrap();
    assert!(client.has_ended());
    let config = certificates.client(Clients::All);
    let client = encrypted_after(&[option::STRUCTURED_REPLY], &served.address, config);
    let mut client = client.unwrap();
    client.go("disk", Style::Simple);
    assert_eq!(client.read(0, 4096).data.len(), 4096, "a simple reply");
}

#[test]
fn tls_with_authority_admits_only_its_clients() {
    let Some(certificates) = Certificates::make() else { return };
    let tls = certificates.load(TlsPolicy::Required, Clients::Known);
    let served = serve_with(small(), settings(MEMORY_MAX, Some(tls)));
    let mut client = encrypted(&served.address, certificates.client(Clients::Known)).unwrap();
    client.go("disk", Style::Structured);
    assert_eq!(client.read(0, 4096).error, 0);
    // With TLS 1.3 a client without certificate finds out with the first answer.
    let refused = encrypted(&served.address, certificates.client(Clients::All))
        .and_then(|mut client| client.option(option::LIST, &[]));
    assert!(refused.is_err());
}

#[test]
fn tls_files_without_certificate_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty.pem");
    fs::write(&path, "").unwrap();
    let files = TlsFiles { certificate: path.clone(), key: path.clone(), client_authorities: None };
    let refused = Tls::load(&files, TlsPolicy::Offered, Arc::new(SystemClock::new()));
    let said = refused.unwrap_err().to_string();
    assert_eq!(said, format!("{}: it holds no certificate", path.display()));
    let files = TlsFiles { certificate: dir.path().join("absent"), ..files };
    assert!(Tls::load(&files, TlsPolicy::Offered, Arc::new(SystemClock::new())).is_err());
}

#[test]
fn libnbd_copies_over_tls_and_needs_its_certificate() {
    let Some(certificates) = Certificates::make() else { return };
    if !has("nbdcopy") {
        return;
    }
    let tls = certificates.load(TlsPolicy::Required, Clients::Known);
    let reached = Reached::new(BlockSize::B4096, Some(tls));
    let folder = certificates.0.path().display();
    let uri = format!("{}?tls-certificates={folder}", reached.tcp("nbds"));
    let (from, to) = (certificates.file("from"), certificates.file("to"));
    let content: Vec<u8> = (0..16_u32 << 20).flat_map(u32::to_le_bytes).collect();
    fs::write(&from, &content).unwrap();
    run("nbdcopy", &["--connections=2", &text(&from), &uri]);
    run("nbdcopy", &["--connections=2", &uri, &text(&to)]);
    assert!(fs::read(&to).unwrap() == content);
    let info = run("nbdinfo", &[&uri]);
    assert!(info.contains("with TLS"), "{info}");
    fs::remove_file(certificates.file("client-cert.pem")).unwrap();
    let refused = std::process::Command::new("nbdinfo").arg(&uri).output().unwrap();
    assert!(!refused.status.success());
}
