//! Metrics of gates for rollouts.

use super::families;

families! {
    /// 1 for the current verdict of the gate, 0 for the two others, evaluated every minute. The
    /// verdict is inconclusive if the ledger does not answer.
    GATE_VERDICT: Gauge[GateVerdictLabels] = "tokengauge_gate_verdict", Count;
    /// Gate evaluations that failed because the ledger did not answer.
    GATE_FAILURES: Counter[] = "tokengauge_gate_failures_total", Count;
}
