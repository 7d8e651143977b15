//! ClickHouse SQL for the parts that questions have in common: literals, filters, and the figures of a call.

use crate::ledger::row::{BANDS, milliseconds};
use crate::query::{Dimension, Filter};
use std::borrow::Cow;
use std::time::{Duration, SystemTime};
use tokengauge_core::dimension::TOOLS_BETWEEN;
use tokengauge_core::finish_class::{FINISH_REASONS, FinishClass};
use tokengauge_core::lengths::{OUTPUT_BOUNDS, OUTPUT_LENGTHS, PROMPT_BOUNDS, PROMPT_LENGTHS};
use tokengauge_core::prompt::PromptPart;
use tokengauge_core::time::rfc3339_millis;

/// Returns `value` as a quoted SQL string literal.
pub fn text(value: &str) -> String {
    let mut literal = String::with_capacity(value.len() + 2);
    literal.push('\'');
    for letter in value.chars() {
        if matches!(letter, '\'' | '\\') {
            literal.push('\\');
        }
        literal.push(letter);
    }
    literal.push('\'');
    literal
}

/// A name as SQL has it.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

/// An instant in milliseconds since 1970 as ClickHouse reads it: `2026-11-25 19:33:40.123`.
pub fn instant(ms: i64) -> String {
    let since = Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let text = rfc3339_millis(SystemTime::UNIX_EPOCH + since).to_string();
    text.replace('T', " ").trim_end_matches('Z').to_owned()
}

/// 2200-01-01: DateTime64 ends before 2300.
pub(super) const LATEST: i64 = 7_258_118_400_000;

/// An instant in milliseconds since 1970 as an expression.
pub(super) fn at(ms: i64) -> String {
    let ms = ms.clamp(0, LATEST);
    format!("toDateTime64('{}', 3, 'UTC')", instant(ms))
}

/// Milliseconds since 1970 between which calls began: from the first on, before the second. `None` is without bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) since: Option<i64>,
    pub(super) until: Option<i64>,
}

impl Span {
    pub(super) fn of(filter: &Filter) -> Span {
        Span {
            since: filter.since.map(milliseconds),
            until: filter.until.map(milliseconds),
        }
    }

    pub(super) fn conditions(self) -> Vec<String> {
        let since = self.since.map(|ms| format!("started_at >= {}", at(ms)));
        let until = self.until.map(|ms| format!("started_at < {}", at(ms)));
        since.into_iter().chain(until).collect()
    }
}

/// The conditions for the calls that match a filter, except conditions on times.
pub(super) fn conditions(filter: &Filter) -> Vec<String> {
    conditions_of(filter, value_of, "")
}

/// The same conditions for rows that have the `value` of a dimension, and whose other columns begin with `prefix`.
pub(super) fn conditions_of(
    filter: &Filter,
    value: impl Fn(Dimension) -> String,
    prefix: &str,
) -> Vec<String> {
    let names = filter.names.iter();
    let mut found: Vec<String> = names
        .map(|(by, wanted)| has(by, &value(by), wanted))
        .collect();
    let mut is = |column: &str, value: Option<&str>| {
        found.extend(value.map(|value| format!("{prefix}{column} = {}", text(value))));
    };
    is("session", filter.session.as_deref());
    is(
        "cost_unavailable",
        filter.cost_unavailable.map(|reason| reason.as_str()),
    );
    is(
        "tps_unavailable",
        filter.tps_unavailable.map(|reason| reason.as_str()),
    );
    let outcomes = filter.outcomes.iter().map(|outcome| outcome.as_str());
    found.extend(one_of(&value(Dimension::Outcome), outcomes));
    let classes = filter.operation_classes.iter().map(|class| class.as_str());
    found.extend(one_of(&format!("{prefix}operation_class"), classes));
    found
}

/// The condition that `value` of a dimension has a name; see [`Dimension::selects`].
pub(super) fn has(by: Dimension, value: &str, wanted: &str) -> String {
    if by == Dimension::Tool && !wanted.contains(TOOLS_BETWEEN) {
        return format!(
            "has(splitByChar('{TOOLS_BETWEEN}', ifNull(toString({value}), '')), {})",
            text(wanted)
        );
    }
    format!("{value} = {}", text(wanted))
}

