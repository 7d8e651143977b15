//! Experiments by unit: the ledger must have the same sums as its calls.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::call::{Operation, Outcome};
use tokengauge_store::history::{self, TimedCall};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Reader};
use tokengauge_store::query::Dimension;
use tokengauge_store::query::{
    CallUnitQuery, CallUnits, ExperimentUnits, Filter, Threshold, UnitKind, UnitQuery,
};
use tokengauge_test_support::records::{Records, SplitMix64};

const KINDS: [UnitKind; 4] = [
    UnitKind::Session,
    UnitKind::Agent,
    UnitKind::User,
    UnitKind::Block(Duration::from_secs(10)),
];

fn at(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_763_600_000_000 + ms)
}

/// Calls of two experiments and calls of none, in the order of their ends.
pub fn sample(seed: u64, count: usize, every_ms: f64) -> Vec<CallRecord> {
    let mut random = SplitMix64(seed);
    let skipped = random.below(300) as usize;
    let mut records: Vec<_> = Records::new(at(0), every_ms)
        .skip(skipped)
        .take(count)
        .collect();
    for record in &mut records {
        if random.below(4) > 0 {
            record.experiment = Some(random.of(&["decoder", "decoder", "cache"]).into());
            record.variant = (random.below(20) > 0).then(|| random.of(&["a", "b"]).into());
        }
        match random.below(14) {
            0 => record.session = None,
            1 => record.warm_up = true,
            2 => record.finish_reasons = vec!["length".into(), "stop".into()],
            3 => record.finish_reasons = vec!["content_filter".into()],
            4 => record.finish_reasons = vec!["MALFORMED_FUNCTION_CALL".into()],
            5 => record.tokens.normalised.output = Some(0),
            6 => record.outcome = Outcome::UpstreamReset,
            7 => {
                record.operation = Operation::Unknown;
                record.operation_class = record.operation.class();
            }
            _ => {}
        }
    }
    records.sort_by_key(|record| TimedCall::of(record).ended);
    records
}

fn written(path: &Path, records: &[CallRecord], random: &mut SplitMix64) {
    let mut ledger = LedgerDatabase::open(path).expect("opens");
    let mut rest = records;
    while !rest.is_empty() {
        let batch = rest.len().min(1 + random.below(40) as usize);
        let calls: Vec<_> = rest[..batch]
            .iter()
            .filter_map(|call| LedgerCall::of_record(call, Some(3)))
            .collect();
        ledger.write(&calls).expect("written");
        rest = &rest[batch..];
        if random.below(4) == 0 {
            drop(ledger);
            ledger = LedgerDatabase::open(path).expect("opens again");
        }
    }
}

fn expected(records: &[CallRecord], query: &UnitQuery) -> ExperimentUnits {
    history::experiment_units(records.iter().map(TimedCall::of), query)
}

/// Sums tokens and costs by variant and session in the simplest way.
fn plain(records: &[CallRecord]) -> BTreeMap<(Option<&str>, &str), [f64; 5]> {
    let mut sums: BTreeMap<_, [f64; 5]> = BTreeMap::new();
    let of_it = records.iter().filter(|call| {
        call.experiment.as_deref() == Some("decoder") && call.operation_class.counts()
    });
    for call in of_it {
        let Some(session) = call.session.as_deref() else {
            continue;
        };
        let sum = sums.entry((call.variant.as_deref(), session)).or_default();
        let tps = call.tps.output.filter(|_| !call.warm_up);
        let seconds = call.seconds.last_token.zip(call.seconds.ttft);
        let seconds = seconds
            .filter(|_| tps.is_some())
            .map_or(0.0, |(last, first)| last - first);
        let output = call
            .tokens
            .reported
            .output
            .or(call.tokens.normalised.output);
        sum[0] += 1.0;
        sum[1] += output.unwrap_or(0) as f64;
        sum[2] += call.cost_usd.unwrap_or(0.0) * 1e9;
        sum[3] += tps.unwrap_or(0.0) * seconds;
        sum[4] += seconds * 1e6;
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn sums_by_unit_match_the_calls(seed: u64, count in 1..600_usize) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let mut random = SplitMix64(seed);
        let records = sample(seed, count, 4_000.0);
        written(&path, &records, &mut random);
        let reader = Reader::new(&path, Instant::now);
        for unit in KINDS {
            let since = (random.below(3) == 0).then(|| at(random.below(1_000_000)));
            let until = (random.below(3) == 0).then(|| at(random.below(3_000_000)));
            let query = UnitQuery { experiment: "decoder".into(), unit, since, until };
            let found = reader.experiment_units(&query).expect("an answer");
            prop_assert_eq!(found, expected(&records, &query));
        }
        let query = UnitQuery { experiment: "decoder".into(), ..UnitQuery::default() };
        let found = reader.experiment_units(&query).expect("an answer");
        let plain = plain(&records);
        prop_assert_eq!(found.units.len(), plain.len());
        for unit in &found.units {
            let sums = &unit.sums;
            let of_it = plain[&(unit.variant.as_deref(), unit.unit.as_str())];
            let ours = [
                sums.calls, sums.output_tokens, sums.cost_nano_usd, sums.decode_tokens, sums.decode_us,
            ];
            for (ours, plain) in ours.into_iter().zip(of_it) {
                // Each call is rounded to whole tokens, microseconds and billionths.
                let within = sums.calls as f64;
                prop_assert!((ours as f64 - plain).abs() <= within, "{ours} for {plain}");
            }
        }
    }
}

