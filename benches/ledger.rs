//! The ledger at its maximum size: writes five million records of a month through the real writer's batches, and times
//! every API page that reads them.
//!
//! ```console
//! $ cargo bench --bench ledger                                  # 5,000,000 records
//! $ TOKENGAUGE_RECORDS=200000 cargo bench --bench ledger
//! $ TOKENGAUGE_LEDGER=/tmp/ledger.sqlite cargo bench --bench ledger   # kept, and only read the next time
//! ```
//!
//! The exit code is 1 if the file is larger than 2 GB, or if a page's median time is 200 ms or longer.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::{CallRecord, Outcome};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Limits, Now, QueryError, Reader};
use tokengauge_store::query::{
    CostQuery, Dimension, Filter, Paging, SeriesMetric, SessionQuery, SessionSort,
};
use tokengauge_test_support::records::Records;

const RECORDS: usize = 5_000_000;
const MONTH: Duration = Duration::from_secs(30 * 86_400);
const BATCH: usize = 1_000;
const GOAL: Duration = Duration::from_millis(200);
const MAX_BYTES: u64 = 2_000_000_000;
const RUNS: usize = 5;

fn main() {
    let records = number("TOKENGAUGE_RECORDS").unwrap_or(RECORDS);
    let folder = tempfile::tempdir().expect("a folder");
    let named = std::env::var_os("TOKENGAUGE_LEDGER").map(PathBuf::from);
    let path = named.unwrap_or_else(|| folder.path().join("ledger.sqlite"));
    if !path.exists() {
        fill(&path, records, SystemTime::now());
    }
    let now = newest(&path);
    let bytes = std::fs::metadata(&path).expect("a file").len();
    let each = bytes as f64 / records as f64;
    println!(
        "file: {:.3} GB, {each:.0} bytes a record",
        bytes as f64 / 1e9
    );
    let slow = pages(&path, now);
    if bytes > MAX_BYTES || slow > 0 {
        println!("missed: {slow} pages are too slow, or the file is too large");
        std::process::exit(1);
    }
}

fn newest(path: &Path) -> SystemTime {
    let reader = Reader::new(path, Instant::now);
    let sessions = reader.sessions(&SessionQuery::default());
    sessions.expect("an answer").rows[0].last_at.time()
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

fn fill(path: &Path, count: usize, now: SystemTime) {
    let begin = Instant::now();
    let every = MONTH.as_millis() as f64 / count as f64;
    let limits = Limits {
        age: 2 * MONTH,
        bytes: u64::MAX,
    };
    let mut ledger = LedgerDatabase::open(path).expect("opens");
    let mut records = Records::new(now - MONTH, every).take(count);
    let (mut written, mut writing, mut slowest) = (0, Duration::ZERO, Duration::ZERO);
    loop {
        let batch: Vec<CallRecord> = records.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        let calls: Vec<_> = batch
            .iter()
            .filter_map(|record| LedgerCall::of_record(record, Some(4)))
            .collect();
        let started = Instant::now();
        written += ledger.write(&calls).expect("written").records;
        writing += started.elapsed();
        slowest = slowest.max(started.elapsed());
        if written % 1_000_000 == 0 {
            println!("{written} records after {:.0?}", begin.elapsed());
        }
    }
    let at = u64::try_from(
        now.duration_since(SystemTime::UNIX_EPOCH)
            .expect("later")
            .as_millis(),
    );
    let now = Now {
        monotonic: Instant::now(),
        wall_ms: at.expect("soon") as i64,
    };
    while ledger.tidy(now, &limits).expect("tidy") {}
    let rate = written as f64 / writing.as_secs_f64();
    println!("written: {written} records, {rate:.0} a second, slowest batch {slowest:.0?}");
}

type PageQuery<'a> = (
    String,
    Box<dyn Fn(&Reader) -> Result<usize, QueryError> + 'a>,
);

