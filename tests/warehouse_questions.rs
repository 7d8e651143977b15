//! Questions have the same answers from a real ClickHouse as from a ledger with the same calls.
//!
//! `tests/real/test_fleet_questions.py` starts ClickHouse and runs these tests.

use crate::fleet::clickhouse;
use crate::ledger_queries::{BEGIN, sample};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokengauge_core::call::{CallRecord, CostUnavailable, Outcome, TpsUnavailable};
use tokengauge_core::dimension::{DIMENSIONS, FILTERS};
use tokengauge_net::tls::ClientTls;
use tokengauge_sink::clickhouse::ClickHouse;
use tokengauge_sink::clickhouse_schema::Schema;
use tokengauge_sink::{ClickHouseSettings, Origin, Secret, Sink, WarehouseUrl};
use tokengauge_store::columns::values;
use tokengauge_store::history::{self, TimedCall};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Reader};
use tokengauge_store::query::{
    CallUnitQuery, CostQuery, Dimension, DistributionSelector, Distributions, Filter, InputPrices,
    Paging, SeriesMetric, SessionQuery, SessionSort, Signal, UnitKind, UnitQuery, priced,
};
use tokengauge_store::stored_calls::StoredCalls;
use tokengauge_test_support::records::SplitMix64;

/// Members of answers that are percentiles. Both engines count values in classes that are 2 % apart, and a value on the bound of
/// two classes may be in either.
const PERCENTILES: [&str; 9] = [
    "p1", "p5", "p10", "p50", "p90", "p95", "p99", "ttft_p50", "counts",
];
const CALLS: usize = 600;
const FILTERS_TRIED: usize = 6;

const SORTS: [SessionSort; 9] = [
    SessionSort::LastAt,
    SessionSort::StartedAt,
    SessionSort::Cost,
    SessionSort::Tokens,
    SessionSort::Calls,
    SessionSort::Duration,
    SessionSort::Errors,
    SessionSort::Ttft,
    SessionSort::Tps,
];

struct Engines {
    _folder: TempDir,
    ledger: StoredCalls,
    warehouse: StoredCalls,
    records: Vec<CallRecord>,
    random: SplitMix64,
}

impl Engines {
    async fn with(seed: u64, every_ms: f64, summed: bool) -> Engines {
        let mut random = SplitMix64(seed);
        let mut records = sample(seed, CALLS, every_ms);
        for record in &mut records {
            record.user = (random.below(5) > 0).then(|| format!("user-{}", random.below(6)));
            record.key_hash = (random.below(3) > 0).then(|| format!("key-{}", random.below(3)));
            if record.cost_usd.is_none() {
                let reasons = [CostUnavailable::NoPrice, CostUnavailable::NoTokens];
                record.cost_unavailable = Some(reasons[random.below(2) as usize]);
            }
        }
        // Starts a millisecond apart, so that every engine has them in one order.
        records.sort_by_key(|record| TimedCall::of(record).ended);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let mut database = LedgerDatabase::open(&path).expect("opens");
        // Times are cut to the microsecond, as both engines store them. The ledger would sum the times that it is given.
        let records: Vec<CallRecord> = records
            .iter()
            .map(|record| LedgerCall::of_record(record, Some(3)).expect("an id"))
            .map(|call| tokengauge_store::columns::record(&values(&call)))
            .collect();
        let kept: Vec<_> = records
            .iter()
            .map(|record| LedgerCall::of_record(record, Some(3)).expect("an id"))
            .collect();
        database.write(&kept).expect("written");
        let table = format!("calls_{seed}");
        let rows: Vec<_> = kept.iter().map(values).collect();
        let client = client(&table);
        let schema = Schema {
            database: "default".to_owned(),
            table: table.clone(),
            ..Schema::default()
        };
        let statements = schema.statements();
        let (of_table, of_sums) = statements.split_at(2);
        run_all(&client, of_table).await;
        if summed {
            // Sums have the calls of the first part. Later come other calls, and some of the same ones.
            let (first, second) = rows.split_at(rows.len() * 2 / 3);
            insert(&client, first).await;
            sum(&client, &table, of_sums).await;
            let again: Vec<_> = first.iter().step_by(7).chain(second).cloned().collect();
            insert(&client, &again).await;
        } else {
            run_all(&client, of_sums).await;
            insert(&client, &rows).await;
        }
        let url = format!("http://{}?table={table}", clickhouse());
        let url: WarehouseUrl = url.parse().expect("a URL");
        let warehouse = url.open().expect("usable");
        Engines {
            _folder: folder,
            ledger: Reader::new(&path, Instant::now).into(),
            warehouse: StoredCalls::Warehouse(Arc::new(warehouse)),
            records,
            random,
        }
    }

