//! Faults of upstreams, agents and the proxy's surroundings, injected into the real proxy. [`fixture`] checks that the
//! proxy returns to its idle state after each fault.
//!
//! | place | faults | module |
//! |---|---|---|
//! | upstream, HTTP/1 | resets, half-closed sockets, stalls, byte by byte, chunking, gzip, UTF-8, floods | [`upstream_http1`] |
//! | upstream, HTTP/2 | RST_STREAM, GOAWAY, floods, windows, invalid frames | [`upstream_http2`] |
//! | connection to the upstream | TLS | [`upstream_tls`] |
//! | connection to the upstream | host names that change or resolve to several servers | [`upstream_names`] |
//! | agent, HTTP/1 | resets, half-closed sockets, stalls, slow heads | [`agent_http1`] |
//! | agent, HTTP/2 | floods, excess streams, closed windows | [`agent_http2`] |
//! | process | file descriptors, disks, telemetry receivers, clocks, panics | [`process`] |
//! | memory | agents that do not read, tiny chunks, long prompts | [`backpressure`] |
//! | memory | bodies and frames that are small on the wire and large when decoded | [`amplification`] |
//! | memory | compressed requests that a limit reads | [`request_bombs`] |
//! | memory | HTTP/2 streams that are opened and not finished | [`open_streams`] |
//! | memory | the memory limit of an injected sidecar | [`sidecar`] |
//!
//! Other tests of faults: `forward_failures`, `forward_timeouts`, `forward_smuggling`, `forward_upgrade` (tunnels),
//! `forward_measure` (a slow observer), `listener_limits`, `listener_drain`, `listener_files`, `meter_bounds`,
//! `meter_memory`, `ledger_process` (a kill under load), `otlp_export` (receivers that refuse, throttle or hang),
//! `sim_faults`.
//!
//! To add a fault, add an entry to the table in its module and a row in `docs/reliability.md`.

mod agent_http1;
mod agent_http2;
mod amplification;
mod backend;
mod backpressure;
mod cgroup;
mod fixture;
pub mod frames;
mod message;
mod open_streams;
mod process;
mod request_bombs;
mod script;
mod sidecar;
mod upstream;
mod upstream_http1;
mod upstream_http2;
mod upstream_names;
mod upstream_tls;

#[test]
fn every_fault_has_a_row_in_the_document() {
    let document = include_str!("../docs/reliability.md");
    let all = [
        upstream_http1::names(),
        upstream_http2::names(),
        upstream_tls::names(),
        agent_http1::names(),
        agent_http2::names(),
    ];
    for name in all.concat() {
        let row = format!("| {name} | ");
        assert!(
            document.lines().any(|line| line.starts_with(&row)),
            "{name}"
        );
    }
}
