//! Every verdict, and rollouts that must not pass.

use crate::*;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::score::{Score, ScoreTarget, ScoreType};
use tokengauge_core::time::rfc3339_millis;
use tokengauge_experiments::{Metric, Rules};
use tokengauge_slo::{Judgement, Objective, Selector, Sli, Weight};
use tokengauge_store::history::{self, TimedCall};
use tokengauge_store::query::{
    CallUnitQuery, CallUnits, Filter, Page, Paging, ScoreIndex, ScoreQuery, ScoredUnit, UnitKind,
};

const BEGIN: Duration = Duration::from_secs(1_700_000_000);

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + BEGIN + Duration::from_secs(seconds)
}

fn gate() -> Gate {
    let margins = Margins::GUARDRAILS.map(|metric| (metric, Margins::SHARE));
    let speed = (Metric::Tps, Margins::TPS);
    Gate {
        name: "rollout".to_owned(),
        candidate: select("new"),
        baseline: select("old"),
        unit: UnitKind::Session,
        rules: Rules {
            min_units: Gate::MIN_UNITS,
            ..Rules::default()
        },
        margins: Margins(std::iter::once(speed).chain(margins).collect()),
        ceilings: Ceilings::default(),
        scores: Vec::new(),
        objectives: Vec::new(),
        max_burn: Gate::MAX_BURN,
        window: Gate::WINDOW,
        max_wait: Some(Duration::from_secs(3_600)),
    }
}

fn select(upstream: &str) -> Select {
    Select {
        upstream: Some(upstream.to_owned()),
        ..Select::default()
    }
}

#[derive(Clone, Copy)]
struct Traffic {
    upstream: &'static str,
    sessions: u64,
    tps: f64,
    /// One session in n has one response with this finish reason. If n is 1, all responses have it.
    finish: Option<(u64, &'static str)>,
    cost: Option<f64>,
}

const FINE: Traffic = Traffic {
    upstream: "old",
    sessions: 800,
    tps: 40.0,
    finish: None,
    cost: Some(0.01),
};

impl Traffic {
    fn calls(self) -> impl Iterator<Item = CallRecord> {
        (0..self.sessions * 3).map(move |index| self.call(index / 3, index % 3))
    }

    fn call(self, session: u64, number: u64) -> CallRecord {
        let started = at(session % 60 + 60 * number);
        // Sessions differ by up to 10 % in the same way on both sides.
        let differs = 1.0 + 0.1 * ((session * 7_919) % 101) as f64 / 101.0;
        let tps = self.tps * differs;
        let every = |every: u64| session.is_multiple_of(every);
        let reason = match self.finish {
            Some((often, reason)) if (number == 1 || often == 1) && every(often) => reason,
            _ => "stop",
        };
        serde_json::from_value(serde_json::json!({
            "id": format!("{}-{session}-{number}", self.upstream),
            "started_at": rfc3339_millis(started).to_string(),
            "route": "r", "upstream": self.upstream, "dialect": "openai_chat", "operation": "chat",
            "operation_class": "generation", "outcome": "complete", "status": 200,
            "session": format!("{}-{session}", self.upstream), "model_requested": "m",
            "streamed": true, "warm_up": false, "finish_reasons": [reason],
            "tokens": {"normalised": {"output": 200}, "reported": {}},
            "seconds": {"ttft": 0.3, "duration": 6.0, "last_token": 0.3 + 200.0 / tps},
            "tps": {"output": tps}, "cost_usd": self.cost.map(|usd| usd * differs),
            "frames": 50, "stalls": 0, "segments": [], "bytes": {"request": 1, "response": 1},
        }))
        .expect("a call")
    }
}

struct Memory(Vec<CallRecord>);

impl Calls for Memory {
    type Error = std::convert::Infallible;

    fn units(&self, query: &CallUnitQuery) -> Result<CallUnits, Self::Error> {
        Ok(history::call_units(self.0.iter().map(TimedCall::of), query))
    }

    fn page(&self, filter: &Filter, paging: &Paging) -> Result<Page<CallRecord>, Self::Error> {
        let calls = self.0.iter().map(TimedCall::of);
        let calls = calls.filter(|call| history::matches(filter, call));
        let mut calls: Vec<CallRecord> = calls.map(|call| call.record.clone()).collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.started_at));
        Ok(part(calls, paging))
    }

    fn scores(&self, query: &ScoreQuery) -> Result<Vec<ScoredUnit>, Self::Error> {
        let index = ScoreIndex::of_records(self.0.iter());
        let calls = self.0.iter().map(TimedCall::of);
        Ok(history::scored_units(calls, &index, query))
    }
}

