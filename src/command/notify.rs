//! Tells receivers of alerts while the proxy runs.

use crate::Error;
use crate::export::registry::Counter;
use crate::fetch::fetch;
use crate::slo::{Notice, Outbox, Place, Receiver, Slos, Told, Watch, messages};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often alerts are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long a receiver may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One receiver with what it was told.
struct Line {
    receiver: Receiver,
    url: String,
    routing_key: String,
    watch: Watch,
    outbox: Outbox,
    told: Option<Arc<Told>>,
    failures: Counter,
}

/// Starts telling `receivers`, each by itself: one that is slow holds up no other. What
/// they were told is kept in `told`, where there is a place for it.
pub(super) fn start(
    receivers: &[Receiver],
    slos: &Arc<Slos>,
    told: Option<Told>,
    failures: impl Fn(&'static str) -> Counter,
) -> Result<(), Error> {
    let told = told.map(Arc::new);
    for receiver in receivers {
        let outbox = told.as_ref().map(|told| told.of(&receiver.name));
        let line = Line {
            url: match &receiver.url {
                Place::Url(url) => url.clone(),
                Place::File(file) => secret(&receiver.name, file)?,
            },
            routing_key: match &receiver.routing_key_file {
                Some(file) => secret(&receiver.name, file)?,
                None => String::new(),
            },
            watch: Watch::default(),
            outbox: outbox.unwrap_or_default(),
            told: told.clone(),
            failures: failures(receiver.kind.as_str()),
            receiver: receiver.clone(),
        };
        tokio::spawn(line.run(Arc::clone(slos)));
    }
    Ok(())
}

fn secret(name: &str, file: &Path) -> Result<String, Error> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| {
        Error::Configuration(format!("notify `{name}`: {}: {error}", file.display()))
    })?;
    Ok(text.trim().to_owned())
}

impl Line {
    async fn run(mut self, slos: Arc<Slos>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let statuses = slos.status(Instant::now());
            let wanted = self.receiver.severity.map(|severity| severity.as_str());
            let mut firing = self.watch.step(now(), &statuses);
            firing.retain(|notice| wanted.is_none_or(|wanted| notice.severity == wanted));
            self.tell(&firing).await;
        }
    }

    async fn tell(&mut self, firing: &[Notice]) {
        let due = self.outbox.due(now(), firing, self.receiver.repeat);
        if due.is_empty() {
            return;
        }
        let kind = self.receiver.kind;
        let messages = match messages(kind, &self.url, &self.routing_key, now(), &due) {
            Ok(messages) => messages,
            Err(error) => return self.failed(&format!("its URL is none: {error}"), None),
        };
        for (request, told) in messages {
            match fetch(request, PATIENCE).await {
                Ok(answer) if (200..300).contains(&answer.status) => {
                    self.outbox.sent(now(), &told);
                    self.keep().await;
                }
                Ok(answer) => {
                    let reason = format!("answered {}", answer.status);
                    return self.failed(&reason, answer.retry_after);
                }
                Err(error) => return self.failed(&error.to_string(), None),
            }
        }
    }

    /// Its URL may be a secret, so it is not told.
    fn failed(&mut self, reason: &str, retry_after: Option<Duration>) {
        let receiver = &self.receiver.name;
        tracing::warn!(
            receiver,
            reason,
            "an alert could not be told; it will be tried again"
        );
        self.failures.increment(1);
        self.outbox.failed(now(), retry_after);
    }

    async fn keep(&self) {
        let Some(told) = &self.told else {
            return;
        };
        let (told, name) = (Arc::clone(told), self.receiver.name.clone());
        let outbox = self.outbox.clone();
        let kept = tokio::task::spawn_blocking(move || told.keep(&name, outbox)).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!(%error, "what was told cannot be kept; a restart tells it again");
        }
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
