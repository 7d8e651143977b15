//! The JSON API: `/api/v1/…`.

mod asked;
mod events;
mod finished;
mod live;
mod problem;
mod store;

use super::Admin;
use axum::Router;
use axum::routing::{MethodRouter, get};

pub(super) use live::{slos_now, streams_now};
pub(super) use problem::Problem;

/// Every path of the API and what answers there.
fn routes() -> Vec<(&'static str, MethodRouter<Admin>)> {
    vec![
        ("/api/v1/calls", get(finished::calls)),
        ("/api/v1/sessions", get(finished::sessions)),
        ("/api/v1/sessions/{id}", get(finished::session)),
        ("/api/v1/models", get(finished::models)),
        ("/api/v1/workloads", get(finished::workloads)),
        ("/api/v1/groups", get(finished::groups)),
        ("/api/v1/timeseries", get(finished::timeseries)),
        ("/api/v1/streams", get(live::streams)),
        ("/api/v1/slos", get(live::slos)),
        ("/api/v1/events", get(events::events)),
    ]
}

/// The API alone.
pub(super) fn router() -> Router<Admin> {
    let all = routes().into_iter();
    all.fold(Router::new(), |router, (path, answer)| {
        router.route(path, answer)
    })
}
