//! Spending that several processes share: the reports of this process to the quota store, and the
//! spending of all processes. Amounts are in billionths of a US dollar, so that calls of cheap
//! models count too.

use super::Budget;
use super::spent::MAX_NAMES;
use crate::quota::Due;
use crate::sharing::{OnError, QuotaStoreState, Sharing};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const INTEREST: Duration = Duration::from_secs(10);

/// Identifies the spending of one name in one period in the quota store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpendingId {
    pub budget: Arc<str>,
    pub per: &'static str,
    /// Start and end, in seconds since 1970.
    pub period: (u64, u64),
    /// The session, user, key or other name. The quota store gets only a hash of it.
    pub name: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendingReport {
    /// The number of the report. The quota store counts each report of a process once.
    pub sequence: u64,
    /// The spending since the previous report, in billionths of a US dollar.
    pub nanos: u64,
    /// The known spending of all processes. It restores a quota store that lost its data.
    pub known: u64,
}

#[derive(Debug)]
struct Contribution {
    period: (u64, u64),
    pending: u64,
    /// The report that has not been answered. It is repeated unchanged.
    reported: Option<SpendingReport>,
    known: u64,
    urgent: bool,
    last_use: Instant,
}

#[derive(Debug)]
pub(super) struct SharedSpending {
    sharing: Arc<Sharing>,
    names: Mutex<HashMap<Box<str>, Vec<Contribution>>>,
}

impl SharedSpending {
    pub(super) fn new(sharing: &Arc<Sharing>) -> Arc<SharedSpending> {
        Arc::new(SharedSpending {
            sharing: Arc::clone(sharing),
            names: Mutex::default(),
        })
    }

    /// Whether the spending of other processes counts here, or is only compared.
    pub(super) fn enforces(&self) -> bool {
        self.sharing.enforces()
    }

    /// Whether calls must be refused because the quota store does not respond.
    pub(super) fn refuses(&self) -> bool {
        self.is_away(OnError::Closed)
    }

    /// Whether calls must be admitted because the quota store does not respond.
    pub(super) fn admits(&self) -> bool {
        self.is_away(OnError::Open)
    }

    fn is_away(&self, on_error: OnError) -> bool {
        let away = self.sharing.state(self.sharing.now()) == QuotaStoreState::Away(on_error);
        if away {
            self.sharing.count_fallback();
        }
        away
    }

    /// Adds `usd` to the spending of `name` in `period`. `known` is the spending of all processes
    /// before.
    pub(super) fn add(&self, name: &str, period: (u64, u64), usd: f64, known: f64) {
        let nanos = nanos(usd);
        self.with(name, period, known, |contribution| {
            contribution.pending += nanos;
            contribution.urgent = true;
            true
        });
    }

    /// Asks the quota store about `name`, because one of its calls needs a decision.
    pub(super) fn interest(&self, name: &str, period: (u64, u64), known: f64) {
        self.with(name, period, known, |_| false);
    }

    fn with(
        &self,
        name: &str,
        period: (u64, u64),
        known: f64,
        change: impl FnOnce(&mut Contribution) -> bool,
    ) {
        let now = self.sharing.now();
        // In shadow mode the count of this process does not concern other processes.
        let known = if self.enforces() { known } else { 0.0 };
        let mut names = self.names.lock();
        if !names.contains_key(name) && names.len() >= MAX_NAMES {
            return self.sharing.count_untracked();
        }
        let all = match names.get_mut(name) {
            Some(all) => all,
            None => names.entry(name.into()).or_default(),
        };
        let found = all.iter().position(|one| one.period == period);
        let new = found.is_none();
        let at = found.unwrap_or_else(|| {
            all.push(Contribution {
                period,
                pending: 0,
                reported: None,
                known: nanos(known),
                urgent: true,
                last_use: now,
            });
            all.len() - 1
        });
        let contribution = &mut all[at];
        // Nothing asked about this name recently.
        let stale = self.is_idle(contribution, now);
        contribution.urgent |= stale;
        contribution.last_use = now;
        let wake = change(contribution) || new || stale;
        drop(names);
        if wake {
            self.sharing.wake();
        }
    }

    fn is_idle(&self, contribution: &Contribution, now: Instant) -> bool {
        now.saturating_duration_since(contribution.last_use) > self.sharing.settings().lease
    }

    pub(super) fn of(&self, name: &str, period: (u64, u64)) -> f64 {
        let names = self.names.lock();
        let all = names.get(name).into_iter().flatten();
        let found = all.into_iter().find(|one| one.period == period);
        found.map_or(0.0, |one| usd(one.total()))
    }

    pub(super) fn reports(
        &self,
        budget: &Budget,
        due: Due,
        reports: &mut Vec<(SpendingId, SpendingReport)>,
    ) {
        let now = self.sharing.now();
        let mut names = self.names.lock();
        if due != Due::Urgent {
            names.retain(|_, all| {
                all.retain(|one| {
                    one.is_open() || now.saturating_duration_since(one.last_use) < INTEREST
                });
                !all.is_empty()
            });
        }
        for (name, all) in names.iter_mut() {
            for one in all {
                let wanted = match due {
                    Due::Urgent => one.urgent,
                    Due::All => one.is_open() || !self.is_idle(one, now),
                    Due::End => one.is_open(),
                };
                if !wanted {
                    continue;
                }
                one.urgent = false;
                let id = SpendingId {
                    budget: Arc::clone(&budget.name),
                    per: budget.per.as_str(),
                    period: one.period,
                    name: name.clone(),
                };
                reports.push((id, one.report(|| self.sharing.next_sequence())));
            }
        }
    }

    /// Takes over the spending of all processes, in billionths of a US dollar. Returns it plus the
    /// unreported spending, in US dollars.
    pub(super) fn answered(
        &self,
        id: &SpendingId,
        report: &SpendingReport,
        sum: u64,
    ) -> Option<f64> {
        let mut names = self.names.lock();
        let mut all = names.get_mut(&id.name).into_iter().flatten();
        let one = all.find(|one| one.period == id.period)?;
        if one
            .reported
            .is_some_and(|sent| sent.sequence == report.sequence)
        {
            one.reported = None;
        }
        one.known = sum;
        // Spending during the report is sent with the next report.
        one.urgent |= one.pending > 0;
        Some(usd(one.total()))
    }
}

impl Contribution {
    fn is_open(&self) -> bool {
        self.pending > 0 || self.reported.is_some_and(|sent| sent.nanos > 0)
    }

    fn total(&self) -> u64 {
        let sent = self.reported.map_or(0, |sent| sent.nanos);
        self.known + sent + self.pending
    }

    fn report(&mut self, sequence: impl FnOnce() -> u64) -> SpendingReport {
        let known = self.known;
        *self.reported.get_or_insert_with(|| SpendingReport {
            sequence: sequence(),
            nanos: std::mem::take(&mut self.pending),
            known,
        })
    }
}

fn nanos(usd: f64) -> u64 {
    (usd * 1e9).round() as u64
}

fn usd(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
