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
use tokengauge_store::ledger::{ExportError, ExportOptions, FileFormat, export as write};

pub(super) fn export(args: &ExportArgs) -> Result<(), Error> {
    let now = SystemTime::now();
    let mut args = args.clone();
    let since = args.since.map(|since| since.before(now));
    let until = args.until.map(|until| until.before(now));
    super::in_order(since, until)?;
    let _copy = super::warehouse::read(&args.warehouse, since, &mut args.ledger)?;
    let path = ledger(&args)?;
    let options = ExportOptions {
        since,
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
    let reader = super::reader(&path);
    match write(&reader, &options, output) {
        Ok(calls) => {
            output::note(&format!("{calls} calls"));
            Ok(())
        }
        Err(ExportError::File(error)) if args.output.is_none() => Err(output::failed(error)),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn trace(ledger: &Path, since: SystemTime, file: &Path) -> Result<u64, Error> {
    let output = private_file::create(file).map_err(SystemError::write(file))?;
    let options = ExportOptions {
        since: Some(since),
        until: None,
        format: FileFormat::Mooncake,
        spreadsheet: false,
    };
    let reader = super::reader(ledger);
    Ok(write(&reader, &options, Box::new(output))?)
}

fn ledger(args: &ExportArgs) -> Result<PathBuf, Error> {
    if let Some(path) = &args.ledger {
        return Ok(path.clone());
    }
    let (config, origin) = super::load(&args.config)?;
    let ledger = config.ledger.map(|ledger| ledger.path);
    Ok(ledger.ok_or_else(|| CommandError::NoLedgerConfigured(origin))?)
}