    fn filters(&mut self) -> Vec<Filter> {
        let filters = (0..FILTERS_TRIED).map(|_| self.filter());
        std::iter::once(Filter::default()).chain(filters).collect()
    }

    fn filter(&mut self) -> Filter {
        let some = self.records.len() as u64;
        let call = self.records[self.random.below(some) as usize].clone();
        let mut edge = || {
            let at = self.records[self.random.below(some) as usize]
                .started_at
                .time();
            (self.random.below(2) == 0).then_some(at)
        };
        let (one, other) = (edge(), edge());
        let (since, until) = match (one, other) {
            (Some(one), Some(other)) => (Some(one.min(other)), Some(one.max(other))),
            edges => edges,
        };
        let mut filter = Filter {
            since,
            until,
            ..Filter::default()
        };
        match self.random.below(6) {
            0 => filter.session = call.session.clone(),
            1 => filter.outcomes = vec![Outcome::Complete, call.outcome],
            2 => filter.operation_classes = Filter::counted(),
            3 => filter.tps_unavailable = call.tps.unavailable.or(Some(TpsUnavailable::Buffered)),
            4 => filter.cost_unavailable = call.cost_unavailable,
            _ => {
                let by = FILTERS[self.random.below(FILTERS.len() as u64) as usize];
                filter.names = [(by, by.of(&call).map(Cow::into_owned))].into();
            }
        }
        filter
    }

    fn dimension(&mut self) -> Dimension {
        DIMENSIONS[self.random.below(DIMENSIONS.len() as u64) as usize].dimension
    }
}

fn client(table: &str) -> ClickHouse {
    let settings = ClickHouseSettings {
        url: format!("http://{}/", clickhouse()).parse().expect("a URL"),
        database: "default".to_owned(),
        table: table.to_owned(),
        user: None,
        password: Secret::Variable("NO_SUCH_PASSWORD"),
        tls: ClientTls::default(),
        timeout: Duration::from_secs(30),
    };
    ClickHouse::new(settings, &Origin::default()).expect("usable")
}

async fn run_all(client: &ClickHouse, statements: &[String]) {
    for statement in statements {
        client.run(statement).await.expect(statement);
    }
}

/// Inserts the rows: most of them twice, in other batches, as a sink does after an error.
async fn insert(client: &ClickHouse, rows: &[Vec<tokengauge_store::columns::Value>]) {
    for size in [rows.len().div_ceil(3), 97] {
        for batch in rows.chunks(size) {
            client.send(batch).await.expect("stored");
        }
    }
}

/// Creates the sums of a table whose rows are two hours old, and waits until they are complete.
async fn sum(client: &ClickHouse, table: &str, statements: &[String]) {
    let age = format!(
        "ALTER TABLE {table} UPDATE inserted_at = now() - INTERVAL 2 HOUR WHERE 1 SETTINGS mutations_sync = 1"
    );
    run_all(client, &[age]).await;
    run_all(client, statements).await;
    let done = format!("SELECT uniqExact(view) FROM {table}_done_2 FORMAT TSV");
    let (limit, began) = (Duration::from_secs(60), Instant::now());
    while client.run(&done).await.expect(&done) != "4\n" {
        assert!(began.elapsed() < limit, "the sums are not complete");
        for view in [
            "sums_2_every_300",
            "sessions_2_every_300",
            "done_2_refresh",
            "sums_2_every_86400",
            "sessions_2_every_86400",
            "done_2_refresh",
        ] {
            // Sums by day fail until the ones by five minutes are complete.
            for what in ["REFRESH", "WAIT"] {
                let statement = format!("SYSTEM {what} VIEW {table}_{view}");
                client.run(&statement).await.ok();
            }
        }
    }
}

