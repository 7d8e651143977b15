//! The HTML of an incident file.

use super::calls::named_by;
use super::{Capsule, Configuration, MEMORY, Objective, SHOWN, Span, TABLES};
use crate::page::{self, clock, figure};
use crate::phase_bars;
use crate::plot::{self, Series};
use maud::{Markup, html};
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::dimension::model_of;
use tokengauge_core::printable::printable;
use tokengauge_core::time::{rfc3339_seconds, since_1970, span_text};
use tokengauge_slo::{Alert, Cause, CauseBasis, Dimension};
use tokengauge_store::history::phases;
use tokengauge_store::query::{GroupRow, Mark, Point, Timeseries};

const MAX_MARKS: usize = 50;

/// The style sheet of this page, in addition to the style sheet of all pages.
const STYLE: &str = "\
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem;padding:.6rem;border:1px solid var(--grid)}\
pre.text{max-height:20rem;overflow:auto}@media print{pre.text{max-height:none;overflow:visible}}\
blockquote{margin:.5rem 0;padding:.4rem 1rem;border-left:4px solid var(--two);font-size:1.05rem}";

pub(super) fn page(capsule: &Capsule, commit: &str) -> String {
    let body = html! {
        (about(capsule, commit))
        @if let Some(objective) = &capsule.objective {
            (cause(objective))
            (burn_down(objective))
        }
        (curves(capsule))
        (marks(&capsule.marks))
        (groups(capsule))
        (worst_calls(capsule))
        (runaways(capsule))
        @if let Some(configuration) = &capsule.configuration {
            (configuration_in_force(configuration, &capsule.span))
        }
        (commands(capsule))
    };
    page::page(&title(capsule), &[phase_bars::STYLE, STYLE].concat(), &body)
}

fn title(capsule: &Capsule) -> String {
    let Span { since, until } = capsule.span;
    let span = format!("{} to {}", written(since), written(until));
    match &capsule.objective {
        Some(objective) => format!("Incident of {}, {span}", printable(&objective.status.name)),
        None => format!("Incident report, {span}"),
    }
}

fn written(at: SystemTime) -> String {
    rfc3339_seconds(at).to_string()
}

fn about(capsule: &Capsule, commit: &str) -> Markup {
    let version = env!("CARGO_PKG_VERSION");
    let of = match &capsule.process {
        Some(process) => format!(
            " by the proxy on {}, which started at {}",
            process.host, process.started_at
        ),
        None => String::new(),
    };
    let made = written(capsule.made);
    let made = format!("Made {made}{of}; tokengauge {version}, commit {commit}. Times are UTC.");
    let kept = match capsule.kept {
        None => format!("There are no calls from this time in {}.", capsule.source),
        Some(kept) if kept == capsule.span => {
            format!("The calls are from {}.", capsule.source)
        }
        Some(kept) => format!(
            "The calls are from {}, which covers {} to {} of this time.",
            capsule.source,
            written(kept.since),
            written(kept.until)
        ),
    };
    html! {
        p { (printable(&made)) }
        p { (printable(&kept)) }
    }
}

fn cause(objective: &Objective) -> Markup {
    html! {
        h2 { "Cause" }
        @if let Some(cause) = &objective.status.cause {
            (known_cause(cause))
        } @else {
            p { "The cause was not searched for, since the budget of this objective is not burning." }
        }
    }
}

fn known_cause(cause: &Cause) -> Markup {
    let since = cause
        .since
        .map_or(String::new(), |since| format!(" Bad since {since}."));
    let worked_out = format!(
        "Determined at {} from {} events, {} of them bad.{since}",
        cause.at,
        cause.basis.all(),
        cause.basis.bad()
    );
    let row = |dimension: Dimension, value: &str, shares: [f64; 3]| {
        let [one, two, three] = shares.map(percent);
        let value = printable(value).into_owned();
        [dimension.in_words().to_owned(), value, one, two, three]
    };
    let (heads, rows): (_, Vec<[String; 5]>) = match &cause.basis {
        CauseBasis::Calls(basis) => {
            let rows = basis.candidates.iter().map(|one| {
                let shares = [one.share_of_bad, one.share_of_all, one.explained];
                row(one.dimension, &one.value, shares)
            });
            let heads = [
                "dimension",
                "value",
                "share of bad calls",
                "share of all calls",
                "explained",
            ];
            (heads, rows.collect())
        }
        CauseBasis::Minutes(basis) => {
            let rows = basis.candidates.iter().map(|one| {
                let shares = [one.shares.of_lost, one.shares.before, one.shares.of_lost];
                row(one.dimension, &one.value, shares)
            });
            let heads = [
                "what",
                "value",
                "share of lost tokens",
                "share of earlier tokens",
                "explains",
            ];
            (heads, rows.collect())
        }
    };
    html! {
        blockquote { (printable(&cause.sentence)) }
        p { (printable(&worked_out)) }
        @if !rows.is_empty() { (texts(2, heads, &rows)) }
    }
}

