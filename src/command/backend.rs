//! `tokengauge demo backend`: runs only the simulated backend.

use super::error::CommandError;
use crate::Error;
use crate::cli::BackendArgs;
use tokengauge_process::output;
use tokengauge_proxy::Shutdown;
use tokengauge_sim::{Profile, Setup, Simulator};

pub(super) async fn backend(args: BackendArgs) -> Result<(), Error> {
    let profile: Profile = args
        .behave
        .parse()
        .map_err(|error| CommandError::refused("--behave", error))?;
    let simulator = Simulator::with(Setup {
        profile,
        bodies: args.bodies,
        print: args.print,
        witness: None,
    });
    let (listener, address) = super::listen(args.listen)?;
    let shutdown = Shutdown::new();
    tokengauge_process::signals::watch(shutdown.clone())?;
    output::note(&format!("listening on {address}"));
    simulator
        .serve(listener, async move { shutdown.drain_started().await })
        .await;
    Ok(())
}
