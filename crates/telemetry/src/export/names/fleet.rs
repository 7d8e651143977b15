//! Metrics of `tokengauge fleet` about its store and its pods.

use super::families;

families! {
    /// Pods of a fleet by whether they can be reached.
    FLEET_PODS: Gauge[ByState] = "tokengauge_fleet_pods", Count;
    /// 1 where the events of a pod are read, 0 where it cannot be reached; by its name, else its address.
    FLEET_POD_UP: Gauge[FleetMember] = "tokengauge_fleet_pod_up", Count;
    /// Events of pods that are not shown, by reason.
    FLEET_EVENTS_DROPPED: Counter[ByReason] = "tokengauge_fleet_events_dropped_total", Count;
    /// 1 where the store of a fleet answers, 0 where it does not.
    FLEET_STORE_UP: Gauge[] = "tokengauge_fleet_store_up", Count;
    /// Seconds since the store was last read to its end.
    FLEET_STORE_AGE: Gauge[] = "tokengauge_fleet_store_age_seconds", Seconds;
    /// Call records that were taken from the store.
    FLEET_CALLS: Counter[] = "tokengauge_fleet_calls_total", Count;
    /// Looks at the store that failed.
    FLEET_STORE_FAILURES: Counter[] = "tokengauge_fleet_store_failures_total", Count;
}
