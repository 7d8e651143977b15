//! Whether a call may go on, by what is left of the budgets.

use super::head::Head;
use super::request;
use crate::attribution::{Attribution, Places};
use crate::cost::budget::{Caller, Refusal, seconds_since_1970};
use crate::observer::{Admission, Failure, FailureKind};
use crate::slo::Names;

impl Head {
    /// Whether the call may go on; by its body, where that is given.
    pub(super) fn admit(&self, body: Option<&[u8]>) -> Admission {
        let measure = &self.measure;
        let (budgets, rules) = (&measure.budgets, &measure.attribution);
        if budgets.is_empty() {
            return Admission::Granted;
        }
        let facts = body.and_then(|body| request::facts(self.dialect, rules, body));
        let who = Attribution::merged(self.attribution.as_deref(), facts.as_ref(), rules);
        let of_body = facts.as_ref().and_then(|facts| facts.model.as_deref());
        let model = self.path_model.as_deref().or(of_body);
        let workload = self.assignment.name(|| model.map(str::to_owned));
        // What the body could say otherwise is not known without it.
        let certain = |places: &Places| body.is_some() || places.paths.is_empty();
        let session = who.session.as_deref();
        let caller = Caller {
            names: Names {
                workload: workload.map(|name| &**name),
                route: &self.lane.route,
                upstream: &self.lane.upstream,
                model,
                agent: who.agent.as_deref().filter(|_| certain(&rules.agent)),
            },
            session: session
                .filter(|_| certain(&rules.session) && (body.is_some() || !who.guessed)),
            user: who.user.as_deref().filter(|_| certain(&rules.user)),
        };
        match budgets.refusal(&caller, seconds_since_1970(self.started_at)) {
            Some(refusal) => Admission::Refused(failure(refusal)),
            None if body.is_none() && budgets.depend_on_body(&caller) => Admission::ByBody,
            None => Admission::Granted,
        }
    }
}

fn failure(refusal: Refusal) -> Failure {
    Failure {
        kind: FailureKind::OverBudget,
        message: refusal.message,
        retry_after: Some(refusal.retry_after),
    }
}
