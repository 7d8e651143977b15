//! The cost of a call on self-hosted GPUs: a share of the time it was in flight.
//!
//! While k calls are in flight on an upstream, each pays for 1/k of the time. Together they pay for
//! all time in which at least one call was in flight. If an upstream generates R tokens per second
//! in that time, a token costs the upstream's cost per second ÷ R. A higher utilisation makes
//! tokens cheaper.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuPrice {
    pub usd_per_hour: f64,
    pub count: u32,
}

#[derive(Debug)]
pub struct Gpus {
    usd_per_second: f64,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    at: Option<Instant>,
    in_flight: u32,
    /// Seconds that a call in flight from the start would have paid for.
    each: f64,
}

impl Shared {
    /// Instants come from several threads. An instant before the last one changes nothing.
    fn advance(&mut self, now: Instant) {
        let since = self.at.map(|at| now.saturating_duration_since(at));
        if let Some(since) = since
            && self.in_flight > 0
        {
            self.each += since.as_secs_f64() / f64::from(self.in_flight);
        }
        self.at = self.at.max(Some(now));
    }
}

impl Gpus {
    pub fn new(price: GpuPrice) -> Arc<Gpus> {
        Arc::new(Gpus {
            usd_per_second: price.usd_per_hour * f64::from(price.count) / 3600.0,
            shared: Mutex::default(),
        })
    }

    pub fn usd_per_hour(&self) -> f64 {
        self.usd_per_second * 3600.0
    }

    pub fn begin(self: &Arc<Self>, now: Instant) -> GpuShare {
        let mut shared = self.shared();
        shared.advance(now);
        shared.in_flight += 1;
        GpuShare {
            gpus: Arc::clone(self),
            paid: shared.each,
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }
}

/// The share of one call. The call counts as in flight until the share is dropped.
#[derive(Debug)]
pub struct GpuShare {
    gpus: Arc<Gpus>,
    paid: f64,
}

impl GpuShare {
    /// The cost since the previous call of this function, or since the start, in US dollars.
    pub fn take(&mut self, now: Instant) -> f64 {
        let mut shared = self.gpus.shared();
        shared.advance(now);
        let seconds = shared.each - self.paid;
        self.paid = shared.each;
        seconds * self.gpus.usd_per_second
    }
}

impl Drop for GpuShare {
    fn drop(&mut self) {
        let mut shared = self.gpus.shared();
        shared.in_flight = shared.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn seconds(cost: f64) -> f64 {
        (cost * 1e9).round() / 1e9
    }

    #[test]
    fn a_call_alone_pays_for_all_its_time_and_two_share_theirs() {
        let gpus = Gpus::new(GpuPrice {
            usd_per_hour: 900.0,
            count: 4,
        });
        assert_eq!(gpus.usd_per_hour(), 3600.0);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut one = gpus.begin(at(0));
        let mut two = gpus.begin(at(10));
        assert_eq!(seconds(one.take(at(30))), 10.0 + 10.0);
        drop(one);
        assert_eq!(seconds(two.take(at(40))), 10.0 + 10.0);
        drop(two);
        let mut later = gpus.begin(at(100));
        assert_eq!(
            seconds(later.take(at(101))),
            1.0,
            "nobody pays for the pause"
        );
    }

    #[test]
    fn calls_pay_together_for_the_time_in_which_any_was_under_way() {
        let gpus = Gpus::new(GpuPrice {
            usd_per_hour: 3600.0,
            count: 1,
        });
        let start = Instant::now();
        let at = |tenth: u64| start + Duration::from_millis(tenth * 100);
        let calls: [(u64, u64); 5] = [(0, 50), (3, 20), (7, 90), (20, 60), (88, 95)];
        let mut shares: [Option<GpuShare>; 5] = Default::default();
        let mut total = 0.0;
        for now in 0..=95 {
            for (share, (begin, end)) in shares.iter_mut().zip(calls) {
                if now == begin {
                    *share = Some(gpus.begin(at(now)));
                }
                if now == end {
                    total += share.take().map_or(0.0, |mut share| share.take(at(now)));
                }
            }
        }
        assert!((total - 9.5).abs() < 1e-9, "{total}");
    }

    #[test]
    fn an_instant_out_of_order_costs_nobody_anything() {
        let gpus = Gpus::new(GpuPrice {
            usd_per_hour: 3600.0,
            count: 1,
        });
        let start = Instant::now() + Duration::from_secs(5);
        let mut one = gpus.begin(start);
        let early = start - Duration::from_secs(1);
        let mut two = gpus.begin(early);
        assert_eq!((one.take(early), two.take(early)), (0.0, 0.0));
    }
}
