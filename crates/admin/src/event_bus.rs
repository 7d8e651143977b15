//! Events for the live page: every finished call, the streams once a second, and the objectives every five seconds. A
//! listener that is too slow loses events and is told how many. Nothing waits for a listener.

use super::Services;
use super::api::{CallSource, DEFAULT_LIMIT, StreamFilter};
use super::fair_shares::{FairShares, Share};
use super::server::Source;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokengauge_core::pod::PodName;
use tokengauge_meter::{FinishedCall, Subscriber};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// The largest number of concurrent listeners. Further listeners are refused.
const LISTENERS: usize = 32;
const PER_SOURCE: usize = 16;
/// The length of a listener's queue. Older events are lost.
const WAITING: usize = 512;
const STREAMS_EVERY: Duration = Duration::from_secs(1);
/// The number of `streams` events for each `slos` event.
const SLOS_AFTER: u64 = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// `streams`, `call`, `slos` or `lost`.
    pub(super) kind: &'static str,
    pub(super) data: Arc<str>,
}

impl Event {
    fn new(kind: &'static str, data: &impl Serialize) -> Option<Event> {
        let data = serde_json::to_string(data).ok()?;
        Some(Event {
            kind,
            data: data.into(),
        })
    }
}

pub struct EventBus {
    events: broadcast::Sender<Event>,
    slots: FairShares,
    over: watch::Sender<bool>,
    lost: AtomicU64,
    refused: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerStats {
    pub listeners: usize,
    pub lost: u64,
    pub refused: u64,
}

impl EventBus {
    pub fn new() -> Arc<EventBus> {
        Arc::new(EventBus {
            events: broadcast::Sender::new(WAITING),
            slots: FairShares::new(LISTENERS, PER_SOURCE),
            over: watch::Sender::new(false),
            lost: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    pub fn listening(&self) -> ListenerStats {
        ListenerStats {
            listeners: LISTENERS - self.slots.left(),
            lost: self.lost.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Adds a listener from `source`, which receives `first` before all other events. `None` if there are too many
    /// listeners, in all or from that source.
    pub(super) fn listen(
        self: &Arc<Self>,
        source: Option<Source>,
        first: Vec<Event>,
    ) -> Option<Listener> {
        let Some(seat) = self.slots.take(source, 1) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        Some(Listener {
            first: first.into_iter(),
            events: self.events.subscribe(),
            over: self.over.subscribe(),
            bus: Arc::clone(self),
            _slot: seat,
        })
    }

    pub(super) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Publishes the record of a finished call, with the name of its pod.
    ///
    /// # Errors
    /// Fails if `record` is not a record.
    pub fn forward(&self, record: &[u8], pod: Option<&PodName>) -> serde_json::Result<()> {
        if self.has_listeners() {
            let mut record: Map<String, Value> = serde_json::from_slice(record)?;
            record.insert("pod".to_owned(), json!(pod));
            self.publish(Event::new("call", &record));
        }
        Ok(())
    }

    fn publish(&self, event: Option<Event>) {
        if let Some(event) = event {
            // An error only means that there is no listener.
            let _ = self.events.send(event);
        }
    }

    fn has_listeners(&self) -> bool {
        self.events.receiver_count() > 0
    }
}

impl Subscriber for EventBus {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        if self.has_listeners() {
            self.publish(Event::new("call", &finished_call.record));
        }
    }
}

pub(super) fn present(services: &Services) -> Vec<Event> {
    streams(services)
        .into_iter()
        .chain(slos(services))
        .collect()
}

fn streams(services: &Services) -> Option<Event> {
    let (now, all) = ((services.clock)(), StreamFilter::default());
    let streams = services.live.streams(now, &all, DEFAULT_LIMIT);
    Event::new("streams", &streams)
}

fn slos(services: &Services) -> Option<Event> {
    Event::new("slos", &services.live.slos((services.clock)()))
}

pub(super) async fn tick(services: Services) {
    let mut ticks = interval(STREAMS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        ticks.tick().await;
        if let CallSource::Memory(_, history, _) = &services.call_source {
            history.take(services.live.tick((services.clock)(), (services.wall)()));
        }
        if !services.event_bus.has_listeners() {
            continue;
        }
        let bus = &services.event_bus;
        bus.publish(streams(&services));
        if number.is_multiple_of(SLOS_AFTER) {
            bus.publish(slos(&services));
        }
    }
}

pub(super) struct Listener {
    first: std::vec::IntoIter<Event>,
    events: broadcast::Receiver<Event>,
    over: watch::Receiver<bool>,
    bus: Arc<EventBus>,
    _slot: Share,
}

impl Listener {
    /// The next event; `None` at the end. An event `lost` contains the number of events that this listener has lost.
    pub(super) async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.next() {
            return Some(first);
        }
        let event = tokio::select! {
            biased;
            _ = self.over.wait_for(|over| *over) => return None,
            event = self.events.recv() => event,
        };
        match event {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(events)) => {
                self.bus.lost.fetch_add(events, Ordering::Relaxed);
                Event::new("lost", &serde_json::json!({ "events": events }))
            }
            Err(RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: usize) -> Option<Event> {
        Event::new("call", &number)
    }

    #[tokio::test]
    async fn a_slow_listener_loses_the_oldest_events_and_gets_their_number() {
        let bus = EventBus::new();
        let mut slow = bus.listen(None, Vec::new()).expect("a seat");
        for event in 0..WAITING + 7 {
            bus.publish(number(event));
        }
        let event = slow.next().await.expect("an event");
        assert_eq!((event.kind, &*event.data), ("lost", "{\"events\":7}"));
        assert_eq!(slow.next().await, number(7), "the rest is there");
        assert_eq!(bus.listening().lost, 7);
    }

    #[tokio::test]
    async fn listeners_are_bounded_and_a_seat_is_free_when_one_leaves() {
        let bus = EventBus::new();
        let sources = [1, 2].map(|host| Some(Source::of([10, 0, 0, host].into())));
        let mut slots = Vec::new();
        for source in sources {
            for _ in 0..PER_SOURCE {
                slots.push(bus.listen(source, Vec::new()).expect("a seat"));
            }
            assert!(bus.listen(source, Vec::new()).is_none(), "its share");
        }
        assert!(bus.listen(None, Vec::new()).is_none(), "all slots");
        let listening = bus.listening();
        assert_eq!((listening.listeners, listening.refused), (LISTENERS, 3));
        slots.pop();
        assert!(bus.listen(sources[0], Vec::new()).is_none(), "its share");
        assert!(bus.listen(None, Vec::new()).is_some());
    }

    #[tokio::test]
    async fn the_end_comes_to_every_listener_even_to_later_ones() {
        let bus = EventBus::new();
        let mut early = bus.listen(None, Vec::new()).expect("a seat");
        bus.publish(number(1));
        bus.end();
        assert_eq!(early.next().await, None);
        let mut late = bus.listen(None, Vec::new()).expect("a seat");
        assert_eq!(late.next().await, None);
    }
}
