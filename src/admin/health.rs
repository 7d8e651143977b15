//! Whether the process runs, and whether traffic is welcome.

use super::Admin;
use arc_swap::ArcSwap;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What health checks ask for: answered to everybody, on reserved connections too.
pub(super) const PATHS: [&str; 2] = [LIVE, READY];
/// Whether the process runs.
pub(super) const LIVE: &str = "/livez";
/// Whether traffic is welcome.
pub(super) const READY: &str = "/readyz";

const STARTING: u8 = 0;
const LISTENING: u8 = 1;
const DRAINING: u8 = 2;

/// Which configuration the process runs by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Running {
    /// The one that was read last.
    #[default]
    Configured,
    /// The one before: the last was refused.
    Previous,
    /// The fallback: the one at the start was refused. Calls are forwarded.
    Fallback,
    /// The fallback, and calls are refused: the configuration may limit them.
    Refusing,
}

impl Running {
    fn sentence(self) -> &'static str {
        match self {
            Running::Configured => "the one that was read last is in use",
            Running::Previous => {
                "the last was refused, and the one before stays in use; the log says why"
            }
            Running::Fallback => {
                "refused at the start, and the fallback is in use: calls are forwarded and measured \
                 with defaults; the log says why. It is read again when it changes"
            }
            Running::Refusing => {
                "refused at the start, and the fallback is in use: calls are refused, since the \
                 configuration may limit them; the log says why. It is read again when it changes"
            }
        }
    }
}

/// Whether traffic is welcome. At first it is not.
#[derive(Debug, Default)]
pub struct Readiness {
    phase: AtomicU8,
    running: ArcSwap<Running>,
}

impl Readiness {
    /// The listeners accept connections.
    pub fn listening(&self) {
        let _ =
            self.phase
                .compare_exchange(STARTING, LISTENING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// No new traffic, please. There is no way back.
    pub fn draining(&self) {
        self.phase.store(DRAINING, Ordering::Relaxed);
    }

    /// Whether traffic is welcome.
    pub fn is_ready(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == LISTENING
    }

    /// Which configuration the process runs by, from now on.
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

/// A word, with `?verbose` and which configuration is in use. Why one was refused could quote
/// it, so that is for the log alone.
pub(super) async fn ready(
    State(admin): State<Admin>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let readiness = &admin.readiness;
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
    }
    (status, text)
}