fn texts<const N: usize>(named: usize, heads: [&str; N], rows: &[[String; N]]) -> Markup {
    let rows = rows
        .iter()
        .map(|row| row.iter().map(|text| (text.as_str(), "", number(text))));
    page::table(named, heads.into_iter(), rows)
}

fn number(text: &str) -> Option<f64> {
    text.split(' ').next()?.trim_end_matches('%').parse().ok()
}

/// A percentage. It has one decimal place if it has fewer than three digits before the point.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = usize::from(percent.abs() < 100.0);
    format!("{percent:.digits$}%")
}

fn budget_left(left: f64) -> String {
    if left < 0.0 {
        format!("The error budget is overspent by {}", percent(-left))
    } else {
        format!("{} of the error budget remains", percent(left))
    }
}

/// The long window of an alert, and how much of it was observed if not all.
fn window(alert: &Alert) -> String {
    let long = span_text(alert.tier.long);
    if alert.observed_seconds < alert.tier.long.as_secs_f64() {
        let seen = Duration::from_secs(alert.observed_seconds as u64);
        format!("{} of {long}", span_text(seen))
    } else {
        long
    }
}

fn burn_down(objective: &Objective) -> Markup {
    let Objective { status, burn_down } = objective;
    let left = status.budget_remaining;
    let firing: Vec<String> = status
        .alerts
        .iter()
        .filter(|alert| alert.firing)
        .map(|alert| format!("{} over {}", alert.tier.severity.as_str(), window(alert)))
        .collect();
    let firing = if firing.is_empty() {
        "No alert is firing.".to_owned()
    } else {
        format!("Firing: {}.", firing.join(", "))
    };
    let stands = format!(
        "{}: {} for {} over {}. {}, from {} good and {} bad events. {firing}",
        status.name,
        status.promise,
        percent(status.objective),
        status.window,
        budget_left(left),
        status.good.round(),
        status.bad.round()
    );
    let points: Series = burn_down
        .points
        .iter()
        .map(|point| (point.at.time(), point.budget_remaining * 100.0))
        .map(|(at, left)| (since_1970(at), Some(left)))
        .collect();
    let span = length(&points);
    let svg = plot::lines(&[points], &[], "% remaining", &|at| clock(at, span));
    html! {
        h2 { "Objective" }
        p { (printable(&stands)) }
        (figure("Remaining error budget", &[], &svg))
    }
}

fn length(points: &Series) -> Duration {
    let ends = points.first().zip(points.last());
    ends.map_or(Duration::ZERO, |((first, _), (last, _))| {
        Duration::from_secs_f64((last - first).max(0.0))
    })
}