/// `None` if there are no values, which means that all are allowed.
pub(super) fn one_of<'a>(
    expression: &str,
    values: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let values: Vec<String> = values.map(text).collect();
    (!values.is_empty()).then(|| format!("{expression} IN ({})", values.join(", ")))
}

/// The value that a call has of a dimension, as an expression over the table's columns.
pub(super) fn value_of(by: Dimension) -> String {
    match by {
        Dimension::Model => "if(isNull(model), model_requested, model)".to_owned(),
        Dimension::Pod => "if(isNull(pod), instance, pod)".to_owned(),
        Dimension::Outcome => "ifNull(outcome, 'complete')".to_owned(),
        Dimension::PromptLength => class_of_length("input_tokens", &PROMPT_BOUNDS, &PROMPT_LENGTHS),
        Dimension::OutputLength => {
            class_of_length("output_tokens", &OUTPUT_BOUNDS, &OUTPUT_LENGTHS)
        }
        other => other.column().to_owned(),
    }
}

/// The class of a number of tokens: a class begins with its lower bound.
fn class_of_length(tokens: &str, bounds: &[u64], classes: &[&str]) -> String {
    let known = bounds.iter().zip(classes);
    let known = known.map(|(bound, class)| format!("{tokens} < {bound}, '{class}'"));
    let known: Vec<String> = known.collect();
    let last = classes.last().copied().unwrap_or_default();
    format!(
        "multiIf(isNull({tokens}), NULL, {}, '{last}')",
        known.join(", ")
    )
}

/// The place of that class, from 0 on.
pub(super) fn class_of_length_place(tokens: &str, bounds: &[u64]) -> String {
    let known = bounds.iter().enumerate();
    let known: Vec<String> = known
        .map(|(place, bound)| format!("{tokens} < {bound}, {place}"))
        .collect();
    format!(
        "multiIf(isNull({tokens}), NULL, {}, {})",
        known.join(", "),
        bounds.len()
    )
}

/// Figures of a call by name, each over the columns of the table and the figures before. The ledger works out the same ones
/// (`Share`, `CallFigures`). `floor(x + 0.5)` rounds halves up as Rust does; ClickHouse's `round` takes the even neighbour.
pub(super) const FIGURES: &[(&str, &str)] = &[
    (
        "input_tokens",
        "if(isNull(reported_input_tokens), normalised_input_tokens, reported_input_tokens)",
    ),
    (
        "output_tokens",
        "if(isNull(reported_output_tokens), normalised_output_tokens, reported_output_tokens)",
    ),
    (
        "reasoning_tokens",
        "if(isNull(reported_reasoning_tokens), normalised_reasoning_tokens, reported_reasoning_tokens)",
    ),
    (
        "failed",
        "ifNull(outcome, 'complete') NOT IN ('complete', 'client_cancelled')",
    ),
    ("generates", "ifNull(operation_class = 'generation', 0)"),
    ("cost_nano", "toInt64(round(cost_usd * 1e9))"),
    ("started_ms", "toUnixTimestamp64Milli(started_at)"),
    ("started_us", "started_ms * 1000"),
    ("duration_us", "toInt64(round(duration_seconds * 1e6))"),
    ("ended_us", "started_us + ifNull(duration_us, 0)"),
    ("ttft_us", "toInt64(round(ttft_seconds * 1e6))"),
    (
        "decode_seconds",
        "last_token_seconds - ifNull(ttft_seconds, 0)",
    ),
    (
        "decode_tokens",
        "toInt64(floor(output_tokens_per_second * decode_seconds + 0.5))",
    ),
    (
        "decode_us",
        "if(isNull(output_tokens_per_second), NULL, toInt64(round(decode_seconds * 1e6)))",
    ),
    (
        "reported_millitokens",
        "toInt64(floor(reported_tokens_per_second * 1e3 * decode_seconds + 0.5))",
    ),
    (
        "reported_us",
        "if(isNull(reported_tokens_per_second), NULL, toInt64(round(decode_seconds * 1e6)))",
    ),
    (
        "came_whole",
        "ifNull(streamed = 0, 0) OR ifNull(tps_unavailable = 'buffered', 0)",
    ),
    // A response that a server sends as a whole was generated after the upload. In seconds since 1970.
    (
        "generated_whole",
        "came_whole OR isNull(ttft_seconds) OR isNull(last_token_seconds)",
    ),
    (
        "uploaded_seconds",
        "ifNull(connect_seconds, 0) + ifNull(upload_seconds, 0)",
    ),
    (
        "generated_from",
        "assumeNotNull(started_ms / 1000 + if(generated_whole, uploaded_seconds, ttft_seconds))",
    ),
    (
        "generated_to",
        "greatest(assumeNotNull(started_ms / 1000 + if(generated_whole, \
         ifNull(duration_seconds, uploaded_seconds), last_token_seconds)), generated_from)",
    ),
];