/// Times every page, and returns the number of slow ones.
fn pages(path: &Path, now: SystemTime) -> usize {
    let reader = Reader::new(path, Instant::now);
    let back = |hours: u64| Filter {
        since: Some(now - Duration::from_secs(hours * 3600 + 137)),
        ..Filter::default()
    };
    let mut queries: Vec<PageQuery<'_>> = Vec::new();
    sessions(&mut queries, &reader, &back);
    groups(&mut queries, &back);
    series(&mut queries, &back);
    costs(&mut queries, &back);
    calls(&mut queries, &reader, &back);
    queries.push((
        "capacity".into(),
        Box::new(|reader| Ok(reader.capacity(&Filter::default())?.len())),
    ));
    println!("\n| page | rows | median, ms | slowest, ms |\n|---|---|---|---|");
    let mut slow = 0;
    for (name, query) in queries {
        let mut times = Vec::new();
        let mut rows = 0;
        for _ in 0..RUNS {
            let started = Instant::now();
            rows = query(&reader).expect("an answer");
            times.push(started.elapsed());
        }
        times.sort();
        let (median, slowest) = (times[RUNS / 2], times[RUNS - 1]);
        let late = if median >= GOAL { " (!)" } else { "" };
        slow += usize::from(median >= GOAL);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "| {name} | {rows} | {:.1}{late} | {:.1} |",
            ms(median),
            ms(slowest)
        );
    }
    slow
}

fn sessions<'a>(queries: &mut Vec<PageQuery<'a>>, reader: &Reader, back: &dyn Fn(u64) -> Filter) {
    let mut add = |name: String, query: SessionQuery| {
        queries.push((
            name,
            Box::new(move |reader| Ok(reader.sessions(&query)?.rows.len())),
        ));
    };
    use SessionSort::{Calls, Cost, Duration, Errors, LastAt, StartedAt, Tokens, Tps, Ttft};
    for sort in [
        LastAt, StartedAt, Cost, Tokens, Calls, Duration, Errors, Ttft, Tps,
    ] {
        let query = SessionQuery {
            sort,
            ..SessionQuery::default()
        };
        let next = reader.sessions(&query).expect("an answer").next_cursor;
        add(format!("sessions by {sort:?}"), query.clone());
        let page = Paging {
            limit: 1000,
            cursor: next,
        };
        add(
            format!("sessions by {sort:?}, second page of 1000"),
            SessionQuery { page, ..query },
        );
    }
    let of = |filter: Filter| SessionQuery {
        filter,
        ..SessionQuery::default()
    };
    add("sessions of the last 24 h".into(), of(back(24)));
    let model = Filter {
        names: [
            (Dimension::Model, Some("claude-opus-4-1".into())),
            (Dimension::Agent, Some("langchain/1.0".into())),
        ]
        .into(),
        ..Filter::default()
    };
    add("sessions by model and agent".into(), of(model.clone()));
    let sort = Cost;
    add(
        "sessions by model and agent, by cost".into(),
        SessionQuery { sort, ..of(model) },
    );
    let failed = Filter {
        outcomes: vec![Outcome::Timeout],
        ..Filter::default()
    };
    add("sessions with a timeout".into(), of(failed));
    for search in ["abc12", "codex", "no such session"] {
        let query = SessionQuery {
            search: Some(search.into()),
            sort: Cost,
            ..SessionQuery::default()
        };
        add(format!("sessions with {search:?} by cost"), query);
    }
    let most = SessionQuery {
        sort: Calls,
        ..SessionQuery::default()
    };
    let id = reader.sessions(&most).expect("an answer").rows[0]
        .id
        .clone();
    let query = move |reader: &Reader| {
        let detail = reader.session(&id, &Paging::default())?;
        Ok(detail.map_or(0, |detail| detail.calls.len()))
    };
    queries.push(("the session with most calls".into(), Box::new(query)));
}

fn groups<'a>(queries: &mut Vec<PageQuery<'a>>, back: &dyn Fn(u64) -> Filter) {
    for (name, filter) in [
        ("a month", Filter::default()),
        ("72 h", back(72)),
        ("1 h", back(1)),
        (
            "an agent's errors",
            Filter {
                names: [(Dimension::Agent, Some("codex_cli_rs/0.58.0".into()))].into(),
                outcomes: vec![Outcome::HttpError],
                ..Filter::default()
            },
        ),
        (
            "a user",
            Filter {
                names: [(Dimension::User, Some(format!("{:032x}", 17)))].into(),
                ..Filter::default()
            },
        ),
    ] {
        for by in [
            &[Dimension::Model][..],
            &[Dimension::Workload],
            &[Dimension::Model, Dimension::Agent],
        ] {
            let filter = filter.clone();
            let query = move |reader: &Reader| {
                Ok(reader.groups(&filter, by, &Paging::default())?.rows.len())
            };
            queries.push((format!("{by:?} of {name}"), Box::new(query)));
        }
    }
}

