use super::ReceiverKind;
use crate::{AlertNotification, AlertSubject};
use bytes::Bytes;
use http::{Request, header};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_core::time::rfc3339_millis;

/// Seconds after which an Alertmanager resolves an alert that is not sent again.
const VALID_FOR: f64 = 300.0;
const ERROR_BUDGET: &str = "TokengaugeErrorBudgetBurn";
const SPENDING: &str = "TokengaugeSpending";
const RUNAWAY: &str = "TokengaugeRunaway";

pub type Message = (Request<Bytes>, Vec<AlertNotification>);

/// The requests that deliver `notices` at `now`, in seconds since 1970: one request for all, or one
/// for each if the receiver does not support groups. `url` is the configured URL.
///
/// # Errors
/// Returns an error if `url` is invalid.
pub fn messages(
    kind: ReceiverKind,
    url: &str,
    routing_key: &str,
    now: f64,
    notices: &[AlertNotification],
) -> Result<Vec<Message>, http::Error> {
    let post = |url: &str, body: &Value, notices: &[AlertNotification]| {
        let request = Request::post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                header::USER_AGENT,
                concat!("tokengauge/", env!("CARGO_PKG_VERSION")),
            )
            .body(Bytes::from(body.to_string()))?;
        Ok((request, notices.to_vec()))
    };
    let all = |url: &str, body: &Value| Ok(vec![post(url, body, notices)?]);
    match kind {
        ReceiverKind::Alertmanager => {
            let url = format!("{}/api/v2/alerts", url.trim_end_matches('/'));
            let alerts = notices.iter().map(|notice| alertmanager(now, notice));
            all(&url, &Value::Array(alerts.collect()))
        }
        ReceiverKind::Webhook => all(url, &webhook(now, notices)),
        ReceiverKind::Slack => all(url, &slack(notices)),
        ReceiverKind::PagerDuty => notices
            .iter()
            .map(|notice| {
                post(
                    url,
                    &pager_duty(routing_key, notice),
                    std::slice::from_ref(notice),
                )
            })
            .collect(),
    }
}

fn time(seconds: f64) -> String {
    let at = UNIX_EPOCH + Duration::from_secs_f64(seconds.max(0.0));
    rfc3339_millis(at).to_string()
}

pub fn alert_name(about: AlertSubject) -> &'static str {
    match about {
        AlertSubject::Objective => ERROR_BUDGET,
        AlertSubject::Budget => SPENDING,
        AlertSubject::Runaway => RUNAWAY,
    }
}

fn labels(notice: &AlertNotification) -> Value {
    let name = match notice.about {
        AlertSubject::Objective => "slo",
        AlertSubject::Budget => "budget",
        AlertSubject::Runaway => "about",
    };
    json!({
        "alertname": alert_name(notice.about),
        name: notice.slo,
        "severity": notice.severity,
        "source": "tokengauge",
    })
}

fn annotations(notice: &AlertNotification) -> Value {
    let mut annotations = json!({
        "summary": notice.summary,
        "description": notice.description,
    });
    let known = [
        ("runbook_url", &notice.runbook_url),
        ("dashboard", &notice.dashboard_url),
        ("cause", &notice.cause),
        ("page", &notice.page),
    ];
    for (name, value) in known {
        if let Some(value) = value {
            annotations[name] = json!(value);
        }
    }
    annotations
}

fn alertmanager(now: f64, notice: &AlertNotification) -> Value {
    let ends = if notice.firing { now + VALID_FOR } else { now };
    json!({
        "labels": labels(notice),
        "annotations": annotations(notice),
        "startsAt": time(notice.since),
        "endsAt": time(ends),
    })
}

fn webhook(now: f64, notices: &[AlertNotification]) -> Value {
    let any = notices.iter().any(|notice| notice.firing);
    let alerts = notices.iter().map(|notice| {
        json!({
            "status": status(notice.firing),
            "key": notice.key(),
            "labels": labels(notice),
            "annotations": annotations(notice),
            "startsAt": time(notice.since),
            "endsAt": (!notice.firing).then(|| time(now)),
        })
    });
    json!({ "version": "1", "status": status(any), "alerts": alerts.collect::<Vec<_>>() })
}

fn status(firing: bool) -> &'static str {
    if firing { "firing" } else { "resolved" }
}

fn slack(notices: &[AlertNotification]) -> Value {
    let escaped = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    let lines = notices.iter().map(|notice| {
        let word = match (notice.firing, notice.severity.as_str()) {
            (false, _) => "RESOLVED".to_owned(),
            (true, severity) => severity.to_uppercase(),
        };
        let mut line = format!(
            "*[{word}]* {}\n{}",
            escaped(&notice.summary),
            escaped(&notice.description)
        );
        if let Some(cause) = &notice.cause {
            line.push_str(&format!("\nCause: {}", escaped(cause)));
        }
        for (name, how) in [
            ("Live page", &notice.page),
            ("Runbook", &notice.runbook_url),
        ] {
            if let Some(how) = how.as_ref().filter(|how| !is_url(how)) {
                line.push_str(&format!("\n{name}: {}", escaped(how)));
            }
        }
        for (name, link) in links(notice) {
            line.push_str(&format!(" <{}|{name}>", escaped(link)));
        }
        line
    });
    json!({ "text": lines.collect::<Vec<_>>().join("\n\n") })
}

