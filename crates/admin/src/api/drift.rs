//! `/api/v1/drift`: what has changed against the weeks before.

use super::finished::reply;
use super::query_params::QueryParams;
use crate::ProcessServices;
use axum::extract::RawQuery;
use axum::response::Response;
use std::sync::Arc;

/// The last evaluation of every entry.
pub(super) async fn drift(process: Arc<ProcessServices>, RawQuery(query): RawQuery) -> Response {
    reply(async {
        QueryParams::of(query.as_deref(), &[])?;
        Ok(process.drifts.load_full())
    })
    .await
}
