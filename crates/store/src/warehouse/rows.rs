//! Reads the rows of ClickHouse's responses.

use super::sql::{SKETCHES, measures};
use crate::columns::{COLUMNS, CallRow, ColumnKind, Value};
use crate::ledger::aggregates::Sums;
use crate::sketch::Sketch;
use serde_json::{Map, Value as Json};
use tokengauge_core::pod::PodName;
use tokengauge_core::time::duration_since_1970;

/// The values of a row, in the order in which they were asked for.
pub(super) struct Row(Vec<Json>);

impl Row {
    pub(super) fn of(values: Vec<Json>) -> Row {
        Row(values)
    }

    fn at(&self, at: usize) -> &Json {
        self.0.get(at).unwrap_or(&Json::Null)
    }

    /// A whole number, which older servers write as a string.
    pub(super) fn whole(&self, at: usize) -> Option<i64> {
        whole(self.at(at))
    }

    pub(super) fn count(&self, at: usize) -> u64 {
        self.whole(at).map_or(0, |count| count.max(0) as u64)
    }

    pub(super) fn number(&self, at: usize) -> Option<f64> {
        self.at(at).as_f64()
    }

    pub(super) fn flag(&self, at: usize) -> bool {
        let value = self.at(at);
        value
            .as_bool()
            .unwrap_or_else(|| whole(value).is_some_and(|flag| flag != 0))
    }

    pub(super) fn text(&self, at: usize) -> Option<String> {
        self.at(at).as_str().map(str::to_owned)
    }

    pub(super) fn texts(&self, at: usize) -> Vec<String> {
        let list = self.at(at).as_array().into_iter().flatten();
        list.filter_map(|text| text.as_str().map(str::to_owned))
            .collect()
    }

    /// Pairs of whole numbers.
    pub(super) fn pairs(&self, at: usize) -> Vec<(i64, i64)> {
        let list = self.at(at).as_array().into_iter().flatten();
        let pair = |pair: &Json| Some((whole(pair.get(0)?)?, whole(pair.get(1)?)?));
        list.filter_map(pair).collect()
    }

    /// Adds the classes of a sketch to `sketch`.
    pub(super) fn sketch(&self, at: usize, sketch: &mut Sketch) {
        let classes = self.at(at).as_object().into_iter().flatten();
        let counted = classes.filter_map(|(class, times)| {
            Some((class.parse().ok()?, u64::try_from(whole(times)?).ok()?))
        });
        counted.for_each(|(class, times)| sketch.count(class, times));
    }

    /// The sums that begin at this place, as [`measures`] has them.
    pub(super) fn sums(&self, first: usize) -> Sums {
        let mut next = first;
        let mut known = || {
            next += 1;
            self.whole(next - 1)
        };
        let mut sums = Sums {
            calls: known().unwrap_or(0),
            errors: known().unwrap_or(0),
            input: known(),
            cached_input: known(),
            output: known(),
            reasoning: known(),
            cost_nano: known(),
            generation_nano: known(),
            unpriced: known().unwrap_or(0),
            priced_output: known().unwrap_or(0),
            decode_tokens: known().unwrap_or(0),
            decode_us: known().unwrap_or(0),
            ttft_us: known().unwrap_or(0),
            waited_us: known().unwrap_or(0),
            reported_millitokens: known().unwrap_or(0),
            reported_us: known().unwrap_or(0),
            ..Sums::default()
        };
        sums.bands
            .iter_mut()
            .for_each(|band| *band = known().unwrap_or(0));
        (sums.prompt.counts_mut().into_iter())
            .for_each(|count| *count = known().unwrap_or(0).unsigned_abs());
        debug_assert_eq!(next - first, measures().len());
        sums
    }

    /// Adds the sketches that begin at this place, in the order of [`SKETCHES`].
    pub(super) fn sketches(&self, first: usize, sums: &mut Sums) {
        let sketches = [&mut sums.tps, &mut sums.reported, &mut sums.ttft];
        debug_assert_eq!(sketches.len(), SKETCHES.len());
        for (at, sketch) in sketches.into_iter().enumerate() {
            self.sketch(first + at, sketch);
        }
    }
}

