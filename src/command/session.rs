//! `tokengauge report session`: what a session was made of, and its trace.

mod html;

use super::api_client::{self, Proxy};
use crate::Error;
use crate::cli::{SessionArgs, SessionFormat};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use tokengauge_accounting::cost::Prices;
use tokengauge_core::call::CallRecord;
use tokengauge_files::private as private_file;
use tokengauge_process::output;
use tokengauge_sessions::{Analysis, Session, last_calls, otlp, perfetto, text};
use tokengauge_store::history::{TimedCall, waterfall};
use tokengauge_store::ledger::Reader;
use tokengauge_store::query::{SessionRow, WaterfallCall};

/// Calls of a page of the API, and of a session's file at most.
const PAGE: usize = 1_000;
const MAX_CALLS: usize = 5_000;
/// Why nothing is written of calls that are there.
const UNREADABLE: &str = "no call of the session has a start that can be read";

pub(super) fn session(args: &SessionArgs) -> Result<(), Error> {
    let mut ledger = args.ledger.clone();
    let _copy = super::store::read(&args.store, None, &mut ledger)?;
    let written = match &ledger {
        Some(ledger) => of_ledger(args, ledger)?,
        None => of_proxy(args)?,
    };
    let Some(path) = &args.output else {
        return output::print(&written);
    };
    let file = private_file::create(path).and_then(|mut file| file.write_all(written.as_bytes()));
    file.map_err(|error| Error::Failed(format!("cannot write {}: {error}", path.display())))
}

fn of_ledger(args: &SessionArgs, ledger: &Path) -> Result<String, Error> {
    let (config, _) = super::load(&args.config)?;
    let prices = Prices::new(&config.prices);
    let reader = Reader::new(ledger, Instant::now);
    let calls = last_calls(&args.id, |filter, paging| reader.calls(filter, paging))
        .map_err(|error| Error::Failed(error.to_string()))?;
    if calls.is_empty() {
        let origin = super::store::origin(&args.store, ledger);
        let unknown = format!("{origin} has no call of the session {}", args.id);
        return Err(Error::Failed(unknown));
    }
    let session = Session::of(calls.iter().map(TimedCall::of));
    let analysis =
        || session.analysis(|record: &CallRecord, cached| prices.cost_if_cached(record, cached));
    match args.format.chosen() {
        SessionFormat::Text => Ok(text(&analysis())),
        SessionFormat::Json => json(&analysis()),
        SessionFormat::Perfetto => json(&perfetto(&args.id, &session)),
        SessionFormat::Otlp => json(&otlp(&args.id, &session)),
        SessionFormat::Html => {
            let detail = waterfall(session.calls().iter().copied());
            let (row, calls) = detail.ok_or_else(|| Error::Failed(UNREADABLE.to_owned()))?;
            Ok(html::page(&row, &calls, &analysis()))
        }
    }
}

fn of_proxy(args: &SessionArgs) -> Result<String, Error> {
    let proxy = Proxy::of(&args.admin)?;
    let runtime = api_client::runtime()?;
    let id: String = form_urlencoded::byte_serialize(args.id.as_bytes()).collect();
    // In a path a space is not a plus sign.
    let base = format!("/api/v1/sessions/{}", id.replace('+', "%20"));
    let value = |path: &str| -> Result<Value, Error> {
        Ok(runtime.block_on(proxy.get(&format!("{base}/{path}")))?)
    };
    match args.format.chosen() {
        SessionFormat::Text => {
            let analysis: Analysis = runtime.block_on(proxy.get(&format!("{base}/analysis")))?;
            Ok(text(&analysis))
        }
        SessionFormat::Json => json(&value("analysis")?),
        SessionFormat::Perfetto => json(&value("trace?format=perfetto")?),
        SessionFormat::Otlp => json(&value("trace?format=otlp")?),
        SessionFormat::Html => {
            let analysis: Analysis = runtime.block_on(proxy.get(&format!("{base}/analysis")))?;
            let (row, calls) = runtime.block_on(detail(&proxy, &base))?;
            Ok(html::page(&row, &calls, &analysis))
        }
    }
}

/// A session and a page of its calls, as the API has them.
#[derive(Deserialize)]
struct SessionAndCalls {
    calls: Vec<WaterfallCall>,
    total_calls: u64,
    next_cursor: Option<String>,
    #[serde(flatten)]
    sums: Map<String, Value>,
}

/// A session and its calls, page by page.
async fn detail(proxy: &Proxy, base: &str) -> Result<(SessionRow, Vec<WaterfallCall>), Error> {
    let mut path = format!("{base}?limit={PAGE}");
    let mut calls = Vec::new();
    loop {
        let page: SessionAndCalls = proxy.get(&path).await?;
        calls.extend(page.calls);
        let Some(cursor) = page.next_cursor.filter(|_| calls.len() < MAX_CALLS) else {
            let mut sums = page.sums;
            // The API has the calls themselves under the name of their number.
            sums.insert("calls".to_owned(), page.total_calls.into());
            let row = serde_json::from_value(Value::Object(sums))
                .map_err(|error| Error::Failed(format!("{path}: {error}")))?;
            return Ok((row, calls));
        };
        let cursor: String = form_urlencoded::byte_serialize(cursor.as_bytes()).collect();
        path = format!("{base}?limit={PAGE}&cursor={cursor}");
    }
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Error::Failed(error.to_string()))?;
    Ok(text + "\n")
}
