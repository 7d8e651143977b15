//! Objectives over calls that are played with constructed instants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_accounting::Accounting;
use tokengauge_config::{Config, Measure};
use tokengauge_core::observer::{End, ObservedCall};
use tokengauge_meter::Subscriber;
use tokengauge_slo::{Slos, Status};
use tokengauge_test_support::meter::{Bench, DONE, finish, words};

pub struct ObjectivesFixture {
    pub bench: Bench,
    pub slos: Arc<Slos>,
}

pub fn wall(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_millis(millis)
}

pub fn config(slos: &str) -> Config {
    let base = "[[upstream]]\nname = \"upstream\"\nurl = \"http://127.0.0.1:9\"\n\
                [[route]]\nname = \"route\"\nupstream = \"upstream\"\n";
    Config::parse(&format!("{base}{slos}"), "test").unwrap_or_else(|invalid| panic!("{invalid}"))
}

fn accounting(config: &Config) -> Accounting {
    Accounting::new(&config.prices, &config.budgets, &config.quotas)
}

pub fn bench(config: &Config, subscribers: Vec<Arc<dyn Subscriber>>) -> Bench {
    Bench::with(
        config.measure.clone(),
        accounting(config),
        subscribers,
        None,
    )
}

impl ObjectivesFixture {
    pub fn new(slos: &str) -> ObjectivesFixture {
        ObjectivesFixture::warmed(slos, 0)
    }

    pub fn warmed(slos: &str, warm_up_calls: u32) -> ObjectivesFixture {
        let config = config(slos);
        let accounting = accounting(&config);
        let measure = Measure {
            warm_up_calls,
            warm_up_for: Duration::ZERO,
            ..config.measure
        };
        let slos = Slos::new(&config.slos, &measure, std::time::Instant::now(), wall(0));
        let subscriber: Arc<dyn Subscriber> = slos.clone();
        ObjectivesFixture {
            bench: Bench::with(measure, accounting, vec![subscriber], None),
            slos,
        }
    }

    pub fn tick(&self, millis: u64) {
        let meter = &self.bench.meter;
        self.slos.tick(self.bench.at(millis), wall(millis), meter);
    }

    pub fn status(&self, millis: u64) -> Status {
        self.bench.finished_calls();
        self.slos.status(self.bench.at(millis)).remove(0)
    }

    /// Every non-zero count, keyed by `verdict reason`.
    pub fn counts(&self, millis: u64) -> BTreeMap<String, u64> {
        let status = self.status(millis);
        let all = status.events.iter().flat_map(|(verdict, reasons)| {
            let name = move |reason: &&str| format!("{verdict} {reason}");
            reasons
                .iter()
                .map(move |(reason, count)| (name(reason), *count))
        });
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Sends chunks of `tokens` tokens, `gap` ms apart, the first at `first`. Returns the time of the last one.
    pub fn stream(
        &self,
        call: &dyn ObservedCall,
        first: u64,
        gap: u64,
        chunks: u64,
        tokens: usize,
    ) -> u64 {
        for chunk in 0..chunks {
            self.bench.chunk(call, first + chunk * gap, words(tokens));
        }
        first + (chunks - 1) * gap
    }

    pub fn complete(&self, call: &dyn ObservedCall, at: u64) {
        self.bench.chunk(call, at, finish(None));
        self.bench.chunk(call, at, DONE);
        call.ended(self.bench.at(at), End::Complete);
    }
}

pub fn only(name: &str, count: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(name.to_owned(), count)])
}

pub const TTFT: &str = "[[slo]]\nname = \"x\"\nttft.at_most = \"2s\"\n";
pub const TOKENS: &str = "[[slo]]\nname = \"x\"\noutput_tps.at_least = 10\nweight = \"token\"\n";
