//! `--incident`: rehearses an incident. After a healthy period an upstream degrades, and a receiver in the demo prints
//! the alert.

use super::Backend;
use crate::cli::DemoIncident;
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_process::SystemError;
use tokengauge_process::output::{self, printable};
use tokengauge_proxy::Shutdown;
use tokengauge_sim::Simulator;
use tokio::net::TcpListener;
use tokio::time::sleep;

pub(super) const PROVIDER: &str = "openai";
const OBJECTIVE: &str = "rehearsal";
/// The healthy period, which provides data for comparison.
const CALM: Duration = Duration::from_secs(25);
/// Keeps the warm-up short, so that few calls count as warm-up and a restarted backend is visible.
pub(super) const MEASURE: &str = "[measure]\nwarm_up_calls = 2\nwarm_up_for = \"1s\"\n";
const LASTS: Duration = Duration::from_secs(180);
/// The downtime of a restarting backend.
const AWAY: Duration = Duration::from_secs(1);

struct Script {
    promise: &'static str,
    fault: &'static str,
    happens: &'static str,
    /// The sign that distinguishes the incident from others.
    look_at: &'static str,
}

impl DemoIncident {
    fn script(self) -> Script {
        match self {
            DemoIncident::SlowUpstream => Script {
                promise: "output_tps.at_least = 12",
                fault: "gap=110ms~20ms",
                happens: "decodes at about 9 tokens a second",
                look_at: "tokens per second fall while the time to first token is unchanged: decoding is slow, not queueing",
            },
            DemoIncident::Stalls => Script {
                promise: "longest_gap.at_most = \"2s\"",
                fault: "stall=4s@12",
                happens: "stalls for 4 s in the middle of each stream",
                look_at: "streams stall and continue: see the longest gap of the worst calls, and pale rows of streams in flight",
            },
            DemoIncident::Errors => Script {
                promise: "availability = true",
                fault: "status=503",
                happens: "answers 503",
                look_at: "failures rise in the third curve; calls end with an HTTP error within milliseconds",
            },
            DemoIncident::ColdStart => Script {
                promise: "ttft.at_most = \"3s\"",
                fault: "cold_start=6s@1000000",
                happens: "restarts, and needs 6 s more for each first token",
                look_at: "the time to first token jumps, and a mark shows that the upstream warms up again",
            },
        }
    }

    /// Returns the duration of the incident. A restarted backend needs time to warm up.
    fn lasts(self) -> Duration {
        match self {
            DemoIncident::ColdStart => LASTS / 3,
            _ => LASTS,
        }
    }

    pub(super) fn tables(self, receiver: SocketAddr) -> String {
        let promise = self.script().promise;
        format!(
            "[[slo]]\nname = \"{OBJECTIVE}\"\nobjective = 0.99\nwindow = \"1d\"\nmin_events = 60\n{promise}\n\
             [[notify]]\nkind = \"webhook\"\nurl = \"http://{receiver}/alerts\"\nseverity = \"page\"\n"
        )
    }

    pub(super) async fn play(self, simulator: Arc<Simulator>, backend: Backend, end: Shutdown) {
        let script = self.script();
        let address = backend.address;
        let away = self == DemoIncident::ColdStart;
        let first = away.then_some(CALM);
        let before = tokio::spawn(serve(
            Arc::clone(&simulator),
            backend.listener,
            first,
            end.clone(),
        ));
        sleep(CALM).await;
        output::note(&format!(
            "demo: now the upstream {PROVIDER} {}; an alert will follow",
            script.happens
        ));
        // The settings are constants that a test covers.
        let _ = simulator.set_fault(script.fault);
        if away {
            let _ = before.await;
            sleep(AWAY).await;
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    tokio::spawn(serve(Arc::clone(&simulator), listener, None, end));
                }
                Err(error) => output::note(&format!("demo: {PROVIDER} cannot restart: {error}")),
            }
        }
        sleep(self.lasts()).await;
        let _ = simulator.set_fault("");
        output::note(&format!(
            "demo: {PROVIDER} has recovered; the alert ends five minutes after its short window has no bad events"
        ));
    }

    pub(super) fn announce(self, admin: &str) {
        let calm = CALM.as_secs();
        output::note(&format!(
            "demo: incident rehearsal. For {calm} s the upstream is healthy, then {PROVIDER} {}. The objective `{OBJECTIVE}` burns \
             ({}), and an alert arrives here within about two minutes.",
            self.script().happens,
            self.script().promise
        ));
        output::note(&format!("  watch it: {admin}/"));
    }

    fn next_steps(self, admin: &str, address: &str) -> Vec<String> {
        vec![
            format!("look at: {}", self.script().look_at),
            format!("the calls that spent the budget: {admin}/calls?slo={OBJECTIVE}"),
            format!("in the terminal: tokengauge slo status --admin {address}"),
            format!(
                "save the incident: tokengauge slo incident --slo {OBJECTIVE} --admin {address} -o incident.html"
            ),
        ]
    }
}

