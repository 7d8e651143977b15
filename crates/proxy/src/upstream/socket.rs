use super::limits::OpenConnection;
use super::tls_records::TlsRecords;
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{self, Handle};

/// A TCP connection that counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedTcp {
    tcp: TcpStream,
    runtime: runtime::Id,
    /// The position within TLS records, if they are tracked.
    records: Option<TlsRecords>,
    _open: OpenConnection,
}

impl CountedTcp {
    pub fn new(tcp: TcpStream, open: OpenConnection) -> CountedTcp {
        CountedTcp {
            tcp,
            runtime: Handle::current().id(),
            records: None,
            _open: open,
        }
    }

    pub fn runtime(&self) -> runtime::Id {
        self.runtime
    }

    /// Registers the socket with the current runtime, so that arriving data wakes no other thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no free descriptor. The previous runtime then still
    /// waits for the socket.
    pub fn move_to_current_runtime(&mut self) -> io::Result<()> {
        let current = Handle::current().id();
        if self.runtime != current {
            let copy = SockRef::from(&self.tcp).try_clone()?;
            self.tcp = TcpStream::from_std(copy.into())?;
            self.runtime = current;
        }
        Ok(())
    }

    pub fn tracking_tls_records(mut self) -> CountedTcp {
        self.records = Some(TlsRecords::default());
        self
    }

    /// Whether part of a TLS record was read. The TLS library buffers it until the rest arrives.
    pub fn is_inside_tls_record(&self) -> bool {
        self.records
            .as_ref()
            .is_some_and(TlsRecords::is_inside_record)
    }
}

impl Deref for CountedTcp {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.tcp
    }
}

impl AsyncRead for CountedTcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.tcp).poll_read(cx, buf);
        if let Some(records) = &mut this.records {
            records.advance(&buf.filled()[before..]);
        }
        polled
    }
}

impl AsyncWrite for CountedTcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
