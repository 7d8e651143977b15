//! The option `--format`, for commands with several output formats.

use clap::{Args, ValueEnum, builder};

const JSON: &str = "json";

/// The format of a command's output. The first format of `F` is the default.
#[derive(Debug, Clone, Args)]
pub struct FormatArgs<F>
where
    F: ValueEnum + Send + Sync + 'static,
{
    /// Format of the output
    #[arg(long, value_enum, default_value = first::<F>())]
    format: F,
    /// Short for `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl<F> FormatArgs<F>
where
    F: ValueEnum + Send + Sync + 'static,
{
    /// Returns the format that the command line selects.
    pub fn chosen(&self) -> F {
        let json = self.json.then(|| F::from_str(JSON, false).ok()).flatten();
        json.unwrap_or_else(|| self.format.clone())
    }
}

fn first<F: ValueEnum>() -> builder::OsStr {
    let first = F::value_variants().first();
    let first = first.and_then(ValueEnum::to_possible_value);
    first.map_or_else(builder::OsStr::default, |first| {
        first.get_name().to_owned().into()
    })
}

/// Formats of commands that have no special format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Table for terminals
    #[value(alias = "table")]
    Text,
    /// JSON for programs
    Json,
}

/// Formats of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReferenceFormat {
    /// Markdown table for documents
    Markdown,
    /// One JSON object per line for each entry
    Json,
}
