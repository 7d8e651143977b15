//! What requests are forwarded by: the routes of one configuration, the connections to
//! its upstreams, and its limits.

use super::limit::Limiter;
use super::tls::Invalid;
use super::upstream::{Descriptors, Upstream};
use crate::config::Config;
use std::collections::HashMap;
use std::sync::Arc;

/// The routes of one configuration and what they lead to.
pub struct Routing {
    pub(super) config: Arc<Config>,
    /// By place of the route in the configuration.
    pub(super) upstreams: Vec<Arc<Upstream>>,
    pub(super) limiter: Arc<Limiter>,
    pub(super) descriptors: Arc<Descriptors>,
}

impl Routing {
    /// With no connections yet.
    pub(super) fn new(config: Arc<Config>) -> Result<Routing, Invalid> {
        let limiter = Arc::new(Limiter::new(&config.limits));
        let descriptors = Descriptors::unlimited();
        Routing::with(config, limiter, descriptors, &HashMap::new())
    }

    /// The same for another configuration. Upstreams and endpoints that did not change
    /// keep their connections, a limit that did not keeps what was taken of it.
    pub(super) fn after(&self, config: Arc<Config>) -> Result<Routing, Invalid> {
        let rate = |config: &Config| config.limits.requests_per_minute;
        let limiter = if rate(&config) == rate(&self.config) {
            self.limiter.forget_idle();
            Arc::clone(&self.limiter)
        } else {
            Arc::new(Limiter::new(&config.limits))
        };
        let known = self.upstreams.iter();
        let known = known.map(|upstream| (&*upstream.settings.name, upstream));
        let descriptors = Arc::clone(&self.descriptors);
        Routing::with(config, limiter, descriptors, &known.collect())
    }

    fn with(
        config: Arc<Config>,
        limiter: Arc<Limiter>,
        descriptors: Arc<Descriptors>,
        known: &HashMap<&str, &Arc<Upstream>>,
    ) -> Result<Routing, Invalid> {
        let head_bytes = config.limits.head_bytes;
        let mut made: HashMap<&str, Arc<Upstream>> = HashMap::new();
        let mut upstreams = Vec::with_capacity(config.routes.len());
        for route in &config.routes {
            let name = &*route.upstream.name;
            let upstream = match (made.get(name), known.get(name)) {
                (Some(made), _) => Arc::clone(made),
                (None, Some(known)) => Upstream::after(known, &route.upstream, head_bytes)?,
                (None, None) => Arc::new(Upstream::new(&route.upstream, head_bytes, &descriptors)?),
            };
            made.insert(name, Arc::clone(&upstream));
            upstreams.push(upstream);
        }
        drop(made);
        Ok(Routing {
            config,
            upstreams,
            limiter,
            descriptors,
        })
    }
}
