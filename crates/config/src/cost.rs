//! `[[price]]`, `[[budget]]` and the GPUs of upstreams: from the file's tables to settings.

use super::file;
use super::file::DEFAULT_PERIOD;
use super::file::DEFAULT_WARNINGS;
use super::objectives::selector;
use super::problems::{Problems, check_label};
use super::spanned::Spanned;
use super::*;
use std::collections::{HashMap, HashSet};
use tokengauge_accounting::cost::budget::Period;
use tokengauge_accounting::cost::{GpuPrice, Price, Tariff};
use tokengauge_core::caller::{Mode, OnUnreadable};

/// Shortest period of a budget. A shorter one would be a rate limit.
const SHORTEST_PERIOD: Duration = Duration::from_secs(60);

pub(super) fn prices(
    written: Vec<Spanned<file::Price>>,
    upstreams: &HashMap<String, Arc<Upstream>>,
    problems: &mut Problems<'_>,
) -> Vec<Price> {
    let mut prices = Vec::new();
    for spanned in written {
        let written = spanned.into_inner();
        let tariff = Tariff {
            input: written.input,
            cached_input: written.cached_input,
            cache_write: written.cache_write,
            cache_write_1h: written.cache_write_1h,
            output: written.output,
            reasoning: written.reasoning,
            batch: written.batch,
        };
        check_tariff(&written.model, &tariff, problems);
        if let Some(upstream) = &written.upstream
            && !upstreams.contains_key(upstream.get_ref())
        {
            let reason = format!("there is no upstream named `{}`", upstream.get_ref());
            problems.at(upstream, reason);
        }
        prices.push(Price {
            model: Pattern::new(written.model.into_inner()),
            upstream: written.upstream.map(|name| name.into_inner().into()),
            above: written.above,
            tariff,
        });
    }
    prices
}

fn check_tariff(place: &Spanned<String>, tariff: &Tariff, problems: &mut Problems<'_>) {
    if tariff.input.is_none() && tariff.output.is_none() {
        problems.at(place, "needs an `input` price, an `output` price, or both");
    }
    let parts = [
        ("cached_input", tariff.cached_input, "input", tariff.input),
        ("cache_write", tariff.cache_write, "input", tariff.input),
        (
            "cache_write_1h",
            tariff.cache_write_1h,
            "input",
            tariff.input,
        ),
        ("reasoning", tariff.reasoning, "output", tariff.output),
    ];
    for (part, price, whole, whole_price) in parts {
        if price.is_some() && whole_price.is_none() {
            let reason =
                format!("`{part}` is part of the {whole}, so it also needs the price of `{whole}`");
            problems.at(place, reason);
        }
    }
}

pub(super) fn gpus(
    upstreams: &[Spanned<file::Upstream>],
    problems: &mut Problems<'_>,
) -> HashMap<Arc<str>, GpuPrice> {
    let mut all = HashMap::new();
    for written in upstreams.iter().map(Spanned::get_ref) {
        let Some(usd_per_hour) = written.gpu_usd_per_hour else {
            if let Some(gpus) = &written.gpus {
                problems.at(gpus, "needs `gpu_usd_per_hour`, the price of one GPU");
            }
            continue;
        };
        let count = written.gpus.as_ref().map_or(1, |gpus| *gpus.get_ref());
        let name = written.name.get_ref().as_str().into();
        all.insert(
            name,
            GpuPrice {
                usd_per_hour,
                count,
            },
        );
    }
    all
}

pub(super) fn budgets(
    written: Vec<Spanned<file::Budget>>,
    routes: &[Arc<Route>],
    measure: &Measure,
    problems: &mut Problems<'_>,
) -> Vec<Budget> {
    let mut names = HashSet::new();
    let mut budgets = Vec::new();
    for spanned in written {
        let written = spanned.into_inner();
        check_label(&written.name, problems);
        let name = written.name.get_ref();
        if !names.insert(name.clone()) {
            problems.at(
                &written.name,
                format!("there are two budgets named `{name}`; give each its own `name`"),
            );
        }
        if !written.block {
            let reason = "needs `block = true`: this budget refuses nothing";
            written
                .mode
                .iter()
                .for_each(|mode| problems.at(mode, reason));
            let unreadable = written.on_unreadable.iter();
            unreadable.for_each(|policy| problems.at(policy, reason));
        }
        budgets.push(Budget {
            name: name.as_str().into(),
            per: written.per,
            select: selector(&written.select, routes, measure, problems),
            usd: written.usd,
            period: period(written.period.as_ref(), problems),
            warn_at: warnings(written.warn_at),
            block: written.block,
            mode: written.mode.map_or(Mode::default(), Spanned::into_inner),
            on_unreadable: written
                .on_unreadable
                .map_or(OnUnreadable::Refuse, Spanned::into_inner),
        });
    }
    budgets
}

fn period(written: Option<&Spanned<String>>, problems: &mut Problems<'_>) -> Period {
    let Some(written) = written else {
        return Period::Every(DEFAULT_PERIOD);
    };
    if written.get_ref() == "month" {
        return Period::Month;
    }
    let span = humantime::parse_duration(written.get_ref());
    let whole = span
        .ok()
        .filter(|span| *span >= SHORTEST_PERIOD && span.subsec_nanos() == 0);
    if whole.is_none() {
        problems.at(
            written,
            "must be \"month\", or a duration such as \"1d\": whole seconds, at least a minute",
        );
    }
    Period::Every(whole.unwrap_or(DEFAULT_PERIOD))
}

fn warnings(written: Option<Vec<f64>>) -> Vec<f64> {
    let mut shares = written.unwrap_or_else(|| DEFAULT_WARNINGS.to_vec());
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    shares
}
