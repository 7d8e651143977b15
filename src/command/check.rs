//! `tokengauge check`: validates the configuration, with line, column and reason of each error.

mod summary;

use crate::Error;
use crate::cli::CheckArgs;
use tokengauge_config::{self as config, Config};
use tokengauge_process::output;
use tokengauge_process::{check, ledger};

pub(super) fn check(args: &CheckArgs) -> Result<(), Error> {
    let (text, origin) = super::text(&args.config)?;
    let mut config = Config::parse(&text, &origin)?;
    super::take_admin_token(&mut config)?;
    config::check_named_files(&text, &origin)?;
    check::files(&config)?;
    check::started(&config)?;
    // A file of values names folders of the pod.
    let here = !args.config.config.as_deref().is_some_and(config::is_values);
    if here {
        check::state(&config)?;
    }
    let mut warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    let unwritable = here.then(|| ledger::unwritable(&config)).flatten();
    warnings.extend(unwritable.map(|reason| format!(": {reason}")));
    for warning in &warnings {
        output::note(&format!("warning: {origin}{warning}"));
    }
    let mut text = match warnings.len() {
        0 => format!("{origin}: valid\n"),
        1 => format!("{origin}: valid, with a warning\n"),
        several => format!("{origin}: valid, with {several} warnings\n"),
    };
    for line in summary::lines(&config) {
        text += &format!("  {line}\n");
    }
    output::print(&text)?;
    if args.strict && !warnings.is_empty() {
        Err(Error::Failed("there are warnings".to_owned()))
    } else {
        Ok(())
    }
}
