//! Saves the spending of budgets, so that it survives a restart.

use super::quota_store;
use crate::Error;
use crate::config::Config;
use crate::cost::budget::Store;
use crate::meter::Accounting;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::time::whole_seconds_since_1970;

/// How often it is saved.
const KEEP_EVERY: Duration = Duration::from_secs(30);

/// Prices, budgets and quotas, and the file that saves the spending.
#[derive(Clone)]
pub(super) struct Spending {
    pub(super) accounting: Accounting,
    store: Option<Arc<Mutex<Store>>>,
}

impl Spending {
    /// Loads the spending of the last process, where there is a state directory.
    pub(super) fn open(config: &Config) -> Result<Spending, Error> {
        let sharing = quota_store::sharing(config);
        let accounting =
            Accounting::shared(&config.prices, &config.budgets, &config.quotas, sharing);
        let budgets = &accounting.budgets;
        let now = whole_seconds_since_1970(SystemTime::now());
        let store = config.state_dir.as_deref();
        let store = store.map(|folder| {
            Store::open(folder, budgets, now).map_err(|error| {
                let place = folder.display();
                Error::Failed(format!(
                    "what was spent cannot be read from {place}: {error}; make spending.json there readable, \
                     or take it away to begin anew"
                ))
            })
        });
        let store = store.transpose()?;
        if store.as_ref().is_some_and(Store::is_locked_elsewhere) && !budgets.is_empty() {
            tracing::warn!(
                "another process writes spending.json in this state_dir: what is spent here counts in this \
                 process alone until that one ends; give each its own state_dir"
            );
        }
        Ok(Spending {
            accounting,
            store: store.map(|store| Arc::new(Mutex::new(store))),
        })
    }

    /// Saves the spending at intervals, without end.
    pub(super) async fn keep_up(self) {
        if self.store.is_none() {
            return;
        }
        loop {
            tokio::time::sleep(KEEP_EVERY).await;
            let this = self.clone();
            // A panic has been logged already.
            let _ = tokio::task::spawn_blocking(move || this.keep()).await;
        }
    }

    /// Saves the spending. Blocks.
    pub(super) fn keep(&self) {
        let Some(store) = self
            .store
            .as_ref()
            .filter(|_| !self.accounting.budgets.is_empty())
        else {
            return;
        };
        let mut store = store.lock();
        let now = whole_seconds_since_1970(SystemTime::now());
        if let Err(error) = store.save(&self.accounting.budgets, now) {
            tracing::warn!(%error, "what was spent cannot be kept; a restart begins the budgets anew");
        }
    }
}
