//! A client of a running proxy's API.

use crate::Error;
use crate::cli::AdminArgs;
use bytes::Bytes;
use http::{Request, header, request};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokengauge_net::client::fetch;

const TIMEOUT: Duration = Duration::from_secs(30);

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
        let base = if args.admin.contains("://") {
            args.admin.trim_end_matches('/').to_owned()
        } else {
            format!("http://{}", args.admin)
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
        self.json(path, &self.text(path).await?)
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
        let request =
            Request::post(self.url(path)).header(header::CONTENT_TYPE, "application/json");
        let body = Bytes::from(body.to_string());
        self.json(path, &self.send(request, path, body).await?)
    }

    fn json<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ApiError> {
        serde_json::from_slice(body).map_err(|source| ApiError::Shape {
            url: self.url(path),
            source,
        })
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
        match answer.status.as_u16() {
            200 | 201 => Ok(answer.body),
            401 if self.authorization.is_some() => Err(ApiError::OtherToken(url)),
            401 => Err(ApiError::NoToken(url)),
            status => Err(ApiError::Status {
                url,
                status,
                reason: reason(&answer.body),
            }),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
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
