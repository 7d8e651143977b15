//! Quotas as series.

use super::names;
use super::registry::Registry;
use crate::quota::{Quotas, Resource};

/// Takes away the series of quotas that are in `now` and not in `next`.
pub fn forget(registry: &Registry, now: &Quotas, next: &Quotas) {
    let next = next.standings();
    for gone in now.standings() {
        if next.iter().any(|kept| kept.name == gone.name) {
            continue;
        }
        let name = &*gone.name;
        registry.forget(&names::QUOTA_HOLDS, &[name]);
        registry.forget(&names::QUOTA_UNLIMITED, &[name]);
        for resource in Resource::ALL {
            registry.forget(&names::QUOTA_REFUSED, &[name, resource.as_str()]);
        }
    }
}

/// Brings the series up to now: all of them are there from the start.
pub fn quotas(registry: &Registry, quotas: &Quotas) {
    for standing in quotas.standings() {
        let name = &*standing.name;
        let holds = registry.gauge(&names::QUOTA_HOLDS, &[name]);
        holds.set(f64::from(u8::from(standing.holds)));
        let unlimited = registry.counter(&names::QUOTA_UNLIMITED, &[name]);
        unlimited.absolute(standing.unlimited);
        for (resource, refused) in standing.refused {
            let labels = [name, resource.as_str()];
            let series = registry.counter(&names::QUOTA_REFUSED, &labels);
            series.absolute(refused);
        }
    }
}
