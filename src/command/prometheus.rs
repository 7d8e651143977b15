//! A client for the HTTP API of Prometheus.

use super::api_client::encoded;
use crate::cli::{PROMETHEUS_PASSWORD, PROMETHEUS_TOKEN, PrometheusCredentials};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokengauge_net::client::fetch;
use tokengauge_process::{Fatal, SystemError};

const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct PrometheusClient {
    address: String,
    credentials: PrometheusCredentials,
}

#[derive(Deserialize)]
pub(super) struct Sample {
    /// The labels, including the name.
    pub(super) metric: BTreeMap<String, String>,
    /// The timestamp and the value.
    pub(super) value: (f64, String),
}

#[derive(Deserialize)]
struct QueryBody {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Sample>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PrometheusError {
    #[error(
        "--prometheus: the URL contains a user or a password, which others can see on the command line; name the user with \
         --prometheus-user and a file with the password with --prometheus-password-file"
    )]
    UserInUrl,
    #[error("--prometheus-user: a user name for basic authentication must not contain a colon")]
    ColonInUser,
    #[error(
        "--prometheus-user: there is no password; name a file with --prometheus-password-file, or set {PROMETHEUS_PASSWORD}"
    )]
    NoPassword,
    #[error(
        "the credentials for --prometheus contain characters that are not allowed in a header, such as a line break"
    )]
    NoHeader,
    #[error(transparent)]
    File(#[from] SystemError),
    #[error("{file} is empty", file = .0.display())]
    Empty(PathBuf),
    #[error("{0}: {1}; --prometheus must be the URL of a Prometheus")]
    Url(String, #[source] http::Error),
    #[error("{0}: {1}; is a Prometheus running there?")]
    NoResponse(String, #[source] std::io::Error),
    #[error(
        "{0}: answered {1}: the credentials are missing or wrong; set them with --prometheus-token-file, or \
         --prometheus-user and --prometheus-password-file"
    )]
    Credentials(String, u16),
    #[error("{0}: answered {1}; is it a Prometheus?")]
    Status(String, u16),
    #[error("{0}: {1}; is it a Prometheus?")]
    Shape(String, #[source] serde_json::Error),
}

impl Fatal for PrometheusError {}

impl PrometheusClient {
    /// # Errors
    /// Returns an error if the URL or the credentials cannot be used.
    pub(super) fn new(
        address: &str,
        credentials: &PrometheusCredentials,
    ) -> Result<PrometheusClient, PrometheusError> {
        if has_user(address) {
            return Err(PrometheusError::UserInUrl);
        }
        authorization(credentials)?;
        Ok(PrometheusClient {
            address: address.trim_end_matches('/').to_owned(),
            credentials: credentials.clone(),
        })
    }

    /// Runs an instant query. Credentials are read from their files again.
    ///
    /// # Errors
    /// Returns an error if the server does not answer, rejects the credentials or is not a Prometheus.
    pub(super) async fn query(&self, query: &str) -> Result<Vec<Sample>, PrometheusError> {
        let address = &self.address;
        let url = || address.clone();
        let query = encoded(query);
        let mut request = Request::get(format!("{address}/api/v1/query?query={query}"));
        if let Some(authorization) = authorization(&self.credentials)? {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Bytes::new());
        let request = request.map_err(|error| PrometheusError::Url(url(), error))?;
        let response = fetch(request, TIMEOUT).await;
        let response = response.map_err(|error| PrometheusError::NoResponse(url(), error))?;
        let status = response.status.as_u16();
        if matches!(status, 401 | 403) {
            return Err(PrometheusError::Credentials(url(), status));
        }
        if status != 200 {
            return Err(PrometheusError::Status(url(), status));
        }
        let response: QueryBody = serde_json::from_slice(&response.body)
            .map_err(|error| PrometheusError::Shape(url(), error))?;
        Ok(response.data.result)
    }
}

fn has_user(address: &str) -> bool {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next();
    authority.is_some_and(|authority| authority.contains('@'))
}

fn authorization(
    credentials: &PrometheusCredentials,
) -> Result<Option<HeaderValue>, PrometheusError> {
    let PrometheusCredentials {
        prometheus_token_file: token_file,
        prometheus_user: user,
        prometheus_password_file: password_file,
    } = credentials;
    let text = match user {
        Some(user) if user.contains(':') => {
            return Err(PrometheusError::ColonInUser);
        }
        Some(user) => {
            let password = secret(password_file.as_deref(), PROMETHEUS_PASSWORD)?;
            let password = password.ok_or(PrometheusError::NoPassword)?;
            let pair = STANDARD.encode(format!("{user}:{password}"));
            Some(format!("Basic {pair}"))
        }
        None => {
            secret(token_file.as_deref(), PROMETHEUS_TOKEN)?.map(|token| format!("Bearer {token}"))
        }
    };
    let Some(text) = text else { return Ok(None) };
    // The message must not contain the secret.
    let mut header = HeaderValue::from_str(&text).map_err(|_| PrometheusError::NoHeader)?;
    header.set_sensitive(true);
    Ok(Some(header))
}

fn secret(file: Option<&Path>, variable: &str) -> Result<Option<String>, PrometheusError> {
    let text = match file {
        Some(file) => std::fs::read_to_string(file)
            .map(Some)
            .map_err(SystemError::read(file))?,
        None => std::env::var(variable).ok(),
    };
    let text = text.map(|text| text.trim().to_owned());
    match (file, text.filter(|text| !text.is_empty())) {
        (Some(file), None) => Err(PrometheusError::Empty(file.to_owned())),
        (_, text) => Ok(text),
    }
}
