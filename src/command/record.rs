//! `tokengauge print record`: measures recorded responses offline.

mod recording;

use super::error::CommandError;
use super::progress::Progress;
use crate::Error;
use crate::cli::RecordArgs;
use parking_lot::Mutex;
use recording::{Pace, Recording, RecordingError};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_config::Measure;
use tokengauge_core::call::CallRecord;
use tokengauge_core::observer::{CallStart, Chunk, End, Observer};
use tokengauge_meter::{FinishedCall, Meter, Subscriber};
use tokengauge_process::output;

const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn record(args: &RecordArgs) -> Result<(), Error> {
    let recordings = recording::find(args)?;
    let pace = Pace {
        frame_bytes: args.frame_bytes,
        gap: args.gap,
    };
    let last = Arc::new(RecordCollector::default());
    let meter = Meter::new(
        Measure {
            warm_up_calls: 0,
            ..Measure::default()
        },
        vec![last.clone()],
    );
    let mut output = output::stdout();
    let mut progress = Progress::beside_output("print record");
    let all = recordings.len() as u64;
    for (recording, done) in recordings.into_iter().zip(0..) {
        progress.at(done, Some(all), "recordings");
        for record in measured(&meter, &last, &recording, pace)? {
            let line = serde_json::to_string(&record).map_err(CommandError::from)?;
            writeln!(output, "{line}").map_err(output::failed)?;
        }
    }
    output.flush().map_err(output::failed)
}

/// Returns the records of a recording: one, or one per turn of a Realtime session.
fn measured(
    meter: &Meter,
    last: &RecordCollector,
    recording: &Recording,
    pace: Pace,
) -> Result<Vec<CallRecord>, Error> {
    let received = Instant::now();
    let call = meter.begin(CallStart {
        received,
        started_at: SystemTime::now(),
        method: &http::Method::POST,
        uri: &recording.uri,
        headers: &http::HeaderMap::new(),
        peer: None,
        port: None,
        route: &recording.name,
        upstream: &recording.upstream,
        dialect: recording.dialect,
        workload: None,
        inject_usage: false,
        variant: None,
    });
    call.connected(received, true);
    call.request_chunk(&recording.request);
    call.sent(received);
    let mut at = received;
    call.head(at, recording.status, &recording.headers);
    for bytes in pace.chunks(&recording.body) {
        at += pace.gap;
        recording.show(call.as_ref(), Chunk::new(at, bytes));
    }
    call.ended(at, End::Complete);
    drop(call);
    if !meter.flush(TIMEOUT) {
        return Err(RecordingError::Slow(recording.name.clone()).into());
    }
    Ok(last.take())
}

#[derive(Default)]
struct RecordCollector(Mutex<Vec<CallRecord>>);

impl RecordCollector {
    fn take(&self) -> Vec<CallRecord> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Subscriber for RecordCollector {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        self.0.lock().push(finished_call.record.clone());
    }
}
