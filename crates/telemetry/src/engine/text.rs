//! A parser for Prometheus' text format, as far as engines use it.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    labels: &'a str,
    pub(super) value: f64,
}

impl<'a> Sample<'a> {
    /// The value of a label, with its escapes.
    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        while let Some((key, behind)) = rest.split_once("=\"") {
            let end = end_of_value(behind)?;
            if key.trim_matches([',', ' ']) == name {
                return Some(&behind[..end]);
            }
            rest = &behind[end + 1..];
        }
        None
    }
}

pub(super) fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        None => ("", rest),
        Some(behind) => {
            let end = end_of_labels(behind)?;
            (&behind[..end], &behind[end + 1..])
        }
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name,
        labels,
        value,
    })
}

/// Position of the brace that closes the labels. Braces within values are skipped.
fn end_of_labels(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let next = rest.find(['}', '"'])?;
        if rest[next..].starts_with('}') {
            return Some(at + next);
        }
        let behind = at + next + 1;
        at = behind + end_of_value(&text[behind..])? + 1;
    }
}

/// Position of the quote that closes a value. Escaped quotes are skipped.
fn end_of_value(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_labels_and_values() {
        let text = "# HELP a b\n# TYPE a gauge\na 1\n b{x=\"1\", y=\"}\\\"{\",} 2.5e3 1700000000\n\nc{} NaN\nd{x=\"1\"} +Inf\r\n";
        let all: Vec<_> = samples(text).collect();
        let names: Vec<_> = all.iter().map(|sample| sample.name).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert_eq!((all[0].value, all[1].value), (1.0, 2500.0));
        assert_eq!(all[1].label("y"), Some("}\\\"{"));
        assert_eq!((all[1].label("x"), all[1].label("z")), (Some("1"), None));
        assert!(all[2].value.is_nan() && all[3].value.is_infinite());
    }

    #[test]
    fn what_is_no_sample_is_passed_over() {
        let text = "a\n{} 1\nb{x=\"1} 2\nc{x=\"1\" 3\nd one\n{\"utf8.name\"} 4\n<html>\ne 5";
        let names: Vec<_> = samples(text).map(|sample| sample.name).collect();
        assert_eq!(names, ["", "", "e"]);
    }
}
