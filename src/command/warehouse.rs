//! `--store URL`: copies the calls of a warehouse into a temporary ledger, so that commands work as with a ledger. The
//! copy contains only data of call records. Tokens by second and streams in flight are missing.

use super::api_client;
use super::error::{BoxedError, CommandError};
use super::progress::Progress;
use crate::Error;
use crate::cli::{WarehouseArgs, When};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokengauge_core::time::duration_since_1970;
use tokengauge_files::private as private_file;
use tokengauge_process::SystemError;
use tokengauge_sink::{WarehouseReader, WarehouseRow, WarehouseUrl};
use tokengauge_store::columns::{concurrency, record};
use tokengauge_store::ledger::{
    ExportOptions, FileFormat, LedgerCall, LedgerDatabase, WriteError, export,
};

pub(super) const SINCE: Duration = Duration::from_secs(7 * 86_400);

/// A ledger that is deleted when this is dropped.
pub(super) struct WarehouseCopy {
    folder: TempDir,
}

/// If `args` names a warehouse, reads its calls since `since` into a ledger and replaces `ledger` by its path.
pub(super) fn read(
    args: &WarehouseArgs,
    since: Option<SystemTime>,
    ledger: &mut Option<PathBuf>,
) -> Result<Option<WarehouseCopy>, Error> {
    let Some(url) = &args.url else {
        return Ok(None);
    };
    let now = SystemTime::now();
    let since = args.since.map(|since| since.before(now)).or(since);
    let since = since.unwrap_or_else(|| When::Back(SINCE).before(now));
    // The clock of another host may be ahead.
    let until = now + Duration::from_secs(86_400);
    let (path, copy) = copied(url, (milliseconds(since), milliseconds(until)))
        .map_err(|error| CommandError::refused(format!("the store {}", url.address()), error))?;
    *ledger = Some(path);
    Ok(Some(copy))
}

fn copied(url: &WarehouseUrl, span: (i64, i64)) -> Result<(PathBuf, WarehouseCopy), BoxedError> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("ledger.sqlite");
    let mut ledger = LedgerDatabase::open(&path)?;
    let mut progress = Progress::of("store");
    let mut read = 0;
    let reader = WarehouseReader::new(url)?;
    let taken = reader.read(span, |rows| {
        write(&mut ledger, rows)?;
        read += rows.len() as u64;
        progress.at(read, None, "calls");
        Ok::<_, WriteError>(())
    });
    api_client::runtime()?.block_on(taken)?;
    Ok((path, WarehouseCopy { folder }))
}

pub(super) fn origin(args: &WarehouseArgs, ledger: &Path) -> String {
    match &args.url {
        Some(url) => format!("the store {}", url.address()),
        None => ledger.display().to_string(),
    }
}

/// Writes the calls of a warehouse or a ledger to a call log for commands that read one.
pub(super) fn as_log(
    args: &WarehouseArgs,
    ledger: Option<&Path>,
    since: Option<SystemTime>,
) -> Result<Option<(PathBuf, WarehouseCopy)>, Error> {
    let mut ledger = ledger.map(Path::to_owned);
    let copy = read(args, since, &mut ledger)?;
    let Some(ledger) = ledger else {
        return Ok(None);
    };
    let copy = match copy {
        Some(copy) => copy,
        None => WarehouseCopy {
            folder: tempfile::tempdir()
                .map_err(|error| SystemError::Task("make a temporary folder", error))?,
        },
    };
    let log = copy.folder.path().join("calls.jsonl");
    let file = private_file::create(&log).map_err(SystemError::write(&log))?;
    let options = ExportOptions {
        since: None,
        until: None,
        format: FileFormat::Jsonl,
        spreadsheet: false,
    };
    let reader = super::reader(&ledger);
    export(&reader, &options, Box::new(file))?;
    Ok(Some((log, copy)))
}

fn milliseconds(at: SystemTime) -> i64 {
    i64::try_from(duration_since_1970(at).as_millis()).unwrap_or(i64::MAX)
}

fn write(ledger: &mut LedgerDatabase, rows: &[WarehouseRow]) -> Result<(), WriteError> {
    for batch in rows.chunks(1_000) {
        // Reports and exports do not use pods.
        let records: Vec<_> = batch
            .iter()
            .map(|row| (record(&row.values), concurrency(&row.values)))
            .collect();
        let calls: Vec<_> = records
            .iter()
            .filter_map(|(record, concurrency)| LedgerCall::of_record(record, *concurrency))
            .collect();
        ledger.write(&calls)?;
    }
    Ok(())
}