fn curves(capsule: &Capsule) -> Markup {
    let marks: Vec<f64> = capsule
        .marks
        .iter()
        .map(|mark| since_1970(mark.time.time()))
        .collect();
    let made = since_1970(capsule.made);
    // The last point has only some of its calls and would look like a fall or a recovery. So it is drawn only if it is the
    // only point.
    let of = |series: &Timeseries, value: fn(&Point) -> Option<f64>| -> Series {
        let points = series.points.iter();
        let points = points.map(|point| (since_1970(point.at.time()), value(point)));
        let all: Series = points.collect();
        let over = all.iter().copied();
        let over: Series = over
            .filter(|(at, _)| at + series.step as f64 <= made)
            .collect();
        if over.iter().any(|(_, value)| value.is_some()) {
            over
        } else {
            all
        }
    };
    let span = length(&of(&capsule.ttft, |point| Some(point.calls as f64)));
    let clock = |at: f64| clock(at, span);
    let percentiles = |series: &Timeseries, unit| {
        let lines = [
            of(series, |point| point.p50),
            of(series, |point| point.p10),
            of(series, |point| point.p90),
        ];
        plot::lines(&lines, &marks, unit, &clock)
    };
    let middle = ["p50", "p10", "p90"];
    let speeds = percentiles(&capsule.tps, "tokens/s");
    let waits = percentiles(&capsule.ttft, "seconds");
    let failed = |point: &Point| Some(point.errors as f64).filter(|_| point.calls > 0);
    let lines = [
        of(&capsule.ttft, |point| Some(point.calls as f64)),
        of(&capsule.ttft, failed),
    ];
    let counts = plot::lines(&lines, &marks, "calls", &clock);
    let title = format!("Finished calls and failures per {} s", capsule.ttft.step);
    html! {
        (figure("Output tokens per second of a call", &middle, &speeds))
        (figure("Time to first token", &middle, &waits))
        (figure(&title, &["calls", "failed"], &counts))
    }
}

fn marks(marks: &[Mark]) -> Markup {
    html! {
        h2 { "Marks" }
        @if marks.is_empty() {
            p { "There are no marks in this time: no deployment, reload, restart or alert." }
        } @else {
            ul {
                @for mark in marks.iter().take(MAX_MARKS) {
                    @let kind = mark.kind.as_str().replace('_', " ");
                    li { (printable(&format!("{} {kind}: {}", mark.time, mark.text))) }
                }
            }
        }
        @if marks.len() > MAX_MARKS {
            p { "and " (marks.len() - MAX_MARKS) " later marks" }
        }
    }
}

fn groups(capsule: &Capsule) -> Markup {
    let heads = [
        "name", "calls", "failed", "TPS p50", "TPS p10", "TTFT p50", "TTFT p95", "cost",
    ];
    html! {
        @for ((_, title), rows) in TABLES.iter().zip(&capsule.groups) {
            h2 { (title) }
            @if rows.is_empty() {
                p { "No calls." }
            } @else {
                (texts(1, heads, &rows.iter().map(group).collect::<Vec<_>>()))
            }
        }
    }
}

fn group(row: &GroupRow) -> [String; 8] {
    let rate = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1}"));
    [
        printable(row.name.as_deref().unwrap_or("–")).into_owned(),
        row.calls.to_string(),
        row.errors.to_string(),
        rate(row.tps.p50),
        rate(row.tps.p10),
        seconds(row.ttft.p50),
        seconds(row.ttft.p95),
        row.cost_usd
            .map_or("–".to_owned(), |usd| format!("{usd:.4} USD")),
    ]
}

fn seconds(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.3} s"))
}

fn worst_calls(capsule: &Capsule) -> Markup {
    let calls = &capsule.calls;
    let which = match capsule.objective {
        Some(_) => "that spent the budget",
        None => "of this time",
    };
    let cause = capsule.objective.as_ref();
    let cause = cause.and_then(|objective| objective.status.cause.as_deref());
    let first = match cause.and_then(named_by) {
        Some((dimension, value)) => {
            format!("calls of {} {value} first, then ", dimension.in_words())
        }
        None => String::new(),
    };
    let chosen = format!(
        "{} of the last {} calls {which}: {first}failed calls, then calls with most stalls, then the longest.",
        calls.len().min(SHOWN),
        capsule.looked_at
    );
    let longest = calls
        .iter()
        .filter_map(|call| call.seconds.duration)
        .fold(0.0, f64::max);
    let rows = html! { @for call in calls { (row(call, longest)) } };
    html! {
        h2 { "Worst calls" }
        @if calls.is_empty() {
            p { "None of the stored calls belongs to this incident." }
        } @else {
            p { (printable(&chosen)) }
            (phase_bars::key())
            @let heads = ["call", "agent and model", "upstream", "outcome", "TTFT", "TPS", "longest gap", "duration", "phases"];
            (page::calls("Worst calls", heads, 4..8, &rows))
        }
    }
}

