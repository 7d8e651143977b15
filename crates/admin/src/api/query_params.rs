//! The query parameters of the API, their rules, and the errors for invalid values.

use super::problem::Problem;
use axum::http::StatusCode;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::{CostUnavailable, OperationClass, Outcome, TpsUnavailable};
use tokengauge_core::dimension::{self, DIMENSIONS};
use tokengauge_store::history::{duration, instant};
use tokengauge_store::query::{Dimension, Filter, Names, Paging};

/// The number of rows in a response without `limit`.
pub(crate) const DEFAULT_LIMIT: usize = 100;
pub(super) const MAX_LIMIT: usize = 1000;
pub(super) const MAX_NAME: usize = 200;
pub(super) const MAX_CURSOR: usize = 1024;
/// Parameters that filter calls and are not dimensions.
const OTHER_FILTERS: [&str; 5] = ["since", "until", "outcome", "session", "operation_class"];
pub(super) const FILTERS: [&str; OTHER_FILTERS.len() + dimension::FILTERS.len()] = {
    let mut all = [""; OTHER_FILTERS.len() + dimension::FILTERS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = match at.checked_sub(OTHER_FILTERS.len()) {
            None => OTHER_FILTERS[at],
            Some(place) => dimension::FILTERS[place].name(),
        };
        at += 1;
    }
    all
};
pub(super) const PAGING: [&str; 2] = ["limit", "cursor"];
/// The operation classes. `all` stands for all of them.
pub(super) const CLASSES: [(&str, Option<OperationClass>); 5] = [
    ("all", None),
    ("generation", Some(OperationClass::Generation)),
    ("embedding", Some(OperationClass::Embedding)),
    ("retrieve", Some(OperationClass::Retrieve)),
    ("other", Some(OperationClass::Other)),
];
pub(super) const OUTCOMES: [Outcome; 9] = [
    Outcome::Complete,
    Outcome::ClientCancelled,
    Outcome::UpstreamReset,
    Outcome::ErrorEvent,
    Outcome::HttpError,
    Outcome::Timeout,
    Outcome::Rejected,
    Outcome::Unreachable,
    Outcome::Drained,
];

/// The value that selects all outcomes of failed calls.
pub(super) const FAILED: &str = "failed";

/// The start, and the end that is not included.
pub(super) type Times = (Option<SystemTime>, Option<SystemTime>);

