//! The health checks: liveness, and readiness for traffic.

use super::Services;
use arc_swap::ArcSwap;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The paths of health checks. They need no token and are served on reserved connections.
pub(super) const PATHS: [&str; 2] = [LIVE, READY];
pub(super) const LIVE: &str = "/livez";
pub(super) const READY: &str = "/readyz";

const STARTING: u8 = 0;
const LISTENING: u8 = 1;
const DRAINING: u8 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Running {
    #[default]
    Configured,
    /// The previous configuration, since the last one was refused.
    Previous,
    /// The fallback, since the configuration at the start was refused. Calls are forwarded.
    Fallback,
    /// The fallback. Calls are refused, since the refused configuration may limit them.
    Refusing,
}

impl Running {
    fn sentence(self) -> &'static str {
        match self {
            Running::Configured => "the configuration that was read last is in use",
            Running::Previous => {
                "the last configuration was refused, and the previous one remains in use; the log says why"
            }
            Running::Fallback => {
                "the configuration was refused at the start, and the fallback is in use: calls are forwarded and measured \
                 with defaults. The log says why. The configuration is read again when it changes"
            }
            Running::Refusing => {
                "the configuration was refused at the start, and the fallback is in use: calls are refused, since the \
                 configuration may limit them. The log says why. The configuration is read again when it changes"
            }
        }
    }
}

/// Whether the process is ready for traffic. Initially it is not.
#[derive(Debug, Default)]
pub struct Readiness {
    phase: AtomicU8,
    running: ArcSwap<Running>,
}

impl Readiness {
    pub fn listening(&self) {
        let _ =
            self.phase
                .compare_exchange(STARTING, LISTENING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Records that the process drains. It never becomes ready again.
    pub fn draining(&self) {
        self.phase.store(DRAINING, Ordering::Relaxed);
    }

    pub fn is_ready(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == LISTENING
    }

    pub fn runs_by(&self, running: Running) {
        self.running.store(Arc::new(running));
    }

    fn word(&self) -> &'static str {
        match self.phase.load(Ordering::Relaxed) {
            STARTING => "starting\n",
            LISTENING => "ready\n",
            _ => "draining\n",
        }
    }
}

pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// Responds with the readiness. With `?verbose` the response also contains which configuration is in use and whether the
/// ledger can be written, which does not affect readiness. The reason for a refusal is only logged, since it may quote the
/// configuration.
pub(super) async fn ready(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let readiness = &services.readiness;
    let status = if readiness.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut text = readiness.word().to_owned();
    let parts = query.as_deref().unwrap_or_default();
    let is_verbose = |part: &str| part.split('=').next() == Some("verbose");
    if parts.split('&').any(is_verbose) {
        let sentence = readiness.running.load().sentence();
        text += &format!("configuration: {sentence}\n");
        if let Some(ledger) = services.call_source.ledger() {
            text += &match ledger.unwritable() {
                None => "ledger: finished calls are written\n".to_owned(),
                Some(reason) => format!(
                    "ledger: the file cannot be written ({reason}); traffic is not affected, and sinks send calls from memory. \
                     The log says why\n"
                ),
            };
        }
    }
    (status, text)
}
