//! State that all connections of agents share.

use super::open_connections::OpenConnections;
use crate::send_timeout::StreamExecutor;
use crate::settings::Limits;
use crate::{Forwarder, Shutdown, TrafficRuntimes};
use arc_swap::ArcSwap;
use hyper::server::conn::http2;
use hyper_util::rt::TokioTimer;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that one HTTP/2 stream may send before they are read.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes that all streams of one HTTP/2 connection may send before they are read.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes of one HTTP/2 stream that may be buffered for a slow agent.
const STREAM_BUFFER: usize = 64 * 1024;
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);

pub(super) struct Server {
    pub(super) shutdown: Shutdown,
    pub(super) runtimes: TrafficRuntimes,
    pub(super) forwarder: Arc<Forwarder>,
    pub(super) open: Arc<OpenConnections>,
    /// Settings for new connections. An open connection keeps its settings.
    pub(super) settings: ArcSwap<ConnectionSettings>,
}

pub(super) struct ConnectionSettings {
    pub(super) head_bytes: usize,
    pub(super) http2: http2::Builder<StreamExecutor>,
    pub(super) head_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) total_http2_streams: usize,
}

impl ConnectionSettings {
    fn new(limits: &Limits) -> ConnectionSettings {
        ConnectionSettings {
            head_bytes: limits.head_bytes,
            http2: http2(limits),
            head_timeout: limits.head_timeout,
            idle_timeout: limits.idle_timeout,
            total_http2_streams: limits.total_http2_streams,
        }
    }
}

impl Server {
    pub(super) fn new(
        forwarder: Arc<Forwarder>,
        limits: &Limits,
        shutdown: Shutdown,
        runtimes: TrafficRuntimes,
    ) -> Server {
        Server {
            shutdown,
            runtimes,
            forwarder,
            open: Arc::default(),
            settings: ArcSwap::from_pointee(ConnectionSettings::new(limits)),
        }
    }

    pub(super) fn close_longest_idle(&self) -> bool {
        let closed = self.open.close_longest_idle();
        if closed {
            self.shutdown.record_idle_closed();
        }
        closed
    }

    pub(super) fn change(&self, limits: &Limits) {
        self.settings
            .store(Arc::new(ConnectionSettings::new(limits)));
    }
}

fn http2(limits: &Limits) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(StreamExecutor);
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(limits.http2_streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(STREAM_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN)
        .auto_date_header(false);
    builder
}
