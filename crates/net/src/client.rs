//! One HTTP request that is no agent's: to an alert's receiver, or to the API of a running
//! proxy. HTTP/1.1, TLS where the URL says so.

use crate::endpoint::Protocol;
use crate::tls::{ClientTls, Connector};
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Bytes of an answer's body that are read at most.
const MAX_ANSWER: usize = 32 << 20;

/// An HTTP response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The whole body.
    pub body: Bytes,
    /// How long to wait before the next try, where it says so.
    pub retry_after: Option<Duration>,
}

/// Sends `request`, whose target is a whole URL, and waits at most `patience` for all
/// of the answer.
///
/// # Errors
/// Where there is no answer; the text says why.
pub async fn fetch(request: Request<Bytes>, patience: Duration) -> io::Result<Answer> {
    fetch_with(request, patience, &ClientTls::default()).await
}

/// The same with roots and a certificate of one's own.
///
/// # Errors
/// Where there is no answer; the text says why.
pub async fn fetch_with(
    request: Request<Bytes>,
    patience: Duration,
    tls: &ClientTls,
) -> io::Result<Answer> {
    match tokio::time::timeout(patience, exchange(request, tls)).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer within {}", humantime::format_duration(patience)),
        )),
    }
}

async fn exchange(request: Request<Bytes>, client: &ClientTls) -> io::Result<Answer> {
    let uri = request.uri().clone();
    let wrong = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason.to_owned());
    let host = uri.host().ok_or_else(|| wrong("the URL names no host"))?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong("the URL must start with http:// or https://")),
    };
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let tcp = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    if !tls {
        return send(tcp, request, &uri).await;
    }
    let connector = Connector::new(client, Protocol::Http1);
    let connector = connector.map_err(io::Error::other)?;
    send(connector.connect(tcp, host).await?, request, &uri).await
}

async fn send<S>(stream: S, request: Request<Bytes>, uri: &Uri) -> io::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let target = uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = target.parse().map_err(io::Error::other)?;
    if let Some(authority) = uri.authority() {
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        parts
            .headers
            .insert(header::HOST, host.parse().map_err(io::Error::other)?);
    }
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = Request::from_parts(parts, Full::new(body));
    let response = sender
        .send_request(request)
        .await
        .map_err(io::Error::other)?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    connection.abort();
    let retry_after = head.headers.get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(Answer {
        status: head.status.as_u16(),
        body: body.map_err(io::Error::other)?.to_bytes(),
        retry_after: retry_after.map(Duration::from_secs),
    })
}
