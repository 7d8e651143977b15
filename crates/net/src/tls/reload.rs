//! TLS configurations that are rebuilt when their files change.

use super::Invalid;
use parking_lot::Mutex;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Minimum time between two checks of the files.
const CHECK_EVERY: Duration = Duration::from_secs(1);

type Build<T> = Box<dyn Fn() -> Result<T, Invalid> + Send + Sync>;

/// The newest usable version of a value that is built from files.
pub(super) struct Reloading<T> {
    files: Vec<PathBuf>,
    build: Build<T>,
    state: Mutex<LoadedValue<T>>,
}

struct LoadedValue<T> {
    current: Arc<T>,
    stamps: Vec<Stamp>,
    checked: Instant,
}

/// Modification time, length and inode of a file, to detect changes. `None` if the file is missing.
type Stamp = Option<(SystemTime, u64, u64)>;

impl<T> Reloading<T> {
    pub(super) fn new(files: Vec<PathBuf>, now: Instant, build: Build<T>) -> Result<Self, Invalid> {
        // The stamps are taken first, so that the next check sees a change that happens during the build.
        let stamps = stamps(&files);
        let current = Arc::new(build()?);
        Ok(Reloading {
            files,
            build,
            state: Mutex::new(LoadedValue {
                current,
                stamps,
                checked: now,
            }),
        })
    }

    /// Returns the version for a new connection. Checks the files at most once a second and reads them only if they
    /// changed. If the new files cannot be used, this is logged once and the previous version is kept.
    pub(super) fn current(&self, now: Instant) -> Arc<T> {
        let mut state = self.state.lock();
        if !self.files.is_empty() && now.duration_since(state.checked) >= CHECK_EVERY {
            state.checked = now;
            self.refresh(&mut state);
        }
        Arc::clone(&state.current)
    }

    fn refresh(&self, state: &mut LoadedValue<T>) {
        let stamps = stamps(&self.files);
        if stamps == state.stamps {
            return;
        }
        state.stamps = stamps;
        match (self.build)() {
            Ok(new) => {
                state.current = Arc::new(new);
                tracing::info!(files = ?self.files, "TLS files were reloaded for new connections");
            }
            Err(error) => {
                tracing::warn!(%error, "the changed TLS files cannot be used; the previous certificates are kept");
            }
        }
    }
}

impl<T> std::fmt::Debug for Reloading<T> {
    /// Prints the names of the files, never their contents.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Reloading")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let metadata = std::fs::metadata(file).ok()?;
        // Two versions of equal length can be written within one clock tick. Their inodes differ.
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    files.iter().map(stamp).collect()
}
