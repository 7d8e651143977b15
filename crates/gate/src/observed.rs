//! What was seen of both sides: their calls, summed by unit.

use crate::settings::{Gate, Select};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_slo::{Finished, Objective, Verdict, judge};
use tokengauge_store::query::{Filter, Page, Paging, UnitKind, UnitSums};

/// Calls of one side that are looked at: the newest ones.
pub const MAX_CALLS: u64 = 50_000;
/// Calls that are read at once.
const PAGE: usize = 1_000;
/// A request of the same size within this time is the same one again.
const RETRY_WITHIN: Duration = Duration::from_secs(300);

/// Both sides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Where somebody says so, else the first of the candidate's calls in the window; both sides are looked at from then on.
    pub since: Option<SystemTime>,
    /// The candidate.
    pub candidate: Side,
    /// The baseline.
    pub baseline: Side,
}

/// One side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// By name.
    pub units: BTreeMap<String, ObservedUnit>,
    /// Calls that name no unit; they are left out.
    pub calls_without_unit: u64,
    /// Whether there are more calls than [`MAX_CALLS`].
    pub more_calls: bool,
    first: Option<SystemTime>,
    calls: u64,
}

/// A unit of one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedUnit {
    /// Its calls.
    pub sums: UnitSums,
    /// Bad events and all events, by objective.
    pub events: Vec<(u64, u64)>,
    requests: Vec<(SystemTime, Request)>,
}

/// What a call and its repetition have in common, as far as can be seen without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Request {
    bytes: u64,
    model: Option<String>,
    path: Option<String>,
}

/// Reads the calls of both sides, a page at a time, from a store that has the newest first.
///
/// # Errors
///
/// When the store has none.
pub fn observe<E>(
    gate: &Gate,
    since: Option<SystemTime>,
    now: SystemTime,
    mut page: impl FnMut(&Filter, &Paging) -> Result<Page<CallRecord>, E>,
) -> Result<Observed, E> {
    let window = now.checked_sub(gate.window);
    let start = since.or(window).unwrap_or(SystemTime::UNIX_EPOCH);
    let candidate = side(gate, &gate.candidate, (start, now), &mut page)?;
    let first = candidate.first.or(since);
    let since = match candidate.more_calls {
        true => first,
        false => since.or(first),
    };
    let baseline = side(
        gate,
        &gate.baseline,
        (since.unwrap_or(start), now),
        &mut page,
    )?;
    Ok(Observed {
        since,
        candidate,
        baseline,
    })
}

fn side<E>(
    gate: &Gate,
    select: &Select,
    (since, until): (SystemTime, SystemTime),
    page: &mut impl FnMut(&Filter, &Paging) -> Result<Page<CallRecord>, E>,
) -> Result<Side, E> {
    let filter = select.filter(since, until);
    let mut paging = Paging {
        limit: PAGE,
        cursor: None,
    };
    let mut side = Side::default();
    loop {
        let found = page(&filter, &paging)?;
        for call in found.rows.iter().filter(|call| select.has(call)) {
            if side.calls == MAX_CALLS {
                side.more_calls = true;
                return Ok(side);
            }
            side.add(call, gate.unit, &gate.objectives);
        }
        match found.next_cursor {
            Some(cursor) => paging.cursor = Some(cursor),
            None => return Ok(side),
        }
    }
}

impl Side {
    /// Adds a finished call.
    pub fn add(
        &mut self,
        call: &CallRecord,
        kind: UnitKind,
        objectives: &[std::sync::Arc<Objective>],
    ) {
        let Ok(started) = humantime::parse_rfc3339(&call.started_at) else {
            return;
        };
        self.calls += 1;
        self.first = Some(self.first.map_or(started, |first| first.min(started)));
        let name = match kind {
            UnitKind::Agent => call.agent.as_ref(),
            UnitKind::User => call.user.as_ref(),
            UnitKind::Session | UnitKind::Block(_) => call.session.as_ref(),
        };
        let Some(name) = name else {
            self.calls_without_unit += 1;
            return;
        };
        let unit = self.units.entry(name.clone()).or_default();
        unit.sums.merge(&UnitSums::of_record(call, started));
        unit.events.resize(objectives.len(), (0, 0));
        for (counts, objective) in unit.events.iter_mut().zip(objectives) {
            for events in judge(&objective.judgement, &Finished::of_record(call)) {
                counts.0 += u64::from(events.verdict == Verdict::Bad) * events.count;
                counts.1 += u64::from(events.verdict != Verdict::Excluded) * events.count;
            }
        }
        let request = Request {
            bytes: call.bytes.request,
            model: call.model_requested.clone(),
            path: call.path.clone(),
        };
        unit.requests.push((started, request));
    }

    /// Calls, those without a unit among them.
    pub fn calls(&self) -> u64 {
        self.calls
    }
}

impl ObservedUnit {
    /// Calls that ask again what the unit asked within the five minutes before: a request of as many bytes to the same path
    /// for the same model. A conversation that goes on is longer each time.
    pub fn retries(&self) -> u64 {
        let mut requests: Vec<_> = self.requests.iter().collect();
        requests.sort_by_key(|(started, _)| *started);
        let mut last: HashMap<&Request, SystemTime> = HashMap::new();
        let again = |(started, request): &(SystemTime, Request), before: Option<SystemTime>| {
            let since = before.and_then(|before| started.duration_since(before).ok());
            request.bytes > 0 && since.is_some_and(|since| since <= RETRY_WITHIN)
        };
        let mut retries = 0;
        for entry in requests {
            let before = last.insert(&entry.1, entry.0);
            retries += u64::from(again(entry, before));
        }
        retries
    }
}
