//! Comparisons of the live page's API and `tokengauge top` with the records.

use super::play::{Played, compare_groups, differences, id};
use crate::output::terminal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch_json;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

/// Time for `top` to show the same values as the API.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// Rows and columns of the terminal: enough for all models and columns.
const SIZE: [u16; 2] = [120, 250];

/// Members of records that events must match exactly.
const IN_EVENTS: [&str; 7] = [
    "outcome",
    "error_type",
    "finish_reasons",
    "model",
    "tokens",
    "cost_usd",
    "cost_unavailable",
];

impl Played {
    async fn api(&self, path: &str) -> Value {
        fetch_json(self.process.admin, &format!("/api/v1/{path}"), &[]).await
    }

    /// The API has the same calls as the records, and the same sums by model and upstream.
    pub(super) async fn compare_api(&self, found: &mut Vec<String>) {
        let streams = self.api("streams?limit=1000").await;
        if (&streams["total"], &streams["streams"]) != (&json!(0), &json!([])) {
            found.push(format!("streams: {streams}"));
        }
        for (path, records) in [
            (
                "calls?limit=1000&operation_class=all",
                self.records.iter().collect(),
            ),
            ("calls?limit=1000", self.with_models().collect::<Vec<_>>()),
        ] {
            let response = self.api(path).await;
            let calls = response["calls"].as_array().expect("calls").iter();
            let calls: HashMap<String, &Value> = calls.map(|call| (id(call), call)).collect();
            if calls.len() != records.len() {
                let (is, should) = (calls.len(), records.len());
                found.push(format!("{path}: {is} calls, not {should}"));
            }
            let differ = |record: &&&Value| calls.get(&id(record)) != Some(*record);
            let differing = records.iter().filter(differ);
            found.extend(differing.map(|record| format!("{path}: it has no {record}")));
        }
        if let Some(record) = self.records.first() {
            let path = format!("calls/{}", id(record));
            let response = self.api(&path).await;
            if response["call"] != *record {
                found.push(format!("{path}: {response}, not {record}"));
            }
        }
        let by_model = self.by_model();
        let all = by_model.values().fold([0.0; 4], |mut all, sums| {
            all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
            all
        });
        let named = |name: &str| BTreeMap::from([(name.to_owned(), all)]);
        for (path, member, expected) in [
            ("models?limit=1000", "models", &by_model),
            ("groups?by=model&limit=1000", "groups", &by_model),
            (
                "costs?dimension=model&step=60s&series=50",
                "series",
                &by_model,
            ),
            ("groups?by=upstream&limit=1000", "groups", &named("u")),
            ("groups", "groups", &named("")),
        ] {
            compare_groups(path, &self.api(path).await[member], expected, found);
        }
        let mut by_session = self.by(|record| record["session"].as_str().unwrap_or("").to_owned());
        by_session.remove("");
        let sessions = self.api("sessions?limit=1000").await;
        compare_groups("sessions", &sessions["sessions"], &by_session, found);
        self.compare_events(found);
        self.compare_objective(found).await;
        self.compare_coverage(found).await;
    }

    /// Each record is one event. The ledger rounds times and speeds, but events do not.
    fn compare_events(&self, found: &mut Vec<String>) {
        let events = self.events.lock().expect("whole");
        for record in &self.records {
            let mut of_call = events.iter().filter(|event| id(event) == id(record));
            let (Some(event), None) = (of_call.next(), of_call.next()) else {
                found.push(format!("not one event: {record}"));
                continue;
            };
            for name in IN_EVENTS {
                let place = format!("event of {}: {name}", record["agent"]);
                differences(&place, &record[name], &event[name], found);
            }
        }
    }

    /// The availability objective has counted every call, and complete calls as good.
    async fn compare_objective(&self, found: &mut Vec<String>) {
        let slos = self.availability().await;
        let events = &slos["slos"][0]["events"];
        let count = |verdict: &Value| -> u64 {
            let counts = verdict.as_object().into_iter().flatten();
            counts.filter_map(|(_, count)| count.as_u64()).sum()
        };
        let complete = |record: &&Value| record["outcome"] == "complete";
        let should = (
            self.with_models().filter(complete).count() as u64,
            self.with_models().count() as u64,
        );
        let all = events.as_object().into_iter().flatten();
        let is = (count(&events["good"]), all.map(|(_, of)| count(of)).sum());
        if is != should {
            found.push(format!("objective: {is:?}, not {should:?}: {events}"));
        }
    }

