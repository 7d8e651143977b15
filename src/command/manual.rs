//! `tokengauge print completions` and `tokengauge print man`, generated from the command line.

use crate::Error;
use crate::cli::{self, CompletionsArgs, ManArgs};
use clap_mangen::Man;
use tokengauge_process::{SystemError, output};

const NAME: &str = "tokengauge";

pub(super) fn completions(args: &CompletionsArgs) -> Result<(), Error> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command(), NAME, &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

pub(super) fn man(args: &ManArgs) -> Result<(), Error> {
    // The title of a manual page needs a version without line breaks.
    let command = cli::command().long_version(env!("CARGO_PKG_VERSION"));
    let Some(folder) = &args.folder else {
        let mut text = Vec::new();
        let written = Man::new(command).render(&mut text);
        written.map_err(SystemError::Output)?;
        return output::print(&String::from_utf8_lossy(&text));
    };
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    Ok(written.map_err(SystemError::write(folder))?)
}
