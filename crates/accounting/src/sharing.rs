//! Limits that several processes share through a quota store: the settings, and whether the quota
//! store responds. The hot path of a call reads only memory. A separate task talks to the quota
//! store.

use parking_lot::Mutex;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokengauge_core::caller::Mode;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OnError {
    /// Each process enforces its part of each limit. Budgets count all known spending.
    #[default]
    Local,
    Open,
    /// Every call that a shared limit applies to is refused.
    Closed,
}

impl OnError {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharingSettings {
    /// A process takes an amount for this long from the quota store in advance.
    pub lease: Duration,
    /// The number of processes that share the limits, for [`OnError::Local`].
    pub replicas: NonZeroU32,
    pub on_error: OnError,
    /// In shadow mode each process enforces its own limits, and counts the calls that the shared
    /// ones would refuse.
    pub mode: Mode,
}

impl SharingSettings {
    /// How long a response of the quota store is valid, from the time of the request.
    pub fn valid_for(&self) -> Duration {
        2 * self.lease
    }

    /// The age at which the quota store gives the lease of a process to others. It is longer than
    /// that process uses the lease.
    pub fn expires_after(&self) -> Duration {
        4 * self.lease
    }

    pub fn interval(&self) -> Duration {
        (self.lease / 4).max(Duration::from_millis(10))
    }

    /// The part of a limit that one process enforces by itself.
    pub fn own_share(&self, limit: NonZeroU32) -> NonZeroU32 {
        NonZeroU32::new(limit.get() / self.replicas.get()).unwrap_or(NonZeroU32::MIN)
    }
}

/// Whether responses of the quota store can decide about shared limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaStoreState {
    Reachable,
    Away(OnError),
}

pub struct Sharing {
    settings: SharingSettings,
    clock: fn() -> Instant,
    began: Instant,
    /// When the last answered request was sent, in nanoseconds since `began`.
    answered: AtomicU64,
    /// How long limits were decided without the quota store until that response, in nanoseconds.
    away: AtomicU64,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    sequence: AtomicU64,
    counts: Counts,
    error: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
    fallback_calls: AtomicU64,
    untracked: AtomicU64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SharingStatus {
    pub answered: u64,
    pub failed: u64,
    /// How long ago the last answered request was sent.
    pub age: Duration,
    /// Whether limits are decided without the quota store now.
    pub fallback: bool,
    /// What decides limits without the quota store: the setting, or `shadow`.
    pub on_error: &'static str,
    pub fallback_time: Duration,
    pub fallback_calls: u64,
    /// Names that only this process counts, because too many were tracked.
    pub untracked: u64,
    /// Why the last request failed; `None` if it did not.
    pub error: Option<String>,
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Sharing");
        shown.field("settings", &self.settings);
        shown.finish_non_exhaustive()
    }
}

impl Sharing {
    /// Starts without any response. Calls are admitted on credit until the quota store has had time
    /// to respond.
    pub fn new(settings: SharingSettings, clock: fn() -> Instant) -> Sharing {
        Sharing {
            settings,
            clock,
            began: clock(),
            answered: AtomicU64::new(0),
            away: AtomicU64::new(0),
            wake: OnceLock::new(),
            sequence: AtomicU64::new(0),
            counts: Counts::default(),
            error: Mutex::default(),
        }
    }

    pub fn settings(&self) -> &SharingSettings {
        &self.settings
    }

    pub fn enforces(&self) -> bool {
        self.settings.mode == Mode::Enforce
    }

    pub fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Sets the function that is called when the quota store should be asked soon. It must not
    /// block.
    pub fn on_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        // The only task calls this once.
        let _ = self.wake.set(Box::new(wake));
    }

    /// Asks the quota store soon.
    pub fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    pub fn answered(&self, sent: Instant) {
        let away = nanos(self.away_now(self.now()));
        self.away.fetch_add(away, Ordering::Relaxed);
        let sent = nanos(sent.saturating_duration_since(self.began));
        self.answered.fetch_max(sent, Ordering::Relaxed);
        self.counts.answered.fetch_add(1, Ordering::Relaxed);
        *self.error.lock() = None;
    }

    /// Records that a request failed. `reason` must not contain secrets.
    pub fn failed(&self, reason: String) {
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        *self.error.lock() = Some(reason);
    }

    fn away_now(&self, now: Instant) -> Duration {
        self.age(now).saturating_sub(self.settings.valid_for())
    }

    fn age(&self, now: Instant) -> Duration {
        let at = self.began + Duration::from_nanos(self.answered.load(Ordering::Relaxed));
        now.saturating_duration_since(at)
    }

    pub fn state(&self, now: Instant) -> QuotaStoreState {
        if self.age(now) <= self.settings.valid_for() {
            QuotaStoreState::Reachable
        } else {
            QuotaStoreState::Away(self.settings.on_error)
        }
    }

    pub(crate) fn count_fallback(&self) {
        self.counts.fallback_calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_untracked(&self) {
        self.counts.untracked.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn status(&self, now: Instant) -> SharingStatus {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SharingStatus {
            answered: count(&self.counts.answered),
            failed: count(&self.counts.failed),
            age: self.age(now),
            fallback: self.state(now) != QuotaStoreState::Reachable,
            on_error: match self.settings.mode {
                Mode::Enforce => self.settings.on_error.as_str(),
                Mode::Shadow => "shadow",
            },
            fallback_time: Duration::from_nanos(count(&self.away)) + self.away_now(now),
            fallback_calls: count(&self.counts.fallback_calls),
            untracked: count(&self.counts.untracked),
            error: self.error.lock().clone(),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
