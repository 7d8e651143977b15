//! Objectives of a fleet from the recording rules of `tokengauge print rules`, through Prometheus.

use crate::Error;
use crate::cli::PrometheusCredentials;
use crate::command::prometheus::{PrometheusClient, Sample};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::pod::PodName;
use tokengauge_fleet::{Fleet, Objectives};
use tokengauge_slo::{Alert, Objective, Severity, label, tiers};
use tokio::time::{MissedTickBehavior, interval};

/// The interval between queries. Prometheus usually evaluates rules every 15 to 60 seconds.
const EVERY: Duration = Duration::from_secs(15);
/// The maximum number of objectives, counted with all labels of `print rules --by`.
const MAX: usize = 200;
const QUERY: &str = "{__name__=~\"slo:(error_budget:(remaining_ratio|exhausted_seconds)|objective:ratio|sli_error:ratio_rate.*)\"} \
    or ALERTS{alertname=\"SloErrorBudgetBurn\",alertstate=\"firing\"}";

pub(super) struct Rules {
    prometheus: PrometheusClient,
    definitions: BTreeMap<String, Arc<Objective>>,
}

#[derive(Default)]
struct Found {
    remaining: Option<f64>,
    window: Option<String>,
    exhausted: Option<f64>,
    objective: Option<f64>,
    errors: BTreeMap<String, f64>,
    firing: BTreeSet<String>,
}

impl Rules {
    /// # Errors
    /// Returns an error if the URL or the credentials cannot be used.
    pub(super) fn new(
        address: &str,
        credentials: &PrometheusCredentials,
        objectives: &[Arc<Objective>],
    ) -> Result<Rules, Error> {
        let definitions = objectives
            .iter()
            .map(|objective| (objective.name.to_string(), Arc::clone(objective)));
        Ok(Rules {
            prometheus: PrometheusClient::new(address, credentials)?,
            definitions: definitions.collect(),
        })
    }

    pub(super) async fn follow(self, fleet: Arc<Fleet>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            ticks.tick().await;
            let objectives = match self.prometheus.query(QUERY).await {
                Ok(samples) => Objectives {
                    slos: self.statuses(&samples),
                    error: None,
                },
                Err(error) => Objectives {
                    slos: Vec::new(),
                    error: Some(error.to_string()),
                },
            };
            if let Some(error) = objectives.error.as_ref().filter(|_| !failing) {
                tracing::warn!(error, "cannot query the objectives in Prometheus");
            }
            failing = objectives.error.is_some();
            fleet.set_objectives(objectives);
        }
    }

    /// Returns the objectives in the format of the API, the smallest remaining budget first.
    fn statuses(&self, samples: &[Sample]) -> Vec<Value> {
        let mut all: BTreeMap<(String, PodName), Found> = BTreeMap::new();
        for sample in samples {
            let of = |name: &str| sample.metric.get(name).cloned();
            let (Some(slo), Ok(value)) = (of("slo"), sample.value.1.parse()) else {
                continue;
            };
            let place = PodName {
                cluster: of("cluster"),
                namespace: of("namespace"),
                name: None,
            };
            take(all.entry((slo, place)).or_default(), sample, value);
        }
        // The series with the promise has no label except its name.
        let promised: BTreeMap<String, f64> = all
            .iter()
            .filter_map(|((slo, _), found)| Some((slo.clone(), found.objective?)))
            .collect();
        let mut statuses: Vec<_> = all
            .into_iter()
            .filter_map(|((slo, place), found)| {
                let objective = *promised.get(&slo)?;
                let remaining = found.remaining?;
                Some((
                    remaining,
                    self.status(slo, place, objective, remaining, &found),
                ))
            })
            .collect();
        statuses.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        statuses.truncate(MAX);
        statuses.into_iter().map(|(_, status)| status).collect()
    }

    fn status(
        &self,
        slo: String,
        place: PodName,
        objective: f64,
        remaining: f64,
        found: &Found,
    ) -> Value {
        let budget = 1.0 - objective;
        let burn = |window: &str| {
            let error = found.errors.get(window).copied().unwrap_or(0.0);
            if budget > 0.0 { error / budget } else { 0.0 }
        };
        let window = found.window.as_deref().unwrap_or("30d");
        let definition = self.definitions.get(&slo);
        let sli = definition.map(|definition| definition.judgement.sli);
        let select = definition.map(|definition| definition.judgement.select.clone());
        let length = humantime::parse_duration(window).unwrap_or(Duration::from_secs(30 * 86_400));
        let alerts: Vec<_> = tiers(length, objective)
            .into_iter()
            .map(|tier| {
                let (burn_long, burn_short) = (burn(&label(tier.long)), burn(&label(tier.short)));
                let fires = found.firing.contains(Severity::as_str(tier.severity));
                Alert {
                    tier,
                    burn_long,
                    burn_short,
                    observed_seconds: tier.long.as_secs_f64(),
                    firing: fires && burn_long > tier.factor && burn_short > tier.factor,
                }
            })
            .collect();
        let mut windows: Vec<&String> = found.errors.keys().collect();
        windows.sort_by_key(|window| humantime::parse_duration(window).unwrap_or_default());
        let burns = windows.into_iter();
        let burns = burns.map(|window| json!({"window": window, "rate": burn(window)}));
        json!({
            "name": slo,
            "promise": sli.map_or_else(|| slo.clone(), |sli| sli.in_words()),
            "indicator": sli.map_or("unknown", |sli| sli.as_str()),
            "threshold": sli.and_then(|sli| sli.threshold()),
            "description": definition.and_then(|definition| definition.description.clone()),
            "objective": objective,
            "window": definition.map_or_else(|| window.to_owned(), |definition| definition.window_label()),
            "event": "request",
            "select": select.unwrap_or_default(),
            // The rules record only ratios, so the number of events is unknown.
            "good": 0.0,
            "bad": 0.0,
            "ratio": 1.0 - (1.0 - remaining) * budget,
            "budget_remaining": remaining,
            "exhausted_in_seconds": found.exhausted,
            "burn": burns.collect::<Vec<_>>(),
            "alerts": alerts,
            "cause": null,
            "events": {},
            "spent_by": [],
            "months": [],
            "pod": place.known(),
        })
    }
}

