//! Asks a tokengauge on the way for its records of the benchmark's calls.

use super::super::api_client::{Proxy, encoded};
use crate::Error;
use crate::cli::{AdminArgs, BenchArgs};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_bench::client::AGENT;
use tokengauge_bench::gauge::{AskGauge, NoRecords};
use tokengauge_core::call::CallRecord;
use tokengauge_core::time::rfc3339_seconds;

/// The clock of the gauge's machine may be so far off.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);
/// Pages that are asked for at most: a million calls.
const MAX_PAGES: usize = 1000;

#[derive(serde::Deserialize)]
struct Page {
    calls: Vec<CallRecord>,
    next_cursor: Option<String>,
}

/// A function that asks the gauge at this address.
///
/// # Errors
/// Where the token's file cannot be read.
pub(super) fn ask(address: &str, args: &BenchArgs) -> Result<AskGauge, Error> {
    let proxy = Proxy::of(&AdminArgs {
        admin: address.to_owned(),
        token_file: args.token_file.clone(),
        token: args.token.clone(),
    })?;
    let proxy = Arc::new(proxy);
    Ok(Arc::new(move |from| {
        let proxy = Arc::clone(&proxy);
        Box::pin(async move { records(&proxy, from).await })
    }))
}

/// All records of the agent's calls from an instant on.
async fn records(proxy: &Proxy, from: SystemTime) -> Result<Vec<CallRecord>, NoRecords> {
    let since = rfc3339_seconds(from - CLOCKS_DIFFER);
    let first = format!("/api/v1/calls?agent={AGENT}&since={since}&limit=1000");
    let mut path = first.clone();
    let mut records = Vec::new();
    for _ in 0..MAX_PAGES {
        let page: Page = proxy
            .get(&path)
            .await
            .map_err(|error| NoRecords(error.to_string()))?;
        records.extend(page.calls);
        let Some(cursor) = page.next_cursor else {
            break;
        };
        path = format!("{first}&cursor={}", encoded(&cursor));
    }
    Ok(records)
}
