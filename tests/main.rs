//! Everything that is tested in Rust, in one program: one file per behaviour.

mod admin_api;
mod certificates;
mod config;
mod corpus;
#[cfg(target_os = "linux")]
mod forward_bulk;
mod forward_bytes;
mod forward_failures;
mod forward_http2;
mod forward_measure;
mod forward_timeouts;
mod forward_tls;
mod forward_trace;
mod forward_upgrade;
mod http_client;
mod listener_drain;
#[cfg(target_os = "linux")]
mod listener_files;
mod listener_limits;
mod meter_bounds;
mod meter_corpus;
mod meter_cuts;
mod meter_formulas;
mod meter_outcomes;
mod meter_realtime;
mod meter_record;
mod meter_series;
mod meter_support;
mod meter_validity;
mod readme;
mod serving;
mod sim_dialects;
mod sim_faults;
mod sim_stream;
mod sim_support;
mod slo_config;
mod support;
mod tls_handshake;
mod tls_listener;
mod tokens_counter;
mod wire_dialects;
mod wire_framing;
mod wire_inject;
mod wire_openai;
mod wire_requests;
mod wire_support;
