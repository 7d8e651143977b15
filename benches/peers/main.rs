//! The proxy compared with nginx, haproxy, LiteLLM and Portkey: `cargo bench --bench peers`.
//!
//! One backend, one load client, one core for the peer, the runs of all peers interleaved.
//! tokengauge measures and counts every token while it runs. The tables show what each peer
//! adds to `direct`: time to the first token, latency of each event, CPU time per event,
//! memory per open stream, events per second without pauses; what the last events of a long
//! stream cost; and whether the bytes that arrive are those that were sent. With
//! `--noisy-neighbours`: what slow and greedy agents cost the other streams.

mod arrival;
mod backend;
mod client;
mod gateways;
mod long_stream;
mod neighbours;
mod peer;
mod process;
mod report;
mod rounds;
mod run;
mod table;
mod wire;

use anyhow::{Context, ensure};
use clap::Parser;
use neighbours::Neighbours;
use peer::{Backends, Peer};
use process::{Cores, KeepAwake, Processes, with_idle_priority};
use report::Report;
use run::{Environment, Scenario};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// tokengauge compared with nginx and haproxy, with `--long` with LiteLLM and Portkey, too.
/// Without options it takes about five minutes.
#[derive(Debug, Parser)]
struct Options {
    /// More and longer rounds, 2,000 streams, and the gateways: about 15 minutes
    #[arg(long)]
    long: bool,
    /// Streams at once, one scenario each [default: 50,500]
    #[arg(long, value_delimiter = ',')]
    streams: Option<Vec<usize>>,
    /// Events a second of each stream; fewer where all together would be above 10,000
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pace: u32,
    /// Seconds measured of each run [default: 3; 5 with --long]
    #[arg(long)]
    seconds: Option<u64>,
    /// Rounds; the gateways have one [default: 3; 5 with --long]
    #[arg(long)]
    rounds: Option<usize>,
    /// Only these peers [default: all that are installed; the gateways with --long]
    #[arg(long, value_enum, value_delimiter = ',')]
    peers: Vec<Peer>,
    /// Only the paced streams: not the first tokens, not the streams without pauses, not the long stream
    #[arg(long)]
    only_paced: bool,
    /// Instead, what slow and greedy agents cost 50 other streams: about 6 minutes
    #[arg(long, conflicts_with_all = ["long", "only_paced", "streams", "pace"])]
    noisy_neighbours: bool,
    /// Print the figures again as the table of docs/benchmarks.md
    #[arg(long)]
    markdown: bool,
    /// Added by cargo
    #[arg(long, hide = true)]
    bench: bool,
    /// Run as the backend
    #[arg(long, hide = true)]
    backend: bool,
    /// Run as these agents
    #[arg(long, hide = true, value_enum, requires = "to")]
    neighbours: Option<Neighbours>,
    /// Where they connect
    #[arg(long, hide = true)]
    to: Option<SocketAddr>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if options.backend {
        return backend::serve();
    }
    if let (Some(neighbours), Some(address)) = (options.neighbours, options.to) {
        return neighbours.run(address);
    }
    let cores = Cores::choose()?;
    process::pin(cores.load)?;
    process::raise_file_limit()?;
    if !process::raise_priority() {
        println!("not allowed to raise the priority: nothing else should run on this machine");
    }
    let _awake = KeepAwake::keep(cores);
    let peers = installed_peers(&options);
    let start = Instant::now();
    let (_backend, backend) = start_backend(cores, false)?;
    let (_greedy, greedy) = start_backend(cores, true)?;
    let environment = Environment {
        backends: Backends { backend, greedy },
        cores,
    };
    let rounds = options.rounds.unwrap_or(if options.long { 5 } else { 3 });
    let length = Duration::from_secs(options.seconds.unwrap_or(if options.long { 5 } else { 3 }));
    println!(
        "one core for the peer ({}), one for load and backend ({}); {rounds} rounds, {length:?} each",
        cores.peer, cores.load
    );

