//! Ledger files of older versions are upgraded in place without losing data.

use crate::ledger_queries::{
    back_to_version_9, back_to_version_10, back_to_version_13, back_to_version_14, same_costs,
};
use crate::ledger_retention::tidy;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::finish_class::FinishClass;
use tokengauge_core::score::{Score, ScoreTarget, ScoreType};
use tokengauge_store::history::{self, TimedCall};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Limits, Reader};
use tokengauge_store::query::{
    CostQuery, Dimension, DistributionSelector, DistributionSeries, Distributions, Filter, Paging,
    Signal, UnitKind, UnitQuery,
};

/// A ledger that version 2, 3, 4, 5, 7 or 8 of the program wrote, and its `export` output.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/ledger")
        .join(name)
}

const FOREVER: Limits = Limits {
    age: Duration::from_secs(1 << 40),
    bytes: 1 << 40,
};

/// The fixture from which a file of `version` is made.
fn written(version: i64) -> i64 {
    version.clamp(2, 8)
}

fn older(folder: &Path, version: i64) -> PathBuf {
    let path = folder.join("ledger.sqlite");
    let written = written(version);
    std::fs::copy(fixture(&format!("version-{written}.sqlite")), &path).expect("a copy");
    if version == 1 {
        // Revert everything that the second step did.
        let back = "DROP INDEX sessions_by_start; PRAGMA user_version = 1";
        let connection = Connection::open(&path).expect("opens");
        connection.execute_batch(back).expect("undone");
    }
    if version >= 9 {
        let mut ledger = LedgerDatabase::open(&path).expect("brought forward");
        tidy(&mut ledger, 0, &FOREVER);
        drop(ledger);
        match version {
            9 => back_to_version_9(&path),
            10 => back_to_version_10(&path),
            13 => back_to_version_13(&path),
            _ => back_to_version_14(&path),
        }
    }
    path
}

/// The records in the file by the program that wrote it, oldest first.
fn expected(version: i64) -> Vec<CallRecord> {
    let lines = fixture(&format!("version-{}.jsonl", written(version)));
    let lines = std::fs::read_to_string(lines).expect("records");
    let records = lines.lines().map(|line| {
        let mut record: CallRecord = serde_json::from_str(line).expect("a record");
        // Fields that this version did not have.
        if version < 3 {
            record.operation_class = record.operation.class();
        }
        record.trace_id = record.trace_id.filter(|id| !id.is_empty());
        record
    });
    records.collect()
}

fn calls(path: &Path) -> Vec<CallRecord> {
    let page = Paging {
        limit: 1000,
        cursor: None,
    };
    let reader = Reader::new(path, Instant::now);
    let mut rows = reader
        .calls(&Filter::default(), &page)
        .expect("an answer")
        .rows;
    rows.reverse();
    rows
}

#[test]
fn a_file_of_each_older_version_is_brought_forward_and_keeps_every_call() {
    for version in [1, 2, 3, 4, 5, 7, 8, 9, 10, 13, 14] {
        let expected = expected(version);
        assert!(expected.len() > 10);
        let folder = tempfile::tempdir().expect("a folder");
        let path = older(folder.path(), version);
        let before = Reader::new(&path, Instant::now).calls(&Filter::default(), &Paging::default());
        let message = before.expect_err("nobody brought it forward").to_string();
        assert!(message.contains("to upgrade it"), "{message}");
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        assert_eq!(calls(&path), expected, "from version {version}");
        // The upgraded file can be written to.
        let mut record = expected[0].clone();
        record.id = "01a20838-a73b-72a1-9218-f8d414f52799".to_owned();
        record.response_id = Some("chatcmpl-1".to_owned());
        let kept = LedgerCall::of_record(&record, None).expect("one of ours");
        ledger.write(&[kept]).expect("written");
        let ids = calls(&path).into_iter().map(|call| call.response_id);
        assert!(ids.flatten().any(|id| id == "chatcmpl-1"));
    }
}

/// Number of streams in flight when each call began, oldest first.
fn concurrencies(path: &Path) -> Vec<Option<u32>> {
    let connection = Connection::open(path).expect("opens");
    let sql = "SELECT concurrency FROM calls ORDER BY key";
    let mut statement = connection.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.collect::<Result<_, _>>().expect("numbers")
}

