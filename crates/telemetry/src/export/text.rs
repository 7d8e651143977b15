//! Writes the registry as text: Prometheus' format 0.0.4, and OpenMetrics 1.0 with exemplars.

use super::exemplar::Exemplar;
use super::names::{Metric, MetricKind};
use super::registry::{AnyCell, FamilySeries, Registry, Snapshot};
use std::fmt::{Display, Formatter, Result, Write};
use std::sync::Arc;
use std::time::SystemTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Classic,
    OpenMetrics,
}

impl Format {
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All series of `registry`, in the order of the table. Without `classic`, histograms have only
/// their sum and count, because text formats have no native buckets.
pub fn render(registry: &Registry, format: Format, classic: bool) -> String {
    let mut text = String::with_capacity(64 * 1024);
    for family in registry.families().iter() {
        let _ = write_family(&mut text, family, format, classic);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn write_family(text: &mut String, family: &FamilySeries, format: Format, classic: bool) -> Result {
    let metric = family.metric;
    write_head(text, metric, format)?;
    let name = metric.name;
    let mut bounds = BoundTexts::default();
    for (labels, cell) in family.series() {
        let labels = labels.text();
        match cell {
            AnyCell::Counter(counter) => {
                writeln!(text, "{name}{} {}", Braced(labels), counter.value())?;
            }
            AnyCell::Sum(sum) => {
                writeln!(text, "{name}{} {}", Braced(labels), Number(sum.value()))?
            }
            AnyCell::Gauge(gauge) => {
                writeln!(text, "{name}{} {}", Braced(labels), Number(gauge.value()))?;
            }
            AnyCell::Histogram(histogram) => {
                let mut now = histogram.snapshot();
                if !classic {
                    now.merge_buckets();
                }
                bounds.change(&now.bounds, format);
                write_histogram(text, name, labels, &now, (format, &bounds))?;
            }
        }
    }
    Ok(())
}

fn write_head(text: &mut String, metric: &Metric, format: Format) -> Result {
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let help = metric.help;
    match format {
        Format::Classic => {
            let name = metric.name;
            writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
        }
        Format::OpenMetrics => {
            let name = metric.name.trim_end_matches("_total");
            writeln!(text, "# TYPE {name} {kind}")?;
            if let Some(unit) = metric.unit_in_name() {
                writeln!(text, "# UNIT {name} {unit}")?;
            }
            writeln!(text, "# HELP {name} {help}")
        }
    }
}

fn write_histogram(
    text: &mut String,
    name: &str,
    labels: &str,
    now: &Snapshot,
    (format, bounds): (Format, &BoundTexts),
) -> Result {
    let comma = if labels.is_empty() { "" } else { "," };
    let bucket_of = format!("{name}_bucket{{{labels}{comma}le=\"");
    let mut count = 0;
    for (place, bucket) in now.buckets.iter().enumerate() {
        count += bucket;
        text.push_str(&bucket_of);
        text.push_str(bounds.texts.get(place).map_or("+Inf", String::as_str));
        write!(text, "\"}} {count}")?;
        if let (Format::OpenMetrics, Some(Some(exemplar))) = (format, now.exemplars.get(place)) {
            write_exemplar(text, exemplar)?;
        }
        text.push('\n');
    }
    let labels = Braced(labels);
    writeln!(text, "{name}_sum{labels} {}", Number(now.sum))?;
    writeln!(text, "{name}_count{labels} {count}")
}

fn write_exemplar(text: &mut String, exemplar: &Exemplar) -> Result {
    let since = exemplar.at.duration_since(SystemTime::UNIX_EPOCH);
    let (trace, value) = (exemplar.trace, Number(exemplar.value));
    let at = since.unwrap_or_default();
    let (seconds, millis) = (at.as_secs(), at.subsec_millis());
    write!(
        text,
        " # {{trace_id=\"{trace:032x}\"}} {value} {seconds}.{millis:03}"
    )
}

struct Braced<'a>(&'a str);

impl Display for Braced<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self.0 {
            "" => Ok(()),
            labels => write!(formatter, "{{{labels}}}"),
        }
    }
}

struct Number(f64);

impl Display for Number {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self.0 {
            f64::INFINITY => formatter.write_str("+Inf"),
            f64::NEG_INFINITY => formatter.write_str("-Inf"),
            value => write!(formatter, "{value}"),
        }
    }
}

/// The bounds of a family's histograms as text; all series of a family have equal bounds.
#[derive(Default)]
struct BoundTexts {
    of: Option<Arc<[f64]>>,
    texts: Vec<String>,
}