#[test]
fn calls_beyond_a_threshold_are_counted_exactly() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.sqlite");
    let records = sample(3, 800, 4_000.0);
    written(&path, &records, &mut SplitMix64(3));
    let query = UnitQuery {
        experiment: "decoder".into(),
        ..UnitQuery::default()
    };
    let found = Reader::new(&path, Instant::now)
        .experiment_units(&query)
        .expect("an answer");
    let judged = |call: &&CallRecord| {
        let of_it = call.experiment.as_deref() == Some("decoder") && call.session.is_some();
        of_it && call.operation_class.counts() && !call.warm_up
    };
    for (ttft, tps) in [(0.3, 30.0), (0.5, 60.0), (1.0, 100.0)] {
        let (slow, low) = (Threshold::near(ttft), Threshold::near(tps));
        let calls = || records.iter().filter(judged);
        let waited =
            calls().filter(|call| call.seconds.ttft.is_some_and(|ttft| ttft > slow.value()));
        let sums = found.units.iter().map(|unit| &unit.sums);
        let counted: u64 = sums.clone().map(|sums| sums.ttft_above(slow)).sum();
        assert_eq!(counted, waited.count() as u64, "above {ttft}");
        let slower = calls().filter(|call| call.tps.output.is_some_and(|tps| tps <= low.value()));
        let counted: u64 = sums.clone().map(|sums| sums.tps_at_most(low)).sum();
        assert_eq!(counted, slower.count() as u64, "up to {tps}");
        let withheld: u64 = sums.map(|sums| sums.tps_unavailable).sum();
        let without = calls().filter(|call| call.tps.unavailable.is_some());
        assert_eq!(withheld, without.count() as u64);
    }
}

#[test]
fn guardrails_are_counted_by_variant() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.sqlite");
    let records = sample(11, 1_500, 4_000.0);
    written(&path, &records, &mut SplitMix64(11));
    let query = UnitQuery {
        experiment: "decoder".into(),
        unit: UnitKind::Agent,
        ..UnitQuery::default()
    };
    let found = Reader::new(&path, Instant::now)
        .experiment_units(&query)
        .expect("an answer");
    let of_it = || {
        let calls = records.iter();
        calls.filter(|call| {
            call.experiment.as_deref() == Some("decoder") && call.operation_class.counts()
        })
    };
    let reason = |word: &str| {
        let has = |call: &&CallRecord| call.finish_reasons.iter().any(|reason| reason == word);
        of_it().filter(has).count() as u64
    };
    let sums = |count: fn(&tokengauge_store::query::UnitSums) -> u64| -> u64 {
        found.units.iter().map(|unit| count(&unit.sums)).sum()
    };
    assert_eq!(sums(|sums| sums.calls), of_it().count() as u64);
    assert_eq!(sums(|sums| sums.truncated), reason("length"));
    assert_eq!(sums(|sums| sums.refused), reason("content_filter"));
    assert_eq!(
        sums(|sums| sums.invalid_tool_calls),
        reason("MALFORMED_FUNCTION_CALL")
    );
    assert!(sums(|sums| sums.empty) > 20 && sums(|sums| sums.cut_off) > 20);
    assert!(found.units.iter().any(|unit| unit.variant.is_none()));
}

#[test]
fn an_experiment_that_is_not_there_has_no_units() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.sqlite");
    written(&path, &sample(5, 50, 4_000.0), &mut SplitMix64(5));
    let found = Reader::new(&path, Instant::now).experiment_units(&UnitQuery::default());
    assert_eq!(found.expect("an answer"), ExperimentUnits::default());
}

/// Sorts units by name. Single calls without a name are ordered by their starts.
fn sorted(mut found: CallUnits) -> CallUnits {
    found.units.sort_by(|one, other| {
        (&one.name, one.sums.first_at(), one.sums.last_at()).cmp(&(
            &other.name,
            other.sums.first_at(),
            other.sums.last_at(),
        ))
    });
    found
}

#[test]
fn calls_by_unit_match_calls_in_memory_and_a_sample_has_whole_sessions() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.sqlite");
    let records = sample(5, 900, 150.0);
    written(&path, &records, &mut SplitMix64(6));
    let reader = Reader::new(&path, Instant::now);
    let upstream = records[0].upstream.to_string();
    let in_memory = |query: &CallUnitQuery| {
        sorted(history::call_units(
            records.iter().map(TimedCall::of),
            query,
        ))
    };
    for unit in KINDS {
        for (upstream, variant, from) in [
            (None, None, 0),
            (Some(upstream.clone()), None, 20_000),
            (None, Some("a".to_owned()), 0),
            (None, Some("nobody".to_owned()), 0),
        ] {
            let filter = Filter {
                since: Some(at(from)),
                until: Some(at(100_000)),
                names: [(Dimension::Upstream, upstream)].into(),
                operation_classes: Filter::counted(),
                ..Filter::default()
            };
            let query = CallUnitQuery {
                filter,
                variant,
                unit,
                max_calls: 10_000,
            };
            let found = sorted(reader.call_units(&query).expect("units"));
            assert_eq!(found, in_memory(&query), "{query:?}");
        }
    }
    let mut query = CallUnitQuery {
        filter: Filter::default(),
        variant: None,
        unit: UnitKind::Session,
        max_calls: 10_000,
    };
    let all = reader.call_units(&query).expect("units");
    query.max_calls = 300;
    let some = reader.call_units(&query).expect("units");
    assert_eq!((some.calls, some.one_in), (900, 4));
    let (all, some) = (sorted(all).units, sorted(some).units);
    assert!(
        some.iter().all(|unit| all.contains(unit)),
        "sessions are whole"
    );
    let share = some.len() as f64 / all.len() as f64;
    assert!((0.1..0.45).contains(&share), "{share}");
}
