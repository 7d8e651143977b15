//! Watches whether the warehouse answers, so that the page says so before anybody asks a question.

use super::Fleet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_store::warehouse::Warehouse;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(5);

impl Fleet {
    /// Watches the warehouse for as long as it is polled.
    pub async fn watch_warehouse(self: Arc<Fleet>, warehouse: Arc<Warehouse>) {
        loop {
            let asked = Arc::clone(&warehouse);
            let calls = spawn_blocking(move || asked.count()).await;
            let now = SystemTime::now();
            match calls {
                Ok(Ok(calls)) => {
                    let mut back = false;
                    self.warehouse_is(|warehouse| back = warehouse.answered(calls, now));
                    if back {
                        tracing::info!("the warehouse answers again");
                    }
                }
                Ok(Err(error)) => {
                    let error = error.to_string();
                    let mut new = false;
                    self.warehouse_is(|warehouse| new = warehouse.failed(error.clone(), now));
                    if new {
                        tracing::warn!(
                            error,
                            "the warehouse does not answer: stored calls are not shown"
                        );
                    }
                }
                // The process ends.
                Err(_) => return,
            }
            sleep(PAUSE).await;
        }
    }
}
