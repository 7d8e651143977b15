//! Spending budgets: an amount of money in each period for each session, agent, workload or model.
//!
//! A budget warns, and refuses further calls only if `block` is set. In shadow mode it only counts
//! the calls that it would refuse. A call counts when it has ended, so calls in flight may still
//! overspend. Functions take the time as an argument.

mod period;
mod saved;
mod shared;
mod spent;
#[cfg(test)]
mod tests;

use crate::quota::Due;
use crate::sharing::Sharing;

use arc_swap::ArcSwap;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use shared::SharedSpending;
use spent::{Periods, Spending};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokengauge_core::alert_notification::{AlertNotification, AlertSubject};
use tokengauge_core::call::CallRecord;
use tokengauge_core::caller::{
    Caller, Charge, KnownName, LimitKey, LimitMatch, Mode, OnUnreadable, Refusal, depends_on_bodies,
};
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::selector::Selector;
use tokengauge_core::subscriber::Subscriber;
use tokengauge_core::time::{rfc3339_seconds, whole_seconds_since_1970};

pub use period::Period;
pub use saved::{SavedSpending, SpendingFile};
pub use shared::{SpendingId, SpendingReport};

pub const MAX_BUDGETS: usize = 16;
pub const MAX_WARNINGS: usize = 8;
const MAX_NAMED: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// The name, which is also the `budget` label.
    pub name: Arc<str>,
    /// How calls are grouped. Each group has the full amount.
    pub per: BudgetScope,
    pub select: Selector,
    /// The amount for each period, in US dollars.
    pub usd: f64,
    pub period: Period,
    /// Shares of the amount at which receivers get an alert, in ascending order.
    pub warn_at: Vec<f64>,
    pub block: bool,
    /// Whether a blocking budget is enforced or in shadow mode.
    pub mode: Mode,
    /// How to treat a call whose body cannot be read, if the budget blocks and depends on the body.
    pub on_unreadable: OnUnreadable,
}

/// How a budget groups calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    #[default]
    All,
    Session,
    Agent,
    User,
    Workload,
    /// Each model, by the requested name.
    Model,
    Team,
    CostCenter,
    Tenant,
}

impl BudgetScope {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the name of the group is known before the body.
    fn is_of_head(self) -> bool {
        matches!(
            self,
            BudgetScope::All | BudgetScope::Team | BudgetScope::CostCenter | BudgetScope::Tenant
        )
    }

    fn limit_key<'a>(self, caller: &Caller<'a>) -> LimitKey<'a> {
        match self {
            BudgetScope::All => LimitKey::Fixed("all"),
            BudgetScope::Session => LimitKey::Name(caller.session),
            BudgetScope::Agent => LimitKey::Name(caller.agent),
            BudgetScope::User => LimitKey::Name(caller.user),
            BudgetScope::Workload => LimitKey::Name(caller.workload),
            BudgetScope::Model => LimitKey::Name(caller.model),
            BudgetScope::Team => LimitKey::Name(caller.team),
            BudgetScope::CostCenter => LimitKey::Name(caller.cost_center),
            BudgetScope::Tenant => LimitKey::Name(caller.tenant),
        }
    }
}

