//! Admits or refuses a call, depending on the remaining budgets and quotas.

mod body_facts;

use crate::accounting::Accounting;
use crate::attribution::{
    Attribution, HeaderAttribution, NameSources, Rules, Workload, WorkloadAssignment,
};
use crate::cost::budget::AdmissionStage;
use crate::keys;
use crate::quota::{self, Permit, Quotas};
use body_facts::BodyFacts;
use http::{HeaderName, HeaderValue};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tokengauge_core::call::Dialect;
use tokengauge_core::caller::{Caller, Charge, KnownName, Refusal};
use tokengauge_core::memory::AdmissionMemory;
use tokengauge_core::observer::{
    Admission, CallStart, Failure, FailureKind, RequestBody, UnreadableBody,
};
use tokengauge_core::payer::Payer;
use tokengauge_core::time::whole_seconds_since_1970;
use tokengauge_wire::{self as wire, BodyHead, HeadModels};

/// A call that limits may apply to, with the slots and charges that it holds.
pub struct LimitedCall {
    keys: Vec<String>,
    body: BodyHead,
    models: HeadModels,
    permit: OnceLock<Permit>,
    charges: OnceLock<Arc<[Charge]>>,
}

/// The facts that decide about a call, except its body.
pub struct AdmissionRequest<'a> {
    pub accounting: &'a Accounting,
    pub rules: &'a Rules,
    pub attribution: Option<&'a HeaderAttribution>,
    pub payer: &'a Payer,
    pub workloads: &'a [Workload],
    pub assignment: &'a WorkloadAssignment,
    pub route: &'a str,
    pub upstream: &'a str,
    pub dialect: Dialect,
    pub path_model: Option<&'a str>,
    pub started_at: SystemTime,
    pub body_bytes: usize,
    pub memory: &'a AdmissionMemory,
}

impl LimitedCall {
    /// Creates the state of a new call; `None` if there are no limits.
    pub fn new(accounting: &Accounting, start: &CallStart<'_>) -> Option<Box<LimitedCall>> {
        if accounting.admits_all() {
            return None;
        }
        let asks = accounting.quotas.need_keys();
        let keys = asks.then(|| keys::keys_of(start.headers, start.uri));
        Some(Box::new(LimitedCall {
            keys: keys.unwrap_or_default(),
            body: BodyHead::of(start.headers, wire::reads_forms_as_json(start.uri)),
            models: HeadModels::of(start.method, start.uri, start.headers),
            permit: OnceLock::new(),
            charges: OnceLock::new(),
        }))
    }

    pub fn admit(&self, request: &AdmissionRequest<'_>, body: RequestBody<'_>) -> Admission {
        let pending = matches!(body, RequestBody::Pending);
        let mut read = BodyFacts::read(request, &self.body, body);
        let models = self.models(request.path_model, &mut read);
        let rules = request.rules;
        let who = Attribution::merged(request.attribution, read.facts.as_ref(), rules);
        let assignment = request.assignment;
        let workloads = assignment.names(request.workloads, models.as_deref());
        // Without the body it is unknown whether the body contains another name.
        let certain = |places: &NameSources| {
            read.missing_name == KnownName::Absent || places.paths.is_empty()
        };
        let session = who.session.as_deref().filter(|_| {
            certain(&rules.session)
                && (read.missing_name == KnownName::Absent || who.session_guess.is_none())
        });
        let user = who.user.as_deref().filter(|_| certain(&rules.user));
        let caller = Caller {
            route: request.route,
            upstream: request.upstream,
            workload: known(workloads.as_deref()),
            model: known(models.as_deref()),
            agent: if certain(&rules.agent) {
                KnownName::from(who.agent.as_deref())
            } else {
                KnownName::Unread
            },
            session: session.map_or(read.missing_name, KnownName::Named),
            user: user.map_or(read.missing_name, KnownName::Named),
            team: KnownName::from(request.payer.team.as_deref()),
            cost_center: KnownName::from(request.payer.cost_center.as_deref()),
            tenant: KnownName::from(request.payer.tenant.as_deref()),
            keys: &self.keys,
            bodiless: read.bodiless,
            unread: read.unread,
        };
        let now = whole_seconds_since_1970(request.started_at);
        self.check_limits(request.accounting, &caller, pending, now)
    }

