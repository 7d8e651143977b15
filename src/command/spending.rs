//! What was spent of the budgets, over a restart.

use crate::Error;
use crate::config::Config;
use crate::cost::budget::{Budgets, Kept, seconds_since_1970};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How often it is written.
const KEEP_EVERY: Duration = Duration::from_secs(30);

/// The budgets, and where what was spent of them is kept.
#[derive(Clone)]
pub(super) struct Spending {
    pub(super) budgets: Arc<Budgets>,
    directory: Option<PathBuf>,
}

impl Spending {
    /// Goes on where the last process ended, where there is a state directory.
    pub(super) fn open(config: &Config) -> Result<Spending, Error> {
        let budgets = Budgets::new(&config.budgets);
        let directory = config.state_dir.clone();
        if let Some(directory) = &directory {
            let kept = Kept::load(directory).map_err(|error| {
                let place = directory.display();
                Error::Failed(format!(
                    "what was spent cannot be read from {place}: {error}; take spending.json away to begin anew"
                ))
            })?;
            budgets.resume(&kept, seconds_since_1970(SystemTime::now()));
        }
        Ok(Spending { budgets, directory })
    }

    /// Writes now and then what was spent.
    pub(super) async fn keep_up(self) {
        if self.directory.is_none() {
            return;
        }
        loop {
            tokio::time::sleep(KEEP_EVERY).await;
            let this = self.clone();
            // A panic in it was told by then.
            let _ = tokio::task::spawn_blocking(move || this.keep()).await;
        }
    }

    /// Writes what was spent. Blocks.
    pub(super) fn keep(&self) {
        let Some(directory) = self.directory.as_ref().filter(|_| !self.budgets.is_empty()) else {
            return;
        };
        let kept = self.budgets.kept(seconds_since_1970(SystemTime::now()));
        if let Err(error) = kept.save(directory) {
            tracing::warn!(%error, "what was spent cannot be kept; a restart begins the budgets anew");
        }
    }
}