/// Asserts that two answers are alike: counts are equal, sums as close as floating point allows, percentiles within a class.
fn alike(found: &impl Serialize, should: &impl Serialize, what: &str) {
    let found = serde_json::to_value(found).expect("JSON");
    let should = serde_json::to_value(should).expect("JSON");
    compare(&found, &should, 1e-6, what);
}

fn compare(found: &Value, should: &Value, within: f64, at: &str) {
    match (found, should) {
        (Value::Object(found), Value::Object(should)) => {
            let keys = |map: &serde_json::Map<String, Value>| -> Vec<String> {
                map.keys().cloned().collect()
            };
            assert_eq!(keys(found), keys(should), "{at}");
            for (key, found) in found {
                let within = if PERCENTILES.contains(&key.as_str()) {
                    0.0201
                } else {
                    within
                };
                compare(found, &should[key], within, &format!("{at}.{key}"));
            }
        }
        (Value::Array(found), Value::Array(should)) => {
            assert_eq!(found.len(), should.len(), "{at}: {found:?} and {should:?}");
            for (place, (found, should)) in found.iter().zip(should).enumerate() {
                compare(found, should, within, &format!("{at}[{place}]"));
            }
        }
        (Value::Number(found), Value::Number(should)) => {
            let (found, should) = (found.as_f64(), should.as_f64());
            let (found, should) = (found.unwrap_or(f64::NAN), should.unwrap_or(f64::NAN));
            let close = (found - should).abs() <= within * should.abs() + 1e-6;
            assert!(close, "{at}: {found} and {should}");
        }
        _ => assert_eq!(found, should, "{at}"),
    }
}

fn page(limit: usize) -> Paging {
    Paging {
        limit,
        cursor: None,
    }
}

/// All rows of a question with pages of `limit`.
fn paged<T>(
    limit: usize,
    mut ask: impl FnMut(&Paging) -> tokengauge_store::query::Page<T>,
) -> Vec<T> {
    let mut paging = page(limit);
    let mut rows = Vec::new();
    loop {
        let found = ask(&paging);
        rows.extend(found.rows);
        match found.next_cursor {
            Some(cursor) => paging.cursor = Some(cursor),
            None => return rows,
        }
    }
}

#[ignore = "needs ClickHouse: make real PART=stores"]
#[tokio::test(flavor = "multi_thread")]
async fn every_question_has_the_answer_of_the_ledger() {
    for (seed, every_ms, summed) in [(1, 900.0, false), (2, 60_000.0, true), (3, 900_000.0, true)] {
        let mut engines = Engines::with(seed, every_ms, summed).await;
        tokio::task::block_in_place(|| {
            for filter in engines.filters() {
                ask(&mut engines, &filter);
            }
            units(&engines);
            distributions(&engines);
        });
    }
}

#[ignore = "needs ClickHouse: make real PART=stores"]
#[tokio::test(flavor = "multi_thread")]
async fn sums_answer_for_calls_that_need_not_be_read() {
    let engines = Engines::with(4, 300_000.0, true).await;
    let truncate = "TRUNCATE TABLE calls_4";
    client("calls_4").run(truncate).await.expect(truncate);
    let groups = tokio::task::block_in_place(|| {
        let all = Filter::default();
        engines.warehouse.groups(&all, &[], &page(1))
    });
    let calls = groups.expect("groups").rows[0].calls;
    assert_eq!(calls as usize, CALLS * 2 / 3, "of the first part");
}

