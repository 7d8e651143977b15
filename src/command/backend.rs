//! `tokengauge demo backend`: only the simulated backend.

use super::error::CommandError;
use crate::Error;
use crate::cli::BackendArgs;
use tokengauge_net::address;
use tokengauge_process::{SystemError, output};
use tokengauge_proxy::Shutdown;
use tokengauge_sim::{Profile, Setup, Simulator};
use tokio::net::TcpListener;

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
    let listen_failed = |error| SystemError::Listen(args.listen, error);
    let listener = address::listen(args.listen)
        .and_then(TcpListener::from_std)
        .map_err(listen_failed)?;
    let address = listener.local_addr().map_err(listen_failed)?;
    let shutdown = Shutdown::new();
    tokengauge_process::signals::watch(shutdown.clone())?;
    output::note(&format!("listening on {address}"));
    simulator
        .serve(listener, async move { shutdown.drain_started().await })
        .await;
    Ok(())
}
