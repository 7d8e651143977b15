//! A client of a running proxy's API.

use crate::Error;
use crate::cli::AdminArgs;
use bytes::Bytes;
use http::{Request, header, request};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokengauge_config::DEFAULT_ADMIN;
use tokengauge_net::client::fetch;

const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a guess about the admin address may take.
const GUESS: Duration = Duration::from_secs(2);
/// The header of errors that a proxy itself sends to agents.
const PROXY_ERROR: &str = "x-tokengauge-error";

/// A running proxy.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    base: String,
    authorization: Option<String>,
}

impl Proxy {
    /// The proxy of the command line's options; reads the token's file.
    ///
    /// # Errors
    /// Where that file cannot be read.
    pub(super) fn of(args: &AdminArgs) -> Result<Proxy, Error> {
        let base = match args.admin.contains("://") {
            true => args.admin.trim_end_matches('/').to_owned(),
            false => format!("http://{}", args.admin),
        };
        let token = match &args.token_file {
            Some(path) => {
                let token = std::fs::read_to_string(path).map_err(|error| {
                    Error::Failed(format!("the token file {}: {error}", path.display()))
                })?;
                Some(token.trim().to_owned())
            }
            None => args.token.clone(),
        };
        Ok(Proxy {
            base,
            authorization: token.map(|token| format!("Bearer {token}")),
        })
    }

    /// The proxy's admin address.
    pub(super) fn address(&self) -> &str {
        &self.base
    }

    /// The JSON that it answers at `path`.
    ///
    /// # Errors
    /// Where there is no answer, or one of another status or shape.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.json(path, &self.text(path).await?).await
    }

    /// The bytes that it answers at `path`.
    ///
    /// # Errors
    /// As with [`Proxy::get`].
    pub(super) async fn text(&self, path: &str) -> Result<Bytes, ApiError> {
        self.send(Request::get(self.url(path)), path, Bytes::new())
            .await
    }

    /// The JSON that it answers to `body` at `path`.
    ///
    /// # Errors
    /// As with [`Proxy::get`].
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<T, ApiError> {
        let request = Request::post(self.url(path));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let body = Bytes::from(body.to_string());
        self.json(path, &self.send(request, path, body).await?)
            .await
    }

    async fn json<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ApiError> {
        match serde_json::from_slice(body) {
            Ok(answer) => Ok(answer),
            Err(source) => {
                let url = self.url(path);
                let traffic = self.traffic_address(false).await;
                Err(traffic.unwrap_or(ApiError::Shape { url, source }))
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
        let answer = match fetch(request, TIMEOUT).await {
            Ok(answer) => answer,
            Err(source) => return Err(ApiError::NoAnswer { url, source }),
        };
        let error = match answer.status.as_u16() {
            200 | 201 => return Ok(answer.body),
            401 if self.authorization.is_some() => ApiError::OtherToken(url),
            401 => ApiError::NoToken(url),
            status => ApiError::Status {
                url,
                status,
                reason: reason(&answer.body),
            },
        };
        let from_proxy = answer.headers.contains_key(PROXY_ERROR);
        Err(self.traffic_address(from_proxy).await.unwrap_or(error))
    }

    /// The error for an address where agents connect. It is certain with `from_proxy`. Otherwise the proxy at the default
    /// admin port of the host says so, if there is one.
    async fn traffic_address(&self, from_proxy: bool) -> Option<ApiError> {
        let address = self.base.clone();
        let uri: http::Uri = self.base.parse().ok()?;
        let admin = format!("{}:{}", uri.host()?, DEFAULT_ADMIN.port());
        let admin = match uri.port_u16()? {
            port if port == DEFAULT_ADMIN.port() => None,
            port => listens_on(&admin, port).await.then_some(admin),
        };
        match admin {
            Some(admin) => Some(ApiError::Traffic { address, admin }),
            None => from_proxy.then_some(ApiError::TrafficOfUnknown { address }),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// Whether the proxy with the admin address `admin` listens for agents on `port`. The token is not sent there: the address
/// is a guess.
async fn listens_on(admin: &str, port: u16) -> bool {
    let request = Request::get(format!("http://{admin}/api/v1/about")).body(Bytes::new());
    let Ok(request) = request else {
        return false;
    };
    let Ok(answer) = fetch(request, GUESS).await else {
        return false;
    };
    let about: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let listeners = about["listeners"].as_array().into_iter().flatten();
    let mut ports = listeners.filter_map(|listener| {
        let (_, port) = listener["address"].as_str()?.rsplit_once(':')?;
        port.parse::<u16>().ok()
    });
    ports.any(|one| one == port)
}

/// Why a request to a proxy failed: the URL, what happened and what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("{url}: {source}")]
    Url { url: String, source: http::Error },
    #[error("{url}: {source}; is the proxy running there? --admin names its address")]
    NoAnswer { url: String, source: std::io::Error },
    #[error("{url}: {source}; is it a tokengauge of this version?")]
    Shape {
        url: String,
        source: serde_json::Error,
    },
    #[error(
        "{0}: the proxy wants the token of its [admin], and this is none: \
         --token-file FILE or TOKENGAUGE_ADMIN_TOKEN names it"
    )]
    NoToken(String),
    #[error(
        "{0}: the proxy wants the token of its [admin], and this is another one: \
         --token-file FILE or TOKENGAUGE_ADMIN_TOKEN names it"
    )]
    OtherToken(String),
    #[error(
        "{address} is the traffic address of a tokengauge proxy; its admin address is {admin}: --admin {admin}"
    )]
    Traffic { address: String, admin: String },
    #[error(
        "{address} is the traffic address of a tokengauge proxy; --admin needs its admin address, which `tokengauge run` \
         prints at the start (`admin on ADDRESS`) and `listen` in [admin] sets [default: 127.0.0.1:9464]"
    )]
    TrafficOfUnknown { address: String },
    #[error("{url}: answered {status}{reason}")]
    Status {
        url: String,
        status: u16,
        reason: String,
    },
    /// The thread that polls has ended.
    #[error("asking ended")]
    Ended,
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Error {
        Error::Failed(error.to_string())
    }
}

/// The message of an error of the API.
fn reason(body: &[u8]) -> String {
    let problem: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = problem
        .as_ref()
        .and_then(|problem| problem["error"]["message"].as_str());
    message.map_or(String::new(), |message| format!(": {message}"))
}

/// A runtime of one thread, for commands that send requests.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Failed(format!("cannot start asking: {error}")))
}