fn links(notice: &AlertNotification) -> impl Iterator<Item = (&'static str, &str)> {
    let links = [
        ("Live page", &notice.page),
        ("Runbook", &notice.runbook_url),
        ("Dashboard", &notice.dashboard_url),
    ]
    .into_iter();
    links.filter_map(|(text, link)| Some((text, link.as_deref().filter(|link| is_url(link))?)))
}

fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok()
}

fn pager_duty(routing_key: &str, notice: &AlertNotification) -> Value {
    let mut event = json!({
        "routing_key": routing_key,
        "event_action": if notice.firing { "trigger" } else { "resolve" },
        "dedup_key": format!("tokengauge/{}", notice.key()),
    });
    if notice.firing {
        let critical = notice.severity == "page";
        event["payload"] = json!({
            "summary": notice.summary.chars().take(1024).collect::<String>(),
            "source": "tokengauge",
            "severity": if critical { "critical" } else { "warning" },
            "timestamp": time(notice.since),
            "component": notice.slo,
            "custom_details": annotations(notice),
        });
        let links = links(notice).map(|(text, href)| json!({ "href": href, "text": text }));
        event["links"] = Value::Array(links.collect());
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(slo: &str, firing: bool) -> AlertNotification {
        AlertNotification {
            about: AlertSubject::Objective,
            slo: slo.to_owned(),
            severity: "page".to_owned(),
            firing,
            since: 1_700_000_000.0,
            summary: "a < b & c".to_owned(),
            description: "why".to_owned(),
            cause: Some("queueing & more".to_owned()),
            cause_known: true,
            view: String::new(),
            page: Some("https://gauge/".to_owned()),
            runbook_url: Some("https://wiki/x".to_owned()),
            dashboard_url: None,
        }
    }

    fn bodies(kind: ReceiverKind) -> Vec<(String, Value)> {
        let notices = [notice("a", true), notice("b", false)];
        let all = messages(kind, "http://h/x", "key", 1_700_000_060.0, &notices).expect("URLs");
        let body = |request: &Request<Bytes>| serde_json::from_slice(request.body()).expect("JSON");
        all.iter()
            .map(|(request, _)| (request.uri().to_string(), body(request)))
            .collect()
    }

    #[test]
    fn an_alertmanager_gets_all_in_one_with_their_ends() {
        let all = bodies(ReceiverKind::Alertmanager);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].0, "http://h/x/api/v2/alerts");
        let alerts = &all[0].1;
        assert_eq!(alerts[0]["labels"]["slo"], "a");
        assert_eq!(alerts[0]["startsAt"], "2023-11-14T22:13:20.000Z");
        assert_eq!(alerts[0]["endsAt"], "2023-11-14T22:19:20.000Z");
        assert_eq!(alerts[1]["endsAt"], "2023-11-14T22:14:20.000Z");
        assert_eq!(alerts[0]["annotations"]["cause"], "queueing & more");
        assert_eq!(alerts[0]["annotations"]["runbook_url"], "https://wiki/x");
    }

    #[test]
    fn an_alert_on_spending_is_labelled_with_its_budget() {
        let spending = AlertNotification {
            about: AlertSubject::Budget,
            ..notice("sessions", true)
        };
        assert_eq!(spending.key(), "budget sessions/page");
        let labels = labels(&spending);
        assert_eq!(labels["alertname"], "TokengaugeSpending");
        assert_eq!(
            (&labels["budget"], &labels["slo"]),
            (&json!("sessions"), &Value::Null)
        );
    }

    #[test]
    fn pager_duty_gets_one_event_each_under_one_key() {
        let all = bodies(ReceiverKind::PagerDuty);
        let statuses: Vec<_> = all
            .iter()
            .map(|(_, event)| {
                (
                    event["event_action"].as_str(),
                    event["dedup_key"].as_str(),
                    event["payload"]["severity"].as_str(),
                )
            })
            .collect();
        let expected = [
            (Some("trigger"), Some("tokengauge/a/page"), Some("critical")),
            (Some("resolve"), Some("tokengauge/b/page"), None),
        ];
        assert_eq!(statuses, expected);
        assert!(all.iter().all(|(_, event)| event["routing_key"] == "key"));
    }

    #[test]
    fn slack_and_webhooks_get_one_message_for_all() {
        let slack = bodies(ReceiverKind::Slack);
        let text = slack[0].1["text"].as_str().expect("text");
        assert!(
            text.starts_with("*[PAGE]* a &lt; b &amp; c\nwhy\nCause: queueing &amp; more <https://gauge/|Live page> <https://wiki/x|Runbook>"),
            "{text}"
        );
        assert!(text.contains("*[RESOLVED]*"), "{text}");
        let webhook = bodies(ReceiverKind::Webhook);
        assert_eq!(webhook[0].1["status"], "firing");
        assert_eq!(webhook[0].1["alerts"][1]["status"], "resolved");
    }
}
