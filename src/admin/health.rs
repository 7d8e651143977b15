//! Whether the process runs, and whether traffic is welcome.

use super::Admin;
use axum::extract::State;
use axum::http::StatusCode;
use std::sync::atomic::{AtomicU8, Ordering};

/// What health checks ask for: answered to everybody, on reserved connections too.
pub(super) const PATHS: [&str; 2] = ["/livez", "/readyz"];

const STARTING: u8 = 0;
const LISTENING: u8 = 1;
const DRAINING: u8 = 2;

/// Whether traffic is welcome. At first it is not.
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// The listeners accept connections.
    pub fn listening(&self) {
        let _ = self
            .0
            .compare_exchange(STARTING, LISTENING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// No new traffic, please. There is no way back.
    pub fn draining(&self) {
        self.0.store(DRAINING, Ordering::Relaxed);
    }

    /// Whether traffic is welcome.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed) == LISTENING
    }

    fn word(&self) -> &'static str {
        match self.0.load(Ordering::Relaxed) {
            STARTING => "starting\n",
            LISTENING => "ready\n",
            _ => "draining\n",
        }
    }
}

pub(super) async fn live() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    let status = if admin.readiness.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, admin.readiness.word())
}
