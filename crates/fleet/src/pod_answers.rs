//! What all pods answer to one request, such as for their upstreams.

use super::pod::{Pod, PodState};
use super::{Fleet, pod_stream};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Maximum number of pods that are asked at one time.
const AT_ONE_TIME: usize = 64;
/// The time limit for all pods together.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of errors that are listed.
const LISTED_ERRORS: usize = 10;

/// How many pods answered a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct PodsAsked {
    /// The number of pods of the fleet.
    pub asked: usize,
    /// The number of pods whose answer is included.
    pub answered: usize,
    /// Why other pods are missing, for at most ten of them.
    pub errors: Vec<String>,
}

impl PodsAsked {
    fn missing(&mut self, pod: &Pod, error: &str) {
        if self.errors.len() < LISTED_ERRORS {
            self.errors
                .push(format!("{}: {error}", pod.status().label()));
        }
    }
}

impl Fleet {
    /// What the pods answer to `GET path`, in no particular order, and which answers are missing. It takes at most five seconds.
    pub async fn ask<T: DeserializeOwned>(self: &Arc<Self>, path: &str) -> (Vec<T>, PodsAsked) {
        let pods = self.all();
        let mut all = PodsAsked {
            asked: pods.len(),
            ..PodsAsked::default()
        };
        let turns = Arc::new(Semaphore::new(AT_ONE_TIME));
        let mut asking = JoinSet::new();
        let mut waiting = Vec::new();
        for pod in pods {
            if pod.state() != PodState::Connected {
                all.missing(&pod, "it cannot be reached; see /api/v1/pods");
                continue;
            }
            let (fleet, path, turns) = (Arc::clone(self), path.to_owned(), Arc::clone(&turns));
            waiting.push(Arc::clone(&pod));
            asking.spawn(async move {
                let _turn = turns.acquire().await;
                let answer = pod_stream::ask(&pod, &path, &fleet).await;
                (pod, answer)
            });
        }
        let mut found = Vec::new();
        let mut take = |pod: Arc<Pod>, answer: Result<Bytes, String>| {
            waiting.retain(|one| one.at != pod.at);
            let answer = answer.and_then(|body| {
                serde_json::from_slice(&body)
                    .map_err(|error| format!("its answer cannot be read: {error}"))
            });
            match answer {
                Ok(answer) => found.push(answer),
                Err(error) => all.missing(&pod, &error),
            }
        };
        let answers = async {
            while let Some(done) = asking.join_next().await {
                if let Ok((pod, answer)) = done {
                    take(pod, answer);
                }
            }
        };
        let _ = timeout(TIME_LIMIT, answers).await;
        for pod in waiting {
            let seconds = TIME_LIMIT.as_secs();
            all.missing(&pod, &format!("it did not answer within {seconds} s"));
        }
        all.answered = found.len();
        (found, all)
    }
}
