//! A ledger with a past, as in production: its page caches are as full at the start of a
//! run as they ever become, so that what memory grows by is none of theirs.

use std::path::Path;
use std::time::{Duration, SystemTime};
use tokengauge::call::CallRecord;
use tokengauge::ledger::{Store, StoredCall};
use tokengauge_test_support::records::Records;

/// Over this time.
const PAST: Duration = Duration::from_secs(3000);
/// Until so long ago: their distances are random, so that the last may come later.
const AGO: Duration = Duration::from_secs(300);

/// Writes so many calls, all of the last hour and none of the last minute.
pub fn write(ledger: &Path, calls: usize, now: SystemTime) -> anyhow::Result<()> {
    let every = PAST.as_millis() as f64 / calls.max(1) as f64;
    let mut records = Records::new(now - AGO - PAST, every).take(calls);
    let mut store = Store::open(ledger)?;
    loop {
        let batch: Vec<CallRecord> = records.by_ref().take(1000).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let kept: Vec<StoredCall<'_>> = batch
            .iter()
            .filter_map(|record| StoredCall::of_record(record, None))
            .collect();
        store.write(&kept)?;
    }
}
