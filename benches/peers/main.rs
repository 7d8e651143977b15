//! Benchmark of the whole proxy compared with nginx, haproxy, Envoy, LiteLLM and Portkey: `cargo bench --bench peers`.
//!
//! One minimal backend, one load client, one core for the peer, and interleaved runs of all peers. tokengauge measures
//! and counts every token. The tables show calls per second, time to first token, latency of each event, CPU time per
//! call and per event, memory per open stream, and throughput. They also show the cost of one long stream at its end,
//! and whether the received bytes equal the sent ones. `--noisy-neighbours` measures the effect of slow and greedy
//! agents on others. `--growth` measures calls and events with many streams, series and stored calls.

mod agents;
mod arrival;
mod backend;
mod backend_http2;
mod chunked;
mod client;
mod client_http2;
mod columns;
mod config_envoy;
mod configs;
mod cores;
mod environment;
mod folded;
mod gateways;
mod goals;
mod growth;
mod keep_awake;
mod load_calls;
mod load_recorded;
mod load_scraped;
mod load_streams;
mod loads;
mod long_stream;
mod markdown;
mod metrics;
mod neighbours;
mod options;
mod peer;
mod process;
mod profile;
mod recorded;
mod recorded_events;
mod recorded_files;
mod report;
mod results;
mod rounds;
mod run;
mod scenario;
mod scenes;
mod statistics;
mod steal;
mod table;
mod wire;

use anyhow::ensure;
use clap::Parser;
use cores::Cores;
use environment::Environment;
use keep_awake::KeepAwake;
use options::{Options, Scene};
use report::Report;
use std::time::Instant;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let Some(kind) = options.backend {
        let certificate = match &options.certificate[..] {
            [certificate, key] => Some((certificate.as_path(), key.as_path())),
            _ => None,
        };
        return backend::serve(kind, certificate);
    }
    if let (Some(neighbours), Some(address)) = (options.neighbours, options.to) {
        return neighbours.run(address);
    }
    compare(&options)
}

fn compare(options: &Options) -> anyhow::Result<()> {
    let start = Instant::now();
    let (cores, rounds, length) = (Cores::choose(1)?, options.rounds(), options.length());
    cores::pin(cores.load)?;
    process::make_room_for_files(if options.growth { 64 } else { 16 } * 1024)?;
    if !process::raise_priority() {
        println!("cannot raise the priority of this process: run nothing else on the machine");
    }
    let most = options.workers.iter().copied().max().unwrap_or(1);
    let _awake = KeepAwake::keep(Cores::choose(most)?);
    let peers = options.installed_peers();
    let environment = Environment::start(cores, length, options.profile)?;
    for &workers in &options.workers {
        println!("{workers} workers: {}", Cores::choose(workers)?);
    }
    println!("{rounds} rounds, {length:?} each");

    let mut report = Report::default();
    if options.growth {
        growth::run(options, &peers, &environment, &mut report)?;
    } else {
        let separate = !options.noisy_neighbours;
        if separate && options.has(Scene::Arrival) {
            arrival::print(&peers, &environment);
        }
        rounds::run_all(&options.groups(), &peers, &environment, rounds, &mut report);
        if separate && options.has(Scene::LongStream) {
            long_stream::print(&peers, &environment, if options.long { 2 } else { 1 });
        }
        report.print_goals();
    }
    if options.markdown {
        report.print_markdown();
    }
    println!("\nthe benchmark took {} seconds", start.elapsed().as_secs());
    let failed = report.proxies_that_failed();
    ensure!(
        failed == 0,
        "{failed} runs of proxies failed: see FAILED above"
    );
    Ok(())
}
