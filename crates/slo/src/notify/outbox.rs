//! The alerts that a receiver was sent, and the decision what to send next. There is no queue:
//! alerts that could not be sent are computed again, so that nothing accumulates.

use crate::AlertNotification;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tokengauge_core::backoff;
use tokengauge_core::time::span_text;

/// Bounds of the backoff.
const SHORTEST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// The alerts that were delivered to a receiver. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outbox {
    #[serde(rename = "told")]
    delivered: BTreeMap<String, Delivered>,
    #[serde(skip)]
    failures: u32,
    #[serde(skip)]
    not_before: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Delivered {
    at: f64,
    notice: AlertNotification,
    /// Whether a message since the alert fires contained the cause.
    #[serde(default)]
    with_cause: bool,
}

impl Outbox {
    /// The alerts to send at `now`, given the `firing` alerts: new alerts, resolved alerts, alerts
    /// that were last sent `repeat` ago, and alerts that were sent without their cause. Empty while
    /// a retry is pending.
    pub fn due(
        &self,
        now: f64,
        firing: &[AlertNotification],
        repeat: Duration,
    ) -> Vec<AlertNotification> {
        if now < self.not_before {
            return Vec::new();
        }
        let fires = |key: &str| firing.iter().any(|notice| notice.key() == key);
        let over = self.delivered.iter().filter(|(key, _)| !fires(key));
        let over = over.map(|(_, delivered)| resolved(now, &delivered.notice));
        let new = firing.iter().filter_map(|notice| {
            let Some(delivered) = self.delivered.get(&notice.key()) else {
                return Some(notice.clone());
            };
            // The start remains the one that was delivered first, even after a restart.
            let since = delivered.notice.since.min(notice.since);
            let again = now - delivered.at >= repeat.as_secs_f64() || self.awaits_cause(notice);
            again.then(|| AlertNotification {
                since,
                ..notice.clone()
            })
        });
        over.chain(new).collect()
    }

    /// Whether an alert was delivered as firing and not yet as resolved.
    pub fn has_delivered(&self, key: &str) -> bool {
        self.delivered.contains_key(key)
    }

    /// Whether a firing alert was delivered without its cause, which is now known. The cause is
    /// sent once: a changed cause does not repeat the alert.
    pub fn awaits_cause(&self, notice: &AlertNotification) -> bool {
        let delivered = self.delivered.get(&notice.key());
        notice.firing && notice.cause_known && delivered.is_some_and(|before| !before.with_cause)
    }

    pub fn sent(&mut self, now: f64, notices: &[AlertNotification]) {
        (self.failures, self.not_before) = (0, 0.0);
        for notice in notices {
            if notice.firing {
                let before = self.delivered.get(&notice.key());
                let delivered = Delivered {
                    at: now,
                    notice: notice.clone(),
                    with_cause: notice.cause_known
                        || before.is_some_and(|before| before.with_cause),
                };
                self.delivered.insert(notice.key(), delivered);
            } else {
                self.delivered.remove(&notice.key());
            }
        }
    }

    /// Records a failed delivery with the receiver's `retry-after`, if any.
    pub fn failed(&mut self, now: f64, retry_after: Option<Duration>) {
        let pause = backoff::delay(self.failures, SHORTEST_RETRY, LONGEST_RETRY);
        let pause = pause.max(retry_after.unwrap_or_default());
        self.not_before = now + pause.min(LONGEST_RETRY).as_secs_f64();
        self.failures = self.failures.saturating_add(1);
    }
}

