//! Quotas as series.

use super::names;
use super::registry::Registry;
use tokengauge_meter::quota::{Quota, Quotas, Resource, Sharing};

/// Takes away the series of quotas that are in `now` and not in `next`.
pub fn forget(registry: &Registry, now: &[Quota], next: &[Quota]) {
    for gone in now {
        if next.iter().any(|kept| kept.name == gone.name) {
            continue;
        }
        let name = &*gone.name;
        registry.forget(&names::QUOTA_HOLDS, &[name]);
        for resource in Resource::ALL {
            let labels = [name, resource.as_str()];
            registry.forget(&names::QUOTA_REFUSED, &labels);
            registry.forget(&names::QUOTA_SHADOW_REFUSED, &labels);
        }
        for why in Sharing::ALL {
            registry.forget(&names::QUOTA_SHARED, &[name, why.as_str()]);
        }
    }
}

/// Brings the series up to now: all of them are there from the start.
pub fn quotas(registry: &Registry, quotas: &Quotas) {
    for standing in quotas.standings() {
        let name = &*standing.name;
        let holds = registry.gauge(&names::QUOTA_HOLDS, &[name]);
        holds.set(f64::from(u8::from(standing.holds)));
        for (metric, counts) in [
            (&names::QUOTA_REFUSED, standing.refused),
            (&names::QUOTA_SHADOW_REFUSED, standing.shadow_refused),
        ] {
            for (resource, count) in counts {
                let series = registry.counter(metric, &[name, resource.as_str()]);
                series.absolute(count);
            }
        }
        for (why, count) in standing.shared {
            let series = registry.counter(&names::QUOTA_SHARED, &[name, why.as_str()]);
            series.absolute(count);
        }
    }
}
