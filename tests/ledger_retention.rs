//! Retention deletes expired and excess calls in small steps, and returns the space of the file.

use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Limits, Now, Reader};
use tokengauge_store::query::{CostQuery, DailySums, Dimension, Filter, Paging, SessionQuery};
use tokengauge_test_support::records::Records;

const DAY: Duration = Duration::from_secs(86_400);
const BEGIN: Duration = Duration::from_secs(1_763_600_000);

fn ledger(path: &Path, count: usize, over: Duration) -> (LedgerDatabase, SystemTime) {
    let begin = SystemTime::UNIX_EPOCH + BEGIN;
    let every = over.as_millis() as f64 / count as f64;
    let mut ledger = LedgerDatabase::open(path).expect("opens");
    let mut records: Vec<CallRecord> = Records::new(begin, every).take(count).collect();
    for record in records.iter_mut().step_by(2) {
        record.experiment = Some("decoder".to_owned());
        record.variant = Some("a".to_owned());
    }
    for batch in records.chunks(1_000) {
        let kept = batch
            .iter()
            .filter_map(|record| LedgerCall::of_record(record, None));
        ledger.write(&kept.collect::<Vec<_>>()).expect("written");
    }
    (ledger, begin + over)
}

fn milliseconds(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).expect("later");
    since.as_millis() as i64
}

/// Runs retention steps, each years after the previous one, until nothing is left to do. Returns the number of steps
/// and the longest duration.
pub fn tidy(ledger: &mut LedgerDatabase, wall_ms: i64, limits: &Limits) -> (usize, Duration) {
    let (mut steps, mut longest) = (0, Duration::ZERO);
    let mut now = Now {
        monotonic: Instant::now(),
        wall_ms,
    };
    loop {
        let begun = Instant::now();
        let more = ledger.tidy(now, limits).expect("tidied");
        longest = longest.max(begun.elapsed());
        steps += 1;
        assert!(steps < 10_000, "it ends");
        // The first step uses the time of the newest call.
        if !more && steps > 1 {
            return (steps, longest);
        }
        now.monotonic += 1_000 * DAY;
    }
}

fn number(path: &Path, sql: &str) -> i64 {
    let connection = Connection::open(path).expect("opens");
    connection
        .query_row(sql, [], |row| row.get(0))
        .expect("a number")
}

fn sound(path: &Path) {
    let connection = Connection::open(path).expect("opens");
    let check: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("a check");
    assert_eq!(check, "ok");
}

#[test]
fn what_is_too_old_goes_with_its_sessions_and_sums() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.sqlite");
    let (mut ledger, now) = ledger(&path, 12_000, 40 * DAY);
    let limits = Limits {
        age: 30 * DAY,
        bytes: 1 << 40,
    };
    let (steps, _) = tidy(&mut ledger, milliseconds(now), &limits);
    assert!(steps > 1, "a little at a time");
    let oldest = milliseconds(now - 30 * DAY);
    assert!(number(&path, "SELECT min(started_ms) FROM calls") >= oldest);
    let calls = number(&path, "SELECT count(*) FROM calls");
    assert!((8_700..9_300).contains(&calls), "{calls} of three quarters");
    assert!(number(&path, "SELECT min(last_us) FROM sessions") >= oldest * 1000);
    let orphans =
        "SELECT count(*) FROM session_names WHERE session NOT IN (SELECT id FROM sessions)";
    assert_eq!(number(&path, orphans), 0);
    for (level, kept) in [(300, 9), (3_600, 31), (86_400, 32)] {
        let first = number(
            &path,
            &format!("SELECT min(start) FROM rollups WHERE level = {level}"),
        );
        assert!(first >= milliseconds(now - kept * DAY) / 1000, "{level}");
    }
    let spent = number(&path, "SELECT min(day) FROM daily_spending");
    assert!((milliseconds(now - 32 * DAY)..oldest).contains(&(spent * 1000)));
    let units = "SELECT min(last_us) FROM experiment_units";
    assert!(number(&path, units) >= oldest * 1000);
    let nameless = "SELECT count(*) FROM experiment_units WHERE session > 0 \
        AND session NOT IN (SELECT id FROM sessions)";
    assert_eq!(number(&path, nameless), 0);
    let hours = number(&path, "SELECT min(hour) FROM distributions");
    assert!((oldest / 1000 - 7_200..=oldest / 1000).contains(&hours));
    sound(&path);
    let reader = Reader::new(&path, Instant::now);
    let models = reader
        .models(&Filter::default(), &Paging::default())
        .expect("an answer");
    assert!(models.rows.iter().map(|row| row.calls).sum::<u64>() as i64 >= calls);
}

