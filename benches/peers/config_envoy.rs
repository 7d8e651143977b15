//! The configuration of Envoy.

use crate::configs::Site;
use crate::peer::NOISY_PATH;
use crate::scenario::{AgentProtocol, BackendProtocol};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

impl Site<'_> {
    /// Envoy with one listener, no access log, and no timeout for streams.
    pub fn envoy(&self, program: &Path) -> anyhow::Result<Command> {
        let codec = match self.setup.agents {
            AgentProtocol::Http1 => "HTTP1",
            AgentProtocol::Http2 => "HTTP2",
        };
        let text = ENVOY
            .replace("LISTENER", &socket_address(self.address))
            .replace("CODEC", codec)
            .replace("NOISY_PATH", &format!("{NOISY_PATH}/"))
            .replace("CLUSTER_BACKEND", &socket_address(self.backend()))
            .replace("CLUSTER_NOISY", &socket_address(self.backends.noisy))
            .replace("PROTOCOL", envoy_protocol(self.setup.backend));
        let config = self.write("envoy.yaml", &text)?;
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(config)
            .args(["--concurrency", &self.setup.workers.to_string()])
            .args(["--log-level", "error", "--disable-hot-restart"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(command)
    }
}

fn socket_address(address: SocketAddr) -> String {
    let (host, port) = (address.ip(), address.port());
    format!("{{socket_address: {{address: {host}, port_value: {port}}}}}")
}

fn envoy_protocol(protocol: BackendProtocol) -> &'static str {
    match protocol {
        BackendProtocol::Http1 => "",
        BackendProtocol::Tls => {
            "transport_socket: {name: tls, typed_config: \
             {\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext}}"
        }
        BackendProtocol::Http2 => {
            "typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: \
             {\"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, \
             explicit_http_config: {http2_protocol_options: {}}}}"
        }
    }
}

const ENVOY: &str = r#"
static_resources:
  listeners:
  - name: agents
    address: LISTENER
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: agents
          codec_type: CODEC
          stream_idle_timeout: 0s
          generate_request_id: false
          http_filters:
          - name: router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: NOISY_PATH}
                route: {cluster: noisy, timeout: 0s}
              - match: {prefix: /}
                route: {cluster: backend, timeout: 0s}
  clusters:
  - name: backend
    type: STATIC
    connect_timeout: 10s
    circuit_breakers: {thresholds: [{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}]}
    PROTOCOL
    load_assignment:
      cluster_name: backend
      endpoints: [{lb_endpoints: [{endpoint: {address: CLUSTER_BACKEND}}]}]
  - name: noisy
    type: STATIC
    connect_timeout: 10s
    circuit_breakers: {thresholds: [{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}]}
    load_assignment:
      cluster_name: noisy
      endpoints: [{lb_endpoints: [{endpoint: {address: CLUSTER_NOISY}}]}]
"#;