async fn serve(
    simulator: Arc<Simulator>,
    listener: TcpListener,
    time: Option<Duration>,
    end: Shutdown,
) {
    let over = async {
        tokio::select! {
            () = sleep(time.unwrap_or_default()), if time.is_some() => {}
            () = end.terminated() => {}
        }
    };
    simulator.serve(listener, over).await;
}

pub(super) struct Receiver {
    listener: TcpListener,
    pub(super) address: SocketAddr,
}

#[derive(Deserialize)]
struct Message {
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    status: String,
    labels: Labels,
    annotations: Annotations,
}

#[derive(Deserialize)]
struct Labels {
    alertname: String,
    severity: String,
}

#[derive(Deserialize)]
struct Annotations {
    summary: String,
    cause: Option<String>,
    page: Option<String>,
    runbook_url: Option<String>,
}

impl Receiver {
    pub(super) fn bind() -> Result<Receiver, SystemError> {
        let (listener, address) = crate::command::listen(super::ANY_PORT)?;
        Ok(Receiver { listener, address })
    }

    pub(super) async fn serve(
        self,
        incident: DemoIncident,
        page: String,
        admin: String,
        end: Shutdown,
    ) {
        let steps = incident.next_steps(&page, &admin);
        let take = move |body: Bytes| {
            let steps = steps.clone();
            async move {
                let Ok(message) = serde_json::from_slice::<Message>(&body) else {
                    return StatusCode::BAD_REQUEST;
                };
                message.alerts.iter().for_each(|alert| tell(alert, &steps));
                StatusCode::OK
            }
        };
        let router = Router::new().route("/alerts", post(take));
        let served = axum::serve(self.listener, router);
        let served = served.with_graceful_shutdown(async move { end.drain_started().await });
        if let Err(error) = served.await {
            output::note(&format!("demo: the alert receiver failed: {error}"));
        }
    }
}

fn tell(alert: &Alert, steps: &[String]) {
    let note = |text: &str| output::note(&printable(text));
    let Alert {
        status,
        labels,
        annotations,
    } = alert;
    note(&format!(
        "demo: alert {} ({}, {status}): {}",
        labels.alertname, labels.severity, annotations.summary
    ));
    let known = [
        ("cause", &annotations.cause),
        ("page", &annotations.page),
        ("runbook", &annotations.runbook_url),
    ];
    for (name, text) in known {
        if let Some(text) = text {
            note(&format!("  {name}: {text}"));
        }
    }
    if status == "firing" {
        steps.iter().for_each(|step| note(&format!("  {step}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use tokengauge_config::Config;
    use tokengauge_sim::Profile;

    #[test]
    fn every_incident_can_be_played() {
        let receiver = SocketAddr::from(([127, 0, 0, 1], 1));
        for incident in DemoIncident::value_variants() {
            let script = incident.script();
            let fault: Result<Profile, _> = script.fault.parse();
            assert!(fault.is_ok(), "{}", script.fault);
            let text = format!(
                "{}[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n[[route]]\nupstream = \"u\"\n",
                incident.tables(receiver)
            );
            let config = Config::parse(&text, "test").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(config.slos.len(), 1);
        }
    }
}
