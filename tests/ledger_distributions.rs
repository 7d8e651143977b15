//! Hourly distributions: the sketches in the ledger are within 1 % of the exact quantiles.

use crate::ledger_experiments::sample;
use proptest::prelude::*;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::call::Outcome;
use tokengauge_core::concurrency::concurrency_class;
use tokengauge_core::finish_class::FinishClass;
use tokengauge_core::lengths::prompt_length_class;
use tokengauge_store::history::{self, TimedCall};
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase, Reader};
use tokengauge_store::query::{DistributionSelector, Distributions, Signal};

const HOUR: u64 = 3_600_000;

fn at(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_763_600_000_000 + ms)
}

/// Number of streams in flight when the call at this index began.
fn concurrency(place: usize) -> Option<u32> {
    (!place.is_multiple_of(7)).then_some(place as u32 % 90)
}

fn written(path: &Path, records: &[CallRecord], batch: usize) {
    let mut ledger = LedgerDatabase::open(path).expect("opens");
    let calls = records.iter().enumerate();
    let calls: Vec<_> = calls
        .filter_map(|(place, call)| LedgerCall::of_record(call, concurrency(place)))
        .collect();
    for batch in calls.chunks(batch) {
        ledger.write(batch).expect("written");
    }
}

fn timed(records: &[CallRecord]) -> impl Iterator<Item = (TimedCall<'_>, Option<u32>)> {
    let calls = records.iter().enumerate();
    calls.map(|(place, call)| (TimedCall::of(call), concurrency(place)))
}

