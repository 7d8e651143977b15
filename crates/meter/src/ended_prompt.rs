//! The prompt of an ended call: what it consists of, who took the time before it, and why its cache
//! broke. This runs in the background only.

use super::context::CallContext;
use super::prompts::ReadPrompt;
use std::time::Instant;
use tokengauge_analysis::Scope;
use tokengauge_core::call::CallRecord;

/// Reads the prompt, if there is a copy of the request.
pub(crate) fn read(context: &CallContext) -> Option<ReadPrompt> {
    if !context.measure.analysis.enabled {
        return None;
    }
    let prompts = &context.shared.prompts;
    let model = context.model_requested();
    let workload = context.workload();
    let request = context.request.lock();
    let who = context.attributed(request.facts.as_deref());
    let scope = Scope {
        key_hash: context.key_hash.as_deref(),
        tenant: context.payer.tenant.as_deref(),
        workload: workload.map(|name| &**name),
        session: who.session.as_deref(),
        is_guess: who.session_guess.is_some(),
        agent: who.agent.as_deref(),
        model: model.as_deref(),
    };
    let read =
        request.body(|dialect, body| prompts.read((dialect, body), &scope, context.received));
    let read = read?;
    if read.is_none() {
        panicked(context);
    }
    read.flatten()
}

/// Sets what is known from the prompt about the call. A prompt that nobody processed has no parts.
pub(crate) fn finish(
    context: &CallContext,
    prompt: ReadPrompt,
    record: &mut CallRecord,
    ended: Instant,
) {
    let prices = &context.accounting.prices;
    let price = |record: &CallRecord, cached| prices.cost_if_cached(record, cached);
    let has_blocks = context.measure.analysis.prompt_blocks;
    let prompts = &context.shared.prompts;
    if prompts
        .finish(prompt, record, ended, has_blocks, price)
        .is_none()
    {
        panicked(context);
    }
    let tokens = &record.tokens;
    if tokens.reported.input.or(tokens.normalised.input).is_none() {
        (record.prompt, record.prompt_blocks) = (None, None);
    }
}

fn panicked(context: &CallContext) {
    context.shared.counters.panicked();
    context.shared.prompts.reset(&context.measure.analysis);
}
