//! The gateways LiteLLM and Portkey, each in the production setup that its authors advise, without a database, in one
//! process, without logging.

use crate::wire::KEY;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn litellm(folder: &Path, address: SocketAddr, backend: SocketAddr) -> anyhow::Result<Command> {
    let text = format!(
        "model_list:
  - model_name: bench
    litellm_params:
      model: openai/bench
      api_base: http://{backend}/v1
      api_key: none
general_settings:
  master_key: {KEY}
litellm_settings:
  request_timeout: 600
  set_verbose: false
"
    );
    let config = folder.join("litellm.yaml");
    std::fs::write(&config, text)?;
    let mut command = Command::new(litellm_program());
    command
        .arg("--config")
        .arg(config)
        .args(["--host", &address.ip().to_string()])
        .args(["--port", &address.port().to_string()])
        .args(["--num_workers", "1"])
        .env("LITELLM_MODE", "PRODUCTION")
        .env("LITELLM_LOG", "ERROR")
        // LiteLLM would download its price list.
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command)
}

/// Portkey's gateway. Requests name their backend.
pub fn portkey(address: SocketAddr) -> Command {
    let mut command = Command::new("node");
    command
        .arg("--require")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/benches/peers/gateways/loopback.cjs"
        ))
        .arg(portkey_program())
        .arg("--headless")
        .arg(format!("--port={}", address.port()))
        .env("NODE_ENV", "production")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

pub fn portkey_headers(backend: SocketAddr) -> String {
    format!("x-portkey-provider: openai\r\nx-portkey-custom-host: http://{backend}/v1\r\n")
}

pub fn litellm_program() -> PathBuf {
    installed("litellm/bin/litellm")
}

pub fn portkey_program() -> PathBuf {
    installed("portkey/node_modules/@portkey-ai/gateway/build/start-server.js")
}

pub fn envoy_program() -> PathBuf {
    installed("envoy/bin/envoy")
}

fn installed(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.cache/gateways")).join(path)
}
