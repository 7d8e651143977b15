//! The JSON API: `/api/v1/…`.

mod cache_breaks;
mod call_source;
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
mod gates;
mod live;
mod marks;
mod openapi;
mod own_use;
mod problem;
mod prompt_tools;
mod query_params;
mod runaways;
mod scores;
mod sessions;
mod sinks;
mod stream_filter;
mod unsettled;
mod upstreams;

use super::Services;
use axum::Router;

pub use call_source::CallSource;
pub use capsule::of_ledger as capsule_of_ledger;
pub use experiments::experiments_now;
pub(super) use gates::is_hook;
pub use marks::PATH as MARKS;
pub(super) use own_use::PATH as OWN_USE;
pub(super) use problem::Problem;
pub(super) use query_params::{DEFAULT_LIMIT, QueryParams};
pub use scores::{MAX_SCORES, PATH as SCORES};
pub(super) use stream_filter::StreamFilter;

pub(super) fn router() -> Router<Services> {
    let all = endpoints::endpoints().into_iter();
    all.fold(Router::new(), |router, endpoint| {
        router.route(endpoint.path, endpoint.handler)
    })
}
