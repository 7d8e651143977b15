//! The views and their columns.

use super::table::{Cell, Column, TableRow, Tone, ViewTable};
use crate::command::slo::status::{self, SlosBody, rough};
use tokengauge_meter::StreamNow;
use tokengauge_process::output::printable;
use tokengauge_sessions::Runaway;
use tokengauge_store::query::{GroupRow, SessionRow};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Streams,
    Models,
    Slos,
    Sessions,
    Upstreams,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Streams(Vec<StreamNow>),
    Models(String, Vec<GroupRow>),
    Slos(SlosBody),
    Sessions(String, Vec<SessionRow>, Vec<Runaway>),
    Upstreams(String, Vec<GroupRow>),
}

impl View {
    pub(super) const ALL: [View; 5] = [
        View::Streams,
        View::Models,
        View::Slos,
        View::Sessions,
        View::Upstreams,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            View::Streams => "Streams",
            View::Models => "Models",
            View::Slos => "SLOs",
            View::Sessions => "Sessions",
            View::Upstreams => "Upstreams",
        }
    }

    pub(super) fn sorted(self) -> (usize, bool) {
        match self {
            View::Streams => (1, false),
            View::Models | View::Upstreams => (1, false),
            View::Slos => (5, true),
            View::Sessions => (7, true),
        }
    }
}

impl Content {
    pub(super) fn view(&self) -> View {
        match self {
            Content::Streams(_) => View::Streams,
            Content::Models(..) => View::Models,
            Content::Slos(_) => View::Slos,
            Content::Sessions(..) => View::Sessions,
            Content::Upstreams(..) => View::Upstreams,
        }
    }

    pub(super) fn nothing(&self) -> &'static str {
        match self {
            Content::Streams(_) => "no call is in flight; point an agent at the proxy",
            Content::Models(..) | Content::Sessions(..) | Content::Upstreams(..) => {
                "no finished calls are stored; sessions need agents that send x-tokengauge-session"
            }
            Content::Slos(response) => response.nothing(),
        }
    }

    pub(super) fn call_source(&self) -> Option<&str> {
        match self {
            Content::Models(source, _)
            | Content::Sessions(source, ..)
            | Content::Upstreams(source, _) => Some(source),
            Content::Streams(_) | Content::Slos(_) => None,
        }
    }

    /// Returns the sentences below the table: why objectives are missed, and which sessions are runaways.
    pub(super) fn causes(&self) -> Vec<String> {
        let slos = match self {
            Content::Slos(response) => &response.slos,
            Content::Sessions(.., runaways) => {
                let line = |one: &Runaway| format!("runs away: {}", printable(&one.in_words()));
                return runaways.iter().map(line).collect();
            }
            _ => return Vec::new(),
        };
        let causes = slos.iter().filter_map(|slo| {
            let cause = slo.cause.as_ref()?;
            let (name, sentence) = (printable(&slo.name), printable(&cause.sentence));
            Some(format!("{name}: {sentence}"))
        });
        causes.collect()
    }

    pub(super) fn table(&self) -> ViewTable {
        let (columns, rows): (&'static [Column], Vec<_>) = match self {
            Content::Streams(streams) => (&STREAMS, streams.iter().map(stream).collect()),
            Content::Models(_, models) => (&MODELS, models.iter().map(group).collect()),
            Content::Upstreams(_, all) => (&UPSTREAMS, all.iter().map(group).collect()),
            Content::Slos(response) => (&SLOS, response.slos.iter().map(slo).collect()),
            Content::Sessions(_, sessions, _) => {
                (&SESSIONS, sessions.iter().map(session).collect())
            }
        };
        ViewTable { columns, rows }
    }
}

const fn column(head: &'static str, width: u16, spare: u8, about: &'static str) -> Column {
    Column {
        head,
        about,
        width,
        grows: false,
        spare,
    }
}

const fn wide(head: &'static str, width: u16, spare: u8, about: &'static str) -> Column {
    let column = column(head, width, spare, about);
    Column {
        grows: true,
        ..column
    }
}

const STREAMS: [Column; 10] = [
    wide("MODEL", 14, 0, "the model that answers"),
    column("TPS", 6, 0, "current tokens per second"),
    column("TOKENS", 7, 0, "output tokens so far"),
    column("REASONING", 10, 3, "reasoning tokens so far"),
    column("TIME", 7, 0, "time since the request"),
    column("SILENT", 7, 0, "time since the last token"),
    wide("AGENT", 10, 0, "the name of the agent"),
    wide("SESSION", 10, 2, "the session id from the agent"),
    wide("UPSTREAM", 9, 1, "the upstream that answers"),
    wide("WORKLOAD", 9, 4, "the workload of the call"),
];

