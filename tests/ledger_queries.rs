//! Answers of the ledger must equal sums over the same records.

use crate::ledger_retention::tidy;
use proptest::prelude::*;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokengauge_core::call::{CallRecord, CostUnavailable, OperationClass, Outcome, TpsUnavailable};
use tokengauge_core::dimension::{self, DIMENSIONS};
use tokengauge_core::time::Timestamp;
use tokengauge_store::history::{self, TimedCall};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Limits, QueryError, Reader};
use tokengauge_store::query::{
    CostQuery, CostSeries, CostSums, Costs, Dimension, Filter, InputPrices, Paging, PromptPlace,
    SeriesMetric, SessionQuery, SessionRow, SessionSort, priced,
};
use tokengauge_test_support::records::{Records, SplitMix64};

pub const BEGIN: Duration = Duration::from_secs(1_763_600_000);
const DAY: Duration = Duration::from_secs(86_400);

struct Ledger {
    _folder: TempDir,
    reader: Arc<Reader>,
    records: Vec<CallRecord>,
}

fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("ledger.sqlite")
}

fn written(records: Vec<CallRecord>, random: &mut SplitMix64) -> Ledger {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder, &records, random);
    Ledger {
        reader: Reader::new(&path(&folder), Instant::now),
        _folder: folder,
        records,
    }
}

fn write(folder: &TempDir, records: &[CallRecord], random: &mut SplitMix64) {
    let mut ledger = LedgerDatabase::open(&path(folder)).expect("opens");
    let mut rest = records;
    while !rest.is_empty() {
        let batch = rest.len().min(1 + random.below(50) as usize);
        let kept: Vec<_> = rest[..batch]
            .iter()
            .filter_map(|record| LedgerCall::of_record(record, Some(3)))
            .collect();
        let done = ledger.write(&kept).expect("written");
        assert_eq!(done.records, batch as u64);
        rest = &rest[batch..];
        if random.below(4) == 0 {
            drop(ledger);
            ledger = LedgerDatabase::open(&path(folder)).expect("opens again");
        }
    }
}

/// The columns of `series` in version 10 as SQL.
const SERIES_OF_VERSION_10: &str = "'id', 'route', 'upstream', 'model', 'workload', 'agent', 'experiment', 'variant', 'outcome',
    'operation_class', 'upstream_facts', 'cluster', 'namespace', 'pod', 'team', 'cost_center', 'tenant'";

/// Undoes the step of the scores.
pub fn back_to_version_14(path: &Path) {
    let connection = rusqlite::Connection::open(path).expect("opens");
    let back = "DROP TABLE scores; PRAGMA user_version = 14";
    connection.execute_batch(back).expect("undone");
}

pub fn back_to_version_13(path: &Path) {
    back_to_version_14(path);
    let back =
        "DROP VIEW calls_readable; DROP TABLE analyses; ALTER TABLE rollups DROP COLUMN prompt;
        PRAGMA user_version = 13";
    let connection = rusqlite::Connection::open(path).expect("opens");
    connection.execute_batch(back).expect("undone");
}

pub fn back_to_version_10(path: &Path) {
    back_to_version_13(path);
    let back = "ALTER TABLE calls DROP COLUMN served_by;
        ALTER TABLE calls DROP COLUMN cost_unavailable; ALTER TABLE calls DROP COLUMN skipped_events;
        ALTER TABLE calls DROP COLUMN server_tools_us; PRAGMA user_version = 10";
    let connection = rusqlite::Connection::open(path).expect("opens");
    connection.execute_batch(back).expect("undone");
    let newer = "SELECT coalesce(group_concat('ALTER TABLE series DROP COLUMN ' || name, ';'), '')
        FROM pragma_table_info('series') WHERE name NOT IN";
    let newer: String = connection
        .query_row(&format!("{newer} ({SERIES_OF_VERSION_10})"), [], |row| {
            row.get(0)
        })
        .expect("columns");
    connection.execute_batch(&newer).expect("undone");
}

pub fn back_to_version_9(path: &Path) {
    back_to_version_10(path);
    let back = "DROP TABLE daily_spending; ALTER TABLE unsummed DROP COLUMN spending_below_key;
        PRAGMA user_version = 9";
    let connection = rusqlite::Connection::open(path).expect("opens");
    connection.execute_batch(back).expect("undone");
}

fn rounded(record: &CallRecord) -> serde_json::Value {
    let mut value = serde_json::to_value(record).expect("JSON");
    let round = |value: &mut serde_json::Value, by: f64| {
        if let Some(number) = value.as_f64() {
            *value = ((number * by).round() / by).into();
        }
    };
    for seconds in value["seconds"]
        .as_object_mut()
        .expect("seconds")
        .values_mut()
    {
        round(seconds, 1e6);
    }
    for name in ["output", "answer", "total", "reported", "prefill"] {
        round(&mut value["tps"][name], 1e3);
    }
    for segment in value["segments"].as_array_mut().expect("segments") {
        round(&mut segment["seconds"], 1e6);
    }
    round(&mut value["cost_usd"], 1e9);
    if let Some(engine) = value["engine"].as_object_mut() {
        for (name, value) in engine.iter_mut() {
            if name.ends_with("_seconds") {
                round(value, 1e6);
            }
        }
    }
    value
}

fn at(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + BEGIN + Duration::from_millis(ms)
}