    /// The API states how many calls have a known cost and speed, and why others have none.
    async fn compare_coverage(&self, found: &mut Vec<String>) {
        let coverage = self.api("coverage").await;
        let count = |pointer: &str| {
            let known = |record: &&Value| record.pointer(pointer).is_some_and(|v| !v.is_null());
            self.with_models().filter(known).count()
        };
        let reasons = |known: &str, pointer: &str| {
            let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
            let without = |record: &&Value| record.pointer(known).is_none_or(Value::is_null);
            for record in self.with_models().filter(without) {
                let reason = record.pointer(pointer).and_then(Value::as_str);
                *reasons
                    .entry(reason.unwrap_or("unknown").to_owned())
                    .or_default() += 1;
            }
            reasons
        };
        let skipped = self.with_models().map(|record| &record["skipped_events"]);
        let skipped: u64 = skipped.filter_map(Value::as_u64).sum();
        for (name, should) in [
            ("calls", json!(self.with_models().count())),
            ("with_cost", json!(count("/cost_usd"))),
            ("with_speed", json!(count("/tps/output"))),
            ("skipped_events", json!(skipped)),
            (
                "cost_unavailable",
                json!(reasons("/cost_usd", "/cost_unavailable")),
            ),
            (
                "tps_unavailable",
                json!(reasons("/tps/output", "/tps/unavailable")),
            ),
        ] {
            if coverage[name] != should {
                let is = &coverage[name];
                found.push(format!("coverage: {name} is {is}, not {should}"));
            }
        }
    }

    /// Models in `tokengauge top` must have the calls, failures and tokens of the records.
    pub(super) async fn compare_top(&self, found: &mut Vec<String>) {
        let expected: BTreeMap<String, [f64; 3]> = self
            .by_model()
            .into_iter()
            .map(|(model, [calls, errors, output, _])| match &*model {
                "" => ("–".to_owned(), [calls, errors, output]),
                _ => (model, [calls, errors, output]),
            })
            .collect();
        let (shows, gets) = terminal(Some(SIZE));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["top", "--every", "200ms", "--admin"]);
        command.arg(self.process.admin.to_string());
        command.kill_on_drop(true);
        let twice = || gets.try_clone().expect("another one");
        command.stdin(twice()).stdout(twice()).stderr(twice());
        let mut child = command.spawn().expect("it runs");
        drop((command, gets));
        let mut keys = File::from(shows.try_clone().expect("another one"));
        let (sender, mut pieces) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            let (mut shows, mut piece) = (File::from(shows), [0; 4096]);
            // On Linux the end of a terminal is an error.
            while let Ok(length @ 1..) = shows.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let (mut shown, mut asked) = (Vec::new(), false);
        let end = Instant::now() + SHOWN_WITHIN;
        let is = loop {
            let screen = screen(&shown);
            // The first view shows streams, and there may be none.
            let is_drawn =
                |line: &String| line.starts_with("MODEL") || line.contains("point an agent");
            if !asked && screen.iter().any(is_drawn) {
                keys.write_all(b"2").expect("a key");
                asked = true;
            }
            let is = models(&screen);
            if is == expected {
                break is;
            }
            match timeout_at(end, pieces.recv()).await {
                Ok(Some(piece)) => shown.extend(piece),
                Ok(None) | Err(_) => break is,
            }
        };
        if is != expected {
            let screen = screen(&shown).join("\n");
            found.push(format!("top: {is:?}, not {expected:?}:\n{screen}"));
        }
        keys.write_all(b"q").ok();
        let status = timeout(TIMEOUT, child.wait()).await.expect("it ends");
        assert!(status.expect("it ran").success());
    }
}

/// Calls, failures and output tokens by model, as the view of models shows them.
fn models(screen: &[String]) -> BTreeMap<String, [f64; 3]> {
    let rows = screen
        .iter()
        .skip_while(|line| !(line.starts_with("MODEL") && line.contains("OUT TOKENS")))
        .skip(1)
        .take_while(|line| !line.trim().is_empty());
    let row = |line: &String| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let [model, calls, _, errors, .., output, _] = cells[..] else {
            return None;
        };
        let number = |cell: &str| cell.parse().unwrap_or(0.0);
        Some((model.to_owned(), [calls, errors, output].map(number)))
    };
    rows.filter_map(row).collect()
}

/// The lines of a terminal after these bytes, which are characters and cursor movements.
fn screen(bytes: &[u8]) -> Vec<String> {
    let [rows, columns] = SIZE.map(usize::from);
    let mut lines = vec![vec![' '; columns]; rows];
    let (mut row, mut column) = (0, 0);
    let text = String::from_utf8_lossy(bytes);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' if characters.next_if_eq(&'[').is_some() => {
                let mut numbers = String::new();
                while let Some(more) = characters.next_if(|c| !c.is_ascii_alphabetic()) {
                    numbers.push(more);
                }
                if characters.next() == Some('H') {
                    let mut to = numbers
                        .split(';')
                        .map(|n| n.parse().unwrap_or(1_usize).saturating_sub(1));
                    (row, column) = (to.next().unwrap_or(0), to.next().unwrap_or(0));
                }
            }
            '\u{1b}' => drop(characters.next()),
            '\r' => column = 0,
            '\n' => row += 1,
            _ => {
                if let Some(cell) = lines.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = character;
                }
                column += 1;
            }
        }
    }
    lines.into_iter().map(String::from_iter).collect()
}
