//! Formats a gate's verdict for terminals, documents and CI.

use maud::Render;
use std::fmt::Write;
use tokengauge_experiments::words;
use tokengauge_gate::{Check, CheckKind, GateVerdict, Plan, Report, SideReport};
use tokengauge_process::output::{markdown as escaped, printable};

const UNKNOWN: &str = "–";
const HEADS: [&str; 6] = [
    "check",
    "verdict",
    "baseline",
    "candidate",
    "value (bounds)",
    "limit",
];

pub(super) fn text(report: &Report) -> String {
    let mut text = head(report, "");
    let rows = rows(report);
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    text.push('\n');
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

pub(super) fn markdown(report: &Report) -> String {
    let mut text = head(report, "- ");
    text.push('\n');
    for (index, row) in rows(report).iter().enumerate() {
        let cells = row.iter().map(|cell| escaped(cell));
        let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(HEADS.len()));
        }
    }
    text
}

pub(super) fn plan(plan: &Plan) -> String {
    let rows = plan_rows(plan);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let mut text = plan_head(plan, |name| printable(name).into_owned()) + "\n";
    for row in &rows {
        let cells = row.iter().enumerate();
        let cells = cells.map(|(at, cell)| format!("{cell:<0$}", width(at).unwrap_or(0)));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

pub(super) fn plan_markdown(plan: &Plan) -> String {
    let mut text = plan_head(plan, escaped) + "\n";
    for (index, row) in plan_rows(plan).iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
        }
    }
    text
}

fn plan_head(plan: &Plan, shown: impl Fn(&str) -> String) -> String {
    let unit = &plan.unit;
    let known = match (plan.units_per_minute, &plan.reason) {
        (Some(rate), _) => format!(
            "the baseline had {} {unit}s with {} calls; {rate:.1} {unit}s a minute",
            plan.units, plan.calls
        ),
        (None, Some(reason)) => printable(reason).into_owned(),
        (None, None) => UNKNOWN.to_owned(),
    };
    format!("gate {}: {known}\n", shown(&plan.name))
}

fn plan_rows(plan: &Plan) -> Vec<[String; 3]> {
    let heads = [
        "the candidate's share",
        "a candidate as good as the baseline passes",
        "slowest check",
    ];
    let rows = plan.at.iter().map(|at| {
        let share = format!("{:.0} %", at.candidate_share * 100.0);
        [share, at.in_words(), at.slowest_check.clone()]
    });
    let heads = (!plan.at.is_empty()).then(|| heads.map(str::to_owned));
    heads.into_iter().chain(rows).collect()
}

/// Formats a test case for each check: a failure if it does not hold, skipped if it is unknown.
pub(super) fn junit(report: &Report) -> String {
    let of = |verdict: GateVerdict| {
        let checks = report.checks.iter();
        checks.filter(|check| check.verdict == verdict).count()
    };
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"gate {}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" timestamp=\"{}\">\n",
        xml(&report.name),
        report.checks.len() + 1,
        of(GateVerdict::Fail) + usize::from(report.verdict == GateVerdict::Fail),
        of(GateVerdict::Inconclusive) + usize::from(report.verdict == GateVerdict::Inconclusive),
        report.evaluated_at,
    );
    let name = if report.waited_too_long {
        "verdict (max_wait)"
    } else {
        "verdict"
    };
    case(
        &mut text,
        &report.name,
        name,
        report.verdict,
        &report.reason,
    );
    for check in &report.checks {
        case(
            &mut text,
            &report.name,
            &title(check),
            check.verdict,
            &sentence(check),
        );
    }
    text + "</testsuite>\n"
}

fn case(text: &mut String, gate: &str, name: &str, verdict: GateVerdict, said: &str) {
    let (gate, name, said) = (xml(gate), xml(name), xml(said));
    let _ = write!(
        text,
        "  <testcase classname=\"gate.{gate}\" name=\"{name}\""
    );
    let _ = match verdict {
        GateVerdict::Pass => writeln!(text, "/>"),
        GateVerdict::Fail => writeln!(text, "><failure message=\"{said}\"/></testcase>"),
        GateVerdict::Inconclusive => writeln!(text, "><skipped message=\"{said}\"/></testcase>"),
    };
}

