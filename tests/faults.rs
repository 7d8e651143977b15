//! Every fault, by place: the real proxy in front of a backend, or behind an agent, that
//! misbehaves. [`fixture`] says what must hold when a fault is over.
//!
//! | place | faults | where |
//! |---|---|---|
//! | upstream, HTTP/1 | resets, half-closed sockets, stalls, byte by byte, chunking, gzip, UTF-8, floods | [`upstream_http1`] |
//! | upstream, HTTP/2 | RST_STREAM, GOAWAY, floods, windows, frames that are wrong | [`upstream_http2`] |
//! | on the way there | TLS | [`upstream_tls`] |
//! | on the way there | names that change, or stand for several servers | [`upstream_names`] |
//! | agent, HTTP/1 | resets, half-closed sockets, stalls, slow heads | [`agent_http1`] |
//! | agent, HTTP/2 | floods, too many streams, shut windows | [`agent_http2`] |
//! | process | file descriptors, disks, receivers of telemetry, clocks, panics | [`process`] |
//! | memory | agents that do not read, tiny chunks, long prompts | [`backpressure`] |
//! | memory | bodies and frames that are small on the wire and large once decoded | [`amplification`] |
//! | memory | compressed requests that a limit reads | [`request_bombs`] |
//! | memory | streams of HTTP/2 that are opened and not finished | [`open_streams`] |
//! | memory | an injected sidecar's own limit | [`sidecar`] |
//!
//! `docs/reliability.md` has a row for each. What else breaks, and is tested by itself:
//! `forward_failures`, `forward_timeouts`, `forward_smuggling`, `forward_upgrade` (tunnels),
//! `forward_measure` (a slow observer), `listener_limits`, `listener_drain`, `listener_files`,
//! `meter_bounds` and `meter_memory` (what measuring holds), `ledger_process` (a kill under
//! load), `otlp_export` (receivers that refuse, throttle or hang), `sim_faults` (faults of the
//! simulator).
//!
//! Another fault is another entry of its place's table, and a row of the document.

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
