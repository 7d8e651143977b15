//! `/api/v1/drift`: what has changed since earlier weeks.

use super::problem::JsonResponse;
use super::query_params::QueryParams;
use crate::{Drifts, Services};
use axum::Json;
use axum::extract::{RawQuery, State};
use std::sync::Arc;

pub(super) async fn drift(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<Arc<Drifts>> {
    QueryParams::of(query.as_deref(), &[])?;
    Ok(Json(services.verdicts.drifts.load_full()))
}
