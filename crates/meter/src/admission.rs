//! Admits or refuses a call by what is left of the budgets and quotas.

use super::context::{CallContext, LimitContext};
use super::request::{self, StrictFacts};
use std::collections::HashSet;
use std::sync::Arc;
use tokengauge_accounting::attribution::{Attribution, NameSources};
use tokengauge_accounting::cost::budget::AdmissionStage;
use tokengauge_core::call::RequestFacts;
use tokengauge_core::caller::{Caller, KnownName, Refusal};
use tokengauge_core::observer::{Admission, Failure, FailureKind, RequestBody, UnreadableBody};
use tokengauge_core::time::whole_seconds_since_1970;

/// What is known of a request body.
struct BodyFacts {
    facts: Option<RequestFacts>,
    /// What a name counts as that was not found in it.
    missing_name: KnownName<'static>,
    /// The models that it names, if that is known.
    models: Option<Vec<String>>,
    unread: Option<UnreadableBody>,
    bodiless: bool,
}

impl BodyFacts {
    fn unknown(missing_name: KnownName<'static>, unread: Option<UnreadableBody>) -> BodyFacts {
        BodyFacts {
            facts: None,
            missing_name,
            models: None,
            unread,
            bodiless: false,
        }
    }
}

impl CallContext {
    /// Admits or refuses the call by what is known of its body.
    pub(super) fn admit(&self, body: RequestBody<'_>) -> Admission {
        let Some(limited) = &self.limited else {
            return Admission::Granted;
        };
        let stage = match body {
            RequestBody::Pending => AdmissionStage::Early,
            _ => AdmissionStage::Final,
        };
        let mut read = self.read(limited, body);
        let models = self.models(limited, &mut read);
        let rules = &self.measure.attribution;
        let who = Attribution::merged(self.attribution.as_deref(), read.facts.as_ref(), rules);
        let workloads = self.workloads(models.as_deref());
        // Without the body it is unknown whether that would name another.
        let certain = |places: &NameSources| {
            read.missing_name == KnownName::Absent || places.paths.is_empty()
        };
        let session = who.session.as_deref();
        let session = session.filter(|_| {
            certain(&rules.session)
                && (read.missing_name == KnownName::Absent || who.session_guess.is_none())
        });
        let user = who.user.as_deref().filter(|_| certain(&rules.user));
        let caller = Caller {
            route: &self.route_stats.route,
            upstream: &self.route_stats.upstream,
            workload: known(workloads.as_deref()),
            model: known(models.as_deref()),
            agent: match certain(&rules.agent) {
                true => KnownName::from(who.agent.as_deref()),
                false => KnownName::Unread,
            },
            session: session.map_or(read.missing_name, KnownName::Named),
            user: user.map_or(read.missing_name, KnownName::Named),
            team: KnownName::from(self.payer.team.as_deref()),
            cost_center: KnownName::from(self.payer.cost_center.as_deref()),
            tenant: KnownName::from(self.payer.tenant.as_deref()),
            keys: &limited.keys,
            bodiless: read.bodiless,
            unread: read.unread,
        };
        self.check_limits(limited, &caller, stage)
    }

    /// All models that the call names, in lower case; `None` if the body may name another one, or
    /// servers read the path differently. A call counts for each of them, since it is unknown
    /// which one an upstream serves.
    fn models(&self, limited: &LimitContext, read: &mut BodyFacts) -> Option<Vec<String>> {
        let head = &limited.models;
        let path_model = self.path_model.as_deref();
        let mut models: Vec<_> = path_model.map(str::to_owned).into_iter().collect();
        if !read.bodiless {
            models.extend(head.names.iter().cloned());
            if head.ambiguous {
                read.unread = read.unread.or(Some(UnreadableBody::Path));
                return None;
            }
            match read.models.take() {
                // Messages of a connection that named its model when it was opened.
                None if read.unread == Some(UnreadableBody::Upgraded) => path_model.map(|_| ())?,
                _ if head.decides => {}
                // Azure's deployments and the like: the path names the model.
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

    /// The workloads of a call for `models`; `None` if that depends on an unknown model.
    fn workloads(&self, models: Option<&[String]>) -> Option<Vec<String>> {
        let all = &self.measure.workloads;
        if models.is_none() && self.assignment.depends_on_model(all) {
            return None;
        }
        let first = models.and_then(|models| models.first());
        let own = self.assignment.name(all, || first.cloned());
        let mut names: Vec<_> = own.map(|name| name.to_string()).into_iter().collect();
        for model in models.unwrap_or_default().iter().skip(1) {
            let other = self.assignment.name_with(all, model);
            let other = other.filter(|other| !names.iter().any(|name| **name == ***other));
            names.extend(other.map(|name| name.to_string()));
        }
        Some(names)
    }

    fn read(&self, limited: &LimitContext, body: RequestBody<'_>) -> BodyFacts {
        let body = match body {
            RequestBody::Pending => return BodyFacts::unknown(KnownName::Unread, None),
            RequestBody::Whole([]) => {
                return BodyFacts {
                    bodiless: true,
                    ..BodyFacts::unknown(KnownName::Absent, None)
                };
            }
            // Messages name a model at most; nothing else is read from them.
            RequestBody::Unread(UnreadableBody::Upgraded) => {
                return BodyFacts::unknown(KnownName::Absent, Some(UnreadableBody::Upgraded));
            }
            RequestBody::Unread(unread) => {
                return BodyFacts::unknown(KnownName::Unread, Some(unread));
            }
            RequestBody::Whole(body) => body,
        };
        let rules = &self.measure.attribution;
        let limit = self.measure.body_bytes;
        let strictly = |body: &[u8]| request::strict_facts(self.dialect, rules, body);
        let memory = &self.shared.admission_memory;
        let mut found = (limited.body).read(body, &memory.large, limit, strictly);
        if matches!(found, Err(UnreadableBody::NoMemory)) {
            found = (limited.body).read(body, &memory.small, limit, strictly);
        }
        match found {
            Ok(StrictFacts {
                mut facts,
                models,
                unread,
            }) => {
                if unread.is_some() {
                    facts.model = None;
                }
                BodyFacts {
                    facts: Some(facts),
                    models: Some(models).filter(|_| unread.is_none()),
                    ..BodyFacts::unknown(KnownName::Absent, unread)
                }
            }
            Err(unread) => BodyFacts::unknown(KnownName::Unread, Some(unread)),
        }
    }

    fn check_limits(
        &self,
        limited: &LimitContext,
        caller: &Caller<'_>,
        stage: AdmissionStage,
    ) -> Admission {
        let (budgets, quotas) = (&self.accounting.budgets, &self.accounting.quotas);
        let depends = budgets.depend_on_body(caller) || quotas.depend_on_body(caller);
        let by_body = depends && stage == AdmissionStage::Early;
        let now = whole_seconds_since_1970(self.started_at);
        let stage = if by_body {
            stage
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
                // Called once: a second permit would release its slots at once.
                let _ = limited.permit.set(permit);
                let _ = limited.charges.set(Arc::from(charges));
                Admission::Granted
            }
            Err(refusal) => refused(FailureKind::RateLimited, refusal),
        }
    }
}

/// What is known of a name, given all the names that the call has.
fn known(names: Option<&[String]>) -> KnownName<'_> {
    match names {
        None => KnownName::Unread,
        Some([]) => KnownName::Absent,
        Some([name]) => KnownName::Named(name),
        Some(names) => KnownName::Several(names),
    }
}

/// A refusal of `kind`, unless it is because the body could not be read.
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