pub fn sample(seed: u64, count: usize, every_ms: f64) -> Vec<CallRecord> {
    let mut records: Vec<_> = Records::new(at(0), every_ms)
        .skip(seed as usize % 500)
        .take(count)
        .collect();
    // Records are reported when their calls end.
    records.sort_by_key(|record| TimedCall::of(record).ended);
    let mut random = SplitMix64(seed);
    for record in &mut records {
        if random.below(5) == 0 {
            record.experiment = Some("e-1".into());
            record.variant = Some(random.of(&["a", "b"]).into());
        }
        if random.below(9) == 0 {
            record.session = None;
        }
    }
    records
}

fn input_price(place: &PromptPlace) -> Option<InputPrices> {
    (place.model.as_deref() != Some("llama-3.3-70b")).then_some(InputPrices {
        uncached: 2e-6,
        cached: 2e-7,
    })
}

fn all(records: &[CallRecord]) -> impl Iterator<Item = TimedCall<'_>> {
    records.iter().map(TimedCall::of)
}

fn close(found: Option<f64>, should: Option<f64>, within: f64) -> bool {
    match (found, should) {
        (Some(found), Some(should)) => (found - should).abs() <= within * should.abs() + 1e-5,
        (found, should) => found == should,
    }
}

fn same_session(found: &SessionRow, should: &SessionRow) {
    let id = &should.id;
    assert!(
        close(Some(found.seconds.wall), Some(should.seconds.wall), 1e-6),
        "{id} wall"
    );
    assert!(
        close(Some(found.seconds.model), Some(should.seconds.model), 1e-4),
        "{id} model {found:?} {should:?}"
    );
    assert!(
        close(found.seconds.ttft_p50, should.seconds.ttft_p50, 0.011),
        "{id} ttft"
    );
    assert!(
        close(found.tps.output, should.tps.output, 0.001),
        "{id} tps"
    );
    assert!(close(found.cost_usd, should.cost_usd, 1e-6), "{id} cost");
    let mut found = found.clone();
    found.seconds = should.seconds;
    found.tps = should.tps;
    found.cost_usd = should.cost_usd;
    // The last millisecond may be rounded the other way.
    found.last_at = should.last_at;
    assert_eq!(&found, should);
}

pub fn same_costs(found: &Costs, should: &Costs, what: &str) {
    assert_eq!(found.step, should.step);
    let names = |costs: &Costs| -> Vec<Option<String>> {
        costs
            .series
            .iter()
            .map(|series| series.name.clone())
            .collect()
    };
    assert_eq!(names(found), names(should), "{what}");
    assert_eq!(found.others.is_some(), should.others.is_some(), "{what}");
    let pairs = found.series.iter().zip(&should.series);
    for (found, should) in pairs.chain(found.others.iter().zip(&should.others)) {
        same_series(found, should);
    }
}

fn same_series(found: &CostSeries, should: &CostSeries) {
    assert_eq!((&found.name, found.names), (&should.name, should.names));
    same_sums(&found.sums, &should.sums);
    let instants = |series: &CostSeries| -> Vec<Timestamp> {
        series.points.iter().map(|point| point.at).collect()
    };
    assert_eq!(instants(found), instants(should), "{:?}", found.name);
    for (found, should) in found.points.iter().zip(&should.points) {
        same_sums(&found.sums, &should.sums);
    }
    let mut calls = found.points.iter().map(|point| point.sums.calls);
    assert_eq!(calls.by_ref().sum::<u64>(), found.sums.calls);
}

fn same_sums(found: &CostSums, should: &CostSums) {
    assert!(close(found.cost_usd, should.cost_usd, 1e-6), "{found:?}");
    let cost_usd = should.cost_usd;
    assert_eq!(&CostSums { cost_usd, ..*found }, should);
}

const SPENT_BY: [Dimension; 6] = [
    Dimension::User,
    Dimension::KeyHash,
    Dimension::Tool,
    Dimension::Model,
    Dimension::Outcome,
    Dimension::PromptLength,
];

/// What happens to calls between writing and reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stay,
    /// The older calls have expired.
    Age,
    /// Calls are deleted because of the size limit. Sums by day stay.
    NoRoom,
    /// Version 9 wrote a part of the calls, which has not been summed yet.
    Older,
    /// Version 9 wrote a part of the calls, which has been summed.
    BroughtForward,
}

impl Arbitrary for Fate {
    type Parameters = ();
    type Strategy = proptest::sample::Select<Fate>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        use Fate::{Age, BroughtForward, NoRoom, Older, Stay};
        proptest::sample::select(vec![Stay, Age, NoRoom, Older, BroughtForward])
    }
}

impl Fate {
    fn answered(self, mut query: CostQuery, ledger: &Ledger) -> Option<CostQuery> {
        let filter = &mut query.filter;
        match self {
            Fate::Age => filter.since = filter.since.max(Some(half_of(&ledger.records))),
            Fate::NoRoom => {
                // Sums by day cover whole days.
                let day = |at: SystemTime| {
                    let days = at
                        .duration_since(SystemTime::UNIX_EPOCH)
                        .expect("later")
                        .as_secs()
                        / DAY.as_secs();
                    SystemTime::UNIX_EPOCH + DAY * days as u32
                };
                filter.since = filter.since.map(day);
                filter.until = filter.until.map(day);
                query.daily_sums().filter(|_| query.step >= DAY)?;
            }
            Fate::Stay | Fate::Older | Fate::BroughtForward => {}
        }
        Some(query)
    }
}

