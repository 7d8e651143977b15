//! The options of `score`.

use super::*;

/// Options of `score`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("target").args(["call", "session", "trace"]))]
pub struct ScoreArgs {
    /// Name of the score, such as `success`: a-z, 0-9, `_`, `.` and `-`
    #[arg(required_unless_present = "file", requires = "value")]
    pub name: Option<String>,
    /// Value of the score: a number, `true` or `false`. A higher value is better
    #[arg(allow_negative_numbers = true, requires = "target")]
    pub value: Option<String>,
    /// Scored call: its id, or the provider's id of the response
    #[arg(long, value_name = "ID")]
    pub call: Option<String>,
    /// Scored session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Scored trace: 32 hexadecimal digits
    #[arg(long, value_name = "ID")]
    pub trace: Option<String>,
    /// Program that gives the score
    #[arg(long, value_name = "TEXT")]
    pub source: Option<String>,
    /// Send the scores of this file: one JSON object per line, as in /api/v1/scores; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "target", "source"])]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub admin: AdminArgs,
}
