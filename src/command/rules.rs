//! `tokengauge rules`: what Prometheus must be told to keep the configuration's
//! promises in sight.

use crate::Error;
use crate::cli::{RulesArgs, RulesFormat};
use crate::slo::rules::{self, Place, yaml};

pub(super) fn rules(args: &RulesArgs) -> Result<String, Error> {
    if args.format == RulesFormat::Alertmanager {
        return Ok(rules::inhibition());
    }
    let (config, origin) = super::load(&args.config)?;
    if config.slos.is_empty() {
        eprintln!("{origin} has no [[slo]]: these are the alerts on the proxy itself");
    }
    let place = Place {
        job: args.job.clone(),
        runbooks: args.runbooks.clone(),
        grafana: args.grafana.trim_end_matches('/').to_owned(),
        resolution: args.resolution,
    };
    let groups = rules::groups(&config.slos, &place);
    Ok(match args.format {
        RulesFormat::Operator => yaml::operator(&groups),
        _ => yaml::file(&groups),
    })
}
