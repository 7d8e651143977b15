//! `tokengauge print rules`: Prometheus rules for the configured objectives and for the proxy.

use crate::Error;
use crate::cli::{RulesArgs, RulesFormat};
use tokengauge_config::Config;
use tokengauge_process::output;
use tokengauge_slo::rules::{self, RulesContext, yaml};

pub(super) fn rules(args: &RulesArgs) -> Result<String, Error> {
    if args.format == RulesFormat::Alertmanager {
        return Ok(rules::inhibition(&args.by));
    }
    let (text, origin) = super::text(&args.config)?;
    let config = Config::parse(&text, &origin)?;
    if config.slos.is_empty() {
        output::note(&format!(
            "{origin} has no [[slo]]: these are the alerts on the proxy itself"
        ));
    }
    let place = RulesContext {
        job: args.job.clone(),
        runbooks: args.runbooks.clone(),
        grafana: args.grafana.trim_end_matches('/').to_owned(),
        resolution: args.resolution,
        by: args.by.clone(),
    };
    let groups = rules::groups(&config.slos, &place);
    Ok(match args.format {
        RulesFormat::Operator => yaml::operator(&groups),
        RulesFormat::Helm => yaml::values(&groups, &written(&text, &origin)?),
        _ => yaml::file(&groups),
    })
}

/// Returns the `[[slo]]` tables as they are written, so that the chart can compare them with its values.
fn written(text: &str, origin: &str) -> Result<Vec<serde_json::Value>, Error> {
    #[derive(serde::Deserialize)]
    struct File {
        #[serde(default)]
        slo: Vec<serde_json::Value>,
    }
    let file: Result<File, _> = toml::from_str(text);
    file.map(|file| file.slo)
        .map_err(|error| Error::Configuration(format!("{origin}: {error}")))
}