fn within_a_hundredth(
    found: &Distributions,
    signal: Signal,
    bucket: Option<usize>,
    mut values: Vec<f64>,
) {
    let distribution = match bucket {
        Some(bucket) => found.bucket(signal, bucket).cloned().unwrap_or_default(),
        None => found.all(signal),
    };
    assert_eq!(
        distribution.calls(),
        values.len() as u64,
        "{signal:?} {bucket:?}"
    );
    let points: u64 = distribution.points().map(|(_, times)| times).sum();
    assert_eq!(points, values.len() as u64, "{signal:?} {bucket:?}");
    if values.is_empty() {
        return;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let told = distribution.mean().expect("a mean");
    assert!(
        (told - mean).abs() <= 1e-3 + mean * 1e-6,
        "{signal:?}: {told} for {mean}"
    );
    values.sort_by(f64::total_cmp);
    for q in [0.01, 0.1, 0.5, 0.9, 0.99] {
        let exact = history::quantile(&values, q).expect("values");
        let told = distribution.quantile(q).expect("a quantile");
        // Times are whole microseconds, speeds whole thousandths.
        assert!(
            (told - exact).abs() <= 0.01 * exact + 1e-3,
            "{signal:?} p{q}: {told} for {exact}"
        );
    }
}

fn exact(found: &Distributions, records: &[&CallRecord], places: &[usize]) {
    let known = |of: &dyn Fn(&CallRecord) -> Option<f64>| -> Vec<f64> {
        records.iter().filter_map(|call| of(call)).collect()
    };
    let input = |call: &CallRecord| call.tokens.reported.input.or(call.tokens.normalised.input);
    let output = |call: &CallRecord| {
        call.tokens
            .reported
            .output
            .or(call.tokens.normalised.output)
    };
    let plain = |tokens: Option<u64>| tokens.map(|tokens| tokens as f64);
    within_a_hundredth(
        found,
        Signal::InputTokens,
        None,
        known(&|call| plain(input(call))),
    );
    within_a_hundredth(
        found,
        Signal::OutputTokens,
        None,
        known(&|call| plain(output(call))),
    );
    let cached = known(&|call| plain(call.tokens.reported.cached_input));
    within_a_hundredth(found, Signal::CachedInputTokens, None, cached);
    let ratio = known(&|call| {
        let normalised = call.tokens.normalised.output.filter(|tokens| *tokens > 0)?;
        let reported = call.tokens.reported.output?;
        (call.outcome == Outcome::Complete).then(|| reported as f64 / normalised as f64)
    });
    within_a_hundredth(found, Signal::TokenRatio, None, ratio);
    for class in 0..5 {
        let ttft = known(&|call| {
            let here = input(call).map(prompt_length_class) == Some(class);
            call.seconds.ttft.filter(|_| here && !call.warm_up)
        });
        within_a_hundredth(found, Signal::Ttft, Some(class), ttft);
    }
    for class in 0..8 {
        let here = |place: usize| concurrency(place).map(concurrency_class) == Some(class);
        let both = records.iter().zip(places);
        let tps = both.filter(|(call, place)| here(**place) && !call.warm_up);
        let tps = tps.filter_map(|(call, _)| call.tps.output).collect();
        within_a_hundredth(found, Signal::Tps, Some(class), tps);
    }
    for (outcome, calls) in found.outcomes() {
        let ended = records.iter().filter(|call| call.outcome == outcome);
        assert_eq!(calls, ended.count() as u64, "{outcome:?}");
    }
    let refused = records.iter().filter(|call| {
        call.finish_reasons
            .iter()
            .any(|reason| reason == "content_filter")
    });
    let told = found
        .finish_reasons()
        .find(|(class, _)| *class == FinishClass::Refused);
    assert_eq!(told.map_or(0, |(_, calls)| calls), refused.count() as u64);
    assert_eq!(found.calls(), records.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn distributions_match_the_calls(seed: u64, count in 1..800_usize, from in 0..4_u64, hours in 1..6_u64) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.sqlite");
        let records = sample(seed, count, 20_000.0);
        written(&path, &records, 1 + seed as usize % 70);
        let reader = Reader::new(&path, Instant::now);
        let selector = DistributionSelector {
            model: (seed % 2 == 0).then(|| "gpt-5.1".to_owned()),
            route: None,
            workload: (seed % 3 == 0).then(|| "agent".to_owned()),
        };
        // Hours are whole hours since 1970, whatever the query asks for.
        let begin = 1_763_600_000_000 / HOUR * HOUR + from * HOUR;
        let end = begin + hours * HOUR;
        let instant = |ms: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        let (since, until) = (instant(begin + 7), instant(end - 7));
        let found = reader.distributions(&selector, since, until).expect("an answer");
        prop_assert_eq!(&found, &history::distributions(timed(&records), &selector, since, until));
        let by_hour = reader.hourly_distributions(&selector, since, until).expect("an answer");
        let expected = history::hourly_distributions(timed(&records), &selector, since, until);
        prop_assert_eq!(&by_hour, &expected);
        prop_assert!(by_hour.len() as u64 <= hours);
        let mut all = Distributions::default();
        found.values().for_each(|more| all.merge(more));
        let matching = records.iter().enumerate().filter(|(_, call)| {
            let started = TimedCall::of(call).started;
            let same = |wanted: &Option<String>, found| wanted.is_none() || wanted == found;
            let model = call.model.clone().or(call.model_requested.clone());
            since.is_some_and(|_| started >= instant(begin).unwrap() && started < instant(end).unwrap())
                && same(&selector.model, &model)
                && same(&selector.workload, &call.workload)
                && call.operation_class.counts()
        });
        let (places, calls): (Vec<_>, Vec<_>) = matching.unzip();
        exact(&all, &calls, &places);
    }
}

#[test]
fn series_are_apart_and_nothing_is_lost_between_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.sqlite");
    let records = sample(2, 900, 20_000.0);
    written(&path, &records, 100);
    let reader = Reader::new(&path, Instant::now);
    let all = DistributionSelector::default();
    let found = reader.distributions(&all, None, None).expect("an answer");
    assert!(found.len() > 20, "{} series", found.len());
    let counted = records.iter().filter(|call| call.operation_class.counts());
    let calls: u64 = found.values().map(Distributions::calls).sum();
    assert_eq!(calls, counted.count() as u64);
    let later = reader.distributions(&all, Some(at(100 * HOUR)), None);
    assert!(later.expect("an answer").is_empty());
}