fn stream(stream: &StreamNow) -> TableRow {
    let silent = stream.silent.is_some_and(|silent| silent > 1.0);
    let repeats = stream.repetition.is_some();
    let cells = vec![
        Cell::maybe(stream.model.as_deref()),
        speed(stream.tps),
        Cell::count(stream.tokens.output).tone(if repeats { Tone::Bad } else { Tone::Plain }),
        Cell::count(stream.tokens.reasoning),
        time(Some(stream.seconds)),
        time(stream.silent).tone(if silent { Tone::Poor } else { Tone::Plain }),
        Cell::maybe(stream.agent.as_deref()),
        Cell::maybe(stream.session.as_deref()),
        Cell::text(&stream.upstream),
        Cell::maybe(stream.workload.as_deref()),
    ];
    let more = vec![
        ("CALL", Cell::text(&stream.id)),
        ("ROUTE", Cell::text(&stream.route)),
        ("STARTED AT", Cell::text(stream.started_at.to_string())),
        ("LAST GAP", time(stream.last_gap)),
        ("ANSWER TOKENS", Cell::count(stream.tokens.answer)),
        ("TOOL TOKENS", Cell::count(stream.tokens.tool_call)),
        ("REPEATED TOKENS", repeated(stream)),
    ];
    TableRow {
        id: stream.id.clone(),
        cells,
        more,
    }
}

/// The tokens that repeat earlier text, and the period.
fn repeated(stream: &StreamNow) -> Cell {
    let Some(repetition) = &stream.repetition else {
        return Cell::count(0);
    };
    let (tokens, period) = (repetition.tokens, repetition.period);
    Cell::text(format!("{tokens} (the same {period} again and again)")).tone(Tone::Bad)
}

const MODELS: [Column; 11] = of_groups("MODEL", "the model that answered");
const UPSTREAMS: [Column; 11] = of_groups("UPSTREAM", "the upstream that answered");

const fn of_groups(head: &'static str, about: &'static str) -> [Column; 11] {
    [
        wide(head, 14, 0, about),
        column("CALLS", 7, 0, "finished calls"),
        column("REQ/S", 7, 3, "calls per second"),
        column("ERRORS", 7, 0, "failed calls"),
        column(
            "TPS P50",
            8,
            0,
            "tokens per second that half of the calls reach",
        ),
        column(
            "TPS P10",
            8,
            0,
            "tokens per second that 90 % of the calls reach",
        ),
        column("JUDGED", 11, 5, "calls with a known speed"),
        column("TTFT P50", 9, 0, "median time to first token"),
        column(
            "TTFT P95",
            9,
            0,
            "95th percentile of the time to first token",
        ),
        column("OUT TOKENS", 11, 4, "output tokens"),
        column("$/1M OUT", 9, 0, "US dollars per million output tokens"),
    ]
}

fn group(row: &GroupRow) -> TableRow {
    let cells = vec![
        Cell::maybe(row.name.as_deref()),
        Cell::count(row.calls),
        Cell::number(row.requests_per_second, |rate| format!("{rate:.2}")),
        errors(row.errors),
        speed(row.tps.p50),
        speed(row.tps.p10),
        Cell::text(format!("{} of {}", row.tps.calls, row.calls)),
        time(row.ttft.p50),
        time(row.ttft.p95),
        Cell::number(row.tokens.output.map(|count| count as f64), |count| {
            format!("{count:.0}")
        }),
        dollars(row.usd_per_million_output),
    ];
    let more = vec![
        ("COST", dollars(row.cost_usd)),
        ("WITHOUT PRICE", Cell::count(row.unpriced_calls)),
        ("TTFT P99", time(row.ttft.p99)),
        ("TPS P1", speed(row.tps.p1)),
    ];
    TableRow {
        id: row.name.clone().unwrap_or_default(),
        cells,
        more,
    }
}

const SLOS: [Column; 9] = [
    wide("SLO", 12, 0, "the objective"),
    column("TARGET", 8, 0, "the required share of good events"),
    wide("PROMISE", 16, 0, "what makes an event good"),
    column("GOOD", 8, 3, "good events in the window"),
    column("BAD", 7, 2, "bad events in the window"),
    column(
        "BUDGET LEFT",
        12,
        0,
        "the remaining share of the error budget",
    ),
    column(
        "BURN",
        7,
        0,
        "how fast the budget is spent; 1 spends it exactly in the window",
    ),
    column(
        "SPENT IN",
        14,
        0,
        "when the budget is spent at this burn rate",
    ),
    column("WINDOW", 9, 4, "the period of the budget"),
];

