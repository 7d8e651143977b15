//! Calls summed by unit: by session, agent, user or block of time.

use super::Warehouse;
use super::rows::Row;
use super::sql::{Span, class_of_length_place, conditions, finished, sketch_of, text};
use crate::ledger::QueryError;
use crate::ledger::row::milliseconds;
use crate::query::{
    COUNTS, CallUnit, CallUnitQuery, CallUnits, ExperimentUnit, ExperimentUnits, UnitKind,
    UnitQuery, UnitSums,
};
use tokengauge_core::finish_class::FinishClass;
use tokengauge_core::lengths::PROMPT_BOUNDS;

/// Calls while the backend warms up have no speed.
const TIMED: &str = " AND NOT ifNull(warm_up, 0)";

/// The sums of a unit, in the order of [`UnitSums::counts`], after the first and the last instant and the first prompt's class.
fn fields() -> String {
    let timed = |figure: &str| format!("sumIf({figure}, NOT ifNull(warm_up, 0))");
    let counts: [String; COUNTS] = [
        "count()".to_owned(),
        "countIf(failed)".to_owned(),
        "countIf(ifNull(warm_up, 0))".to_owned(),
        "sum(input_tokens)".to_owned(),
        "sum(reported_cached_input_tokens)".to_owned(),
        "sum(output_tokens)".to_owned(),
        "sum(cost_nano)".to_owned(),
        "countIf(isNotNull(cost_nano))".to_owned(),
        timed("decode_tokens"),
        timed("decode_us"),
        "countIf(isNotNull(tps_unavailable) AND NOT ifNull(warm_up, 0))".to_owned(),
        timed("ttft_us"),
        "sum(duration_us)".to_owned(),
        format!("countIf({})", finished(FinishClass::Length)),
        format!("countIf({})", finished(FinishClass::Refused)),
        format!(
            "countIf(ifNull(operation_class = 'generation', 0) AND ifNull(outcome, 'complete') = 'complete' AND \
             ifNull(normalised_output_tokens = 0, 0) AND NOT {})",
            finished(FinishClass::ToolCall)
        ),
        "countIf((isNotNull(ttft_us) OR ifNull(normalised_output_tokens > 0, 0)) AND \
         ifNull(outcome, '') IN ('upstream_reset', 'error_event', 'timeout', 'drained'))"
            .to_owned(),
        format!("countIf({})", finished(FinishClass::InvalidToolCall)),
    ];
    let place = class_of_length_place("input_tokens", &PROMPT_BOUNDS);
    // The prompt of the first call; an unknown length sorts before every known one.
    let first = format!("min((started_us, ifNull({place}, -1))).2");
    format!(
        "min(started_us) AS first_us, max(ended_us) AS last_us, {first}, {}, {}, {}",
        counts.join(", "),
        sketch_of("ttft_seconds", TIMED),
        sketch_of("output_tokens_per_second", TIMED)
    )
}

fn sums(row: &Row, first: usize) -> UnitSums {
    let mut sums = UnitSums {
        first_us: row.whole(first).unwrap_or(0),
        last_us: row.whole(first + 1).unwrap_or(0),
        first_prompt: row
            .whole(first + 2)
            .and_then(|place| usize::try_from(place).ok()),
        ..UnitSums::default()
    };
    let counts = sums.counts_mut().into_iter().enumerate();
    counts.for_each(|(at, count)| *count = row.count(first + 3 + at));
    row.sketch(first + 3 + COUNTS, &mut sums.ttft);
    row.sketch(first + 4 + COUNTS, &mut sums.tps);
    sums
}

/// The unit of a call, as an expression.
fn unit_of(kind: UnitKind) -> String {
    match kind {
        UnitKind::Session => "session".to_owned(),
        UnitKind::Agent => "agent".to_owned(),
        UnitKind::User => "user".to_owned(),
        UnitKind::Block(length) => format!(
            "toString(intDiv(started_us, {}))",
            length.as_micros().max(1)
        ),
    }
}

/// The name of a unit, from its value.
fn name_of(kind: UnitKind, value: String) -> String {
    match (kind, value.parse()) {
        (UnitKind::Block(_), Ok(block)) => kind.block_name(block),
        _ => value,
    }
}

impl Warehouse {
    /// The calls that match, summed by unit.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn call_units(&self, query: &CallUnitQuery) -> Result<CallUnits, QueryError> {
        let (span, mut all) = (Span::of(&query.filter), conditions(&query.filter));
        let variant = query.variant.as_deref();
        all.extend(variant.map(|variant| format!("variant = {}", text(variant))));
        let statement = self.select("count()", span, &all, "")?;
        let mut found = CallUnits {
            calls: self.rows(&statement)?.first().map_or(0, |row| row.count(0)),
            ..CallUnits::default()
        };
        while found.calls / found.one_in > query.max_calls {
            found.one_in *= 2;
        }
        if found.one_in > 1 {
            all.push(format!(
                "cityHash64(ifNull(session, toString(id))) % {} = 0",
                found.one_in
            ));
        }
        let unit = unit_of(query.unit);
        // A call without a unit is a separate unit.
        let fields = format!("{unit} AS unit, {}", fields());
        let rest = "GROUP BY unit, if(isNull(unit), toString(id), '')";
        for row in self.rows(&self.select(&fields, span, &all, rest)?)? {
            found.units.push(CallUnit {
                name: row.text(0).map(|value| name_of(query.unit, value)),
                sums: sums(&row, 1),
            });
        }
        found.scale_costs(query.unit);
        Ok(found)
    }

    /// The units of an experiment.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn experiment_units(&self, query: &UnitQuery) -> Result<ExperimentUnits, QueryError> {
        let all = [
            format!("experiment = {}", text(&query.experiment)),
            "operation_class IN ('generation', 'embedding')".to_owned(),
        ];
        let unit = unit_of(query.unit);
        let mut having = vec!["1".to_owned()];
        let us = |at| milliseconds(at).saturating_mul(1_000);
        // Calls without a unit are counted whenever they began.
        having.extend(
            query
                .since
                .map(|since| format!("(isNull(unit) OR first_us >= {})", us(since))),
        );
        having.extend(
            query
                .until
                .map(|until| format!("(isNull(unit) OR first_us < {})", us(until))),
        );
        let fields = format!("variant, {unit} AS unit, {}", fields());
        let rest = format!("GROUP BY variant, unit HAVING {}", having.join(" AND "));
        let mut found = ExperimentUnits::default();
        for row in self.rows(&self.select(&fields, Span::default(), &all, &rest)?)? {
            let sums = sums(&row, 2);
            match row.text(1) {
                Some(unit) => found.units.push(ExperimentUnit {
                    variant: row.text(0),
                    unit: name_of(query.unit, unit),
                    sums,
                }),
                None => found.calls_without_unit += sums.calls,
            }
        }
        found.units.sort_by(|one, other| {
            let order = |unit: &ExperimentUnit| (unit.variant.clone(), unit.sums.first_us);
            (order(one), &one.unit).cmp(&(order(other), &other.unit))
        });
        Ok(found)
    }
}
