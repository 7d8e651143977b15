//! Access to the admin address: TLS, the bearer token, and the accepted values of `host`.

use super::host::Hosts;
use super::own_use_limit::OwnUseLimit;
use super::server::Source;
use super::token::{HEADER, Refused, Token, TokenFileError};
use super::{api, health, page, runbooks};
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_config as config;
use tokengauge_net::tls::{self, Acceptor};

const MAX_HOOK_BYTES: usize = 64 * 1024;

/// Access to the admin address. By default everyone has access, without TLS.
#[derive(Default)]
pub struct Access {
    pub(super) tls: Option<Arc<Acceptor>>,
    token: Option<Arc<Token>>,
    hosts: Hosts,
    /// Whether the metrics address also requires the token and the host names.
    metrics_token: bool,
    metrics_hosts: Hosts,
    /// How often a client with a key may ask for the key's usage. `None` if `/api/v1/me` is disabled.
    own_use: Option<Arc<OwnUseLimit>>,
    /// Whether only health checks and metrics are served, at any address.
    pub(super) restricted: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(
        "admin.metrics_token needs the token of [admin], but none is configured: set `token_file`, or remove `metrics_token`"
    )]
    NoToken,
    #[error(transparent)]
    Token(#[from] TokenFileError),
    #[error("admin.tls: {0}")]
    Tls(#[from] tls::Invalid),
}

impl Access {
    /// Builds the access rules from the configuration. Reads certificate, key and token file.
    ///
    /// # Errors
    /// Fails if one of the files cannot be used. The error names the file and the reason.
    pub fn new(admin: &config::Admin, now: Instant) -> Result<Access, AccessError> {
        let tls = admin.tls.as_ref().map(Acceptor::new).transpose();
        let token = admin.token.as_ref().map(|token| Token::new(token, now));
        if admin.metrics_token && admin.token.is_none() {
            return Err(AccessError::NoToken);
        }
        let hosts = |address: Option<SocketAddr>| Hosts {
            local: address.is_some_and(|address| address.ip().is_loopback()),
            configured: admin.hosts.clone(),
        };
        Ok(Access {
            tls: tls?.map(Arc::new),
            token: token.transpose()?.map(Arc::new),
            hosts: hosts(admin.address),
            metrics_token: admin.metrics_token,
            own_use: admin.own_use.then(Arc::default),
            restricted: admin.restricted,
            metrics_hosts: hosts(admin.metrics_address),
        })
    }

    pub(super) fn for_metrics(&self) -> Access {
        Access {
            tls: self.tls.clone(),
            token: self.token.clone().filter(|_| self.metrics_token),
            hosts: self.metrics_hosts.clone(),
            ..Access::default()
        }
    }
}

#[derive(Clone)]
pub(super) struct Guard {
    pub(super) access: Arc<Access>,
    pub(super) clock: fn() -> Instant,
}

/// Middleware that forwards requests with access and answers others with 401 or 421.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if request.method() == Method::POST && api::is_hook(request.uri().path()) {
        return hook(&guard, request, next).await;
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if reads && request.uri().path() == api::OWN_USE {
        return own_use(&guard, request, next).await;
    }
    let Some(token) = &guard.access.token else {
        if let Some(what) = writes(&request) {
            return no_token(what);
        }
        return if guard.access.hosts.answer_to(&request) {
            next.run(request).await
        } else {
            misdirected()
        };
    };
    let path = request.uri().path();
    if health::PATHS.contains(&path) || path == runbooks::PATH || page::is_static(path) {
        return next.run(request).await;
    }
    match token.check(request.headers().get(HEADER), (guard.clock)()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refuse(refused),
    }
}

/// Why a request that writes needs a token; `None` if the request only reads.
fn writes(request: &Request) -> Option<&'static str> {
    if request.method() != Method::POST {
        return None;
    }
    match request.uri().path() {
        api::MARKS => Some("adding a mark changes what everybody sees"),
        api::SCORES => Some("a score changes what everybody sees and what gates decide"),
        _ => None,
    }
}

/// Answers a request for the usage of a key, which needs no token.
async fn own_use(guard: &Guard, request: Request, next: Next) -> Response {
    let Some(limit) = &guard.access.own_use else {
        let message = "`/api/v1/me` is disabled; set `own_use = true` in [admin] to enable it";
        return api::Problem::new(StatusCode::NOT_FOUND, message).into_response();
    };
    if guard.access.token.is_none() && !guard.access.hosts.answer_to(&request) {
        return misdirected();
    }
    let source = request.extensions().get::<Source>().copied();
    let Err(wait) = limit.take(source, (guard.clock)()) else {
        return next.run(request).await;
    };
    let message = "too many requests to /api/v1/me; try again after `retry-after`";
    let mut response = api::Problem::new(StatusCode::TOO_MANY_REQUESTS, message).into_response();
    let seconds = wait.as_secs().saturating_add(1);
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Answers a hook of a rollout, which needs the token. The token is in the header or, since Flagger's hooks have no
/// headers, in the `metadata` of the body.
async fn hook(guard: &Guard, request: Request, next: Next) -> Response {
    let Some(token) = &guard.access.token else {
        return no_token("a hook decides on a rollout");
    };
    let (head, body) = request.into_parts();
    let mut shown = head.headers.get(HEADER).cloned();
    if shown.is_none() {
        let Ok(body) = to_bytes(body, MAX_HOOK_BYTES).await else {
            let message = "the body of a hook may have at most 64 KiB";
            return api::Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message).into_response();
        };
        shown = in_metadata(&body);
    }
    match token.check(shown.as_ref(), (guard.clock)()) {
        Ok(()) => next.run(Request::from_parts(head, Body::empty())).await,
        Err(refused) => refuse(refused),
    }
}

fn no_token(what: &str) -> Response {
    let message =
        format!("{what}, so it needs a token, but none is configured: set `token_file` in [admin]");
    api::Problem::new(StatusCode::FORBIDDEN, message).into_response()
}

fn in_metadata(body: &[u8]) -> Option<HeaderValue> {
    #[derive(serde::Deserialize)]
    struct Hook {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        token: String,
    }
    let hook: Hook = serde_json::from_slice(body).ok()?;
    HeaderValue::from_str(&format!("Bearer {}", hook.metadata.token)).ok()
}

fn misdirected() -> Response {
    let message = "without a token, this address accepts only an IP address or `localhost` in `host`, and cluster \
        names (without a dot, *.svc, *.cluster.local) unless it is on loopback. Add the name to `hosts` of [admin], or \
        set `token` there";
    api::Problem::new(StatusCode::MISDIRECTED_REQUEST, message).into_response()
}

fn refuse(refused: Refused) -> Response {
    let (challenge, message) = match refused {
        Refused::Missing => (
            "Bearer realm=\"tokengauge\"",
            "this address needs the token of [admin]: send it as `authorization: Bearer …`, or in a Flagger hook as \
             `token` in `metadata`",
        ),
        Refused::Wrong => (
            "Bearer realm=\"tokengauge\", error=\"invalid_token\"",
            "the token is not the token of [admin], which may have changed",
        ),
    };
    let mut response = api::Problem::new(StatusCode::UNAUTHORIZED, message).into_response();
    let challenge = HeaderValue::from_static(challenge);
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}
