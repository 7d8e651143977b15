//! `tokengauge print dashboards`: the Grafana dashboards for this build's metrics, and for calls in ClickHouse.

use super::error::CommandError;
use crate::Error;
use crate::cli::DashboardsArgs;
use std::path::Path;
use tokengauge_process::SystemError;

/// Name, purpose, and JSON for Grafana.
const DASHBOARDS: &[(&str, &str, &str)] = &[
    (
        "service-levels",
        "Are objectives met, and how much error budget remains?",
        include_str!("../../dashboards/service-levels.json"),
    ),
    (
        "speed",
        "How fast are responses, and where is the time spent?",
        include_str!("../../dashboards/speed.json"),
    ),
    (
        "capacity",
        "How much more can the backends take?",
        include_str!("../../dashboards/capacity.json"),
    ),
    (
        "traffic-and-cost",
        "Who calls what, and how does it end?",
        include_str!("../../dashboards/traffic-and-cost.json"),
    ),
    (
        "proxy",
        "Is tokengauge itself healthy?",
        include_str!("../../dashboards/proxy.json"),
    ),
    (
        "warehouse-sessions",
        "Which sessions are the most expensive and the slowest? (ClickHouse)",
        include_str!("../../dashboards/warehouse-sessions.json"),
    ),
    (
        "warehouse-cost",
        "What do teams, models, agents and users cost? (ClickHouse)",
        include_str!("../../dashboards/warehouse-cost.json"),
    ),
    (
        "warehouse-slow-calls",
        "Which calls were slow or failed? (ClickHouse)",
        include_str!("../../dashboards/warehouse-slow-calls.json"),
    ),
];
const PROVISIONING: &str = include_str!("../../dashboards/provisioning.yaml");

pub(super) fn dashboards(args: &DashboardsArgs) -> Result<String, Error> {
    match (&args.write, &args.name) {
        (Some(folder), _) => write(folder),
        (None, Some(name)) => one(name),
        (None, None) => Ok(list()),
    }
}

fn list() -> String {
    let row = |(name, question, _): &(&str, &str, &str)| format!("{name:<20} {question}\n");
    DASHBOARDS.iter().map(row).collect()
}

fn one(name: &str) -> Result<String, Error> {
    let found = DASHBOARDS.iter().find(|(known, ..)| *known == name);
    let json = found.map(|(_, _, json)| (*json).to_owned());
    let unknown = || CommandError::UnknownDashboard(name.to_owned(), list().trim_end().to_owned());
    Ok(json.ok_or_else(unknown)?)
}

fn write(folder: &Path) -> Result<String, Error> {
    std::fs::create_dir_all(folder).map_err(SystemError::write(folder))?;
    let files = DASHBOARDS
        .iter()
        .map(|(name, _, json)| (format!("{name}.json"), *json));
    let mut written = String::new();
    for (name, text) in files.chain([("provisioning.yaml".to_owned(), PROVISIONING)]) {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(SystemError::write(&path))?;
        written += &format!("{}\n", path.display());
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(name: Option<&str>, write: Option<&Path>) -> Result<String, Error> {
        dashboards(&DashboardsArgs {
            name: name.map(str::to_owned),
            write: write.map(Path::to_owned),
        })
    }

    #[test]
    fn every_listed_dashboard_prints_itself() {
        for line in ask(None, None).expect("a list").lines() {
            let name = line.split_whitespace().next().expect("a name");
            let json: serde_json::Value =
                serde_json::from_str(&ask(Some(name), None).expect(name)).expect(name);
            assert_eq!(json["uid"], format!("tokengauge-{name}"));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = ask(Some("sped"), None).expect_err("unknown").to_string();
        assert!(
            error.contains("no dashboard sped") && error.contains("capacity"),
            "{error}"
        );
    }

    #[test]
    fn all_are_written_into_a_folder_that_need_not_exist() {
        let folder = tempfile::tempdir().expect("a folder");
        let written = ask(None, Some(&folder.path().join("a/b"))).expect("written");
        assert_eq!(written.lines().count(), DASHBOARDS.len() + 1);
        for path in written.lines() {
            assert!(std::fs::metadata(path).expect(path).len() > 100, "{path}");
        }
    }
}
