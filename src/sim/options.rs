//! The command line of `tokengauge sim`, and what it starts.

use super::profile::{HELP, Profile};
use super::server::{Setup, Simulator};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::net::TcpListener;

/// A simulated backend that speaks every streamed dialect, with a known truth.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Where to listen; port 0 picks a free one, which is printed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9100")]
    pub listen: SocketAddr,
    /// Settings in place of the defaults, as in the list below; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE,…")]
    pub settings: Vec<String>,
    /// Time to first token, as in --set ttft=…
    #[arg(long, value_name = "DURATION")]
    pub ttft: Option<String>,
    /// Between frames with tokens, as in --set gap=…
    #[arg(long, value_name = "DURATION")]
    pub gap: Option<String>,
    /// Tokens of an answer, as in --set tokens=…
    #[arg(long, value_name = "N")]
    pub tokens: Option<String>,
    /// Streams at once up to which throughput grows, as in --set knee=…
    #[arg(long, value_name = "N")]
    pub knee: Option<String>,
    /// A folder of recorded bodies that the request header x-sim-body serves
    #[arg(long, value_name = "DIR")]
    pub bodies: Option<PathBuf>,
    /// Print what was really done, one JSON line per call
    #[arg(long)]
    pub print: bool,
}

impl Options {
    /// What the options say, or which of them cannot be.
    pub fn setup(&self) -> Result<Setup, super::InvalidSetting> {
        let mut profile = Profile::default();
        for settings in &self.settings {
            profile = profile.with(settings)?;
        }
        let named = [
            ("ttft", &self.ttft),
            ("gap", &self.gap),
            ("tokens", &self.tokens),
            ("knee", &self.knee),
        ];
        for (key, value) in named {
            if let Some(value) = value {
                profile = profile.with(&format!("{key}={value}"))?;
            }
        }
        Ok(Setup {
            profile,
            bodies: self.bodies.clone(),
            print: self.print,
        })
    }
}

/// Serves on `listen` until `shutdown`. Tells the address on standard error, so that
/// standard output has nothing but truths.
pub async fn run(
    setup: Setup,
    listen: SocketAddr,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    eprintln!("simulated backend on http://{}", listener.local_addr()?);
    Simulator::with(setup).serve(listener, shutdown).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn setup(arguments: &[&str]) -> Result<Setup, super::super::InvalidSetting> {
        let line = ["sim"].iter().chain(arguments);
        Line::try_parse_from(line)
            .expect("arguments")
            .options
            .setup()
    }

    #[test]
    fn flags_and_settings_make_the_profile() {
        let made = setup(&["--set", "gap=5ms,gzip", "--ttft", "90ms", "--print"]).expect("valid");
        assert_eq!(
            made.profile,
            "gap=5ms,gzip,ttft=90ms".parse().expect("valid")
        );
        assert!(made.print);
        let error = setup(&["--gap", "soon"])
            .expect_err("not a duration")
            .to_string();
        assert!(error.contains("`gap=soon`"), "{error}");
    }
}
