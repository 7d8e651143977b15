//! A client for the HTTP API of Prometheus.

use crate::Error;
use crate::cli::{PROMETHEUS_PASSWORD, PROMETHEUS_TOKEN, PrometheusCredentials};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokengauge_net::client::fetch;

const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct PrometheusClient {
    address: String,
    credentials: PrometheusCredentials,
}

/// A series of an answer.
#[derive(Deserialize)]
pub(super) struct Sample {
    /// Its labels, the name among them.
    pub(super) metric: BTreeMap<String, String>,
    /// When it has its value, and that.
    pub(super) value: (f64, String),
}

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Sample>,
}

impl PrometheusClient {
    /// # Errors
    /// Where the URL or the credentials cannot be used.
    pub(super) fn new(
        address: &str,
        credentials: &PrometheusCredentials,
    ) -> Result<PrometheusClient, Error> {
        if has_user(address) {
            let rule = "--prometheus: the URL has a user or a password in it, which others can see on the command line: name the user with \
                        --prometheus-user and a file with the password with --prometheus-password-file";
            return Err(Error::Failed(rule.to_owned()));
        }
        authorization(credentials)?;
        Ok(PrometheusClient {
            address: address.trim_end_matches('/').to_owned(),
            credentials: credentials.clone(),
        })
    }

    /// What a query gives now. Credentials in files are read again.
    ///
    /// # Errors
    /// Where it does not answer, wants other credentials or is no Prometheus.
    pub(super) async fn query(&self, query: &str) -> Result<Vec<Sample>, Error> {
        let address = &self.address;
        let failed = |reason: String| Error::Failed(format!("{address}: {reason}"));
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let mut request = Request::get(format!("{address}/api/v1/query?query={query}"));
        if let Some(authorization) = authorization(&self.credentials)? {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Bytes::new()).map_err(|error| {
            failed(format!(
                "{error}; --prometheus takes the URL of a Prometheus"
            ))
        })?;
        let answer = fetch(request, TIMEOUT).await;
        let answer =
            answer.map_err(|error| failed(format!("{error}; is a Prometheus running there?")))?;
        let status = answer.status.as_u16();
        if matches!(status, 401 | 403) {
            return Err(failed(format!(
                "answered {status}: it wants other credentials; --prometheus-token-file, or --prometheus-user with \
                 --prometheus-password-file, name them"
            )));
        }
        if status != 200 {
            return Err(failed(format!("answered {status}; is it a Prometheus?")));
        }
        let answer: Answer = serde_json::from_slice(&answer.body)
            .map_err(|error| failed(format!("{error}; is it a Prometheus?")))?;
        Ok(answer.data.result)
    }
}

fn has_user(address: &str) -> bool {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next();
    authority.is_some_and(|authority| authority.contains('@'))
}

fn authorization(credentials: &PrometheusCredentials) -> Result<Option<HeaderValue>, Error> {
    let PrometheusCredentials {
        prometheus_token_file: token_file,
        prometheus_user: user,
        prometheus_password_file: password_file,
    } = credentials;
    let text = match user {
        Some(user) if user.contains(':') => {
            let rule = "--prometheus-user: a user's name has no colon in basic authentication";
            return Err(Error::Failed(rule.to_owned()));
        }
        Some(user) => {
            let password = secret(password_file.as_deref(), PROMETHEUS_PASSWORD)?.ok_or_else(|| {
                Error::Failed(format!(
                    "--prometheus-user: there is no password: name a file with --prometheus-password-file, or set {PROMETHEUS_PASSWORD}"
                ))
            })?;
            let pair = STANDARD.encode(format!("{user}:{password}"));
            Some(format!("Basic {pair}"))
        }
        None => {
            secret(token_file.as_deref(), PROMETHEUS_TOKEN)?.map(|token| format!("Bearer {token}"))
        }
    };
    let Some(text) = text else { return Ok(None) };
    let mut header = HeaderValue::from_str(&text).map_err(|_| {
        // What it is stays out of the message.
        let rule = "the credentials for --prometheus have characters that no header may have, such as a line end";
        Error::Failed(rule.to_owned())
    })?;
    header.set_sensitive(true);
    Ok(Some(header))
}

/// A secret: what is in the file, else in the variable.
fn secret(file: Option<&Path>, variable: &str) -> Result<Option<String>, Error> {
    let text = match file {
        Some(file) => std::fs::read_to_string(file)
            .map(Some)
            .map_err(|error| Error::Failed(format!("{}: {error}", file.display())))?,
        None => std::env::var(variable).ok(),
    };
    let text = text.map(|text| text.trim().to_owned());
    match (file, text.filter(|text| !text.is_empty())) {
        (Some(file), None) => Err(Error::Failed(format!("{} is empty", file.display()))),
        (_, text) => Ok(text),
    }
}