fn slo(row: &status::Row) -> TableRow {
    let firing = row.alerts.iter().any(|alert| alert.firing);
    let tone = match row.budget_remaining {
        _ if firing => Tone::Bad,
        left if left <= 0.0 => Tone::Bad,
        left if left < 0.25 => Tone::Poor,
        _ => Tone::Good,
    };
    let burn = row.burn.first().and_then(|burn| burn.rate);
    let share = |share: f64| format!("{}%", (share * 1e6).round() / 1e4);
    let cells = vec![
        Cell::text(&row.name),
        Cell::number(Some(row.objective), share),
        Cell::text(&row.promise),
        Cell::number(Some(row.good), |good| format!("{good:.0}")),
        Cell::number(Some(row.bad), |bad| format!("{bad:.0}")),
        Cell::number(Some(row.budget_remaining), |left| {
            format!("{:.1}%", left * 100.0)
        })
        .tone(tone),
        Cell::number(burn, |burn| format!("{burn:.2}")),
        Cell::number(row.exhausted_in_seconds, rough),
        Cell::text(&row.window),
    ];
    let mut more = vec![("GOOD SHARE", Cell::number(row.ratio, share))];
    let alerts = row.alerts.iter().filter(|alert| alert.firing);
    more.extend(alerts.map(|alert| ("ALERT", Cell::text(alert.in_words()).tone(Tone::Bad))));
    TableRow {
        id: row.name.clone(),
        cells,
        more,
    }
}

const SESSIONS: [Column; 9] = [
    wide("SESSION", 12, 0, "the session id from the agent"),
    wide("AGENTS", 10, 0, "the agents of the session"),
    column("CALLS", 6, 0, "finished calls"),
    column("ERRORS", 7, 3, "failed calls"),
    column("TPS", 7, 0, "tokens per second while decoding"),
    column("TTFT P50", 9, 1, "median time to first token"),
    column("COST", 9, 0, "cost of the calls in US dollars"),
    column("LAST", 11, 0, "time since the last call ended"),
    column("RUNNING", 8, 2, "calls in flight"),
];

fn session(row: &SessionRow) -> TableRow {
    let ago = row.last_at.time().elapsed().unwrap_or_default();
    let cells = vec![
        Cell::text(&row.id),
        Cell::text(row.agents.join(", ")),
        Cell::count(row.calls),
        errors(row.errors),
        speed(row.tps.output),
        time(row.seconds.ttft_p50),
        dollars(row.cost_usd),
        Cell::number(Some(ago.as_secs_f64()), since),
        Cell::count(row.in_flight),
    ];
    TableRow {
        id: row.id.clone(),
        cells,
        more: vec![
            ("STARTED AT", Cell::text(row.started_at.to_string())),
            ("LAST AT", Cell::text(row.last_at.to_string())),
            ("MODELS", Cell::text(row.models.join(", "))),
            ("WORKLOAD", Cell::maybe(row.workload.as_deref())),
            ("USER", Cell::maybe(row.user.as_deref())),
            ("WITHOUT PRICE", Cell::count(row.unpriced_calls)),
        ],
    }
}

fn speed(tps: Option<f64>) -> Cell {
    let tone = match tps {
        None => Tone::Plain,
        Some(..5.0) => Tone::Bad,
        Some(..15.0) => Tone::Poor,
        Some(_) => Tone::Good,
    };
    Cell::number(tps, |tps| format!("{tps:.1}")).tone(tone)
}

fn time(seconds: Option<f64>) -> Cell {
    Cell::number(seconds, |seconds| match seconds {
        ..0.9995 => format!("{:.0}ms", seconds * 1e3),
        ..99.95 => format!("{seconds:.1}s"),
        _ => {
            let whole = seconds.round() as u64;
            format!("{}m{:02}s", whole / 60, whole % 60)
        }
    })
}

/// Formats an age in its largest unit.
fn since(seconds: f64) -> String {
    if seconds < 1.0 {
        return "now".to_owned();
    }
    let rough = rough(seconds);
    format!("{} ago", rough.split(' ').next().unwrap_or_default())
}

fn dollars(value: Option<f64>) -> Cell {
    Cell::number(value, |value| format!("{value:.4}"))
}

fn errors(count: u64) -> Cell {
    Cell::count(count).tone(if count > 0 { Tone::Bad } else { Tone::Plain })
}
