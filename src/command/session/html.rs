//! A session as one HTML file.

use std::fmt::{Result, Write};
use std::time::SystemTime;
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_html::page::{self, escaped};
use tokengauge_html::phase_bars;
use tokengauge_process::output::printable;
use tokengauge_sessions::{Analysis, text};
use tokengauge_store::query::{SessionRow, WaterfallCall};

/// Calls in the table at most; a session of more has its first.
const MAX_ROWS: usize = 1_000;

/// The style of this page, beside that of all pages.
const STYLE: &str = "\
pre{white-space:pre-wrap;font-size:.85rem}\
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(12rem,1fr));gap:.4rem 1rem;margin:0}\
dt{font-size:.8rem;opacity:.8}dd{margin:0;overflow-wrap:anywhere}";

pub(super) fn page(session: &SessionRow, calls: &[WaterfallCall], analysis: &Analysis) -> String {
    let title = format!("Session {}", printable(&session.id));
    let mut page = page::begin(&escaped(&title));
    let written = (|| {
        writeln!(page, "<style>{}{STYLE}</style>", phase_bars::STYLE)?;
        facts(&mut page, session)?;
        page.push_str("<h2>What its length is made of, and its prompt cache</h2>\n");
        writeln!(page, "<pre>{}</pre>", escaped(&text(analysis)))?;
        table(&mut page, session, calls)?;
        let made = rfc3339_seconds(SystemTime::now());
        let version = env!("CARGO_PKG_VERSION");
        writeln!(
            page,
            "<p>Made {made} by tokengauge {version}. Times are UTC. No prompt and no answer is in it.</p>"
        )
    })();
    written.expect("a string takes every word");
    page + &page::end()
}

fn facts(page: &mut String, session: &SessionRow) -> Result {
    let (tokens, seconds) = (&session.tokens, &session.seconds);
    let number = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
    let usd = |value: Option<f64>| value.map_or("–".to_owned(), |usd| format!("{usd:.4} USD"));
    let speed = session.tps.output;
    let facts = [
        ("Began", session.started_at.clone()),
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
    page.push_str("<dl>");
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        let value = escaped(&printable(value));
        write!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
    }
    page.push_str("</dl>\n");
    Ok(())
}

fn table(page: &mut String, session: &SessionRow, calls: &[WaterfallCall]) -> Result {
    page.push_str("<h2>Its calls over time</h2>\n");
    if calls.len() > MAX_ROWS {
        writeln!(
            page,
            "<p>The first {MAX_ROWS} of {} calls.</p>",
            session.calls
        )?;
    }
    phase_bars::key(page)?;
    page.push_str(
        "<div class=\"wide\" role=\"region\" aria-label=\"Its calls over time\" tabindex=\"0\"><table><thead><tr><th class=\"name\" scope=\"col\">agent and model</th>\
         <th class=\"name\" scope=\"col\">ended</th><th scope=\"col\">at</th><th scope=\"col\">took</th>\
         <th scope=\"col\">TTFT</th><th scope=\"col\">TPS</th><th scope=\"col\">tokens</th><th scope=\"col\">cost</th>\
         <th class=\"name\" scope=\"col\">phases</th></tr></thead><tbody>\n",
    );
    for call in calls.iter().take(MAX_ROWS) {
        row(page, call, session.seconds.wall)?;
    }
    page.push_str("</tbody></table></div>\n");
    Ok(())
}

fn row(page: &mut String, call: &WaterfallCall, length: f64) -> Result {
    let seconds =
        |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2} s"));
    let names = [call.agent.as_deref(), call.model.as_deref()];
    let names = names.into_iter().flatten().collect::<Vec<_>>().join(" · ");
    let error = call.error_type.as_deref();
    let error = error.map_or(String::new(), |error| format!(": {error}"));
    let ended = format!("{}{error}", call.outcome.as_str().replace('_', " "));
    let class = if call.outcome.is_failure() {
        " bad"
    } else {
        ""
    };
    let end = call.phases.last().map(|phase| phase.end - call.offset);
    let tokens = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
    let (input, output) = (tokens(call.tokens.input), tokens(call.tokens.output));
    writeln!(
        page,
        "<tr><td class=\"name\">{}</td><td class=\"name{class}\">{}</td><td>{:.2} s</td><td>{}</td><td>{}</td>\
         <td>{}</td><td>{input} → {output}</td><td>{}</td><td class=\"name\">{}</td></tr>",
        escaped(&printable(&names)),
        escaped(&printable(&ended)),
        call.offset,
        seconds(end),
        seconds(call.ttft),
        call.tps.map_or("–".to_owned(), |tps| format!("{tps:.1}")),
        call.cost_usd
            .map_or("–".to_owned(), |usd| format!("{usd:.4} USD")),
        phase_bars::bar(&call.phases, length)
    )
}
