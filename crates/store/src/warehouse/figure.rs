//! What questions ask of calls and of sums alike: keys by which rows are grouped, and figures that can be merged.

use super::sql::{SKETCHES, measures, sketch_of, value_of};
use crate::query::Dimension;
use std::time::Duration;
use tokengauge_core::dimension::Kept;

/// The largest time limit of one insertion.
pub const INSERTION_LIMIT: Duration = Duration::from_secs(300);
/// A call can be read at most this many seconds after its insertion began.
const INSERTED_WITHIN: i64 = 2 * INSERTION_LIMIT.as_secs() as i64;
/// Sums by day are computed from sums by five minutes that are at most this many seconds old.
pub(super) const FINE_WITHIN: i64 = 600;

/// The length of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Fine,
    Day,
}

impl Level {
    pub(super) const ALL: [Level; 2] = [Level::Fine, Level::Day];

    pub(super) const fn seconds(self) -> i64 {
        match self {
            Level::Fine => 300,
            Level::Day => 86_400,
        }
    }

    /// Calls that were inserted this many seconds before a computation began, or earlier, are in its sums.
    pub(super) const fn margin(self) -> i64 {
        match self {
            Level::Fine => INSERTED_WITHIN,
            Level::Day => INSERTED_WITHIN + FINE_WITHIN,
        }
    }

    pub(super) fn start_of(self, second: i64) -> i64 {
        second - second.rem_euclid(self.seconds())
    }

    /// The start of the step of an instant, as an expression.
    pub(super) fn start(self, instant: &str) -> String {
        match self {
            Level::Fine => format!("toStartOfFiveMinutes({instant})"),
            Level::Day => format!("toStartOfDay({instant})"),
        }
    }
}

/// What is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// All calls, by dimensions with few values.
    Calls,
    /// The calls of each session.
    Sessions,
}

/// Whether sums tell the values of a dimension apart: if it has few values in five minutes of a whole fleet.
pub(super) fn is_summed(by: Dimension) -> bool {
    let few = matches!(by.definition().kept, Kept::Series | Kept::OpenSeries);
    few && !matches!(by, Dimension::Pod | Dimension::ServedBy)
}

/// The column that has a dimension in sums.
pub(super) fn row_column(by: Dimension) -> String {
    format!("{ROW_PREFIX}{}", by.column())
}

/// What columns of sums begin with that also calls have.
pub(super) const ROW_PREFIX: &str = "by_";

/// The classes of calls that sums tell apart in addition to dimensions.
pub(super) fn classes() -> [Key; 5] {
    [
        Key::column("by_operation_class", "operation_class"),
        Key::column("by_priced", "isNotNull(cost_usd)"),
        Key::column("by_cost_unavailable", "cost_unavailable"),
        Key::column("by_timed", "isNotNull(output_tokens_per_second)"),
        Key::column("by_tps_unavailable", "tps_unavailable"),
    ]
}

/// The session of a call.
pub(super) fn session_name() -> Key {
    Key::column("session_name", "assumeNotNull(session)")
}

/// A figure of [`measures`].
pub(super) fn measure(name: &str) -> Figure {
    let sum = measures().into_iter().find(|sum| sum.name == name);
    Figure::new(name, sum.map(|sum| sum.sum).unwrap_or_default(), Merge::Sum)
}

/// Figures of calls that are counted in classes.
pub(super) fn sketches() -> [Figure; SKETCHES.len()] {
    SKETCHES.map(|(name, value)| Figure::new(name, sketch_of(value, ""), Merge::Map))
}

/// Events that were not measured.
pub(super) fn skipped() -> Figure {
    Figure::new(
        "skipped_sum",
        "toInt64(sum(skipped_events))".to_owned(),
        Merge::Sum,
    )
}

/// The distinct names of several lists, as an expression. Most names are in many rows.
pub(super) fn names(list: &str) -> String {
    format!("CAST(groupUniqArrayArray({list}), 'Array(LowCardinality(String))')")
}

/// What the names of a dimension begin with in `names`.
pub(super) fn name_prefix(by: Dimension) -> String {
    format!("{}=", by.column())
}

/// Something by which calls are grouped.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) of_call: String,
    pub(super) of_row: String,
    /// The seconds that it tells apart.
    pub(super) step: Option<i64>,
}

impl Key {
    pub(super) fn by(name: String, by: Dimension) -> Key {
        Key {
            name,
            of_call: value_of(by),
            of_row: row_column(by),
            step: None,
        }
    }

    pub(super) fn column(name: &str, of_call: &str) -> Key {
        Key {
            name: name.to_owned(),
            of_call: of_call.to_owned(),
            of_row: name.to_owned(),
            step: None,
        }
    }

    /// The start of the step in which a call began, in seconds since 1970.
    pub(super) fn start(name: &str, width: i64) -> Key {
        Key {
            name: name.to_owned(),
            of_call: format!("intDiv(intDiv(started_ms, 1000), {width}) * {width}"),
            of_row: format!("intDiv(toInt64(toUnixTimestamp(start)), {width}) * {width}"),
            step: Some(width),
        }
    }
}

/// Something that is worked out of calls.
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) of_calls: String,
    pub(super) of_row: String,
    merge: Merge,
}

/// How the figures of two rows become one.
#[derive(Clone, Copy)]
pub(super) enum Merge {
    Sum,
    Min,
    Max,
    Map,
    Latest,
    Names,
}

impl Figure {
    pub(super) fn new(name: &str, of_calls: String, merge: Merge) -> Figure {
        Figure {
            name: name.to_owned(),
            of_calls,
            of_row: name.to_owned(),
            merge,
        }
    }

    pub(super) fn is_time(&self) -> bool {
        matches!(self.merge, Merge::Min | Merge::Max)
    }

    /// A figure that is another expression over the columns of sums.
    pub(super) fn of_row(self, of_row: String) -> Figure {
        Figure { of_row, ..self }
    }

    /// The figure of all rows of `s` as `all_NAME`.
    pub(super) fn merged(&self) -> String {
        let merged = match self.merge {
            Merge::Latest => format!("argMaxMerge(s.{})", self.name),
            _ => self.merged_again(),
        };
        format!("{merged} AS all_{}", self.name)
    }

    /// The figure of all rows of `s`, as a row has it.
    pub(super) fn merged_again(&self) -> String {
        let function = match self.merge {
            Merge::Sum => "sum",
            Merge::Min => "min",
            Merge::Max => "max",
            Merge::Map => "sumMap",
            Merge::Latest => "argMaxMergeState",
            Merge::Names => return names(&format!("s.{}", self.name)),
        };
        format!("{function}(s.{})", self.name)
    }
}

pub(super) fn any_of(conditions: &[String]) -> String {
    let all: Vec<String> = conditions
        .iter()
        .map(|condition| format!("({condition})"))
        .collect();
    match all.as_slice() {
        [] => "0".to_owned(),
        all => format!("({})", all.join(" OR ")),
    }
}
