//! An API client for a running proxy.

use crate::cli::AdminArgs;
use bytes::Bytes;
use http::{Request, header, request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_config::DEFAULT_ADMIN;
use tokengauge_net::client::fetch;
use tokengauge_process::{Fatal, SystemError};

const TIMEOUT: Duration = Duration::from_secs(30);
const GUESS: Duration = Duration::from_secs(2);
/// The header of errors that a proxy itself sends to agents.
const PROXY_ERROR: &str = "x-tokengauge-error";

#[derive(Clone, Debug)]
pub(super) struct Proxy {
    base: String,
    authorization: Option<String>,
}

impl Proxy {
    /// Creates a client from the command line options and the token file.
    ///
    /// # Errors
    /// Returns an error if the token file cannot be read.
    pub(super) fn of(args: &AdminArgs) -> Result<Proxy, ApiError> {
        let base = if args.admin.contains("://") {
            args.admin.trim_end_matches('/').to_owned()
        } else {
            format!("http://{}", args.admin)
        };
        let token = match &args.token_file {
            Some(path) => {
                let token = std::fs::read_to_string(path);
                let token = token.map_err(|error| ApiError::TokenFile(path.clone(), error))?;
                Some(token.trim().to_owned())
            }
            None => args.token.clone(),
        };
        Ok(Proxy {
            base,
            authorization: token.map(|token| format!("Bearer {token}")),
        })
    }

    pub(super) fn address(&self) -> &str {
        &self.base
    }

    /// Gets JSON from `path`.
    ///
    /// # Errors
    /// Returns an error if there is no response, or a response with another status or another shape.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.json(path, &self.text(path).await?).await
    }

    /// Gets bytes from `path`.
    ///
    /// # Errors
    /// Returns the errors of [`Proxy::get`].
    pub(super) async fn text(&self, path: &str) -> Result<Bytes, ApiError> {
        self.send(Request::get(self.url(path)), path, Bytes::new())
            .await
    }

    /// Posts `body` to `path` and returns the JSON of the response.
    ///
    /// # Errors
    /// Returns the errors of [`Proxy::get`].
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, ApiError> {
        let request =
            Request::post(self.url(path)).header(header::CONTENT_TYPE, "application/json");
        let body = Bytes::from(body.to_string());
        self.json(path, &self.send(request, path, body).await?)
            .await
    }

    async fn json<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ApiError> {
        match serde_json::from_slice(body) {
            Ok(response) => Ok(response),
            Err(source) => {
                let url = self.url(path);
                Err(self.explained(ApiError::Shape { url, source }, false).await)
            }
        }
    }

    async fn send(
        &self,
        mut request: request::Builder,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ApiError> {
        let url = self.url(path);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(body);
        let request = match request {
            Ok(request) => request,
            Err(source) => return Err(ApiError::Url { url, source }),
        };
        let response = match fetch(request, TIMEOUT).await {
            Ok(response) => response,
            Err(source) => return Err(ApiError::NoResponse { url, source }),
        };
        let error = match response.status.as_u16() {
            200 | 201 => return Ok(response.body),
            401 if self.authorization.is_some() => ApiError::OtherToken(url),
            401 => ApiError::NoToken(url),
            status => ApiError::Status {
                url,
                status,
                reason: reason(&response.body),
            },
        };
        let from_proxy = response.headers.contains_key(PROXY_ERROR);
        Err(self.explained(error, from_proxy).await)
    }

    /// Returns the error to report instead of `error` if the address is not an admin address. `from_proxy` says that a
    /// proxy answered, but at the address for agents.
    async fn explained(&self, error: ApiError, from_proxy: bool) -> ApiError {
        let address = self.base.clone();
        if let Some(admin) = self.admin_address().await {
            return ApiError::Traffic { address, admin };
        }
        if from_proxy {
            return ApiError::TrafficOfUnknown { address };
        }
        match about(&self.base, self.authorization.as_deref()).await {
            Some(response) if response["version"].is_null() => ApiError::NoAdmin(Box::new(error)),
            _ => error,
        }
    }

    async fn admin_address(&self) -> Option<String> {
        let uri: http::Uri = self.base.parse().ok()?;
        let port = uri.port_u16()?;
        let admin = format!("{}:{}", uri.host()?, DEFAULT_ADMIN.port());
        if port == DEFAULT_ADMIN.port() {
            return None;
        }
        // No token is sent, because the address is a guess.
        let about = about(&format!("http://{admin}"), None).await?;
        let mut listeners = about["listeners"].as_array()?.iter();
        let has_port = |listener: &Value| {
            let address = listener["address"].as_str();
            let found = address.and_then(|address| address.rsplit_once(':'));
            found.is_some_and(|(_, found)| found.parse() == Ok(port))
        };
        listeners.any(has_port).then_some(admin)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// Returns the API response about the process at `base`, or `null` if the process is not a proxy. Returns `None` if
/// there is no response or if another token is required.
async fn about(base: &str, authorization: Option<&str>) -> Option<Value> {
    let mut request = Request::get(format!("{base}/api/v1/about"));
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let response = fetch(request.body(Bytes::new()).ok()?, GUESS).await.ok()?;
    match response.status.as_u16() {
        401 | 403 => None,
        _ => Some(serde_json::from_slice(&response.body).unwrap_or_default()),
    }
}

/// A failed request to a proxy. The message contains the URL, what happened and what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("cannot read the token file {path}: {1}", path = .0.display())]
    TokenFile(PathBuf, #[source] std::io::Error),
    #[error("{url}: {source}")]
    Url { url: String, source: http::Error },
    #[error("{url}: {source}; is the proxy running there? Set its address with --admin")]
    NoResponse { url: String, source: std::io::Error },
    #[error("{url}: {source}; is it a tokengauge of this version?")]
    Shape {
        url: String,
        source: serde_json::Error,
    },
    #[error(
        "{0}: the proxy requires the token of its [admin], but no token was given; \
         set the token with --token-file FILE or TOKENGAUGE_ADMIN_TOKEN"
    )]
    NoToken(String),
    #[error(
        "{0}: the proxy requires the token of its [admin], but a different token was given; \
         set the token with --token-file FILE or TOKENGAUGE_ADMIN_TOKEN"
    )]
    OtherToken(String),
    #[error(
        "{address} is the traffic address of a tokengauge proxy; its admin address is {admin}; use --admin {admin}"
    )]
    Traffic { address: String, admin: String },
    #[error(
        "{address} is the traffic address of a tokengauge proxy; --admin needs its admin address, which `tokengauge run` \
         prints at the start (`admin on ADDRESS`) and `listen` in [admin] sets [default: 127.0.0.1:9464]"
    )]
    TrafficOfUnknown { address: String },
    #[error(
        "{0}. This is not the admin address of a tokengauge proxy. If agents connect there, look for `admin on ADDRESS`, which \
         `tokengauge run` prints at the start [default: 127.0.0.1:9464]"
    )]
    NoAdmin(Box<ApiError>),
    #[error("{url}: answered {status}{reason}")]
    Status {
        url: String,
        status: u16,
        reason: String,
    },
    #[error("the thread that polls the proxy has ended")]
    Ended,
}

impl Fatal for ApiError {}

/// Percent-encodes text for a path or a query. In a path, a plus sign is not a space.
pub(super) fn encoded(text: &str) -> String {
    let text: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    text.replace('+', "%20")
}

fn reason(body: &[u8]) -> String {
    let problem: Option<Value> = serde_json::from_slice(body).ok();
    let message = problem
        .as_ref()
        .and_then(|problem| problem["error"]["message"].as_str());
    message.map_or(String::new(), |message| format!(": {message}"))
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, SystemError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| SystemError::Task("start a thread for requests", error))
}
