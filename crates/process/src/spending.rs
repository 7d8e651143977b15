//! Saves the spending of budgets, so that it survives a restart and a kill.

use crate::ProcessError;
use crate::quota_store;
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_accounting::Accounting;
use tokengauge_accounting::cost::budget::SpendingFile;
use tokengauge_config::Config;
use tokengauge_core::log_interval::LogInterval;
use tokengauge_core::time::whole_seconds_since_1970;

/// How often spending is saved if it has changed. A call is saved within a second, including the time that the disk
/// takes.
const KEEP_EVERY: Duration = Duration::from_millis(500);
/// Minimum pause after saving, as a multiple of the time that saving took. It limits the load of a large file on a slow
/// disk.
const PAUSE_FACTOR: u32 = 10;

#[derive(Clone)]
pub(crate) struct Spending {
    pub(crate) accounting: Accounting,
    spending_file: Option<Arc<Mutex<SpendingFile>>>,
    failure_log: Arc<LogInterval>,
}

impl Spending {
    pub(crate) fn open(config: &Config) -> Result<Spending, ProcessError> {
        let sharing = quota_store::sharing(config);
        let accounting =
            Accounting::shared(&config.prices, &config.budgets, &config.quotas, sharing);
        let budgets = &accounting.budgets;
        let now = whole_seconds_since_1970(SystemTime::now());
        let spending_file = config.state_dir.as_deref().map(|folder| {
            SpendingFile::open(folder, budgets, now).map_err(|error| unreadable(folder, &error))
        });
        let spending_file = spending_file.transpose()?;
        if spending_file
            .as_ref()
            .is_some_and(SpendingFile::is_locked_elsewhere)
            && !budgets.is_empty()
        {
            tracing::warn!(
                "another process writes spending.json in this state_dir. Until it ends, this process counts \
                 only its own spending. Give each process a separate state_dir"
            );
        }
        Ok(Spending {
            accounting,
            spending_file: spending_file.map(|spending_file| Arc::new(Mutex::new(spending_file))),
            failure_log: Arc::default(),
        })
    }

    pub(crate) fn check(config: &Config) -> Result<(), ProcessError> {
        config.state_dir.as_deref().map_or(Ok(()), |folder| {
            SpendingFile::check(folder).map_err(|error| unreadable(folder, &error))
        })
    }

    /// Saves the spending whenever it has changed. Never returns.
    pub(crate) async fn keep_up(self) {
        if self.spending_file.is_none() {
            return;
        }
        let mut pause = KEEP_EVERY;
        loop {
            tokio::time::sleep(pause).await;
            let (this, began) = (self.clone(), Instant::now());
            // A panic has been logged already.
            let _ = tokio::task::spawn_blocking(move || this.keep()).await;
            pause = KEEP_EVERY.max(began.elapsed() * PAUSE_FACTOR);
        }
    }

    /// Blocks.
    pub(crate) fn keep(&self) {
        let Some(spending_file) = self
            .spending_file
            .as_ref()
            .filter(|_| !self.accounting.budgets.is_empty())
        else {
            return;
        };
        let mut spending_file = spending_file.lock();
        let now = whole_seconds_since_1970(SystemTime::now());
        match spending_file.save(&self.accounting.budgets, now) {
            Ok(_) => {
                self.failure_log.recovered();
            }
            Err(error) if self.failure_log.should_log(Instant::now()) => {
                tracing::warn!(%error, "cannot save the spending of budgets to spending.json; after a restart, budgets count from the last save");
            }
            Err(_) => {}
        }
    }
}

fn unreadable(folder: &Path, error: &io::Error) -> ProcessError {
    let folder = folder.display();
    ProcessError::Configuration(format!(
        "cannot read the spending of budgets from {folder}: {error}; make spending.json there \
         readable, or remove it to start from zero"
    ))
}
