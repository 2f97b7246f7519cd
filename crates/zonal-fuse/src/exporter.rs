//! HTTP server for Prometheus: `GET /metrics` over HTTP/1.1, and nothing else.
//!
//! Anything may connect, so everything is bounded: the server answers one connection at a time,
//! which has two seconds in all and a request of at most 8 KiB; further connections wait in the
//! kernel's queue. It closes each connection after the answer. A closure makes the metrics for each
//! request, so the server knows no file system. It neither encrypts nor authenticates: it is for
//! 127.0.0.1, or for a trusted network. docs/decisions/own-metrics-server.md says why it is our
//! own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use zonal::Clock;
use zonal::listen::Listeners;

use crate::ServeError;
use crate::control::metrics::Dialect;
use crate::error::Result;

/// Most bytes of a request.
const REQUEST_MAX: usize = 8 << 10;

/// Time limit of a connection.
const CONNECTION_NS: u64 = 2_000_000_000;

/// Renders the metrics; `None` once the mount has ended.
pub type MetricsSource = Box<dyn Fn(Dialect) -> Option<String> + Send>;

/// A server that runs until it is dropped.
pub struct Exporter {
    address: SocketAddr,
    _listeners: Listeners<TcpStream>,
}

impl Exporter {
    /// Listens at `address` and serves `source`.
    pub fn start(
        address: SocketAddr,
        clock: Arc<dyn Clock>,
        source: MetricsSource,
    ) -> Result<Self> {
        let failed =
            |source| ServeError::Io { what: format!("serving metrics at {address}"), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let take = move |accepted: io::Result<(TcpStream, SocketAddr)>| match accepted {
            Ok((stream, peer)) => {
                let deadline_ns = clock.monotonic_ns() + CONNECTION_NS;
                let mut connection = Connection { stream, clock: &*clock, deadline_ns };
                if let Err(error) = connection.answer(&source) {
                    tracing::debug!(%peer, %error, "a request for metrics was not answered");
                }
            }
            Err(error) => tracing::warn!(%error, "a request for metrics was not accepted"),
        };
        let mut listeners = Listeners::default();
        listeners.start("metrics", listener, TcpListener::accept, take).map_err(failed)?;
        Ok(Self { address, _listeners: listeners })
    }

    /// Address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A connection with a deadline.
struct Connection<'a> {
    stream: TcpStream,
    clock: &'a dyn Clock,
    deadline_ns: u64,
}

impl Connection<'_> {
    fn answer(&mut self, source: &MetricsSource) -> io::Result<()> {
        let head = self.head()?;
        let answer = match &head {
            Some(head) => respond(head, source),
            None => HttpResponse::error("431 Request Header Fields Too Large"),
        };
        let is_head = head.is_some_and(|head| head.starts_with("HEAD "));
        let body = if is_head { "" } else { &answer.body };
        self.write((answer.head() + body).as_bytes())?;
        self.stream.shutdown(std::net::Shutdown::Write)?;
        // Reads until the client closes: a close with unread bytes would reset the connection and
        // discard the answer.
        let mut rest = [0; 1024];
        while self.read(&mut rest)? > 0 {}
        Ok(())
    }

    /// Reads the head of the request; `None` if it is too long.
    fn head(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 1024];
        loop {
            let count = self.read(&mut buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&buffer[..count]);
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                bytes.truncate(end);
                return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
            }
            if bytes.len() >= REQUEST_MAX {
                return Ok(None);
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            bytes = &bytes[self.stream.write(bytes)?..];
        }
        Ok(())
    }

    /// Time left until the deadline.
    fn left(&self) -> io::Result<Duration> {
        match self.deadline_ns.saturating_sub(self.clock.monotonic_ns()) {
            0 => Err(io::ErrorKind::TimedOut.into()),
            ns => Ok(Duration::from_nanos(ns).max(Duration::from_millis(1))),
        }
    }
}

struct HttpResponse {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl HttpResponse {
    fn error(status: &'static str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{status}\n") }
    }

    fn head(&self) -> String {
        let Self { status, kind, body } = self;
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
             Connection: close\r\n\r\n"
        )
    }
}

fn respond(head: &str, source: &MetricsSource) -> HttpResponse {
    let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return HttpResponse::error("400 Bad Request");
    };
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return HttpResponse::error("505 HTTP Version Not Supported");
    }
    if !matches!(method, "GET" | "HEAD") {
        return HttpResponse::error("405 Method Not Allowed");
    }
    if target.split('?').next() != Some("/metrics") {
        return HttpResponse::error("404 Not Found");
    }
    let takes_open = |field: &str| {
        field.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
        })
    };
    let (dialect, kind) = if fields.lines().any(takes_open) {
        (Dialect::OpenMetrics, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    } else {
        (Dialect::Prometheus, "text/plain; version=0.0.4; charset=utf-8")
    };
    match source(dialect) {
        Some(body) => HttpResponse { status: "200 OK", kind, body },
        None => HttpResponse::error("503 Service Unavailable"),
    }
}

#[cfg(test)]
mod tests {
    use zonal::SystemClock;

    use super::*;

    fn exporter() -> Exporter {
        let source = |dialect| {
            Some(match dialect {
                Dialect::Prometheus => "plain 1\n".to_owned(),
                Dialect::OpenMetrics => "open 1\n# EOF\n".to_owned(),
            })
        };
        let address = "127.0.0.1:0".parse().unwrap();
        Exporter::start(address, Arc::new(SystemClock::new()), Box::new(source)).unwrap()
    }

    fn ask(exporter: &Exporter, request: &str) -> String {
        let mut stream = TcpStream::connect(exporter.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn exporter_serves_both_dialects() {
        let exporter = exporter();
        let answer = ask(&exporter, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Type: text/plain; version=0.0.4"), "{answer}");
        assert!(answer.contains("Content-Length: 8\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\nplain 1\n"), "{answer}");
        let accept = "accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1";
        let answer = ask(&exporter, &format!("GET /metrics?x=1 HTTP/1.0\r\n{accept}\r\n\r\n"));
        assert!(answer.ends_with("\r\n\r\nopen 1\n# EOF\n"), "{answer}");
        assert!(answer.contains("openmetrics-text; version=1.0.0"), "{answer}");
        let answer = ask(&exporter, "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.contains("Content-Length: 8") && answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[test]
    fn exporter_answers_bad_requests_with_status() {
        let exporter = exporter();
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
            ("GET /metrics HTTP/2\r\n\r\n", "505"),
            ("\u{0}\u{1}\r\n\r\n", "400"),
            (&format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(REQUEST_MAX)), "431"),
        ] {
            let answer = ask(&exporter, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    }

    /// A client that connects and sends nothing delays other clients, and the end of the server,
    /// for two seconds at most.
    #[test]
    fn exporter_bounds_silent_connection() {
        let exporter = exporter();
        let silent = TcpStream::connect(exporter.address()).unwrap();
        let answer = ask(&exporter, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let another = TcpStream::connect(exporter.address()).unwrap();
        drop(exporter);
        drop((silent, another));
    }

    #[test]
    fn exporter_address_in_use_is_error() {
        let exporter = exporter();
        let clock = Arc::new(SystemClock::new());
        let error = Exporter::start(exporter.address(), clock, Box::new(|_| None)).err().unwrap();
        assert!(error.to_string().contains("serving metrics at 127.0.0.1:"), "{error}");
    }
}
