//! The views, and the columns of each.

use super::table::{Cell, Column, Tone, ViewTable};
use crate::command::slo::status::{self, rough};
use crate::meter::StreamNow;
use crate::output::printable;
use crate::query::{GroupRow, SessionRow};

/// A view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Streams,
    Models,
    Slos,
    Sessions,
}

/// The content of a view, as the proxy answered.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Streams(Vec<StreamNow>),
    Models(String, Vec<GroupRow>),
    Slos(Vec<status::Row>),
    Sessions(String, Vec<SessionRow>),
}

impl View {
    pub(super) const ALL: [View; 4] = [View::Streams, View::Models, View::Slos, View::Sessions];

    pub(super) fn name(self) -> &'static str {
        match self {
            View::Streams => "Streams",
            View::Models => "Models",
            View::Slos => "SLOs",
            View::Sessions => "Sessions",
        }
    }

    /// The default sort column, and whether the smallest comes first.
    pub(super) fn sorted(self) -> (usize, bool) {
        match self {
            View::Streams => (1, false),
            View::Models => (1, false),
            View::Slos => (4, true),
            View::Sessions => (7, false),
        }
    }

    /// The text of an empty view.
    pub(super) fn nothing(self) -> &'static str {
        match self {
            View::Streams => "no call is under way; point an agent at the proxy",
            View::Models | View::Sessions => {
                "no finished call is kept; sessions need agents that name theirs (x-tokengauge-session)"
            }
            View::Slos => "no [[slo]] is configured",
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
        }
    }

    /// The store of finished calls.
    pub(super) fn store(&self) -> Option<&str> {
        match self {
            Content::Models(store, _) | Content::Sessions(store, _) => Some(store),
            Content::Streams(_) | Content::Slos(_) => None,
        }
    }

    /// Why objectives are missed, one line for each that is.
    pub(super) fn causes(&self) -> Vec<String> {
        let Content::Slos(slos) = self else {
            return Vec::new();
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
            Content::Models(_, models) => (&MODELS, models.iter().map(model).collect()),
            Content::Slos(slos) => (&SLOS, slos.iter().map(slo).collect()),
            Content::Sessions(_, sessions) => (&SESSIONS, sessions.iter().map(session).collect()),
        };
        ViewTable { columns, rows }
    }
}

const fn column(head: &'static str, width: u16) -> Column {
    let grows = false;
    Column { head, width, grows }
}

const fn wide(head: &'static str, width: u16) -> Column {
    let grows = true;
    Column { head, width, grows }
}

const STREAMS: [Column; 9] = [
    wide("MODEL", 12),
    column("TPS", 7),
    column("TOKENS", 7),
    column("REASONING", 9),
    column("SECONDS", 8),
    column("SILENT", 7),
    wide("AGENT", 8),
    wide("SESSION", 8),
    wide("UPSTREAM", 8),
];

fn stream(stream: &StreamNow) -> Vec<Cell> {
    let silent = stream.silent.is_some_and(|silent| silent > 1.0);
    vec![
        Cell::maybe(stream.model.as_deref()),
        speed(stream.tps),
        Cell::count(stream.tokens.output),
        Cell::count(stream.tokens.reasoning),
        seconds(Some(stream.seconds)),
        seconds(stream.silent).tone(if silent { Tone::Poor } else { Tone::Plain }),
        Cell::maybe(stream.agent.as_deref()),
        Cell::maybe(stream.session.as_deref()),
        Cell::text(&stream.upstream),
    ]
}

const MODELS: [Column; 11] = [
    wide("MODEL", 14),
    column("CALLS", 7),
    column("REQ/S", 7),
    column("ERRORS", 6),
    column("TPS P50", 7),
    column("TPS P10", 7),
    column("JUDGED", 11),
    column("TTFT P50", 8),
    column("TTFT P95", 8),
    column("OUT TOKENS", 10),
    column("$/1M OUT", 9),
];

fn model(row: &GroupRow) -> Vec<Cell> {
    vec![
        Cell::maybe(row.name.as_deref()),
        Cell::count(row.calls),
        Cell::number(row.requests_per_second, |rate| format!("{rate:.2}")),
        errors(row.errors),
        speed(row.tps.p50),
        speed(row.tps.p10),
        Cell::text(format!("{} of {}", row.tps.calls, row.calls)),
        seconds(row.ttft.p50),
        seconds(row.ttft.p95),
        Cell::number(row.tokens.output.map(|count| count as f64), |count| {
            format!("{count:.0}")
        }),
        dollars(row.usd_per_million_output),
    ]
}

const SLOS: [Column; 7] = [
    wide("SLO", 12),
    wide("PROMISE", 12),
    column("GOOD", 8),
    column("BAD", 7),
    column("BUDGET LEFT", 11),
    column("BURN", 7),
    column("SPENT IN", 14),
];

fn slo(row: &status::Row) -> Vec<Cell> {
    let firing = row.alerts.iter().any(|alert| alert.firing);
    let tone = match row.budget_remaining {
        _ if firing => Tone::Bad,
        left if left <= 0.0 => Tone::Bad,
        left if left < 0.25 => Tone::Poor,
        _ => Tone::Good,
    };
    let burn = row.burn.first().and_then(|burn| burn.rate);
    vec![
        Cell::text(&row.name),
        Cell::text(&row.promise),
        Cell::number(Some(row.good), |good| format!("{good:.0}")),
        Cell::number(Some(row.bad), |bad| format!("{bad:.0}")),
        Cell::number(Some(row.budget_remaining), |left| {
            format!("{:.1}%", left * 100.0)
        })
        .tone(tone),
        Cell::number(burn, |burn| format!("{burn:.2}")),
        Cell::number(row.exhausted_in_seconds, rough),
    ]
}

const SESSIONS: [Column; 9] = [
    wide("SESSION", 12),
    wide("AGENTS", 10),
    column("CALLS", 6),
    column("ERRORS", 6),
    column("TPS", 7),
    column("TTFT P50", 8),
    column("COST", 9),
    column("LAST AT", 20),
    column("RUNNING", 7),
];

fn session(row: &SessionRow) -> Vec<Cell> {
    let last_at = row.last_at.split('.').next().unwrap_or_default();
    vec![
        Cell::text(&row.id),
        Cell::text(row.agents.join(", ")),
        Cell::count(row.calls),
        errors(row.errors),
        speed(row.tps.output),
        seconds(row.seconds.ttft_p50),
        dollars(row.cost_usd),
        Cell::text(last_at.replace('T', " ")),
        Cell::count(row.in_flight),
    ]
}

/// A cell with a decode speed, coloured by its experience band.
fn speed(tps: Option<f64>) -> Cell {
    let tone = match tps {
        None => Tone::Plain,
        Some(..5.0) => Tone::Bad,
        Some(..15.0) => Tone::Poor,
        Some(_) => Tone::Good,
    };
    Cell::number(tps, |tps| format!("{tps:.1}")).tone(tone)
}

fn seconds(value: Option<f64>) -> Cell {
    Cell::number(value, |value| format!("{value:.2}"))
}

fn dollars(value: Option<f64>) -> Cell {
    Cell::number(value, |value| format!("{value:.4}"))
}

fn errors(count: u64) -> Cell {
    Cell::count(count).tone(if count > 0 { Tone::Bad } else { Tone::Plain })
}