/// The figures of a call for the beginning of a statement: `WITH` and these.
pub(super) fn with_figures() -> String {
    let figures = FIGURES.iter().map(|(name, is)| format!("{is} AS {name}"));
    figures.collect::<Vec<_>>().join(", ")
}

/// The tokens that a call generated, preferably by the project's count.
pub(super) const GENERATED: &str =
    "if(isNull(normalised_output_tokens), reported_output_tokens, normalised_output_tokens)";

/// The finish reasons of a call as [`FinishClass::of`] reads them: in lower case, without `incomplete:` and without the name of
/// the filter that has the reason.
const REASONS: &str = "arrayMap(reason -> if(position(reason, ': ') > 0, \
    substring(reason, position(reason, ': ') + 2), reason), arrayMap(reason -> \
    if(startsWith(reason, 'incomplete:'), substring(reason, 12), reason), arrayMap(reason -> lower(reason), \
    JSONExtract(ifNull(toString(finish_reasons), '[]'), 'Array(String)'))))";

/// The condition that one of a call's finish reasons is of a class.
pub(super) fn finished(class: FinishClass) -> String {
    let words = |of: &dyn Fn(FinishClass) -> bool| {
        let lists = FINISH_REASONS.iter().filter(|reasons| of(reasons.class));
        let words = lists.flat_map(|reasons| reasons.words.iter());
        let words: Vec<String> = words.map(|word| text(word)).collect();
        format!("[{}]", words.join(", "))
    };
    let known = words(&|_| true);
    let error = format!("endsWith(reason, 'error') AND NOT has({known}, reason)");
    match class {
        FinishClass::Failed => format!(
            "arrayExists(reason -> has({}, reason) OR {error}, {REASONS})",
            words(&|of| of == class)
        ),
        FinishClass::Other => format!(
            "arrayExists(reason -> NOT endsWith(reason, 'error') AND NOT has({known}, reason) OR has({}, reason), {REASONS})",
            words(&|of| of == class)
        ),
        _ => format!("hasAny({REASONS}, {})", words(&|of| of == class)),
    }
}

/// The class of a value in a [`Sketch`](crate::sketch::Sketch).
pub(super) fn class_of(value: &str) -> String {
    format!(
        "toInt16(if({value} > 0, greatest(-1046., least(1046., ceil(log({value}) / log(1.02)))), -1046.))"
    )
}

/// How many calls have a value of each class, as a map.
pub(super) fn sketch_of(value: &str, condition: &str) -> String {
    let class = class_of(&format!("assumeNotNull({value})"));
    format!("sumMapIf(map({class}, toUInt64(1)), isNotNull({value}){condition})")
}

/// A figure that is added up over calls.
pub(super) struct Measure {
    /// The name of the figure in results.
    pub(super) name: Cow<'static, str>,
    /// The SQL expression that adds the figure up over calls.
    pub(super) sum: String,
}

