//! The call log: one JSON object per finished call, a line each. A thread of its own
//! writes it, so that a slow disk costs lines and nothing else.

use crate::meter::{Finding, Subscriber, wait_behind};
use metrics::Counter;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// Finished calls that wait to be written; more are dropped and counted.
const QUEUE: usize = 4096;
/// How often a failure to write is told.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// How long the end of the process waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the call log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file, appended to; opened again when it was moved away.
    File(PathBuf),
}

impl Target {
    /// `-` is standard output, anything else a file.
    pub fn parse(text: &str) -> Target {
        match text {
            "-" => Target::Stdout,
            path => Target::File(PathBuf::from(path)),
        }
    }
}

/// What is counted of a call log's troubles.
#[derive(Clone)]
pub struct Losses {
    /// Lines that could not be written.
    pub failed: Counter,
    /// Lines dropped because too many waited.
    pub dropped: Counter,
}

enum Message {
    Finished(Arc<Finding>),
    Flush(SyncSender<()>),
}

/// The call log.
pub struct CallLog {
    queue: SyncSender<Message>,
    dropped: Counter,
}

impl CallLog {
    /// Opens `target` and starts the thread that writes to it. `clock` is the
    /// monotonic clock; it only spaces out complaints.
    ///
    /// # Errors
    /// Where the file cannot be opened, or the thread not be started.
    pub fn open(
        target: &Target,
        losses: Losses,
        clock: fn() -> Instant,
    ) -> io::Result<Arc<CallLog>> {
        let output = match target {
            Target::Stdout => Output::Stream(Box::new(io::stdout())),
            Target::File(path) => Output::file(path)?,
        };
        CallLog::start(output, losses, clock, QUEUE)
    }

    fn start(
        output: Output,
        losses: Losses,
        clock: fn() -> Instant,
        length: usize,
    ) -> io::Result<Arc<CallLog>> {
        let (queue, messages) = sync_channel(length);
        let dropped = losses.dropped.clone();
        let mut writer = Writer {
            output,
            failed: losses.failed,
            clock,
            told: None,
        };
        let thread = std::thread::Builder::new().name("call-log".into());
        thread.spawn(move || writer.run(&messages))?;
        Ok(Arc::new(CallLog { queue, dropped }))
    }
}

impl Subscriber for CallLog {
    fn finished(&self, finding: &Arc<Finding>) {
        let message = Message::Finished(Arc::clone(finding));
        if self.queue.try_send(message).is_err() {
            self.dropped.increment(1);
        }
    }

    fn flush(&self) {
        wait_behind(&self.queue, Message::Flush, PATIENCE);
    }
}

/// What is written to.
enum Output {
    Stream(Box<dyn Write + Send>),
    File {
        path: PathBuf,
        file: BufWriter<File>,
    },
}

impl Output {
    fn file(path: &Path) -> io::Result<Output> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Output::File {
            path: path.to_owned(),
            file: BufWriter::new(file),
        })
    }

    /// Opens the file again where it was moved away or deleted.
    fn follow(&mut self) -> io::Result<()> {
        if let Output::File { path, file } = self
            && !same_file(file.get_ref(), path)
        {
            file.flush()?;
            *self = Output::file(&path.clone())?;
        }
        Ok(())
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Output::Stream(stream) => stream,
            Output::File { file, .. } => file,
        }
    }
}

#[cfg(unix)]
fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

#[cfg(not(unix))]
fn same_file(_: &File, path: &Path) -> bool {
    path.exists()
}

/// The writing side.
struct Writer {
    output: Output,
    failed: Counter,
    clock: fn() -> Instant,
    told: Option<Instant>,
}

impl Writer {
    fn run(&mut self, messages: &Receiver<Message>) {
        while let Ok(first) = messages.recv() {
            let opened = self.output.follow();
            self.check(opened);
            let mut next = Ok(first);
            while let Ok(message) = next {
                self.take(message);
                next = messages.try_recv();
            }
            let flushed = self.output.writer().flush();
            self.check(flushed);
            if next.is_err_and(|error| error == TryRecvError::Disconnected) {
                break;
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Finished(finding) => {
                let written = self.write(&finding);
                self.check(written);
            }
            Message::Flush(done) => {
                let flushed = self.output.writer().flush();
                self.check(flushed);
                let _ = done.send(());
            }
        }
    }

    fn write(&mut self, finding: &Finding) -> io::Result<()> {
        let mut line = serde_json::to_vec(&finding.record)?;
        line.push(b'\n');
        self.output.writer().write_all(&line)
    }

    /// Counts a failure, and tells of it at most once a minute.
    fn check(&mut self, result: io::Result<()>) {
        let Err(error) = result else {
            return;
        };
        self.failed.increment(1);
        let now = (self.clock)();
        let due = |told: Instant| now.saturating_duration_since(told) >= TELL_EVERY;
        if self.told.is_none_or(due) {
            self.told = Some(now);
            tracing::error!(%error, "the call log cannot be written; calls go on");
        }
    }
}
