//! The command line.

use crate::backend::Kind;
use crate::neighbours::Neighbours;
use crate::peer::Peer;
use clap::Parser;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// tokengauge compared with nginx, haproxy and Envoy, with `--long` with LiteLLM and Portkey, too.
/// Without options it takes about eight minutes.
#[derive(Debug, Parser)]
pub struct Options {
    /// All scenes, calls of every length, longer rounds, and the gateways
    #[arg(long)]
    pub long: bool,
    /// Only these scenes [default: short, first-token, paced, flat-out, arrival and long-stream;
    /// all with --long]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub scenes: Vec<Scene>,
    /// Paced: streams at once, one scenario each
    #[arg(long, value_delimiter = ',', default_values_t = [50, 500, 2000])]
    pub streams: Vec<usize>,
    /// Paced: events a second of each stream [default: 100 up to 50 streams, 50 up to 500, then 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub pace: Option<u32>,
    /// Paced: events of a call; 0 is one call as long as the run [default: 100; 0,100,2000 with
    /// --long]
    #[arg(long, value_delimiter = ',')]
    pub per_call: Vec<u32>,
    /// Recorded bodies: a row for each of these dialects, or for `all` of them, in place of one of
    /// all together
    #[arg(long, value_delimiter = ',')]
    pub dialects: Vec<String>,
    /// Worker threads or processes of the peers, one scenario each
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    pub workers: Vec<usize>,
    /// Seconds that are measured of each run [default: 2; 3 with --long]
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Rounds; the gateways have one, and goals want 15 [default: 2; 3 with --long]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Only these peers [default: all that are installed; the gateways with --long]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub peers: Vec<Peer>,
    /// Instead, what slow and greedy agents cost 50 other streams: about 6 minutes
    #[arg(long, conflicts_with_all = ["long", "scenes", "growth"])]
    pub noisy_neighbours: bool,
    /// Instead, what a call and an event cost at 10 to 10,000 streams, with 1 to 10,000 models, and
    /// with a ledger of 1 to 100 million calls
    #[arg(long, conflicts_with_all = ["long", "scenes"])]
    pub growth: bool,
    /// Minutes that the making of a ledger may take for --growth; those kept in target/ are used
    /// again
    #[arg(long, default_value_t = 2.0)]
    pub prepare_minutes: f64,
    /// Record the peers with `perf` while they are measured; print their symbols with most samples
    /// and write their stacks to target/profiles; one round unless `--rounds` says otherwise
    #[arg(long)]
    pub profile: bool,
    /// Print the figures again as the table of docs/benchmarks.md
    #[arg(long)]
    pub markdown: bool,
    /// What cargo adds
    #[arg(long, hide = true)]
    pub bench: bool,
    /// Be a backend
    #[arg(long, hide = true, value_enum)]
    pub backend: Option<Kind>,
    /// The files of its certificate and of the key
    #[arg(long, hide = true, num_args = 2)]
    pub certificate: Vec<PathBuf>,
    /// Be noisy agents
    #[arg(long, hide = true, value_enum, requires = "to")]
    pub neighbours: Option<Neighbours>,
    /// Where they connect
    #[arg(long, hide = true)]
    pub to: Option<SocketAddr>,
}

/// Some scenarios, or a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scene {
    /// Calls of one token, flat out
    Short,
    /// The time to the first token, of one agent and of eight
    FirstToken,
    /// Streams of so many events a second
    Paced,
    /// 32 streams as fast as they go
    FlatOut,
    /// Recorded bodies of all dialects as fast as they go
    Recorded,
    /// Short calls and paced ones with TLS to the backend
    Tls,
    /// Short calls and paced ones with HTTP/2 on either side
    Http2,
    /// /metrics with 100 models
    Metrics,
    /// Whether what arrives is what was sent, and when
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

    /// The peers that are wanted and there; prints which are not.
    pub fn installed_peers(&self) -> Vec<Peer> {
        let mut wanted = self.peers.clone();
        if wanted.is_empty() {
            wanted.extend(Peer::ALL);
            if !self.long {
                println!("left out: the gateways, litellm and portkey; `--long` has them");
                wanted.retain(|peer| !peer.is_gateway());
            }
            wanted.retain(|peer| *peer != Peer::Other || peer.is_installed());
            wanted.retain(|peer| !peer.is_this_build_with_more());
        }
        if self.growth {
            println!("left out of growth: all but nginx and tokengauge");
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
