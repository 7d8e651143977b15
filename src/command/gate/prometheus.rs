//! What the proxies of a fleet say of a gate, by the Prometheus that scrapes them.

use crate::Error;
use crate::cli::{PROMETHEUS_PASSWORD, PROMETHEUS_TOKEN, PrometheusCredentials};
use crate::command::api_client;
use crate::gate::Verdict;
use crate::http_client::fetch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Sample>,
}

/// A value, after when it was so.
#[derive(Deserialize)]
struct Sample {
    value: (f64, String),
}

/// 1 where every proxy says that the gate passes, -1 where one says that it fails, else 0; nothing where there is no proxy.
pub(super) fn query(gate: &str) -> Result<String, Error> {
    let gate = super::emit::quoted(gate)?;
    let gauge = "tokengauge_gate_verdict";
    Ok(format!(
        "min({gauge}{{gate={gate},verdict=\"pass\"}}) - max({gauge}{{gate={gate},verdict=\"fail\"}})"
    ))
}

/// The verdict, and why it is that one.
pub(super) fn ask(
    gate: &str,
    address: &str,
    credentials: &PrometheusCredentials,
) -> Result<(Verdict, &'static str), Error> {
    if has_user(address) {
        let rule = "--prometheus: the URL has a user or a password in it, which others can see on the command line: name the user with \
                    --prometheus-user and a file with the password with --prometheus-password-file";
        return Err(Error::Failed(rule.to_owned()));
    }
    let query = query(gate)?;
    let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
    let address = address.trim_end_matches('/');
    let url = format!("{address}/api/v1/query?query={query}");
    let failed = |reason: String| Error::Failed(format!("{address}: {reason}"));
    let mut request = Request::get(&url);
    if let Some(authorization) = authorization(credentials)? {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(Bytes::new());
    let request = request.map_err(|error| {
        failed(format!(
            "{error}; --prometheus takes the URL of a Prometheus"
        ))
    })?;
    let answer = api_client::runtime()?.block_on(fetch(request, TIMEOUT));
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
    Ok(verdict(&answer.data.result))
}

/// Whether a URL has a user in it.
pub(in crate::command) fn has_user(address: &str) -> bool {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next();
    authority.is_some_and(|authority| authority.contains('@'))
}

/// The header that shows who asks.
pub(in crate::command) fn authorization(
    credentials: &PrometheusCredentials,
) -> Result<Option<HeaderValue>, Error> {
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
            let password = secret(password_file.as_deref(), PROMETHEUS_PASSWORD)?;
            let password = password.ok_or_else(|| {
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

fn verdict(samples: &[Sample]) -> (Verdict, &'static str) {
    let value = samples.first().map(|sample| sample.value.1.as_str());
    match value {
        Some("1") => (Verdict::Pass, "every proxy says so"),
        Some("-1") => (Verdict::Fail, "a proxy says so"),
        Some(_) => (
            Verdict::Inconclusive,
            "a proxy says so, and none that it fails",
        ),
        None => (
            Verdict::Inconclusive,
            "Prometheus has no proxy with this gate; does it scrape one that has a ledger?",
        ),
    }
}
