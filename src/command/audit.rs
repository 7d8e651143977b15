//! `tokengauge audit`: whether logs of what was decided are as they were written.

use crate::Error;
use crate::cli::{AuditCommand, VerifyArgs};
use tokengauge_files::audit;
use tokengauge_process::output;

pub(super) fn audit(command: &AuditCommand) -> Result<(), Error> {
    match command {
        AuditCommand::Verify(args) => verify(args),
    }
}

fn verify(args: &VerifyArgs) -> Result<(), Error> {
    let file = args.file.display();
    let verified =
        audit::verify(&args.file).map_err(|error| Error::Failed(format!("{file}: {error}")))?;
    let head = &verified.head;
    if let Some(noted) = args.head.as_ref().filter(|noted| *noted != head) {
        return Err(Error::Failed(format!(
            "{file}: the last line has the hash {head}, not {noted}: lines were added since, or taken away from the end"
        )));
    }
    let before = match verified.unchained {
        0 => String::new(),
        lines => format!(", of which {lines} are from before lines had hashes"),
    };
    output::print(&format!(
        "{file}: {} lines{before}, each follows from the one before\nhead {head}\n",
        verified.lines
    ))
}
