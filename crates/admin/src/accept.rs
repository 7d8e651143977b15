//! The format that a scraper wants, according to its `accept` headers.

use axum::http::{HeaderMap, header};
use tokengauge_telemetry::export::protobuf;
use tokengauge_telemetry::export::text::Format;

const VERSION: &str = "1.0.0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposition {
    Text(Format),
    /// Protobuf, with native histograms.
    Protobuf,
}

impl Exposition {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Exposition::Text(format) => format.content_type(),
            Exposition::Protobuf => protobuf::CONTENT_TYPE,
        }
    }
}

/// Protobuf or OpenMetrics if the scraper names it with at least the quality of the other formats, otherwise the classic
/// text.
pub(super) fn exposition(headers: &HeaderMap) -> Exposition {
    let (mut open_metrics, mut protobuf, mut classic) = (0, 0, Best::default());
    let lines = headers.get_all(header::ACCEPT).iter();
    let ranges = lines.filter_map(|line| line.to_str().ok());
    for range in ranges.flat_map(|line| line.split(',')).map(Range::parse) {
        match range.name.as_str() {
            "application/openmetrics-text" if range.speaks(VERSION) => {
                open_metrics = open_metrics.max(range.quality);
            }
            "application/vnd.google.protobuf" if range.is_delimited_families() => {
                protobuf = protobuf.max(range.quality);
            }
            "text/plain" => classic.offer(3, range.quality),
            "text/*" => classic.offer(2, range.quality),
            "*/*" => classic.offer(1, range.quality),
            _ => {}
        }
    }
    if protobuf > 0 && protobuf >= open_metrics.max(classic.quality) {
        Exposition::Protobuf
    } else if open_metrics > 0 && open_metrics >= classic.quality {
        Exposition::Text(Format::OpenMetrics)
    } else {
        Exposition::Text(Format::Classic)
    }
}

/// Whether a scraper accepts gzip, as Prometheus does.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter();
    let ranges = lines.filter_map(|line| line.to_str().ok());
    let mut wanted = Best::default();
    for range in ranges.flat_map(|line| line.split(',')).map(Range::parse) {
        match range.name.as_str() {
            "gzip" | "x-gzip" => wanted.offer(2, range.quality),
            "*" => wanted.offer(1, range.quality),
            _ => {}
        }
    }
    wanted.quality > 0
}

/// The quality of the most specific range. Among equally specific ranges the highest counts.
#[derive(Default)]
struct Best {
    specific: u8,
    quality: u16,
}

impl Best {
    fn offer(&mut self, specific: u8, quality: u16) {
        if (specific, quality) > (self.specific, self.quality) {
            *self = Best { specific, quality };
        }
    }
}

struct Range<'a> {
    name: String,
    version: Option<&'a str>,
    message: Option<&'a str>,
    encoding: Option<&'a str>,
    quality: u16,
}

impl Range<'_> {
    fn parse(text: &str) -> Range<'_> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut version, mut message, mut encoding) = (None, None, None);
        let mut quality = 1000;
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match key.trim().to_ascii_lowercase().as_str() {
                "version" => version = Some(value),
                "proto" => message = Some(value),
                "encoding" => encoding = Some(value),
                "q" => quality = thousandths(value),
                _ => {}
            }
        }
        Range {
            name,
            version,
            message,
            encoding,
            quality,
        }
    }

    /// Whether the range asks for Prometheus' messages, each preceded by its length.
    fn is_delimited_families(&self) -> bool {
        self.message == Some("io.prometheus.client.MetricFamily")
            && self.encoding == Some("delimited")
    }

    fn speaks(&self, ours: &str) -> bool {
        self.version.is_none_or(|version| version == ours)
    }
}

/// A quality from 0 to 1 in thousandths. A malformed quality is 0.
fn thousandths(text: &str) -> u16 {
    let quality = text.parse::<f64>().ok();
    let quality = quality.filter(|quality| (0.0..=1.0).contains(quality));
    quality.map_or(0, |quality| (quality * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Exposition {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::ACCEPT, line.parse().expect("a header"));
        }
        exposition(&headers)
    }

    #[test]
    fn gzip_is_for_those_who_ask_for_it() {
        let takes = |value: &str| {
            let value = value.parse().expect("a header value");
            takes_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, value)]))
        };
        assert!(!takes_gzip(&HeaderMap::new()));
        for yes in [
            "gzip",
            "GZIP",
            "deflate, gzip;q=0.5",
            "*",
            "identity;q=0, *;q=0.1",
        ] {
            assert!(takes(yes), "{yes}");
        }
        for no in [
            "",
            "identity",
            "gzip;q=0",
            "gzip;q=0, *",
            "*;q=0",
            "br, zstd",
        ] {
            assert!(!takes(no), "{no}");
        }
    }

    #[test]
    fn scrapers_get_what_they_like_best() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for open_metrics in [
            &[prometheus_2][..],
            &[prometheus_3],
            &["application/openmetrics-text"],
            &["Application/OpenMetrics-Text; version=\"1.0.0\"; Q=0.2"],
            &["application/openmetrics-text, text/plain"],
            &["text/plain;q=0.5", "application/openmetrics-text;q=0.9"],
            &["application/openmetrics-text;q=0.9, */*;q=0.8, text/plain;q=0.1"],
        ] {
            assert_eq!(
                of(open_metrics),
                Exposition::Text(Format::OpenMetrics),
                "{open_metrics:?}"
            );
        }
        for classic in [
            &[][..],
            &["*/*"],
            &["text/plain;version=0.0.4"],
            &["application/*"],
            &["application/json"],
            &["application/openmetrics-text;q=0.4, text/plain;q=0.5"],
            &["application/openmetrics-text;q=0"],
            &["application/openmetrics-text;q=many"],
            &["application/openmetrics-text;version=2.0.0, */*"],
            &["application/openmetrics-text;q=0.3, */*;q=0.8"],
        ] {
            assert_eq!(
                of(classic),
                Exposition::Text(Format::Classic),
                "{classic:?}"
            );
        }
    }

    #[test]
    fn protobuf_is_for_those_who_like_it_best_and_name_what_is_written() {
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for protobuf in [
            native,
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
        ] {
            assert_eq!(of(&[protobuf]), Exposition::Protobuf, "{protobuf}");
        }
        let worse = native.replace("q=0.6", "q=0.3");
        assert_eq!(of(&[&worse]), Exposition::Text(Format::OpenMetrics));
        for other in ["encoding=text", "encoding=compact-text", "proto=x"] {
            let other = native.replace("encoding=delimited", other);
            assert_eq!(of(&[&other]), Exposition::Text(Format::OpenMetrics));
        }
    }
}
