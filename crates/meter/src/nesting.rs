//! Finds calls that are part of another measured call. If a gateway is between two routes of one
//! proxy, or between two proxies, each call is measured twice. The trace shows which record is the
//! outer one.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use tokengauge_core::trace::{CallTrace, PropagatedTrace, TraceContext};

#[derive(Debug, Default)]
pub(crate) struct OpenSpans(Mutex<HashMap<(u128, u64), EnclosingCall>>);

#[derive(Clone, Copy, Debug)]
struct EnclosingCall {
    hop: u32,
    /// Whether the next nested generation is the same generation. A gateway makes one nested call
    /// for each call. An agent makes several; all except the first count separately.
    absorbs_next_generation: bool,
}

impl OpenSpans {
    fn open(&self) -> MutexGuard<'_, HashMap<(u128, u64), EnclosingCall>> {
        self.0.lock()
    }

    /// Registers a call. `propagated` comes from the previous proxy. `generates` says whether the
    /// call generates anything.
    pub(crate) fn enter(
        self: &Arc<Self>,
        trace: &CallTrace,
        propagated: Option<PropagatedTrace>,
        generates: bool,
    ) -> ProxyHop {
        let mut open = self.open();
        let key = |at: TraceContext| (at.trace_id, at.span_id);
        let known = |at: TraceContext| open.contains_key(&key(at)).then_some(key(at));
        // A gateway may have added another span and forwarded the state, or forwarded only the
        // parent.
        let by_state = propagated.and_then(|propagated| known(propagated.request));
        let outer = by_state.or_else(|| trace.parent.and_then(known));
        let outer = outer.and_then(|span| open.get_mut(&span));
        let nested =
            (outer.as_ref()).is_some_and(|outer| outer.absorbs_next_generation && generates);
        let before = outer.map(|outer| {
            outer.absorbs_next_generation &= !nested;
            outer.hop
        });
        let before = before.or(propagated.map(|propagated| propagated.hop));
        let number = before.map_or(0, |before| before.saturating_add(1));
        let own = (trace.server.trace_id, trace.client);
        let itself = EnclosingCall {
            hop: number,
            absorbs_next_generation: generates,
        };
        open.insert(own, itself);
        drop(open);
        ProxyHop {
            number,
            nested,
            own,
            spans: Arc::clone(self),
        }
    }
}

/// The position of a call in the chain of proxies. The call counts as in flight until this is
/// dropped.
#[derive(Debug)]
pub(crate) struct ProxyHop {
    /// The number of tokengauge instances that the call passed before this one.
    pub(crate) number: u32,
    /// Whether the call is nested in a call of this process that represents it in the session.
    pub(crate) nested: bool,
    own: (u128, u64),
    spans: Arc<OpenSpans>,
}

impl ProxyHop {
    pub(crate) fn propagated(&self, trace: &CallTrace) -> PropagatedTrace {
        PropagatedTrace {
            hop: self.number,
            request: trace.upstream(),
        }
    }
}

impl Drop for ProxyHop {
    fn drop(&mut self) {
        self.spans.open().remove(&self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(parent: Option<u64>, client: u64) -> CallTrace {
        let at = |span_id| TraceContext {
            trace_id: 7,
            span_id,
            flags: 1,
        };
        CallTrace {
            parent: parent.map(at),
            server: at(client + 100),
            client,
            propagates: true,
        }
    }

    #[test]
    fn a_call_within_another_is_known_by_the_state_or_by_its_parent() {
        let spans = Arc::<OpenSpans>::default();
        let outer = spans.enter(&trace(Some(1), 10), None, true);
        assert_eq!((outer.number, outer.nested), (0, false));
        let propagated = outer.propagated(&trace(Some(1), 10));
        let by_state = spans.enter(&trace(Some(55), 11), Some(propagated), true);
        assert_eq!((by_state.number, by_state.nested), (1, true));
        let other = spans.enter(&trace(Some(1), 20), None, true);
        assert!(!other.nested);
        let by_parent = spans.enter(&trace(Some(20), 12), None, true);
        assert_eq!((by_parent.number, by_parent.nested), (1, true));
        let third = spans.enter(
            &trace(Some(66), 13),
            Some(by_state.propagated(&trace(None, 11))),
            true,
        );
        assert_eq!((third.number, third.nested), (2, true));
    }

    #[test]
    fn an_agent_that_makes_many_calls_of_one_has_them_counted() {
        let spans = Arc::<OpenSpans>::default();
        let agent = spans.enter(&trace(Some(1), 10), None, false);
        let inner = spans.enter(
            &trace(Some(10), 11),
            Some(agent.propagated(&trace(None, 10))),
            true,
        );
        assert_eq!((inner.number, inner.nested), (1, false));
        // This agent answers like a model, so one of the nested calls is the same generation.
        let model = spans.enter(&trace(Some(1), 20), None, true);
        let embeds = spans.enter(
            &trace(Some(20), 21),
            Some(model.propagated(&trace(None, 20))),
            false,
        );
        let first = spans.enter(
            &trace(Some(20), 22),
            Some(model.propagated(&trace(None, 20))),
            true,
        );
        let second = spans.enter(
            &trace(Some(20), 23),
            Some(model.propagated(&trace(None, 20))),
            true,
        );
        assert_eq!(
            [embeds.nested, first.nested, second.nested],
            [false, true, false]
        );
    }

    #[test]
    fn a_call_of_the_same_trace_beside_another_is_not_within_it() {
        let spans = Arc::<OpenSpans>::default();
        let _one = spans.enter(&trace(Some(1), 10), None, true);
        let sibling = spans.enter(&trace(Some(1), 11), None, true);
        assert_eq!((sibling.number, sibling.nested), (0, false));
    }

    #[test]
    fn a_call_within_one_of_another_process_or_one_that_is_over_counts_for_itself() {
        let spans = Arc::<OpenSpans>::default();
        let elsewhere = PropagatedTrace {
            hop: 1,
            request: trace(None, 99).upstream(),
        };
        let inner = spans.enter(&trace(Some(99), 10), Some(elsewhere), true);
        assert_eq!((inner.number, inner.nested), (2, false));
        let propagated = inner.propagated(&trace(None, 10));
        drop(inner);
        let late = spans.enter(&trace(Some(10), 11), Some(propagated), true);
        assert_eq!((late.number, late.nested), (3, false));
        drop(late);
        assert!(spans.open().is_empty());
    }
}
