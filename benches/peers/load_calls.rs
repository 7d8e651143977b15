//! Calls one after the other, as fast as possible.

use crate::agents::Call;
use crate::load_streams::spawn_once;
use crate::results::RunResult;
use crate::run::{Run, UnderWay, await_ends, settling};
use crate::wire::StreamRequest;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

const FIRST_TOKENS_TIME: Duration = Duration::from_secs(8);
/// Calls begin after this time even if not all silent streams are open. The table shows how many are.
const OPENING_TIME: Duration = Duration::from_secs(20);
/// Interval between events of a silent stream, longer than a run.
const SILENCE: Duration = Duration::from_secs(3600);

/// Calls of one token, whose response the backend writes at once.
pub async fn short_calls(run: &Run<'_>, agents: usize, silent: usize) -> anyhow::Result<RunResult> {
    let silent_spec = StreamRequest {
        events: 2,
        interval_us: SILENCE.as_micros() as u64,
        per_write: 1,
        ..StreamRequest::default()
    };
    let call = run.running.call(silent_spec);
    let _silent = spawn_once(run, silent, |_| call.clone()).await?;
    let start = Instant::now();
    while run.stats.open.get() < silent && start.elapsed() < OPENING_TIME {
        sleep(Duration::from_millis(20)).await;
    }
    let spec = StreamRequest {
        events: 1,
        one_write: true,
        ..StreamRequest::default()
    };
    let under_way = spawn_repeatedly(run, agents, spec).await?;
    let mut result = run.measure(agents).await?;
    await_ends(under_way, &mut result, Duration::ZERO).await?;
    Ok(result)
}

/// Starts agents that make calls one after the other and use all models in turn.
async fn spawn_repeatedly(
    run: &Run<'_>,
    agents: usize,
    spec: StreamRequest,
) -> anyhow::Result<UnderWay> {
    let models = run.scenario.models as usize;
    let calls = (0..models).map(|number| {
        let model = run.model(number);
        run.running.call(StreamRequest { model, ..spec })
    });
    let calls: Rc<[Call]> = calls.collect();
    let mut under_way = JoinSet::new();
    for (number, mut agent) in (0..).zip(run.running.agents(agents, 1).await?) {
        let (calls, stats) = (Rc::clone(&calls), Rc::clone(&run.stats));
        under_way.spawn_local(async move {
            let first = number * calls.len() / agents;
            for call in calls.iter().cycle().skip(first) {
                agent.call(call, &stats).await?;
            }
            Ok(())
        });
    }
    Ok(under_way)
}

/// Makes this number of calls, each with two events in separate writes.
pub async fn first_tokens(run: &Run<'_>, agents: usize, calls: usize) -> anyhow::Result<RunResult> {
    let spec = StreamRequest {
        events: 2,
        ..StreamRequest::default()
    };
    let under_way = spawn_repeatedly(run, agents, spec).await?;
    sleep(settling(agents)).await;
    let until_made = async |run: &Run<'_>| {
        let start = Instant::now();
        let made = || run.stats.first_tokens.borrow().len();
        while made() < calls && start.elapsed() < FIRST_TOKENS_TIME {
            sleep(Duration::from_millis(20)).await;
        }
        Ok((run.stats.open.get(), run.idle_kb))
    };
    let mut result = run.measure_while(until_made).await?;
    await_ends(under_way, &mut result, Duration::ZERO).await?;
    Ok(result)
}
