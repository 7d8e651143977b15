//! Who may come in at the operators' address, and how.

use super::api;
use super::page;
use super::token::{HEADER, Refused, Token};
use crate::config;
use crate::proxy::tls::Acceptor;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// What is open to everybody beside the page's own files: Kubernetes has no token.
const OPEN: [&str; 2] = ["/livez", "/readyz"];

/// Who may come in, and how. The default is everybody, without TLS.
#[derive(Default)]
pub struct Door {
    pub(super) tls: Option<Arc<Acceptor>>,
    token: Option<Token>,
    /// Only this machine gets here.
    local: bool,
}

impl Door {
    /// As configured. Reads the files that it needs, at `now`.
    ///
    /// # Errors
    /// When one of them cannot be used; the text says which and why.
    pub fn new(admin: &config::Admin, now: Instant) -> Result<Door, String> {
        let tls = admin.tls.as_ref().map(Acceptor::new).transpose();
        let token = admin.token.as_ref().map(|token| Token::new(token, now));
        Ok(Door {
            tls: tls
                .map_err(|error| format!("admin.tls: {error}"))?
                .map(Arc::new),
            token: token.transpose()?,
            local: admin
                .address
                .is_some_and(|address| address.ip().is_loopback()),
        })
    }
}

/// A door and the clock to look at.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) door: Arc<Door>,
    pub(super) clock: fn() -> Instant,
}

/// Lets a request in, or says what it lacks.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let Some(token) = &guard.door.token else {
        // A page of somebody else's, whose name was made to lead here, could ask for all.
        return match guard.door.local && !is_local(&request) {
            true => misdirected(),
            false => next.run(request).await,
        };
    };
    let path = request.uri().path();
    if OPEN.contains(&path) || page::is_static(path) {
        return next.run(request).await;
    }
    match token.check(request.headers().get(HEADER), (guard.clock)()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refuse(refused),
    }
}

/// Whether the request names this machine, or an address.
fn is_local(request: &Request) -> bool {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    let of_target = request.uri().authority().cloned();
    let Some(authority) = of_target.or(authority) else {
        return false;
    };
    let name = authority.host().trim_matches(['[', ']']);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn misdirected() -> Response {
    let message = "this address is this machine's own and goes by `localhost` or by its number; with a \
                   token in [admin] it goes by any name";
    api::Problem::new(StatusCode::MISDIRECTED_REQUEST, message).into_response()
}

fn refuse(refused: Refused) -> Response {
    let (challenge, message) = match refused {
        Refused::Missing => (
            "Bearer realm=\"tokengauge\"",
            "this address wants the token of [admin]: send it as `authorization: Bearer …`",
        ),
        Refused::Wrong => (
            "Bearer realm=\"tokengauge\", error=\"invalid_token\"",
            "this is not the token of [admin]; it may have been changed",
        ),
    };
    let mut response = api::Problem::new(StatusCode::UNAUTHORIZED, message).into_response();
    let challenge = HeaderValue::from_static(challenge);
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}
