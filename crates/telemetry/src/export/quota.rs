//! Series of quotas.

use super::registry::Registry;
use super::{labels, names};
use tokengauge_accounting::quota::{Quota, Quotas, Resource, SharedReason};
use tokengauge_accounting::sharing::SharingStatus;

/// Removes the series of quotas that are in `now` and not in `next`.
pub fn forget(registry: &Registry, now: &[Quota], next: &[Quota]) {
    for gone in now {
        if next.iter().any(|kept| kept.name == gone.name) {
            continue;
        }
        let quota = &*gone.name;
        registry.forget(&names::QUOTA_HOLDS, &labels::Quota { quota });
        for resource in Resource::ALL {
            let labels = labels::QuotaResource { quota, resource };
            registry.forget(&names::QUOTA_REFUSED, &labels);
            registry.forget(&names::QUOTA_SHADOW_REFUSED, &labels);
            registry.forget(&names::QUOTA_REMAINING, &labels);
        }
        for reason in SharedReason::ALL {
            registry.forget(&names::QUOTA_SHARED, &labels::QuotaReason { quota, reason });
        }
    }
}

pub fn quotas(registry: &Registry, quotas: &Quotas) {
    for status in quotas.statuses() {
        let quota = &*status.name;
        let holds = registry.series(&names::QUOTA_HOLDS, &labels::Quota { quota });
        holds.set(f64::from(u8::from(status.active)));
        for (metric, counts) in [
            (&names::QUOTA_REFUSED, status.refused),
            (&names::QUOTA_SHADOW_REFUSED, status.shadow_refused),
        ] {
            for (resource, count) in counts {
                let series = registry.series(metric, &labels::QuotaResource { quota, resource });
                series.absolute(count);
            }
        }
        for left in status.least_remaining {
            let resource = left.resource;
            let labels = labels::QuotaResource { quota, resource };
            let series = registry.series(&names::QUOTA_REMAINING, &labels);
            series.set(left.remaining as f64);
        }
        for (reason, count) in status.shared {
            let labels = labels::QuotaReason { quota, reason };
            let series = registry.series(&names::QUOTA_SHARED, &labels);
            series.absolute(count);
        }
    }
}

pub fn sharing(registry: &Registry, status: &SharingStatus) {
    for (result, count) in [("answered", status.answered), ("failed", status.failed)] {
        let labels = labels::ByResult { result };
        registry
            .series(&names::QUOTA_STORE_REQUESTS, &labels)
            .absolute(count);
    }
    let age = registry.series(&names::QUOTA_STORE_LEASE_AGE, &());
    age.set(status.age.as_secs_f64());
    let fallback = registry.series(&names::QUOTA_STORE_FALLBACK, &());
    fallback.set(f64::from(u8::from(status.fallback)));
    let labels = labels::QuotaStoreOnError {
        on_error: status.on_error,
    };
    let time = registry.series(&names::QUOTA_STORE_AWAY_SECONDS, &labels);
    time.absolute(status.fallback_time.as_secs_f64());
    let decisions = registry.series(&names::QUOTA_STORE_FALLBACK_DECISIONS, &());
    decisions.absolute(status.fallback_calls);
    let untracked = registry.series(&names::QUOTA_STORE_UNTRACKED, &());
    untracked.absolute(status.untracked);
}
