//! `/api/v1/drift`: what has changed since earlier weeks.

use super::problem::JsonResponse;
use super::query_params::QueryParams;
use crate::{Drifts, ProcessServices};
use axum::Json;
use axum::extract::RawQuery;
use std::sync::Arc;

pub(super) async fn drift(
    process: Arc<ProcessServices>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Arc<Drifts>> {
    QueryParams::of(query.as_deref(), &[])?;
    Ok(Json(process.drifts.load_full()))
}