    if options.noisy_neighbours {
        let report = rounds::run_all(&[with_neighbours()], &peers, environment, rounds, length);
        report.print_goals();
        if options.markdown {
            report.print_markdown_neighbours(&with_neighbours());
        }
        return finish(&report, start);
    }
    arrival::print(&peers, environment);
    // One group for each scenario, so that its table is printed as soon as it is done.
    let groups: Vec<_> = scenarios(&options)
        .into_iter()
        .map(|one| vec![one])
        .collect();
    let report = rounds::run_all(&groups, &peers, environment, rounds, length);
    let longest = (!options.only_paced)
        .then(|| long_stream::print(&peers, environment, if options.long { 2 } else { 1 }));
    report.print_goals();
    if options.markdown {
        report::print_markdown_head();
        for scenario in scenarios(&options) {
            report.print_markdown(scenario);
        }
    }
    if let Some(longest) = longest.filter(|_| options.markdown) {
        let lines: [(&str, &[&str]); 2] = [
            ("CPU of its last tenth ÷ first", &["last ÷ first"]),
            ("memory grown, KB", &["KB grown"]),
        ];
        report::print_markdown(&longest, "one stream of 100,000 events", &lines);
    }
    finish(&report, start)
}

fn finish(report: &Report, start: Instant) -> anyhow::Result<()> {
    println!("\ntook {} seconds", start.elapsed().as_secs());
    let failed = report.proxies_that_failed();
    ensure!(
        failed == 0,
        "{failed} runs of proxies failed: see FAILED above"
    );
    Ok(())
}

/// The same streams with each kind of neighbours.
fn with_neighbours() -> Vec<Scenario> {
    Neighbours::ALL.map(Scenario::WithNeighbours).to_vec()
}

fn scenarios(options: &Options) -> Vec<Scenario> {
    let streams = options.streams.clone().unwrap_or(if options.long {
        vec![50, 500, 2000]
    } else {
        vec![50, 500]
    });
    let requests = if options.long { 2000 } else { 500 };
    let paced = streams.into_iter().map(|streams| Scenario::Paced {
        streams,
        // With more, the core of load and backend is too busy to measure well.
        per_second: options.pace.min(10_000 / streams as u32).max(1),
    });
    if options.only_paced {
        return paced.collect();
    }
    [Scenario::FirstToken { requests }]
        .into_iter()
        .chain(paced)
        .chain([1, 48].map(|per_write| Scenario::FlatOut { per_write }))
        .collect()
}

fn installed_peers(options: &Options) -> Vec<Peer> {
    let mut wanted = options.peers.clone();
    if wanted.is_empty() {
        wanted.extend(Peer::ALL);
        if !options.long {
            println!("left out: the gateways, litellm and portkey; `--long` has them");
            wanted.retain(|peer| !peer.is_gateway());
        }
        wanted.retain(|peer| *peer != Peer::Other || peer.is_installed());
    }
    if options.noisy_neighbours && wanted.iter().any(|peer| peer.is_gateway()) {
        println!("left out: the gateways, which have only one backend");
        wanted.retain(|peer| !peer.is_gateway());
    }
    let (installed, missing): (Vec<Peer>, Vec<Peer>) =
        wanted.into_iter().partition(|peer| peer.is_installed());
    for peer in missing {
        println!(
            "MISSING: {peer} is not installed and left out; `{}` installs it",
            peer.installer()
        );
    }
    installed
}

/// Runs this program again as a backend, on the load's core; `idle`: only when no other process
/// wants that core.
fn start_backend(cores: Cores, idle: bool) -> anyhow::Result<(Processes, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--backend");
    if idle {
        command = with_idle_priority(&command);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut processes = Processes::start(command, cores.load, cores.load)?;
    let output = processes.stdout().context("the backend has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Ok((
        processes,
        line.trim().parse().context("the backend's address")?,
    ))
}
