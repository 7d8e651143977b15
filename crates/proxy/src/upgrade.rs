//! Connections that became something else, WebSocket above all: bytes both ways, tapped.

use super::call_handle::{Call, CallHandle};
use super::clock::now;
use super::connection::{Http1, Io};
use super::drain::Drain;
use super::upstream::InFlightGuard;
use crate::settings::Timeouts;
use bytes::{Bytes, BytesMut};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokengauge_core::observer::{End, FailureKind, Frame, Side};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::{sleep, sleep_until, timeout};

/// What is read at once, in each direction.
const PIECE: usize = 8 * 1024;

/// How often it is looked whether a side takes again what waits for it.
const LOOK: Duration = Duration::from_secs(1);

/// Everything a tunnel needs.
pub(super) struct Tunnel {
    pub http1: Box<Http1>,
    pub agent: OnUpgrade,
    pub call: Call,
    pub held: InFlightGuard,
    pub timeouts: Timeouts,
    pub drain: Drain,
}

impl Tunnel {
    /// Runs until both sides are through, in a task of its own.
    pub fn start(self) {
        tokio::spawn(self.run());
    }

    async fn run(self) {
        let Tunnel {
            http1,
            agent,
            call,
            held,
            timeouts,
            mut drain,
        } = self;
        let pace = TunnelTimeouts {
            handle: call.handle(),
            send: timeouts.send,
            writing: AtomicUsize::new(0),
        };
        pace.handle.moved(now());
        let end = tokio::select! {
            end = connect(http1, agent, &pace) => end,
            () = pace.silence(timeouts.idle) => End::Failed(FailureKind::IdleTimeout),
            () = drain.terminated() => End::Drained,
        };
        drop(held);
        call.end(now(), end);
    }
}

/// What moves through a tunnel, and what waits.
struct TunnelTimeouts<'a> {
    handle: &'a CallHandle,
    /// How long a side may take nothing of what waits for it.
    send: Duration,
    /// Directions in which something waits to be taken.
    writing: AtomicUsize,
}

impl TunnelTimeouts<'_> {
    /// Resolves when nothing moved for too long, and nothing waits: who does not read is
    /// judged by `send`.
    async fn silence(&self, idle: Duration) {
        loop {
            let deadline = self.handle.last_moved() + idle;
            if deadline > now() {
                sleep_until(deadline.into()).await;
            } else if self.writing.load(Ordering::Relaxed) > 0 {
                sleep(LOOK.min(idle)).await;
            } else {
                return;
            }
        }
    }

    /// Writes all of it, as fast as the other side takes it.
    async fn write<W: AsyncWrite>(
        &self,
        write: &mut WriteHalf<W>,
        mut bytes: &[u8],
    ) -> Result<(), TunnelWriteError> {
        while !bytes.is_empty() {
            let written = self.within(write.write(bytes)).await?;
            if written == 0 {
                return Err(TunnelWriteError::Lost);
            }
            bytes = &bytes[written..];
        }
        self.within(write.flush()).await
    }

    async fn within<T>(
        &self,
        write: impl Future<Output = io::Result<T>>,
    ) -> Result<T, TunnelWriteError> {
        match timeout(self.send, write).await {
            Ok(written) => written.map_err(|_| TunnelWriteError::Lost),
            Err(_) => Err(TunnelWriteError::Stalled),
        }
    }
}

/// Why a side did not get something.
enum TunnelWriteError {
    /// The connection is gone.
    Lost,
    /// The receiver takes nothing.
    Stalled,
}

async fn connect(mut http1: Box<Http1>, agent: OnUpgrade, pace: &TunnelTimeouts<'_>) -> End {
    poll_fn(|cx| http1.poll(cx)).await;
    let Some((upstream, read_already)) = http1.into_io() else {
        return End::UpstreamReset;
    };
    let Ok(agent) = agent.await else {
        return End::ClientCancelled;
    };
    relay(TokioIo::new(agent), upstream, read_already.freeze(), pace).await
}

async fn relay<A>(agent: A, upstream: Io, read_already: Bytes, pace: &TunnelTimeouts<'_>) -> End
where
    A: AsyncRead + AsyncWrite,
{
    let (agent_read, agent_write) = split(agent);
    let (upstream_read, upstream_write) = split(upstream);
    let up = Direction {
        from: Side::Agent,
        read: agent_read,
        write: upstream_write,
        pace,
    };
    let down = Direction {
        from: Side::Upstream,
        read: upstream_read,
        write: agent_write,
        pace,
    };
    let up = up.run(Bytes::new());
    let down = down.run(read_already);
    match tokio::try_join!(up, down) {
        Ok(_) => End::Complete,
        Err(end) => end,
    }
}

struct Direction<'a, R, W> {
    from: Side,
    read: ReadHalf<R>,
    write: WriteHalf<W>,
    pace: &'a TunnelTimeouts<'a>,
}

impl<R: AsyncRead, W: AsyncWrite> Direction<'_, R, W> {
    /// Copies until the end of the one side, which becomes that of the other.
    ///
    /// # Errors
    ///
    /// How the tunnel ends, where a side was lost.
    async fn run(mut self, first: Bytes) -> Result<(), End> {
        if !first.is_empty() {
            self.pass(first).await?;
        }
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(PIECE);
            let read = self
                .read
                .read_buf(&mut buffer)
                .await
                .map_err(|_| lost(self.from))?;
            if read == 0 {
                let handle = self.pace.handle;
                handle.notify(|call| call.tunnel_over(self.from));
                // One that has gone already has also heard enough.
                let _ = self.write.shutdown().await;
                return Ok(());
            }
            self.pass(buffer.split().freeze()).await?;
        }
    }

    async fn pass(&mut self, bytes: Bytes) -> Result<(), End> {
        let (at, handle) = (now(), self.pace.handle);
        handle.moved(at);
        self.pace.writing.fetch_add(1, Ordering::Relaxed);
        let written = self.pace.write(&mut self.write, &bytes).await;
        self.pace.writing.fetch_sub(1, Ordering::Relaxed);
        let to = other(self.from);
        written.map_err(|unwritten| match unwritten {
            TunnelWriteError::Lost => lost(to),
            TunnelWriteError::Stalled => End::Failed(takes_nothing(to)),
        })?;
        handle.moved(now());
        handle.notify(|call| call.tunnel_frame(self.from, Frame::new(at, bytes)));
        Ok(())
    }
}

fn other(side: Side) -> Side {
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

fn takes_nothing(side: Side) -> FailureKind {
    match side {
        Side::Agent => FailureKind::AgentSendTimeout,
        Side::Upstream => FailureKind::SendTimeout,
    }
}
