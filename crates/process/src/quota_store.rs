//! The quota store of a running proxy: limits, spending and alerts that it shares with other processes.

use crate::ProcessError;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_accounting::Accounting;
use tokengauge_accounting::sharing::Sharing;
use tokengauge_config::Config;
use tokengauge_meter::Meter;
use tokengauge_quota_store::QuotaStore;

#[derive(Clone, Default)]
pub(crate) struct SharedLimits {
    pub(crate) quota_store: Option<Arc<QuotaStore>>,
    meter: Arc<OnceLock<Weak<Meter>>>,
}

pub(crate) fn sharing(config: &Config) -> Option<Arc<Sharing>> {
    let settings = config.quota_store.as_ref()?;
    Some(Arc::new(Sharing::new(settings.sharing, Instant::now)))
}

/// Checks that the settings of the quota store can be used. Does not connect.
pub(crate) fn check(config: &Config) -> Result<(), ProcessError> {
    config.quota_store.as_ref().map_or(Ok(()), |settings| {
        QuotaStore::check(settings).map_err(|error| unusable(&error))
    })
}

fn unusable(error: &io::Error) -> ProcessError {
    ProcessError::Configuration(format!("quota_store: {error}"))
}

impl SharedLimits {
    /// Connects to the configured quota store. Nothing is shared before [`SharedLimits::measure`].
    pub(crate) fn start(
        config: &Config,
        accounting: &Accounting,
    ) -> Result<SharedLimits, ProcessError> {
        let mut limits = SharedLimits::default();
        if let (Some(settings), Some(sharing)) = (&config.quota_store, &accounting.sharing) {
            let meter = Arc::clone(&limits.meter);
            let accounting = move || Some(meter.get()?.upgrade()?.accounting());
            let quota_store = QuotaStore::start(
                settings.clone(),
                Arc::clone(sharing),
                accounting,
                SystemTime::now,
            )
            .map_err(|error| unusable(&error))?;
            limits.quota_store = Some(Arc::new(quota_store));
        }
        Ok(limits)
    }

    pub(crate) fn measure(&self, meter: &Arc<Meter>) {
        // A process has only one meter, so this is set only once.
        let _ = self.meter.set(Arc::downgrade(meter));
    }

    /// Returns everything that this process holds of shared limits. Blocks, at most for `within`.
    pub(crate) fn finish(&self, within: Duration) {
        if self
            .quota_store
            .as_ref()
            .is_some_and(|quota_store| !quota_store.finish(within))
        {
            tracing::warn!(
                "the quota store did not take back the leases of this process in time; they will expire"
            );
        }
    }
}
