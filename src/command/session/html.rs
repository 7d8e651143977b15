//! A session as one HTML file.

use maud::{Markup, html};
use std::time::SystemTime;
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_html::{page, phase_bars};
use tokengauge_process::output::printable;
use tokengauge_sessions::{Analysis, text};
use tokengauge_store::query::{SessionRow, WaterfallCall};

/// The maximum number of calls in the table. A longer session shows its first calls.
const MAX_ROWS: usize = 1_000;

const STYLE: &str = "\
pre{white-space:pre-wrap;font-size:.85rem}\
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(12rem,1fr));gap:.4rem 1rem;margin:0}\
dt{font-size:.8rem;opacity:.8}dd{margin:0;overflow-wrap:anywhere}";

pub(super) fn page(session: &SessionRow, calls: &[WaterfallCall], analysis: &Analysis) -> String {
    let title = format!("Session {}", printable(&session.id));
    let made = rfc3339_seconds(SystemTime::now());
    let version = env!("CARGO_PKG_VERSION");
    let body = html! {
        (facts(session))
        h2 { "Critical path and prompt cache" }
        pre { (text(analysis)) }
        (table(session, calls))
        p {
            "Made " (maud::display(made)) " by tokengauge " (version)
            ". Times are in UTC. This file contains no prompts and no responses."
        }
    };
    page::page(&title, &[phase_bars::STYLE, STYLE].concat(), &body)
}

fn facts(session: &SessionRow) -> Markup {
    let (tokens, seconds) = (&session.tokens, &session.seconds);
    let number = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
    let usd = |value: Option<f64>| value.map_or("–".to_owned(), |usd| format!("{usd:.4} USD"));
    let speed = session.tps.output;
    let facts = [
        ("Began", session.started_at.to_string()),
        ("Took", format!("{:.1} s", seconds.wall)),
        ("Waiting for models", format!("{:.1} s", seconds.model)),
        ("Between calls", format!("{:.1} s", seconds.tools)),
        ("Calls", session.calls.to_string()),
        ("Failed", session.errors.to_string()),
        ("Cost", usd(session.cost_usd)),
        ("Calls without a price", session.unpriced_calls.to_string()),
        ("Input tokens", number(tokens.input)),
        ("From a cache", number(tokens.cached_input)),
        ("Output tokens", number(tokens.output)),
        (
            "Output speed",
            speed.map_or("–".to_owned(), |tps| format!("{tps:.1} tokens/s")),
        ),
        ("Agents", session.agents.join(", ")),
        ("Models", session.models.join(", ")),
        ("User", session.user.clone().unwrap_or_default()),
    ];
    html! {
        dl {
            @for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (name) } dd { (printable(value)) } }
            }
        }
    }
}

fn table(session: &SessionRow, calls: &[WaterfallCall]) -> Markup {
    let rows = html! {
        @for call in calls.iter().take(MAX_ROWS) { (row(call, session.seconds.wall)) }
    };
    html! {
        h2 { "Calls over time" }
        @if calls.len() > MAX_ROWS {
            p { "The first " (MAX_ROWS) " of " (session.calls) " calls." }
        }
        (phase_bars::key())
        @let heads = ["agent and model", "ended", "at", "took", "TTFT", "TPS", "tokens", "cost", "phases"];
        (page::calls("Calls over time", heads, 2..8, &rows))
    }
}

fn row(call: &WaterfallCall, length: f64) -> Markup {
    let seconds =
        |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2} s"));
    let names = [call.agent.as_deref(), call.model.as_deref()];
    let names = names.into_iter().flatten().collect::<Vec<_>>().join(" · ");
    let error = call.error_type.as_deref();
    let error = error.map_or(String::new(), |error| format!(": {error}"));
    let ended = format!("{}{error}", call.outcome.as_str().replace('_', " "));
    let end = call.phases.last().map(|phase| phase.end - call.offset);
    let tokens = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
    let cost = call.cost_usd;
    html! {
        tr {
            td.name { (printable(&names)) }
            td.name.bad[call.outcome.is_failure()] { (printable(&ended)) }
            td { (seconds(Some(call.offset))) }
            td { (seconds(end)) }
            td { (seconds(call.ttft)) }
            td { (call.tps.map_or("–".to_owned(), |tps| format!("{tps:.1}"))) }
            td { (tokens(call.tokens.input)) " → " (tokens(call.tokens.output)) }
            td { (cost.map_or("–".to_owned(), |usd| format!("{usd:.4} USD"))) }
            td.name { (phase_bars::bar(&call.phases, length)) }
        }
    }
}
