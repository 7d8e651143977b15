//! `tokengauge probe`: sends requests to addresses until they answer.

use super::error::CommandError;
use crate::Error;
use crate::cli::ProbeArgs;
use bytes::Bytes;
use http::{Request, Uri};
use std::io;
use std::time::{Duration, Instant};
use tokengauge_config::ClientTls;
use tokengauge_net::client::fetch_with;
use tokengauge_process::output;
use tokio::net::TcpStream;

const TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

pub(super) fn probe(args: &ProbeArgs) -> Result<(), Error> {
    let runtime = super::api_client::runtime()?;
    let tls = ClientTls {
        ca: args.ca.clone(),
        ..ClientTls::default()
    };
    let deadline = Instant::now() + args.within;
    for url in &args.urls {
        let said = runtime.block_on(until(url, deadline, &tls));
        let said = said.map_err(|source| CommandError::NotReady(url.clone(), source))?;
        output::print(&format!("{url}: {said}\n"))?;
    }
    Ok(())
}

async fn until(url: &Uri, deadline: Instant, tls: &ClientTls) -> io::Result<String> {
    loop {
        match once(url, tls).await {
            Err(_) if Instant::now() + PAUSE < deadline => tokio::time::sleep(PAUSE).await,
            response => return response,
        }
    }
}

async fn once(url: &Uri, tls: &ClientTls) -> io::Result<String> {
    if url.scheme_str() == Some("tcp") {
        return connect(url).await;
    }
    let request = Request::get(url).body(Bytes::new());
    let response = fetch_with(request.map_err(io::Error::other)?, TIMEOUT, tls).await?;
    match response.status.as_u16() {
        200..=299 => Ok(response.status.as_str().to_owned()),
        status => Err(io::Error::other(format!("answered {status}"))),
    }
}

async fn connect(url: &Uri) -> io::Result<String> {
    let (Some(host), Some(port)) = (url.host(), url.port_u16()) else {
        return Err(io::Error::other("names no host and port"));
    };
    let connecting = TcpStream::connect((host.trim_matches(['[', ']']), port));
    let connected = tokio::time::timeout(TIMEOUT, connecting).await;
    connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok("accepts connections".to_owned())
}
