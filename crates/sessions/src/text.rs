//! The analysis of a session for a terminal.

use crate::analysis::Analysis;
use crate::cache::{BreakCause, CacheBreak};
use crate::call_sums::CallSums;
use crate::critical_path::PathPart;
use crate::time_use::{AgentUse, TimeUse};
use crate::tool_use::ToolUse;
use crate::waste::Waste;
use std::fmt::Write;
use tokengauge_core::printable::printable;
use tokengauge_core::prompt::WaitKind;
use tokengauge_core::prompt_cache::KEPT_FOR;

/// The limit for displayed parts of the path, and for displayed breaks.
const SHOWN: usize = 12;
/// Parts of the path with a smaller share are only counted.
const LEAST_SHARE: f64 = 0.001;

/// The analysis in about 40 lines of at most 80 columns.
pub fn text(analysis: &Analysis) -> String {
    let mut out = String::new();
    let path = &analysis.critical_path;
    let outside = match path.calls_beside {
        0 => "every call is on the critical path".to_owned(),
        1 => "1 call is not on the critical path".to_owned(),
        calls => format!("{calls} calls are not on the critical path"),
    };
    let calls = analysis.calls;
    let length = seconds(path.seconds);
    let _ = writeln!(out, "{calls} calls in {length}; {outside}");
    let _ = writeln!(out, "{}", spent(&analysis.sums));
    failures(&mut out, &analysis.waste);
    let _ = writeln!(out, "\nTime: {}", time(&analysis.time));
    agents(&mut out, &analysis.agents);
    tools(&mut out, &analysis.tools);
    let _ = writeln!(
        out,
        "\nCritical path: how much shorter the session would be without each part"
    );
    let told = path.parts.iter().filter(|part| part.share >= LEAST_SHARE);
    let told: Vec<&PathPart> = told.take(SHOWN).collect();
    for part in &told {
        let percent = part.share * 100.0;
        let length = seconds(part.seconds);
        let _ = writeln!(out, "{length:>10} {percent:>5.1} %  {}", what(part));
    }
    rest(&mut out, path.parts.len() - told.len());
    let breaks = &analysis.cache_breaks;
    if breaks.is_empty() {
        out.push_str("\nPrompt cache: no turn missed tokens that could have come from the cache\n");
        return out;
    }
    let cost: Option<f64> = breaks.iter().map(|one| one.cost_usd).sum();
    let cost = cost.map_or(String::new(), |usd| format!(", which cost ${usd:.4}"));
    let missed: u64 = breaks.iter().map(|one| one.expected - one.cached).sum();
    let turns = match breaks.len() {
        1 => "1 turn".to_owned(),
        count => format!("{count} turns"),
    };
    let _ = writeln!(out, "\nPrompt cache: {turns} missed {missed} tokens{cost}");
    for one in breaks.iter().take(SHOWN) {
        let offset = seconds(one.offset);
        let tokens = format!("{} of {} tokens", one.cached, one.expected);
        let _ = writeln!(out, "{offset:>10}  {tokens:<24} {}", why(one));
    }
    rest(&mut out, breaks.len().saturating_sub(SHOWN));
    out
}

/// Cost and tokens of the calls, as `$0.2705, 21850 input tokens (12000 cached), 900 output tokens`.
fn spent(sums: &CallSums) -> String {
    let (input, output) = (sums.input_tokens, sums.output_tokens);
    let cached = match sums.cached_input_tokens {
        0 => String::new(),
        cached => format!(" ({cached} cached)"),
    };
    let cost = usd(sums.cost_usd);
    format!("{cost}, {input} input tokens{cached}, {output} output tokens")
}

fn usd(usd: Option<f64>) -> String {
    usd.map_or("no price".to_owned(), |usd| format!("${usd:.4}"))
}

