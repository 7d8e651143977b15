//! The arithmetic of leases: how much of a shared limit one process may use, according to the last
//! response of the quota store. Functions take the time as an argument, and nothing here waits.
//!
//! A process takes a part of the limit in advance and reports how much of it it used. In addition
//! it may take one lease on credit: before the quota store has responded, or while that much is
//! free in the quota store. So all processes together exceed the limit by at most one lease each.
//! The quota store deducts credit afterwards.
//!
//! While the quota store does not respond, a process takes its share of the requests and tokens
//! that were left in the last response, and its share of each further minute. The quota store
//! deducts them later.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The quota store is asked for free slots during this number of leases after the last call.
const LEASES_OF_INTEREST: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateReport {
    pub per_minute: u32,
    pub worth: u64,
    /// The total use since the lease was created.
    pub used: u64,
    /// The part of `used` that the quota store knows.
    pub acknowledged: u64,
    pub want: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotReport {
    pub limit: u32,
    pub in_use: u32,
    /// The number of slots to hold from now on, including the slots in use.
    pub want: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseResponse {
    /// The amount that this process holds after the report.
    pub held: u64,
    /// The amount that nobody holds. It is negative if the limit was exceeded.
    pub free: i64,
    /// How long until more is available; zero if some is available now.
    pub retry: Duration,
}

/// The part of a limit that one process enforces while the quota store does not respond.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnShare {
    pub(super) per_minute: NonZeroU32,
    pub(super) replicas: NonZeroU32,
}

/// The rest of a share. It is negative if the share was exceeded.
#[derive(Clone, Copy, Debug)]
struct OwnBucket {
    left: f64,
    at: Instant,
}

impl OwnBucket {
    fn refill(&mut self, share: OwnShare, now: Instant) {
        let most = f64::from(share.per_minute.get());
        let minutes = now.saturating_duration_since(self.at).as_secs_f64() / 60.0;
        self.left = (self.left + minutes * most).min(most);
        self.at = now;
    }
}

#[derive(Clone, Debug)]
pub(super) struct RateLease {
    per_minute: u32,
    worth: u64,
    used: u64,
    acknowledged: u64,
    held: u64,
    free: i64,
    valid_until: Option<Instant>,
    retry_at: Option<Instant>,
    /// When the last answered request was sent.
    answered_at: Option<Instant>,
    /// The share that this process uses while the quota store does not respond.
    alone: Option<OwnBucket>,
    /// The recent demand, halved with each report.
    demand: u64,
    last_take: Instant,
    lease: Duration,
}

impl RateLease {
    pub(super) fn new(per_minute: NonZeroU32, lease: Duration, now: Instant) -> RateLease {
        let worth = f64::from(per_minute.get()) * lease.as_secs_f64() / 60.0;
        RateLease {
            per_minute: per_minute.get(),
            worth: (worth.ceil() as u64).clamp(1, u64::from(per_minute.get())),
            used: 0,
            acknowledged: 0,
            held: 0,
            free: 0,
            valid_until: None,
            retry_at: None,
            answered_at: None,
            alone: None,
            demand: 0,
            last_take: now,
            lease,
        }
    }

    fn is_valid(&self, now: Instant) -> bool {
        self.valid_until.is_some_and(|until| now < until)
    }

    /// The amount that may be taken now. If it is less than 1, nothing may be taken.
    pub(super) fn available(&self, now: Instant) -> i64 {
        let unreported = signed(self.used - self.acknowledged);
        let worth = signed(self.worth);
        if self.is_valid(now) {
            let credit = self.free.clamp(0, worth);
            return signed(self.held) + credit - unreported;
        }
        if self.retry_at.is_some_and(|at| now < at) {
            0
        } else {
            worth - unreported
        }
    }

    pub(super) fn wait(&self, now: Instant) -> Duration {
        let until = self.retry_at.map(|at| at.saturating_duration_since(now));
        until.filter(|wait| !wait.is_zero()).unwrap_or(RETRY_AFTER)
    }

    /// Records a demand of `amount`, whether it is granted or not.
    pub(super) fn ask(&mut self, amount: u64, now: Instant) {
        self.demand = self.demand.saturating_add(amount);
        self.last_take = now;
    }

    /// Takes `amount`, even if less is available.
    pub(super) fn take(&mut self, amount: u64) {
        self.used = self.used.saturating_add(amount);
    }

    /// This process's share at `now`, while the quota store does not respond.
    fn own_bucket(&self, share: OwnShare, now: Instant) -> OwnBucket {
        let all = f64::from(share.per_minute.get());
        let mut bucket = match (self.alone, self.answered_at) {
            (Some(bucket), _) => bucket,
            (None, None) => OwnBucket { left: all, at: now },
            (None, Some(at)) => {
                let unreported = (self.used - self.acknowledged) as f64;
                let of_all = self.free.max(0) as f64 / f64::from(share.replicas.get());
                let left = (self.held as f64 + of_all).min(all) - unreported;
                OwnBucket { left, at }
            }
        };
        bucket.refill(share, now);
        bucket
    }

    /// The rest of this process's share, for display.
    pub(super) fn remaining_alone(&self, share: OwnShare, now: Instant) -> u64 {
        self.own_bucket(share, now).left.max(0.0) as u64
    }

    /// How long until this process has some of its share again; `None` if it has some now.
    pub(super) fn wait_alone(&self, share: OwnShare, now: Instant) -> Option<Duration> {
        let missing = 1.0 - self.own_bucket(share, now).left;
        let minutes = missing / f64::from(share.per_minute.get());
        (missing > 0.0).then(|| Duration::from_secs_f64(minutes * 60.0))
    }

    /// Takes `amount` of this process's share, even if less is available. The quota store is told
    /// later.
    pub(super) fn take_alone(&mut self, share: OwnShare, amount: u64, now: Instant) {
        let mut bucket = self.own_bucket(share, now);
        bucket.left -= amount as f64;
        self.alone = Some(bucket);
        self.take(amount);
    }

    /// Whether the quota store should be asked soon.
    pub(super) fn runs_low(&self, now: Instant) -> bool {
        if self.retry_at.is_some_and(|at| now < at) {
            return false;
        }
        if !self.is_valid(now) {
            return true;
        }
        // If nobody has anything left, asking before the next report cannot help.
        self.free > 0 && self.available(now) < signed(self.worth.max(self.demand) / 2 + 1)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.used > self.acknowledged || self.held > 0 || self.is_asked(now)
    }

    /// Whether this lease must be kept, because a new one would have credit again.
    pub(super) fn is_kept(&self, now: Instant) -> bool {
        self.is_due(now) || self.retry_at.is_some_and(|at| now < at)
    }

    fn is_asked(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_take) < self.lease
    }

    /// The report at `now`. At the end of the process it gives everything back.
    pub(super) fn report(&mut self, now: Instant, ending: bool) -> RateReport {
        let ahead = self.worth.saturating_add(self.demand.saturating_mul(2));
        let want = ahead.min(u64::from(self.per_minute));
        self.demand /= 2;
        RateReport {
            per_minute: self.per_minute,
            worth: self.worth,
            used: self.used,
            acknowledged: self.acknowledged,
            want: if self.is_asked(now) && !ending {
                want
            } else {
                0
            },
        }
    }

    /// Takes over the quota store's response to `report`, which was sent at `sent`.
    pub(super) fn answered(
        &mut self,
        report: &RateReport,
        response: LeaseResponse,
        sent: Instant,
        valid_for: Duration,
    ) {
        self.acknowledged = self.acknowledged.max(report.used);
        self.held = response.held;
        self.free = response.free;
        self.valid_until = Some(sent + valid_for);
        self.answered_at = Some(sent);
        self.alone = None;
        self.retry_at = (!response.retry.is_zero()).then(|| sent + response.retry);
    }

    /// The known remaining amount of this process, for display and not for decisions.
    pub(super) fn remaining(&self) -> u64 {
        let unreported = signed(self.used - self.acknowledged);
        let left = signed(self.held) + self.free - unreported;
        match self.valid_until {
            Some(_) => u64::try_from(left.max(0)).unwrap_or(0),
            None => u64::from(self.per_minute).saturating_sub(self.used),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct SlotLease {
    limit: u32,
    in_use: u32,
    held: u32,
    free: i64,
    valid_until: Option<Instant>,
    last_take: Instant,
    lease: Duration,
}

impl SlotLease {
    pub(super) fn new(limit: u32, lease: Duration, now: Instant) -> SlotLease {
        SlotLease {
            limit,
            in_use: 0,
            held: 0,
            free: 0,
            valid_until: None,
            last_take: now,
            lease,
        }
    }

    /// Whether another call may begin. One slot may be taken on credit.
    pub(super) fn is_available(&self, now: Instant) -> bool {
        let valid = self.valid_until.is_some_and(|until| now < until);
        let most = if valid {
            self.held + u32::from(self.free > 0)
        } else {
            1
        };
        self.in_use < most.min(self.limit)
    }

    pub(super) fn in_use(&self) -> u32 {
        self.in_use
    }

    pub(super) fn is_available_alone(&self, limit: u32) -> bool {
        self.in_use < limit
    }

    pub(super) fn ask(&mut self, now: Instant) {
        self.last_take = now;
    }

    pub(super) fn take(&mut self) {
        self.in_use += 1;
    }

    pub(super) fn release(&mut self) {
        self.in_use = self.in_use.saturating_sub(1);
    }

    /// Whether the quota store should be asked soon.
    pub(super) fn runs_low(&self, now: Instant) -> bool {
        let valid = self.valid_until.is_some_and(|until| now < until);
        !valid || (self.in_use >= self.held && self.free > 0)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.last_take);
        self.in_use > 0 || self.held > 0 || since < LEASES_OF_INTEREST * self.lease
    }

    /// The report at `now`. After recent calls it wants one slot more than are in use.
    pub(super) fn report(&self, now: Instant, ending: bool) -> SlotReport {
        let recently = now.saturating_duration_since(self.last_take) < self.lease;
        let spare = u32::from(recently && !ending);
        SlotReport {
            limit: self.limit,
            in_use: self.in_use,
            want: self.in_use.saturating_add(spare),
        }
    }

    pub(super) fn answered(&mut self, response: LeaseResponse, sent: Instant, valid_for: Duration) {
        self.held = u32::try_from(response.held).unwrap_or(u32::MAX);
        self.free = response.free;
        self.valid_until = Some(sent + valid_for);
    }

    pub(super) fn remaining(&self) -> u64 {
        let free = u32::try_from(self.free.max(0)).unwrap_or(u32::MAX);
        let all = match self.valid_until {
            Some(_) => self.held.saturating_add(free),
            None => self.limit,
        };
        u64::from(all.min(self.limit).saturating_sub(self.in_use))
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
