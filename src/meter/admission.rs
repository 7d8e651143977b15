//! Whether a call may go on, by what is left of the budgets and quotas.

use super::head::Head;
use super::request;
use crate::attribution::{Attribution, Places};
use crate::cost::budget::{Caller, seconds_since_1970};
use crate::observer::{Admission, Failure, FailureKind};
use crate::quota;
use crate::slo::Names;

impl Head {
    /// Whether the call may go on; by its body, where that is given.
    pub(super) fn admit(&self, body: Option<&[u8]>) -> Admission {
        let measure = &self.measure;
        let (budgets, rules) = (&measure.budgets, &measure.attribution);
        if budgets.is_empty() && measure.quotas.is_empty() {
            return Admission::Granted;
        }
        let facts = body.and_then(|body| request::facts(self.dialect, rules, body));
        let who = Attribution::merged(self.attribution.as_deref(), facts.as_ref(), rules);
        let of_body = facts.as_ref().and_then(|facts| facts.model.as_deref());
        let model = self.path_model.as_deref().or(of_body);
        let workload = self
            .assignment
            .name(&self.measure.workloads, || model.map(str::to_owned));
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
        let now = seconds_since_1970(self.started_at);
        if let Some(refusal) = budgets.refusal(&caller, now) {
            let kind = FailureKind::OverBudget;
            return refused(kind, refusal.message, refusal.retry_after);
        }
        let limited = quota::Caller {
            names: caller.names,
            session: caller.session,
            user: caller.user,
            key: self
                .limited
                .as_ref()
                .and_then(|limited| limited.key.as_deref()),
        };
        if body.is_none()
            && (budgets.depend_on_body(&caller) || measure.quotas.depend_on_body(&limited))
        {
            return Admission::ByBody;
        }
        self.take(&limited)
    }

    fn take(&self, caller: &quota::Caller<'_>) -> Admission {
        match self.measure.quotas.admit(caller) {
            Ok(permit) => {
                // Asked once: a second permit would give its places back at once.
                if let Some(limited) = &self.limited {
                    let _ = limited.permit.set(permit);
                }
                Admission::Granted
            }
            Err(refusal) => {
                let kind = FailureKind::RateLimited;
                refused(kind, refusal.message, refusal.retry_after)
            }
        }
    }
}

fn refused(kind: FailureKind, message: String, retry_after: std::time::Duration) -> Admission {
    Admission::Refused(Failure {
        kind,
        message,
        retry_after: Some(retry_after),
    })
}
