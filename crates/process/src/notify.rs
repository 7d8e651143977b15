use crate::ProcessError;
use crate::page_link::PageLink;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokengauge_accounting::cost::budget::Budgets;
use tokengauge_config::Config;
use tokengauge_core::background::{self, BackgroundWork};
use tokengauge_core::time::whole_seconds_since_1970;
use tokengauge_net::client::fetch;
use tokengauge_quota_store::{AlertState, Claim, QuotaStore};
use tokengauge_sessions::SessionWatch;
use tokengauge_slo::{
    AlertNotification, DeliveryState, Destination, FiringAlerts, Outbox, Receiver, Slos, messages,
};
use tokengauge_telemetry::export::registry::Counter;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long a claim on an alert is valid in the quota store. If the process that holds it is killed, another process
/// sends due notifications after this time plus one check.
const CLAIM_HOLDS: Duration = Duration::from_secs(15);
const TIMEOUT: Duration = Duration::from_secs(10);

struct Channel {
    receiver: Receiver,
    secrets: Secrets,
    watch: FiringAlerts,
    outbox: Outbox,
    delivery_state: Option<Arc<DeliveryState>>,
    budgets: Arc<Budgets>,
    session_watch: Arc<SessionWatch>,
    page: PageLink,
    failures: Counter,
    /// Set if processes coordinate who sends.
    quota_store: Option<Arc<QuotaStore>>,
}

/// The receivers. Each one has a separate task, so that a slow receiver does not delay others.
pub(crate) struct Receivers {
    slos: Arc<Slos>,
    budgets: Arc<Budgets>,
    session_watch: Arc<SessionWatch>,
    /// The file that records what was sent. `None` without a state directory.
    delivery_state: Option<Arc<DeliveryState>>,
    page: PageLink,
    failures: Box<dyn Fn(&'static str) -> Counter + Send + Sync>,
    quota_store: Option<Arc<QuotaStore>>,
    running: Vec<(Receiver, JoinHandle<()>)>,
}

/// The receivers of a new configuration, with all files read.
pub(crate) struct PreparedReceivers {
    wanted: Vec<Receiver>,
    channels: Vec<Channel>,
}

pub(crate) fn delivery_state(config: &Config) -> Result<Option<DeliveryState>, ProcessError> {
    let opened = config.state_dir.as_deref().map(DeliveryState::open);
    opened.transpose().map_err(|error| unusable(&error))
}

pub(crate) fn check_state(config: &Config) -> Result<(), ProcessError> {
    let checked = config.state_dir.as_deref().map(DeliveryState::check);
    checked
        .transpose()
        .map(drop)
        .map_err(|error| unusable(&error))
}

pub(crate) fn check(config: &Config) -> Result<(), ProcessError> {
    config
        .receivers
        .iter()
        .map(Secrets::of)
        .try_for_each(|read| read.map(drop))
}

fn unusable(error: &io::Error) -> ProcessError {
    ProcessError::Configuration(format!("state_dir: {error}"))
}

impl Receivers {
    pub(crate) fn new(
        slos: &Arc<Slos>,
        budgets: &Arc<Budgets>,
        session_watch: &Arc<SessionWatch>,
        delivery_state: Option<DeliveryState>,
        page: PageLink,
        failures: impl Fn(&'static str) -> Counter + Send + Sync + 'static,
        quota_store: Option<Arc<QuotaStore>>,
    ) -> Receivers {
        Receivers {
            slos: Arc::clone(slos),
            budgets: Arc::clone(budgets),
            session_watch: Arc::clone(session_watch),
            delivery_state: delivery_state.map(Arc::new),
            page,
            failures: Box::new(failures),
            quota_store,
            running: Vec::new(),
        }
    }

    pub(crate) fn prepare(&self, wanted: &[Receiver]) -> Result<PreparedReceivers, ProcessError> {
        let new = wanted.iter().filter(|wanted| !self.is_running(wanted));
        Ok(PreparedReceivers {
            channels: new.map(|new| self.channel(new)).collect::<Result<_, _>>()?,
            wanted: wanted.to_vec(),
        })
    }

    /// Needs a runtime.
    pub(crate) fn change(&mut self, next: PreparedReceivers) {
        self.running.retain(|(receiver, task)| {
            let stays = next.wanted.contains(receiver);
            if !stays {
                task.abort();
            }
            stays
        });
        for channel in next.channels {
            let receiver = channel.receiver.clone();
            let task = tokio::spawn(channel.run(Arc::clone(&self.slos)));
            self.running.push((receiver, task));
        }
    }

    fn is_running(&self, receiver: &Receiver) -> bool {
        self.running.iter().any(|(known, _)| known == receiver)
    }

    fn channel(&self, receiver: &Receiver) -> Result<Channel, ProcessError> {
        let delivery_state = self.delivery_state.as_ref();
        let outbox = delivery_state.map(|delivery_state| delivery_state.of(&receiver.name));
        Ok(Channel {
            secrets: Secrets::of(receiver)?,
            watch: FiringAlerts::default(),
            outbox: outbox.unwrap_or_default(),
            delivery_state: self.delivery_state.clone(),
            budgets: Arc::clone(&self.budgets),
            session_watch: Arc::clone(&self.session_watch),
            page: self.page.clone(),
            failures: (self.failures)(receiver.kind.as_str()),
            quota_store: self.quota_store.clone(),
            receiver: receiver.clone(),
        })
    }
}

/// Parts of a notification request that may be read from files.
struct Secrets {
    url: String,
    routing_key: String,
}

impl Secrets {
    fn of(receiver: &Receiver) -> Result<Secrets, ProcessError> {
        Ok(Secrets {
            url: match &receiver.url {
                Destination::Url(url) => url.clone(),
                Destination::File(file) => secret(&receiver.name, file)?,
            },
            routing_key: match &receiver.routing_key_file {
                Some(file) => secret(&receiver.name, file)?,
                None => String::new(),
            },
        })
    }
}

fn secret(name: &str, file: &Path) -> Result<String, ProcessError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        ProcessError::Configuration(format!("notify `{name}`: {}: {error}", file.display()))
    })?;
    match text.trim() {
        "" => Err(ProcessError::Configuration(format!(
            "notify `{name}`: {} is empty",
            file.display()
        ))),
        text => Ok(text.to_owned()),
    }
}