impl BoundTexts {
    fn change(&mut self, bounds: &Arc<[f64]>, format: Format) {
        if self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, bounds)) {
            return;
        }
        self.of = Some(Arc::clone(bounds));
        let texts = bounds.iter().map(|bound| Bound(*bound, format).to_string());
        self.texts = texts.collect();
    }
}

/// A bucket's bound. OpenMetrics requires a decimal point in whole numbers.
struct Bound(f64, Format);

impl Display for Bound {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let whole = self.0.is_finite() && self.0.fract() == 0.0;
        if self.1 == Format::OpenMetrics && whole {
            write!(formatter, "{:.1}", self.0)
        } else {
            Number(self.0).fmt(formatter)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::{Model, Route};
    use super::super::names;
    use super::*;
    use std::time::Duration;

    fn registry() -> Registry {
        let registry = Registry::new(&[]);
        let own = Model {
            upstream: "u",
            route: "r",
            model: "m",
            workload: "w",
        };
        let route = Route {
            upstream: "u",
            route: "r",
        };
        registry.series(&names::RATE_LIMITED, &route).increment(3);
        registry.series(&names::DECODE_SECONDS, &own).add(1.5);
        registry.series(&names::METER_QUEUE_BYTES, &()).set(7.0);
        let exemplar = Exemplar {
            trace: 0xabc,
            value: 1.1,
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250),
        };
        let ratio = registry.series(&names::TOKEN_RATIO, &own);
        ratio.record_with(1.1, Some(exemplar));
        ratio.record(99.0);
        registry
    }

    #[test]
    fn classic_text_has_help_and_type_and_no_exemplars() {
        let text = render(&registry(), Format::Classic, true);
        for line in [
            "# TYPE tokengauge_rate_limited_total counter",
            "tokengauge_rate_limited_total{upstream=\"u\",route=\"r\"} 3",
            "tokengauge_meter_queue_bytes 7",
            "tokengauge_token_ratio_bucket{upstream=\"u\",route=\"r\",model=\"m\",workload=\"w\",le=\"1.1\"} 1",
            "tokengauge_token_ratio_bucket{upstream=\"u\",route=\"r\",model=\"m\",workload=\"w\",le=\"2\"} 1",
            "tokengauge_token_ratio_bucket{upstream=\"u\",route=\"r\",model=\"m\",workload=\"w\",le=\"+Inf\"} 2",
            "tokengauge_token_ratio_count{upstream=\"u\",route=\"r\",model=\"m\",workload=\"w\"} 2",
        ] {
            assert!(text.lines().any(|had| had == line), "{line}\n{text}");
        }
        assert!(!text.contains("trace_id") && !text.contains("# EOF"));
    }

    #[test]
    fn open_metrics_names_families_units_and_traces() {
        let text = render(&registry(), Format::OpenMetrics, true);
        let trace = format!("{:032x}", 0xabc);
        let exemplar = format!(
            "tokengauge_token_ratio_bucket{{upstream=\"u\",route=\"r\",model=\"m\",workload=\"w\",le=\"1.1\"}} 1 # {{trace_id=\"{trace}\"}} 1.1 1700000000.250"
        );
        for line in [
            "# TYPE tokengauge_rate_limited counter",
            "tokengauge_rate_limited_total{upstream=\"u\",route=\"r\"} 3",
            "# TYPE tokengauge_decode_seconds counter",
            "# UNIT tokengauge_decode_seconds seconds",
            "# UNIT tokengauge_meter_queue_bytes bytes",
            "# UNIT tokengauge_token_ratio ratio",
            "tokengauge_token_ratio_bucket{upstream=\"u\",route=\"r\",model=\"m\",workload=\"w\",le=\"2.0\"} 1",
            &exemplar,
        ] {
            assert!(text.lines().any(|had| had == line), "{line}\n{text}");
        }
        assert_eq!(text.matches("trace_id").count(), 1);
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn without_classic_histograms_their_sum_and_count_are_left() {
        for format in [Format::Classic, Format::OpenMetrics] {
            let text = render(&registry(), format, false);
            let labels = "upstream=\"u\",route=\"r\",model=\"m\",workload=\"w\"";
            let ratio: Vec<_> = text
                .lines()
                .filter(|line| line.starts_with("tokengauge_token_ratio"))
                .collect();
            let expected = [
                format!("tokengauge_token_ratio_bucket{{{labels},le=\"+Inf\"}} 2"),
                format!("tokengauge_token_ratio_sum{{{labels}}} 100.1"),
                format!("tokengauge_token_ratio_count{{{labels}}} 2"),
            ];
            assert_eq!(ratio, expected);
        }
    }
}
