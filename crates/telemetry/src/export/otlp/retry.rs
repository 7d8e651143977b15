//! Whether and when a message is retried, as OTLP specifies
//! (<https://opentelemetry.io/docs/specs/otlp/#failures>): only after transient failures, with
//! exponential backoff and jitter, not before the time that the receiver asked for, and for a
//! bounded time.

use super::losses::Failure;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::backoff;

const SHORTEST: Duration = Duration::from_millis(250);
/// The longest wait, unless the receiver asks for more.
const LONGEST: Duration = Duration::from_secs(10);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// A retry would fail again.
    Never,
    /// Retry after this time; zero if the receiver did not specify one.
    After(Duration),
}

#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) failure: Failure,
    pub(super) again: Again,
}

/// Whether an HTTP response allows a retry; `now` is the wall clock.
pub(super) fn of_status(status: StatusCode, head: &HeaderMap, now: SystemTime) -> Again {
    match status.as_u16() {
        429 | 503 => Again::After(retry_after(head, now).unwrap_or_default()),
        502 | 504 => Again::After(Duration::ZERO),
        _ => Again::Never,
    }
}

/// Reads seconds or a date.
fn retry_after(head: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = head.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[derive(Debug)]
pub(super) struct Backoff {
    /// When the first attempt failed.
    began: Option<Instant>,
    failures: u32,
    retry_for: Duration,
}

impl Backoff {
    /// The state before the first failure. No wait ends later than `retry_for` after the first
    /// failure.
    pub(super) fn new(retry_for: Duration) -> Backoff {
        Backoff {
            began: None,
            failures: 0,
            retry_for,
        }
    }

    /// How long to wait at `now` after another failure; `None` if there is no further attempt.
    pub(super) fn wait(&mut self, again: Again, now: Instant) -> Option<Duration> {
        let Again::After(asked) = again else {
            return None;
        };
        let began = *self.began.get_or_insert(now);
        let wait = asked.saturating_add(backoff::delay(self.failures, SHORTEST, LONGEST));
        self.failures += 1;
        let spent = now.saturating_duration_since(began);
        (spent.saturating_add(wait) <= self.retry_for).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_what_otlp_names_is_sent_again() {
        let none = HeaderMap::new();
        let now = SystemTime::UNIX_EPOCH;
        let again = |status| of_status(StatusCode::from_u16(status).expect("a status"), &none, now);
        for status in [429, 502, 503, 504] {
            assert_eq!(again(status), Again::After(Duration::ZERO), "{status}");
        }
        for status in [400, 401, 404, 408, 413, 500, 501] {
            assert_eq!(again(status), Again::Never, "{status}");
        }
    }

    #[test]
    fn a_receiver_names_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let asked = |value: &'static str| {
            let head = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            of_status(StatusCode::SERVICE_UNAVAILABLE, &head, now)
        };
        assert_eq!(asked("7"), Again::After(7 * SECOND));
        let date = asked("Sun, 06 Nov 1994 08:49:47 GMT");
        assert_eq!(date, Again::After(10 * SECOND));
        let past = asked("Sun, 06 Nov 1994 08:00:00 GMT");
        assert_eq!(past, Again::After(Duration::ZERO));
        assert_eq!(asked("soon"), Again::After(Duration::ZERO));
    }

    #[test]
    fn waits_grow_and_end_within_a_minute() {
        let (start, mut now) = (Instant::now(), Instant::now());
        let mut backoff = Backoff::new(60 * SECOND);
        let mut waits = Vec::new();
        while let Some(wait) = backoff.wait(Again::After(Duration::ZERO), now) {
            now += wait;
            waits.push(wait);
        }
        assert!(now - start <= 60 * SECOND, "{waits:?}");
        assert!((8..=16).contains(&waits.len()), "{waits:?}");
        let bounds = (SHORTEST..=SHORTEST * 2).contains(&waits[0]);
        assert!(bounds && waits.iter().all(|wait| *wait <= LONGEST));
    }

    #[test]
    fn a_wait_is_never_shorter_than_was_asked_for_nor_past_the_bound() {
        let now = Instant::now();
        let minute = || Backoff::new(60 * SECOND);
        let wait = minute().wait(Again::After(5 * SECOND), now);
        assert!(wait.is_some_and(|wait| wait >= 5 * SECOND), "{wait:?}");
        let hour = Again::After(3600 * SECOND);
        assert_eq!(minute().wait(hour, now), None);
        assert_eq!(minute().wait(Again::After(Duration::MAX), now), None);
        assert_eq!(minute().wait(Again::Never, now), None);
        let off = Backoff::new(Duration::ZERO).wait(Again::After(Duration::ZERO), now);
        assert_eq!(off, None);
    }
}
