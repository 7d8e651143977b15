//! `--store URL` and `--ledger FILE`: the stored calls that a command asks.

use super::error::CommandError;
use super::progress::Progress;
use crate::cli::{WarehouseArgs, When};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_store::columns::CallRow;
use tokengauge_store::ledger::QueryError;
use tokengauge_store::query::{Filter, Paging};
use tokengauge_store::stored_calls::StoredCalls;

/// How far back calls of a warehouse are read if nobody says.
pub(super) const SINCE: Duration = Duration::from_secs(7 * 86_400);
/// Calls that are read at once.
const PAGE: usize = 4_000;

/// The calls of the warehouse that `args` names, otherwise the calls of the ledger; `None` if neither is named.
pub(super) fn stored(
    args: &WarehouseArgs,
    ledger: Option<&Path>,
) -> Result<Option<StoredCalls>, CommandError> {
    match &args.url {
        Some(url) => {
            let warehouse = url
                .open()
                .map_err(|error| CommandError::refused(url.address(), error))?;
            Ok(Some(StoredCalls::Warehouse(Arc::new(warehouse))))
        }
        None => Ok(ledger.map(|path| super::reader(path).into())),
    }
}

/// The start of the calls to read. By default, all calls of a ledger are read, but only the last week of a warehouse, which
/// may have calls of several years.
pub(super) fn since(args: &WarehouseArgs, since: Option<SystemTime>) -> Option<SystemTime> {
    let now = SystemTime::now();
    let of_warehouse = || {
        let back = args.since.unwrap_or(When::Back(SINCE));
        args.url.is_some().then(|| back.before(now))
    };
    since.or_else(of_warehouse)
}

/// What errors name: the warehouse, otherwise the ledger's file.
pub(super) fn origin(args: &WarehouseArgs, ledger: Option<&Path>) -> String {
    match (&args.url, ledger) {
        (Some(url), _) => format!("the warehouse {}", url.address()),
        (None, Some(ledger)) => ledger.display().to_string(),
        (None, None) => String::new(),
    }
}

/// The first `most` calls since `since`, in the order of their start, and whether there are more.
pub(super) fn records(
    calls: &StoredCalls,
    since: Option<SystemTime>,
    most: usize,
) -> Result<(Vec<CallRecord>, bool), QueryError> {
    let filter = Filter {
        since,
        ..Filter::default()
    };
    let mut page = Paging {
        limit: PAGE,
        cursor: None,
    };
    let mut found = Vec::new();
    let mut progress = Progress::of("reading");
    loop {
        let rows = calls.in_order(&filter, &page)?;
        found.extend(rows.rows.iter().map(CallRow::record));
        progress.at(found.len() as u64, None, "calls");
        page.cursor = rows.next_cursor;
        if page.cursor.is_none() || found.len() >= most {
            let more = page.cursor.is_some() || found.len() > most;
            found.truncate(most);
            return Ok((found, more));
        }
    }
}
