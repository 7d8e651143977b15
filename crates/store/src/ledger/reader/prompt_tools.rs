//! Sums of each tool over the prompts of calls in a ledger.

use super::QueryError;
use super::matching::{Matching, text};
use crate::columns::tools_of;
use crate::ledger::dictionary::SeriesNames;
use crate::ledger::row::micros;
use crate::query::{Dimension, Filter, PromptPlace, PromptToolUse, PromptTools};
use rusqlite::{Connection, params_from_iter};
use std::collections::HashMap;
use std::sync::Arc;
use tokengauge_core::dimension::TOOLS_BETWEEN;
use tokengauge_core::prompt::WaitKind;

pub(super) fn prompt_tools(
    connection: &Connection,
    filter: &Filter,
) -> Result<Vec<PromptToolUse>, QueryError> {
    let mut tools = PromptTools::default();
    let Some(matching) = Matching::of(connection, filter)? else {
        return Ok(Vec::new());
    };
    let mut sql = format!(
        "SELECT series, endpoint, prompt_tools, iif(wait_kind = '{}', wait_tools, NULL), wait_seconds
         FROM calls JOIN analyses USING (key)
         WHERE key >= ? AND key < ? AND prompt_tools IS NOT NULL",
        WaitKind::Tools.as_str()
    );
    let mut values = vec![matching.from, matching.to];
    matching.restrict(&mut sql, &mut values);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut places: HashMap<(i64, Option<i64>), Arc<PromptPlace>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let (series, endpoint) = (row.get(0)?, row.get(1)?);
        let Some(common) = matching.series.get(&series) else {
            continue;
        };
        let place = match places.get(&(series, endpoint)) {
            Some(place) => Arc::clone(place),
            None => {
                let place = Arc::new(place(connection, common, endpoint)?);
                places.insert((series, endpoint), Arc::clone(&place));
                place
            }
        };
        let of_prompt = tools_of(row.get_ref(2)?.as_str().unwrap_or_default());
        let waited_for = row.get_ref(3)?.as_str_or_null().ok().flatten();
        let waited_for =
            waited_for.map_or_else(Vec::new, |tools| tools.split(TOOLS_BETWEEN).collect());
        let us = row.get::<_, Option<f64>>(4)?.and_then(micros).unwrap_or(0);
        tools.add(&place, &of_prompt, (&waited_for, us));
    }
    Ok(tools.uses())
}

fn place(
    connection: &Connection,
    common: &SeriesNames,
    endpoint: Option<i64>,
) -> rusqlite::Result<PromptPlace> {
    let named = |by| text(connection, common.of(by));
    Ok(PromptPlace {
        upstream: named(Dimension::Upstream)?.unwrap_or_default(),
        model: named(Dimension::Model)?,
        endpoint: text(connection, endpoint)?,
    })
}