    /// All models that the call names, in lower case. The call counts for each of them, because it
    /// is unknown which one an upstream serves. `None` if the body may name another model, or if
    /// servers read the path differently.
    fn models(&self, path_model: Option<&str>, read: &mut BodyFacts) -> Option<Vec<String>> {
        let head = &self.models;
        let mut models: Vec<_> = path_model.map(str::to_owned).into_iter().collect();
        if !read.bodiless {
            models.extend(head.names.iter().cloned());
            if head.ambiguous {
                read.unread = read.unread.or(Some(UnreadableBody::Path));
                return None;
            }
            match read.models.take() {
                // The connection named its model when it was opened, so its messages need not.
                None if read.unread == Some(UnreadableBody::Upgraded) => path_model.map(|_| ())?,
                _ if head.decides => {}
                // In APIs such as Azure's deployments the path names the model.
                None if read.unread == Some(UnreadableBody::NoModel) && !models.is_empty() => {}
                found => models.extend(found?),
            }
        }
        for model in &mut models {
            let plain = model.strip_prefix("models/").unwrap_or(model);
            *model = plain.to_ascii_lowercase();
        }
        let mut seen = HashSet::new();
        models.retain(|model| seen.insert(model.clone()));
        Some(models)
    }

    fn check_limits(
        &self,
        accounting: &Accounting,
        caller: &Caller<'_>,
        pending: bool,
        now: u64,
    ) -> Admission {
        let (budgets, quotas) = (&accounting.budgets, &accounting.quotas);
        let depends = budgets.depend_on_body(caller) || quotas.depend_on_body(caller);
        let by_body = depends && pending;
        let stage = if by_body {
            AdmissionStage::Early
        } else {
            AdmissionStage::Final
        };
        let charges = match budgets.admit(caller, stage, now) {
            Ok(charges) => charges,
            Err(refusal) => return refused(FailureKind::OverBudget, refusal),
        };
        if by_body {
            return Admission::ByBody;
        }
        match quotas.admit(caller) {
            Ok(permit) => {
                // This runs once. A second permit would release its slots at once.
                let _ = self.permit.set(permit);
                let _ = self.charges.set(Arc::from(charges));
                Admission::Granted
            }
            Err(refusal) => refused(FailureKind::RateLimited, refusal),
        }
    }

    pub fn charge(&self, tokens: u64) {
        if let Some(permit) = self.permit.get() {
            permit.charge(tokens);
        }
    }

    pub fn header_fields(&self, quotas: &Quotas) -> Vec<(HeaderName, HeaderValue)> {
        let permit = self.permit.get();
        permit.map_or(Vec::new(), |permit| {
            quota::header_fields(&permit.remaining(quotas))
        })
    }

    pub fn release_slots(&self) {
        if let Some(permit) = self.permit.get() {
            permit.release_slots();
        }
    }

    pub fn charges(&self) -> Arc<[Charge]> {
        self.charges.get().cloned().unwrap_or_default()
    }
}

fn known(names: Option<&[String]>) -> KnownName<'_> {
    match names {
        None => KnownName::Unread,
        Some([]) => KnownName::Absent,
        Some([name]) => KnownName::Named(name),
        Some(names) => KnownName::Several(names),
    }
}

fn refused(kind: FailureKind, refusal: Refusal) -> Admission {
    let kind = match refusal.unread {
        None => kind,
        Some(UnreadableBody::NoMemory) => FailureKind::Overloaded,
        Some(_) => FailureKind::UnreadableBody,
    };
    Admission::Refused(Failure {
        kind,
        message: refusal.message,
        retry_after: refusal.retry_after,
    })
}
