//! Tunnels for upgraded connections, mostly WebSocket: copies bytes in both directions and taps them.

use super::call_handle::{Call, CallHandle};
use super::clock::now;
use super::connection::Io;
use super::drain::Drain;
use super::upstream::InFlightGuard;
use crate::listener::TimedSocket;
use crate::settings::Timeouts;
use bytes::{Bytes, BytesMut};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokengauge_core::observer::{Chunk, End, FailureKind, Side};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::{sleep, sleep_until, timeout};

const READ_BYTES: usize = 8 * 1024;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Tunnel {
    pub upstream: Io,
    pub read_ahead: Bytes,
    pub call: Call,
    pub in_flight: InFlightGuard,
    pub timeouts: Timeouts,
    pub drain: Drain,
}

impl Tunnel {
    /// Runs the tunnel in a separate task until both directions have ended. `arrived` are bytes that were already read
    /// from the agent.
    pub fn start(self, agent: TimedSocket, arrived: Bytes) {
        tokio::spawn(self.run(agent, arrived));
    }

    async fn run(self, agent: TimedSocket, arrived: Bytes) {
        let Tunnel {
            upstream,
            read_ahead,
            call,
            in_flight,
            timeouts,
            mut drain,
        } = self;
        let tunnel_timeouts = TunnelTimeouts {
            handle: call.handle(),
            send_timeout: timeouts.send,
            writing: AtomicUsize::new(0),
        };
        tunnel_timeouts.handle.record_activity(now());
        let end = tokio::select! {
            end = relay((agent, arrived), (upstream, read_ahead), &tunnel_timeouts) => end,
            () = tunnel_timeouts.idle_expired(timeouts.idle) => End::Failed(FailureKind::IdleTimeout),
            () = drain.terminated() => End::Drained,
        };
        drop(in_flight);
        call.end(now(), end);
    }
}

struct TunnelTimeouts<'a> {
    handle: &'a CallHandle,
    /// How long a side may accept no data while data is unsent.
    send_timeout: Duration,
    writing: AtomicUsize,
}

impl TunnelTimeouts<'_> {
    /// Resolves when no byte was transferred within the idle timeout and no write is in progress. For writes,
    /// `send_timeout` applies.
    async fn idle_expired(&self, idle: Duration) {
        loop {
            let deadline = self.handle.last_activity() + idle;
            if deadline > now() {
                sleep_until(deadline.into()).await;
            } else if self.writing.load(Ordering::Relaxed) > 0 {
                sleep(POLL_INTERVAL.min(idle)).await;
            } else {
                return;
            }
        }
    }

    async fn write<W: AsyncWrite>(
        &self,
        write: &mut WriteHalf<W>,
        mut bytes: &[u8],
    ) -> Result<(), TunnelWriteError> {
        while !bytes.is_empty() {
            let written = self.with_timeout(write.write(bytes)).await?;
            if written == 0 {
                return Err(TunnelWriteError::Lost);
            }
            bytes = &bytes[written..];
        }
        self.with_timeout(write.flush()).await
    }

    async fn with_timeout<T>(
        &self,
        write: impl Future<Output = io::Result<T>>,
    ) -> Result<T, TunnelWriteError> {
        match timeout(self.send_timeout, write).await {
            Ok(written) => written.map_err(|_| TunnelWriteError::Lost),
            Err(_) => Err(TunnelWriteError::Stalled),
        }
    }
}

enum TunnelWriteError {
    Lost,
    Stalled,
}

async fn relay(
    (agent, from_agent): (TimedSocket, Bytes),
    (upstream, from_upstream): (Io, Bytes),
    timeouts: &TunnelTimeouts<'_>,
) -> End {
    let (agent_read, agent_write) = split(agent);
    let (upstream_read, upstream_write) = split(upstream);
    let up = Direction {
        from: Side::Agent,
        read: agent_read,
        write: upstream_write,
        timeouts,
    };
    let down = Direction {
        from: Side::Upstream,
        read: upstream_read,
        write: agent_write,
        timeouts,
    };
    let up = up.run(from_agent);
    let down = down.run(from_upstream);
    match tokio::try_join!(up, down) {
        Ok(_) => End::Complete,
        Err(end) => end,
    }
}

struct Direction<'a, R, W> {
    from: Side,
    read: ReadHalf<R>,
    write: WriteHalf<W>,
    timeouts: &'a TunnelTimeouts<'a>,
}

impl<R: AsyncRead, W: AsyncWrite> Direction<'_, R, W> {
    /// Copies until one side closes, then shuts down writing to the other.
    ///
    /// # Errors
    ///
    /// How the tunnel ends, if a side was lost.
    async fn run(mut self, first: Bytes) -> Result<(), End> {
        if !first.is_empty() {
            self.forward(first).await?;
        }
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ_BYTES);
            let read = self
                .read
                .read_buf(&mut buffer)
                .await
                .map_err(|_| lost(self.from))?;
            if read == 0 {
                let handle = self.timeouts.handle;
                handle.notify(|call| call.tunnel_over(self.from));
                // An error means that the other side has closed already.
                let _ = self.write.shutdown().await;
                return Ok(());
            }
            self.forward(buffer.split().freeze()).await?;
        }
    }

    async fn forward(&mut self, bytes: Bytes) -> Result<(), End> {
        let (at, handle) = (now(), self.timeouts.handle);
        handle.record_activity(at);
        self.timeouts.writing.fetch_add(1, Ordering::Relaxed);
        let written = self.timeouts.write(&mut self.write, &bytes).await;
        self.timeouts.writing.fetch_sub(1, Ordering::Relaxed);
        let to = opposite(self.from);
        written.map_err(|error| match error {
            TunnelWriteError::Lost => lost(to),
            TunnelWriteError::Stalled => End::Failed(send_timeout(to)),
        })?;
        handle.record_activity(now());
        handle.notify(|call| call.tunnel_chunk(self.from, Chunk::new(at, bytes)));
        Ok(())
    }
}

fn opposite(side: Side) -> Side {
    match side {
        Side::Agent => Side::Upstream,
        Side::Upstream => Side::Agent,
    }
}

fn lost(side: Side) -> End {
    match side {
        Side::Agent => End::ClientCancelled,
        Side::Upstream => End::UpstreamReset,
    }
}

fn send_timeout(side: Side) -> FailureKind {
    match side {
        Side::Agent => FailureKind::AgentSendTimeout,
        Side::Upstream => FailureKind::SendTimeout,
    }
}
