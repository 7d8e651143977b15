//! Requests the records of the benchmark's calls from a tokengauge proxy between client and backend.

use super::super::api_client::{Proxy, encoded};
use crate::Error;
use crate::cli::{AdminArgs, BenchArgs};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_bench::client::AGENT;
use tokengauge_bench::gauge::{AskGauge, NoRecords};
use tokengauge_core::call::CallRecord;
use tokengauge_core::time::rfc3339_seconds;

/// The tolerated difference between the clocks of the two machines.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);
/// The maximum number of requested pages: a million calls.
const MAX_PAGES: usize = 1000;

#[derive(serde::Deserialize)]
struct Page {
    calls: Vec<CallRecord>,
    next_cursor: Option<String>,
}

/// Returns a function that requests records from the proxy at this address.
///
/// # Errors
/// Returns an error if the token file cannot be read.
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
