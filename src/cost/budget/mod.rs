//! Spending budgets: so much money per period for each session, agent, workload or model.
//! They warn, and refuse further calls only where that is configured. A call counts when
//! it is over: what is under way may still overspend. Time is an argument.

mod kept;
mod period;
mod spent;
#[cfg(test)]
mod tests;

use crate::call::CallRecord;
use crate::meter::{Finding, Subscriber};
use crate::slo::{About, Names, Notice, Selector};
use arc_swap::ArcSwap;
use spent::Spent;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use kept::{Kept, Store};
pub use period::Period;

/// Budgets of one process.
pub const MAX_BUDGETS: usize = 16;
/// Thresholds of one budget.
pub const MAX_WARNINGS: usize = 8;
/// Names that a notice gives.
const TOLD: usize = 3;

/// What may be spent.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Its name; the `budget` label.
    pub name: Arc<str>,
    /// Who has one of their own.
    pub per: Per,
    /// Which calls count.
    pub select: Selector,
    /// What may be spent in a period, in US dollars.
    pub usd: f64,
    /// When there is new money.
    pub period: Period,
    /// Shares of it at which somebody is told, ascending.
    pub warn_at: Vec<f64>,
    /// Whether calls are refused when it is spent.
    pub block: bool,
}

/// Who has a budget of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Nobody: it is for all calls together.
    #[default]
    All,
    /// Each session.
    Session,
    /// Each agent.
    Agent,
    /// Each user.
    User,
    /// Each workload.
    Workload,
    /// Each model, by the name that was asked for.
    Model,
}

impl Per {
    /// Its word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Per::All => "all",
            Per::Session => "session",
            Per::Agent => "agent",
            Per::User => "user",
            Per::Workload => "workload",
            Per::Model => "model",
        }
    }

    fn name<'a>(self, caller: &Caller<'a>) -> Option<&'a str> {
        match self {
            Per::All => Some("all"),
            Per::Session => caller.session,
            Per::Agent => caller.names.agent,
            Per::User => caller.user,
            Per::Workload => caller.names.workload,
            Per::Model => caller.names.model,
        }
    }
}

/// Who makes a call, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// What selectors look at; the model is the one asked for.
    pub names: Names<'a>,
    /// The session.
    pub session: Option<&'a str>,
    /// The user.
    pub user: Option<&'a str>,
}

impl<'a> Caller<'a> {
    fn of(record: &'a CallRecord) -> Caller<'a> {
        let asked = record.model_requested.as_deref();
        Caller {
            names: Names {
                workload: record.workload.as_deref(),
                route: &record.route,
                upstream: &record.upstream,
                model: asked.or(record.model.as_deref()),
                agent: record.agent.as_deref(),
            },
            session: record.session.as_deref(),
            user: record.user.as_deref(),
        }
    }
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// One sentence for the agent's log.
    pub message: String,
    /// How long until there is new money.
    pub retry_after: Duration,
}

/// How a budget stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Its name.
    pub name: Arc<str>,
    /// The largest share that any one has spent in this period.
    pub spent_ratio: f64,
    /// Spent since the start of the process, in US dollars.
    pub usd: f64,
    /// How often each threshold was passed.
    pub warnings: Vec<(f64, u64)>,
    /// Calls that were refused.
    pub blocked: u64,
    /// Names that were forgotten because there were too many.
    pub forgotten: u64,
}

/// All budgets with what was spent of them.
#[derive(Debug, Default)]
pub struct Budgets {
    lines: ArcSwap<Vec<Arc<Line>>>,
}

#[derive(Debug)]
struct Line {
    budget: Budget,
    spent: Mutex<Spent>,
    /// Micro-dollars since the start of the process.
    ever: AtomicU64,
    warnings: Vec<AtomicU64>,
    blocked: AtomicU64,
}

impl Line {
    fn new(budget: &Budget) -> Line {
        Line {
            budget: budget.clone(),
            spent: Mutex::default(),
            ever: AtomicU64::new(0),
            warnings: budget.warn_at.iter().map(|_| AtomicU64::new(0)).collect(),
            blocked: AtomicU64::new(0),
        }
    }

    /// Whether money spent of one is money spent of the other.
    fn is(&self, budget: &Budget) -> bool {
        let own = &self.budget;
        (&own.name, own.per, own.period) == (&budget.name, budget.per, budget.period)
            && own.select == budget.select
    }

