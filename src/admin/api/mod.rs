//! The JSON API: `/api/v1/…`.

mod calls;
mod calls_file;
mod capacity;
mod capsule;
mod costs;
mod coverage;
mod drift;
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

use super::{Admin, process_info};
use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, get, post};

pub(crate) use capsule::of_ledger as capsule_of_ledger;
pub(crate) use experiments::experiments_now;
pub(super) use gates::is_hook;
pub(super) use live::{slos_now, streams_now};
pub(crate) use marks::PATH as MARKS;
pub(super) use own_use::PATH as OWN_USE;
pub(super) use problem::Problem;
pub(super) use query_params::QueryParams;

/// Every path of the API and its handler.
fn routes() -> Vec<(&'static str, MethodRouter<Admin>)> {
    vec![
        ("/api/v1/about", get(process_info::about)),
        ("/api/v1/calls", get(calls::calls)),
        ("/api/v1/calls.parquet", get(calls_file::parquet)),
        ("/api/v1/calls/{id}", get(calls::call)),
        ("/api/v1/sessions", get(finished::sessions)),
        ("/api/v1/sessions/{id}", get(finished::session)),
        ("/api/v1/sessions/{id}/analysis", get(sessions::analysis)),
        ("/api/v1/sessions/{id}/trace", get(sessions::trace)),
        ("/api/v1/runaways", get(runaways::runaways)),
        ("/api/v1/tasks", get(finished::tasks)),
        ("/api/v1/models", get(finished::models)),
        ("/api/v1/workloads", get(finished::workloads)),
        ("/api/v1/groups", get(finished::groups)),
        (OWN_USE, get(own_use::own_use)),
        ("/api/v1/timeseries", get(finished::timeseries)),
        ("/api/v1/costs", get(costs::costs)),
        ("/api/v1/coverage", get(coverage::coverage)),
        ("/api/v1/capacity", get(capacity::capacity)),
        ("/api/v1/capsule", get(capsule::capsule)),
        ("/api/v1/experiments", get(experiments::experiments)),
        ("/api/v1/experiments/{name}", get(experiments::experiment)),
        ("/api/v1/drift", get(drift::drift)),
        ("/api/v1/gates", get(gates::gates)),
        ("/api/v1/gates/{name}", get(gates::gate)),
        ("/api/v1/gates/{name}/plan", get(gates::plan)),
        (
            "/api/v1/gates/{name}/confirm-promotion",
            post(gates::confirm_promotion),
        ),
        ("/api/v1/gates/{name}/rollback", post(gates::rollback)),
        (MARKS, get(marks::marks).post(marks::add)),
        ("/api/v1/sinks", get(sinks::sinks)),
        ("/api/v1/pods", get(fleet::pods)),
        ("/api/v1/streams", get(live::streams)),
        ("/api/v1/upstreams", get(upstreams::upstreams)),
        ("/api/v1/slos", get(live::slos)),
        ("/api/v1/slos/{name}/budget", get(live::budget)),
        ("/api/v1/events", get(events::events)),
        ("/api/v1/openapi.json", get(openapi::openapi)),
    ]
}

/// The API alone, of a process or of a fleet.
pub(super) fn router(of_fleet: bool) -> Router<Admin> {
    let all = routes().into_iter();
    all.fold(Router::new(), |router, (path, answer)| {
        let answer = match of_fleet && fleet::NOT_OF_A_FLEET.contains(&path) {
            true => answer.route_layer(from_fn(fleet::not_of_a_fleet)),
            false => answer,
        };
        router.route(path, answer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_exactly_the_paths_that_are_answered() {
        let document = openapi::document();
        let documented = document["paths"].as_object().expect("paths");
        let mut documented: Vec<&str> = documented.keys().map(String::as_str).collect();
        // The order of JSON objects depends on a feature that a dependency may switch on.
        documented.sort_unstable();
        let mut answered: Vec<&str> = routes().iter().map(|(path, _)| *path).collect();
        answered.sort_unstable();
        assert_eq!(documented, answered);
    }
}
