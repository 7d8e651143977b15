//! Values with units and URLs: `30s`, `64KiB`, `https://host:8000/v1`.

use super::Endpoint;
use http::Uri;
use http::uri::Scheme;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;
use tokengauge_core::time::span_text;

/// A duration such as `250ms` or `1h 30m`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text)
            .map(Span)
            .map_err(|reason| {
                D::Error::custom(format!(
                    "`{text}` is not a duration such as `250ms`, `30s` or `5m`: {reason}"
                ))
            })
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&span_text(self.0))
    }
}

/// A period that ends now, or the calendar month.
#[derive(Clone, Copy, Debug)]
pub(super) enum Window {
    Month,
    Span(Duration),
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "month" {
            return Ok(Window::Month);
        }
        let span = humantime::parse_duration(&text).map_err(|reason| {
            D::Error::custom(format!(
                "`{text}` is neither `month` nor a duration such as `30d`: {reason}"
            ))
        });
        span.map(Window::Span)
    }
}

/// A number of bytes: a whole number, or one with a unit such as `64KiB` or `1MB`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(pub(super) usize);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(usize),
            Text(String),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Number(bytes)) => Ok(Size(bytes)),
            Ok(Written::Text(text)) => parse_size(&text).map(Size).ok_or_else(|| {
                D::Error::custom(format!(
                    "`{text}` is not a size such as `65536`, `64KiB` or `1MB`"
                ))
            }),
            Err(_) => Err(D::Error::custom(
                "a size is a whole number of bytes, or text such as `64KiB`",
            )),
        }
    }
}

/// Uses the largest unit of which the size is a whole multiple.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1 << 30, "GiB"),
            (1_000_000_000, "GB"),
            (1 << 20, "MiB"),
            (1_000_000, "MB"),
            (1 << 10, "KiB"),
            (1_000, "KB"),
        ];
        let unit = units
            .iter()
            .find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        let (unit, name) = unit.unwrap_or(&(1, "B"));
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

pub(super) fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let unit = match text[digits..].trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<usize>().ok()?.checked_mul(unit)
}

#[derive(Clone, Debug)]
pub(super) struct Url(pub(super) Endpoint);

impl<'de> Deserialize<'de> for Url {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_url(&text)
            .map(Url)
            .map_err(|reason| D::Error::custom(format!("{} {reason}", quoted(&text))))
    }
}

/// A URL for an error message. It is hidden if it may contain a password or a key.
fn quoted(text: &str) -> String {
    if text.contains(['@', '?']) {
        return "this URL".to_owned();
    }
    format!("`{text}`")
}

/// Why a string is not the URL of an upstream. The message follows the quoted string.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    #[error("is not a URL: {0}")]
    Malformed(#[from] http::uri::InvalidUri),
    #[error("must start with `http://` or `https://`")]
    Scheme,
    #[error("has no host")]
    Host,
    #[error("must not contain a user or password; agents send API keys in headers")]
    Credentials,
    #[error("must not contain a query; only a base path may follow the host")]
    Query,
}

/// Parses `http[s]://host[:port][/base/path]`.
pub(super) fn parse_url(text: &str) -> Result<Endpoint, UrlError> {
    let uri: Uri = text.parse()?;
    let scheme = match uri.scheme_str() {
        Some("http") => Scheme::HTTP,
        Some("https") => Scheme::HTTPS,
        _ => return Err(UrlError::Scheme),
    };
    let authority = uri.authority().ok_or(UrlError::Host)?.clone();
    if authority.as_str().contains('@') {
        return Err(UrlError::Credentials);
    }
    if uri.query().is_some() {
        return Err(UrlError::Query);
    }
    Ok(Endpoint {
        scheme,
        authority,
        base_path: uri.path().trim_end_matches('/').to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_plain_numbers_and_both_kinds_of_units() {
        assert_eq!(parse_size("65536"), Some(65_536));
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size("1 MB"), Some(1_000_000));
        assert_eq!(parse_size("1 parsec"), None);
        assert_eq!(parse_size("99999999999999999999"), None);
        assert_eq!(parse_size("18446744073709551615KiB"), None);
    }

    #[test]
    fn urls_keep_their_base_path_without_the_last_slash() {
        let endpoint = parse_url("https://example.test:8443/api/v1/").expect("a URL");
        assert_eq!(endpoint.scheme, Scheme::HTTPS);
        assert_eq!(endpoint.authority.as_str(), "example.test:8443");
        assert_eq!(endpoint.base_path, "/api/v1");
        assert_eq!(parse_url("http://[::1]:80").expect("a URL").base_path, "");
    }

    #[test]
    fn urls_without_scheme_or_with_secrets_are_refused() {
        for text in [
            "localhost:8000",
            "ftp://a",
            "http://user:key@host",
            "http://host/?key=1",
            "http://",
        ] {
            assert!(parse_url(text).is_err(), "{text}");
        }
    }
}