impl Channel {
    async fn run(mut self, slos: Arc<Slos>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            look_for_causes(&slos).await;
            let statuses = slos.status(Instant::now());
            let wanted = self.receiver.severity.map(|severity| severity.as_str());
            let mut firing = self.watch.step(now(), &statuses);
            firing.extend(
                self.budgets
                    .notifications(whole_seconds_since_1970(SystemTime::now())),
            );
            firing.extend(self.session_watch.notification(Instant::now()));
            firing.retain(|notice| wanted.is_none_or(|wanted| notice.severity == wanted));
            self.page.add_to(&mut firing);
            self.send_alerts(&firing).await;
        }
    }

    async fn send_alerts(&mut self, firing: &[AlertNotification]) {
        let due = self.outbox.due(now(), firing, self.receiver.repeat);
        let due = self.claimed(firing, due).await;
        if due.is_empty() {
            return;
        }
        self.read_secrets().await;
        let (kind, secrets) = (self.receiver.kind, &self.secrets);
        let messages = match messages(kind, &secrets.url, &secrets.routing_key, now(), &due) {
            Ok(messages) => messages,
            Err(error) => return self.failed(&format!("its URL is invalid: {error}"), None),
        };
        for (request, notices) in messages {
            match fetch(request, TIMEOUT).await {
                Ok(response) if response.status.is_success() => {
                    self.outbox.sent(now(), &notices);
                    self.keep().await;
                    self.tell_others(&notices).await;
                }
                Ok(response) => {
                    let reason = format!("answered {}", response.status.as_u16());
                    return self.failed(&reason, response.retry_after());
                }
                Err(error) => return self.failed(&error.to_string(), None),
            }
        }
    }

    /// Reads the files again, because they may have been replaced. On an error, the previous values are used.
    async fn read_secrets(&mut self) {
        let receiver = self.receiver.clone();
        match tokio::task::spawn_blocking(move || Secrets::of(&receiver)).await {
            Ok(Ok(secrets)) => self.secrets = secrets,
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read the files of a receiver again; the previous values are used")
            }
            Err(_) => {}
        }
    }

    /// Returns the notifications in `due` that this process must send. Other processes that share the quota store send
    /// the rest, or have sent it.
    async fn claimed(
        &mut self,
        firing: &[AlertNotification],
        due: Vec<AlertNotification>,
    ) -> Vec<AlertNotification> {
        let Some(quota_store) = self.quota_store.clone() else {
            return due;
        };
        let wanted: HashSet<_> = due.iter().map(AlertNotification::key).collect();
        // Alerts without a due notification are also reported, so that other processes know that they fire here.
        let quiet = firing
            .iter()
            .filter(|notice| !wanted.contains(&notice.key()));
        let all: Vec<_> = due.iter().chain(quiet).cloned().collect();
        let mut own = Vec::new();
        let mut away = false;
        for notice in all {
            let key = notice.key();
            let is_due = wanted.contains(&key);
            let awaits_cause = is_due && self.outbox.awaits_cause(&notice);
            // After one timeout, the quota store is not asked again.
            let mut claim = if away {
                quota_store.alerts.alone(is_due)
            } else {
                self.claim(&quota_store, &notice, is_due && !awaits_cause)
                    .await
            };
            if awaits_cause && claim != Claim::Alone {
                claim = self.claim_cause(&quota_store, &notice).await;
            }
            away |= claim == Claim::Alone;
            match claim {
                Claim::Send | Claim::Alone if is_due => own.push(notice),
                Claim::Delivered if is_due => {
                    self.outbox.sent(now(), &[notice]);
                    self.keep().await;
                }
                _ => {}
            }
        }
        own
    }

    async fn claim(
        &self,
        quota_store: &QuotaStore,
        notice: &AlertNotification,
        due: bool,
    ) -> Claim {
        let alert = notice.key();
        let state = AlertState {
            receiver: &self.receiver.name,
            alert: &alert,
            fires: notice.firing,
            due,
            delivered: notice.firing && self.outbox.has_delivered(&alert),
            repeat: self.receiver.repeat,
            holds: CLAIM_HOLDS,
        };
        quota_store.alerts.claim(state).await
    }

    /// Claims the second notification of an alert, which names its cause. It has a separate key, because the delivery
    /// of the first notification does not count for the second.
    async fn claim_cause(&self, quota_store: &QuotaStore, notice: &AlertNotification) -> Claim {
        let alert = notice.cause_key();
        let state = AlertState {
            receiver: &self.receiver.name,
            alert: &alert,
            fires: true,
            due: true,
            delivered: false,
            repeat: self.receiver.repeat,
            holds: CLAIM_HOLDS,
        };
        quota_store.alerts.claim(state).await
    }

    async fn tell_others(&self, notices: &[AlertNotification]) {
        let Some(quota_store) = &self.quota_store else {
            return;
        };
        for notice in notices {
            let (receiver, alert) = (&self.receiver.name, notice.key());
            quota_store
                .alerts
                .delivered(receiver, &alert, notice.firing)
                .await;
            // When an alert ends, its cause also ends. The next incident has a new cause.
            if notice.cause_known || !notice.firing {
                let alert = notice.cause_key();
                quota_store
                    .alerts
                    .delivered(receiver, &alert, notice.firing)
                    .await;
            }
        }
    }

    /// Logs and counts a failure. The URL may be a secret, so it is not logged.
    fn failed(&mut self, reason: &str, retry_after: Option<Duration>) {
        let receiver = &self.receiver.name;
        tracing::warn!(
            receiver,
            reason,
            "an alert could not be delivered; it will be retried"
        );
        self.failures.increment(1);
        self.outbox.failed(now(), retry_after);
    }

    async fn keep(&self) {
        let Some(delivery_state) = &self.delivery_state else {
            return;
        };
        let (delivery_state, name) = (Arc::clone(delivery_state), self.receiver.name.clone());
        let outbox = self.outbox.clone();
        let kept = tokio::task::spawn_blocking(move || delivery_state.keep(&name, outbox)).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!(%error, "cannot save which alerts were delivered; after a restart they are sent again");
        }
    }
}

/// Looks for causes before an alert is sent, at a lower priority than traffic. If no thread can be started or the
/// search panics, the alert has the previous cause or none.
async fn look_for_causes(slos: &Arc<Slos>) {
    let slos = Arc::clone(slos);
    let (done, over) = oneshot::channel();
    let look = move || {
        slos.look_for_causes(Instant::now(), SystemTime::now());
        let _ = done.send(());
    };
    if background::spawn("slo-cause", BackgroundWork::Steady, look).is_ok() {
        let _ = over.await;
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
