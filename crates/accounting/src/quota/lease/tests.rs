//! Tests leases against a model of the quota store that does the same as its `rate.lua` and
//! `slots.lua`.

use super::*;
use proptest::prelude::*;

const LEASE: Duration = Duration::from_secs(1);
const VALID: Duration = Duration::from_secs(2);
const EXPIRES: f64 = 4.0;

fn limit(per_minute: u32) -> NonZeroU32 {
    NonZeroU32::new(per_minute).expect("not 0")
}

fn response(held: u64, free: i64, retry: u64) -> LeaseResponse {
    LeaseResponse {
        held,
        free,
        retry: Duration::from_secs(retry),
    }
}

#[test]
fn before_the_store_has_answered_one_lease_may_be_taken_on_credit() {
    let now = Instant::now();
    let mut lease = RateLease::new(limit(600), LEASE, now);
    let mut taken = 0;
    while lease.available(now) >= 1 {
        lease.take(1);
        taken += 1;
    }
    assert_eq!(taken, 10);
    assert_eq!(lease.report(now, false).used, 10);
    assert_eq!(RateLease::new(limit(1), LEASE, now).available(now), 1);
}

#[test]
fn what_was_granted_may_be_taken_until_it_is_no_longer_valid() {
    let now = Instant::now();
    let mut lease = RateLease::new(limit(600), LEASE, now);
    lease.ask(1, now);
    lease.take(1);
    let report = lease.report(now, false);
    lease.take(1);
    lease.answered(&report, response(20, 0, 0), now, VALID);
    assert_eq!(lease.available(now), 19, "one more was taken on the way");
    assert!(lease.is_due(now));
    let later = now + VALID;
    assert_eq!(
        lease.available(later),
        9,
        "credit, less what is not reported"
    );
}

#[test]
fn who_was_denied_gets_no_credit_until_there_is_something_again() {
    let now = Instant::now();
    let mut lease = RateLease::new(limit(1), LEASE, now);
    lease.take(1);
    let report = lease.report(now, false);
    lease.answered(&report, response(0, 0, 60), now, VALID);
    for seconds in [0, 1, 3, 30, 59] {
        let at = now + Duration::from_secs(seconds);
        assert!(lease.available(at) < 1, "{seconds}");
        assert!(lease.is_kept(at), "not forgotten");
    }
    assert_eq!(lease.wait(now), Duration::from_secs(60));
    let at = now + Duration::from_secs(60);
    assert_eq!(lease.available(at), 1);
    assert!(!lease.is_kept(at));
}

#[test]
fn the_store_is_asked_soon_where_it_has_more() {
    let now = Instant::now();
    let mut lease = RateLease::new(limit(600), LEASE, now);
    assert!(lease.runs_low(now), "it was never asked");
    let report = lease.report(now, false);
    lease.answered(&report, response(20, 500, 0), now, VALID);
    assert!(!lease.runs_low(now));
    lease.take(26);
    assert!(lease.runs_low(now));
    lease.answered(&report, response(0, 0, 1), now, VALID);
    assert!(!lease.runs_low(now), "there is nothing to be had");
    lease.answered(&report, response(3, 0, 0), now, VALID);
    assert!(!lease.runs_low(now));
    assert!(lease.runs_low(now + VALID));
}

#[test]
fn nothing_is_wanted_without_calls_and_all_is_given_back_at_the_end() {
    let now = Instant::now();
    let mut lease = RateLease::new(limit(6_000), LEASE, now);
    lease.ask(300, now);
    lease.take(300);
    assert_eq!(lease.report(now, false).want, 100 + 600);
    assert_eq!(lease.report(now, true).want, 0);
    assert_eq!(lease.report(now + LEASE, false).want, 0);
}

#[test]
fn a_slot_may_be_taken_on_credit_and_no_more_than_there_are() {
    let now = Instant::now();
    let mut slots = SlotLease::new(2, LEASE, now);
    assert!(slots.is_available(now));
    slots.take();
    assert!(!slots.is_available(now), "the credit is used");
    slots.answered(response(1, 1, 0), now, VALID);
    assert!(slots.is_available(now), "one is free");
    slots.take();
    slots.answered(response(2, 0, 0), now, VALID);
    assert!(!slots.is_available(now));
    slots.release();
    assert!(slots.is_available(now), "it is still held");
    assert!(
        !SlotLease::new(0, LEASE, now).is_available(now),
        "0 refuses all"
    );
}

/// The bucket of a rate in the quota store. Seconds are `f64`.
struct Bucket {
    limit: f64,
    worth: f64,
    free: f64,
    at: f64,
    /// For each process, the held amount, its expiry and the counted part of its use.
    held: Vec<Option<(f64, f64, u64)>>,
}

