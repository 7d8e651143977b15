//! Metrics of a tokio runtime, limited to tokio's stable figures.

use super::registry::Registry;
use super::{labels, names};
use std::time::Instant;
use tokio::runtime::{Handle, RuntimeMetrics};

/// A hook for every scrape that reports the sums over `runtimes` with the label `name`.
pub fn figures(name: &'static str, runtimes: Vec<Handle>) -> impl Fn(&Registry, Instant) {
    move |registry, _| {
        let sum = |figure: fn(&RuntimeMetrics) -> usize| {
            let metrics = runtimes.iter().map(Handle::metrics);
            metrics.map(|metrics| figure(&metrics)).sum::<usize>()
        };
        for (metric, value) in [
            (&names::RUNTIME_WORKERS, sum(RuntimeMetrics::num_workers)),
            (
                &names::RUNTIME_ALIVE_TASKS,
                sum(RuntimeMetrics::num_alive_tasks),
            ),
            (
                &names::RUNTIME_GLOBAL_QUEUE_DEPTH,
                sum(RuntimeMetrics::global_queue_depth),
            ),
        ] {
            let labels = labels::Runtime { runtime: name };
            registry.series(metric, &labels).set(value as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::names::Family;
    use crate::export::registry::Gauge;
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn workers_and_tasks_are_those_of_the_runtime() {
        let registry = Registry::new(&[]);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(stopped);
        let ask = figures("test", vec![Handle::current()]);
        ask(&registry, Instant::now());
        let gauge = |metric: &Family<Gauge, _>| {
            registry
                .series(metric, &labels::Runtime { runtime: "test" })
                .value()
        };
        assert_eq!(gauge(&names::RUNTIME_WORKERS), 3.0);
        assert_eq!(gauge(&names::RUNTIME_ALIVE_TASKS), 1.0);
        stop.send(()).expect("it waits");
        let _ = task.await;
        // A worker releases a task shortly after its result is available.
        let end = Instant::now() + Duration::from_secs(10);
        while gauge(&names::RUNTIME_ALIVE_TASKS) != 0.0 {
            assert!(Instant::now() < end, "the task is still alive");
            tokio::time::sleep(Duration::from_millis(1)).await;
            ask(&registry, Instant::now());
        }
    }
}
