//! Fills the ledger before the run, so that its page caches are full from the start and do not look like a leak.

use std::path::Path;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase};
use tokengauge_test_support::records::Records;

const SPAN: Duration = Duration::from_secs(3000);
/// The approximate age of the last call; random gaps can make it newer.
const AGE_OF_LAST: Duration = Duration::from_secs(300);

/// Writes `calls` calls of the last hour, none of the last minute.
pub fn write(ledger: &Path, calls: usize, now: SystemTime) -> anyhow::Result<()> {
    let every = SPAN.as_millis() as f64 / calls.max(1) as f64;
    let mut records = Records::new(now - AGE_OF_LAST - SPAN, every).take(calls);
    let mut ledger = LedgerDatabase::open(ledger)?;
    loop {
        let batch: Vec<CallRecord> = records.by_ref().take(1000).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let calls: Vec<LedgerCall<'_>> = batch
            .iter()
            .filter_map(|record| LedgerCall::of_record(record, None))
            .collect();
        ledger.write(&calls)?;
    }
}
