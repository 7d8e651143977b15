//! The loads: actions of the agents in each kind of scenario.

use crate::load_calls::{first_tokens, short_calls};
use crate::load_recorded::recorded;
use crate::load_scraped::scraped;
use crate::load_streams::{flat_out, next_to, paced};
use crate::results::RunResult;
use crate::run::Run;
use crate::scenario::Work;

pub async fn run(run: &Run<'_>) -> anyhow::Result<RunResult> {
    match &run.scenario.work {
        Work::Short { agents, silent } => short_calls(run, *agents, *silent).await,
        Work::FirstToken { agents, calls } => first_tokens(run, *agents, *calls).await,
        Work::Paced(pace) => paced(run, *pace).await,
        Work::FlatOut { streams, per_write } => flat_out(run, *streams, *per_write).await,
        Work::Recorded {
            dialect,
            per_write,
            repeated,
        } => recorded(run, dialect.as_deref(), *per_write, *repeated).await,
        Work::Noisy(neighbours) => next_to(run, *neighbours).await,
        Work::Scraped(with_scrapes) => scraped(run, *with_scrapes).await,
    }
}