/// The figures that are added up over calls, in the order in which `rows::Row::sums` reads them.
pub(super) fn measures() -> Vec<Measure> {
    let measure = |name: &'static str, sum: &str| Measure {
        name: name.into(),
        sum: sum.to_owned(),
    };
    let sum = |name: &'static str, figure: &str| measure(name, &format!("toInt64(sum({figure}))"));
    let mut all = vec![
        measure("calls", "count()"),
        measure("errors", "countIf(failed)"),
        sum("input_sum", "input_tokens"),
        sum("cached_input_sum", "reported_cached_input_tokens"),
        sum("output_sum", "output_tokens"),
        sum("reasoning_sum", "reasoning_tokens"),
        sum("cost_nano_sum", "cost_nano"),
        measure("generation_nano_sum", "sumIf(cost_nano, generates)"),
        measure(
            "unpriced",
            "countIf(isNull(cost_nano) AND (isNotNull(input_tokens) OR isNotNull(output_tokens)))",
        ),
        measure(
            "priced_output_sum",
            "toInt64(sumIf(output_tokens, generates AND isNotNull(cost_nano)))",
        ),
        sum("decode_tokens_sum", "decode_tokens"),
        sum("decode_us_sum", "decode_us"),
        sum("ttft_us_sum", "ttft_us"),
        measure("waited_us_sum", "sumIf(duration_us, isNotNull(ttft_us))"),
        sum("reported_millitokens_sum", "reported_millitokens"),
        sum("reported_us_sum", "reported_us"),
    ];
    let from = std::iter::once(None).chain(BANDS.map(Some));
    let to = BANDS.map(Some).into_iter().chain([None]);
    for ((from, to), name) in from.zip(to).zip(BAND_NAMES) {
        let speed = "output_tokens_per_second";
        let from = from.map(|from| format!("{speed} >= {from}"));
        let to = to.map(|to| format!("{speed} < {to}"));
        let between: Vec<String> = from.into_iter().chain(to).collect();
        let condition = between.join(" AND ");
        all.push(measure(name, &format!("countIf({condition})")));
    }
    all.extend(prompt_measures());
    all
}

/// The counts of [`PromptSums`](tokengauge_core::prompt::PromptSums), in its order.
fn prompt_measures() -> impl Iterator<Item = Measure> {
    let calls = Measure {
        name: "prompt_calls".into(),
        sum: format!("countIf(isNotNull({}))", PromptPart::System.column()),
    };
    let parts = PromptPart::ALL.iter().map(|part| part.column());
    let columns = ["prompt_media", "prompt_media_bytes"]
        .into_iter()
        .chain(parts);
    let sums = columns.map(|column| Measure {
        name: format!("{column}_sum").into(),
        sum: format!("toInt64(sum({column}))"),
    });
    std::iter::once(calls).chain(sums)
}

/// The number of calls in each band of decode speed.
const BAND_NAMES: [&str; BANDS.len() + 1] = ["band_0", "band_1", "band_2", "band_3", "band_4"];

/// The sketches of sums: their columns, and the values that they count.
pub(super) const SKETCHES: [(&str, &str); 3] = [
    ("tps_sketch", "output_tokens_per_second"),
    ("reported_sketch", "reported_tokens_per_second"),
    ("ttft_sketch", "ttft_seconds"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Names;
    use tokengauge_core::call::{OperationClass, Outcome};

    #[test]
    fn literals_and_names_cannot_end_early() {
        assert_eq!(text("a'b\\c"), "'a\\'b\\\\c'");
        assert_eq!(quoted("a`b\\"), "`a\\`b\\\\`");
        assert_eq!(instant(1_764_099_220_123), "2025-11-25 19:33:40.123");
    }

    #[test]
    fn a_filter_becomes_conditions() {
        let filter = Filter {
            names: Names::from([
                (Dimension::Model, Some("m'".to_owned())),
                (Dimension::Tool, Some("search".to_owned())),
            ]),
            outcomes: vec![Outcome::Timeout],
            operation_classes: vec![OperationClass::Generation],
            session: Some("s".to_owned()),
            ..Filter::default()
        };
        assert_eq!(
            conditions(&filter),
            [
                "if(isNull(model), model_requested, model) = 'm\\''",
                "has(splitByChar('+', ifNull(toString(tools), '')), 'search')",
                "session = 's'",
                "ifNull(outcome, 'complete') IN ('timeout')",
                "operation_class IN ('generation')",
            ]
        );
    }

    #[test]
    fn classes_of_length_have_the_bounds_of_core() {
        assert_eq!(
            value_of(Dimension::PromptLength),
            "multiIf(isNull(input_tokens), NULL, input_tokens < 1000, 'under_1k', input_tokens < 8000, '1k_8k', \
             input_tokens < 32000, '8k_32k', input_tokens < 128000, '32k_128k', 'over_128k')"
        );
    }
}
