//! `tokengauge demo`: runs the proxy between simulated agents and simulated backends.

mod incident;

use super::error::CommandError;
use crate::Error;
use crate::cli::{COMMIT, DemoArgs};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokengauge_config::{self as config, Config};
use tokengauge_process::serve::Proxy;
use tokengauge_process::{SystemError, output};
use tokengauge_proxy::{Shutdown, TrafficRuntimes};
use tokengauge_sim::{Profile, Simulator, agents};
use tokio::net::TcpListener;
use toml::Table;

const PROVIDERS: [&str; 4] = ["openai", "anthropic", "gemini", "ollama"];
const BEHAVIOUR: &str = "ttft=250ms,gap=18ms~8ms,tokens=60..300,prefill=40ms,usage=on,cache=5m";
/// The provider with an undersized backend. Its agents and their subagents exceed its capacity.
const SMALL: &str = "anthropic";

const OBJECTIVES: &str = r#"
[[workload]]
name = "voice"
agent = "demo-voice/*"
stall_threshold = "250ms"
[[workload]]
name = "chat"
agent = "demo-chat/*"
[[workload]]
name = "agent"
agent = "demo-coder/*"
[[workload]]
name = "batch"
agent = "demo-*"

[[slo]]
name = "availability"
availability = true
[[slo]]
preset = "chat"
objective = 0.9
select.workload = "chat"
[[slo]]
preset = "voice"
objective = 0.9
select.workload = "voice"
[[slo]]
name = "agent-tokens"
output_tps.at_least = 30
weight = "token"
select.workload = "agent"
[[slo]]
name = "batch-minutes"
total_tps.at_least = 15
slice = "1m"
slice_target = 0.9
select.workload = "batch"
"#;

pub(super) async fn demo(args: DemoArgs) -> Result<(), Error> {
    let mut backends = Vec::new();
    for provider in PROVIDERS {
        backends.push(Backend::bind(provider)?);
    }
    let receiver = match args.incident {
        Some(_) => Some(incident::Receiver::bind()?),
        None => None,
    };
    let mut config = configuration(&args, &backends, receiver.as_ref())?;
    config.listeners[0].address = args.listen;
    config.admin.address = Some(args.admin);
    let proxy = Proxy::bind(
        config,
        args.call_log.as_deref(),
        &TrafficRuntimes::current(),
        COMMIT,
    )
    .await?;
    let shutdown = proxy.shutdown();
    tokengauge_process::signals::watch(shutdown.clone())?;
    let admin = proxy.admin_address().unwrap_or(args.admin);
    let folder = proxy.config().state_dir.as_ref();
    let scheme = if proxy.config().admin.tls.is_some() {
        "https"
    } else {
        "http"
    };
    output::note(&format!("demo: {scheme}://{admin}/ shows the live page"));
    if let Some(folder) = folder {
        output::note(&format!(
            "  calls and counts are kept in {}",
            folder.display()
        ));
    }
    if let (Some(incident), Some(receiver)) = (args.incident, receiver) {
        let page = format!("{scheme}://{admin}");
        incident.announce(&page);
        let end = shutdown.clone();
        tokio::spawn(receiver.serve(incident, page.clone(), page, end));
    }
    start_simulation(backends, proxy.address(), &args, &shutdown)?;
    if let Some(after) = args.stop_after {
        tokio::spawn(stop(after, shutdown));
    }
    output::note(&format!(
        "demo: {} simulated agents are running; try",
        args.agents
    ));
    for command in [
        format!("curl -s '{scheme}://{admin}/api/v1/calls?limit=1'"),
        format!("curl -s {scheme}://{admin}/metrics"),
        format!("tokengauge slo status --admin {admin}"),
        format!("tokengauge top --admin {admin}"),
        format!("tokengauge report --with-warm-up --admin {admin}"),
    ] {
        output::note(&format!("  {command}"));
    }
    proxy.serve().await
}

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

