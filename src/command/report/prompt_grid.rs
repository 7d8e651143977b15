//! The table of what prompts consist of: for each group the average tokens of a part of a prompt,
//! and its share.

use super::figures::{Report, Row};
use super::grid::{Cell, Grid, UNKNOWN, count, names, plain, share};
use serde_json::{Map, Value, json};
use tokengauge_core::prompt::{PromptPart, PromptSums};

pub(super) const TITLE: &str = "Prompts";

/// `None` if no prompt was analyzed.
pub(super) fn prompt_grid(report: &Report, rows: &[Row]) -> Option<Grid> {
    rows.iter().find(|row| row.group.prompt.is_some())?;
    let by = report.dimensions().into_iter();
    let parts = PromptPart::ALL.iter().map(|part| part.as_str());
    let heads = by.chain(["prompts", "tokens/prompt"]).chain(parts);
    let cells = |row: &Row| {
        let sums = row.group.prompt.unwrap_or_default();
        let parts = PromptPart::ALL
            .iter()
            .map(move |part| part_cell(&sums, *part));
        let figures = [count(sums.calls), average(&sums, sums.tokens.total())];
        names(&row.group.names)
            .chain(figures)
            .chain(parts)
            .collect()
    };
    Some(Grid {
        named: report.dimensions().len(),
        heads: heads.map(|head| head.replace('_', " ")).collect(),
        rows: rows.iter().map(cells).collect(),
    })
}

fn part_cell(sums: &PromptSums, part: PromptPart) -> Cell {
    Cell {
        interval: share_of(sums, part).map_or_else(String::new, share),
        ..average(sums, sums.tokens.get(part))
    }
}

fn average(sums: &PromptSums, tokens: u64) -> Cell {
    match per_call(sums, tokens) {
        Some(tokens) => Cell {
            value: Some(tokens),
            ..plain(format!("{tokens:.0}"))
        },
        None => plain(UNKNOWN.to_owned()),
    }
}

fn per_call(sums: &PromptSums, tokens: u64) -> Option<f64> {
    (sums.calls > 0).then(|| tokens as f64 / sums.calls as f64)
}

fn share_of(sums: &PromptSums, part: PromptPart) -> Option<f64> {
    let all = sums.tokens.total();
    (all > 0).then(|| sums.tokens.get(part) as f64 / all as f64)
}

/// The sums of a group for JSON, with the average and the share of each part.
pub(super) fn prompt_json(sums: &PromptSums) -> Value {
    let of_parts = |value: &dyn Fn(PromptPart) -> Option<f64>| -> Map<String, Value> {
        let parts = PromptPart::ALL.iter();
        parts
            .map(|part| (part.as_str().to_owned(), json!(value(*part))))
            .collect()
    };
    let mut value = json!(sums);
    value["average_tokens"] = json!(per_call(sums, sums.tokens.total()));
    value["average"] = of_parts(&|part| per_call(sums, sums.tokens.get(part))).into();
    value["share"] = of_parts(&|part| share_of(sums, part)).into();
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_core::prompt::PromptTokens;

    #[test]
    fn parts_have_an_average_and_a_share() {
        let sums = PromptSums {
            calls: 4,
            tokens: PromptTokens {
                system: 300,
                tool_results: 100,
                ..PromptTokens::default()
            },
            ..PromptSums::default()
        };
        let json = prompt_json(&sums);
        assert_eq!(json["average_tokens"], 100.0);
        assert_eq!(json["average"]["system"], 75.0);
        assert_eq!(json["share"]["tool_results"], 0.25);
        assert_eq!(json["share"]["user"], 0.0);
        let cell = part_cell(&sums, PromptPart::System);
        assert_eq!((&*cell.text, &*cell.interval), ("75", "75.0 %"));
        let nothing = PromptSums::default();
        assert_eq!(prompt_json(&nothing)["share"]["system"], Value::Null);
        assert_eq!(part_cell(&nothing, PromptPart::User).text, UNKNOWN);
    }
}
