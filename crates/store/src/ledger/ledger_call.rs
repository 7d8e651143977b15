//! A finished call for the ledger.

use tokengauge_core::call::CallRecord;
use tokengauge_meter::FinishedCall;
use uuid::Uuid;

#[derive(Clone, Copy, Debug)]
pub struct LedgerCall<'a> {
    pub record: &'a CallRecord,
    pub id: Uuid,
    pub trace_id: Option<u128>,
    /// Streams in flight on the upstream when the call began, including the call.
    pub concurrency: Option<u32>,
    /// Whether the call is nested in another call, which counts for the session.
    pub nested: bool,
}

impl<'a> LedgerCall<'a> {
    pub fn of_finished(finished_call: &'a FinishedCall) -> LedgerCall<'a> {
        LedgerCall {
            record: &finished_call.record,
            id: finished_call.id,
            trace_id: finished_call.trace_id,
            concurrency: Some(finished_call.concurrency),
            nested: finished_call.nested,
        }
    }

    /// A call from its record; `None` if its id is invalid.
    pub fn of_record(record: &'a CallRecord, concurrency: Option<u32>) -> Option<LedgerCall<'a>> {
        Some(LedgerCall {
            record,
            id: Uuid::parse_str(&record.id).ok()?,
            trace_id: (record.trace_id.as_deref())
                .and_then(|trace| u128::from_str_radix(trace, 16).ok()),
            concurrency,
            nested: false,
        })
    }
}
