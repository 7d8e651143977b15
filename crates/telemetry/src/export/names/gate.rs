//! Metrics of gates for rollouts.

use super::families;

families! {
    /// 1 for the verdict of a gate, 0 for the two others, as the ledger has it every minute. Inconclusive where the ledger does
    /// not answer.
    GATE_VERDICT: Gauge[GateVerdictLabels] = "tokengauge_gate_verdict", Count;
    /// Evaluations of gates that the ledger did not answer.
    GATE_FAILURES: Counter[] = "tokengauge_gate_failures_total", Count;
}
