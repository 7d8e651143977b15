//! Calls grouped by dimensions.

use super::Warehouse;
use super::sql::{SKETCHES, Span, conditions, measures, sketch_of, text, value_of};
use crate::answer::group_row;
use crate::ledger::QueryError;
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
        let (span, mut conditions) = (Span::of(filter), conditions(filter));
        let names: Vec<String> = (0..by.len()).map(|at| format!("name_{at}")).collect();
        let values: Vec<String> = by.iter().map(|by| value_of(*by)).collect();
        let named = names.iter().zip(&values);
        let mut fields: Vec<String> = named
            .map(|(name, value)| format!("{value} AS {name}"))
            .collect();
        let measures = measures();
        let sums = measures
            .iter()
            .map(|sum| format!("{} AS {}", sum.sum, sum.name));
        fields.extend(sums);
        let order = names.iter().map(|name| format!("{name} ASC NULLS FIRST"));
        let order: Vec<String> = std::iter::once("calls DESC".to_owned())
            .chain(order)
            .collect();
        let more = page.limit.saturating_add(1);
        let rest = format!(
            "{} ORDER BY {} LIMIT {more} OFFSET {skip}",
            grouped(&names),
            order.join(", ")
        );
        let mut found = Vec::new();
        for row in self.rows(&self.select(&fields.join(", "), span, &conditions, &rest)?)? {
            let names: Vec<Option<String>> = (0..by.len()).map(|at| row.text(at)).collect();
            // Without calls a group without names has one row of zeros.
            if row.count(by.len()) > 0 {
                found.push((names, row.sums(by.len())));
            }
        }
        let rest = found.len() > page.limit;
        found.truncate(page.limit);
        if found.is_empty() {
            return Ok(Page {
                rows: Vec::new(),
                next_cursor: None,
            });
        }
        // Only groups of the page get sketches, because sketches of all groups would take much memory.
        let places: HashMap<Vec<Option<String>>, usize> = found
            .iter()
            .enumerate()
            .map(|(at, (names, _))| (names.clone(), at))
            .collect();
        conditions.extend(among(&values, places.keys()));
        let fields: Vec<String> = names
            .iter()
            .zip(&values)
            .map(|(name, value)| format!("{value} AS {name}"))
            .chain(SKETCHES.iter().map(|(_, value)| sketch_of(value, "")))
            .collect();
        let statement = self.select(&fields.join(", "), span, &conditions, &grouped(&names))?;
        for row in self.rows(&statement)? {
            let names: Vec<Option<String>> = (0..by.len()).map(|at| row.text(at)).collect();
            if let Some(at) = places.get(&names) {
                row.sketches(by.len(), &mut found[*at].1);
            }
        }
        let rows = found.into_iter();
        Ok(Page {
            rows: rows.map(|(names, sums)| group_row(names, &sums)).collect(),
            next_cursor: rest.then(|| (skip + page.limit).to_string()),
        })
    }
}

/// `GROUP BY` some names; nothing without any.
fn grouped(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("GROUP BY {}", names.join(", "))
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