/// A line for each kind of wasted call that the session has.
fn failures(out: &mut String, waste: &Waste) {
    let kinds = [
        (waste.failed, "failed"),
        (waste.retried, "repeated a request that had failed"),
    ];
    for (sums, what) in kinds.into_iter().filter(|(sums, _)| sums.calls > 0) {
        let (calls, tokens, cost) = (calls_of(sums.calls), sums.tokens(), usd(sums.cost_usd));
        let _ = writeln!(out, "{calls} {what}: {tokens} tokens, {cost}");
    }
    if waste.repetitive_calls > 0 {
        let (calls, tokens) = (calls_of(waste.repetitive_calls), waste.repeated_tokens);
        let _ = writeln!(
            out,
            "{calls} repeated the same text: {tokens} output tokens"
        );
    }
}

fn calls_of(calls: usize) -> String {
    match calls {
        1 => "1 call".to_owned(),
        calls => format!("{calls} calls"),
    }
}

/// The parts of the time, as `60.0 % model, 40.0 % tools`.
fn time(of: &TimeUse) -> String {
    let parts = [
        (of.model, "model"),
        (of.proxy, "connecting and sending"),
        (of.tools, "tools"),
        (of.human, "people"),
        (of.other, "other"),
    ];
    let parts = parts.iter().filter(|(seconds, _)| *seconds > 0.0);
    let told: Vec<String> = parts
        .map(|(seconds, what)| format!("{:.1} % {what}", seconds / of.wall * 100.0))
        .collect();
    told.join(", ")
}

fn agents(out: &mut String, agents: &[AgentUse]) {
    if agents.len() < 2 {
        return;
    }
    let _ = writeln!(
        out,
        "\n{:<22}{:>6}{:>7}{:>10}{:>10}{:>12}{:>12}",
        "Agents", "calls", "failed", "tokens", "cost", "model", "tools"
    );
    for agent in agents.iter().take(SHOWN) {
        let name = agent.agent.as_deref().unwrap_or("(not named)");
        let (sums, of) = (&agent.sums, &agent.seconds);
        let _ = writeln!(
            out,
            "  {:<20}{:>6}{:>7}{:>10}{:>10}{:>12}{:>12}",
            clipped(name, 20),
            sums.calls,
            sums.failed,
            sums.tokens(),
            usd(sums.cost_usd),
            seconds(of.model),
            seconds(of.tools),
        );
    }
    rest(out, agents.len().saturating_sub(SHOWN));
}

fn tools(out: &mut String, tools: &[ToolUse]) {
    if tools.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{:<22}{:>6}{:>7}{:>10}{:>12}{:>10}{:>12}",
        "Tools", "calls", "failed", "time", "definition", "results", "sent again"
    );
    for tool in tools.iter().take(SHOWN) {
        let _ = writeln!(
            out,
            "  {:<20}{:>6}{:>7}{:>10}{:>12}{:>10}{:>12}",
            clipped(&tool.name, 20),
            tool.calls,
            tool.failures,
            seconds(tool.seconds),
            tool.schema_tokens,
            tool.new_result_tokens,
            tool.resent_result_tokens,
        );
    }
    rest(out, tools.len().saturating_sub(SHOWN));
}

/// At most `length` printable characters of a name.
fn clipped(name: &str, length: usize) -> String {
    let name = printable(name).to_string();
    match name.char_indices().nth(length) {
        None => name,
        Some(_) => name.chars().take(length - 1).chain(['…']).collect(),
    }
}

fn rest(out: &mut String, more: usize) {
    if more > 0 {
        let _ = writeln!(out, "            … and {more} more");
    }
}

fn what(part: &PathPart) -> String {
    let phase = match (part.phase, part.wait) {
        (Some(phase), _) => phase.into(),
        (None, Some(WaitKind::Tools)) => "tools",
        (None, Some(WaitKind::Human)) => "people",
        (None, _) => "between calls",
    };
    let names = [part.agent.as_deref(), part.model.as_deref()];
    let names: Vec<&str> = names.into_iter().flatten().collect();
    if names.is_empty() {
        phase.to_owned()
    } else {
        format!("{phase}, {}", printable(&names.join(", ")))
    }
}

