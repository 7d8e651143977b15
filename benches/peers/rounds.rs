//! The runs of all peers, in turns.
//!
//! Where the machine is a virtual one and its hypervisor gives one of the cores to
//! others, whoever runs just then looks slow. So the cores are kept awake
//! ([`crate::keep_awake::KeepAwake`]), and a run that lost more than [`MAX_STOLEN`] is made
//! again, [`TRIES`] times in all, whichever peer it was; of those that all lost more, the
//! one that lost least is taken, and the table says so. A figure in a table is the median
//! of the rounds'.

use crate::environment::Environment;
use crate::peer::Peer;
use crate::report::Report;
use crate::results::RunResult;
use crate::run;
use crate::scenario::Scenario;
use std::time::Instant;

/// The share of a core that may be taken in a run: two ticks of a hundredth in 3 seconds.
pub const MAX_STOLEN: f64 = 0.007;
/// Of a run, where each loses more.
const TRIES: usize = 3;

/// Runs scenarios in so many rounds, adds what is found to the report and prints their tables.
/// Those of one group take turns, and so do the peers.
pub fn run_all(
    groups: &[Vec<Scenario>],
    peers: &[Peer],
    environment: &Environment,
    rounds: usize,
    report: &mut Report,
) {
    for group in groups {
        // A machine that is never left alone may take half as long again, not for ever.
        let mut again = rounds * group.len() * peers.len() / 2;
        for round in 0..rounds {
            for scenario in group {
                for turn in 0..peers.len() {
                    // Each round begins with another, so that none is always the first.
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

/// Runs it until nobody took a core meanwhile, or gives the run that was disturbed least.
/// `again` is how many runs may be made again, all in all; the gateways' are not.
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
