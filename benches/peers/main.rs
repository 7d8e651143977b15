//! The whole proxy beside nginx and haproxy: `cargo bench --bench peers`.
//!
//! One bare backend, one load client, one core for the peer, the runs of all peers
//! interleaved. tokengauge measures and counts every token while it runs. Shown is what
//! each adds to `direct`: time to the first token, latency of each event, processor time
//! per event, memory per open stream, and how much it moves flat out.

mod backend;
mod client;
mod peer;
mod process;
mod report;
mod run;
mod wire;

use anyhow::Context;
use clap::Parser;
use peer::Peer;
use process::{Cores, Preference, Processes};
use report::Report;
use run::Scenario;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// tokengauge beside nginx and haproxy. Without options it takes about two minutes.
#[derive(Debug, Parser)]
struct Options {
    /// More and longer rounds, and 2,000 streams, too: about 15 minutes
    #[arg(long)]
    long: bool,
    /// Streams at once, one scenario each [default: 50,500]
    #[arg(long, value_delimiter = ',')]
    streams: Option<Vec<usize>>,
    /// Events a second of each stream
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pace: u32,
    /// Seconds noted of each run [default: 4; 15 with --long]
    #[arg(long)]
    seconds: Option<u64>,
    /// Rounds [default: 2; 4 with --long]
    #[arg(long)]
    rounds: Option<usize>,
    /// Only these peers [default: all that are installed]
    #[arg(long, value_enum, value_delimiter = ',')]
    peers: Vec<Peer>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
    /// Be the backend
    #[arg(long, hide = true)]
    backend: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if options.backend {
        return backend::serve();
    }
    let cores = Cores::choose()?;
    process::pin(cores.load)?;
    process::raise_file_limit()?;
    let preference = Preference::take();
    if preference.is_none() {
        println!("not allowed to run before others: let the machine be quiet");
    }
    let peers = installed_peers(&options.peers);
    let (_backend, address) = start_backend(cores)?;
    let rounds = options.rounds.unwrap_or(if options.long { 4 } else { 2 });
    let length = Duration::from_secs(options.seconds.unwrap_or(if options.long { 15 } else { 4 }));
    println!(
        "one core for the peer ({}), one for load and backend ({}); {rounds} rounds, {length:?} each",
        cores.peer, cores.load
    );

    let mut report = Report::default();
    for scenario in scenarios(&options) {
        for round in 0..rounds {
            for turn in 0..peers.len() {
                // Each round begins with another, so that none is always the first.
                let peer = peers[(round + turn) % peers.len()];
                report.add(
                    scenario,
                    peer,
                    run::run(scenario, peer, address, cores, length)?,
                );
            }
        }
        report.print(scenario);
    }
    report.print_goals();
    Ok(())
}

fn scenarios(options: &Options) -> Vec<Scenario> {
    let streams = options.streams.clone().unwrap_or(if options.long {
        vec![50, 500, 2000]
    } else {
        vec![50, 500]
    });
    let per_second = options.pace;
    let requests = if options.long { 2000 } else { 500 };
    let paced = streams.into_iter().map(|streams| Scenario::Paced {
        streams,
        per_second,
    });
    [Scenario::FirstToken { requests }]
        .into_iter()
        .chain(paced)
        .chain([1, 48].map(|per_write| Scenario::FlatOut { per_write }))
        .collect()
}

fn installed_peers(wanted: &[Peer]) -> Vec<Peer> {
    let wanted = if wanted.is_empty() {
        &Peer::ALL
    } else {
        wanted
    };
    let (installed, missing): (Vec<_>, Vec<_>) =
        wanted.iter().partition(|peer| peer.is_installed());
    for peer in missing {
        println!("MISSING: {peer} is not installed and left out; `make bench-tools` installs it");
    }
    installed
}

/// Runs this program again as the backend, on the load's core.
fn start_backend(cores: Cores) -> anyhow::Result<(Processes, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--backend")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut processes = Processes::start(command, cores.load, cores.load)?;
    let output = processes.stdout().context("the backend has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Ok((
        processes,
        line.trim().parse().context("the backend's address")?,
    ))
}
