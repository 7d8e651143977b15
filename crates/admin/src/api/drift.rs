//! `/api/v1/drift`: what has changed against the weeks before.

use super::finished::reply;
use super::query_params::QueryParams;
use crate::Services;
use axum::extract::{RawQuery, State};
use axum::response::Response;

/// The last evaluation of every entry.
pub(super) async fn drift(State(services): State<Services>, RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        Ok(services.drifts.load_full())
    })
    .await
}
