//! Results of the analysis of a call's prompt and response, derived from numbers so that they are
//! always equal.

use tokengauge_core::call::CallRecord;
use tokengauge_core::prompt::{
    PromptBreak, PromptBreakCause, PromptParts, PromptTool, Repetition, Wait, WaitKind,
};

/// Fills in what the analysis of a call with this prompt finds. Some calls have no analysis.
pub(crate) fn analyze(record: &mut CallRecord, prompt: u64, output: u64) {
    if prompt.is_multiple_of(4) {
        return;
    }
    record.prompt = Some(Box::new(parts(prompt)));
    record.wait = wait(prompt).map(Box::new);
    record.cache_break = cache_break(prompt).map(Box::new);
    record.retry_of = (prompt % 11 == 3).then(|| record.id.clone());
    record.repetition = (output % 13 == 7).then(|| {
        Box::new(Repetition {
            start: output / 2,
            period: 1 + output % 256,
            tokens: output - output / 2,
            share: 0.5,
        })
    });
    record.prompt_blocks = (prompt % 5 == 1).then(|| vec![prompt, (1 << 53) - 1]);
}

fn parts(prompt: u64) -> PromptParts {
    PromptParts {
        system: prompt / 8,
        tool_schemas: prompt / 4,
        user: prompt / 16,
        assistant: prompt / 9,
        reasoning: prompt % 3 * 40,
        tool_calls: prompt % 70,
        tool_results: prompt / 3,
        other: prompt % 2,
        media: prompt % 3,
        media_bytes: prompt % 3 * 40_000,
        tools: tools(prompt),
    }
}

fn tools(prompt: u64) -> Vec<PromptTool> {
    let tool = |name: &str, share: u64| PromptTool {
        name: name.to_owned(),
        server: (share == 3).then(|| "docs".to_owned()),
        schema: prompt / 4 / share,
        new_results: prompt % 900 / share,
        resent_results: prompt / 5 / share,
        calls: prompt % 3,
        failures: prompt % 2 * (prompt % 3 / 2),
    };
    match prompt % 5 {
        0 => Vec::new(),
        1 => vec![tool("search", 1)],
        2 => vec![tool("search", 2), tool("read \"file\"", 3)],
        _ => vec![tool("bash", 2), tool("search", 3), tool("läsen", 4)],
    }
}

fn wait(prompt: u64) -> Option<Wait> {
    let (kind, tools): (_, &[&str]) = match prompt % 5 {
        1 => (WaitKind::Tools, &["search"]),
        2 => (WaitKind::Human, &[]),
        3 => (WaitKind::Tools, &["bash", "search"]),
        4 => (WaitKind::Other, &[]),
        _ => return None,
    };
    Some(Wait {
        kind,
        seconds: (prompt % 4_000) as f64 / 1e3,
        tools: tools.iter().map(|name| (*name).to_owned()).collect(),
    })
}

fn cache_break(prompt: u64) -> Option<PromptBreak> {
    let cause = *PromptBreakCause::ALL.get((prompt % 17) as usize)?;
    let changed = cause == PromptBreakCause::Changed;
    Some(PromptBreak {
        cause,
        section: changed.then(|| "tool search".to_owned()),
        tokens: prompt / 2,
        cost_usd: prompt.is_multiple_of(3).then_some(prompt as f64 / 1e6),
        block: changed.then_some(prompt / 128),
        change: changed.then(|| "00c0ffee00c0ffee".to_owned()),
    })
}