fn ask(engines: &mut Engines, filter: &Filter) {
    let (by, more) = (engines.dimension(), engines.dimension());
    let metric = [SeriesMetric::Tps, SeriesMetric::Ttft][engines.random.below(2) as usize];
    let (ledger, warehouse) = (engines.ledger.clone(), engines.warehouse.clone());
    let (ledger, warehouse) = (&ledger, &warehouse);
    let what = format!("{filter:?} by {by:?} and {more:?}");
    let of = |calls: &StoredCalls, limit: usize| {
        let mut calls = paged(limit, |page| calls.calls(filter, page).expect("calls"));
        // Calls of one millisecond have another order.
        calls.sort_by(|one, other| one.id.cmp(&other.id));
        calls
    };
    alike(&of(warehouse, 70), &of(ledger, 1_000), &what);
    if let Some(call) = engines.records.first() {
        let id = call.id.parse().expect("an id");
        alike(
            &warehouse.call(id).expect("a call"),
            &ledger.call(id).expect("a call"),
            &what,
        );
    }
    for by in [&[by][..], &[by, more]] {
        let of = |calls: &StoredCalls, limit: usize| {
            let rows = paged(limit, |page| {
                calls.groups(filter, by, page).expect("groups")
            });
            let rows = rows
                .into_iter()
                .map(|row| (format!("{:?}", row.names), row));
            rows.collect::<BTreeMap<_, _>>()
        };
        alike(&of(warehouse, 7), &of(ledger, 1_000), &what);
    }
    for _ in 0..2 {
        let sort = SORTS[engines.random.below(SORTS.len() as u64) as usize];
        sessions(engines, filter, sort);
    }
    let of = |calls: &StoredCalls| {
        // As in `sessions`.
        let filter = Filter {
            since: None,
            ..filter.clone()
        };
        let mut seconds = calls.task_seconds(&filter).expect("seconds");
        seconds.sort_by(f64::total_cmp);
        seconds
    };
    if filter.by_reason() || !filter.operation_classes.is_empty() {
        // Sessions are not selected by these.
    } else {
        alike(&of(warehouse), &of(ledger), &what);
    }
    let query = CostQuery {
        filter: filter.clone(),
        by,
        step: Duration::from_secs(3_600),
        most: 3,
    };
    let costs = |calls: &StoredCalls| calls.costs(&query).expect("costs");
    alike(&costs(warehouse), &costs(ledger), &what);
    let tools = |calls: &StoredCalls| {
        let uses = calls.prompt_tools(filter).expect("tools");
        priced(uses, |place| {
            (place.upstream != "vllm").then_some(InputPrices {
                uncached: 1e-3,
                cached: 1e-4,
            })
        })
    };
    alike(&tools(warehouse), &tools(ledger), &what);
    let breaks = |calls: &StoredCalls| calls.cache_breaks(filter).expect("cache breaks");
    alike(&breaks(warehouse), &breaks(ledger), &what);
    let coverage = |calls: &StoredCalls| calls.coverage(filter).expect("coverage");
    alike(&coverage(warehouse), &coverage(ledger), &what);
    timeseries(engines, filter, metric);
}

fn sessions(engines: &Engines, filter: &Filter, sort: SessionSort) {
    let filter = &Filter {
        // A warehouse lists a session with its calls since a day before this.
        since: None,
        ..filter.clone()
    };
    let of = |calls: &StoredCalls, limit: usize| {
        let mut query = SessionQuery {
            filter: filter.clone(),
            sort,
            ..SessionQuery::default()
        };
        let mut rows = paged(limit, |page| {
            query.page = page.clone();
            calls.sessions(&query).expect("sessions")
        });
        rows.sort_by(|one, other| one.id.cmp(&other.id));
        rows
    };
    let what = format!("sessions of {filter:?} by {sort:?}");
    alike(
        &of(&engines.warehouse, 9),
        &of(&engines.ledger, 1_000),
        &what,
    );
    for call in engines.records.iter().take(3) {
        let Some(session) = &call.session else {
            continue;
        };
        let of = |calls: &StoredCalls| {
            let found = calls.session(session, &page(1_000)).expect("a session");
            let mut found = found.expect("it is known");
            found.calls.sort_by(|one, other| one.id.cmp(&other.id));
            found
        };
        alike(
            &of(&engines.warehouse),
            &of(&engines.ledger),
            &format!("session {session}"),
        );
    }
}

