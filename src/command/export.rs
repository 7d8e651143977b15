//! `tokengauge export`: writes the calls of the ledger to a file.

use super::error::CommandError;
use super::progress::{Counted, Progress};
use crate::Error;
use crate::cli::ExportArgs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokengauge_files::private as private_file;
use tokengauge_process::{SystemError, output};
use tokengauge_store::export::{ExportError, ExportOptions, FileFormat, export as write};
use tokengauge_store::stored_calls::StoredCalls;

pub(super) fn export(args: &ExportArgs) -> Result<(), Error> {
    let now = SystemTime::now();
    let since = args.since.map(|since| since.before(now));
    let until = args.until.map(|until| until.before(now));
    super::in_order(since, until)?;
    let path = match args.warehouse.url {
        Some(_) => None,
        None => Some(ledger(args)?),
    };
    let calls = super::warehouse::stored(&args.warehouse, path.as_deref())?;
    let options = ExportOptions {
        since: super::warehouse::since(&args.warehouse, since),
        until,
        format: args.format.into(),
        spreadsheet: args.spreadsheet,
    };
    if options.spreadsheet && options.format != FileFormat::Csv {
        return Err(CommandError::SpreadsheetOfOtherFormat.into());
    }
    let output: Box<dyn Write + Send> = match &args.output {
        Some(file) => Box::new(private_file::create(file).map_err(SystemError::write(file))?),
        None if options.format == FileFormat::Parquet && std::io::stdout().is_terminal() => {
            return Err(CommandError::ParquetOnTerminal.into());
        }
        None => output::stdout(),
    };
    let progress = match args.output {
        Some(_) => Progress::of("export"),
        None => Progress::beside_output("export"),
    };
    let output = Box::new(Counted::new(output, progress));
    let Some(calls) = calls else { return Ok(()) };
    match write(&calls, &options, output) {
        Ok(calls) => {
            output::note(&format!("{calls} calls"));
            Ok(())
        }
        Err(ExportError::File(error)) if args.output.is_none() => Err(output::failed(error)),
        Err(error) => Err(error.into()),
    }
}

/// Writes the calls since `since` as a trace to `file`; returns how many.
pub(super) fn trace(calls: &StoredCalls, since: SystemTime, file: &Path) -> Result<u64, Error> {
    let output = private_file::create(file).map_err(SystemError::write(file))?;
    let options = ExportOptions {
        since: Some(since),
        until: None,
        format: FileFormat::Sessions,
        spreadsheet: false,
    };
    Ok(write(calls, &options, Box::new(output))?)
}

fn ledger(args: &ExportArgs) -> Result<PathBuf, Error> {
    if let Some(path) = &args.ledger {
        return Ok(path.clone());
    }
    let (config, origin) = super::load(&args.config)?;
    let ledger = config.ledger.map(|ledger| ledger.path);
    Ok(ledger.ok_or_else(|| CommandError::NoLedgerConfigured(origin))?)
}