fn seen(gate: &Gate, traffic: &[Traffic], since: Option<SystemTime>, now: SystemTime) -> Report {
    let calls = traffic.iter().flat_map(|traffic| traffic.calls());
    of_calls(gate, calls.collect(), since, now)
}

fn of_calls(
    gate: &Gate,
    calls: Vec<CallRecord>,
    since: Option<SystemTime>,
    now: SystemTime,
) -> Report {
    let asked = Asked {
        now,
        since,
        config_sha256: "0".to_owned(),
    };
    let Ok(report) = evaluate_calls(gate, &asked, &Memory(calls));
    report
}

fn part(calls: Vec<CallRecord>, paging: &Paging) -> Page<CallRecord> {
    let from: usize = paging
        .cursor
        .as_deref()
        .map_or(0, |text| text.parse().expect("a place"));
    let end = from + paging.limit;
    Page {
        next_cursor: (end < calls.len()).then(|| end.to_string()),
        rows: calls.into_iter().skip(from).take(paging.limit).collect(),
    }
}

fn judged(gate: &Gate, old: Traffic, new: Traffic) -> Report {
    let new = Traffic {
        upstream: "new",
        ..new
    };
    seen(gate, &[old, new], None, at(1_200))
}

fn check<'a>(report: &'a Report, name: &str) -> &'a Check {
    let mut checks = report.checks.iter();
    checks.find(|check| check.name == name).expect("the check")
}

#[test]
fn an_equal_candidate_passes_with_bounds_below_every_margin() {
    let report = judged(&gate(), FINE, FINE);
    assert_eq!(report.verdict, GateVerdict::Pass, "{report:#?}");
    assert_eq!(report.checks.len(), 5);
    for check in &report.checks {
        let upper = check.upper.expect("a bound");
        assert!(
            upper <= check.limit && check.lower.expect("a bound") <= upper,
            "{check:?}"
        );
    }
    assert_eq!(report.forecast, None, "there is nothing left to foresee");
    assert_eq!(report.candidate.complete_units, 800);
}

#[test]
fn a_slower_candidate_fails_and_a_faster_one_passes() {
    let slow = judged(&gate(), FINE, Traffic { tps: 34.0, ..FINE });
    assert_eq!(slow.verdict, GateVerdict::Fail);
    assert_eq!(slow.reason, "does not hold: tps");
    let tps = check(&slow, "tps");
    assert!(
        (tps.value.expect("a value") - 0.15).abs() < 1e-6 && tps.lower.expect("a bound") > 0.05,
        "{tps:?}"
    );
    assert_eq!(
        judged(&gate(), FINE, Traffic { tps: 50.0, ..FINE }).verdict,
        GateVerdict::Pass
    );
}

#[test]
fn a_faster_candidate_that_answers_less_does_not_pass() {
    for (reason, name) in [("length", "truncated"), ("content_filter", "refused")] {
        let new = Traffic {
            tps: 80.0,
            // Every third call of every other session.
            finish: Some((2, reason)),
            ..FINE
        };
        let report = judged(&gate(), FINE, new);
        assert_eq!(report.verdict, GateVerdict::Fail, "{name}: {report:#?}");
        assert_eq!(report.reason, format!("does not hold: {name}"));
    }
}

#[test]
fn where_every_session_is_truncated_it_fails() {
    let new = Traffic {
        upstream: "new",
        tps: 80.0,
        finish: Some((1, "length")),
        ..FINE
    };
    let report = judged(&gate(), FINE, new);
    let truncated = check(&report, "truncated");
    assert_eq!(report.verdict, GateVerdict::Fail, "{report:#?}");
    assert_eq!(truncated.verdict, GateVerdict::Fail, "{truncated:#?}");
    assert_eq!(truncated.value, Some(1.0), "of the calls");
    let old = Traffic {
        finish: Some((1, "length")),
        ..FINE
    };
    let report = judged(&gate(), old, new);
    assert_eq!(check(&report, "truncated").value, Some(0.0), "{report:#?}");
    assert_eq!(report.verdict, GateVerdict::Pass, "{report:#?}");
}

#[test]
fn what_is_not_shown_is_inconclusive_and_no_number_is_made_up() {
    let few = Traffic {
        sessions: 150,
        ..FINE
    };
    let report = judged(&gate(), few, few);
    assert_eq!(report.verdict, GateVerdict::Inconclusive);
    assert!(
        report
            .reason
            .starts_with("not shown yet: failures, truncated"),
        "{}",
        report.reason
    );
    let report = judged(
        &gate(),
        FINE,
        Traffic {
            sessions: 20,
            ..FINE
        },
    );
    assert_eq!(report.verdict, GateVerdict::Inconclusive);
    assert!(
        report
            .reason
            .contains("the candidate has 20 complete sessions of 50"),
        "{}",
        report.reason
    );
    assert!(
        report
            .checks
            .iter()
            .all(|check| check.upper.is_none() && check.value.is_none())
    );
}

