//! The routing table: routes, limits and upstream connections of one configuration.

use super::limit::Limiter;
use super::upstream::{DescriptorBudget, Upstream};
use crate::settings::Settings;
use std::collections::HashMap;
use std::sync::Arc;
use tokengauge_net::tls::Invalid;

pub struct Routing {
    pub(super) settings: Settings,
    /// The upstreams of each route, in the order of the routes: the route's upstream, then the upstreams of its
    /// experiment's arms.
    pub(super) upstreams: Vec<Vec<Arc<Upstream>>>,
    pub(super) limiter: Arc<Limiter>,
    pub(super) descriptors: Arc<DescriptorBudget>,
}

impl Routing {
    pub(super) fn new(settings: Settings) -> Result<Routing, Invalid> {
        let limiter = Arc::new(Limiter::new(&settings.limits));
        let descriptors = DescriptorBudget::unlimited();
        Routing::build(settings, limiter, descriptors, &HashMap::new())
    }

    /// Creates the routing table of another configuration. Unchanged upstreams and endpoints keep their connections,
    /// and an unchanged rate limit keeps its state.
    pub(super) fn with_settings(&self, settings: Settings) -> Result<Routing, Invalid> {
        let rate = |settings: &Settings| settings.limits.requests_per_minute;
        let limiter = if rate(&settings) == rate(&self.settings) {
            self.limiter.forget_idle();
            Arc::clone(&self.limiter)
        } else {
            Arc::new(Limiter::new(&settings.limits))
        };
        let known = self.upstreams.iter().flatten();
        let known = known.map(|upstream| (&*upstream.settings.name, upstream));
        let descriptors = Arc::clone(&self.descriptors);
        Routing::build(settings, limiter, descriptors, &known.collect())
    }

    fn build(
        settings: Settings,
        limiter: Arc<Limiter>,
        descriptors: Arc<DescriptorBudget>,
        known: &HashMap<&str, &Arc<Upstream>>,
    ) -> Result<Routing, Invalid> {
        let head_bytes = settings.limits.head_bytes;
        let mut built: HashMap<&str, Arc<Upstream>> = HashMap::new();
        let mut upstreams = Vec::with_capacity(settings.routes.len());
        for route in &settings.routes {
            let mut of_route = Vec::with_capacity(1);
            for wanted in route.upstreams() {
                let name = &*wanted.name;
                let upstream = match (built.get(name), known.get(name)) {
                    (Some(built), _) => Arc::clone(built),
                    (None, Some(known)) => Upstream::with_settings(known, wanted, head_bytes)?,
                    (None, None) => Arc::new(Upstream::new(wanted, head_bytes, &descriptors)?),
                };
                built.insert(name, Arc::clone(&upstream));
                of_route.push(upstream);
            }
            upstreams.push(of_route);
        }
        drop(built);
        Ok(Routing {
            settings,
            upstreams,
            limiter,
            descriptors,
        })
    }
}