fn why(one: &CacheBreak) -> String {
    match one.cause {
        BreakCause::OtherModel => "another model".to_owned(),
        BreakCause::OtherUpstream => "another upstream or endpoint".to_owned(),
        BreakCause::Idle => format!(
            "idle for {}; kept for about {}",
            seconds(one.idle_seconds),
            humantime::format_duration(KEPT_FOR)
        ),
        BreakCause::PrefixChanged => match &one.section {
            Some(section) => format!("{} changed", printable(section)),
            None => "prompt start changed or was dropped early".to_owned(),
        },
        BreakCause::Evicted => "dropped early by the provider".to_owned(),
    }
}

fn seconds(seconds: f64) -> String {
    match seconds {
        ..0.1 => format!("{:.0} ms", seconds * 1e3),
        ..100.0 => format!("{seconds:.1} s"),
        ..6_000.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{TestCall, session_of};
    use tokengauge_core::call::Outcome;
    use tokengauge_core::prompt::{PromptParts, PromptTool, Wait};

    #[test]
    fn says_where_the_time_went_and_what_the_cache_missed() {
        let turn = |id: &str, start: f64, input, cached| TestCall {
            input: Some((input, Some(cached), None)),
            ..TestCall::new(id, "main", start, start + 2.0)
        };
        let calls = [
            turn("a", 0.0, 4_000, 0),
            turn("b", 5.0, 4_500, 3_968),
            turn("c", 402.0, 5_000, 0),
        ];
        let records: Vec<_> = calls.iter().map(TestCall::record).collect();
        let written =
            text(&session_of(&records).analysis(|_, cached| Some(1.0 - cached as f64 / 1e4)));
        assert!(
            written.starts_with("3 calls in 6.7 min; every call is on the critical path\n"),
            "{written}"
        );
        assert!(
            written.contains("no price, 13500 input tokens (3968 cached), 30 output tokens\n"),
            "{written}"
        );
        assert!(
            written.contains("Time: 1.3 % model, 0.1 % connecting and sending, 98.5 % other\n"),
            "{written}"
        );
        assert!(
            written.contains("6.6 min  98.5 %  between calls, main\n"),
            "{written}"
        );
        assert!(
            written.contains("Prompt cache: 1 turn missed 4500 tokens, which cost $0.4500\n"),
            "{written}"
        );
        assert!(
            written.contains("idle for 6.6 min; kept for about 5m"),
            "{written}"
        );
        assert!(
            written.lines().all(|line| line.chars().count() <= 80),
            "{written}"
        );
    }

    #[test]
    fn names_agents_tools_and_failures() {
        let call = |id: &str, agent: &str, start: f64| TestCall::new(id, agent, start, start + 1.0);
        let mut records = [
            call("a", "main", 0.0).record(),
            call("b", "main", 4.0).record(),
            call("c", "a-helper-with-a-long-name", 6.0).record(),
        ];
        records[0].outcome = Outcome::HttpError;
        records[1].retry_of = Some("a".to_owned());
        records[1].wait = Some(Box::new(Wait {
            kind: WaitKind::Tools,
            seconds: 3.0,
            tools: vec!["search".to_owned()],
        }));
        records[1].prompt = Some(Box::new(PromptParts {
            tools: vec![PromptTool {
                name: "search".to_owned(),
                schema: 120,
                new_results: 40,
                calls: 1,
                ..PromptTool::default()
            }],
            ..PromptParts::default()
        }));
        let written = text(&session_of(&records).analysis(|_, _| None));
        for line in [
            "1 call failed: 10 tokens, no price",
            "1 call repeated a request that had failed: 10 tokens, no price",
            "Agents                 calls failed    tokens      cost       model       tools",
            "  main                     2      1        20  no price       1.8 s       3.0 s",
            "  a-helper-with-a-lon…     1      0        10  no price       0.9 s        0 ms",
            "Tools                  calls failed      time  definition   results  sent again",
            "  search                   1      0     3.0 s         120        40           0",
            "     3.0 s  42.9 %  tools, main",
        ] {
            assert!(
                written.lines().any(|found| found == line),
                "{line}\n{written}"
            );
        }
        assert!(
            written.lines().all(|line| line.chars().count() <= 80),
            "{written}"
        );
    }
}
