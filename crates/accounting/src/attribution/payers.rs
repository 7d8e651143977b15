//! Who pays for a call, from a table of keys, paths, ports and routes, from configured headers, or
//! from the process.

use super::agent_names::under;
use super::request_headers::RequestHeaders;
use super::value::clean;
use crate::keys;
use http::{HeaderMap, HeaderName};
use std::collections::HashSet;
use std::sync::Arc;
use tokengauge_core::observer::CallStart;
use tokengauge_core::payer::Payer;

pub const MAX_PAYERS: usize = 256;
pub const MAX_PAYER_KEYS: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayerRule {
    pub payer: Payer,
    /// Digests of keys, as [`crate::keys::keys_of`] returns them. A call matches if it carries one
    /// of the keys.
    pub keys: HashSet<String>,
    pub port: Option<u16>,
    pub path: Option<String>,
    pub route: Option<String>,
}

/// Headers that name who pays. In each list the first header that is present wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayerHeaders {
    pub team: Vec<HeaderName>,
    pub cost_center: Vec<HeaderName>,
    pub tenant: Vec<HeaderName>,
}

/// The rules in order, and the keys of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayerTable {
    rules: Vec<PayerRule>,
    keys: HashSet<String>,
}

impl From<Vec<PayerRule>> for PayerTable {
    fn from(rules: Vec<PayerRule>) -> PayerTable {
        let keys = rules.iter().flat_map(|rule| &rule.keys).cloned().collect();
        PayerTable { rules, keys }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayerRules {
    /// The first rule that matches wins.
    pub table: PayerTable,
    pub headers: PayerHeaders,
    /// The payer for the fields that neither table nor headers set.
    pub process: Arc<Payer>,
    pub record_keys: bool,
}

impl PayerRule {
    fn matches(&self, start: &CallStart<'_>, keys: &[String]) -> bool {
        let path = start.uri.path();
        self.port.is_none_or(|port| start.port == Some(port))
            && self
                .route
                .as_deref()
                .is_none_or(|route| **start.route == *route)
            && self
                .path
                .as_deref()
                .is_none_or(|prefix| under(prefix, path))
            && (self.keys.is_empty() || keys.iter().any(|key| self.keys.contains(key)))
    }
}

impl PayerRules {
    /// Who pays for a call. Its keys are read only if a rule of the table has keys.
    pub fn payer(&self, start: &CallStart<'_>) -> Arc<Payer> {
        let PayerTable { rules, keys } = &self.table;
        let carried = if keys.is_empty() {
            Vec::new()
        } else {
            keys::known_keys_of(start.headers, start.uri, |key| keys.contains(key))
        };
        let rule = rules.iter().find(|rule| rule.matches(start, &carried));
        let sent = self.headers.read(start.headers);
        if rule.is_none() && sent == Payer::default() {
            return Arc::clone(&self.process);
        }
        let named = rule.map(|rule| rule.payer.clone()).unwrap_or_default();
        Arc::new(named.or(&sent).or(&self.process))
    }

    pub fn key_hash(&self, start: &CallStart<'_>) -> Option<Box<str>> {
        let record = self
            .record_keys
            .then(|| keys::own_key(start.headers, start.uri));
        record.flatten().map(String::into_boxed_str)
    }
}

impl PayerHeaders {
    fn read(&self, headers: &HeaderMap) -> Payer {
        if *self == PayerHeaders::default() {
            return Payer::default();
        }
        let headers = RequestHeaders::new(headers);
        let first = |names: &[HeaderName]| {
            let values = names.iter().flat_map(|name| headers.get_all(name.as_str()));
            let mut texts = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
            texts.find_map(clean).map(Arc::from)
        };
        Payer {
            team: first(&self.team),
            cost_center: first(&self.cost_center),
            tenant: first(&self.tenant),
        }
    }
}

/// The name of a payer for records, trimmed and truncated; `None` if it is empty or has control
/// characters.
pub fn payer_name(text: &str) -> Option<Arc<str>> {
    clean(text).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Method, Uri};
    use std::time::{Instant, SystemTime};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    fn team(name: &str) -> Payer {
        Payer {
            team: Some(name.into()),
            ..Payer::default()
        }
    }

    fn payer(rules: &PayerRules, headers: &HeaderMap, path: &'static str) -> Payer {
        let start = CallStart {
            received: Instant::now(),
            started_at: SystemTime::UNIX_EPOCH,
            method: &Method::POST,
            uri: &Uri::from_static(path),
            headers,
            peer: None,
            port: Some(8080),
            route: &"openai".into(),
            upstream: &"openai".into(),
            dialect: None,
            workload: None,
            inject_usage: false,
            variant: None,
        };
        (*rules.payer(&start)).clone()
    }

    #[test]
    fn the_first_entry_that_matches_goes_before_headers_and_these_before_the_process() {
        let key = headers(&[("authorization", "Bearer sk-search-0123456789")]);
        let digest = keys::keys_of(&key, &Uri::from_static("/"));
        let rules = PayerRules {
            table: vec![
                PayerRule {
                    payer: team("search"),
                    keys: digest.into_iter().collect(),
                    ..PayerRule::default()
                },
                PayerRule {
                    payer: team("ads"),
                    path: Some("/ads".to_owned()),
                    ..PayerRule::default()
                },
                PayerRule {
                    payer: team("elsewhere"),
                    route: Some("anthropic".to_owned()),
                    ..PayerRule::default()
                },
            ]
            .into(),
            headers: PayerHeaders {
                tenant: vec![HeaderName::from_static("x-tenant-id")],
                team: vec![HeaderName::from_static("x-team")],
                cost_center: Vec::new(),
            },
            process: Arc::new(Payer {
                cost_center: Some("1".into()),
                ..team("platform")
            }),
            record_keys: false,
        };
        assert_eq!(payer(&rules, &key, "/ads/v1"), team("search"));
        let none = HeaderMap::new();
        assert_eq!(payer(&rules, &none, "/ads/v1"), team("ads"));
        assert_eq!(payer(&rules, &none, "/adsy"), *rules.process);
        let sent = headers(&[("x-team", "sent"), ("x-tenant-id", " acme ")]);
        let acme = Some("acme".into());
        let both = |name| Payer {
            tenant: Some("acme".into()),
            ..team(name)
        };
        assert_eq!(payer(&rules, &sent, "/"), both("sent"));
        assert_eq!(payer(&rules, &sent, "/ads"), both("ads"));
        let tenant = headers(&[("x-tenant-id", "acme"), ("x-team", "  ")]);
        let of_process = Payer {
            tenant: acme,
            ..(*rules.process).clone()
        };
        assert_eq!(payer(&rules, &tenant, "/"), of_process);
    }
}