/// Formats an annotation for the verdict, and one for each check that does not hold or is unknown.
pub(super) fn github(report: &Report) -> String {
    let mut text = String::new();
    let title_of = |name: &str| property(&format!("gate {}: {name}", report.name));
    let level = |verdict: GateVerdict| match verdict {
        GateVerdict::Pass => "notice",
        GateVerdict::Fail => "error",
        GateVerdict::Inconclusive => "warning",
    };
    let verdict: &str = report.verdict.into();
    let (level_of_all, title_of_all) = (level(report.verdict), title_of(verdict));
    let _ = writeln!(
        text,
        "::{level_of_all} title={title_of_all}::{}",
        data(&report.reason)
    );
    let checks = report.checks.iter();
    for check in checks.filter(|check| check.verdict != GateVerdict::Pass) {
        let (level, title) = (level(check.verdict), title_of(&title(check)));
        let _ = writeln!(text, "::{level} title={title}::{}", data(&sentence(check)));
    }
    text
}

fn head(report: &Report, bullet: &str) -> String {
    let verdict: &str = report.verdict.into();
    let shown = |name: &str| match bullet {
        "" => printable(name).into_owned(),
        _ => escaped(name),
    };
    let mut text = format!(
        "gate {}: {verdict}: {}\n",
        shown(&report.name),
        shown(&report.reason)
    );
    if !bullet.is_empty() {
        text.push('\n');
    }
    let unit = &report.unit;
    let side = |name: &str, side: &SideReport| {
        let more = match side.one_in {
            1 => String::new(),
            one_in => format!(" (a sample of one {unit} in {one_in})"),
        };
        format!(
            "{bullet}{name} {}: {} {unit}s, {} compared, {} calls{more}, {} of them without a {unit}\n",
            shown(&side.select.in_words()),
            side.units,
            side.complete_units,
            side.calls,
            side.calls_without_unit,
        )
    };
    text.push_str(&side("candidate", &report.candidate));
    text.push_str(&side("baseline", &report.baseline));
    if report.mixed_units > 0 {
        let mixed = report.mixed_units;
        let _ = writeln!(
            text,
            "{bullet}{mixed} {unit}s have calls of both sides and are excluded"
        );
    }
    if let Some(since) = &report.since {
        let _ = writeln!(text, "{bullet}calls since {since}");
    }
    text
}

fn rows(report: &Report) -> Vec<[String; 6]> {
    let heads = HEADS.map(str::to_owned);
    let row = |check: &Check| {
        let verdict: &str = check.verdict.into();
        let value =
            |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), |value| plain(check, value));
        [
            title(check),
            verdict.to_owned(),
            value(check.baseline),
            value(check.candidate),
            known(check),
            limit(check, check.limit),
        ]
        .map(|cell: String| printable(&cell).into_owned())
    };
    std::iter::once(heads)
        .chain(report.checks.iter().map(row))
        .collect()
}

fn title(check: &Check) -> String {
    match check.kind {
        CheckKind::NotWorseBy => check.name.clone(),
        CheckKind::AtMost => format!("{} at most", check.name),
        CheckKind::Burn => format!("burn of {}", check.name),
    }
}

fn sentence(check: &Check) -> String {
    let what = match check.kind {
        CheckKind::NotWorseBy => "worse by",
        CheckKind::AtMost => "is",
        CheckKind::Burn => "burns at",
    };
    format!(
        "{} {what} {}, limit {}",
        title(check),
        known(check),
        limit(check, check.limit)
    )
}

fn known(check: &Check) -> String {
    let all = check.value.zip(check.lower).zip(check.upper);
    let Some(((value, lower), upper)) = all else {
        return check.reason.clone().unwrap_or_else(|| UNKNOWN.to_owned());
    };
    let figure = |value| limit(check, value);
    match check.kind {
        CheckKind::Burn => figure(value),
        _ => format!("{} ({} to {})", figure(value), figure(lower), figure(upper)),
    }
}

fn plain(check: &Check, value: f64) -> String {
    match (&*check.name, check.kind) {
        _ if check.in_unit_of_score => words::plain(value),
        (_, CheckKind::Burn) => format!("{:.2} %", value * 100.0),
        ("tps", _) => format!("{value:.1}"),
        ("cost", _) => format!("${value:.4}"),
        _ => format!("{:.2} %", value * 100.0),
    }
}

fn limit(check: &Check, value: f64) -> String {
    match (check.kind, &*check.name) {
        _ if check.in_unit_of_score => words::plain(value),
        (CheckKind::Burn, _) => format!("{value:.2}"),
        (CheckKind::AtMost, "cost") => format!("${value:.4}"),
        (CheckKind::NotWorseBy, _) if !check.relative => format!("{:.2} points", value * 100.0),
        _ => format!("{:.2} %", value * 100.0),
    }
}

/// Escapes text for an XML attribute. The entities of HTML are also valid in XML.
fn xml(text: &str) -> String {
    printable(text).render().into_string()
}

fn data(text: &str) -> String {
    printable(text).replace('%', "%25")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