impl Bucket {
    fn new(limit: u32, worth: u64, processes: usize) -> Bucket {
        Bucket {
            limit: f64::from(limit),
            worth: worth as f64,
            free: f64::from(limit),
            at: 0.0,
            held: vec![None; processes],
        }
    }

    fn out(&self) -> f64 {
        self.held.iter().flatten().map(|held| held.0).sum()
    }

    fn report(&mut self, process: usize, report: &RateReport, now: f64) -> LeaseResponse {
        let grown = self.free + (now - self.at) * self.limit / 60.0;
        self.free = grown
            .min(self.limit - self.out())
            .max(self.free.min(self.limit));
        self.at = now;
        for held in &mut self.held {
            if held.is_some_and(|held| held.1 <= now) {
                self.free += held.map_or(0.0, |held| held.0.min(self.worth));
                *held = None;
            }
        }
        self.free = self.free.min(self.limit - self.out());
        let holders = self.held.iter().flatten().count().max(1);
        let (mut held, _, counted) = self.held[process].unwrap_or((0.0, 0.0, report.acknowledged));
        held -= report.used.saturating_sub(counted) as f64;
        if held < 0.0 {
            self.free += held;
            held = 0.0;
        }
        let most = self.worth.max((self.free / (2 * holders) as f64).floor());
        let target = (report.want as f64).min(most);
        let grant = if held > target {
            target - held
        } else {
            (target - held).min(self.free.floor().max(0.0))
        };
        self.free -= grant;
        held += grant;
        self.held[process] = (held > 0.0).then_some((held, now + EXPIRES, report.used));
        let wait = if held < 1.0 && self.free < 1.0 {
            (1.0 - self.free) * 60.0 / self.limit
        } else {
            0.0
        };
        LeaseResponse {
            held: held as u64,
            free: self.free.floor() as i64,
            retry: Duration::from_secs_f64(wait),
        }
    }
}

/// Runs five processes at full load. The quota store does not respond during `away`, in
/// milliseconds. Returns the number of admitted calls, and the number that one process would admit.
fn admitted_at_full_load(away: &[std::ops::Range<u64>], until: u64) -> (u64, f64) {
    const LIMIT: u32 = 600;
    let begin = Instant::now();
    let share = OwnShare {
        per_minute: limit(LIMIT / 5),
        replicas: limit(5),
    };
    let mut leases = vec![RateLease::new(limit(LIMIT), LEASE, begin); 5];
    let mut bucket = Bucket::new(LIMIT, leases[0].worth, 5);
    let mut answered = [0; 5];
    let mut taken = 0;
    for millis in (0..until).step_by(10) {
        let now = begin + Duration::from_millis(millis);
        for (process, lease) in leases.iter_mut().enumerate() {
            lease.ask(1, now);
            let reachable = millis - answered[process] <= VALID.as_millis() as u64;
            if reachable && lease.available(now) >= 1 {
                lease.take(1);
                taken += 1;
            } else if !reachable && lease.wait_alone(share, now).is_none() {
                lease.take_alone(share, 1, now);
                taken += 1;
            }
            let answers = !away.iter().any(|away| away.contains(&millis));
            if answers && millis % 250 == 0 {
                let report = lease.report(now, false);
                let response = bucket.report(process, &report, millis as f64 / 1000.0);
                lease.answered(&report, response, now, VALID);
                answered[process] = millis;
            }
        }
    }
    (taken, f64::from(LIMIT) * (1.0 + until as f64 / 60_000.0))
}

#[test]
fn an_outage_lets_no_more_through_than_one_process_would_and_a_lease_each() {
    let flaps: Vec<_> = (0..6)
        .map(|n| 5_000 + 8_000 * n..9_000 + 8_000 * n)
        .collect();
    for (away, until) in [
        (vec![], 55_000),
        (std::iter::once(10_000..30_000).collect(), 55_000),
        (std::iter::once(2_000..50_000).collect(), 55_000),
        (flaps, 55_000),
    ] {
        let (taken, one) = admitted_at_full_load(&away, until);
        // One more for each process, because the last responses differ in time.
        let leases = 5.0 * (10.0 + 1.0);
        assert!(taken as f64 <= one + leases, "{away:?}: {taken} of {one}");
        assert!(taken as f64 >= one * 0.8, "{away:?}: {taken} of {one}");
    }
}

