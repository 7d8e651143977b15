//! Whether a call may go on, by what is left of the budgets and quotas.

use super::head::{Head, Limited};
use super::request;
use crate::attribution::{Attribution, Places};
use crate::call::RequestFacts;
use crate::caller::{Caller, Known, Refusal};
use crate::cost::budget::{Asked, seconds_since_1970};
use crate::observer::{Admission, Failure, FailureKind, RequestBody, Unread};
use std::sync::Arc;

/// What a body says, as far as it is known.
struct Read {
    facts: Option<RequestFacts>,
    /// What a name is that was not found in it.
    absent: Known<'static>,
    /// The same of a model.
    no_model: Known<'static>,
    unread: Option<Unread>,
    bodiless: bool,
}

impl Head {
    /// Whether the call may go on, by what is known of its body.
    pub(super) fn admit(&self, body: RequestBody<'_>) -> Admission {
        let Some(limited) = &self.limited else {
            return Admission::Granted;
        };
        let asked = match body {
            RequestBody::Pending => Asked::Early,
            _ => Asked::Last,
        };
        let read = self.read(limited, body);
        let rules = &self.measure.attribution;
        let who = Attribution::merged(self.attribution.as_deref(), read.facts.as_ref(), rules);
        let of_body = read.facts.as_ref().and_then(|facts| facts.model.as_deref());
        let model = self.path_model.as_deref().or(of_body);
        let model_known = model.is_some() || read.no_model == Known::Nameless;
        let workload = self
            .assignment
            .name(&self.measure.workloads, || model.map(str::to_owned));
        let decided = model_known || !self.assignment.depends_on_model(&self.measure.workloads);
        // What the body could say otherwise is not known without it.
        let certain = |places: &Places| read.absent == Known::Nameless || places.paths.is_empty();
        let session = who.session.as_deref();
        let session = session.filter(|_| {
            certain(&rules.session) && (read.absent == Known::Nameless || !who.guessed)
        });
        let user = who.user.as_deref().filter(|_| certain(&rules.user));
        let model = model.map(str::to_ascii_lowercase);
        let caller = Caller {
            route: &self.lane.route,
            upstream: &self.lane.upstream,
            workload: match decided {
                true => Known::from(workload.map(|name| &**name)),
                false => Known::Unread,
            },
            model: model.as_deref().map_or(read.no_model, Known::Named),
            agent: match certain(&rules.agent) {
                true => Known::from(who.agent.as_deref()),
                false => Known::Unread,
            },
            session: session.map_or(read.absent, Known::Named),
            user: user.map_or(read.absent, Known::Named),
            keys: &limited.keys,
            bodiless: read.bodiless,
            unread: read.unread,
        };
        self.ask(limited, &caller, asked)
    }

    fn read(&self, limited: &Limited, body: RequestBody<'_>) -> Read {
        let nothing = |absent, unread, bodiless| Read {
            facts: None,
            absent,
            no_model: absent,
            unread,
            bodiless,
        };
        let body = match body {
            RequestBody::Pending => return nothing(Known::Unread, None, false),
            RequestBody::Whole([]) => return nothing(Known::Nameless, None, true),
            // Messages name a model at most: nobody reads them for anything else.
            RequestBody::Unread(Unread::Upgraded) => {
                return Read {
                    absent: Known::Nameless,
                    ..nothing(Known::Unread, Some(Unread::Upgraded), false)
                };
            }
            RequestBody::Unread(unread) => return nothing(Known::Unread, Some(unread), false),
            RequestBody::Whole(body) => body,
        };
        let rules = &self.measure.attribution;
        let limit = self.measure.body_bytes;
        let strictly = |body: &[u8]| request::strict_facts(self.dialect, rules, body);
        match (limited.body).read(body, &self.shared.admission_memory, limit, strictly) {
            Ok((mut facts, several)) => {
                if several.is_some() {
                    facts.model = None;
                }
                Read {
                    facts: Some(facts),
                    absent: Known::Nameless,
                    no_model: several.map_or(Known::Nameless, |_| Known::Unread),
                    unread: several,
                    bodiless: false,
                }
            }
            Err(unread) => nothing(Known::Unread, Some(unread), false),
        }
    }

    fn ask(&self, limited: &Limited, caller: &Caller<'_>, asked: Asked) -> Admission {
        let (budgets, quotas) = (&self.measure.budgets, &self.measure.quotas);
        let depends = budgets.depend_on_body(caller) || quotas.depend_on_body(caller);
        let by_body = depends && asked == Asked::Early;
        let now = seconds_since_1970(self.started_at);
        let asked = if by_body { asked } else { Asked::Last };
        let charges = match budgets.admit(caller, asked, now) {
            Ok(charges) => charges,
            Err(refusal) => return refused(FailureKind::OverBudget, refusal),
        };
        if by_body {
            return Admission::ByBody;
        }
        match quotas.admit(caller) {
            Ok(permit) => {
                // Asked once: a second permit would give its places back at once.
                let _ = limited.permit.set(permit);
                let _ = limited.charges.set(Arc::from(charges));
                Admission::Granted
            }
            Err(refusal) => refused(FailureKind::RateLimited, refusal),
        }
    }
}

/// Refused for `kind`, unless it was the body that could not be read.
fn refused(kind: FailureKind, refusal: Refusal) -> Admission {
    let kind = match refusal.unread {
        None => kind,
        Some(Unread::NoMemory) => FailureKind::Overloaded,
        Some(_) => FailureKind::UnreadableBody,
    };
    Admission::Refused(Failure {
        kind,
        message: refusal.message,
        retry_after: refusal.retry_after,
    })
}