fn series<'a>(queries: &mut Vec<PageQuery<'a>>, back: &dyn Fn(u64) -> Filter) {
    for (name, hours, step) in [
        ("15 min by 10 s", 0, 10),
        ("6 h by a minute", 6, 60),
        ("24 h by 5 min", 24, 300),
        ("72 h by 15 min", 72, 900),
        ("30 days by an hour", 720, 3_600),
        ("30 days by a day", 720, 86_400),
    ] {
        for metric in [SeriesMetric::Tps, SeriesMetric::Ttft] {
            let mut filter = back(hours);
            if hours == 0 {
                filter.since = filter
                    .since
                    .map(|since| since - Duration::from_secs(900 - 137));
            }
            let query = move |reader: &Reader| {
                let step = Duration::from_secs(step);
                Ok(reader.timeseries(&filter, metric, step)?.points.len())
            };
            queries.push((format!("{metric:?} over {name}"), Box::new(query)));
        }
    }
}

fn costs<'a>(queries: &mut Vec<PageQuery<'a>>, back: &dyn Fn(u64) -> Filter) {
    use Dimension::{KeyHash, Model, Tool, User};
    let a_user = |filter: Filter| Filter {
        names: [(Dimension::User, Some(format!("{:032x}", 17)))].into(),
        ..filter
    };
    let a_tool = |filter: Filter| Filter {
        names: [(Dimension::Tool, Some("search".into()))].into(),
        ..filter
    };
    for (name, by, filter, step) in [
        ("30 days by a day", Model, back(720), 86_400),
        ("30 days by a day", User, back(720), 86_400),
        ("30 days by a day", KeyHash, back(720), 86_400),
        ("30 days by a day", Tool, back(720), 86_400),
        (
            "30 days by a day of a user",
            Model,
            a_user(back(720)),
            86_400,
        ),
        (
            "30 days by a day of a tool",
            User,
            a_tool(back(720)),
            86_400,
        ),
        ("7 days by 2 h", User, back(168), 7_200),
        ("24 h by 20 min", User, back(24), 1_200),
    ] {
        let query = CostQuery {
            // Until now, as in requests of the API.
            filter: Filter {
                until: Some(back(0).since.expect("set") + Duration::from_secs(137)),
                ..filter
            },
            by,
            step: Duration::from_secs(step),
            most: 8,
        };
        let query = move |reader: &Reader| Ok(reader.costs(&query)?.series.len());
        queries.push((format!("costs by {by:?} over {name}"), Box::new(query)));
    }
}

fn calls<'a>(queries: &mut Vec<PageQuery<'a>>, reader: &Reader, back: &dyn Fn(u64) -> Filter) {
    let one = reader.calls(&Filter::default(), &Paging::default());
    let one = one.expect("an answer").rows.remove(0);
    for (name, filter) in [
        ("newest", Filter::default()),
        (
            "before 20 days",
            Filter {
                until: Some(back(480).since.expect("set")),
                ..Filter::default()
            },
        ),
        (
            "of a model and workload",
            Filter {
                names: [
                    (Dimension::Model, Some("llama-3.3-70b".into())),
                    (Dimension::Workload, Some("batch".into())),
                ]
                .into(),
                ..Filter::default()
            },
        ),
        (
            "that timed out",
            Filter {
                outcomes: vec![Outcome::Timeout],
                ..Filter::default()
            },
        ),
        (
            "of a user that failed",
            Filter {
                names: [(Dimension::User, Some(format!("{:032x}", 17)))].into(),
                outcomes: vec![Outcome::UpstreamReset],
                ..Filter::default()
            },
        ),
        (
            "of a session",
            Filter {
                session: one.session.clone(),
                ..Filter::default()
            },
        ),
    ] {
        for limit in [100, 1000] {
            let filter = filter.clone();
            let query = move |reader: &Reader| {
                let page = Paging {
                    limit,
                    cursor: None,
                };
                Ok(reader.calls(&filter, &page)?.rows.len())
            };
            queries.push((format!("{limit} calls {name}"), Box::new(query)));
        }
    }
}