/// The ledger knows tokens by the second, and the warehouse only calls, as the calls in memory do.
fn timeseries(engines: &Engines, filter: &Filter, metric: SeriesMetric) {
    let step = Duration::from_secs(7_200);
    let found = engines.warehouse.timeseries(filter, metric, step);
    let found = found.expect("a time series");
    // Steps are whole, as in a ledger.
    let whole = |at: SystemTime, up: bool| {
        let seconds = at.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = seconds.expect("since 1970").as_secs_f64() / step.as_secs_f64();
        let steps = if up { seconds.ceil() } else { seconds.floor() };
        SystemTime::UNIX_EPOCH + step * steps as u32
    };
    let aligned = Filter {
        since: filter.since.map(|at| whole(at, false)),
        until: filter.until.map(|at| whole(at, true)),
        ..filter.clone()
    };
    let calls = engines.records.iter().map(TimedCall::of);
    let calls = calls.filter(|call| history::matches(&aligned, call));
    let should = history::timeseries(calls, metric, step, None);
    let points: BTreeMap<_, _> = found.points.iter().map(|point| (point.at, point)).collect();
    for should in &should.points {
        // Tokens that were generated after the time that was asked for have no point.
        let Some(found) = points.get(&should.at) else {
            assert_eq!(should.calls, 0, "{filter:?}");
            continue;
        };
        let mut found = (*found).clone();
        found.counts.clear();
        let mut should = should.clone();
        should.counts.clear();
        if filter.since.is_some() {
            // Calls that began before `since` also generated tokens after it.
            found.tokens_per_second = should.tokens_per_second;
            found.spread_tokens_per_second = should.spread_tokens_per_second;
        }
        alike(&found, &should, &format!("{filter:?}"));
    }
}

fn units(engines: &Engines) {
    for unit in [
        UnitKind::Session,
        UnitKind::Agent,
        UnitKind::User,
        UnitKind::Block(Duration::from_secs(3_600)),
    ] {
        let query = CallUnitQuery {
            filter: Filter::default(),
            variant: None,
            unit,
            max_calls: u64::MAX,
        };
        let of = |calls: &StoredCalls| {
            let mut found = calls.call_units(&query).expect("units");
            found.units.sort_by(|one, other| {
                let order = |unit: &tokengauge_store::query::CallUnit| {
                    (unit.name.clone(), unit.sums.first_at(), unit.sums.last_at())
                };
                order(one).cmp(&order(other))
            });
            found
        };
        assert_eq!(of(&engines.warehouse), of(&engines.ledger), "{unit:?}");
        let query = UnitQuery {
            experiment: "e-1".to_owned(),
            unit,
            since: Some(SystemTime::UNIX_EPOCH + BEGIN + Duration::from_secs(60)),
            until: None,
        };
        let of = |calls: &StoredCalls| calls.experiment_units(&query).expect("units");
        assert_eq!(of(&engines.warehouse), of(&engines.ledger), "{unit:?}");
    }
}

fn distributions(engines: &Engines) {
    let selector = DistributionSelector::default();
    let of = |calls: &StoredCalls| {
        let found = calls.distributions(&selector, None, None);
        let found = found.expect("distributions").into_iter();
        let found = found.map(|(series, all)| (format!("{series:?}"), figures(&all)));
        found.collect::<BTreeMap<_, _>>()
    };
    alike(
        &of(&engines.warehouse),
        &of(&engines.ledger),
        "distributions",
    );
    let of = |calls: &StoredCalls| {
        let found = calls.hourly_distributions(&selector, None, None);
        let found = found.expect("distributions").into_iter();
        let found = found.map(|(hour, all)| (format!("{hour:?}"), figures(&all)));
        found.collect::<BTreeMap<_, _>>()
    };
    alike(&of(&engines.warehouse), &of(&engines.ledger), "hours");
}

/// Calls, mean and median of a signal in one bucket.
type SignalFigures = (u64, Option<f64>, BTreeMap<&'static str, Option<f64>>);

/// Calls, mean and median of every signal and bucket. Sessions have other numbers in each engine.
fn figures(all: &Distributions) -> BTreeMap<String, SignalFigures> {
    let signals = Signal::ALL.into_iter();
    let signals = signals.filter(|signal| *signal != Signal::Session);
    let buckets = signals.flat_map(|signal| {
        all.buckets(signal)
            .map(move |(bucket, cell)| (signal, bucket, cell))
    });
    buckets
        .map(|(signal, bucket, cell)| {
            let median = BTreeMap::from([("p50", cell.quantile(0.5))]);
            (
                format!("{signal:?} {bucket}"),
                (cell.calls(), cell.mean(), median),
            )
        })
        .collect()
}
