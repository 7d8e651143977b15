//! Calls grouped by dimensions.

use super::Warehouse;
use super::figure::{Figure, Key, Kind, measure, sketches};
use super::sql::{Span, measures, text};
use crate::answer::group_row;
use crate::ledger::QueryError;
use crate::ledger::aggregates::Sums;
use crate::query::{Dimension, Filter, GroupRow, Page, Paging};
use std::collections::HashMap;

impl Warehouse {
    /// Groups of calls by dimensions, the groups with most calls first.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn groups(
        &self,
        filter: &Filter,
        by: &[Dimension],
        page: &Paging,
    ) -> Result<Page<GroupRow>, QueryError> {
        let skip = match &page.cursor {
            Some(cursor) => cursor.parse().map_err(|_| QueryError::cursor())?,
            None => 0_usize,
        };
        let names: Vec<String> = (0..by.len()).map(|at| format!("name_{at}")).collect();
        let keys: Vec<Key> = names
            .iter()
            .zip(by)
            .map(|(name, by)| Key::by(name.clone(), *by))
            .collect();
        let shown: Vec<String> = names.iter().map(|name| format!("s.{name}")).collect();
        let grouped = match shown.as_slice() {
            [] => String::new(),
            names => format!("GROUP BY {}", names.join(", ")),
        };
        let ask = |figures: &[Figure], among: &[String], rest: &str| {
            let span = Span::of(filter);
            let from = self.summed(Kind::Calls, filter, span, &keys, figures, [among, among])?;
            let fields = shown.iter().cloned();
            let fields: Vec<String> = fields.chain(figures.iter().map(Figure::merged)).collect();
            self.rows(&format!(
                "SELECT {} FROM {from} {grouped} {rest}",
                fields.join(", ")
            ))
        };
        let order = shown.iter().map(|name| format!("{name} ASC NULLS FIRST"));
        let order: Vec<String> = std::iter::once("all_calls DESC".to_owned())
            .chain(order)
            .collect();
        let limit = page.limit.saturating_add(1);
        let rest = format!("ORDER BY {} LIMIT {limit} OFFSET {skip}", order.join(", "));
        // First only which groups are on the page: there may be as many as users.
        let mut found: Vec<Vec<Option<String>>> = ask(&[measure("calls")], &[], &rest)?
            .iter()
            // Without calls a group without names has one row of zeros.
            .filter(|row| row.count(by.len()) > 0)
            .map(|row| (0..by.len()).map(|at| row.text(at)).collect())
            .collect();
        let more = found.len() > page.limit;
        found.truncate(page.limit);
        let places: HashMap<&[Option<String>], usize> =
            found.iter().map(Vec::as_slice).zip(0..).collect();
        let mut sums = vec![Sums::default(); found.len()];
        if !found.is_empty() {
            let measures = measures();
            let figures: Vec<Figure> = measures
                .iter()
                .map(|sum| measure(&sum.name))
                .chain(sketches())
                .collect();
            let among: Vec<String> = among(&names, found.iter()).into_iter().collect();
            for row in ask(&figures, &among, "")? {
                let names: Vec<Option<String>> = (0..by.len()).map(|at| row.text(at)).collect();
                if let Some(at) = places.get(names.as_slice()) {
                    sums[*at] = row.sums(by.len());
                    row.sketches(by.len() + measures.len(), &mut sums[*at]);
                }
            }
        }
        let rows = found.iter().cloned().zip(&sums);
        Ok(Page {
            rows: rows.map(|(names, sums)| group_row(names, sums)).collect(),
            next_cursor: more.then(|| (skip + page.limit).to_string()),
        })
    }
}

/// The condition that calls have one of some combinations of values. An unknown value stands for itself.
fn among<'a>(
    values: &[String],
    combinations: impl Iterator<Item = &'a Vec<Option<String>>>,
) -> Option<String> {
    if values.is_empty() {
        return None;
    }
    let known: Vec<String> = values
        .iter()
        .map(|value| format!("isNull({value}), ifNull(toString({value}), '')"))
        .collect();
    let combination = |names: &Vec<Option<String>>| {
        let names = names.iter().map(|name| {
            let is_null = u8::from(name.is_none());
            format!("{is_null}, {}", text(name.as_deref().unwrap_or_default()))
        });
        format!("({})", names.collect::<Vec<_>>().join(", "))
    };
    let combinations: Vec<String> = combinations.map(combination).collect();
    Some(format!(
        "({}) IN ({})",
        known.join(", "),
        combinations.join(", ")
    ))
}
