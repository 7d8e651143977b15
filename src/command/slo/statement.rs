//! `tokengauge slo status --month`: the attainment of objectives in a calendar month, as a statement to sign.

use super::status::{Month, Row, aligned, percent};
use tokengauge_process::output::printable;

const HEADS: [&str; 9] = [
    "SLO",
    "PROMISE",
    "OBJECTIVE",
    "EVENT",
    "GOOD",
    "BAD",
    "EXCLUDED",
    "SHARE",
    "ATTAINED",
];

pub(super) fn text(month: &str, from: &str, rows: &[Row]) -> String {
    let mut lines = vec![HEADS.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| cells(row, of(row, month))));
    let running = rows
        .iter()
        .any(|row| of(row, month).is_some_and(|month| !month.over));
    let state = if running { ", so far" } else { "" };
    let from = printable(from);
    format!(
        "Service level objectives in {month} (UTC){state}\nCounted by the proxy at {from}\n\n{}\n\
         GOOD and BAD count events for and against the objective, EXCLUDED events count neither way.\n\
         An objective is attained if the share of good events is at least the promised share.\n\n\
         Date: ____________________   Signed: ______________________________\n",
        aligned(&lines)
    )
}

fn of<'a>(row: &'a Row, month: &str) -> Option<&'a Month> {
    row.months.iter().find(|known| known.month == month)
}

fn cells(row: &Row, month: Option<&Month>) -> Vec<String> {
    let count = |of: fn(&Month) -> u64| month.map_or(0, of).to_string();
    let ratio = month.and_then(|month| month.ratio);
    let attained = month.and_then(|month| month.attained);
    vec![
        printable(&row.name).into_owned(),
        printable(&row.promise).into_owned(),
        percent(row.objective),
        row.event.clone(),
        count(|month| month.good),
        count(|month| month.bad),
        count(|month| month.excluded),
        ratio.map_or("-".to_owned(), percent),
        attained
            .map_or("no events", |yes| if yes { "yes" } else { "NO" })
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_names_every_objective_and_whether_it_was_attained() {
        let json = serde_json::json!([
            {"name": "fast", "promise": "ttft", "objective": 0.99, "window": "month", "good": 1.0,
             "bad": 0.0, "ratio": 1.0, "budget_remaining": 1.0, "exhausted_in_seconds": null,
             "burn": [], "alerts": [], "event": "request",
             "months": [{"month": "2026-10", "over": true, "good": 98, "bad": 2, "excluded": 7,
                         "ratio": 0.98, "attained": false}]},
            {"name": "new", "promise": "up", "objective": 0.9, "window": "30d", "good": 0.0,
             "bad": 0.0, "ratio": null, "budget_remaining": 1.0, "exhausted_in_seconds": null,
             "burn": [], "alerts": [], "event": "1m", "months": []}
        ]);
        let rows: Vec<Row> = serde_json::from_value(json).expect("rows");
        let statement = text("2026-10", "http://proxy", &rows);
        let line = |name: &str| {
            let found = statement.lines().find(|line| line.starts_with(name));
            found
                .expect("a line")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(line("fast"), "fast ttft 99% request 98 2 7 98% NO");
        assert_eq!(line("new"), "new up 90% 1m 0 0 0 - no events");
        assert!(
            statement.starts_with("Service level objectives in 2026-10 (UTC)\n"),
            "{statement}"
        );
        assert!(statement.contains("Signed: ____"));
    }
}
