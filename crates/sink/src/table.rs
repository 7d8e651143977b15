//! The columns of a warehouse's table: the process that a call is from, and the columns of the
//! call.

use std::io::Write;
use tokengauge_core::pod::PodName;
use tokengauge_store::columns::{COLUMNS, Column, ColumnKind, Value};
use tokengauge_store::warehouse::instant;

/// The version of the columns, written to every row: the number of columns of a call. Readers treat
/// missing columns as unknown.
pub const SCHEMA_VERSION: i64 = COLUMNS.len() as i64;

/// The columns that precede the columns of the call.
pub(crate) const ORIGIN: [(&str, ColumnKind); 5] = [
    ("schema_version", ColumnKind::Count),
    ("cluster", ColumnKind::Text),
    ("namespace", ColumnKind::Text),
    ("pod", ColumnKind::Text),
    ("instance", ColumnKind::Text),
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// `k8s.cluster.name`.
    pub cluster: Option<String>,
    /// `k8s.namespace.name`.
    pub namespace: Option<String>,
    /// `k8s.pod.name`.
    pub pod: Option<String>,
    /// `service.instance.id`.
    pub instance: Option<String>,
}

impl Origin {
    pub fn pod(&self) -> Option<PodName> {
        let pod = PodName {
            cluster: self.cluster.clone(),
            namespace: self.namespace.clone(),
            name: self.pod.clone().or_else(|| self.instance.clone()),
        };
        pod.known()
    }

    pub(crate) fn values(&self) -> [Value; 5] {
        let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::text);
        [
            Value::Whole(SCHEMA_VERSION),
            text(&self.cluster),
            text(&self.namespace),
            text(&self.pod),
            text(&self.instance),
        ]
    }
}

pub(crate) fn fields() -> Vec<(&'static str, ColumnKind)> {
    let call = COLUMNS.iter().map(Column::field);
    ORIGIN.into_iter().chain(call).collect()
}

pub(crate) const ID: usize = 0;
pub(crate) const STARTED_AT: usize = 1;

pub(crate) fn id(row: &[Value]) -> &str {
    match row.get(ID) {
        Some(Value::Text(id)) => id,
        _ => "",
    }
}

pub(crate) fn started_ms(row: &[Value]) -> i64 {
    match row.get(STARTED_AT) {
        Some(Value::Whole(ms)) => *ms,
        _ => 0,
    }
}

/// Appends a row as a line of JSON, without unknown values.
pub(crate) fn write_json(origin: &[Value], row: &[Value], lines: &mut Vec<u8>) {
    let columns = ORIGIN
        .into_iter()
        .chain(COLUMNS.iter().map(Column::field))
        .zip(origin.iter().chain(row));
    let mut between = b'{';
    for ((name, kind), value) in columns {
        let at = lines.len();
        lines.push(between);
        // Writing to memory does not fail. Column names need no escapes.
        let _ = write!(lines, "\"{name}\":");
        let written = match value {
            Value::Null => false,
            Value::Text(text) => serde_json::to_writer(&mut *lines, text).is_ok(),
            Value::Whole(ms) if kind == ColumnKind::Instant => {
                write!(lines, "\"{}\"", instant(*ms)).is_ok()
            }
            Value::Whole(number) => write!(lines, "{number}").is_ok(),
            Value::Flag(flag) => write!(lines, "{flag}").is_ok(),
            Value::Number(number) if number.is_finite() => write!(lines, "{number}").is_ok(),
            Value::Number(_) => false,
        };
        if written {
            between = b',';
        } else {
            lines.truncate(at);
        }
    }
    lines.extend(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_start_are_where_they_are_looked_for() {
        assert_eq!(COLUMNS[ID].name, "id");
        assert_eq!(COLUMNS[STARTED_AT].name, "started_at");
    }

    #[test]
    fn a_row_is_a_line_without_what_is_unknown() {
        let origin = Origin {
            pod: Some("agent-1".to_owned()),
            ..Origin::default()
        };
        let mut row = vec![Value::Null; COLUMNS.len()];
        row[ID] = Value::text("a\"b");
        row[STARTED_AT] = Value::Whole(1_764_099_220_123);
        row[2] = Value::text("line\nend");
        let mut lines = Vec::new();
        write_json(&origin.values(), &row, &mut lines);
        let text = String::from_utf8(lines).expect("UTF-8");
        let version = format!("{{\"schema_version\":{SCHEMA_VERSION},");
        let expected = "\"pod\":\"agent-1\",\"id\":\"a\\\"b\",\
            \"started_at\":\"2025-11-25 19:33:40.123\",\"route\":\"line\\nend\"}\n";
        assert_eq!(text, version + expected);
    }
}
