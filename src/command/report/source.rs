//! The sources of a report's calls: a ledger, a running proxy, call logs.

use super::ReportCommandError;
use crate::Error;
use crate::cli::ReportArgs;
use crate::command::api_client::{self, ApiError, Proxy};
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::SystemTime;
use tokengauge_core::call::CallRecord;
use tokengauge_core::time::rfc3339_millis;
use tokengauge_process::output;
use tokengauge_store::history::{TimedCall, matches};
use tokengauge_store::query::{Filter, Mark, MarkQuery, Paging};
use tokengauge_store::stored_calls::StoredCalls;

const PAGE: usize = 1000;

#[derive(Deserialize)]
struct Page {
    calls: Vec<CallRecord>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Marks {
    marks: Vec<Mark>,
}

/// The options, and the stored calls that they name.
type Source<'a> = (&'a ReportArgs, Option<&'a StoredCalls>);

pub(super) fn each_call(
    (args, stored): Source<'_>,
    since: Option<SystemTime>,
    until: Option<SystemTime>,
    take: &mut dyn FnMut(&CallRecord),
) -> Result<(), Error> {
    let filter = Filter {
        since,
        until,
        operation_classes: Filter::counted(),
        ..Filter::default()
    };
    if let Some(calls) = stored {
        return of_calls(calls, &filter, take);
    }
    if args.call_log.is_empty() {
        return of_proxy(&Proxy::of(&args.admin)?, &filter, take);
    }
    args.call_log.iter().try_for_each(|log| {
        of_log(log, &filter, take)
            .map_err(|error| ReportCommandError::CallLog(log.clone(), error).into())
    })
}

fn of_calls(
    calls: &StoredCalls,
    filter: &Filter,
    take: &mut dyn FnMut(&CallRecord),
) -> Result<(), Error> {
    let mut paging = Paging {
        limit: PAGE,
        cursor: None,
    };
    loop {
        let page = calls.calls(filter, &paging)?;
        page.rows.iter().for_each(&mut *take);
        match page.next_cursor {
            Some(cursor) => paging.cursor = Some(cursor),
            None => return Ok(()),
        }
    }
}

fn of_proxy(
    proxy: &Proxy,
    filter: &Filter,
    take: &mut dyn FnMut(&CallRecord),
) -> Result<(), Error> {
    let runtime = api_client::runtime()?;
    let mut query = format!("/api/v1/calls?limit={PAGE}");
    for (name, at) in [("since", filter.since), ("until", filter.until)] {
        if let Some(at) = at {
            query += &format!("&{name}={}", rfc3339_millis(at));
        }
    }
    let mut path = query.clone();
    loop {
        let page: Page = runtime.block_on(proxy.get(&path))?;
        page.calls.iter().for_each(&mut *take);
        let Some(cursor) = page.next_cursor else {
            return Ok(());
        };
        path = format!("{query}&cursor={}", api_client::encoded(&cursor));
    }
}

/// Returns the marks from `from` up to `to`. A call log has no marks.
pub(super) fn marks(
    (args, stored): Source<'_>,
    from: Option<SystemTime>,
    to: Option<SystemTime>,
) -> Result<Vec<Mark>, Error> {
    if let Some(calls) = stored {
        let query = MarkQuery {
            from,
            to,
            limit: PAGE,
            ..MarkQuery::default()
        };
        return Ok(calls.marks(&query)?);
    }
    if !args.call_log.is_empty() {
        return Ok(Vec::new());
    }
    let mut path = format!("{}?limit={PAGE}", tokengauge_admin::MARKS);
    for (name, at) in [("from", from), ("to", to)] {
        if let Some(at) = at {
            path += &format!("&{name}={}", rfc3339_millis(at));
        }
    }
    let proxy = Proxy::of(&args.admin)?;
    match api_client::runtime()?.block_on(proxy.get::<Marks>(&path)) {
        Ok(response) => Ok(response.marks),
        // An older proxy has no marks.
        Err(ApiError::Status { status: 404, .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Reads a call log. Reports and skips lines that are not a call record.
fn of_log(path: &Path, filter: &Filter, take: &mut dyn FnMut(&CallRecord)) -> std::io::Result<()> {
    let mut unreadable = 0_u64;
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        match CallRecord::of_line(&line) {
            Ok(call) if matches(filter, &TimedCall::of(&call)) => take(&call),
            Ok(_) => {}
            Err(_) => unreadable += u64::from(!line.trim().is_empty()),
        }
    }
    if unreadable > 0 {
        let path = path.display();
        output::note(&format!(
            "{path}: {unreadable} lines are not call records of this version; they are skipped"
        ));
    }
    Ok(())
}
