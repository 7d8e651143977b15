//! Polls the proxy's API on a separate thread.

use super::views::{Content, View};
use crate::Error;
use crate::command::api_client::{self, ApiError, Proxy};
use crate::command::slo::status::{Row, SlosBody};
use serde::Deserialize;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokengauge_core::throughput::Rates;
use tokengauge_meter::StreamNow;
use tokengauge_process::SystemError;
use tokengauge_process::output::printable;
use tokengauge_sessions::Runaway;
use tokengauge_store::query::{GroupRow, SessionRow};

#[derive(Clone, Debug)]
pub(super) struct Update {
    pub(super) in_flight: u64,
    pub(super) tps: f64,
    /// Objectives with a firing alert, preceded by the severity.
    pub(super) firing: Vec<String>,
    pub(super) content: Content,
}

#[derive(Deserialize)]
struct Streams {
    total: u64,
    tokens_per_second: Rates,
    streams: Vec<StreamNow>,
}

#[derive(Deserialize)]
struct Models {
    store: String,
    models: Vec<GroupRow>,
}

#[derive(Deserialize)]
struct Upstreams {
    store: String,
    groups: Vec<GroupRow>,
}

#[derive(Deserialize)]
struct Sessions {
    store: String,
    sessions: Vec<SessionRow>,
}

#[derive(Deserialize)]
struct Runaways {
    runaways: Vec<Runaway>,
}

pub(super) struct Poller {
    views: Sender<View>,
    updates: Receiver<Result<Update, ApiError>>,
}

impl Poller {
    /// Polls `proxy` for the content of `view` at the interval `every`. Ends when dropped.
    pub(super) fn start(proxy: Proxy, view: View, every: Duration) -> Result<Poller, Error> {
        let (views, wanted) = channel();
        let (sender, updates) = channel();
        let runtime = api_client::runtime()?;
        let run = move || {
            let mut view = view;
            loop {
                if sender.send(runtime.block_on(poll(&proxy, view))).is_err() {
                    return;
                }
                match wanted.recv_timeout(every) {
                    Ok(other) => view = wanted.try_iter().last().unwrap_or(other),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("poller".into());
        thread
            .spawn(run)
            .map_err(|error| SystemError::Task("start a thread for requests", error))?;
        Ok(Poller { views, updates })
    }

    pub(super) fn view(&self, view: View) {
        // An error only means that the thread has ended.
        let _ = self.views.send(view);
    }

    pub(super) fn try_next(&self) -> Option<Result<Update, ApiError>> {
        self.updates.try_recv().ok()
    }

    pub(super) fn wait(&self) -> Result<Update, ApiError> {
        self.updates.recv().unwrap_or(Err(ApiError::Ended))
    }
}

async fn poll(proxy: &Proxy, view: View) -> Result<Update, ApiError> {
    let streams: Streams = proxy.get("/api/v1/streams?limit=1000").await?;
    let slos = proxy.get::<SlosBody>("/api/v1/slos").await;
    let firing = slos.as_ref().map_or(Vec::new(), |slos| firing(&slos.slos));
    let content = match view {
        View::Streams => Content::Streams(streams.streams),
        View::Models => {
            let response: Models = proxy.get("/api/v1/models?limit=1000").await?;
            Content::Models(response.store, response.models)
        }
        View::Slos => Content::Slos(slos?),
        View::Sessions => {
            let response: Sessions = proxy.get("/api/v1/sessions?limit=1000").await?;
            // Older proxies do not have this endpoint.
            let runaways: Result<Runaways, _> = proxy.get("/api/v1/runaways").await;
            let runaways = runaways.map_or(Vec::new(), |response| response.runaways);
            Content::Sessions(response.store, response.sessions, runaways)
        }
        View::Upstreams => {
            let path = "/api/v1/groups?by=upstream&limit=1000";
            let response: Upstreams = proxy.get(path).await?;
            Content::Upstreams(response.store, response.groups)
        }
    };
    Ok(Update {
        in_flight: streams.total,
        tps: streams.tokens_per_second.now,
        firing,
        content,
    })
}

fn firing(slos: &[Row]) -> Vec<String> {
    let firing = slos.iter().filter_map(|slo| {
        let alert = slo.alerts.iter().find(|alert| alert.firing)?;
        Some(format!("{} {}", alert.severity, printable(&slo.name)))
    });
    firing.collect()
}
