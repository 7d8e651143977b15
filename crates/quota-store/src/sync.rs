//! The thread that reports usage to the quota store and takes leases. It has a separate runtime, so that the quota
//! store cannot delay traffic.

use crate::alerts::AlertClaims;
use crate::client::{Client, ClientError, Invocation, Script, numbers, text_number};
use crate::keys;
use crate::settings::Settings;
use redis::Value;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_accounting::Accounting;
use tokengauge_accounting::cost::budget::{SpendingId, SpendingReport};
use tokengauge_accounting::quota::{Due, LeaseResponse, LimitId, LimitReport};
use tokengauge_accounting::sharing::Sharing;
use tokengauge_core::background::{self, BackgroundWork};
use tokengauge_core::backoff;
use tokengauge_core::time::whole_seconds_since_1970;
use tokio::sync::{Notify, watch};

/// Maximum number of scripts in one request.
const MAX_BATCH: usize = 500;
/// Minimum time between two requests.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// Maximum time between two attempts while the quota store is unreachable.
const MAX_RETRY: Duration = Duration::from_secs(2);
/// How long a sum of spending is kept after its period.
const KEEP_SPENDING: Duration = Duration::from_secs(3600);
/// Minimum time between two log lines about an unreachable quota store.
const LOG_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct QuotaStore {
    end: watch::Sender<bool>,
    thread: parking_lot::Mutex<Option<JoinHandle<()>>>,
    pub alerts: AlertClaims,
}

impl QuotaStore {
    /// Checks that [`QuotaStore::start`] could use the files of the settings.
    ///
    /// # Errors
    /// Why not.
    pub fn check(settings: &Settings) -> io::Result<()> {
        let client = Client::new(&Arc::new(settings.clone()));
        client.map(drop).map_err(io::Error::other)
    }

    /// Starts the thread. It calls `accounting` for the current limits before each report.
    ///
    /// # Errors
    /// Returns an error if a file of the settings cannot be used or the thread cannot be started.
    pub fn start(
        settings: Settings,
        sharing: Arc<Sharing>,
        accounting: impl Fn() -> Option<Arc<Accounting>> + Send + 'static,
        wall: fn() -> SystemTime,
    ) -> io::Result<QuotaStore> {
        let settings = Arc::new(settings);
        let process = uuid::Uuid::new_v4().simple().to_string();
        let client = || Client::new(&settings).map_err(io::Error::other);
        let (end, ends) = watch::channel(false);
        let notify = Arc::new(Notify::new());
        let notified = Arc::clone(&notify);
        sharing.on_wake(move || notified.notify_one());
        let sync = Sync {
            client: client()?,
            process: process.clone(),
            settings: Arc::clone(&settings),
            sharing,
            accounting,
            wall,
            logged: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let run = move || runtime.block_on(sync.run(notify, ends));
        let thread = background::spawn("quota-store", BackgroundWork::Steady, run)?;
        Ok(QuotaStore {
            end,
            thread: parking_lot::Mutex::new(Some(thread)),
            alerts: AlertClaims::new(client()?, settings, process),
        })
    }

    /// Returns all leases and ends the thread. Blocks, at most for `within`. Returns whether the thread ended.
    pub fn finish(&self, within: Duration) -> bool {
        const LOOK: Duration = Duration::from_millis(10);
        self.end.send_replace(true);
        let Some(thread) = self.thread.lock().take() else {
            return true;
        };
        let deadline = Instant::now() + within;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        thread.is_finished()
    }
}

struct Sync<A> {
    client: Client,
    process: String,
    settings: Arc<Settings>,
    sharing: Arc<Sharing>,
    accounting: A,
    wall: fn() -> SystemTime,
    /// When the log last reported that the quota store is unreachable. `None` while it answers.
    logged: Option<Instant>,
}

enum Report {
    Limit(LimitId, LimitReport),
    Spending(SpendingId, SpendingReport),
}

impl<A: Fn() -> Option<Arc<Accounting>>> Sync<A> {
    async fn run(mut self, notify: Arc<Notify>, mut ends: watch::Receiver<bool>) {
        let interval = self.sharing.settings().interval();
        let mut next = Instant::now();
        let mut failures = 0;
        loop {
            let until = next.into();
            let due = tokio::select! {
                _ = ends.changed() => Due::End,
                () = tokio::time::sleep_until(until) => Due::All,
                () = notify.notified() => Due::Urgent,
            };
            let answered = self.sync(due).await;
            if due == Due::End {
                return;
            }
            if !answered {
                next = Instant::now() + backoff::delay(failures, interval, MAX_RETRY);
                failures += 1;
                tokio::select! {
                    _ = ends.changed() => {
                        self.sync(Due::End).await;
                        return;
                    }
                    () = tokio::time::sleep_until(next.into()) => {}
                }
                continue;
            }
            failures = 0;
            if due == Due::All {
                next = Instant::now() + interval;
            }
            tokio::time::sleep(MIN_PAUSE).await;
        }
    }

