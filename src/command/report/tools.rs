//! `tokengauge report --tools`: tokens that each tool adds to prompts, and their cost.

use super::grid::{Cell, Grid, UNKNOWN, count, dollars, plain, seconds};
use super::text::{aligned, markdown_table};
use super::{Calls, ReportCommandError, width};
use crate::Error;
use crate::cli::{ReportArgs, ReportFormat};
use crate::command::progress::Progress;
use serde_json::json;
use std::time::SystemTime;
use tokengauge_accounting::cost::Prices;
use tokengauge_process::output::printable;
use tokengauge_store::history::add_prompt_tools;
use tokengauge_store::query::{
    InputCost, InputPrices, PromptPlace, PromptToolRow, PromptTools, priced,
};

pub(super) fn tools(args: &ReportArgs, now: SystemTime) -> Result<String, Error> {
    let (mut tools, mut calls) = (PromptTools::default(), 0);
    let mut progress = Progress::of("report");
    Calls::of(args, now)?.each(|call| {
        add_prompt_tools(&mut tools, call);
        calls += 1;
        progress.at(calls, None, "calls");
    })?;
    drop(progress);
    if calls == 0 {
        return Err(ReportCommandError::NoCalls.into());
    }
    let prices = Prices::default();
    let rows = priced(tools.uses(), |place| list_price(&prices, place, now));
    Ok(match args.format.chosen() {
        ReportFormat::Json => crate::command::json(&json!({ "calls": calls, "tools": rows }))?,
        ReportFormat::Markdown => markdown_table(&grid(&rows)),
        ReportFormat::Text => aligned(&grid(&rows), width(args)),
        ReportFormat::Csv | ReportFormat::Html => {
            return Err(ReportCommandError::ToolsFormat.into());
        }
    })
}

fn list_price(prices: &Prices, place: &PromptPlace, now: SystemTime) -> Option<InputPrices> {
    let model = place.model.as_deref()?;
    let endpoint = place.endpoint.as_deref();
    let (uncached, cached) = prices.input_prices(&place.upstream, endpoint, model, now)?;
    Some(InputPrices { uncached, cached })
}

const HEADS: [&str; 11] = [
    "tool",
    "server",
    "prompts",
    "definition",
    "new results",
    "sent again",
    "calls",
    "failures",
    "time",
    "uncached",
    "cached",
];

fn grid(rows: &[PromptToolRow]) -> Grid {
    Grid {
        named: 2,
        heads: HEADS.map(str::to_owned).to_vec(),
        rows: rows.iter().map(cells).collect(),
    }
}

fn cells(row: &PromptToolRow) -> Vec<Cell> {
    let sums = &row.sums;
    let name = |name: &str| plain(printable(name).into_owned());
    let usd = |of: fn(&InputCost) -> f64| {
        let costs = [row.schema_usd, row.new_result_usd, row.resent_result_usd];
        let known: Vec<f64> = costs.iter().flatten().map(of).collect();
        let more = if row.unpriced_tokens > 0 { " +" } else { "" };
        match known.as_slice() {
            [] => plain(UNKNOWN.to_owned()),
            known => plain(dollars(known.iter().sum()) + more),
        }
    };
    vec![
        name(&row.tool),
        name(row.server.as_deref().unwrap_or("")),
        count(sums.prompts),
        count(sums.schema_tokens),
        count(sums.new_result_tokens),
        count(sums.resent_result_tokens),
        count(sums.calls),
        count(sums.failures),
        plain(seconds(row.seconds)),
        usd(|cost| cost.uncached),
        usd(|cost| cost.cached),
    ]
}