fn half_of(records: &[CallRecord]) -> SystemTime {
    records[records.len() / 2].started_at.time()
}

fn spenders(seed: u64, every: f64, random: &mut SplitMix64) -> Vec<CallRecord> {
    let mut records = sample(seed, 200, every);
    for record in &mut records {
        record.user = (random.below(5) > 0).then(|| format!("user-{}", random.below(6)));
        record.key_hash = (random.below(3) > 0).then(|| format!("key-{}", random.below(3)));
    }
    records
}

fn left(records: Vec<CallRecord>, fate: Fate, random: &mut SplitMix64) -> Ledger {
    let folder = tempfile::tempdir().expect("a folder");
    if matches!(fate, Fate::Older | Fate::BroughtForward) {
        let (older, newer): (Vec<_>, Vec<_>) =
            (records.iter().cloned()).partition(|_| random.below(3) > 0);
        write(&folder, &older, random);
        back_to_version_9(&path(&folder));
        write(&folder, &newer, random);
    } else {
        write(&folder, &records, random);
    }
    let ms = |at: SystemTime| {
        at.duration_since(SystemTime::UNIX_EPOCH)
            .expect("later")
            .as_millis()
    };
    let keep = |age: Duration, bytes: u64| {
        let mut ledger = LedgerDatabase::open(&path(&folder)).expect("opens");
        let now = half_of(&records) + DAY * 30;
        tidy(&mut ledger, ms(now) as i64, &Limits { age, bytes });
    };
    match fate {
        Fate::Stay | Fate::Older => {}
        Fate::Age => keep(DAY * 30, u64::MAX),
        Fate::NoRoom => keep(DAY * 300, 1),
        Fate::BroughtForward => keep(DAY * 300, u64::MAX),
    }
    Ledger {
        reader: Reader::new(&path(&folder), Instant::now),
        _folder: folder,
        records,
    }
}

fn every_session(ledger: &Ledger, query: &SessionQuery, limit: usize) -> Vec<SessionRow> {
    let mut rows = Vec::new();
    let mut query = query.clone();
    query.page = Paging {
        limit,
        cursor: None,
    };
    loop {
        let page = ledger.reader.sessions(&query).expect("an answer");
        assert!(page.rows.len() <= limit);
        rows.extend(page.rows);
        match page.next_cursor {
            None => return rows,
            cursor => query.page.cursor = cursor,
        }
    }
}

