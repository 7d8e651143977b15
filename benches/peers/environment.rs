//! The environment of all runs: backends, cores, and settings of each run.

use crate::backend::Kind;
use crate::cores::Cores;
use crate::peer::Backends;
use crate::process::{Processes, with_idle_priority};
use anyhow::Context;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokengauge_test_support::certificates::Authority;

pub struct Environment {
    pub backends: Backends,
    /// Measured seconds of a run.
    pub length: Duration,
    /// Whether `perf` records the peer during these seconds.
    pub profile: bool,
    _processes: Vec<Processes>,
    _authority: Authority,
}

impl Environment {
    pub fn start(cores: Cores, length: Duration, profile: bool) -> anyhow::Result<Environment> {
        let authority = Authority::new();
        let (certificate, key) = authority.issue("backend", "127.0.0.1");
        let files = [certificate.as_os_str(), key.as_os_str()];
        let mut processes = Vec::new();
        let mut start = |kind: Kind, idle_priority: bool| {
            let mut command = Command::new(std::env::current_exe()?);
            let name = kind.to_possible_value();
            command.args([
                "--backend",
                name.as_ref().map_or("", PossibleValue::get_name),
            ]);
            if kind == Kind::Tls {
                command.arg("--certificate").args(files);
            }
            if idle_priority {
                command = with_idle_priority(&command);
            }
            let (process, address) = start_backend(command, cores)?;
            processes.push(process);
            anyhow::Ok(address)
        };
        Ok(Environment {
            backends: Backends {
                http1: start(Kind::Http1, false)?,
                tls: start(Kind::Tls, false)?,
                http2: start(Kind::Http2, false)?,
                noisy: start(Kind::Http1, true)?,
                authority: authority.file.clone(),
            },
            length,
            profile,
            _processes: processes,
            _authority: authority,
        })
    }
}

fn start_backend(mut command: Command, cores: Cores) -> anyhow::Result<(Processes, SocketAddr)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut processes = Processes::start(command, cores.load, cores.load)?;
    let output = processes.stdout().context("the backend has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let address = line.trim().parse().context("the backend's address")?;
    Ok((processes, address))
}
