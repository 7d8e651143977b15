//! `/api/v1/calls.parquet`: finished calls as a file for analysis.

use super::call_source::{CallSource, ask};
use super::calls::{OF_CALLS, objective_of, spends};
use super::problem::Problem;
use super::query_params::{FILTERS, MAX_LIMIT, QueryParams};
use crate::Services;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use std::io;
use tokengauge_slo::Objective;
use tokengauge_store::columns::{COLUMNS, Column, Value, record};
use tokengauge_store::parquet_table::Table;
use tokengauge_store::query::{Filter, Paging};

/// The largest number of calls in a file, the newest ones. Writing that many takes about 12 MB of memory.
const MAX_CALLS: usize = 10_000;
/// The largest number of pages that are read. If few calls match, pages are short.
const MAX_PAGES: usize = 400;
pub(super) const MEDIA_TYPE: &str = "application/vnd.apache.parquet";

/// The newest calls that match as a Parquet file, with the columns of the ledger's exports.
pub(super) async fn parquet(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, Problem> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS, &OF_CALLS])?;
    let filter = asked.filter((services.wall)())?;
    let objective = objective_of(&services, &asked)?;
    let question = move |source: &CallSource| file(source, objective.as_deref(), &filter);
    let file = ask(&services, question).await?;
    let head = [
        (header::CONTENT_TYPE, MEDIA_TYPE),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"calls.parquet\"",
        ),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((head, file))
}

fn file(
    source: &CallSource,
    objective: Option<&Objective>,
    filter: &Filter,
) -> Result<Vec<u8>, Problem> {
    let fields = COLUMNS.iter().map(Column::field).collect();
    let mut table = Table::begin(Vec::new(), fields).map_err(unwritten)?;
    let mut paging = Paging {
        limit: MAX_LIMIT,
        cursor: None,
    };
    let mut left = MAX_CALLS;
    for _ in 0..MAX_PAGES {
        let page = source.call_rows(filter, &paging)?;
        let meant =
            |row: &Vec<Value>| objective.is_none_or(|objective| spends(objective, &record(row)));
        for row in page.rows.into_iter().filter(meant).take(left) {
            table.row(row).map_err(unwritten)?;
            left -= 1;
        }
        paging.cursor = page.next_cursor;
        if left == 0 || paging.cursor.is_none() {
            break;
        }
    }
    table.end().map_err(unwritten)
}

fn unwritten(error: io::Error) -> Problem {
    let message = format!("tokengauge could not write the file: {error}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}
