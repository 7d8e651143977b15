//! The analysis of a session for a terminal.

use crate::analysis::Analysis;
use crate::cache::{BreakCause, CacheBreak};
use crate::critical_path::PathPart;
use std::fmt::Write;
use tokengauge_core::printable::printable;
use tokengauge_core::prompt_cache::KEPT_FOR;

/// The limit for displayed parts of the path, and for displayed breaks.
const SHOWN: usize = 12;
/// Parts of the path with a smaller share are only counted.
const LEAST_SHARE: f64 = 0.001;

/// The analysis in about 20 lines of at most 80 columns.
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
    let _ = writeln!(out, "{calls} calls in {length}; {outside}\n");
    let _ = writeln!(
        out,
        "Critical path: how much shorter the session would be without each part"
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

fn rest(out: &mut String, more: usize) {
    if more > 0 {
        let _ = writeln!(out, "            … and {more} more");
    }
}

fn what(part: &PathPart) -> String {
    let phase = part.phase.map_or("between calls", Into::into);
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
}