#[test]
fn a_file_that_is_too_large_lets_the_oldest_go_and_shrinks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.sqlite");
    let (mut ledger, now) = ledger(&path, 40_000, DAY);
    let before = number(
        &path,
        "SELECT (SELECT * FROM pragma_page_count) * (SELECT * FROM pragma_page_size)",
    );
    let newest = number(&path, "SELECT max(key) FROM calls");
    let limits = Limits {
        age: 30 * DAY,
        bytes: before as u64 / 2,
    };
    let (steps, longest) = tidy(&mut ledger, milliseconds(now), &limits);
    assert!(steps >= 5, "{steps} steps for 10,000 calls or more");
    assert!(longest < Duration::from_secs(10), "a step of {longest:?}");
    drop(ledger);
    let after = std::fs::metadata(&path).expect("a file").len();
    // At most 512 spare pages of 4 KiB stay.
    assert!(after <= limits.bytes + 512 * 4096, "{after} of {before}");
    let calls = number(&path, "SELECT count(*) FROM calls");
    assert!((10_000..30_000).contains(&calls), "{calls} are left");
    assert_eq!(number(&path, "SELECT max(key) FROM calls"), newest);
    let lost = "SELECT count(*) FROM calls WHERE session NOT IN (SELECT id FROM sessions)";
    assert_eq!(number(&path, lost), 0, "every call has its session");
    let whole = "SELECT sum(calls) FROM rollups WHERE level = 86400";
    assert_eq!(number(&path, whole), 40_000, "days keep their sums");
    let spending = "SELECT sum(calls) FROM daily_spending";
    assert_eq!(number(&path, spending), 40_000, "and what users spent");
    let oldest = number(&path, "SELECT min(started_ms) FROM calls") / 1000;
    let units = "SELECT min(last_us) / 1000000 FROM experiment_units";
    assert!(number(&path, units) >= oldest);
    assert!(number(&path, "SELECT min(hour) FROM distributions") >= oldest - 7_200);
    sound(&path);
    let reader = Reader::new(&path, Instant::now);
    let sessions = reader
        .sessions(&SessionQuery::default())
        .expect("an answer");
    assert_eq!(sessions.rows.len(), 100);
}

#[test]
fn what_users_spent_is_known_for_longer_than_their_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.sqlite");
    let (mut ledger, now) = ledger(&path, 3_000, 6 * DAY);
    let (age, bytes) = (30 * DAY, 1);
    let reader = Reader::new(&path, Instant::now);
    let by_user = |filter: Filter| {
        let query = CostQuery {
            filter,
            by: Dimension::User,
            step: DAY,
            most: 1_000,
        };
        reader.costs(&query).expect("an answer")
    };
    let filters = [
        Filter::default(),
        Filter {
            names: [(Dimension::Tool, Some("search".into()))].into(),
            ..Filter::default()
        },
    ];
    let before = filters.clone().map(by_user);
    let calls = before.iter().map(|costs| costs.series.len());
    assert!(calls.min() > Some(20), "many users");
    tidy(&mut ledger, milliseconds(now), &Limits { age, bytes });
    assert_eq!(number(&path, "SELECT count(*) FROM calls"), 0);
    let first = number(&path, "SELECT min(day) FROM daily_spending");
    let first = SystemTime::UNIX_EPOCH + Duration::from_secs(first as u64);
    let oldest = |sums| reader.oldest(sums).expect("an answer");
    assert_eq!(oldest(Some(DailySums::Spending)), Some(first));
    assert_eq!(oldest(None), None);
    assert_eq!(filters.map(by_user), before);
}
