//! Responses that the provider generates in the background. The first response has no usage, and
//! every poll after the end repeats the usage, so it is counted once.

use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};

/// Beyond this number of tracked responses the oldest is forgotten, and its usage is not counted.
const MAX_KNOWN: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct BackgroundResponses(Mutex<PendingIds>);

#[derive(Debug, Default)]
struct PendingIds {
    ids: HashSet<Box<str>>,
    order: VecDeque<Box<str>>,
}

impl BackgroundResponses {
    pub(crate) fn accepted(&self, id: &str) {
        let mut known = self.0.lock();
        if known.ids.insert(id.into()) {
            known.order.push_back(id.into());
        }
        while known.order.len() > MAX_KNOWN
            && let Some(oldest) = known.order.pop_front()
        {
            known.ids.remove(&oldest);
        }
    }

    /// Whether to count the usage of this response now. It is true once for each accepted response.
    pub(crate) fn counts_now(&self, id: &str) -> bool {
        let mut known = self.0.lock();
        known.ids.remove(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_counts_once_and_only_if_it_was_accepted() {
        let responses = BackgroundResponses::default();
        responses.accepted("resp_1");
        assert!(!responses.counts_now("resp_2"));
        assert!(responses.counts_now("resp_1") && !responses.counts_now("resp_1"));
        (0..MAX_KNOWN + 1).for_each(|number| responses.accepted(&number.to_string()));
        assert!(!responses.counts_now("0") && responses.counts_now("1"));
    }
}