#[test]
fn a_session_is_of_the_variant_of_the_call_that_ended_last() {
    let mut records: Vec<_> = Records::new(at(0), 1000.0).take(2).collect();
    for (record, (variant, started, duration)) in
        records.iter_mut().zip([("b", 1000, 1.0), ("a", 0, 60.0)])
    {
        record.session = Some("s".into());
        record.variant = Some(variant.into());
        record.started_at = at(started).into();
        record.seconds.duration = Some(duration);
    }
    let ledger = written(records, &mut SplitMix64(1));
    let query = SessionQuery::default();
    let kept = &every_session(&ledger, &query, 10)[0];
    let remembered = &history::sessions(all(&ledger.records), &query)[0];
    assert_eq!(kept.variant.as_deref(), Some("a"));
    assert_eq!(remembered.variant, kept.variant);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn sessions_are_summed_up_right_however_they_came(seed: u64, every in 1.0..30_000.0_f64) {
        let mut random = SplitMix64(seed);
        let ledger = written(sample(seed, 150, every), &mut random);
        let query = SessionQuery::default();
        let mut found = every_session(&ledger, &query, 1 + random.below(70) as usize);
        let mut should = history::sessions(all(&ledger.records), &query);
        prop_assert_eq!(found.len(), should.len());
        found.sort_by(|one, other| one.id.cmp(&other.id));
        should.sort_by(|one, other| one.id.cmp(&other.id));
        for (found, should) in found.iter().zip(&should) {
            same_session(found, should);
        }
        let took = should.iter().map(|session| session.seconds.wall);
        let took = history::tasks(took, None);
        let kept = ledger.reader.task_seconds(&Filter::default()).expect("an answer");
        let kept = history::tasks(kept, None);
        prop_assert_eq!(kept.tasks, took.tasks);
        prop_assert!(close(kept.seconds.p95, took.seconds.p95, 0.001));
        prop_assert!(close(kept.seconds.mean, took.seconds.mean, 0.001));
    }

    #[test]
    fn every_order_is_the_same_in_pages_and_at_once(seed: u64) {
        let mut random = SplitMix64(seed);
        let ledger = written(sample(seed, 150, 900.0), &mut random);
        use SessionSort::{Calls, Cost, Duration, Errors, LastAt, StartedAt, Tokens, Tps, Ttft};
        for sort in [LastAt, StartedAt, Cost, Tokens, Calls, Duration, Errors, Ttft, Tps] {
            for ascending in [false, true] {
                let query = SessionQuery { sort, ascending, ..SessionQuery::default() };
                let paged = every_session(&ledger, &query, 7);
                let whole = every_session(&ledger, &query, 1000);
                prop_assert_eq!(&paged, &whole);
                let value = |row: &SessionRow| match sort {
                    Cost => row.cost_usd,
                    Calls => Some(row.calls as f64),
                    Tps => row.tps.output,
                    Duration => Some(row.seconds.wall),
                    _ => None,
                };
                for pair in whole.windows(2) {
                    if let (Some(one), Some(next)) = (value(&pair[0]), value(&pair[1])) {
                        // Speeds are sorted by their thousandths.
                        let (one, next) = if sort == Tps { ((one * 1e3).floor(), (next * 1e3).floor()) } else { (one, next) };
                        let ordered = if ascending { one <= next } else { one >= next };
                        prop_assert!(ordered, "{one} {next}");
                    }
                    if sort == Cost || sort == Tps {
                        prop_assert!(value(&pair[0]).is_some() || value(&pair[1]).is_none());
                    }
                }
            }
        }
    }

    #[test]
    fn groups_over_any_time_match_their_calls(
        seed: u64,
        every in 1.0..2_000_000.0_f64,
        from in 0.0..1.0_f64,
        length in 0.0..1.0_f64,
    ) {
        let mut random = SplitMix64(seed);
        let ledger = written(sample(seed, 200, every), &mut random);
        let whole = 200.0 * every;
        let mut filters = vec![Filter::default()];
        filters.push(Filter {
            since: Some(at((from * whole) as u64)),
            until: Some(at(((from + length) * whole) as u64)),
            ..Filter::default()
        });
        filters.push(Filter { names: [(Dimension::Upstream, Some("openai".into()))].into(), outcomes: vec![Outcome::Complete], ..filters[1].clone() });
        filters.push(Filter { names: [(Dimension::Experiment, Some("e-1".into())), (Dimension::Agent, Some("langchain/1.0".into()))].into(), ..Filter::default() });
        let of_a_call = |by: Dimension| by.of(&ledger.records[7]).map(Cow::into_owned);
        let of_a_call = dimension::FILTERS.into_iter().map(|by| (by, of_a_call(by)));
        filters.extend(of_a_call.map(|name| Filter { names: [name].into(), ..Filter::default() }));
        filters.push(Filter { names: [(Dimension::Team, Some("team-chat".into())), (Dimension::Tenant, ledger.records[5].tenant.clone())].into(), ..Filter::default() });
        filters.push(Filter { names: [(Dimension::Tool, Some("fetch+search".into()))].into(), ..Filter::default() });
        filters.push(Filter { names: [(Dimension::Tool, Some("search".into()))].into(), ..Filter::default() });
        filters.push(Filter { session: ledger.records[3].session.clone(), ..Filter::default() });
        for filter in &filters {
            let selected = all(&ledger.records).filter(|past| history::matches(filter, past));
            let should = priced(history::prompt_tools(selected), input_price);
            let found = ledger.reader.prompt_tools(filter).expect("an answer");
            prop_assert_eq!(priced(found, input_price), should, "{:?}", filter);
            let selected = all(&ledger.records).filter(|past| history::matches(filter, past));
            let should = history::cache_breaks(selected);
            let found = ledger.reader.cache_breaks(filter).expect("an answer");
            prop_assert_eq!(found.len(), should.len(), "{:?}", filter);
            for should in &should {
                let found = found.iter().find(|row| row.of == should.of).expect("the same cause");
                prop_assert_eq!((found.calls, found.tokens), (should.calls, should.tokens));
                prop_assert_eq!((found.first_at, found.last_at), (should.first_at, should.last_at));
                prop_assert_eq!(found.cost_usd.is_some(), should.cost_usd.is_some());
                let (one, other) = (found.cost_usd.unwrap_or(0.0), should.cost_usd.unwrap_or(0.0));
                prop_assert!((one - other).abs() < 1e-9, "{} {}", one, other);
            }
            let mut any = || DIMENSIONS[random.below(DIMENSIONS.len() as u64) as usize].dimension;
            for by in [
                &[any()][..],
                &[any()][..],
                &[any(), any()][..],
                &[Dimension::PromptLength, Dimension::OutputLength, any()][..],
            ] {
                let should = history::groups(all(&ledger.records).filter(|past| history::matches(filter, past)), by);
                let page = Paging { limit: 1000, cursor: None };
                let found = ledger.reader.groups(filter, by, &page).expect("an answer").rows;
                prop_assert_eq!(found.len(), should.len(), "{:?}", filter);
                for should in &should {
                    let found = found.iter().find(|row| row.names == should.names).expect("the same names");
                    prop_assert_eq!((found.calls, found.errors), (should.calls, should.errors));
                    prop_assert_eq!(found.tokens, should.tokens);
                    prop_assert_eq!(found.prompt, should.prompt);
                    prop_assert_eq!(&found.bands, &should.bands);
                    prop_assert_eq!(found.unpriced_calls, should.unpriced_calls);
                    prop_assert!(close(found.cost_usd, should.cost_usd, 1e-6));
                    prop_assert!(close(found.usd_per_million_output, should.usd_per_million_output, 1e-6));
                    prop_assert!(close(found.tps.mean, should.tps.mean, 0.001));
                    prop_assert_eq!(found.tps.calls, should.tps.calls);
                    prop_assert_eq!(found.ttft.calls, should.ttft.calls);
                    prop_assert!(close(found.ttft.share, should.ttft.share, 0.001));
                    prop_assert!(close(found.tps_reported.mean, should.tps_reported.mean, 0.001));
                    for (found, should) in [
                        (found.tps.p50, should.tps.p50),
                        (found.tps.p10, should.tps.p10),
                        (found.tps.p5, should.tps.p5),
                        (found.tps.p1, should.tps.p1),
                        (found.tps_reported.p50, should.tps_reported.p50),
                        (found.tps_reported.p10, should.tps_reported.p10),
                        (found.tps_reported.p1, should.tps_reported.p1),
                        (found.ttft.p50, should.ttft.p50),
                        (found.ttft.p95, should.ttft.p95),
                        (found.ttft.p99, should.ttft.p99),
                    ] {
                        prop_assert!(close(found, should, 0.011), "{found:?} {should:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn costs_over_time_match_the_calls_in_each_step(
        seed: u64,
        every in 10.0..200_000.0_f64,
        from in 0.0..0.9_f64,
        step in 0_usize..5,
        most in 1_usize..6,
    ) {
        let ledger = written(sample(seed, 200, every), &mut SplitMix64(seed));
        let whole = 200.0 * every;
        let all_calls = Filter { since: Some(at((from * whole) as u64)), until: Some(at(whole as u64)), ..Filter::default() };
        let step = Duration::from_secs([7, 60, 900, 3_600, 86_400][step]);
        for filter in [
            all_calls.clone(),
            Filter { names: [(Dimension::Upstream, Some("openai".into()))].into(), outcomes: vec![Outcome::Complete], ..all_calls.clone() },
            Filter { names: [(Dimension::User, ledger.records[7].user.clone())].into(), ..all_calls },
        ] {
            for by in [Dimension::Model, Dimension::User, Dimension::Agent, Dimension::PromptLength] {
                let query = CostQuery { filter: filter.clone(), by, step, most };
                let calls = all(&ledger.records).filter(|past| history::matches(&filter, past));
                let should = history::costs(calls, &query);
                let found = ledger.reader.costs(&query).expect("an answer");
                prop_assert!(should.series.len() <= most);
                same_costs(&found, &should, &format!("{query:?}"));
            }
        }
    }

    #[test]
    fn costs_by_day_match_the_calls_whether_or_not_they_still_exist(
        seed: u64,
        every in 600_000.0..5_000_000.0_f64,
        from in 0.0..0.9_f64,
        length in 0.0..1.1_f64,
        step in 0_usize..4,
        most in 1_usize..6,
        fate: Fate,
    ) {
        let mut random = SplitMix64(seed);
        let ledger = left(spenders(seed, every, &mut random), fate, &mut random);
        let whole = 200.0 * every;
        let span = |from: f64, to: f64| (Some(at((from * whole) as u64)), Some(at((to * whole) as u64)));
        let spans = [span(from, from + length), (span(from, 1.0).0, None), (None, None), span(-0.1, 1.2)];
        let one = &ledger.records[random.below(200) as usize];
        let filters = [
            Filter::default(),
            Filter { names: [(Dimension::User, one.user.clone())].into(), ..Filter::default() },
            Filter { names: [(Dimension::KeyHash, one.key_hash.clone()), (Dimension::Tool, one.tools.clone())].into(), ..Filter::default() },
            Filter { names: [(Dimension::Tool, Some("fetch".into()))].into(), ..Filter::default() },
            Filter { names: [(Dimension::User, Some("user-1".into())), (Dimension::Model, one.model.clone())].into(), outcomes: vec![Outcome::Complete], ..Filter::default() },
            Filter { session: one.session.clone(), ..Filter::default() },
        ];
        let days = [1.0, 2.0, 7.0, 0.5][step];
        for ((since, until), filter) in spans.into_iter().flat_map(|span| filters.iter().map(move |filter| (span, filter))) {
            let by = SPENT_BY[random.below(SPENT_BY.len() as u64) as usize];
            let query = CostQuery { filter: Filter { since, until, ..filter.clone() }, by, step: DAY.mul_f64(days), most };
            let Some(query) = fate.answered(query, &ledger) else { continue };
            let calls = all(&ledger.records).filter(|past| history::matches(&query.filter, past));
            let should = history::costs(calls, &query);
            let found = ledger.reader.costs(&query).expect("an answer");
            same_costs(&found, &should, &format!("{fate:?} {query:?}"));
        }
    }

    #[test]
    fn a_time_series_has_every_call_in_its_step(seed: u64, every in 10.0..200_000.0_f64, step in 0_usize..5) {
        let ledger = written(sample(seed, 200, every), &mut SplitMix64(seed));
        let step = Duration::from_secs([7, 60, 900, 3_600, 86_400][step]);
        for metric in [SeriesMetric::Tps, SeriesMetric::Ttft] {
            let should = history::timeseries(all(&ledger.records), metric, step, None);
            let found = ledger.reader.timeseries(&Filter::default(), metric, step).expect("an answer");
            prop_assert!(found.points.len() <= 1000);
            for should in should.points.iter().filter(|point| point.calls > 0) {
                let Some(found) = found.points.iter().find(|point| point.at == should.at) else {
                    prop_assert_eq!(found.points.len(), 1000, "only the newest are there");
                    continue;
                };
                prop_assert_eq!((found.calls, found.errors), (should.calls, should.errors));
                prop_assert!(close(Some(found.requests_per_second), Some(should.requests_per_second), 1e-9));
                prop_assert!(close(found.p50, should.p50, 0.011));
                prop_assert!(close(found.p99, should.p99, 0.011));
                // Values are rounded when they are stored, so a few near a bound are on its other side.
                prop_assert_eq!(found.counts.iter().sum::<u64>(), should.counts.iter().sum::<u64>());
                prop_assert!(found.counts.is_empty() || found.counts.len() + 1 == ledger.reader.timeseries(&Filter::default(), metric, step).expect("an answer").bounds.len());
            }
        }
    }

    #[test]
    fn calls_come_newest_first_whole_and_each_once(seed: u64, every in 0.0..5_000.0_f64) {
        let ledger = written(sample(seed, 200, every), &mut SplitMix64(seed));
        let filters = [
            Filter::default(),
            Filter { names: [(Dimension::Model, Some("gpt-5.1".into()))].into(), ..Filter::default() },
            Filter { session: ledger.records[3].session.clone(), ..Filter::default() },
            Filter { names: [(Dimension::User, ledger.records[7].user.clone())].into(), outcomes: vec![Outcome::Complete], ..Filter::default() },
            Filter { outcomes: vec![Outcome::HttpError, Outcome::Timeout], ..Filter::default() },
            Filter { since: Some(at(5_000)), until: Some(at(50_000)), ..Filter::default() },
            Filter { names: [(Dimension::Agent, Some("nobody".into()))].into(), ..Filter::default() },
            Filter { names: [(Dimension::Team, Some("team-chat".into()))].into(), ..Filter::default() },
            Filter { names: [(Dimension::KeyHash, ledger.records[7].key_hash.clone())].into(), ..Filter::default() },
            Filter { names: [(Dimension::Tool, Some("search".into()))].into(), ..Filter::default() },
        ];
        for filter in filters {
            let mut should: Vec<_> = all(&ledger.records)
                .filter(|past| history::matches(&filter, past))
                .map(|past| rounded(past.record))
                .collect();
            let mut found = Vec::new();
            let mut page = Paging { limit: 30, cursor: None };
            loop {
                let answer = ledger.reader.calls(&filter, &page).expect("an answer");
                found.extend(answer.rows);
                match answer.next_cursor {
                    None => break,
                    cursor => page.cursor = cursor,
                }
            }
            prop_assert!(found.windows(2).all(|pair| pair[0].started_at >= pair[1].started_at));
            let id = |value: &serde_json::Value| value["id"].to_string();
            let mut found: Vec<_> = found.iter().map(rounded).collect();
            found.sort_by_key(id);
            should.sort_by_key(id);
            prop_assert_eq!(found, should);
        }
    }
}

/// Records of which some have no cost or speed for any reason, and some are not generations.
fn with_reasons(seed: u64, random: &mut SplitMix64) -> Vec<CallRecord> {
    let mut records = sample(seed, 200, 500_000.0);
    for record in &mut records {
        if random.below(2) == 0 {
            let reason = CostUnavailable::ALL[random.below(7) as usize];
            record.cost_usd = None;
            record.cost_unavailable = (random.below(8) > 0).then_some(reason);
        }
        if random.below(2) == 0 {
            let reason = TpsUnavailable::ALL[random.below(10) as usize];
            record.tps.output = None;
            record.tps.unavailable = (random.below(8) > 0).then_some(reason);
        }
        if random.below(10) == 0 {
            record.operation_class = OperationClass::Other;
        }
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn coverage_matches_the_calls_and_links_to_the_calls_of_each_reason(seed: u64) {
        let mut random = SplitMix64(seed);
        let ledger = written(with_reasons(seed, &mut random), &mut random);
        let one = &ledger.records[random.below(200) as usize];
        let classes = |classes: &[OperationClass]| Filter { operation_classes: classes.to_vec(), ..Filter::default() };
        let filters = [
            Filter::default(),
            classes(&Filter::counted()),
            classes(&[OperationClass::Other]),
            Filter { since: Some(at(10_000_000)), until: Some(at(70_000_000)), ..Filter::default() },
            Filter { names: [(Dimension::Model, one.model.clone()), (Dimension::User, one.user.clone())].into(), ..Filter::default() },
            Filter { session: one.session.clone(), ..Filter::default() },
            Filter { names: [(Dimension::Tool, Some("search".into()))].into(), outcomes: vec![Outcome::Complete], ..Filter::default() },
        ];
        for filter in filters {
            let should = history::coverage(all(&ledger.records), &filter);
            let found = ledger.reader.coverage(&filter).expect("an answer");
            prop_assert_eq!(&found, &should, "{:?}", filter);
            let counted = |past: &TimedCall<'_>| history::matches(&filter, past) && past.record.operation_class.counts();
            let calls = all(&ledger.records).filter(counted).count() as u64;
            prop_assert_eq!(found.calls, calls);
            prop_assert_eq!(found.with_cost + found.cost_unavailable.values().sum::<u64>(), calls);
            prop_assert_eq!(found.with_speed + found.tps_unavailable.values().sum::<u64>(), calls);
        }
        let counted = classes(&Filter::counted());
        let coverage = ledger.reader.coverage(&counted).expect("an answer");
        let page = Paging { limit: 1000, cursor: None };
        let reasons = CostUnavailable::ALL.into_iter().map(|reason| {
            let filter = Filter { cost_unavailable: Some(reason), ..counted.clone() };
            (filter, coverage.cost_unavailable.get(reason.as_str()))
        });
        let speeds = TpsUnavailable::ALL.into_iter().map(|reason| {
            let filter = Filter { tps_unavailable: Some(reason), ..counted.clone() };
            (filter, coverage.tps_unavailable.get(reason.as_str()))
        });
        for (filter, calls) in reasons.chain(speeds) {
            let calls = calls.copied().unwrap_or(0);
            let kept = ledger.reader.calls(&filter, &page).expect("an answer").rows;
            let remembered = all(&ledger.records).filter(|past| history::matches(&filter, past));
            prop_assert_eq!(kept.len() as u64, calls, "{:?}", filter);
            prop_assert_eq!(remembered.count() as u64, calls, "{:?}", filter);
        }
    }
}

#[test]
fn a_tool_is_found_as_the_only_one_and_among_others() {
    let mut records = sample(9, 200, 30_000_000.0);
    for (at, record) in records.iter_mut().enumerate() {
        let tools = [
            None,
            Some("search"),
            Some("fetch"),
            Some("fetch+search"),
            Some("fetch+research+search"),
            Some("research"),
            Some("fetch+search+verify"),
            Some("search_web"),
        ];
        record.tools = tools[at % tools.len()].map(str::to_owned);
    }
    let ledger = written(records, &mut SplitMix64(9));
    for (wanted, calls) in [
        ("search", 4),
        ("fetch", 4),
        ("research", 2),
        ("verify", 1),
        ("search_web", 1),
        ("fetch+search", 1),
        ("search+verify", 0),
        ("sea", 0),
        ("", 0),
        ("%", 0),
    ] {
        let filter = Filter {
            names: [(Dimension::Tool, Some(wanted.to_owned()))].into(),
            ..Filter::default()
        };
        let calls = calls * 200 / 8;
        let remembered = || all(&ledger.records).filter(|past| history::matches(&filter, past));
        assert_eq!(remembered().count(), calls, "{wanted:?} in memory");
        let page = Paging {
            limit: 1000,
            cursor: None,
        };
        let kept = ledger.reader.calls(&filter, &page).expect("an answer");
        assert_eq!(kept.rows.len(), calls, "{wanted:?} in the ledger");
        let groups = ledger.reader.groups(&filter, &[Dimension::Tool], &page);
        let groups = groups.expect("an answer").rows;
        let sum: u64 = groups.iter().map(|row| row.calls).sum();
        assert_eq!(sum as usize, calls, "{wanted:?} by tool");
        for by in [Dimension::Tool, Dimension::Model] {
            let query = CostQuery {
                filter: filter.clone(),
                by,
                step: DAY,
                most: 5,
            };
            let kept = ledger.reader.costs(&query).expect("an answer");
            let series = kept.series.iter().chain(&kept.others);
            let sum: u64 = series.map(|series| series.sums.calls).sum();
            assert_eq!(sum as usize, calls, "{wanted:?} by day");
            same_costs(&kept, &history::costs(remembered(), &query), wanted);
        }
        let query = SessionQuery {
            filter,
            ..SessionQuery::default()
        };
        let mut kept: Vec<_> = every_session(&ledger, &query, 50)
            .into_iter()
            .map(|row| row.id)
            .collect();
        let remembered = history::sessions(all(&ledger.records), &query);
        let mut remembered: Vec<_> = remembered.into_iter().map(|row| row.id).collect();
        kept.sort();
        remembered.sort();
        assert_eq!(kept, remembered, "sessions of {wanted:?}");
    }
}

#[test]
fn every_call_is_found_by_its_id() {
    let ledger = written(sample(4, 200, 500.0), &mut SplitMix64(4));
    for record in &ledger.records {
        let id = record.id.parse().expect("an id");
        let found = ledger
            .reader
            .call(id)
            .expect("an answer")
            .expect("the call");
        assert_eq!(found.id, record.id);
    }
    for unknown in [
        uuid::Uuid::nil(),
        uuid::Uuid::new_v4(),
        uuid::Uuid::now_v7(),
    ] {
        assert_eq!(ledger.reader.call(unknown).expect("an answer"), None);
    }
}

#[test]
fn a_session_is_a_waterfall_of_its_calls_page_by_page() {
    let ledger = written(sample(1, 300, 40.0), &mut SplitMix64(1));
    let longest = every_session(
        &ledger,
        &SessionQuery {
            sort: SessionSort::Calls,
            ..SessionQuery::default()
        },
        1,
    );
    let id = &longest[0].id;
    let calls = all(&ledger.records).filter(|past| past.record.session.as_deref() == Some(id));
    let (session, should) = history::waterfall(calls).expect("it is there");
    let mut page = Paging {
        limit: 3,
        cursor: None,
    };
    let mut found = Vec::new();
    loop {
        let detail = ledger.reader.session(id, &page).expect("an answer");
        let detail = detail.expect("it is there");
        same_session(&detail.session, &session);
        found.extend(detail.calls);
        match detail.next_cursor {
            None => break,
            cursor => page.cursor = cursor,
        }
    }
    assert!(found.len() > 6 && found.len() == should.len());
    for (found, should) in found.iter().zip(&should) {
        assert_eq!(found.id, should.id);
        assert!(close(Some(found.offset), Some(should.offset), 1e-9));
        assert!(
            close(found.wait_before, should.wait_before, 1e-6),
            "{found:?} {should:?}"
        );
        let names = |call: &tokengauge_store::query::WaterfallCall| {
            call.phases
                .iter()
                .map(|phase| phase.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(found), names(should));
        for pair in found.phases.windows(2) {
            assert_eq!(pair[0].end, pair[1].start, "without gaps");
        }
    }
    let page = Paging::default();
    assert_eq!(
        ledger
            .reader
            .session("no such session", &page)
            .expect("an answer"),
        None
    );
}

#[test]
fn sessions_are_found_by_what_their_calls_had() {
    let ledger = written(sample(2, 300, 500.0), &mut SplitMix64(2));
    let mut queries = Vec::new();
    for filter in [
        Filter {
            names: [(Dimension::Model, Some("claude-opus-4-1".into()))].into(),
            ..Filter::default()
        },
        Filter {
            outcomes: vec![Outcome::HttpError, Outcome::Timeout],
            names: [(Dimension::Experiment, Some("e-1".into()))].into(),
            ..Filter::default()
        },
        Filter {
            since: Some(at(60_000)),
            until: Some(at(90_000)),
            ..Filter::default()
        },
        Filter {
            names: [(Dimension::Route, Some("nowhere".into()))].into(),
            ..Filter::default()
        },
    ] {
        queries.push(SessionQuery {
            filter,
            ..SessionQuery::default()
        });
    }
    let part = ledger
        .records
        .iter()
        .find_map(|record| record.session.as_deref());
    let part = part.expect("a session")[4..12].to_uppercase();
    for search in ["CODEX", "%", "_cli_", &part, "nobody"] {
        queries.push(SessionQuery {
            search: Some(search.to_owned()),
            ..SessionQuery::default()
        });
    }
    for query in queries {
        let ids = |rows: Vec<SessionRow>| {
            let mut ids: Vec<_> = rows.into_iter().map(|row| row.id).collect();
            ids.sort();
            ids
        };
        let should = ids(history::sessions(all(&ledger.records), &query));
        assert_eq!(ids(every_session(&ledger, &query, 9)), should, "{query:?}");
    }
}

#[test]
fn a_query_has_a_time_limit_and_a_cursor_is_checked() {
    let ledger = written(sample(3, 4000, 500.0), &mut SplitMix64(3));
    let path = path(&ledger._folder);
    let impatient = Reader::within(&path, Instant::now, Duration::ZERO);
    let refused = impatient.groups(
        &Filter {
            names: [(Dimension::User, ledger.records[7].user.clone())].into(),
            ..Filter::default()
        },
        &[Dimension::Model],
        &Paging::default(),
    );
    assert!(
        matches!(refused, Err(QueryError::TimeLimit(_))),
        "{refused:?}"
    );
    let page = Paging {
        limit: 5,
        cursor: Some("x".into()),
    };
    let filter = Filter::default();
    assert!(matches!(
        ledger.reader.calls(&filter, &page),
        Err(QueryError::Wrong(_))
    ));
    assert!(matches!(
        ledger.reader.models(&filter, &page),
        Err(QueryError::Wrong(_))
    ));
    let query = SessionQuery {
        page,
        ..SessionQuery::default()
    };
    assert!(matches!(
        ledger.reader.sessions(&query),
        Err(QueryError::Wrong(_))
    ));
    let nowhere = Reader::new(&path.with_extension("gone"), Instant::now);
    let refused = nowhere.calls(&filter, &Paging::default());
    assert!(matches!(refused, Err(QueryError::Unavailable { .. })));
}

/// 40,000 sessions, each with its own agent and user.
const MANY: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
    INSERT INTO names SELECT i, 'agent', 'agent-' || i FROM n
        UNION ALL SELECT 100000 + i, 'user', 'user-' || i FROM n
        UNION ALL SELECT 200001, 'model', 'm';
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
    INSERT INTO sessions SELECT i, 'session-' || i, i * 1000, i * 1000 + 500, NULL, 100000 + i,
        NULL, NULL, 1, 0, 10, NULL, 10, NULL, i % 1000, 0, 9, 400, 500, NULL, NULL, x'' FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
    INSERT INTO session_names SELECT i, i FROM n UNION ALL SELECT i, 100000 + i FROM n
        UNION ALL SELECT i, 200001 FROM n;";

#[test]
fn a_long_page_of_sessions_is_quick_however_many_names_there_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = path(&folder);
    drop(LedgerDatabase::open(&path).expect("opens"));
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection.execute_batch(MANY).expect("written");
    drop(connection);
    // The query takes about 50 ms. A scan of all names would take 8 s.
    let reader = Reader::within(&path, Instant::now, Duration::from_secs(6));
    let page = Paging {
        limit: 1000,
        cursor: None,
    };
    let sorts = [SessionSort::LastAt, SessionSort::Cost, SessionSort::Tps];
    let mut queries: Vec<_> = sorts.map(|sort| (sort, None)).into();
    queries.push((SessionSort::LastAt, Some("session-1".to_owned())));
    for (sort, search) in queries {
        let query = SessionQuery {
            sort,
            search,
            page: page.clone(),
            ..SessionQuery::default()
        };
        let began = Instant::now();
        let found = reader.sessions(&query).expect("in time");
        println!("{query:?}: {:?}", began.elapsed());
        assert_eq!(found.rows.len(), 1000);
        let row = &found.rows[0];
        let number = row.id.strip_prefix("session-").expect("its name");
        assert_eq!(row.agents, [format!("agent-{number}")]);
        assert_eq!(row.models, ["m"]);
    }
}