fn row(call: &CallRecord, longest: f64) -> Markup {
    let name = [call.agent.as_deref(), model_of(call)];
    let name = name.into_iter().flatten().collect::<Vec<_>>().join(" · ");
    let error = call
        .error_type
        .as_deref()
        .map_or(String::new(), |error| format!(": {error}"));
    let ended = format!("{}{error}", call.outcome.as_str().replace('_', " "));
    let tps = call
        .tps
        .output
        .map_or("–".to_owned(), |tps| format!("{tps:.1}"));
    html! {
        tr {
            td.name {
                (maud::display(call.started_at))
                small { (printable(&call.id)) }
            }
            td.name { (printable(&name)) }
            td.name { (printable(&call.upstream)) }
            td.name.bad[call.outcome.is_failure()] { (printable(&ended)) }
            td { (seconds(call.seconds.ttft)) }
            td { (tps) }
            td { (seconds(call.seconds.longest_gap)) }
            td { (seconds(call.seconds.duration)) }
            td.name { (phase_bars::bar(&phases(call, 0.0), longest)) }
        }
    }
}

fn runaways(capsule: &Capsule) -> Markup {
    html! {
        @if !capsule.runaways.is_empty() {
            h2 { "Runaway sessions when this file was made" }
            ul {
                @for one in &capsule.runaways { li { (printable(&one.in_words())) } }
            }
        }
    }
}

fn configuration_in_force(configuration: &Configuration, span: &Span) -> Markup {
    let Configuration {
        text,
        digest,
        origin,
        last_change,
    } = configuration;
    let changed = match last_change {
        None => "No change of the configuration is known.".to_owned(),
        Some(mark) => {
            let after = mark.time.time() >= span.until;
            let after = if after {
                ", after the time of this report"
            } else {
                ""
            };
            format!("Last change: {}{after} ({}).", mark.time, mark.text)
        }
    };
    let about = format!(
        "The configuration {digest} from {origin} was in use when this file was made. {changed} Comments are left out, and \
         possible secrets are hidden."
    );
    html! {
        h2 { "Configuration" }
        p { (printable(&about)) }
        // Browsers do not print closed folds, so the text is not in one.
        pre.text role="region" aria-label="Text of the configuration" tabindex="0" { (text) }
    }
}

fn commands(capsule: &Capsule) -> Markup {
    let Span { since, until } = capsule.span;
    let span = format!("since={}&until={}", written(since), written(until));
    let process = capsule.process.as_ref();
    let address = process.map_or("http://ADDRESS", |process| process.url.as_str());
    let report = format!(
        "tokengauge report --admin {address} --since {} --until {} --by",
        written(since),
        written(until)
    );
    let curl = |asked: &str| format!("curl -s '{address}/api/v1/{asked}'");
    let mut lines = vec![
        format!("{report} upstream"),
        format!("{report} model,agent"),
        curl(&format!("calls?outcome=failed&{span}&limit=20")),
    ];
    let mut slo = String::new();
    if let Some(objective) = &capsule.objective {
        let name = &objective.status.name;
        slo = format!(" --slo '{}'", name.replace('\'', "'\\''"));
        let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
        lines.insert(0, format!("tokengauge slo status --admin {address}"));
        lines.push(curl(&format!("calls?slo={encoded}&{span}&limit=20")));
    }
    if let Some(call) = capsule.calls.first() {
        lines.push(curl(&format!("calls/{}", call.id)));
    }
    lines.push(format!(
        "tokengauge slo incident{slo} --admin {address} --since {} --until {} -o again.html",
        written(since),
        written(until)
    ));
    let which = match process {
        Some(_) => "",
        None => "ADDRESS is the proxy's admin address, 127.0.0.1:9464 by default. ",
    };
    let kept = match capsule.source {
        MEMORY => {
            "The proxy keeps only its most recent calls, in memory: run the commands soon, or configure a ledger."
        }
        _ => "The calls are available until the ledger's retention removes them.",
    };
    let lines: Vec<_> = lines.iter().map(|line| printable(line)).collect();
    html! {
        h2 { "Commands" }
        p { (which) (kept) }
        pre { (lines.join("\n")) }
    }
}