    /// What was spent in the period of `now`.
    fn spent(&self, now: u64) -> MutexGuard<'_, Spent> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.follow(self.budget.period.around(now));
        spent
    }

    fn spend(&self, caller: &Caller<'_>, usd: f64, now: u64) {
        if !self.budget.select.matches(&caller.names) {
            return;
        }
        let Some(name) = self.budget.per.name(caller) else {
            return;
        };
        let (before, after) = self.spent(now).add(name, usd);
        self.ever
            .fetch_add((usd * 1e6).round() as u64, Ordering::Relaxed);
        let limit = self.budget.usd;
        for (threshold, count) in self.budget.warn_at.iter().zip(&self.warnings) {
            if before < threshold * limit && after >= threshold * limit {
                count.fetch_add(1, Ordering::Relaxed);
                let (budget, per) = (&self.budget.name, self.budget.per.as_str());
                let share = (after / limit * 1000.0).round() / 1000.0;
                tracing::warn!(%budget, per, name, usd = after, limit, share, "a budget is spent up to a threshold");
            }
        }
    }

    fn refusal(&self, caller: &Caller<'_>, now: u64) -> Option<Refusal> {
        let budget = &self.budget;
        let name = budget.per.name(caller).filter(|_| budget.block)?;
        if !budget.select.matches(&caller.names) {
            return None;
        }
        let spent = self.spent(now);
        let used = spent.of(name);
        if used < budget.usd {
            return None;
        }
        self.blocked.fetch_add(1, Ordering::Relaxed);
        let retry_after = Duration::from_secs(spent.period.1.saturating_sub(now).max(1));
        let whose = match budget.per {
            Per::All => String::new(),
            per => format!(" of this {}", per.as_str()),
        };
        Some(Refusal {
            message: format!(
                "budget {}{whose} is spent: {used:.2} of {} USD; there is new money in {} s, or ask the operator of this proxy",
                budget.name,
                budget.usd,
                retry_after.as_secs()
            ),
            retry_after,
        })
    }

    /// Whether the body may tell what decides.
    fn depends_on_body(&self, known: &Caller<'_>) -> bool {
        let budget = &self.budget;
        let asks_model = budget.select.model.is_some()
            || budget.select.workload.is_some()
            || matches!(budget.per, Per::Workload | Per::Model);
        let unknown = (asks_model && known.names.model.is_none())
            || budget.per.name(known).is_none()
            || (budget.select.agent.is_some() && known.names.agent.is_none());
        budget.block && unknown
    }

    fn standing(&self, now: u64) -> Standing {
        let spent = self.spent(now);
        let most = spent.names().map(|(_, usd)| usd).fold(0.0, f64::max);
        let counts = self
            .warnings
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        Standing {
            name: Arc::clone(&self.budget.name),
            spent_ratio: most / self.budget.usd,
            usd: self.ever.load(Ordering::Relaxed) as f64 / 1e6,
            warnings: self.budget.warn_at.iter().copied().zip(counts).collect(),
            blocked: self.blocked.load(Ordering::Relaxed),
            forgotten: spent.forgotten,
        }
    }

    /// One notice for all who passed the first threshold; a page where the last one is
    /// passed and calls are refused.
    fn notice(&self, now: u64) -> Option<Notice> {
        let budget = &self.budget;
        let first = budget.warn_at.first()? * budget.usd;
        let spent = self.spent(now);
        let mut over: Vec<_> = spent.names().filter(|(_, usd)| *usd >= first).collect();
        over.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
        let (_, most) = *over.first()?;
        let refuses = budget.block && most >= budget.usd;
        let share = |usd: f64| (usd / budget.usd * 100.0).floor();
        let told = over.iter().take(TOLD);
        let told: Vec<_> = told
            .map(|(name, usd)| format!("{name}: {usd:.2} USD ({:.0}%)", share(*usd)))
            .collect();
        let passed = budget
            .warn_at
            .iter()
            .rev()
            .find(|at| most >= **at * budget.usd);
        Some(Notice {
            about: About::Budget,
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
                "{} by {}: {}.{}",
                over.len(),
                budget.per.as_str(),
                told.join(", "),
                if refuses {
                    " Further calls are refused until the period ends."
                } else {
                    ""
                }
            ),
            runbook_url: None,
            dashboard_url: None,
        })
    }
}

impl Budgets {
    /// Nothing spent of any of `budgets`.
    pub fn new(budgets: &[Budget]) -> Arc<Budgets> {
        let lines = budgets.iter().map(|budget| Arc::new(Line::new(budget)));
        Arc::new(Budgets {
            lines: ArcSwap::from_pointee(lines.collect()),
        })
    }

    /// Other budgets from now on. Those that stay go on, and one with another limit has
    /// spent what it had.
    pub fn change(&self, budgets: &[Budget]) {
        let now = self.lines.load();
        let lines = budgets.iter().map(|budget| {
            if let Some(same) = now.iter().find(|line| line.budget == *budget) {
                return Arc::clone(same);
            }
            let line = Line::new(budget);
            if let Some(known) = now.iter().find(|line| line.is(budget)) {
                let spent = known.spent.lock().unwrap_or_else(PoisonError::into_inner);
                *line.spent.lock().unwrap_or_else(PoisonError::into_inner) = spent.clone();
            }
            Arc::new(line)
        });
        self.lines.store(Arc::new(lines.collect()));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lines.load().is_empty()
    }

    /// A call is over at `now`, seconds since 1970. One without a cost costs no budget.
    pub fn spend(&self, record: &CallRecord, now: u64) {
        let Some(usd) = record.cost_usd.filter(|usd| *usd > 0.0) else {
            return;
        };
        let caller = Caller::of(record);
        let lines = self.lines.load();
        lines.iter().for_each(|line| line.spend(&caller, usd, now));
    }

    /// Why a call that begins at `now` may not go on; `None` where it may.
    pub fn refusal(&self, caller: &Caller<'_>, now: u64) -> Option<Refusal> {
        let lines = self.lines.load();
        lines.iter().find_map(|line| line.refusal(caller, now))
    }

    /// Whether the body of the call may tell what decides.
    pub fn depend_on_body(&self, known: &Caller<'_>) -> bool {
        let lines = self.lines.load();
        lines.iter().any(|line| line.depends_on_body(known))
    }

    /// How each stands at `now`.
    pub fn standings(&self, now: u64) -> Vec<Standing> {
        let lines = self.lines.load();
        lines.iter().map(|line| line.standing(now)).collect()
    }

    /// What receivers are to be told at `now`.
    pub fn notices(&self, now: u64) -> Vec<Notice> {
        let lines = self.lines.load();
        lines.iter().filter_map(|line| line.notice(now)).collect()
    }
}

/// Seconds since 1970.
pub fn seconds_since_1970(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Subscriber for Budgets {
    fn finished(&self, finding: &Arc<Finding>) {
        let ended = finding.moments.wall(finding.ended);
        self.spend(&finding.record, seconds_since_1970(ended));
    }
}