fn take(found: &mut Found, sample: &Sample, value: f64) {
    let of = |name: &str| sample.metric.get(name).cloned();
    match sample.metric.get("__name__").map_or("", String::as_str) {
        "slo:error_budget:remaining_ratio" => {
            found.remaining = Some(value);
            found.window = of("window");
        }
        "slo:error_budget:exhausted_seconds" => found.exhausted = Some(value),
        "slo:objective:ratio" => found.objective = Some(value),
        "ALERTS" => found.firing.extend(of("severity")),
        _ => {
            if let Some(window) = of("window") {
                found.errors.insert(window, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str, labels: &[(&str, &str)], value: f64) -> Sample {
        let more = [("__name__", name), ("slo", "fast")];
        let labels = labels.iter().chain(&more);
        Sample {
            metric: labels
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            value: (0.0, value.to_string()),
        }
    }

    fn rules() -> Rules {
        Rules::new("http://prometheus/", &PrometheusCredentials::default(), &[])
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_recordings_of_an_objective_are_its_status() {
        let mut samples = vec![
            sample("slo:objective:ratio", &[], 0.99),
            sample(
                "slo:error_budget:remaining_ratio",
                &[("window", "30d")],
                0.5,
            ),
            sample("slo:error_budget:exhausted_seconds", &[], 3600.0),
        ];
        for (window, error) in [("5m", 0.2), ("1h", 0.2), ("30m", 0.02), ("6h", 0.02)] {
            let name = format!("slo:sli_error:ratio_rate{window}");
            samples.push(sample(&name, &[("window", window)], error));
        }
        let statuses = rules().statuses(&samples);
        let status = &statuses[0];
        assert_eq!((statuses.len(), &status["name"]), (1, &json!("fast")));
        assert_eq!(status["budget_remaining"], 0.5);
        assert!((status["ratio"].as_f64().expect("a ratio") - 0.995).abs() < 1e-9);
        assert_eq!(status["burn"][0]["window"], "5m");
        let firing = |status: &Value| {
            let alerts = status["alerts"].as_array().expect("alerts").clone();
            let firing = alerts.iter().filter(|alert| alert["firing"] == true);
            firing
                .map(|alert| alert["long"].clone())
                .collect::<Vec<_>>()
        };
        assert!(firing(status).is_empty(), "no alert is there");
        samples.push(sample(
            "ALERTS",
            &[("severity", "page"), ("alertstate", "firing")],
            1.0,
        ));
        assert_eq!(firing(&rules().statuses(&samples)[0]), ["1h"]);
    }

    #[test]
    fn each_namespace_has_its_own() {
        let of = |namespace, left| {
            let labels = [("window", "30d"), ("namespace", namespace)];
            sample("slo:error_budget:remaining_ratio", &labels, left)
        };
        let samples = [
            sample("slo:objective:ratio", &[], 0.9),
            of("one", 0.9),
            of("two", -0.5),
        ];
        let statuses = rules().statuses(&samples);
        let names: Vec<_> = statuses
            .iter()
            .map(|slo| &slo["pod"]["namespace"])
            .collect();
        assert_eq!(names, ["two", "one"], "the least budget first");
    }
}