/// The message that an alert is resolved. Its figures are from the last message while it fired.
fn resolved(now: f64, notice: &AlertNotification) -> AlertNotification {
    let minutes = ((now - notice.since).max(0.0) / 60.0).ceil() as u64;
    let fired = span_text(Duration::from_secs(minutes * 60));
    AlertNotification {
        firing: false,
        description: format!(
            "Resolved after about {fired}. The figures are from the previous message. {}",
            notice.description
        ),
        ..notice.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlertSubject;

    const HOURS: Duration = Duration::from_secs(4 * 3600);

    fn notice(slo: &str) -> AlertNotification {
        AlertNotification {
            about: AlertSubject::Objective,
            slo: slo.to_owned(),
            severity: "page".to_owned(),
            firing: true,
            since: 100.0,
            summary: "s".to_owned(),
            description: "d".to_owned(),
            cause: None,
            cause_known: false,
            view: String::new(),
            page: None,
            runbook_url: None,
            dashboard_url: None,
        }
    }

    #[test]
    fn an_alert_is_sent_once_again_after_a_while_and_when_it_is_resolved() {
        let mut outbox = Outbox::default();
        let firing = [notice("a")];
        assert_eq!(outbox.due(100.0, &firing, HOURS), firing);
        outbox.sent(100.0, &firing);
        for now in 101..=14_499 {
            assert!(
                outbox.due(f64::from(now), &firing, HOURS).is_empty(),
                "{now}"
            );
        }
        assert_eq!(outbox.due(14_500.0, &firing, HOURS).len(), 1);
        let over = outbox.due(200.0, &[], HOURS);
        assert!(!over[0].firing && over[0].since == 100.0);
        let description = "Resolved after about 2m. The figures are from the previous message. d";
        assert_eq!(over[0].description, description);
        outbox.sent(200.0, &over);
        assert!(outbox.due(201.0, &[], HOURS).is_empty());
    }

    #[test]
    fn an_alert_is_sent_again_once_when_its_cause_is_known() {
        let mut outbox = Outbox::default();
        let unknown = AlertNotification {
            cause: Some("The cause is not known".to_owned()),
            ..notice("a")
        };
        let known = AlertNotification {
            cause: Some("decoding".to_owned()),
            cause_known: true,
            ..notice("a")
        };
        outbox.sent(100.0, std::slice::from_ref(&unknown));
        assert!(
            outbox
                .due(105.0, std::slice::from_ref(&unknown), HOURS)
                .is_empty()
        );
        let due = outbox.due(110.0, std::slice::from_ref(&known), HOURS);
        assert_eq!(due, std::slice::from_ref(&known));
        outbox.failed(110.0, None);
        assert_eq!(
            outbox.due(112.0, &due, HOURS).len(),
            1,
            "until it was delivered"
        );
        outbox.sent(112.0, &due);
        // The cause is lost and found again, and the alert is repeated without it in between.
        assert!(
            outbox
                .due(120.0, std::slice::from_ref(&known), HOURS)
                .is_empty()
        );
        let again = outbox.due(14_600.0, std::slice::from_ref(&unknown), HOURS);
        outbox.sent(14_600.0, &again);
        assert!(
            outbox
                .due(14_610.0, std::slice::from_ref(&known), HOURS)
                .is_empty()
        );
        // A new incident has a new cause.
        let over = outbox.due(14_700.0, &[], HOURS);
        outbox.sent(14_700.0, &over);
        outbox.sent(14_800.0, &[unknown]);
        assert_eq!(outbox.due(14_810.0, &[known], HOURS).len(), 1);
    }

    #[test]
    fn failures_are_tried_again_ever_less_often_with_what_is_true_by_then() {
        let mut outbox = Outbox::default();
        let (mut now, mut tries) = (0.0, 0);
        while now < 3600.0 {
            if !outbox.due(now, &[notice("a")], HOURS).is_empty() {
                outbox.failed(now, None);
                tries += 1;
            }
            now += 1.0;
        }
        assert!((18..=31).contains(&tries), "{tries} tries in an hour");
        let due = outbox.due(1e6, &[notice("b")], HOURS);
        assert_eq!(due, [notice("b")], "a was never sent, and is over");
        outbox.failed(1e6, Some(Duration::from_secs(250)));
        outbox.sent(1e6, &due);
        outbox.failed(1e6, Some(Duration::from_secs(120)));
        assert!(outbox.due(1e6 + 119.0, &[], HOURS).is_empty());
        assert_eq!(outbox.due(1e6 + 120.0, &[], HOURS).len(), 1);
    }

    #[test]
    fn the_delivery_state_survives_and_nothing_is_sent_again() {
        let mut outbox = Outbox::default();
        outbox.sent(100.0, &[notice("a")]);
        let kept = serde_json::to_string(&outbox).expect("JSON");
        let outbox: Outbox = serde_json::from_str(&kept).expect("the same");
        assert!(outbox.due(150.0, &[notice("a")], HOURS).is_empty());
        assert_eq!(
            outbox.due(150.0, &[], HOURS).len(),
            1,
            "over while nobody looked"
        );
    }
}
