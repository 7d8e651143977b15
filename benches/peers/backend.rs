//! A minimal, fast HTTP/1.1 backend with keep-alive: one chunk and one write per event, optionally over TLS.
//! [`crate::backend_http2`] is the HTTP/2 backend.

use crate::backend_http2;
use crate::chunked::{LAST_CHUNK, push_chunk};
use crate::process::end_with_parent;
use crate::recorded::{Library, RecordedSpec};
use crate::wire::{StreamRequest, push_end, push_event};
use anyhow::Context;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;

/// Bytes of a request's body that the backend looks at.
const BEGINNING: usize = 4096;
const READ: usize = 64 * 1024;
const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// With longer intervals between events, the backend detects while it waits that the peer disconnects.
const SILENT: Duration = Duration::from_secs(2);

/// Protocol of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Http1,
    Tls,
    Http2,
}

/// Serves until its parent ends, and prints its address. `certificate` has the files of a certificate and its key, for
/// TLS.
pub fn serve(kind: Kind, certificate: Option<(&Path, &Path)>) -> anyhow::Result<()> {
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tls = match kind {
        Kind::Tls => Some(acceptor(certificate.context("no certificate")?)?),
        _ => None,
    };
    LocalSet::new().block_on(&runtime, async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let listener: TcpListener = socket.listen(4096)?;
        println!("{}", listener.local_addr()?);
        let library = Rc::new(Library::default());
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            // A disconnect of the peer is not an error.
            match (kind, tls.clone()) {
                (Kind::Http2, _) => drop(spawn_local(backend_http2::connection(socket))),
                (_, Some(tls)) => drop(spawn_local(with_tls(socket, tls, Rc::clone(&library)))),
                _ => drop(spawn_local(connection(socket, Rc::clone(&library)))),
            }
        }
    })
}

fn acceptor((certificate, key): (&Path, &Path)) -> anyhow::Result<TlsAcceptor> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)?.collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain?, PrivateKeyDer::from_pem_file(key)?)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn with_tls(
    socket: TcpStream,
    tls: TlsAcceptor,
    library: Rc<Library>,
) -> std::io::Result<()> {
    connection(tls.accept(socket).await?, library).await
}

/// Answers requests until the peer disconnects.
async fn connection(
    socket: impl AsyncRead + AsyncWrite + Unpin,
    library: Rc<Library>,
) -> std::io::Result<()> {
    let mut socket = BufReader::with_capacity(READ, socket);
    while let Some(request) = request(&mut socket).await? {
        match request {
            Request::Generated(spec) => answer(&spec, socket.get_mut()).await?,
            Request::Recorded(spec) => replay(&library, spec, socket.get_mut()).await?,
        }
    }
    Ok(())
}

enum Request {
    Generated(StreamRequest),
    Recorded(RecordedSpec),
}

/// Reads one request; `None` if the connection was closed between two requests.
async fn request<S: AsyncRead + Unpin>(
    socket: &mut BufReader<S>,
) -> std::io::Result<Option<Request>> {
    let (mut length, mut recorded, mut line) = (0, None, String::new());
    loop {
        line.clear();
        if socket.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        } else if name.eq_ignore_ascii_case(RecordedSpec::HEADER) {
            recorded = RecordedSpec::of_header(value);
        }
    }
    let mut body = vec![0; length.min(BEGINNING)];
    socket.read_exact(&mut body).await?;
    let mut left = length - body.len();
    while left > 0 {
        let read = socket.fill_buf().await?.len().min(left);
        if read == 0 {
            return Ok(None);
        }
        socket.consume(read);
        left -= read;
    }
    let generated = || Request::Generated(StreamRequest::of_body(&body).unwrap_or_default());
    Ok(Some(recorded.map_or_else(generated, Request::Recorded)))
}

async fn answer(
    spec: &StreamRequest,
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let (mut scratch, mut out) = (String::new(), Vec::new());
    if spec.one_write {
        out.extend_from_slice(HEAD);
        for index in 0..spec.events {
            push_event(index, spec, &mut scratch, &mut out);
        }
        push_end(spec, &mut out);
        return send(socket, &out).await;
    }
    send(socket, HEAD).await?;
    if spec.per_write > 1 {
        for index in 0..spec.per_write {
            push_event(index, spec, &mut scratch, &mut out);
        }
        // Sends the same events repeatedly, so that making them does not limit the rate.
        for _ in 0..spec.events / spec.per_write {
            send(socket, &out).await?;
        }
    } else {
        pace(spec, socket, &mut scratch, &mut out).await?;
    }
    out.clear();
    push_end(spec, &mut out);
    send(socket, &out).await
}

/// Writes and flushes, because TLS buffers writes.
async fn send(socket: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    socket.write_all(bytes).await?;
    socket.flush().await
}

async fn pace(
    spec: &StreamRequest,
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
    scratch: &mut String,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let start = Instant::now() + Duration::from_micros(spec.phase_us);
    for index in 0..spec.events {
        // A timer rounds up to its tick, even if it is due.
        if spec.interval_us > 0 {
            let next = start + Duration::from_micros(spec.interval_us * u64::from(index));
            if Duration::from_micros(spec.interval_us) >= SILENT {
                wait(next, socket).await?;
            } else {
                sleep_until(next).await;
            }
        }
        out.clear();
        push_event(index, spec, scratch, out);
        send(socket, out).await?;
    }
    Ok(())
}

/// Waits until `next`.
///
/// # Errors
/// The peer disconnected. Without this check, streams that are silent for an hour would keep their sockets open.
async fn wait(next: Instant, socket: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    tokio::select! {
        () = sleep_until(next) => Ok(()),
        read = socket.read_u8() => Err(read.err().unwrap_or_else(|| ErrorKind::InvalidData.into())),
    }
}

/// Sends a recorded body with several events per write, each in its own chunk.
async fn replay(
    library: &Library,
    spec: RecordedSpec,
    socket: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let all = library.all().map_err(std::io::Error::other)?;
    let unknown = || std::io::Error::other(format!("no recorded body {}", spec.index));
    let body = all.get(spec.index).ok_or_else(unknown)?;
    let mut out = body.head().into_bytes();
    let events = body.events(spec.repeated);
    for (index, event) in (1_u32..).zip(events) {
        push_chunk(event, &mut out);
        if index.is_multiple_of(spec.per_write) {
            send(socket, &out).await?;
            out.clear();
        }
    }
    out.extend_from_slice(LAST_CHUNK);
    send(socket, &out).await
}
