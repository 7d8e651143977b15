//! Header fields of a response with the remaining amounts of the call's quotas.

use super::{Remaining, Resource};
use http::{HeaderName, HeaderValue};

struct FieldNames {
    resource: Resource,
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

const NAMES: [FieldNames; 3] = [
    FieldNames {
        resource: Resource::Requests,
        limit: HeaderName::from_static("x-tokengauge-ratelimit-limit-requests"),
        remaining: HeaderName::from_static("x-tokengauge-ratelimit-remaining-requests"),
        reset: HeaderName::from_static("x-tokengauge-ratelimit-reset-requests"),
    },
    FieldNames {
        resource: Resource::Tokens,
        limit: HeaderName::from_static("x-tokengauge-ratelimit-limit-tokens"),
        remaining: HeaderName::from_static("x-tokengauge-ratelimit-remaining-tokens"),
        reset: HeaderName::from_static("x-tokengauge-ratelimit-reset-tokens"),
    },
    FieldNames {
        resource: Resource::Concurrent,
        limit: HeaderName::from_static("x-tokengauge-ratelimit-limit-concurrent"),
        remaining: HeaderName::from_static("x-tokengauge-ratelimit-remaining-concurrent"),
        reset: HeaderName::from_static("x-tokengauge-ratelimit-reset-concurrent"),
    },
];

/// The fields for the remaining amounts. If several quotas limit one resource, the quota with the
/// smallest remaining amount is used.
pub(crate) fn fields(left: &[Remaining]) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = Vec::new();
    for names in NAMES {
        let of = left.iter().filter(|one| one.resource == names.resource);
        let Some(least) = of.min_by_key(|one| one.remaining) else {
            continue;
        };
        fields.push((names.limit, HeaderValue::from(least.limit)));
        fields.push((names.remaining, HeaderValue::from(least.remaining)));
        if let Some(reset) = least.reset {
            let seconds = u64::try_from(reset.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
            fields.push((names.reset, HeaderValue::from(seconds)));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_quota_with_the_least_left_is_shown() {
        let left = |resource, remaining, reset| Remaining {
            resource,
            limit: 60,
            remaining,
            reset,
        };
        let soon = Some(Duration::from_millis(1_200));
        let fields = fields(&[
            left(Resource::Requests, 7, None),
            left(Resource::Requests, 0, soon),
            left(Resource::Concurrent, 3, None),
        ]);
        let shown: Vec<_> = fields
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        assert_eq!(
            shown,
            [
                "x-tokengauge-ratelimit-limit-requests: 60",
                "x-tokengauge-ratelimit-remaining-requests: 0",
                "x-tokengauge-ratelimit-reset-requests: 2",
                "x-tokengauge-ratelimit-limit-concurrent: 60",
                "x-tokengauge-ratelimit-remaining-concurrent: 3",
            ]
        );
    }
}
