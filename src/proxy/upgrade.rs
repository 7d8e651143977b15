//! Connections that became something else, WebSocket above all: bytes both ways, tapped.

use super::connection::{Http1, Io};
use super::drain::Drain;
use super::tap::now;
use super::upstream::Taken;
use super::watch::{Call, Watch};
use crate::observer::{End, FailureKind, Frame, Side};
use bytes::{Bytes, BytesMut};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::sleep_until;

/// What is read at once, in each direction.
const PIECE: usize = 8 * 1024;

/// Everything a tunnel needs.
pub(super) struct Tunnel {
    pub http1: Box<Http1>,
    pub agent: OnUpgrade,
    pub call: Call,
    pub held: Taken,
    pub idle: Duration,
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
            idle,
            mut drain,
        } = self;
        let watch = call.watch().clone();
        watch.moved(now());
        let end = tokio::select! {
            end = connect(http1, agent, &watch) => end,
            () = silence(&watch, idle) => End::Failed(FailureKind::IdleTimeout),
            () = drain.cut() => End::ClientCancelled,
        };
        drop(held);
        call.end(now(), end);
    }
}

async fn connect(mut http1: Box<Http1>, agent: OnUpgrade, watch: &Watch) -> End {
    poll_fn(|cx| http1.poll(cx)).await;
    let Some((upstream, read_already)) = http1.into_io() else {
        return End::UpstreamReset;
    };
    let Ok(agent) = agent.await else {
        return End::ClientCancelled;
    };
    relay(TokioIo::new(agent), upstream, read_already.freeze(), watch).await
}

async fn relay<A>(agent: A, upstream: Io, read_already: Bytes, watch: &Watch) -> End
where
    A: AsyncRead + AsyncWrite,
{
    let (agent_read, agent_write) = split(agent);
    let (upstream_read, upstream_write) = split(upstream);
    let up = Direction {
        from: Side::Agent,
        read: agent_read,
        write: upstream_write,
        watch,
    };
    let down = Direction {
        from: Side::Upstream,
        read: upstream_read,
        write: agent_write,
        watch,
    };
    let up = up.run(Bytes::new());
    let down = down.run(read_already);
    match tokio::try_join!(up, down) {
        Ok(_) => End::Complete,
        Err(Side::Agent) => End::ClientCancelled,
        Err(Side::Upstream) => End::UpstreamReset,
    }
}

struct Direction<'a, R, W> {
    from: Side,
    read: ReadHalf<R>,
    write: WriteHalf<W>,
    watch: &'a Watch,
}

impl<R: AsyncRead, W: AsyncWrite> Direction<'_, R, W> {
    /// Copies until the end of the one side, which becomes that of the other.
    ///
    /// # Errors
    ///
    /// The side that was lost.
    async fn run(mut self, first: Bytes) -> Result<(), Side> {
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
                .map_err(|_| self.from)?;
            if read == 0 {
                self.watch.tell(|call| call.tunnel_over(self.from));
                // One that has gone already has also heard enough.
                let _ = self.write.shutdown().await;
                return Ok(());
            }
            self.pass(buffer.split().freeze()).await?;
        }
    }

    async fn pass(&mut self, bytes: Bytes) -> Result<(), Side> {
        let at = now();
        self.watch.moved(at);
        self.write_all(&bytes).await.map_err(|_| other(self.from))?;
        self.watch
            .tell(|call| call.tunnel_frame(self.from, Frame { at, bytes }));
        Ok(())
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write.write_all(bytes).await?;
        self.write.flush().await
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Agent => Side::Upstream,
        Side::Upstream => Side::Agent,
    }
}

/// Resolves when nothing moved for too long.
async fn silence(watch: &Watch, idle: Duration) {
    loop {
        let deadline = watch.last_moved() + idle;
        if deadline <= now() {
            return;
        }
        sleep_until(deadline.into()).await;
    }
}
