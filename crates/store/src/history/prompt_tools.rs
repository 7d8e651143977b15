use super::timed_call::TimedCall;
use crate::query::{Dimension, PromptPlace, PromptToolUse, PromptTools};
use std::borrow::Cow;
use std::sync::Arc;
use tokengauge_core::call::CallRecord;
use tokengauge_core::prompt::WaitKind;

/// Adds the tools of a call's prompt.
pub fn add_prompt_tools(tools: &mut PromptTools, call: &CallRecord) {
    let Some(prompt) = call
        .prompt
        .as_deref()
        .filter(|prompt| !prompt.tools.is_empty())
    else {
        return;
    };
    let place = Arc::new(PromptPlace {
        upstream: call.upstream.clone(),
        model: Dimension::Model.of(call).map(Cow::into_owned),
        endpoint: call.endpoint.clone(),
    });
    let wait = call
        .wait
        .as_deref()
        .filter(|wait| wait.kind == WaitKind::Tools);
    let names = wait.map_or(&[][..], |wait| &wait.tools);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let us = wait.and_then(|wait| crate::ledger::row::micros(wait.seconds));
    tools.add(&place, &prompt.tools, (&names, us.unwrap_or(0)));
}

/// Sums of each tool over the prompts of `calls`.
pub fn prompt_tools<'a>(calls: impl Iterator<Item = TimedCall<'a>>) -> Vec<PromptToolUse> {
    let mut tools = PromptTools::default();
    calls.for_each(|call| add_prompt_tools(&mut tools, call.record));
    tools.uses()
}