#[test]
fn a_share_begins_with_what_was_left_and_comes_back_by_the_minute() {
    let now = Instant::now();
    let share = OwnShare {
        per_minute: limit(120),
        replicas: limit(5),
    };
    let mut lease = RateLease::new(limit(600), LEASE, now);
    assert_eq!(
        lease.remaining_alone(share, now),
        120,
        "nothing was ever used"
    );
    lease.take(10);
    let report = lease.report(now, false);
    lease.take(2);
    lease.answered(&report, response(12, 100, 0), now, VALID);
    assert_eq!(lease.remaining_alone(share, now), 12 + 100 / 5 - 2);
    lease.take_alone(share, 31, now);
    let wait = lease.wait_alone(share, now).expect("it owes one");
    assert_eq!(wait, Duration::from_secs(1));
    let later = now + Duration::from_secs(10);
    assert_eq!(lease.remaining_alone(share, later), 19);
    assert_eq!(
        lease.report(later, false).used,
        43,
        "the store gets to know"
    );
    let idle = now + Duration::from_secs(600);
    assert_eq!(lease.remaining_alone(share, idle), 120);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A process gets this number of calls.
    Calls(usize, u64),
    Report(usize),
    /// A process is killed, and another process replaces it.
    Kill(usize),
    /// This number of milliseconds passes.
    Pass(u64),
}

fn step(processes: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..processes, 1..40_u64).prop_map(|(process, calls)| Step::Calls(process, calls)),
        8 => (0..processes).prop_map(Step::Report),
        1 => (0..processes).prop_map(Step::Kill),
        4 => (1..1_500_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// In any order of calls, reports and kills, all processes together admit at most the limit
    /// plus one lease for each process that existed.
    #[test]
    fn all_together_take_the_limit_and_at_most_one_lease_each(
        per_minute in 1..3_000_u32,
        steps in proptest::collection::vec(step(5), 1..400),
    ) {
        let begin = Instant::now();
        let new = |now| RateLease::new(limit(per_minute), LEASE, now);
        let mut leases: Vec<_> = (0..5).map(|_| new(begin)).collect();
        let worth = leases[0].worth;
        let mut bucket = Bucket::new(per_minute, worth, 5);
        // A process that replaces a killed one has another name in the quota store.
        let mut names: Vec<usize> = (0..5).collect();
        let (mut millis, mut taken, mut killed) = (0_u64, 0_u64, 0_u64);
        for step in steps {
            let now = begin + Duration::from_millis(millis);
            match step {
                Step::Pass(more) => millis += more,
                Step::Calls(process, calls) => {
                    let lease = &mut leases[process];
                    for _ in 0..calls {
                        lease.ask(1, now);
                        if lease.available(now) >= 1 {
                            lease.take(1);
                            taken += 1;
                        }
                    }
                }
                Step::Report(process) => {
                    let report = leases[process].report(now, false);
                    let name = names[process];
                    let response = bucket.report(name, &report, millis as f64 / 1000.0);
                    leases[process].answered(&report, response, now, VALID);
                }
                Step::Kill(process) => {
                    // Unreported use is lost, and the new process has new credit.
                    killed += leases[process].used - leases[process].acknowledged + worth;
                    leases[process] = new(now);
                    names[process] = bucket.held.len();
                    bucket.held.push(None);
                }
            }
            let seconds = millis as f64 / 1000.0;
            let allowed = f64::from(per_minute) * (1.0 + seconds / 60.0);
            let credit = (5 * worth + killed) as f64;
            prop_assert!(taken as f64 <= allowed + credit + 1.0, "{taken} of {allowed} and {credit}");
        }
    }

    /// All processes together never use more slots than the limit plus one for each process.
    #[test]
    fn all_together_use_the_slots_and_at_most_one_each_more(
        most in 0..20_u32,
        steps in proptest::collection::vec((0..5_usize, 0..4_u8), 1..300),
    ) {
        let now = Instant::now();
        let mut all: Vec<_> = (0..5).map(|_| SlotLease::new(most, LEASE, now)).collect();
        let mut held = [0_u32; 5];
        for (process, action) in steps {
            match action {
                0 => all[process].release(),
                1 | 2 => {
                    all[process].ask(now);
                    if all[process].is_available(now) {
                        all[process].take();
                    }
                }
                _ => {
                    let report = all[process].report(now, false);
                    let others: u32 = held.iter().sum::<u32>() - held[process];
                    let free = i64::from(most) - i64::from(others);
                    let granted = i64::from(report.want).min(free.max(0));
                    held[process] = report.in_use.max(granted as u32);
                    let left = free - i64::from(held[process]);
                    all[process].answered(response(u64::from(held[process]), left, 0), now, VALID);
                }
            }
            let used: u32 = all.iter().map(|slots| slots.in_use).sum();
            prop_assert!(used <= if most == 0 { 0 } else { most + 5 }, "{used} of {most}");
        }
    }
}