#[test]
fn no_traffic_never_passes() {
    let gate = gate();
    for traffic in [
        &[][..],
        &[FINE],
        &[Traffic {
            upstream: "new",
            ..FINE
        }],
    ] {
        let report = seen(&gate, traffic, None, at(1_200));
        assert_eq!(
            report.verdict,
            GateVerdict::Inconclusive,
            "{}",
            report.reason
        );
        assert!(
            report.reason.contains("check that it has traffic"),
            "{}",
            report.reason
        );
        let text = serde_json::to_string(&report).expect("JSON");
        assert!(!text.contains("NaN") && !text.contains("inf\""), "{text}");
    }
    let late = seen(&gate, &[FINE], Some(at(0)), at(3_600));
    assert_eq!(
        (late.verdict, late.waited_too_long),
        (GateVerdict::Inconclusive, true)
    );
    assert!(
        late.reason
            .starts_with("no verdict within `max_wait` (1h), so you must decide: "),
        "{}",
        late.reason
    );
}

#[test]
fn units_of_both_sides_are_left_out_and_many_of_them_make_it_inconclusive() {
    let shared = |share: u64| {
        let new = Traffic {
            upstream: "new",
            ..FINE
        };
        let also_new = FINE.calls().filter(|call| {
            let name = call.session.as_deref().expect("a session");
            let number: u64 = name.trim_start_matches("old-").parse().expect("a number");
            number.is_multiple_of(share)
        });
        let also_new = also_new.map(|call| CallRecord {
            upstream: "new".into(),
            ..call
        });
        let calls = FINE.calls().chain(new.calls()).chain(also_new);
        of_calls(&gate(), calls.collect(), None, at(1_200))
    };
    let few = shared(50);
    assert_eq!(
        (few.verdict, few.mixed_units, few.baseline.complete_units),
        (GateVerdict::Pass, 16, 784)
    );
    let many = shared(2);
    assert_eq!(many.verdict, GateVerdict::Inconclusive);
    assert!(
        many.reason
            .contains("400 of 1600 sessions have calls of both sides"),
        "{}",
        many.reason
    );
}

#[test]
fn calls_that_name_no_session_are_each_a_unit() {
    let new = Traffic {
        upstream: "new",
        ..FINE
    };
    let nameless = FINE.calls().chain(new.calls()).map(|call| CallRecord {
        session: None,
        ..call
    });
    let report = of_calls(&gate(), nameless.collect(), None, at(1_200));
    assert_eq!(report.verdict, GateVerdict::Pass, "{}", report.reason);
    assert_eq!(report.candidate.complete_units, 2_400);
    assert_eq!(report.candidate.calls_without_unit, 2_400);
}

#[test]
fn ceilings_and_burn_are_about_the_candidate_alone() {
    let mut gate = gate();
    gate.ceilings = Ceilings {
        failures: Some(0.02),
        cost: Some(0.04),
    };
    assert_eq!(judged(&gate, FINE, FINE).verdict, GateVerdict::Pass);
    gate.ceilings.cost = Some(0.02);
    assert_eq!(
        judged(&gate, FINE, FINE).reason,
        "does not hold: cost at most"
    );
    let unpriced = judged(&gate, FINE, Traffic { cost: None, ..FINE });
    assert!(
        unpriced.reason.starts_with("not shown yet: cost at most; ")
            && unpriced
                .reason
                .contains("does not pass within 30 days because of `cost at most`"),
        "the baseline costs more: {}",
        unpriced.reason
    );
    assert_eq!(check(&unpriced, "cost").candidate, None);
    gate.ceilings = Ceilings::default();
    let objective = |threshold| Objective {
        name: "fast".into(),
        objective: 0.9,
        window: Duration::from_secs(86_400),
        calendar_month: false,
        judgement: Judgement {
            sli: Sli::OutputTps(threshold),
            select: Selector::default(),
            weight: Weight::Request,
            min_output_tokens: 0,
            min_streams: 0,
            warm_up: true,
            slice: None,
        },
        min_events: 10,
        description: None,
        runbook_url: None,
        dashboard_url: None,
    };
    gate.objectives = vec![objective(30.0).into()];
    let met = judged(&gate, FINE, FINE);
    assert_eq!(
        (met.verdict, check(&met, "fast").value),
        (GateVerdict::Pass, Some(0.0))
    );
    gate.objectives = vec![objective(42.0).into()];
    let missed = judged(&gate, FINE, FINE);
    assert_eq!(missed.reason, "does not hold: burn of fast");
    assert!(
        check(&missed, "fast")
            .value
            .is_some_and(|rate| rate > 4.0 && rate < 6.0)
    );
}