/// The parameters of a query. Each parameter is known and occurs once.
#[derive(Debug)]
pub(crate) struct QueryParams(BTreeMap<&'static str, String>);

impl QueryParams {
    /// Reads a query that may have all parameters in `known`.
    pub(crate) fn of(
        query: Option<&str>,
        known: &[&[&'static str]],
    ) -> Result<QueryParams, Problem> {
        let mut asked = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let all = || known.iter().copied().flatten();
            let Some(name) = all().find(|known| **known == name) else {
                let known = all().copied().collect::<Vec<_>>().join(", ");
                let message = if known.is_empty() {
                    "unknown parameter; the endpoint has no parameters".to_owned()
                } else {
                    format!("unknown parameter; the parameters of the endpoint are {known}")
                };
                return Err(Problem::new(StatusCode::BAD_REQUEST, message));
            };
            if asked.insert(*name, value.into_owned()).is_some() {
                return Err(Problem::of(name, "is given more than once"));
            }
        }
        Ok(QueryParams(asked))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn name(&self, name: &'static str) -> Result<Option<String>, Problem> {
        let Some(value) = self.text(name) else {
            return Ok(None);
        };
        if value.is_empty() || value.chars().count() > MAX_NAME {
            return Err(Problem::of(name, "must have 1 to 200 characters"));
        }
        Ok(Some(value.to_owned()))
    }

    pub(super) fn word<T: Copy>(
        &self,
        name: &'static str,
        all: &[(&'static str, T)],
    ) -> Result<Option<T>, Problem> {
        let Some(value) = self.text(name) else {
            return Ok(None);
        };
        let found = all.iter().find(|(word, _)| *word == value);
        match found {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let words: Vec<_> = all.iter().map(|(word, _)| *word).collect();
                let rule = format!("must be one of {}", words.join(", "));
                Err(Problem::of(name, &rule))
            }
        }
    }

    /// One or more values of `all`, separated by commas and without repetition.
    pub(super) fn words<T: Copy>(
        &self,
        name: &'static str,
        all: &[(&'static str, T)],
    ) -> Result<Vec<(&'static str, T)>, Problem> {
        let mut chosen: Vec<(&'static str, T)> = Vec::new();
        for word in self.text(name).unwrap_or_default().split(',') {
            let found = all.iter().find(|(known, _)| *known == word);
            let fresh = !chosen.iter().any(|(known, _)| *known == word);
            let Some(found) = found.filter(|_| fresh) else {
                let words: Vec<_> = all.iter().map(|(word, _)| *word).collect();
                let rule = format!("must be one or more of {}, each once", words.join(","));
                return Err(Problem::of(name, &rule));
            };
            chosen.push(*found);
        }
        Ok(chosen)
    }

    pub(super) fn duration(&self, name: &'static str) -> Result<Option<Duration>, Problem> {
        let rule = "must be a duration such as 30s, 5m, 6h or 7d";
        let parse = |value| duration(value).ok_or_else(|| Problem::of(name, rule));
        self.text(name).map(parse).transpose()
    }

    /// An instant: RFC 3339, or a duration before `now`.
    pub(super) fn instant(
        &self,
        name: &'static str,
        now: SystemTime,
    ) -> Result<Option<SystemTime>, Problem> {
        let rule = "must be an instant such as 2026-01-31T09:30:00Z, or a duration before now such as 90s, 15m, 72h or 7d";
        let parse = |value| instant(value, now).ok_or_else(|| Problem::of(name, rule));
        self.text(name).map(parse).transpose()
    }

    pub(super) fn times(&self, now: SystemTime) -> Result<Times, Problem> {
        let (since, until) = (self.instant("since", now)?, self.instant("until", now)?);
        if since
            .zip(until)
            .is_some_and(|(since, until)| since >= until)
        {
            Err(Problem::of("since", "must be before until"))
        } else {
            Ok((since, until))
        }
    }

    pub(super) fn limit(&self) -> Result<usize, Problem> {
        self.count("limit", DEFAULT_LIMIT, MAX_LIMIT)
    }

    pub(super) fn count(
        &self,
        name: &'static str,
        default: usize,
        most: usize,
    ) -> Result<usize, Problem> {
        let Some(value) = self.text(name) else {
            return Ok(default);
        };
        let number = value.parse().ok();
        let number = number.filter(|number| (1..=most).contains(number));
        let rule = || format!("must be a whole number from 1 to {most}");
        number.ok_or_else(|| Problem::of(name, &rule()))
    }

    pub(super) fn paging(&self) -> Result<Paging, Problem> {
        Ok(Paging {
            limit: self.limit()?,
            cursor: self.cursor()?,
        })
    }

    /// The cursor of a page: 1 to 1024 characters from an earlier response.
    fn cursor(&self) -> Result<Option<String>, Problem> {
        let Some(value) = self.text("cursor") else {
            return Ok(None);
        };
        if value.is_empty() || value.chars().count() > MAX_CURSOR {
            return Err(Problem::of(
                "cursor",
                "must be the next_cursor of a response",
            ));
        }
        Ok(Some(value.to_owned()))
    }

    /// The operation classes: by default generations, with `all` every class.
    fn operation_classes(&self) -> Result<Vec<OperationClass>, Problem> {
        if self.text("operation_class").is_none() {
            return Ok(Filter::counted());
        }
        let chosen = self.words("operation_class", &CLASSES)?;
        let classes: Option<Vec<_>> = chosen.into_iter().map(|(_, class)| class).collect();
        Ok(classes.unwrap_or_default())
    }

    /// The selected outcomes. An empty list selects all.
    fn outcomes(&self) -> Result<Vec<Outcome>, Problem> {
        if self.text("outcome").is_none() {
            return Ok(Vec::new());
        }
        let all = OUTCOMES.map(|outcome| (outcome.as_str(), Some(outcome)));
        let words: Vec<_> = all.into_iter().chain([(FAILED, None)]).collect();
        let chosen = self.words("outcome", &words)?;
        let failed = chosen.iter().any(|(_, outcome)| outcome.is_none());
        let named = |outcome: &Outcome| chosen.iter().any(|(_, one)| *one == Some(*outcome));
        let meant = |outcome: &Outcome| named(outcome) || failed && outcome.is_failure();
        Ok(OUTCOMES.into_iter().filter(meant).collect())
    }

    fn names(&self) -> Result<Names, Problem> {
        let names = dimension::FILTERS.into_iter().map(|by| {
            let name = self.name(by.name())?;
            // A `+` in a query that is not encoded means a space. Names of tools contain no spaces.
            let name = name.map(|name| match by {
                Dimension::Tool => name.replace(' ', "+"),
                _ => name,
            });
            Ok((by, name))
        });
        names.collect()
    }

    pub(super) fn dimension(&self, name: &'static str) -> Result<Dimension, Problem> {
        Ok(self.word(name, &all_dimensions())?.unwrap_or_default())
    }

    pub(super) fn dimensions(&self, name: &'static str) -> Result<Vec<Dimension>, Problem> {
        if self.text(name).is_none() {
            return Ok(Vec::new());
        }
        let chosen = self.words(name, &all_dimensions())?;
        Ok(chosen.into_iter().map(|(_, by)| by).collect())
    }

    pub(super) fn filter(&self, now: SystemTime) -> Result<Filter, Problem> {
        let (since, until) = self.times(now)?;
        Ok(Filter {
            since,
            until,
            names: self.names()?,
            outcomes: self.outcomes()?,
            session: self.name("session")?,
            cost_unavailable: self.word(
                "cost_unavailable",
                &CostUnavailable::ALL.map(|reason| (reason.as_str(), reason)),
            )?,
            tps_unavailable: self.word(
                "tps_unavailable",
                &TpsUnavailable::ALL.map(|reason| (reason.as_str(), reason)),
            )?,
            operation_classes: self.operation_classes()?,
        })
    }
}

fn all_dimensions() -> Vec<(&'static str, Dimension)> {
    let rows = DIMENSIONS.iter();
    rows.map(|row| (row.name, row.dimension)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn asked(query: &str) -> Result<QueryParams, Problem> {
        QueryParams::of(Some(query), &[&FILTERS, &PAGING])
    }

    fn filter(query: &str) -> Result<Filter, Problem> {
        asked(query)?.filter(UNIX_EPOCH + Duration::from_secs(1_000_000))
    }

    #[test]
    fn a_filter_is_read_from_a_query() {
        let read = filter("model=a%2Fb+c&outcome=timeout&since=1h&until=2001-09-09T01:46:40Z")
            .expect("valid");
        assert_eq!(read.names.get(Dimension::Model), Some("a/b c"));
        assert_eq!(read.outcomes, [Outcome::Timeout]);
        let failed = filter("outcome=complete,failed").expect("words");
        let given_up = [Outcome::ClientCancelled];
        let rest: Vec<_> = OUTCOMES
            .into_iter()
            .filter(|one| !given_up.contains(one))
            .collect();
        assert_eq!(failed.outcomes, rest, "all but what the agent gave up");
        assert_eq!(read.since, Some(UNIX_EPOCH + Duration::from_secs(996_400)));
        assert_eq!(
            read.until,
            Some(UNIX_EPOCH + Duration::from_secs(1_000_000_000))
        );
        let counted = Filter {
            operation_classes: Filter::counted(),
            ..Filter::default()
        };
        assert_eq!(filter("").expect("nothing asked"), counted);
        let classes = |query: &str| filter(query).expect(query).operation_classes;
        assert_eq!(classes("operation_class=all"), []);
        let chosen = [OperationClass::Other, OperationClass::Retrieve];
        assert_eq!(classes("operation_class=other,retrieve"), chosen);
        assert!(filter("operation_class=any").is_err());
    }

    #[test]
    fn what_breaks_a_rule_is_named_with_the_rule() {
        for (query, said) in [
            ("since=yesterday", "since must be an instant such as"),
            ("until=1.5h", "until must be an instant such as"),
            ("since=999999999w", "since must be"),
            ("since=0s", "since must be"),
            ("since=1h&until=2h", "since must be before until"),
            ("since=1h&until=1h", "since must be before until"),
            ("model=", "model must have 1 to 200 characters"),
            (
                "outcome=fine",
                "outcome must be one or more of complete,client_",
            ),
            ("model=a&model=b", "model is given more than once"),
            (
                "modle=a",
                "unknown parameter; the parameters of the endpoint are since, until, outcome",
            ),
        ] {
            let problem = filter(query).expect_err(query);
            assert!(format!("{problem:?}").contains(said), "{problem:?}");
        }
        let long = format!("agent={}", "ü".repeat(201));
        assert!(filter(&long).is_err());
        assert!(filter(&long[..long.len() - "ü".len()]).is_ok());
        let paging =
            |query: &str| QueryParams::of(Some(query), &[&PAGING]).and_then(|it| it.paging());
        assert!(paging("cursor=").is_err());
        assert!(paging(&format!("cursor={}", "0".repeat(1025))).is_err());
        assert!(paging(&format!("cursor={}", "0".repeat(1024))).is_ok());
        let none = QueryParams::of(Some("x=1"), &[]).expect_err("no parameters");
        assert!(format!("{none:?}").contains("unknown parameter; the endpoint has no parameters"));
    }

    #[test]
    fn a_limit_is_a_whole_number_from_1_to_1000() {
        let limit = |query: &str| asked(query).and_then(|asked| asked.limit());
        assert_eq!(limit(""), Ok(DEFAULT_LIMIT));
        assert_eq!(limit("limit=7"), Ok(7));
        assert_eq!(limit("limit=1000"), Ok(1000));
        for bad in ["0", "-1", "x", "", "1.5", "1001", "99999999999999999999"] {
            assert!(limit(&format!("limit={bad}")).is_err(), "{bad}");
        }
    }
}