    /// Reports what is due. Returns whether the quota store answered.
    async fn sync(&mut self, due: Due) -> bool {
        let Some(accounting) = (self.accounting)() else {
            return true;
        };
        let now = whole_seconds_since_1970((self.wall)());
        let limits = accounting.quotas.reports(due).into_iter();
        let limits = limits.map(|(id, report)| Report::Limit(id, report));
        let spending = accounting.budgets.reports(due, now).into_iter();
        let spending = spending.map(|(id, report)| Report::Spending(id, report));
        let reports: Vec<_> = limits.chain(spending).collect();
        if reports.is_empty() && due == Due::All {
            // A ping finds an unreachable quota store before a limit needs it.
            return self.send(&accounting, &[], now).await;
        }
        for batch in reports.chunks(MAX_BATCH) {
            if !self.send(&accounting, batch, now).await {
                return false;
            }
        }
        true
    }

    async fn send(&mut self, accounting: &Accounting, reports: &[Report], now: u64) -> bool {
        let scripts: Vec<_> = reports.iter().map(|one| self.script(one, now)).collect();
        let sent = self.sharing.now();
        let answers = self.client.run(&scripts).await;
        let applied = answers.and_then(|answers| {
            let mut pairs = reports.iter().zip(&answers);
            pairs.try_for_each(|(report, response)| apply(accounting, report, response, sent))
        });
        match applied {
            Ok(()) => {
                self.sharing.answered(sent);
                if self.logged.take().is_some() {
                    tracing::info!(store = %self.settings.address, "the quota store answers again");
                }
                true
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    fn failed(&mut self, error: &ClientError) {
        self.sharing.failed(error.to_string());
        let now = Instant::now();
        if self
            .logged
            .is_some_and(|at| now.duration_since(at) < LOG_EVERY)
        {
            return;
        }
        self.logged = Some(now);
        let on_error = self.sharing.settings().on_error.as_str();
        tracing::warn!(
            store = %self.settings.address,
            %error,
            on_error,
            "the quota store does not answer; until it answers, `on_error` decides how limits are applied"
        );
    }

    fn script(&self, report: &Report, now: u64) -> Invocation {
        let (prefix, process) = (&self.settings.prefix, &self.process);
        let lifetime = self
            .sharing
            .settings()
            .expires_after()
            .as_millis()
            .to_string();
        match report {
            Report::Limit(id, LimitReport::Rate(report)) => Invocation {
                script: Script::Rate,
                key: keys::limit(prefix, id),
                arguments: vec![
                    report.per_minute.to_string(),
                    report.worth.to_string(),
                    process.clone(),
                    report.used.to_string(),
                    report.acknowledged.to_string(),
                    report.want.to_string(),
                    lifetime,
                ],
            },
            Report::Limit(id, LimitReport::Slots(report)) => Invocation {
                script: Script::Slots,
                key: keys::limit(prefix, id),
                arguments: vec![
                    report.limit.to_string(),
                    process.clone(),
                    report.in_use.to_string(),
                    report.want.to_string(),
                    lifetime,
                ],
            },
            Report::Spending(id, report) => {
                let left = Duration::from_secs(id.period.1.saturating_sub(now)) + KEEP_SPENDING;
                Invocation {
                    script: Script::Spending,
                    key: keys::spending(prefix, id),
                    arguments: vec![
                        process.clone(),
                        report.sequence.to_string(),
                        report.nanos.to_string(),
                        report.known.to_string(),
                        left.as_millis().to_string(),
                    ],
                }
            }
        }
    }
}

fn apply(
    accounting: &Accounting,
    report: &Report,
    response: &Value,
    sent: Instant,
) -> Result<(), ClientError> {
    match report {
        Report::Limit(id, report) => {
            let (held, free, retry) = match report {
                LimitReport::Rate(_) => numbers::<3>(response)?.into(),
                LimitReport::Slots(_) => {
                    let [held, free] = numbers(response)?;
                    (held, free, 0)
                }
            };
            let positive = |number: i64| u64::try_from(number).unwrap_or(0);
            let response = LeaseResponse {
                held: positive(held),
                free,
                retry: Duration::from_millis(positive(retry)),
            };
            accounting.quotas.answered(id, report, response, sent);
        }
        Report::Spending(id, report) => {
            let sum = text_number(response)?;
            accounting.budgets.answered(id, report, sum);
        }
    }
    Ok(())
}
