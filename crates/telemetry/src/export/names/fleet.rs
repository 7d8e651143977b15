//! Metrics of `tokengauge fleet` about its warehouse and its pods.

use super::families;

families! {
    /// Pods of the fleet, by whether they can be reached.
    FLEET_PODS: Gauge[ByState] = "tokengauge_fleet_pods", Count;
    /// 1 if the events of the pod are being read, 0 if the pod cannot be reached. The label is the
    /// pod's name, otherwise its address.
    FLEET_POD_UP: Gauge[FleetMember] = "tokengauge_fleet_pod_up", Count;
    /// Events of pods that were dropped, by reason.
    FLEET_EVENTS_DROPPED: Counter[ByReason] = "tokengauge_fleet_events_dropped_total", Count;
    /// 1 if the warehouse of the fleet responds, otherwise 0.
    FLEET_STORE_UP: Gauge[] = "tokengauge_fleet_store_up", Count;
    /// Seconds since the warehouse of the fleet last responded.
    FLEET_STORE_AGE: Gauge[] = "tokengauge_fleet_store_age_seconds", Seconds;
    /// Rows of calls in the table of the fleet's warehouse.
    FLEET_CALLS: Counter[] = "tokengauge_fleet_calls_total", Count;
    /// Failed requests to the warehouse of the fleet.
    FLEET_STORE_FAILURES: Counter[] = "tokengauge_fleet_store_failures_total", Count;
}
