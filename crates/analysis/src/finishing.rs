//! Sets what is known about a call at its end, and remembers its turn.

use super::conversations::{Addition, Before, Turn};
use super::prompt::Prompt;
use super::prompt_break::{Compared, prompt_break};
use super::state::{Analysis, common_blocks};
use std::time::{Duration, Instant};
use tokengauge_core::call::{CallRecord, OperationClass, Outcome};
use tokengauge_core::dimension::model_of;
use tokengauge_core::prompt::{PromptBreak, Wait, WaitKind};
use tokengauge_core::prompt_cache::CachedTurn;

/// The time between a failed call and its retry.
fn after_failure(since: Duration) -> Wait {
    Wait {
        kind: WaitKind::Other,
        seconds: since.as_secs_f64(),
        tools: Vec::new(),
    }
}

impl Analysis {
    /// Sets what is known about a call from its prompt. `price` is the cost of the call if this
    /// number of its input tokens had come from the cache.
    pub fn finish(
        &mut self,
        prompt: Prompt,
        record: &mut CallRecord,
        ended: Instant,
        price: impl Fn(&CallRecord, u64) -> Option<f64>,
    ) {
        record.prompt = Some(Box::new(prompt.parts.clone()));
        if record.operation_class != OperationClass::Generation {
            return;
        }
        let turn = Turn {
            number: 0,
            items: prompt.length,
            ended,
            complete: record.outcome == Outcome::Complete,
            cache: CachedTurn::of(record),
            model: self.seeds.short(model_of(record)),
            place: self.seeds.short((&record.upstream, &record.endpoint)),
            keys: prompt.keys,
        };
        let before = prompt.before.as_ref();
        let found = before.and_then(|before| self.broken(before, &prompt, &turn, record, price));
        record.cache_break = found.map(Box::new);
        let retried = self.retries.before(prompt.request, prompt.started);
        record.retry_of = retried.map(|(id, _)| id.to_owned());
        let wait = retried.map_or(prompt.wait.clone(), |(_, since)| Some(after_failure(since)));
        record.wait = wait.map(Box::new);
        let failed = record.outcome.is_failure();
        self.retries
            .ended(prompt.request, &record.id, ended, failed);
        self.simulate_caches(&prompt, &turn, &record.upstream);
        // Nobody processed the prompt of a failed call, so the next call continues the previous turn.
        if !failed {
            self.conversations.add(Addition {
                after: prompt.after,
                items: prompt.items,
                blocks: prompt.blocks,
                results: prompt.results,
                turn,
            });
        }
        self.shrink();
    }

    fn broken(
        &self,
        before: &Before,
        prompt: &Prompt,
        turn: &Turn,
        record: &CallRecord,
        price: impl Fn(&CallRecord, u64) -> Option<f64>,
    ) -> Option<PromptBreak> {
        let cache = turn.cache?;
        let compared = Compared {
            before: &before.turn,
            change: before.change.as_ref(),
            mark: before.mark,
            in_use: before.shows_cache,
            upstream_caches: self.caching.peek(&self.caching_key(turn)).is_some(),
            model: turn.model,
            place: turn.place,
            idle: prompt.started.saturating_duration_since(before.turn.ended),
            counted: prompt.parts.total(),
            cache,
            agent: record.agent.as_deref(),
        };
        let (mut found, expected) = prompt_break(&compared)?;
        let paid = price(record, cache.cached).zip(price(record, expected));
        found.cost_usd = paid.map(|(paid, possible)| (paid - possible).max(0.0));
        Some(found)
    }

    /// The upstream and the model.
    fn caching_key(&self, turn: &Turn) -> u64 {
        self.seeds.short((turn.place, turn.model))
    }

    fn simulate_caches(&mut self, prompt: &Prompt, turn: &Turn, upstream: &str) {
        let Some(cache) = turn.cache else {
            return;
        };
        if cache.shows {
            self.caching.insert(self.caching_key(turn), (), 0);
        }
        let known = prompt.after;
        let known = known.and_then(|link| common_blocks(&self.conversations, link));
        let known = known.unwrap_or_default().iter();
        let blocks = known.chain(&prompt.blocks).copied();
        let reported = (cache.input, cache.cached);
        self.potentials.prompt(upstream, blocks, reported);
    }
}
