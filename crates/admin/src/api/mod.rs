//! The JSON API: `/api/v1/…`.

mod calls;
mod calls_file;
mod capacity;
mod capsule;
mod costs;
mod coverage;
mod drift;
mod endpoint;
mod endpoints;
mod events;
mod experiments;
mod finished;
mod fleet;
mod gates;
mod live;
mod marks;
mod openapi;
mod own_use;
mod problem;
mod query_params;
mod runaways;
mod sessions;
mod sinks;
mod store;
mod unsettled;
mod upstreams;

use super::Services;
use axum::Router;
use axum::middleware::from_fn;

pub use capsule::of_ledger as capsule_of_ledger;
pub use experiments::experiments_now;
pub(super) use gates::is_hook;
pub(super) use live::{slos_now, streams_now};
pub use marks::PATH as MARKS;
pub(super) use own_use::PATH as OWN_USE;
pub(super) use problem::Problem;
pub(super) use query_params::QueryParams;
pub use store::Store;

/// The API alone, of a process or of a fleet.
pub(super) fn router(of_fleet: bool) -> Router<Services> {
    let all = endpoints::endpoints().into_iter();
    all.fold(Router::new(), |router, endpoint| {
        let answer = match of_fleet && endpoint.of_one_process {
            true => endpoint.handler.route_layer(from_fn(fleet::not_of_a_fleet)),
            false => endpoint.handler,
        };
        router.route(endpoint.path, answer)
    })
}
