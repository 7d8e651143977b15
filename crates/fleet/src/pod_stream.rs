//! Reads the events of a pod, and reconnects after a backoff.

use super::event_parser::{EventParser, Parsed};
use super::pod::Pod;
use super::{Dropped, Fleet};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::backoff;
use tokengauge_core::pod::PodName;
use tokengauge_net::client::{Client, Failure, StreamedResponse};
use tokengauge_net::endpoint::Protocol;
use tokio::time::{sleep, timeout};

const ANSWER: Duration = Duration::from_secs(10);
/// A pod sends its streams every second. After this time without a byte it counts as unreachable.
const SILENT: Duration = Duration::from_secs(20);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A connection that lasted this long resets the backoff.
const GOOD: Duration = Duration::from_secs(10);
/// Maximum size in bytes of a pod's response about itself.
const MAX_ABOUT: usize = 1 << 20;

/// Maximum size in bytes of a pod's answer to a request.
const MAX_ANSWER: usize = 4 << 20;

#[derive(Deserialize)]
struct About {
    version: Option<String>,
    pod: Option<PodName>,
}

/// Follows a pod until the future is dropped.
pub(super) async fn follow(pod: Arc<Pod>, fleet: Arc<Fleet>) {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let error = match connect(&pod, &fleet).await {
            Ok(events) => read(&pod, &fleet, events).await,
            Err(error) => error,
        };
        if pod.unreachable(error.clone(), SystemTime::now()) {
            let status = pod.status();
            tracing::warn!(pod = status.label(), address = %pod.at, error, "a pod cannot be reached");
        }
        if began.elapsed() >= GOOD {
            failures = 0;
        }
        sleep(backoff::delay(failures, SHORTEST_PAUSE, LONGEST_PAUSE)).await;
        failures = failures.saturating_add(1);
    }
}

async fn connect(pod: &Pod, fleet: &Fleet) -> Result<StreamedResponse, String> {
    // Without this limit, there would be a thousand concurrent file reads and TLS handshakes.
    let _turn = fleet.connecting.acquire().await;
    let (url, client) = client(pod, fleet)?;
    let client = client.max_body(MAX_ABOUT);
    let about = request(&url, "/api/v1/about", fleet)?;
    let about = in_time(client.send(&about)).await?;
    let has_token = fleet.settings.token.is_some();
    check(about.status, has_token)?;
    let about: About = serde_json::from_slice(&about.body).map_err(|error| {
        format!(
            "the pod is not a tokengauge proxy of a compatible version: \
            {error}"
        )
    })?;
    let events = request(&url, "/api/v1/events", fleet)?;
    let events = in_time(client.stream(&events)).await?;
    check(events.status, has_token)?;
    pod.connected(
        about.pod.unwrap_or_default(),
        about.version,
        SystemTime::now(),
    );
    tracing::info!(pod = pod.status().label(), address = %pod.at, "follows a pod");
    Ok(events)
}

/// The body of the pod's answer to `GET path`.
pub(super) async fn ask(pod: &Pod, path: &str, fleet: &Fleet) -> Result<Bytes, String> {
    let (url, client) = client(pod, fleet)?;
    let client = client.max_body(MAX_ANSWER);
    let response = in_time(client.send(&request(&url, path, fleet)?)).await?;
    check(response.status, fleet.settings.token.is_some())?;
    Ok(response.body)
}

/// The pod's address, and a client for it.
fn client(pod: &Pod, fleet: &Fleet) -> Result<(String, Client), String> {
    let url = pod.address.url(pod.at);
    let uri: Uri = url
        .parse()
        .map_err(|error| format!("{url} is not a URL: {error}"))?;
    let client = Client::new(&uri, &fleet.settings.tls, Protocol::Http1)
        .map_err(|error| error.to_string())?;
    Ok((url, client.at(pod.at)))
}

fn request(url: &str, path: &str, fleet: &Fleet) -> Result<Request<Bytes>, String> {
    let mut request = Request::get(format!("{url}{path}"));
    if let Some(token) = &fleet.settings.token {
        let token = token
            .read()
            .map_err(|error| format!("the token: {error}"))?;
        request = request.header(
            header::AUTHORIZATION,
            format!("Bearer {}", token.unwrap_or_default()),
        );
    }
    let request = request.body(Bytes::new());
    request.map_err(|_| {
        "the token contains characters that are not allowed in an HTTP \
        header"
            .to_owned()
    })
}

async fn in_time<T>(response: impl Future<Output = Result<T, Failure>>) -> Result<T, String> {
    match timeout(ANSWER, response).await {
        Ok(Err(Failure::Connect(error))) => Err(format!(
            "cannot connect to the pod: {error}; check that it is running and that its [admin] \
             address is reachable from here"
        )),
        Ok(response) => response.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "the pod did not respond within {} s",
            ANSWER.as_secs()
        )),
    }
}

fn check(status: StatusCode, has_token: bool) -> Result<(), String> {
    let todo = match status.as_u16() {
        200 => return Ok(()),
        401 | 403 if has_token => {
            "the token in --pods-token-file differs from the token of the pod's [admin]"
        }
        401 | 403 => "set --pods-token-file to a file with the token of the pod's [admin]",
        421 => {
            "the pod does not accept this host name: add it to `hosts` of the pod's [admin], or \
             set a token there"
        }
        503 => "the pod already has too many event listeners",
        _ => "check that this is the pod's admin address",
    };
    Err(format!("the pod answered {}: {todo}", status.as_u16()))
}

/// Reads events until the stream ends, and returns why it ended.
async fn read(pod: &Pod, fleet: &Fleet, mut events: StreamedResponse) -> String {
    let mut parser = EventParser::default();
    loop {
        match timeout(SILENT, events.next()).await {
            Ok(Ok(Some(bytes))) => parser.push(&bytes, |event| take(pod, fleet, event)),
            Ok(Ok(None)) => return "the pod ended its event stream".to_owned(),
            Ok(Err(error)) => return format!("the connection was lost: {error}"),
            Err(_) => return format!("the pod sent nothing for {} s", SILENT.as_secs()),
        }
    }
}

fn take(pod: &Pod, fleet: &Fleet, event: Parsed<'_>) {
    let taken = match event {
        Parsed::TooLarge => return fleet.dropped(Dropped::TooLarge, 1),
        Parsed::Event("streams", data) => pod.take_streams(data),
        Parsed::Event("slos", data) if fleet.objectives_of_pods() => pod.take_objectives(data),
        Parsed::Event("call", data) => (fleet.settings.finished)(data, pod.name().as_deref()),
        Parsed::Event("lost", data) => {
            let lost: Result<Lost, _> = serde_json::from_slice(data);
            lost.map(|lost| fleet.dropped(Dropped::Slow, lost.events))
        }
        Parsed::Event(..) => Ok(()),
    };
    if taken.is_err() {
        fleet.dropped(Dropped::Unreadable, 1);
    }
}

#[derive(Deserialize)]
struct Lost {
    events: u64,
}
