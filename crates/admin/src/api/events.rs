//! `/api/v1/events`: calls, streams and objectives as server-sent events.

use super::problem::Problem;
use super::query_params::QueryParams;
use crate::server::Source;
use crate::{Services, event_bus};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;
use std::convert::Infallible;

pub(super) async fn events(
    State(services): State<Services>,
    source: Option<Extension<Source>>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, Problem> {
    QueryParams::of(query.as_deref(), &[])?;
    let source = source.map(|Extension(source)| source);
    let Some(listener) = services
        .event_bus
        .listen(source, event_bus::present(&services))
    else {
        let message =
            "too many clients already listen to events; close one of them, or poll /api/v1/streams";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, message));
    };
    let events = stream::unfold(listener, |mut listener| async {
        let happened = listener.next().await?;
        let event = Event::default().event(happened.kind).data(&*happened.data);
        Some((Ok::<_, Infallible>(event), listener))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