pub(super) fn whole(value: &Json) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// A call by the names of its columns, as any version of the table has them. A value that is absent or of another kind is unknown.
pub(super) fn call_row(object: &Map<String, Json>) -> CallRow {
    let columns = COLUMNS.iter();
    let values = columns.map(|column| {
        let value = object.get(column.name);
        value
            .and_then(|value| value_of(value, column.kind))
            .unwrap_or(Value::Null)
    });
    let text = |name: &str| Some(object.get(name)?.as_str()?.to_owned());
    let pod = PodName {
        cluster: text("cluster"),
        namespace: text("namespace"),
        name: text("pod").or_else(|| text("instance")),
    };
    CallRow {
        values: values.collect(),
        pod: pod.known(),
    }
}

/// A number as it was stored. Columns have at most nine decimal places, and a number that was written and read as text may be
/// off by the last bit.
fn exact(number: f64) -> f64 {
    const PLACES: f64 = 1e9;
    let scaled = number * PLACES;
    // Beyond this a whole number is not exact.
    if scaled.abs() < 2_f64.powi(53) {
        scaled.round() / PLACES
    } else {
        number
    }
}

fn value_of(value: &Json, kind: ColumnKind) -> Option<Value> {
    Some(match kind {
        ColumnKind::Text => Value::text(value.as_str()?),
        ColumnKind::Count => Value::Whole(whole(value)?),
        ColumnKind::Number => Value::Number(exact(value.as_f64()?)),
        ColumnKind::Flag => Value::Flag(value.as_bool().or(whole(value).map(|flag| flag != 0))?),
        ColumnKind::Instant => {
            let text = value.as_str()?;
            let at = humantime::parse_rfc3339_weak(text.trim_end_matches('Z')).ok()?;
            let ms = duration_since_1970(at).as_millis();
            Value::Whole(i64::try_from(ms).ok()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_a_column_leaves_it_unknown() {
        let json = "{\"id\":\"i\",\"started_at\":\"2025-11-25 19:33:40.123\",\"hop\":2,\"warm_up\":true,\
            \"cost_usd\":1,\"newer\":5,\"model\":null,\"namespace\":\"agents\",\"instance\":\"host-1\"}";
        let row = call_row(&serde_json::from_str(json).expect("an object"));
        let of = |name: &str| {
            row.values[COLUMNS
                .iter()
                .position(|column| column.name == name)
                .expect("a column")]
            .clone()
        };
        assert_eq!((row.id(), row.started_ms()), ("i", 1_764_099_220_123));
        assert_eq!(of("hop"), Value::Whole(2));
        assert_eq!(of("warm_up"), Value::Flag(true));
        assert_eq!(of("cost_usd"), Value::Number(1.0));
        assert_eq!((of("model"), of("route")), (Value::Null, Value::Null));
        let pod = row.pod.expect("a pod");
        assert_eq!(pod.namespace.as_deref(), Some("agents"));
        assert_eq!(pod.name.as_deref(), Some("host-1"), "no pod: the instance");
    }

    #[test]
    fn a_number_is_as_it_was_stored() {
        assert_eq!(exact(0.010_946_000_000_000_001), 0.010_946);
        assert_eq!(exact(10_946.0 / 1e6), 10_946.0 / 1e6);
        assert_eq!((exact(1e-9), exact(1e15)), (1e-9, 1e15));
    }

    #[test]
    fn sums_are_read_in_the_order_of_the_measures() {
        let values = (0..measures().len()).map(|at| Json::from(at as i64));
        let sums = Row::of(values.collect()).sums(0);
        assert_eq!((sums.calls, sums.errors, sums.input), (0, 1, Some(2)));
        assert_eq!(sums.bands, [16, 17, 18, 19, 20]);
        let prompt = std::array::from_fn(|at| 21 + at as u64);
        assert_eq!(sums.prompt.counts(), prompt);
        let mut sketch = Sketch::default();
        Row::of(vec![serde_json::json!({"-3": 2, "5": "1"})]).sketch(0, &mut sketch);
        assert_eq!(sketch.len(), 3);
    }
}