#[test]
fn sides_are_compared_from_the_candidates_first_call_on() {
    let gate = gate();
    let early = Traffic {
        sessions: 30,
        ..FINE
    };
    let report = seen(
        &gate,
        &[
            early,
            Traffic {
                upstream: "new",
                ..FINE
            },
        ],
        None,
        at(1_200),
    );
    let since = report.since.map(|since| since.to_string());
    assert_eq!(since.as_deref(), Some("2023-11-14T22:13:20.000Z"));
    assert_eq!(report.waited_seconds, Some(1_200.0));
    let since = seen(&gate, &[early], Some(at(70)), at(1_200));
    assert_eq!(since.baseline.calls, 30 + 20, "those before are left out");
}

/// Gives every session whose number is not a multiple of `bad_one_in` the score 1, and the others 0. Only one session in
/// `scored_one_in` has a score.
fn scored(
    traffic: Traffic,
    (bad_one_in, scored_one_in): (usize, usize),
) -> impl Iterator<Item = CallRecord> {
    let mut numbers = std::collections::HashMap::new();
    traffic.calls().map(move |mut call| {
        let session = call.session.clone().unwrap_or_default();
        let next = numbers.len();
        let number = *numbers.entry(session.clone()).or_insert(next);
        if number % scored_one_in == 0 {
            call.scores.push(Score {
                name: "success".to_owned(),
                value: f64::from(u8::from(number / scored_one_in % bad_one_in != 0)),
                data_type: ScoreType::Boolean,
                target: ScoreTarget::Session,
                target_id: session,
                source: None,
                time: at(1_000).into(),
            });
        }
        call
    })
}

const NEW: Traffic = Traffic {
    upstream: "new",
    ..FINE
};

fn gate_of_scores(limit: f64) -> Gate {
    Gate {
        scores: vec![("success".to_owned(), limit)],
        ..gate()
    }
}

#[test]
fn a_faster_candidate_with_worse_scores_fails() {
    let faster = Traffic {
        tps: FINE.tps * 1.5,
        ..NEW
    };
    let calls = |bad_one_in| {
        let old = scored(FINE, (20, 1));
        old.chain(scored(faster, (bad_one_in, 1))).collect()
    };
    let gate = gate_of_scores(0.05);
    let report = of_calls(&gate, calls(20), None, at(1_200));
    assert_eq!(report.verdict, GateVerdict::Pass, "{}", report.reason);
    let report = of_calls(&gate, calls(4), None, at(1_200));
    assert_eq!(report.reason, "does not hold: score success");
    let check = check(&report, "score success");
    assert_eq!(check.n, [800, 800]);
    let value = check.value.expect("a value");
    assert!((value - 0.2).abs() < 0.02, "20 points worse: {value}");
}

#[test]
fn scores_that_are_all_alike_still_decide() {
    let calls = |new| {
        let old = scored(FINE, (usize::MAX, 1));
        old.chain(scored(NEW, (new, 1))).collect()
    };
    let gate = gate_of_scores(0.03);
    let same = of_calls(&gate, calls(usize::MAX), None, at(1_200));
    assert_eq!(same.verdict, GateVerdict::Pass, "{}", same.reason);
    let none = of_calls(&gate, calls(1), None, at(1_200));
    assert_eq!(none.reason, "does not hold: score success");
}

#[test]
fn few_scores_or_a_biased_choice_of_scored_sessions_decide_nothing() {
    let seen = |old, new| {
        let calls = scored(FINE, (20, old)).chain(scored(NEW, (20, new)));
        of_calls(&gate_of_scores(0.05), calls.collect(), None, at(1_200))
    };
    let few = seen(40, 40);
    assert_eq!(few.verdict, GateVerdict::Inconclusive);
    let reason = check(&few, "score success").reason.clone();
    assert_eq!(
        reason.as_deref(),
        Some(
            "too few scores: 20 units of the baseline have a score, but 50 are needed on each side"
        )
    );
    assert!(
        few.reason.contains("not shown yet: score success"),
        "{}",
        few.reason
    );
    let biased = seen(1, 4);
    assert_eq!(biased.verdict, GateVerdict::Inconclusive);
    let reason = check(&biased, "score success").reason.clone();
    let words = "the share of units with this score differs (100.0 % and 25.0 %)";
    assert!(reason.is_some_and(|reason| reason.starts_with(words)));
}
