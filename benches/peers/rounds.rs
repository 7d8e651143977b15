//! The runs of all peers, in turns.
//!
//! If a hypervisor takes a core during a run, that run looks slow. Therefore the cores are kept awake
//! ([`crate::keep_awake::KeepAwake`]), and a run that lost more than [`MAX_STOLEN`] is repeated up to [`TRIES`] times,
//! for any peer. If every attempt lost more, the best one is used, and the table says so. Figures in tables are medians
//! of rounds.

use crate::environment::Environment;
use crate::peer::Peer;
use crate::report::Report;
use crate::results::RunResult;
use crate::run;
use crate::scenario::Scenario;
use std::time::Instant;

/// The share of a core that may be lost in a run: two ticks of 10 ms in 3 seconds.
pub const MAX_STOLEN: f64 = 0.007;
const TRIES: usize = 3;

/// Runs scenarios in rounds, adds the results to the report and prints their tables. Scenarios of one group alternate,
/// and so do the peers.
pub fn run_all(
    groups: &[Vec<Scenario>],
    peers: &[Peer],
    environment: &Environment,
    rounds: usize,
    report: &mut Report,
) {
    for group in groups {
        // On a machine that is disturbed all the time, repeats may add half of the time, not more.
        let mut again = rounds * group.len() * peers.len() / 2;
        for round in 0..rounds {
            for scenario in group {
                for turn in 0..peers.len() {
                    // Each round begins with another peer, so that none is always the first.
                    let peer = peers[(round + turn) % peers.len()];
                    if scenario.is_for(peer) && !(peer.is_gateway() && round > 0) {
                        let result = run_undisturbed(scenario, peer, environment, &mut again);
                        report.add(scenario, peer, result);
                    }
                }
            }
        }
        for scenario in group {
            report.print(scenario);
        }
    }
}

/// Runs a scenario until no core was taken during a run, or returns the least disturbed run. `again` is the remaining
/// number of repeats. Runs of gateways are not repeated.
fn run_undisturbed(
    scenario: &Scenario,
    peer: Peer,
    environment: &Environment,
    again: &mut usize,
) -> anyhow::Result<RunResult> {
    let begun = Instant::now();
    let mut best = run::run(scenario, peer, environment)?;
    for _ in 1..TRIES {
        if best.stolen <= MAX_STOLEN || *again == 0 || peer.is_gateway() || environment.profile {
            break;
        }
        *again -= 1;
        let other = run::run(scenario, peer, environment)?;
        let tries = best.tries + other.tries;
        if other.stolen < best.stolen {
            best = other;
        }
        best.tries = tries;
    }
    eprintln!(
        "{peer}, {}: {:.1} s, {} tries, {:.1} % of a core stolen",
        scenario.title(),
        begun.elapsed().as_secs_f64(),
        best.tries,
        100.0 * best.stolen
    );
    Ok(best)
}