/// Distributions that an older version wrote do not have sessions.
fn without_sessions(
    found: &BTreeMap<DistributionSeries, Distributions>,
) -> Vec<(String, Distributions)> {
    let stripped = found.iter().map(|(series, all)| {
        let mut others = Distributions::default();
        let signals = Signal::ALL
            .into_iter()
            .filter(|signal| *signal != Signal::Session);
        signals.for_each(|signal| others.merge_signal(all, signal, None));
        (format!("{series:?}"), others)
    });
    stripped.collect()
}

fn same_sums(path: &Path, calls: &[CallRecord], state: &str) {
    let reader = Reader::new(path, Instant::now);
    let timed = || calls.iter().map(TimedCall::of);
    for unit in [UnitKind::Session, UnitKind::Agent, UnitKind::User] {
        let query = UnitQuery {
            experiment: "decoder".into(),
            unit,
            ..UnitQuery::default()
        };
        let found = reader.experiment_units(&query).expect("an answer");
        assert_eq!(found, history::experiment_units(timed(), &query), "{state}");
    }
    let all = DistributionSelector::default();
    let found = reader.distributions(&all, None, None).expect("an answer");
    let observed = timed().zip(concurrencies(path));
    let expected = history::distributions(observed, &all, None, None);
    assert!(!expected.is_empty());
    assert_eq!(
        without_sessions(&found),
        without_sessions(&expected),
        "{state}"
    );
    let user = calls.iter().find_map(|call| call.user.clone());
    for user in [None, user] {
        for by in [
            Dimension::User,
            Dimension::KeyHash,
            Dimension::Tool,
            Dimension::Model,
        ] {
            let filter = Filter {
                names: [(Dimension::User, user.clone())].into(),
                ..Filter::default()
            };
            let query = CostQuery {
                filter,
                by,
                step: Duration::from_secs(86_400),
                most: 3,
            };
            let calls = timed().filter(|call| history::matches(&query.filter, call));
            let expected = history::costs(calls, &query);
            let found = reader.costs(&query).expect("an answer");
            assert!(!found.series.is_empty());
            same_costs(&found, &expected, &format!("{state}, {query:?}"));
        }
    }
}

#[test]
fn what_an_older_file_has_is_in_all_sums_at_once() {
    for version in [1, 2, 3, 4, 5, 7, 8, 9, 10] {
        let mut calls = expected(version);
        if version >= 5 {
            // The sums of this version classified these reasons differently.
            let reasons = calls.iter_mut().flat_map(|call| &mut call.finish_reasons);
            let failed = |reason: &&mut String| FinishClass::of(reason) == FinishClass::Failed;
            reasons
                .filter(failed)
                .for_each(|reason| *reason = "another".to_owned());
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = older(folder.path(), version);
        let mut ledger = LedgerDatabase::open(&path).expect("opens");
        same_sums(&path, &calls, &format!("version {version}, just opened"));
        tidy(&mut ledger, 0, &FOREVER);
        same_sums(&path, &calls, &format!("version {version}, added"));
        let connection = Connection::open(&path).expect("opens");
        let marks = "SELECT max(below_key, spending_below_key) FROM unsummed";
        let marks = connection.query_row(marks, [], |row| row.get(0));
        assert_eq!(marks, Ok(0_i64));
        drop(ledger);
        LedgerDatabase::open(&path).expect("opens again");
        same_sums(&path, &calls, &format!("version {version}, opened again"));
    }
}

#[test]
fn a_ledger_of_any_version_takes_scores() {
    for version in [1, 2, 3, 4, 5, 7, 8, 9, 10] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = older(folder.path(), version);
        let scored = expected(version).into_iter().find_map(|call| call.session);
        let session = scored.expect("a session");
        let score = Score {
            name: "success".to_owned(),
            value: 1.0,
            data_type: ScoreType::Boolean,
            target: ScoreTarget::Session,
            target_id: session.clone(),
            source: None,
            time: SystemTime::now().into(),
        };
        let mut ledger = LedgerDatabase::open(&path).expect("brought forward");
        ledger.score(std::slice::from_ref(&score)).expect("stored");
        let calls = calls(&path).into_iter();
        let mut of_session = calls.filter(|call| call.session.as_ref() == Some(&session));
        let call = of_session.next().expect("a call");
        assert_eq!(call.scores.len(), 1, "version {version}");
        assert_eq!(call.scores[0].target_id, score.target_id);
    }
}