struct Backend {
    provider: &'static str,
    listener: TcpListener,
    address: SocketAddr,
}

impl Backend {
    fn bind(provider: &'static str) -> Result<Backend, SystemError> {
        let (listener, address) = super::listen(ANY_PORT)?;
        Ok(Backend {
            provider,
            listener,
            address,
        })
    }
}

/// Returns the tables of the given file or the objectives of the demo, with an upstream and a route for each simulator.
fn configuration(
    args: &DemoArgs,
    backends: &[Backend],
    receiver: Option<&incident::Receiver>,
) -> Result<Config, Error> {
    let (text, origin) = match &args.config {
        Some(path) => (config::text(path)?, path.display().to_string()),
        // A rehearsal needs only one alert.
        None if receiver.is_some() => (
            incident::MEASURE.to_owned(),
            "the demo's configuration".to_owned(),
        ),
        None => (OBJECTIVES.to_owned(), "the demo's configuration".to_owned()),
    };
    if args.config.is_some() {
        // Parses the user's file separately, so that errors have the line numbers of the file.
        Config::parse(&text, &origin)?;
    }
    let unusable =
        |error: &dyn std::fmt::Display| Error::Configuration(format!("{origin}: {error}"));
    let mut tables: Table = text.parse().map_err(|error| unusable(&error))?;
    for simulated in ["experiment", "listen", "route", "tls", "upstream"] {
        tables.remove(simulated);
    }
    if let Some(folder) = &args.state_dir {
        let folder = folder
            .to_str()
            .ok_or_else(|| unusable(&"--state-dir is not valid UTF-8"))?;
        tables.insert("state_dir".to_owned(), folder.into());
    }
    let mut text = toml::to_string(&tables).map_err(|error| unusable(&error))?;
    if let (Some(incident), Some(receiver)) = (args.incident, receiver) {
        text.push_str(&incident.tables(receiver.address));
    }
    for backend in backends {
        let (name, address) = (backend.provider, backend.address);
        // Writing to a string never fails.
        let _ = write!(
            text,
            "[[upstream]]\nname = \"{name}\"\nurl = \"http://{address}\"\n\
             [[route]]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
        );
    }
    let origin = format!("{origin}, with the demo's upstreams and routes");
    Ok(Config::parse(&text, &origin)?)
}

fn start_simulation(
    backends: Vec<Backend>,
    proxy: SocketAddr,
    args: &DemoArgs,
    shutdown: &Shutdown,
) -> Result<(), Error> {
    let agents = args.agents;
    for backend in backends {
        let knee = match args.incident {
            // The incident must be the only problem in the figures.
            Some(_) => agents * 2,
            None => knee(backend.provider, agents),
        };
        let profile: Profile = format!("{BEHAVIOUR},knee={knee}")
            .parse()
            .map_err(|error| CommandError::refused("the demo's behaviour", error))?;
        let end = shutdown.clone();
        let simulator = Simulator::new(profile);
        if let Some(incident) = args
            .incident
            .filter(|_| backend.provider == incident::PROVIDER)
        {
            tokio::spawn(incident.play(simulator, backend, end));
            continue;
        }
        let terminated = async move { end.terminated().await };
        tokio::spawn(simulator.serve(backend.listener, terminated));
    }
    let end = shutdown.clone();
    // The incident must be the only problem in the figures.
    let mishaps = args.incident.is_none();
    tokio::spawn(agents::run(proxy, agents, mishaps, async move {
        end.drain_started().await
    }));
    Ok(())
}

/// Returns the number of concurrent streams above which a backend gets no faster.
fn knee(provider: &str, agents: u16) -> u16 {
    if provider == SMALL {
        (agents / 6).max(2)
    } else {
        agents * 2
    }
}

async fn stop(after: Duration, shutdown: Shutdown) {
    tokio::time::sleep(after).await;
    shutdown.begin();
}
