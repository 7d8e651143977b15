//! `tokengauge report session`: analyzes a session and exports its trace.

mod html;

use super::api_client::{self, Proxy};
use super::error::CommandError;
use super::json;
use crate::Error;
use crate::cli::{SessionArgs, SessionFormat};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokengauge_accounting::cost::Prices;
use tokengauge_core::call::CallRecord;
use tokengauge_sessions::{Analysis, Session, last_calls, otlp, perfetto, text};
use tokengauge_store::history::{TimedCall, waterfall};
use tokengauge_store::query::{SessionRow, WaterfallCall};
use tokengauge_store::stored_calls::StoredCalls;

/// The number of calls per page of the API, and the maximum in the file of a session.
const PAGE: usize = 1_000;
const MAX_CALLS: usize = 5_000;

pub(super) fn session(args: &SessionArgs) -> Result<(), Error> {
    let calls = super::warehouse::stored(&args.warehouse, args.ledger.as_deref())?;
    let written = match &calls {
        Some(calls) => of_calls(args, calls)?,
        None => of_proxy(args)?,
    };
    super::write(args.output.as_deref(), &written)
}

fn of_calls(args: &SessionArgs, stored: &StoredCalls) -> Result<String, Error> {
    let (config, _) = super::load(&args.config)?;
    let prices = Prices::new(&config.prices);
    let calls = last_calls(&args.id, |filter, paging| stored.calls(filter, paging))?;
    if calls.is_empty() {
        let origin = super::warehouse::origin(&args.warehouse, args.ledger.as_deref());
        let id = args.id.clone();
        return Err(CommandError::UnknownSession { origin, id }.into());
    }
    let session = Session::of(calls.iter().map(TimedCall::of));
    let analysis =
        || session.analysis(|record: &CallRecord, cached| prices.cost_if_cached(record, cached));
    match args.format.chosen() {
        SessionFormat::Text => Ok(text(&analysis())),
        SessionFormat::Json => Ok(json(&analysis())?),
        SessionFormat::Perfetto => Ok(json(&perfetto(&args.id, &session))?),
        SessionFormat::Otlp => Ok(json(&otlp(&args.id, &session))?),
        SessionFormat::Html => {
            let detail = waterfall(session.calls().iter().copied());
            let (row, calls) = detail.ok_or(CommandError::SessionWithoutStart)?;
            Ok(html::page(&row, &calls, &analysis()))
        }
    }
}

fn of_proxy(args: &SessionArgs) -> Result<String, Error> {
    let proxy = Proxy::of(&args.admin)?;
    let runtime = api_client::runtime()?;
    let base = format!("/api/v1/sessions/{}", api_client::encoded(&args.id));
    let value = |path: &str| -> Result<Value, Error> {
        Ok(runtime.block_on(proxy.get(&format!("{base}/{path}")))?)
    };
    match args.format.chosen() {
        SessionFormat::Text => {
            let analysis: Analysis = runtime.block_on(proxy.get(&format!("{base}/analysis")))?;
            Ok(text(&analysis))
        }
        SessionFormat::Json => Ok(json(&value("analysis")?)?),
        SessionFormat::Perfetto => Ok(json(&value("trace?format=perfetto")?)?),
        SessionFormat::Otlp => Ok(json(&value("trace?format=otlp")?)?),
        SessionFormat::Html => {
            let analysis: Analysis = runtime.block_on(proxy.get(&format!("{base}/analysis")))?;
            let (row, calls) = runtime.block_on(detail(&proxy, &base))?;
            Ok(html::page(&row, &calls, &analysis))
        }
    }
}

#[derive(Deserialize)]
struct SessionAndCalls {
    calls: Vec<WaterfallCall>,
    total_calls: u64,
    next_cursor: Option<String>,
    #[serde(flatten)]
    sums: Map<String, Value>,
}

async fn detail(proxy: &Proxy, base: &str) -> Result<(SessionRow, Vec<WaterfallCall>), Error> {
    let mut path = format!("{base}?limit={PAGE}");
    let mut calls = Vec::new();
    loop {
        let page: SessionAndCalls = proxy.get(&path).await?;
        calls.extend(page.calls);
        let Some(cursor) = page.next_cursor.filter(|_| calls.len() < MAX_CALLS) else {
            let mut sums = page.sums;
            // The API uses the name of the call count for the list of calls.
            sums.insert("calls".to_owned(), page.total_calls.into());
            let row = serde_json::from_value(Value::Object(sums))
                .map_err(|error| CommandError::refused(&path, error))?;
            return Ok((row, calls));
        };
        path = format!(
            "{base}?limit={PAGE}&cursor={}",
            api_client::encoded(&cursor)
        );
    }
}
