//! The command line.

use crate::backend::Kind;
use crate::neighbours::Neighbours;
use crate::peer::Peer;
use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Compare tokengauge with nginx, haproxy and Envoy, and with --long also with LiteLLM and Portkey. Without options it
/// takes about eight minutes.
#[derive(Debug, Parser)]
pub struct Options {
    /// Run all scenes, calls of every length, longer rounds, and the gateways
    #[arg(long)]
    pub long: bool,
    /// Run only these scenes [default: short, first-token, paced, flat-out, arrival and long-stream; all with --long]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub scenes: Vec<Scene>,
    /// Paced: numbers of concurrent streams, one scenario each
    #[arg(long, value_delimiter = ',', default_values_t = [50, 500, 2000])]
    pub streams: Vec<usize>,
    /// Paced: events per second of each stream [default: 100 up to 50 streams, 50 up to 500, then 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pace: Option<u32>,
    /// Paced: events of a call; 0 is one call as long as the run [default: 100; 0,100,2000 with
    /// --long]
    #[arg(long, value_delimiter = ',')]
    pub per_call: Vec<u32>,
    /// Recorded bodies: one row for each of these dialects or for `all` of them, instead of one row for all together
    #[arg(long, value_delimiter = ',')]
    pub dialects: Vec<String>,
    /// Numbers of worker threads or processes of the peers, one scenario each
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    pub workers: Vec<usize>,
    /// Measured seconds of each run [default: 2; 3 with --long]
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Number of rounds; gateways have one, and goals need 15 [default: 2; 3 with --long]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Run only these peers [default: all that are installed; the gateways with --long]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub peers: Vec<Peer>,
    /// Measure only the effect of slow and greedy agents on 50 other streams, in about 6 minutes
    #[arg(long, conflicts_with_all = ["long", "scenes", "growth"])]
    pub noisy_neighbours: bool,
    /// Measure only the cost of a call and an event at 10 to 10,000 streams, with 1 to 10,000 models, and with a ledger
    /// of 1 to 100 million calls
    #[arg(long, conflicts_with_all = ["long", "scenes"])]
    pub growth: bool,
    /// Minutes that creating a ledger for --growth may take; existing ledgers in target/ are reused
    #[arg(long, default_value_t = 2.0)]
    pub prepare_minutes: f64,
    /// Record the peers with `perf` during the measurement, print the symbols with most samples and write stacks to
    /// target/profiles; one round unless `--rounds` is given
    #[arg(long)]
    pub profile: bool,
    /// Also print the figures as the table of docs/benchmarks.md
    #[arg(long)]
    pub markdown: bool,
    /// Added by cargo
    #[arg(long, hide = true)]
    pub bench: bool,
    /// Run as a backend
    #[arg(long, hide = true, value_enum)]
    pub backend: Option<Kind>,
    /// Files of the backend's certificate and key
    #[arg(long, hide = true, num_args = 2)]
    pub certificate: Vec<PathBuf>,
    /// Run as noisy agents
    #[arg(long, hide = true, value_enum, requires = "to")]
    pub neighbours: Option<Neighbours>,
    /// Address that noisy agents connect to
    #[arg(long, hide = true)]
    pub to: Option<SocketAddr>,
}

/// A group of scenarios, or a separate table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scene {
    /// Calls of one token, flat out
    Short,
    /// The time to first token of one agent and of eight
    FirstToken,
    /// Streams with a constant number of events per second
    Paced,
    /// 32 streams as fast as possible
    FlatOut,
    /// Recorded bodies of all dialects as fast as possible
    Recorded,
    /// Short and paced calls with TLS to the backend
    Tls,
    /// Short and paced calls with HTTP/2 on either side
    Http2,
    /// Scrapes of /metrics with 100 models
    Metrics,
    /// Whether received bytes equal the sent ones, and when they arrive
    Arrival,
    /// One stream of 100,000 events
    LongStream,
}

const DEFAULT: [Scene; 6] = [
    Scene::Short,
    Scene::FirstToken,
    Scene::Paced,
    Scene::FlatOut,
    Scene::Arrival,
    Scene::LongStream,
];

impl Options {
    pub fn has(&self, scene: Scene) -> bool {
        match (self.scenes.is_empty(), self.long) {
            (true, true) => true,
            (true, false) => DEFAULT.contains(&scene),
            (false, _) => self.scenes.contains(&scene),
        }
    }

    pub fn rounds(&self) -> usize {
        let usual = match (self.profile, self.long) {
            (true, _) => 1,
            (_, true) => 3,
            _ => 2,
        };
        self.rounds.unwrap_or(usual)
    }

    pub fn length(&self) -> Duration {
        let usual = if self.long { 3 } else { 2 };
        Duration::from_secs(self.seconds.unwrap_or(usual))
    }

    /// Returns the selected peers that are installed, and prints the missing ones.
    pub fn installed_peers(&self) -> Vec<Peer> {
        let mut wanted = self.peers.clone();
        if wanted.is_empty() {
            wanted.extend(Peer::ALL);
            if !self.long {
                println!("left out: the gateways litellm and portkey; run them with `--long`");
                wanted.retain(|peer| !peer.is_gateway());
            }
            wanted.retain(|peer| *peer != Peer::Other || peer.is_installed());
            wanted.retain(|peer| !peer.is_this_build_with_more());
        }
        if self.growth {
            println!("left out: all peers except nginx and tokengauge, because of `--growth`");
            wanted.retain(|peer| *peer == Peer::Nginx || peer.is_tokengauge());
        }
        let (installed, missing): (Vec<Peer>, Vec<Peer>) =
            wanted.into_iter().partition(|peer| peer.is_installed());
        for peer in missing {
            let installer = peer.installer();
            println!("MISSING: {peer} is not installed and left out; `{installer}` installs it");
        }
        installed
    }
}