/// The caller of a finished call. A call without names counts only for the budgets that charged it
/// at admission.
fn caller(record: &CallRecord) -> Caller<'_> {
    let requested = record.model_requested.as_deref();
    Caller {
        route: &record.route,
        upstream: &record.upstream,
        workload: KnownName::from(record.workload.as_deref()),
        model: KnownName::from(requested.or(record.model.as_deref())),
        agent: KnownName::from(record.agent.as_deref()),
        session: KnownName::from(record.session.as_deref()),
        user: KnownName::from(record.user.as_deref()),
        team: KnownName::from(record.team.as_deref()),
        cost_center: KnownName::from(record.cost_center.as_deref()),
        tenant: KnownName::from(record.tenant.as_deref()),
        keys: &[],
        bodiless: true,
        unread: None,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct BudgetStatus {
    pub name: Arc<str>,
    /// The largest share of the amount that any name has spent in this period.
    pub spent_ratio: f64,
    /// US dollars spent since the start of the process.
    pub usd: f64,
    pub warnings: Vec<(f64, u64)>,
    pub blocked: u64,
    /// Calls that would have been refused without shadow mode.
    pub shadow_blocked: u64,
    /// Calls that depended on a body that could not be read, whether they were refused or not.
    pub unreadable: u64,
    pub forgotten: u64,
}

#[derive(Debug, Default)]
pub struct Budgets {
    states: ArcSwap<Vec<Arc<BudgetState>>>,
    sharing: Option<Arc<Sharing>>,
}

#[derive(Debug)]
struct BudgetState {
    budget: Budget,
    spent: Mutex<Periods>,
    /// The spending of all processes; `None` without a quota store.
    shared: Option<Arc<SharedSpending>>,
    total_micros: AtomicU64,
    warnings: Vec<AtomicU64>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    blocked: AtomicU64,
    shadow_blocked: AtomicU64,
    unreadable: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionStage {
    /// The body has not been read.
    Early,
    /// Everything that can be known is known, so the decision is final.
    Final,
}

impl BudgetState {
    fn new(budget: &Budget, sharing: Option<&Arc<Sharing>>) -> BudgetState {
        BudgetState {
            budget: budget.clone(),
            spent: Mutex::default(),
            shared: sharing.map(SharedSpending::new),
            total_micros: AtomicU64::new(0),
            warnings: budget.warn_at.iter().map(|_| AtomicU64::new(0)).collect(),
            counts: Counts::default(),
        }
    }

    /// Whether this state can continue for `budget` after a reload.
    fn is_same(&self, budget: &Budget) -> bool {
        let own = &self.budget;
        (&own.name, own.per, own.period) == (&budget.name, budget.per, budget.period)
            && own.select == budget.select
    }

    fn spent(&self, now: u64) -> MappedMutexGuard<'_, Spending> {
        let period = self.budget.period.bounds(now);
        MutexGuard::map(self.spent.lock(), |periods| periods.at(period, now))
    }

    fn limit_match<'a>(&self, caller: &Caller<'a>) -> LimitMatch<'a> {
        caller.limit_match(&self.budget.select, self.budget.per.limit_key(caller))
    }

    /// Counts a finished call under the names that were charged at admission, or otherwise under
    /// the names in its record.
    fn spend(&self, record: &CallRecord, charges: &[Charge], usd: f64, now: u64) {
        let charged = charges.iter().filter(|to| to.budget == self.budget.name);
        let mut charged = charged.map(|charge| &*charge.name).peekable();
        if charged.peek().is_some() {
            self.add_to_total(usd);
            return charged.for_each(|name| self.add(name, usd, now));
        }
        if let LimitMatch::Names(names) = self.limit_match(&caller(record)) {
            self.add_to_total(usd);
            names
                .into_iter()
                .for_each(|name| self.add(&normalized_name(self.budget.per, name), usd, now));
        }
    }

    fn add_to_total(&self, usd: f64) {
        self.total_micros
            .fetch_add((usd * 1e6).round() as u64, Ordering::Relaxed);
    }

    fn add(&self, name: &str, usd: f64, now: u64) {
        let (before, after, known, period) = {
            let mut periods = self.spent.lock();
            let spent = periods.of_call(self.budget.period.bounds(now), now);
            let known = spent.tracked(name);
            let (before, after) = spent.add(name, usd);
            (before, after, known, spent.period)
        };
        if let Some(shared) = &self.shared {
            shared.add(name, period, usd, known);
        }
        self.warn(name, before, after);
    }

    /// Counts and logs the thresholds that `name` has crossed between `before` and `after`.
    fn warn(&self, name: &str, before: f64, after: f64) {
        let limit = self.budget.usd;
        for (threshold, count) in self.budget.warn_at.iter().zip(&self.warnings) {
            if before < threshold * limit && after >= threshold * limit {
                count.fetch_add(1, Ordering::Relaxed);
                let (budget, per) = (&self.budget.name, self.budget.per.as_str());
                let share = (after / limit * 1000.0).round() / 1000.0;
                tracing::warn!(%budget, per, name, usd = after, limit, share, "the spending of a budget crossed a threshold");
            }
        }
    }

    /// The names under which the call counts. There are none if the budget does not apply, or if
    /// that depends on a body that may still be read.
    fn admit(
        &self,
        caller: &Caller<'_>,
        stage: AdmissionStage,
        now: u64,
    ) -> Result<Vec<Charge>, Refusal> {
        let charges = |names: Vec<&str>| names.iter().map(|name| self.charge(name)).collect();
        let (names, unread) = match self.limit_match(caller) {
            LimitMatch::Excluded => return Ok(Vec::new()),
            LimitMatch::Names(names) => (names, None),
            LimitMatch::DependsOnBody if stage == AdmissionStage::Early => return Ok(Vec::new()),
            LimitMatch::DependsOnBody => {
                self.counts.unreadable.fetch_add(1, Ordering::Relaxed);
                if self.budget.on_unreadable == OnUnreadable::Refuse {
                    let what = format!("budget {}", self.budget.name);
                    self.refuse(stage, || Refusal::unreadable(&what, caller.unread))?;
                    // In shadow mode the call continues, and its cost counts.
                    let key = self.budget.per.limit_key(caller);
                    return Ok(charges(key.without_body()));
                }
                (
                    self.budget.per.limit_key(caller).without_body(),
                    caller.unread,
                )
            }
        };
        let charges: Vec<Charge> = charges(names);
        self.check(&charges, stage, now)
            .map_err(|refusal| refusal.for_lack_of_memory(unread))?;
        Ok(charges)
    }

    fn charge(&self, name: &str) -> Charge {
        Charge {
            budget: Arc::clone(&self.budget.name),
            name: normalized_name(self.budget.per, name).into(),
        }
    }

    fn check(&self, charges: &[Charge], stage: AdmissionStage, now: u64) -> Result<(), Refusal> {
        let (most, known, period) = {
            let spent = self.spent(now);
            let most = charges.iter().map(|one| spent.of(&one.name));
            let most = most.fold(0.0, f64::max);
            // Only shared budgets need `known`.
            let shared = charges.iter().filter(|_| self.shared.is_some());
            let known: Vec<_> = shared.map(|one| spent.tracked(&one.name)).collect();
            (most, known, spent.period)
        };
        if let Some(shared) = &self.shared {
            for (charge, known) in charges.iter().zip(known) {
                shared.interest(&charge.name, period, known);
            }
            if let Some(decided) = self.decide_shared(shared, charges, period, stage, most) {
                return decided;
            }
        }
        if most < self.budget.usd {
            return Ok(());
        }
        self.refuse(stage, || {
            self.refusal(most, period.1.saturating_sub(now).max(1))
        })
    }

    /// The decision of a shared budget; `None` if the spending decides.
    fn decide_shared(
        &self,
        shared: &SharedSpending,
        charges: &[Charge],
        period: (u64, u64),
        stage: AdmissionStage,
        own: f64,
    ) -> Option<Result<(), Refusal>> {
        if !shared.enforces() {
            let all = charges.iter().map(|charge| shared.of(&charge.name, period));
            let over = own < self.budget.usd && all.fold(0.0, f64::max) >= self.budget.usd;
            let once = u64::from(over && stage == AdmissionStage::Final);
            self.counts
                .shadow_blocked
                .fetch_add(once, Ordering::Relaxed);
            return None;
        }
        if charges.is_empty() {
            return None;
        }
        if shared.admits() {
            return Some(Ok(()));
        }
        let refusal = || Refusal {
            message: format!(
                "budget {} of this proxy is shared with other processes, and their quota store does not answer; try \
                 again after `retry-after`, or ask the operator of this proxy",
                self.budget.name
            ),
            retry_after: Some(Duration::from_secs(1)),
            unread: None,
        };
        shared.refuses().then(|| self.refuse(stage, refusal))
    }

    /// Refuses the call. In shadow mode it only counts the call as refused, once.
    fn refuse(
        &self,
        stage: AdmissionStage,
        refusal: impl FnOnce() -> Refusal,
    ) -> Result<(), Refusal> {
        match self.budget.mode {
            Mode::Enforce => {
                self.counts.blocked.fetch_add(1, Ordering::Relaxed);
                Err(refusal())
            }
            Mode::Shadow => {
                let once = u64::from(stage == AdmissionStage::Final);
                self.counts
                    .shadow_blocked
                    .fetch_add(once, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn refusal(&self, used: f64, seconds: u64) -> Refusal {
        let budget = &self.budget;
        let subject = match budget.per {
            BudgetScope::All => String::new(),
            per => format!(" of this {}", per.as_str().replace('_', " ")),
        };
        Refusal {
            message: format!(
                "budget {}{subject} is spent: {used:.2} of {} USD; try again in {seconds} s, when the next period begins, or ask the operator of this proxy",
                budget.name, budget.usd,
            ),
            retry_after: Some(Duration::from_secs(seconds)),
            unread: None,
        }
    }

    fn status(&self, now: u64) -> BudgetStatus {
        let spent = self.spent(now);
        let most = spent.names().map(|(_, usd)| usd).fold(0.0, f64::max);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let warnings = self.warnings.iter().map(count);
        BudgetStatus {
            name: Arc::clone(&self.budget.name),
            spent_ratio: most / self.budget.usd,
            usd: self.total_micros.load(Ordering::Relaxed) as f64 / 1e6,
            warnings: self.budget.warn_at.iter().copied().zip(warnings).collect(),
            blocked: count(&self.counts.blocked),
            shadow_blocked: count(&self.counts.shadow_blocked),
            unreadable: count(&self.counts.unreadable),
            forgotten: spent.forgotten,
        }
    }

    /// One notification for all names above the budget's first threshold. Its severity is `page` if
    /// calls are refused because a name has spent the budget, otherwise `ticket`.
    fn notification(&self, now: u64) -> Option<AlertNotification> {
        let budget = &self.budget;
        let first = budget.warn_at.first()? * budget.usd;
        let spent = self.spent(now);
        let mut over: Vec<_> = spent.names().filter(|(_, usd)| *usd >= first).collect();
        over.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
        let (_, most) = *over.first()?;
        let refuses = budget.block && budget.mode == Mode::Enforce && most >= budget.usd;
        let share = |usd: f64| (usd / budget.usd * 100.0).floor();
        let named = over.iter().take(MAX_NAMED);
        let named: Vec<_> = named
            .map(|(name, usd)| format!("{name}: {usd:.2} USD ({:.0}%)", share(*usd)))
            .collect();
        let passed = budget
            .warn_at
            .iter()
            .rev()
            .find(|at| most >= **at * budget.usd);
        Some(AlertNotification {
            about: AlertSubject::Budget,
            slo: budget.name.to_string(),
            severity: if refuses { "page" } else { "ticket" }.to_owned(),
            firing: true,
            since: spent.period.0 as f64,
            summary: format!(
                "budget {}: {:.0}% of {} USD per {} spent, over the threshold of {:.0}%",
                budget.name,
                share(most),
                budget.usd,
                budget.period.in_words(),
                passed.unwrap_or(&0.0) * 100.0
            ),
            description: format!(
                "Names over the first threshold: {} (by {}). Highest spending: {}.{}",
                over.len(),
                budget.per.as_str(),
                named.join(", "),
                if refuses {
                    " Further calls are refused until the period ends."
                } else {
                    ""
                }
            ),
            cause: None,
            cause_known: false,
            view: format!("sessions?sort=-cost&from={}", begin_of(spent.period.0)),
            page: None,
            runbook_url: None,
            dashboard_url: None,
        })
    }
}

/// An instant in the format of the live page.
fn begin_of(seconds: u64) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    rfc3339_seconds(at).to_string()
}

impl Counts {
    fn copy_from(&self, known: &Counts) {
        let pairs = [
            (&self.blocked, &known.blocked),
            (&self.shadow_blocked, &known.shadow_blocked),
            (&self.unreadable, &known.unreadable),
        ];
        for (own, known) in pairs {
            own.store(known.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Model names are compared without case, because some upstreams ignore case.
fn normalized_name(per: BudgetScope, name: &str) -> String {
    match per {
        BudgetScope::Model => name.to_ascii_lowercase(),
        _ => name.to_owned(),
    }
}

impl Budgets {
    pub fn new(budgets: &[Budget]) -> Arc<Budgets> {
        Budgets::shared(budgets, None)
    }

    pub fn shared(budgets: &[Budget], sharing: Option<Arc<Sharing>>) -> Arc<Budgets> {
        let states = budgets.iter();
        let states = states.map(|budget| Arc::new(BudgetState::new(budget, sharing.as_ref())));
        Arc::new(Budgets {
            states: ArcSwap::from_pointee(states.collect()),
            sharing,
        })
    }

    /// The reports that are due at `now`, in seconds since 1970, for the quota store.
    pub fn reports(&self, due: Due, now: u64) -> Vec<(SpendingId, SpendingReport)> {
        let mut reports = Vec::new();
        for state in self.states.load().iter() {
            let Some(shared) = &state.shared else {
                continue;
            };
            // A budget for all calls has its only name before the first call.
            if due == Due::All && state.budget.per == BudgetScope::All {
                let spent = state.spent(now);
                let (known, period) = (spent.tracked("all"), spent.period);
                drop(spent);
                shared.interest("all", period, known);
            }
            shared.reports(&state.budget, due, &mut reports);
        }
        reports
    }

    /// Takes over the spending of all processes, in billionths of a US dollar.
    pub fn answered(&self, id: &SpendingId, report: &SpendingReport, sum: u64) {
        let states = self.states.load();
        let state = states.iter().find(|state| state.budget.name == id.budget);
        let Some((state, shared)) = state.and_then(|state| Some((state, state.shared.as_ref()?)))
        else {
            return;
        };
        let all = shared.answered(id, report, sum);
        let Some(usd) = all.filter(|_| shared.enforces()) else {
            return;
        };
        let mut periods = state.spent.lock();
        let mut all = periods.all.iter_mut();
        let Some(spent) = all.find(|one| one.period == id.period) else {
            return;
        };
        let (before, after) = spent.raise(&id.name, usd);
        drop(periods);
        state.warn(&id.name, before, after);
    }

    /// Replaces the budgets. Budgets that remain keep their spending, even if their limit changed.
    pub fn change(&self, budgets: &[Budget]) {
        let now = self.states.load();
        let states = budgets.iter().map(|budget| {
            if let Some(same) = now.iter().find(|state| state.budget == *budget) {
                return Arc::clone(same);
            }
            let mut state = BudgetState::new(budget, self.sharing.as_ref());
            if let Some(known) = now.iter().find(|state| state.is_same(budget)) {
                state.shared = known.shared.clone();
                let spent = known.spent.lock();
                *state.spent.lock() = spent.clone();
                drop(spent);
                state.counts.copy_from(&known.counts);
            }
            Arc::new(state)
        });
        self.states.store(Arc::new(states.collect()));
    }

    pub fn is_empty(&self) -> bool {
        self.states.load().is_empty()
    }

    /// Counts a call that ended at `now`, in seconds since 1970, under the names of `charges` or
    /// otherwise under the names in its record. A call without a cost counts for no budget.
    pub fn spend(&self, record: &CallRecord, charges: &[Charge], now: u64) {
        let Some(usd) = record.cost_usd.filter(|usd| *usd > 0.0) else {
            return;
        };
        let states = self.states.load();
        let spend = |state: &Arc<BudgetState>| state.spend(record, charges, usd, now);
        states.iter().for_each(spend);
    }

    /// Admits a call that begins at `now`. Returns the names under which it counts for blocking
    /// budgets.
    ///
    /// # Errors
    /// Why the call is refused.
    pub fn admit(
        &self,
        caller: &Caller<'_>,
        stage: AdmissionStage,
        now: u64,
    ) -> Result<Vec<Charge>, Refusal> {
        let states = self.states.load();
        let blocking = states.iter().filter(|state| state.budget.block);
        let mut charges = Vec::new();
        for state in blocking {
            charges.append(&mut state.admit(caller, stage, now)?);
        }
        Ok(charges)
    }

    /// Whether a blocking budget may depend on request bodies.
    pub fn may_depend_on_bodies(&self) -> bool {
        let states = self.states.load();
        states.iter().any(|state| {
            let Budget { per, select, .. } = &state.budget;
            state.budget.block && (!per.is_of_head() || depends_on_bodies(select))
        })
    }

    /// Whether the body decides if a blocking budget applies to the call.
    pub fn depend_on_body(&self, caller: &Caller<'_>) -> bool {
        let states = self.states.load();
        let mut blocking = states.iter().filter(|state| state.budget.block);
        blocking.any(|state| state.limit_match(caller) == LimitMatch::DependsOnBody)
    }

    pub fn statuses(&self, now: u64) -> Vec<BudgetStatus> {
        let states = self.states.load();
        states.iter().map(|state| state.status(now)).collect()
    }

    pub fn notifications(&self, now: u64) -> Vec<AlertNotification> {
        let states = self.states.load();
        states
            .iter()
            .filter_map(|state| state.notification(now))
            .collect()
    }
}

impl Subscriber for Budgets {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let ended = finished_call.timestamps.wall(finished_call.ended);
        self.spend(
            &finished_call.record,
            &finished_call.charges,
            whole_seconds_since_1970(ended),
        );
    }
}
