//! The call log: one JSON object per line and finished call. A separate thread writes it, so that a
//! slow disk only costs lines.

use super::registry::Counter;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokengauge_core::background::wait_behind;
use tokengauge_core::background::{self, BackgroundWork};
use tokengauge_core::log_interval::LogInterval;
use tokengauge_files::private as private_file;
use tokengauge_meter::{FinishedCall, Subscriber};

/// Maximum number of finished calls that wait to be written; further calls are dropped and counted.
const QUEUE: usize = 4096;
/// Maximum number of lines between two checks whether the file was moved.
const BATCH: usize = 256;
/// How long the process waits for the disk when it ends.
const TIMEOUT: Duration = Duration::from_secs(5);

pub enum Target {
    Stream(Box<dyn Write + Send>),
    /// A file to append to. It is reopened if it was moved away.
    File(PathBuf),
}

#[derive(Clone)]
pub struct Losses {
    pub failed: Counter,
    pub dropped: Counter,
}

enum Message {
    Finished(Arc<FinishedCall>),
    Flush(SyncSender<()>),
}

pub struct CallLog {
    queue: SyncSender<Message>,
    dropped: Counter,
}

impl CallLog {
    /// Opens `target` and starts the thread that writes to it. `clock` is the monotonic clock,
    /// which only limits the rate of log messages about failures.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or the thread cannot be started.
    pub fn open(
        target: Target,
        losses: Losses,
        clock: fn() -> Instant,
    ) -> io::Result<Arc<CallLog>> {
        let output = match target {
            Target::Stream(stream) => Output::Stream(stream),
            Target::File(path) => Output::file(&path)?,
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
            failure_log: LogInterval::default(),
        };
        background::spawn("call-log", BackgroundWork::Steady, move || {
            writer.run(&messages)
        })?;
        Ok(Arc::new(CallLog { queue, dropped }))
    }
}

impl Subscriber for CallLog {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        let message = Message::Finished(Arc::clone(finished_call));
        if self.queue.try_send(message).is_err() {
            self.dropped.increment(1);
        }
    }

    fn flush(&self) {
        wait_behind(
            |done| self.queue.try_send(Message::Flush(done)).is_ok(),
            TIMEOUT,
        );
    }
}

enum Output {
    Stream(Box<dyn Write + Send>),
    File {
        path: PathBuf,
        file: BufWriter<File>,
    },
}

impl Output {
    fn file(path: &Path) -> io::Result<Output> {
        let file = private_file::append(path)?;
        Ok(Output::File {
            path: path.to_owned(),
            file: BufWriter::new(file),
        })
    }

    /// Reopens the file if it was moved away or deleted.
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

struct Writer {
    output: Output,
    failed: Counter,
    clock: fn() -> Instant,
    failure_log: LogInterval,
}

impl Writer {
    fn run(&mut self, messages: &Receiver<Message>) {
        while let Ok(first) = messages.recv() {
            let opened = self.output.follow();
            self.check(opened);
            let batch = std::iter::once(first).chain(messages.try_iter());
            let mut waiting = None;
            for message in batch.take(BATCH) {
                match message {
                    Message::Finished(finished_call) => {
                        let written = self.write(&finished_call);
                        self.check(written);
                    }
                    Message::Flush(done) => {
                        waiting = Some(done);
                        break;
                    }
                }
            }
            let flushed = self.output.writer().flush();
            self.check(flushed);
            if let Some(done) = waiting {
                let _ = done.send(());
            }
        }
    }

    fn write(&mut self, finished_call: &FinishedCall) -> io::Result<()> {
        let mut line = serde_json::to_vec(&finished_call.record)?;
        line.push(b'\n');
        self.output.writer().write_all(&line)
    }

    /// Counts a failure, and logs it at most once a minute.
    fn check(&mut self, result: io::Result<()>) {
        let Err(error) = result else {
            return;
        };
        self.failed.increment(1);
        if self.failure_log.should_log((self.clock)()) {
            tracing::error!(%error, "the call log cannot be written; traffic continues");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use tokengauge_core::observer::{CallStart, End, Observer};
    use tokengauge_meter::settings::Measure;
    use tokengauge_meter::{Meter, RecentCalls};

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn losses() -> Losses {
        Losses {
            failed: Counter::default(),
            dropped: Counter::default(),
        }
    }

    fn finished_call() -> Arc<FinishedCall> {
        let recent = RecentCalls::new(1);
        let meter = Meter::new(
            Measure::default(),
            vec![Arc::clone(&recent) as Arc<dyn Subscriber>],
        );
        let now = Instant::now();
        let call = meter.begin(CallStart {
            received: now,
            started_at: std::time::SystemTime::UNIX_EPOCH,
            method: &http::Method::GET,
            uri: &http::Uri::from_static("/v1/models"),
            headers: &http::HeaderMap::new(),
            peer: None,
            port: None,
            route: &"route".into(),
            upstream: &"upstream".into(),
            dialect: None,
            workload: None,
            inject_usage: false,
            variant: None,
        });
        call.ended(now, End::Complete);
        assert!(meter.flush(TIMEOUT));
        recent.newest(1).remove(0)
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).expect("a log");
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    #[test]
    fn each_call_is_one_line_and_a_moved_file_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calls.jsonl");
        let target = Target::File(path.clone());
        let losses = losses();
        let log = CallLog::open(target, losses.clone(), Instant::now).expect("opens");
        let finished_call = finished_call();
        log.finished(&finished_call);
        log.finished(&finished_call);
        log.flush();
        assert_eq!(lines(&path).len(), 2);
        assert_eq!(
            lines(&path)[0],
            serde_json::to_value(&finished_call.record).expect("JSON")
        );
        let moved = folder.path().join("calls.1");
        std::fs::rename(&path, &moved).expect("rename");
        log.finished(&finished_call);
        log.flush();
        assert_eq!((lines(&moved).len(), lines(&path).len()), (2, 1));
        assert_eq!(losses.failed.value(), 0);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error_at_once() {
        let target = Target::File("/nonexistent/folder/calls.jsonl".into());
        assert!(CallLog::open(target, losses(), Instant::now).is_err());
    }

    struct Held {
        begun: Sender<()>,
        held: Receiver<()>,
    }

    impl Write for Held {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            let _ = self.begun.send(());
            let _ = self.held.recv();
            Err(io::Error::other("the disk is gone"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_disk_drops_and_counts_and_a_broken_one_fails_and_counts() {
        let losses = losses();
        let (begun, running) = channel();
        let (release, held) = channel();
        let output = Output::Stream(Box::new(Held { begun, held }));
        let log = CallLog::start(output, losses.clone(), Instant::now, 2).expect("starts");
        let finished_call = finished_call();
        log.finished(&finished_call);
        running
            .recv_timeout(TIMEOUT)
            .expect("the first line is being written");
        (0..5).for_each(|_| log.finished(&finished_call));
        assert_eq!(losses.dropped.value(), 3, "two may wait");
        drop(release);
        log.flush();
        assert_eq!(losses.failed.value(), 3);
    }
}
